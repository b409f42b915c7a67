#include "analysis/energy_steps.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

static const double level = 0.95;

/* One block: its steps by rank 0, and the counters of all ranks. */
struct block {
    double joules; /* all ranks */
    int64_t ns;    /* of rank 0 */
    int steps, rows;
    enum energy_kind kind;
    bool warm_up;
};

/* One rank in all counted blocks of a kind. */
struct rank_sum {
    double joules, ns, limited_ns;
};

struct sums {
    const struct record_point *point;
    int n, ranks;
    struct block *blocks;    /* [n] */
    struct rank_sum *ranked; /* [ENERGY_KINDS * ranks] */
    double *limit_w;         /* [ranks] */
};

static bool is(const struct telemetry_row *row, const char *kind)
{
    return strncmp(row->kind, kind, sizeof row->kind) == 0;
}

static enum energy_kind kind_of(const struct step_row *step)
{
    if (step->variant == VARIANT_COMPUTE)
        return ENERGY_COMPUTE;
    if (step->variant == VARIANT_COMM)
        return ENERGY_COMM;
    if (step->flags & STEP_GRAPH)
        return ENERGY_GRAPH;
    return step->flags & STEP_INSTRUMENTED ? ENERGY_INSTRUMENTED : ENERGY_FULL;
}

/* NULL where the row is of no block or rank that can be. */
static struct block *block_of(const struct sums *s, const struct telemetry_row *row)
{
    bool known = is(row, "block") && row->block >= 0 && row->block < s->n && row->rank >= 0 &&
                 row->rank < s->ranks;
    return known ? &s->blocks[row->block] : NULL;
}

static bool counts(const struct sums *s, const struct block *block)
{
    return block->steps > 0 && block->rows > 0 && block->rows % s->ranks == 0 && !block->warm_up;
}

static void add_steps(struct sums *s)
{
    for (int64_t i = 0; i < s->point->steps.n; i++) {
        const struct step_row *step = &s->point->steps.rows[i];
        if (step->rank != 0 || step->block < 0 || step->block >= s->n)
            continue;
        struct block *block = &s->blocks[step->block];
        block->kind = kind_of(step);
        block->warm_up |= (step->flags & STEP_WARM_UP) != 0;
        block->steps++;
    }
}

static void add_counters(struct sums *s)
{
    const struct record_point *p = s->point;
    for (int64_t i = 0; i < p->telemetry.n; i++) {
        const struct telemetry_row *row = &p->telemetry.rows[i];
        struct block *block = block_of(s, row);
        if (is(row, "section") && row->rank >= 0 && row->rank < s->ranks)
            s->limit_w[row->rank] = row->power_w;
        if (block == NULL)
            continue;
        block->rows++;
        block->joules += row->energy_j;
        block->ns += row->rank == 0 ? row->duration_ns : 0;
    }
}

/* When it is known which blocks count. */
static void add_ranks(struct sums *s)
{
    const struct record_point *p = s->point;
    for (int64_t i = 0; i < p->telemetry.n; i++) {
        const struct telemetry_row *row = &p->telemetry.rows[i];
        const struct block *block = block_of(s, row);
        if (block == NULL || !counts(s, block))
            continue;
        struct rank_sum *sum =
            &s->ranked[(size_t)block->kind * (size_t)s->ranks + (size_t)row->rank];
        sum->joules += row->energy_j;
        sum->ns += (double)row->duration_ns;
        sum->limited_ns += row->power_limited_ns >= 0 ? (double)row->power_limited_ns : (double)NAN;
    }
}

/* A block has a row of every rank, so their number bounds both in a file that lies. */
static void open_sums(struct sums *s, const struct record_point *point)
{
    int64_t rows = point->telemetry.n;
    *s = (struct sums){.point = point};
    s->ranks = point->point.ranks > 0 && point->point.ranks <= rows ? point->point.ranks : 0;
    for (int64_t i = 0; i < rows; i++) {
        int block = point->telemetry.rows[i].block;
        s->n = block >= s->n && block < rows ? block + 1 : s->n;
    }
    size_t ranks = (size_t)s->ranks;
    s->blocks = must_alloc((size_t)s->n + 1, sizeof *s->blocks);
    s->ranked = must_alloc(ENERGY_KINDS * ranks + 1, sizeof *s->ranked);
    s->limit_w = must_alloc(ranks + 1, sizeof *s->limit_w);
    for (size_t r = 0; r < ranks; r++)
        s->limit_w[r] = NAN;
    if (s->ranks == 0)
        return;
    add_steps(s);
    add_counters(s);
    add_ranks(s);
}

static void release_sums(struct sums *s)
{
    free(s->blocks);
    free(s->ranked);
    free(s->limit_w);
}

/* ---- a kind ---- */

static const struct rank_sum *ranks_of(const struct sums *s, enum energy_kind kind)
{
    return &s->ranked[(size_t)kind * (size_t)s->ranks];
}

static double joules_of_block(const struct sums *s, const struct block *block)
{
    return block->joules / block->steps / s->ranks;
}

static void compare_ranks(struct energy_step *out, const struct sums *s, enum energy_kind kind,
                          double steps)
{
    const struct rank_sum *ranks = ranks_of(s, kind);
    double joules = 0, ns = 0;
    for (int r = 0; r < s->ranks; r++) {
        double own = ranks[r].joules / steps;
        if (r == 0 || own > out->most_joules) {
            out->most_joules = own;
            out->most_rank = r;
        }
        out->held_share = fmax(out->held_share, ranks[r].limited_ns / ranks[r].ns);
        joules += ranks[r].joules;
        ns += ranks[r].ns;
    }
    out->joules.value = joules / steps / s->ranks;
    out->power_w = joules / (ns / 1e9);
    out->step_ns = ranks[0].ns / steps;
    if (isnan(joules)) { /* somebody is not known: who takes most is not either */
        out->most_joules = NAN;
        out->most_rank = -1;
    }
}

double energy_unread(double power_w, int64_t blocks, int ranks)
{
    return 1.96 * power_w * ENERGY_PERIOD_S / sqrt(6.0) / sqrt((double)blocks * ranks);
}

static double unread(const struct sums *s, const struct energy_step *step, double steps)
{
    double of_block = energy_unread(step->power_w, step->joules.n, s->ranks);
    return of_block / (steps / (double)step->joules.n);
}

void energy_widen(struct stats_interval *x, double half)
{
    x->low = isnan(x->low) ? x->low : fmin(x->low, x->value - half);
    x->high = isnan(x->high) ? x->high : fmax(x->high, x->value + half);
}

/* Returns the steps of its blocks. */
static double of_kind(struct energy_step *out, const struct sums *s, enum energy_kind kind,
                      uint64_t seed)
{
    double *each = must_alloc((size_t)s->n + 1, sizeof *each), steps = 0;
    struct stats_series *alone = must_alloc((size_t)s->n + 1, sizeof *alone);
    int used = 0;
    *out = (struct energy_step){.joules = {NAN, NAN, NAN, 0},
                                .most_joules = NAN,
                                .most_rank = -1,
                                .power_w = NAN,
                                .step_ns = NAN,
                                .block_ns = NAN,
                                .held_share = NAN};
    for (int b = 0; b < s->n; b++) {
        if (s->blocks[b].kind != kind || !counts(s, &s->blocks[b]))
            continue;
        each[used] = joules_of_block(s, &s->blocks[b]);
        alone[used] = (struct stats_series){&each[used], 1};
        used++;
        steps += s->blocks[b].steps;
    }
    if (used > 0)
        stats_launches_interval(alone, used, level, seed, &out->joules);
    if (used < 3)
        out->joules.low = out->joules.high = NAN;
    out->joules.n = used;
    if (used > 0) {
        compare_ranks(out, s, kind, steps);
        out->block_ns = out->step_ns * steps / used;
        energy_widen(&out->joules, unread(s, out, steps));
        stats_positive(&out->joules);
    }
    free(each);
    free(alone);
    return steps;
}

/* ---- what follows ---- */

static void find_bound(struct energy_steps *out, const struct sums *s, double steps)
{
    const struct rank_sum *ranks = ranks_of(s, out->full);
    double limits = 0;
    for (int r = 0; r < s->ranks; r++) {
        double ns = ranks[r].joules / steps / s->limit_w[r] * 1e9;
        limits += s->limit_w[r];
        if (r > 0 && !(ns > out->bound_ns))
            continue;
        out->bound_ns = ns;
        out->bound_rank = r;
        out->bound_share = ns / (ranks[r].ns / steps);
    }
    out->limit_w = limits / s->ranks;
    if (!isnan(out->limit_w) && !isnan(out->kind[out->full].joules.value))
        return;
    out->bound_ns = out->bound_share = NAN;
    out->bound_rank = -1;
}

static const struct block *nearest(const struct sums *s, enum energy_kind kind, int to)
{
    const struct block *best = NULL;
    for (int distance = 1; distance < s->n && best == NULL; distance++)
        for (int side = -1; side <= 1 && best == NULL; side += 2) {
            int b = to + side * distance;
            if (b >= 0 && b < s->n && s->blocks[b].kind == kind && counts(s, &s->blocks[b]))
                best = &s->blocks[b];
        }
    return best;
}

/* Differences: two give no interval that says anything. */
static void mean_of_pairs(struct stats_interval *out, const double *x, int n)
{
    stats_t_interval(x, n, level, out);
    if (n < 3)
        out->low = out->high = NAN;
}

static void find_comm(struct energy_steps *out, const struct sums *s, const double *steps)
{
    double *each = must_alloc((size_t)s->n + 1, sizeof *each);
    int used = 0;
    bool paired = s->ranks > 1 && out->kind[ENERGY_INSTRUMENTED].joules.n > 0;
    for (int b = 0; b < s->n && paired; b++) {
        const struct block *elided = &s->blocks[b];
        if (elided->kind != ENERGY_COMPUTE || !counts(s, elided))
            continue;
        const struct block *full = nearest(s, ENERGY_INSTRUMENTED, b);
        if (full != NULL)
            each[used++] = joules_of_block(s, full) - joules_of_block(s, elided);
    }
    mean_of_pairs(&out->comm_joules, each, used);
    double full = unread(s, &out->kind[ENERGY_INSTRUMENTED], steps[ENERGY_INSTRUMENTED]);
    double elided = unread(s, &out->kind[ENERGY_COMPUTE], steps[ENERGY_COMPUTE]);
    energy_widen(&out->comm_joules, sqrt(full * full + elided * elided));
    out->comm_ns = out->comm_joules.value / out->limit_w * 1e9;
    free(each);
}

void energy_steps_of_point(struct energy_steps *out, const struct record_point *point,
                           uint64_t seed)
{
    struct sums s;
    double steps[ENERGY_KINDS];
    open_sums(&s, point);
    *out = (struct energy_steps){.limit_w = NAN,
                                 .bound_ns = NAN,
                                 .bound_share = NAN,
                                 .bound_rank = -1,
                                 .comm_joules = {NAN, NAN, NAN, 0},
                                 .comm_ns = NAN};
    for (int k = 0; k < ENERGY_KINDS; k++)
        steps[k] = of_kind(&out->kind[k], &s, (enum energy_kind)k, seed);
    out->full = steps[ENERGY_FULL] > 0 ? ENERGY_FULL : ENERGY_INSTRUMENTED;
    if (s.ranks > 0) {
        find_bound(out, &s, steps[out->full]);
        find_comm(out, &s, steps);
    }
    release_sums(&s);
}
