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
    case TABLE_COUNT:
        break;
    }
    BUG("table %d is not of a point", (int)which);
}

const void *record_head_rows(const struct record_head *head, enum record_table_index which,
                             int64_t *n)
{
    *n = which == TABLE_hosts ? head->n_hosts : head->n_ranks;
    return which == TABLE_hosts ? (const void *)head->hosts : (const void *)head->ranks;
}

void record_head_adopt(struct record_head *head, enum record_table_index which, void *rows,
                       int64_t n)
{
    if (which == TABLE_hosts) {
        free(head->hosts);
        head->hosts = rows;
        head->n_hosts = n;
    } else {
        free(head->ranks);
        head->ranks = rows;
        head->n_ranks = n;
    }
}
