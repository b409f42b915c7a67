#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/fit_input.h"
#include "analysis/record.h"
#include "base/err.h"

static int compare_keys(const struct call_row *a, const struct call_row *b)
{
    int order = strncmp(a->kind, b->kind, sizeof a->kind);
    if (order != 0)
        return order;
    if (a->group != b->group)
        return a->group < b->group ? -1 : 1;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes ? -1 : 1;
    return 0;
}

/* By kind, group, size, then by the call itself, so that its ranks stand together. */
static int compare(const void *x, const void *y)
{
    const struct call_row *a = *(const struct call_row *const *)x;
    const struct call_row *b = *(const struct call_row *const *)y;
    int order = compare_keys(a, b);
    if (order != 0)
        return order;
    if (a->step != b->step)
        return a->step < b->step ? -1 : 1;
    return (a->call > b->call) - (a->call < b->call);
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
        if (row->variant == variant && row->bytes > 0 && row->duration_ns > 0 && row->group > 1)
            calls[(*n)++] = row;
    }
    qsort(calls, (size_t)*n, sizeof *calls, compare);
    return calls;
}

static struct collective_table *table_for(struct collective_tables *out, const struct call_row *row,
                                          const struct collective_table *like, int from)
{
    char name[24];
    snprintf(name, sizeof name, "%.*s", (int)sizeof row->kind, row->kind);
    for (char *c = name; *c != '\0'; c++)
        *c = *c == '-' ? '_' : *c;
    if (strcmp(name, "all_to_all") == 0)
        snprintf(name, sizeof name, "alltoall");
    for (int i = from; i < out->n; i++)
        if (strcmp(out->tables[i].operation, name) == 0 && out->tables[i].ranks == row->group)
            return &out->tables[i];
    struct collective_table *table = collective_tables_add(out);
    memcpy(table->source, like->source, sizeof table->source);
    memcpy(table->point, like->point, sizeof table->point);
    table->at_once = like->ranks / row->group;
    snprintf(table->operation, sizeof table->operation, "%s", name);
    table->ranks = row->group;
    return table;
}

static bool same_call(const struct call_row *a, const struct call_row *b)
{
    return compare(&a, &b) == 0;
}

void collective_tables_of_point(struct collective_tables *out, const struct record_point *point,
                                const char *source, const char *name)
{
    int64_t n, count;
    struct collective_table like = {.ranks = point->point.ranks};
    snprintf(like.source, sizeof like.source, "%s", source);
    snprintf(like.point, sizeof like.point, "%s", name);
    int from = out->n;
    const struct call_row **calls = sorted_calls(point, &n);
    for (int64_t i = 0; i < n; i += count) {
        double sum = 0.0, least = 0.0;
        int64_t n_calls = 0;
        for (count = 0; i + count < n && compare_keys(calls[i + count], calls[i]) == 0; count++) {
            double took = (double)calls[i + count]->duration_ns;
            bool next = count == 0 || !same_call(calls[i + count], calls[i + count - 1]);
            sum += next ? least : 0.0;
            n_calls += next;
            least = next ? took : fmin(least, took);
        }
        struct collective_row row = {.bytes = (double)calls[i]->bytes,
                                     .count = NAN,
                                     .time_us = (sum + least) / (double)n_calls * 1e-3,
                                     .algbw_GBps = NAN,
                                     .busbw_GBps = NAN,
                                     .wrong = NAN,
                                     .in_place_us = NAN,
                                     .in_place_algbw_GBps = NAN,
                                     .in_place_busbw_GBps = NAN,
                                     .in_place_wrong = NAN};
        collective_table_add(table_for(out, calls[i], &like, from), &row);
    }
    free(calls);
}
