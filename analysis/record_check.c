#include "analysis/record_schema.h"

#include <stdio.h>
#include <string.h>

enum { RANKS_MOST = 1 << 22 };

/* Columns that readers use as an index; the bound depends on the point. */
struct bound {
    const char *column;
    int64_t least, most;
};

static int64_t integer(const struct record_column *column, const char *row)
{
    int32_t narrow;
    int64_t wide;
    if (column->kind == RECORD_I32) {
        memcpy(&narrow, row + column->offset, sizeof narrow);
        return narrow;
    }
    memcpy(&wide, row + column->offset, sizeof wide);
    return wide;
}

static bool texts_right(const struct record_table *table, const struct record_column *column,
                        const char *rows, int64_t n, char *why)
{
    const char *last = rows + column->offset + column->size - 1;
    for (int64_t i = 0; i < n; i++, last += table->row_size) {
        if (*last == '\0')
            continue;
        snprintf(why, RECORD_WHY, "%s row %lld: %s does not end within %zu bytes", table->name,
                 (long long)i, column->name, column->size);
        return false;
    }
    return true;
}

static bool values_right(const struct record_table *table, const struct record_column *column,
                         const struct bound *bound, const char *rows, int64_t n, char *why)
{
    for (int64_t i = 0; i < n; i++, rows += table->row_size) {
        int64_t value = integer(column, rows);
        if (value >= bound->least && value <= bound->most)
            continue;
        snprintf(why, RECORD_WHY, "%s row %lld: %s is %lld, not within %lld to %lld", table->name,
                 (long long)i, column->name, (long long)value, (long long)bound->least,
                 (long long)bound->most);
        return false;
    }
    return true;
}

static bool table_right(enum record_table_index which, const void *rows, int64_t n,
                        const struct bound *bounds, int n_bounds, char *why)
{
    struct record_table table = record_table(which);
    for (int c = 0; c < table.n_columns && n > 0; c++) {
        const struct record_column *column = &table.columns[c];
        if (column->kind == RECORD_TEXT && !texts_right(&table, column, rows, n, why))
            return false;
        for (int b = 0; b < n_bounds; b++)
            if (column->kind != RECORD_TEXT && strcmp(bounds[b].column, column->name) == 0 &&
                !values_right(&table, column, &bounds[b], rows, n, why))
                return false;
    }
    return true;
}

/* `steps` of the whole point. */
static bool rows_right(const struct record_point *point, int64_t steps, char *why)
{
    static const struct bound keys[] = {{"point", 0, 999999},
                                        {"launch", 0, 999999},
                                        {"ranks", 1, RANKS_MOST},
                                        {"part", 0, 999999999}};
    bool right = table_right(TABLE_point, &point->point, 1, keys, 4, why);
    for (int which = TABLE_point + 1; which < TABLE_COUNT && right; which++) {
        /* A gate row may be about the whole model; an event names a rank of the job. */
        int64_t least = which == TABLE_gate || which == TABLE_events ? -1 : 0;
        int64_t most = which == TABLE_events ? RANKS_MOST : point->point.ranks - 1;
        struct bound bounds[] = {{"rank", least, most},       {"variant", 0, VARIANTS - 1},
                                 {"step", 0, steps - 1}, /* every step has at least one row */
                                 {"block", 0, INT32_MAX - 1}, {"call", 0, INT32_MAX - 1},
                                 {"op", 0, INT32_MAX - 1}};
        int64_t n;
        const void *rows = record_point_rows(point, (enum record_table_index)which, &n);
        right = table_right((enum record_table_index)which, rows, n, bounds, 6, why);
    }
    return right;
}

bool record_point_right(const struct record_point *point, char why[RECORD_WHY])
{
    return rows_right(point, point->steps.n > 0 ? point->steps.n : INT32_MAX, why);
}

bool record_piece_right(const struct record_point *point, char why[RECORD_WHY])
{
    return rows_right(point, INT32_MAX, why);
}

bool record_head_right(const struct record_head *head, char why[RECORD_WHY])
{
    struct bound bounds[] = {
        {"rank", 0, RANKS_MOST}, {"host", 0, head->n_hosts - 1}, {"launch", 0, 999999}};
    return table_right(TABLE_hosts, head->hosts, head->n_hosts, bounds, 3, why) &&
           table_right(TABLE_ranks, head->ranks, head->n_ranks, bounds, 3, why) &&
           table_right(TABLE_ceilings, head->ceilings, head->n_ceilings, bounds, 3, why);
}
