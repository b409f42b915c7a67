#include "analysis/report_key.h"

static int set_of(const struct scaling *s, const struct point_row *point)
{
    for (int i = 0; i < s->n_rows; i++)
        for (int j = 0; j < s->rows[i].n_runs; j++)
            if (&s->rows[i].runs[j].account.record->point == point)
                return s->rows[i].set;
    return -1;
}

/* Whether a point was also measured on all nodes at once. */
static bool has_copies(const struct scaling *s)
{
    for (int i = 0; i < s->n_rows; i++)
        if (s->rows[i].point->copies > 1)
            return true;
    return false;
}

void report_key_open(struct table *table, const struct scaling *scaling, const char *names)
{
    char columns[512];
    snprintf(columns, sizeof columns, "nodes ranks %s%s%s", scaling->n_sets > 1 ? "set " : "",
             has_copies(scaling) ? "copies " : "", names);
    table_open(table, columns);
}

void report_key_cells(struct table *table, const struct scaling *scaling,
                      const struct point_row *point)
{
    table_int(table, point->nodes);
    table_int(table, point->ranks);
    if (scaling->n_sets > 1)
        table_int(table, set_of(scaling, point));
    if (has_copies(scaling))
        table_int(table, point->copies > 1 ? point->copies : 1);
}

void report_key_text(char text[REPORT_KEY], const struct scaling *scaling,
                     const struct point_row *point)
{
    int used = snprintf(text, REPORT_KEY, "%dx%d%s", point->nodes, point->ranks_per_node,
                        point->copies > 1 ? " loaded" : "");
    if (scaling->n_sets > 1)
        snprintf(text + used, (size_t)(REPORT_KEY - used), " of set %d", set_of(scaling, point));
}
