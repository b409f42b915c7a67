#include "analysis/audit_calls.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "analysis/report_json_cell.h"
#include "analysis/stats.h"
#include "base/err.h"

static bool alike(const struct audit_call_row *a, const struct audit_call_row *b)
{
    return a->bytes == b->bytes && strncmp(a->axis, b->axis, sizeof a->axis) == 0 &&
           strncmp(a->kind, b->kind, sizeof a->kind) == 0;
}

static double difference_us(const struct audit_call_row *row, enum audit_side side)
{
    int64_t start = row->start_ns - row->record_start_ns;
    int64_t duration = row->duration_ns - row->record_duration_ns;
    int64_t ns = side == AUDIT_START ? start : side == AUDIT_END ? start + duration : duration;
    return (double)ns / 1e3;
}

static void measure(struct audit_group *g, const struct record_point *point)
{
    const struct audit_call_row *rows = point->audit_calls.rows;
    size_t room = (size_t)point->audit_calls.n + 1;
    double *stamps = must_alloc(room, sizeof *stamps), *records = must_alloc(room, sizeof *records);
    double *off = must_alloc(AUDIT_SIDES * room, sizeof *off);
    g->n = 0;
    for (int64_t i = 0; i < point->audit_calls.n; i++) {
        if (!alike(&rows[i], g->like))
            continue;
        stamps[g->n] = (double)rows[i].duration_ns / 1e3;
        records[g->n] = (double)rows[i].record_duration_ns / 1e3;
        for (int side = 0; side < AUDIT_SIDES; side++)
            off[(size_t)side * room + (size_t)g->n] =
                difference_us(&rows[i], (enum audit_side)side);
        g->n++;
    }
    g->stamps_us = stats_median(stamps, g->n);
    g->records_us = stats_median(records, g->n);
    g->ratio = stats_mean(stamps, g->n) / stats_mean(records, g->n);
    for (int side = 0; side < AUDIT_SIDES; side++) {
        const double *x = off + (size_t)side * room;
        g->low[side] = stats_quantile(x, g->n, 0.05);
        g->middle[side] = stats_quantile(x, g->n, 0.5);
        g->high[side] = stats_quantile(x, g->n, 0.95);
    }
    free(stamps);
    free(records);
    free(off);
}

int audit_groups(struct audit_group out[AUDIT_GROUPS], const struct record_point *point,
                 int *left_out)
{
    const struct audit_call_row *rows = point->audit_calls.rows;
    int n = 0;
    *left_out = 0;
    for (int64_t i = 0; i < point->audit_calls.n; i++) {
        int at = 0;
        while (at < n && !alike(out[at].like, &rows[i]))
            at++;
        if (at < n)
            continue;
        if (n == AUDIT_GROUPS)
            (*left_out)++;
        else
            out[n++] = (struct audit_group){.like = &rows[i]};
    }
    for (int i = 0; i < n; i++)
        measure(&out[i], point);
    return n;
}

static json_t *quantiles(const struct audit_group *g, enum audit_side side)
{
    return json_pack("{s:o, s:o, s:o}", "p5", json_real(g->low[side]), "p50",
                     json_real(g->middle[side]), "p95", json_real(g->high[side]));
}

json_t *audit_calls_json(const struct record_point *point)
{
    static const char *const names[AUDIT_SIDES] = {"start_off_us", "end_off_us", "duration_off_us"};
    struct audit_group groups[AUDIT_GROUPS];
    int left_out = 0, n = audit_groups(groups, point, &left_out);
    json_t *list = json_array();
    for (int i = 0; i < n; i++) {
        const struct audit_group *g = &groups[i];
        json_t *json = json_object();
        json_object_set_new(json, "axis", report_json_text(g->like->axis));
        json_object_set_new(json, "kind", report_json_text(g->like->kind));
        json_object_set_new(json, "bytes", json_integer(g->like->bytes));
        json_object_set_new(json, "calls", json_integer(g->n));
        json_object_set_new(json, "stamps_us", json_real(g->stamps_us));
        json_object_set_new(json, "records_us", json_real(g->records_us));
        json_object_set_new(json, "stamps_over_records",
                            isfinite(g->ratio) ? json_real(g->ratio) : json_null());
        for (int side = 0; side < AUDIT_SIDES; side++)
            json_object_set_new(json, names[side], quantiles(g, (enum audit_side)side));
        json_array_append_new(list, json);
    }
    return list;
}
