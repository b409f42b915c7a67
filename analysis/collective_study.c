#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/fit_input.h"
#include "analysis/record.h"
#include "base/err.h"

/* A size of a kind on an axis: what a row of a table is about. */
static int compare_keys(const struct call_row *a, const struct call_row *b)
{
    int order = strncmp(a->axis, b->axis, sizeof a->axis);
    if (order == 0)
        order = strncmp(a->kind, b->kind, sizeof a->kind);
    if (order != 0)
        return order;
    if (a->group != b->group)
        return a->group < b->group ? -1 : 1;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? -1 : 1;
    return 0;
}

/* Then by group, then by the call itself, so that its ranks stand together. */
static int compare(const void *x, const void *y)
{
    const struct call_row *a = *(const struct call_row *const *)x;
    const struct call_row *b = *(const struct call_row *const *)y;
    int order = compare_keys(a, b);
    if (order != 0)
        return order;
    if (a->first != b->first)
        return a->first < b->first ? -1 : 1;
    if (a->step != b->step)
        return a->step < b->step ? -1 : 1;
    return (a->call > b->call) - (a->call < b->call);
}

/* Two ends of a transfer are two calls, either of which waits for the other, and where routing decides
 * each rank has bytes of its own: none of these is the time of one size. */
static bool has_one_time(const struct call_row *row)
{
    static const char *const none[] = {"send", "recv", "all-to-all-v"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        if (strncmp(row->kind, none[i], sizeof row->kind) == 0)
            return false;
    return row->bytes > 0 && row->duration_ns > 0 && row->group > 1;
}

static const struct call_row **sorted_calls(const struct record_point *p, int64_t *n)
{
    const struct call_row **calls = must_alloc((size_t)p->collectives.n + 1, sizeof *calls);
    int variant = VARIANT_FULL;
    for (int64_t i = 0; i < p->collectives.n; i++)
        if (p->collectives.rows[i].variant == VARIANT_COMM)
            variant = VARIANT_COMM;
    *n = 0;
    for (int64_t i = 0; i < p->collectives.n; i++) {
        const struct call_row *row = &p->collectives.rows[i];
        if (row->variant == variant && has_one_time(row))
            calls[(*n)++] = row;
    }
    qsort(calls, (size_t)*n, sizeof *calls, compare);
    return calls;
}

static struct collective_table *table_for(struct collective_tables *out, const struct call_row *row,
                                          const struct collective_table *like, int from)
{
    char name[24], axis[16];
    snprintf(axis, sizeof axis, "%.*s", (int)sizeof axis - 1, row->axis);
    snprintf(name, sizeof name, "%.*s", (int)sizeof row->kind, row->kind);
    for (char *c = name; *c != '\0'; c++)
        *c = *c == '-' ? '_' : *c;
    if (strcmp(name, "all_to_all") == 0)
        snprintf(name, sizeof name, "alltoall");
    for (int i = from; i < out->n; i++)
        if (strcmp(out->tables[i].operation, name) == 0 && out->tables[i].ranks == row->group &&
            strcmp(out->tables[i].axis, axis) == 0)
            return &out->tables[i];
    struct collective_table *table = collective_tables_add(out);
    *table = *like;
    snprintf(table->operation, sizeof table->operation, "%s", name);
    snprintf(table->axis, sizeof table->axis, "%s", axis);
    table->ranks = row->group;
    return table;
}

/* Calls of one size: of a call its shortest rank, of a group the mean of its calls. */
struct sizes {
    int64_t n;    /* rows of calls */
    int64_t most; /* ranks of a call; more than a group has: groups are not told apart */
    int64_t groups;
    double slowest_ns, fastest_ns; /* of groups */
};

/* One group's calls from `calls` on; -> how many rows. */
static int64_t one_group(const struct call_row *const *calls, int64_t n, int64_t *most,
                         double *mean_ns)
{
    double sum = 0.0;
    int64_t i = 0, count, n_calls = 0;
    for (; i < n && compare_keys(calls[i], calls[0]) == 0 && calls[i]->first == calls[0]->first;
         i += count) {
        double least = (double)calls[i]->duration_ns;
        for (count = 1; i + count < n && compare(&calls[i + count], &calls[i]) == 0; count++)
            least = fmin(least, (double)calls[i + count]->duration_ns);
        *most = count > *most ? count : *most;
        sum += least;
        n_calls++;
    }
    *mean_ns = sum / (double)n_calls;
    return i;
}

static struct sizes one_size(const struct call_row *const *calls, int64_t n)
{
    struct sizes out = {.slowest_ns = NAN, .fastest_ns = NAN};
    while (out.n < n && compare_keys(calls[out.n], calls[0]) == 0) {
        double mean_ns;
        out.n += one_group(calls + out.n, n - out.n, &out.most, &mean_ns);
        out.slowest_ns = fmax(out.slowest_ns, mean_ns);
        out.fastest_ns = fmin(out.fastest_ns, mean_ns);
        out.groups++;
    }
    return out;
}

static void say_groups(struct collective_table *table, const struct sizes *size)
{
    bool told = size->most <= table->ranks;
    int64_t at_once = told ? size->groups : size->most / table->ranks;
    table->at_once = at_once > table->at_once ? at_once : table->at_once;
    double apart = told ? size->slowest_ns / size->fastest_ns : (double)NAN;
    if (table->n_rows == 0 || isnan(apart) || apart > table->apart) /* NaN stays */
        table->apart = apart;
}

void collective_tables_of_point(struct collective_tables *out, const struct record_point *point,
                                const char *source, const char *name)
{
    int64_t n;
    struct sizes size;
    struct collective_table like = {.ranks = -1, .nodes = -1};
    snprintf(like.source, sizeof like.source, "%s", source);
    snprintf(like.point, sizeof like.point, "%s", name);
    int from = out->n;
    const struct call_row **calls = sorted_calls(point, &n);
    for (int64_t i = 0; i < n; i += size.n) {
        size = one_size(calls + i, n - i);
        struct collective_table *table = table_for(out, calls[i], &like, from);
        say_groups(table, &size);
        struct collective_row row = {.bytes = (double)calls[i]->bytes,
                                     .count = NAN,
                                     .time_us = size.slowest_ns * 1e-3,
                                     .algbw_GBps = NAN,
                                     .busbw_GBps = NAN,
                                     .wrong = NAN,
                                     .in_place_us = NAN,
                                     .in_place_algbw_GBps = NAN,
                                     .in_place_busbw_GBps = NAN,
                                     .in_place_wrong = NAN};
        collective_table_add(table, &row);
    }
    free(calls);
}
