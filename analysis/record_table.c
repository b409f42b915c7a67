#include "analysis/record_schema.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"

void *record_room(void *rows, size_t row_size, int64_t n, int64_t *capacity, int64_t more)
{
    if (n < 0 || more < 0 || n > INT64_MAX / (int64_t)row_size / 2 - more)
        BUG("a table of %lld and %lld more rows", (long long)n, (long long)more);
    if (n + more > *capacity || rows == NULL) {
        int64_t wanted = *capacity * 2 > n + more ? *capacity * 2 : n + more;
        *capacity = wanted > 16 ? wanted : 16;
        rows = must_grow(rows, (size_t)*capacity, row_size);
    }
    memset((char *)rows + (size_t)n * row_size, 0, (size_t)more * row_size);
    return rows;
}

void record_point_release(struct record_point *point)
{
#define RELEASE(name, row, columns) free(point->name.rows);
    POINT_TABLES(RELEASE)
#undef RELEASE
    *point = (struct record_point){0};
}

const void *record_point_rows(const struct record_point *point, enum record_table_index which,
                              int64_t *n)
{
    switch (which) {
    case TABLE_point:
        *n = 1;
        return &point->point;
#define CASE(name, row, columns)                                                                   \
    case TABLE_##name:                                                                             \
        *n = point->name.n;                                                                        \
        return point->name.rows;
        POINT_TABLES(CASE)
#undef CASE
    case TABLE_hosts:
    case TABLE_ranks:
    case TABLE_ceilings:
    case TABLE_COUNT:
        break;
    }
    BUG("table %d is not of a point", (int)which);
}

void record_point_adopt(struct record_point *point, enum record_table_index which, void *rows,
                        int64_t n)
{
    switch (which) {
    case TABLE_point:
        if (n > 0)
            memcpy(&point->point, rows, sizeof point->point);
        free(rows);
        return;
#define CASE(name, row, columns)                                                                   \
    case TABLE_##name:                                                                             \
        free(point->name.rows);                                                                    \
        point->name.rows = rows;                                                                   \
        point->name.n = point->name.capacity = n;                                                  \
        return;
        POINT_TABLES(CASE)
#undef CASE
    case TABLE_hosts:
    case TABLE_ranks:
    case TABLE_ceilings:
    case TABLE_COUNT:
        break;
    }
    BUG("table %d is not of a point", (int)which);
}

void record_point_join(struct record_point *point, struct record_point *more)
{
#define JOIN(name, row, columns)                                                                   \
    if (more->name.n > 0)                                                                          \
        memcpy(RECORD_ADD(&point->name, more->name.n), more->name.rows,                            \
               (size_t)more->name.n * sizeof(row));
    POINT_TABLES(JOIN)
#undef JOIN
    point->point = more->point;
    record_point_release(more);
}

const void *record_head_rows(const struct record_head *head, enum record_table_index which,
                             int64_t *n)
{
    if (which == TABLE_hosts) {
        *n = head->n_hosts;
        return head->hosts;
    }
    *n = which == TABLE_ranks ? head->n_ranks : head->n_ceilings;
    return which == TABLE_ranks ? (const void *)head->ranks : (const void *)head->ceilings;
}

void record_head_adopt(struct record_head *head, enum record_table_index which, void *rows,
                       int64_t n)
{
    if (which == TABLE_hosts) {
        free(head->hosts);
        head->hosts = rows;
        head->n_hosts = n;
    } else if (which == TABLE_ranks) {
        free(head->ranks);
        head->ranks = rows;
        head->n_ranks = n;
    } else {
        free(head->ceilings);
        head->ceilings = rows;
        head->n_ceilings = n;
    }
}
