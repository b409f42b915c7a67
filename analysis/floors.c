#include "analysis/floors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/stats.h"
#include "base/err.h"

struct ceilings {
    const struct ceiling_row *row;
    int64_t n;
    bool same_work; /* a step has as many FLOPs of products as the one that was calibrated */
};

/* ---- text of fixed size ---- */

static bool same(const char *text, size_t size, const char *word)
{
    return strncmp(text, word, size) == 0;
}
#define IS(field, word) same(field, sizeof(field), word)

static bool begins(const char *text, const char *word)
{
    return strncmp(text, word, strlen(word)) == 0;
}

/* ---- what was measured ---- */

/* Totals of each step: one more where a row belongs to a step that is not there yet. */
struct totals {
    int n, room;
    int *step;
    double *ns;
    int64_t *count;
};

static void add(struct totals *t, int step, double ns)
{
    int at = 0;
    while (at < t->n && t->step[at] != step)
        at++;
    if (at == t->n) {
        if (t->n == t->room) {
            t->room = 2 * t->room + 16;
            t->step = must_grow(t->step, (size_t)t->room, sizeof *t->step);
            t->ns = must_grow(t->ns, (size_t)t->room, sizeof *t->ns);
            t->count = must_grow(t->count, (size_t)t->room, sizeof *t->count);
        }
        t->step[at] = step;
        t->ns[at] = 0;
        t->count[at] = 0;
        t->n++;
    }
    t->ns[at] += ns;
    t->count[at]++;
}

static void release(struct totals *t)
{
    free(t->step);
    free(t->ns);
    free(t->count);
    memset(t, 0, sizeof *t);
}

/* ---- ceilings ---- */

/* Of the products of the step, and of the large one of their type; of any type where no step's are there. */
static double fastest_gemm(const struct ceilings *c)
{
    const char *dtype = NULL;
    double rate = NAN;
    for (int64_t i = 0; i < c->n; i++)
        if (IS(c->row[i].kind, "gemm") && c->row[i].calls > 0) {
            dtype = c->row[i].dtype;
            rate = fmax(rate, c->row[i].flops / c->row[i].least_us * 1e6);
        }
    for (int64_t i = 0; i < c->n; i++)
        if (IS(c->row[i].kind, "peak") && begins(c->row[i].shape, "gemm") &&
            (dtype == NULL || strncmp(dtype, c->row[i].dtype, sizeof c->row[i].dtype) == 0))
            rate = fmax(rate, c->row[i].flops / c->row[i].least_us * 1e6);
    return rate;
}

static double copy_rate(const struct ceilings *c)
{
    double rate = NAN;
    for (int64_t i = 0; i < c->n; i++)
        if (IS(c->row[i].kind, "copy") && begins(c->row[i].shape, "within the device"))
            rate = fmax(rate, c->row[i].bytes / c->row[i].least_us * 1e6);
    return rate;
}

/* Of all shapes of a kind: ops of a step, their time alone and bytes. */
struct alone {
    int64_t calls;
    double us, bytes;
};

static struct alone alone_of(const struct ceilings *c, const char *kind)
{
    struct alone sum = {0};
    for (int64_t i = 0; i < c->n; i++) {
        const struct ceiling_row *row = &c->row[i];
        if (!IS(row->kind, kind) || row->calls <= 0)
            continue;
        sum.calls += row->calls;
        sum.us += row->calls * row->least_us;
        sum.bytes += row->calls * row->bytes;
    }
    return sum;
}

/* The sizes around `bytes` of calls of a kind among so many ranks; of several levels the fastest. */
static double call_us(const struct ceilings *c, const char *kind, int group, double bytes)
{
    const struct ceiling_row *below = NULL, *above = NULL;
    for (int64_t i = 0; i < c->n; i++) {
        const struct ceiling_row *row = &c->row[i];
        if (!IS(row->kind, kind) || row->group != group || row->bytes <= 0 || row->least_us <= 0)
            continue;
        if (row->bytes <= bytes &&
            (below == NULL || row->bytes > below->bytes ||
             (row->bytes >= below->bytes && row->least_us < below->least_us)))
            below = row;
        if (row->bytes >= bytes &&
            (above == NULL || row->bytes < above->bytes ||
             (row->bytes <= above->bytes && row->least_us < above->least_us)))
            above = row;
    }
    if (below == NULL)
        return above != NULL ? above->least_us : (double)NAN; /* no smaller one was measured */
    if (above == NULL)
        return below->least_us * bytes / below->bytes;
    if (above->bytes <= below->bytes)
        return below->least_us;
    double at = log(bytes / below->bytes) / log(above->bytes / below->bytes);
    return below->least_us * pow(above->least_us / below->least_us, at);
}

/* ---- ops ---- */

static bool kind_is_new(const struct floor_row *rows, int n, const char *axis, const char *kind)
{
    for (int i = 0; i < n; i++)
        if (strcmp(rows[i].axis, axis) == 0 && strcmp(rows[i].kind, kind) == 0)
            return false;
    return true;
}

static void floor_of_gemm(struct floor_row *out, double flops, const struct ceilings *c,
                          double peak_flops)
{
    double fastest = fastest_gemm(c);
    bool own = !(fastest >= peak_flops) && !isnan(peak_flops); /* NaN: none was calibrated */
    double rate = own ? peak_flops : fastest;
    out->floor_ms = flops / rate * 1e3;
    snprintf(out->source, sizeof out->source, "FLOPs at %.4g TFLOP/s, %s", rate / 1e12,
             own ? "the study's peak" : "calibrated GEMM");
}

/* Bytes at the rate of a copy, without those that other ops moved. */
static void floor_of_bytes(struct floor_row *out, const struct alone *alone, double elsewhere,
                           double copy)
{
    double own = fmax(alone->bytes - elsewhere, 0);
    out->floor_ms = own / copy * 1e3;
    if (elsewhere > 0) {
        out->alone_ms *= own / alone->bytes;
        snprintf(out->source, sizeof out->source, "bytes at %.4g GB/s, and %.3g GB by other ops",
                 copy / 1e9, elsewhere / 1e9);
    } else {
        snprintf(out->source, sizeof out->source, "bytes at %.4g GB/s, calibrated copy",
                 copy / 1e9);
    }
}

/* What the calibration says of the ops of a kind. */
static void floor_of_kind(struct floor_row *out, double flops, double elsewhere,
                          const struct ceilings *c, double peak_flops)
{
    struct alone alone = alone_of(c, out->kind);
    double copy = copy_rate(c);
    bool other = !c->same_work || alone.calls != out->n;
    out->alone_ms = out->floor_ms = NAN;
    if (!other)
        out->alone_ms = alone.us / 1e3;
    if (strcmp(out->kind, "gemm") == 0) {
        floor_of_gemm(out, flops, c, peak_flops);
    } else if (!c->same_work) {
        snprintf(out->source, sizeof out->source, "- (other work was calibrated)");
    } else if (other) {
        snprintf(out->source, sizeof out->source, "- (%lld a step were calibrated)",
                 (long long)alone.calls);
    } else if (begins(out->kind, "attention")) {
        out->floor_ms = out->alone_ms;
        snprintf(out->source, sizeof out->source, "alone, calibrated");
    } else {
        floor_of_bytes(out, &alone, elsewhere, copy);
    }
}

static void one_kind(struct floor_row *out, const struct record_point *point, const char *kind,
                     const struct ceilings *c, double peak_flops)
{
    struct totals ns = {0}, flops = {0}, elsewhere = {0};
    for (int64_t i = 0; i < point->ops.n; i++) {
        const struct op_row *row = &point->ops.rows[i];
        if (row->rank != 0 || row->variant != VARIANT_FULL || !IS(row->kind, kind))
            continue;
        add(&ns, row->step, (double)row->duration_ns);
        add(&flops, row->step, row->flops);
        add(&elsewhere, row->step, row->elsewhere_bytes);
    }
    *out = (struct floor_row){.n = ns.count[0], .ms = stats_median(ns.ns, ns.n) / 1e6};
    snprintf(out->kind, sizeof out->kind, "%s", kind);
    floor_of_kind(out, flops.ns[0], elsewhere.ns[0], c, peak_flops);
    release(&ns);
    release(&flops);
    release(&elsewhere);
}

/* FLOPs of the products of rank 0's first step that was kept, against those that were calibrated, where
 * any were. */
static bool is_same_work(const struct record_point *point, const struct ceilings *c)
{
    double done = 0, calibrated = 0;
    int step = -1;
    for (int64_t i = 0; i < c->n; i++)
        if (IS(c->row[i].kind, "gemm") && c->row[i].calls > 0)
            calibrated += c->row[i].calls * c->row[i].flops;
    for (int64_t i = 0; i < point->ops.n; i++) {
        const struct op_row *row = &point->ops.rows[i];
        if (row->rank != 0 || row->variant != VARIANT_FULL || !IS(row->kind, "gemm"))
            continue;
        step = step < 0 ? row->step : step;
        done += row->step == step ? row->flops : 0;
    }
    return calibrated == 0 || fabs(done - calibrated) <= 1e-6 * calibrated;
}

/* ---- calls ---- */

/* A call of a step on some rank, and the lowest rank of its group: others make another call meanwhile. */
struct transfer {
    int step, call, first;
    int64_t ns;
};

static int by_call(const void *a, const void *b)
{
    const struct transfer *x = a, *y = b;
    if (x->step != y->step)
        return x->step < y->step ? -1 : 1;
    if (x->call != y->call)
        return x->call < y->call ? -1 : 1;
    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    return (x->ns > y->ns) - (x->ns < y->ns);
}

/* Of all ranks, sorted; *n of them. */
static struct transfer *all_transfers(const struct record_point *point, int64_t *n)
{
    struct transfer *list = must_alloc((size_t)point->collectives.n + 1, sizeof *list);
    *n = 0;
    for (int64_t i = 0; i < point->collectives.n; i++) {
        const struct call_row *row = &point->collectives.rows[i];
        if (row->variant == VARIANT_FULL)
            list[(*n)++] = (struct transfer){row->step, row->call, row->first, row->duration_ns};
    }
    qsort(list, (size_t)*n, sizeof *list, by_call);
    return list;
}

/* The shortest time over the ranks of its group: of equal calls the first. */
static double transfer_ns(const struct transfer *list, int64_t n, const struct call_row *call)
{
    int64_t low = 0, high = n;
    struct transfer wanted = {call->step, call->call, call->first, INT64_MIN};
    while (low < high) {
        int64_t middle = (low + high) / 2;
        if (by_call(&list[middle], &wanted) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return (double)list[low].ns;
}

/* out->axis and out->kind are there. */
static void one_call(struct floor_row *out, const struct record_point *point,
                     const struct call_row *like, const struct ceilings *c)
{
    struct totals ns = {0}, us = {0};
    int64_t n = 0;
    struct transfer *transfers = all_transfers(point, &n);
    for (int64_t i = 0; i < point->collectives.n; i++) {
        const struct call_row *row = &point->collectives.rows[i];
        if (row->rank != 0 || row->variant != VARIANT_FULL || !IS(row->axis, out->axis) ||
            !IS(row->kind, out->kind))
            continue;
        add(&ns, row->step, transfer_ns(transfers, n, row));
        add(&us, row->step, call_us(c, out->kind, row->group, (double)row->bytes));
    }
    out->n = ns.count[0];
    out->ms = stats_median(ns.ns, ns.n) / 1e6;
    out->alone_ms = NAN;
    out->floor_ms = us.ns[0] / 1e3;
    if (isnan(out->floor_ms))
        snprintf(out->source, sizeof out->source, "- (none of %d ranks calibrated)", like->group);
    else
        snprintf(out->source, sizeof out->source, "such calls of %d ranks, calibrated",
                 like->group);
    release(&ns);
    release(&us);
    free(transfers);
}

int floors_of_point(struct floor_row out[FLOORS_MOST], const struct record_point *point,
                    const struct ceiling_row *ceilings, int64_t n_ceilings, double peak_flops)
{
    struct ceilings c = {ceilings, n_ceilings, true};
    c.same_work = is_same_work(point, &c);
    int n = 0;
    for (int64_t i = 0; i < point->ops.n && n < FLOORS_MOST; i++) {
        const struct op_row *row = &point->ops.rows[i];
        char kind[sizeof row->kind + 1];
        snprintf(kind, sizeof kind, "%.*s", (int)sizeof row->kind, row->kind);
        if (row->rank == 0 && row->variant == VARIANT_FULL && strcmp(kind, "input") != 0 &&
            strcmp(kind, "collective") != 0 && kind_is_new(out, n, "", kind))
            one_kind(&out[n++], point, kind, &c, peak_flops);
    }
    for (int64_t i = 0; i < point->collectives.n && n < FLOORS_MOST; i++) {
        const struct call_row *row = &point->collectives.rows[i];
        struct floor_row made = {0};
        if (row->rank != 0 || row->variant != VARIANT_FULL)
            continue;
        snprintf(made.axis, sizeof made.axis, "%.*s", (int)sizeof made.axis - 1, row->axis);
        snprintf(made.kind, sizeof made.kind, "%.*s", (int)sizeof row->kind, row->kind);
        if (!kind_is_new(out, n, made.axis, made.kind))
            continue;
        one_call(&made, point, row, &c);
        out[n++] = made;
    }
    return n;
}
