#include "analysis/collective_table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

struct collective_table *collective_tables_add(struct collective_tables *tables)
{
    tables->tables = must_grow(tables->tables, (size_t)tables->n + 1, sizeof *tables->tables);
    struct collective_table *table = &tables->tables[tables->n++];
    *table = (struct collective_table){.ranks = -1, .nodes = -1};
    return table;
}

struct collective_row *collective_table_add(struct collective_table *table,
                                            const struct collective_row *row)
{
    table->rows = must_grow(table->rows, (size_t)table->n_rows + 1, sizeof *table->rows);
    table->rows[table->n_rows] = *row;
    return &table->rows[table->n_rows++];
}

void collective_tables_release(struct collective_tables *tables)
{
    for (int i = 0; i < tables->n; i++)
        free(tables->tables[i].rows);
    free(tables->tables);
    *tables = (struct collective_tables){0};
}

/* nccl-tests, doc/PERFORMANCE.md: what the slowest link of a ring must carry, over S. */
double collective_busbw_factor(const char *operation, int64_t ranks)
{
    static const struct {
        const char *name;
        double of_shares; /* times (n - 1) / n; 0: the factor is 1 */
    } factors[] = {{"all_reduce", 2.0}, {"all_gather", 1.0}, {"reduce_scatter", 1.0},
                   {"alltoall", 1.0},   {"gather", 1.0},     {"scatter", 1.0},
                   {"broadcast", 0.0},  {"reduce", 0.0},     {"sendrecv", 0.0},
                   {"hypercube", 0.0}};
    for (size_t i = 0; i < sizeof factors / sizeof *factors && ranks >= 2; i++)
        if (strcmp(operation, factors[i].name) == 0)
            return factors[i].of_shares == 0.0
                       ? 1.0
                       : factors[i].of_shares * (double)(ranks - 1) / (double)ranks;
    return NAN;
}
