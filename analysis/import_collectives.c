#include "analysis/import_collectives.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"

struct collective_row collective_row_unknown(void)
{
    return (struct collective_row){.bytes = NAN,
                                   .count = NAN,
                                   .time_us = NAN,
                                   .algbw_GBps = NAN,
                                   .busbw_GBps = NAN,
                                   .wrong = NAN,
                                   .in_place_us = NAN,
                                   .in_place_algbw_GBps = NAN,
                                   .in_place_busbw_GBps = NAN,
                                   .in_place_wrong = NAN};
}

/* What bytes and time give, where it was printed well enough to be compared. */
static double ratio_of(const struct collective_row *row)
{
    double given = row->algbw_GBps, derived = row->bytes / row->time_us * 1e-3;
    return row->bytes > 0.0 && given >= 1.0 ? given / derived : (double)NAN;
}

static int check_units(const struct import *import, const struct collective_table *table)
{
    static const struct {
        double ratio;
        const char *words;
    } mixed[] = {{8.0, "bits for bytes"},
                 {0.125, "bytes for bits"},
                 {1.073741824, "GB where it says GiB, or a size in GiB"},
                 {1.0 / 1.073741824, "GiB/s where it says GB/s"},
                 {1e3, "ms for us"},
                 {1e-3, "us for ms"},
                 {1e6, "s for us"}};
    double low = INFINITY, high = 0.0;
    for (int i = 0; i < table->n_rows; i++) {
        double ratio = ratio_of(&table->rows[i]);
        low = fmin(low, ratio);
        high = fmax(high, ratio);
    }
    for (size_t i = 0; i < sizeof mixed / sizeof *mixed; i++)
        if (high >= low && low > 0.98 * mixed[i].ratio && high < 1.02 * mixed[i].ratio)
            return fail(FAIL_WRONG,
                        "%s:%d: algbw is %.4g times size / time in every row: %s; correct the "
                        "unit in the table",
                        import->paths[import->n_paths - 1], table->rows[0].line, low,
                        mixed[i].words);
    return 0;
}

static void check_row(struct import *import, const struct collective_table *table,
                      const struct collective_row *row)
{
    double factor = collective_busbw_factor(table->operation, table->ranks);
    double ratio = ratio_of(row), expected = row->algbw_GBps * factor;
    if (fabs(ratio - 1.0) > 0.02)
        import_note(import, row->line,
                    "algbw %.4g GB/s is not size / time: %.0f B / %.4g us = %.4g GB/s",
                    row->algbw_GBps, row->bytes, row->time_us, row->bytes / row->time_us * 1e-3);
    if (row->algbw_GBps >= 1.0 && fabs(row->busbw_GBps / expected - 1.0) > 0.02)
        import_note(import, row->line,
                    "busbw %.4g GB/s is not algbw times the factor %.4g of %s on %lld ranks: %.4g",
                    row->busbw_GBps, factor, table->operation, (long long)table->ranks, expected);
    if (row->wrong > 0.0 || row->in_place_wrong > 0.0)
        import_note(import, row->line, "%.0f wrong elements: the time of a wrong result",
                    fmax(row->wrong, row->in_place_wrong));
}

int import_check_collective(struct import *import, struct collective_table *table)
{
    int rc = check_units(import, table);
    for (int i = 0; i < table->n_rows && rc == 0; i++) {
        struct collective_row *row = &table->rows[i];
        double factor = collective_busbw_factor(table->operation, table->ranks);
        if (i > 0 && !(row->bytes > table->rows[i - 1].bytes) && row->bytes > 0.0)
            return fail(FAIL_USAGE,
                        "%s:%d: size %.0f follows %.0f in one table of %s: sizes must increase",
                        import->paths[import->n_paths - 1], row->line, row->bytes,
                        table->rows[i - 1].bytes, table->operation);
        check_row(import, table, row);
        if (isnan(row->algbw_GBps) && row->time_us > 0.0)
            row->algbw_GBps = row->bytes / row->time_us * 1e-3;
        if (isnan(row->algbw_GBps))
            row->algbw_GBps = row->busbw_GBps / factor;
        if (isnan(row->busbw_GBps))
            row->busbw_GBps = row->algbw_GBps * factor;
        if (isnan(row->time_us) && row->algbw_GBps > 0.0)
            row->time_us = row->bytes / row->algbw_GBps * 1e-3;
    }
    return rc;
}

static int64_t count_of(double value)
{
    return isnan(value) ? -1 : (int64_t)value;
}

static struct collective_table *table_for(struct import *import, int first_table,
                                          const struct import_row *row)
{
    int64_t ranks = count_of(row->value[IMPORT_DEVICES]);
    int64_t nodes = count_of(row->value[IMPORT_NODES]);
    for (int i = first_table; i < import->collectives.n; i++) {
        struct collective_table *t = &import->collectives.tables[i];
        if (strncmp(t->operation, row->word[WORD_OPERATION], sizeof t->operation - 1) == 0 &&
            t->ranks == ranks && t->nodes == nodes)
            return t;
    }
    struct collective_table *t = collective_tables_add(&import->collectives);
    snprintf(t->source, sizeof t->source, "%s", import->paths[row->file]);
    snprintf(t->operation, sizeof t->operation, "%.*s", (int)sizeof t->operation - 1,
             row->word[WORD_OPERATION]);
    t->ranks = ranks;
    t->nodes = nodes;
    return t;
}

int import_collect(struct import *import, int first)
{
    int kept = first, first_table = import->collectives.n, rc = 0;
    for (int i = first; i < import->n_rows; i++) {
        struct import_row *row = &import->rows[i];
        if (isnan(row->value[IMPORT_BYTES])) {
            import->rows[kept++] = *row;
            continue;
        }
        struct collective_row out = collective_row_unknown();
        out.line = row->line;
        out.bytes = row->value[IMPORT_BYTES];
        out.time_us = row->value[IMPORT_TIME_US];
        out.algbw_GBps = row->value[IMPORT_ALGBW];
        out.busbw_GBps = row->value[IMPORT_BUSBW];
        collective_table_add(table_for(import, first_table, row), &out);
        import_row_release(row);
    }
    if (kept == import->n_rows)
        return 0;
    import->n_rows = kept;
    for (int i = first_table; i < import->collectives.n && rc == 0; i++)
        rc = import_check_collective(import, &import->collectives.tables[i]);
    return rc;
}
