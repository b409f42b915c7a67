#include "analysis/account.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "analysis/account_ledger.h"
#include "base/err.h"

static const double level = 0.95;

/* Sums of one rank over its measured steps. */
struct rank_sum {
    double step_ns, compute_ns, residual_ns; /* instrumented; |residual| */
    double elided_ns;                        /* compute-only steps */
};

static struct rank_sum *sum_ranks(const struct ledger *l)
{
    struct rank_sum *ranks = must_alloc((size_t)l->ranks, sizeof *ranks);
    for (int64_t i = 0; i < l->point->steps.n; i++) {
        const struct step_row *r = &l->point->steps.rows[i];
        const struct cell *c = ledger_measured(l, r->variant, r->step);
        if (c == NULL)
            continue;
        struct rank_sum *sum = &ranks[r->rank];
        double own = (double)r->end_ns - (double)r->start_ns;
        enum account_kind kind = ledger_kind(r->variant, c->flags);
        if (kind == ACCOUNT_COMPUTE)
            sum->elided_ns += own;
        if (kind != ACCOUNT_INSTRUMENTED)
            continue;
        sum->step_ns += own;
        sum->compute_ns += (double)r->compute_ns;
        sum->residual_ns += fabs(own - (double)r->compute_ns - (double)r->input_ns -
                                 (double)r->stall_ns - (double)r->idle_ns - (double)r->stamps_ns);
    }
    return ranks;
}

static void find_worst_residual(struct account *a, const struct rank_sum *ranks, int n)
{
    for (int i = 0; i < n; i++) {
        if (!(ranks[i].step_ns > 0.0))
            continue;
        double share = ranks[i].residual_ns / ranks[i].step_ns;
        if (a->worst_residual_rank < 0 || share > a->worst_residual_share) {
            a->worst_residual_rank = i;
            a->worst_residual_share = share;
        }
    }
}

/* By compute time, so that a rank that waits for others is not blamed for it. */
static void find_slowest(struct account *a, const struct rank_sum *ranks, int n)
{
    double *time = must_alloc((size_t)n, sizeof *time);
    bool instrumented = a->series[ACCOUNT_INSTRUMENTED].n > 0;
    int worst = 0;
    for (int i = 0; i < n; i++) {
        time[i] = instrumented ? ranks[i].compute_ns : ranks[i].elided_ns;
        worst = time[i] > time[worst] ? i : worst;
    }
    double median = stats_median(time, n), mad = stats_mad(time, n);
    if (time[worst] > 0.0 && median > 0.0) {
        a->slowest = worst;
        a->slowest_share = time[worst] / median - 1.0;
        if (n >= 3 && mad > 0.0)
            a->slowest_mads = (time[worst] - median) / (1.4826 * mad);
    }
    free(time);
}

static void per_rank(struct account *a, const struct ledger *l)
{
    a->worst_residual_rank = a->slowest = -1;
    a->worst_residual_share = a->slowest_share = a->slowest_mads = NAN;
    if (a->series[ACCOUNT_INSTRUMENTED].n + a->series[ACCOUNT_COMPUTE].n == 0)
        return;
    struct rank_sum *ranks = sum_ranks(l);
    find_worst_residual(a, ranks, l->ranks);
    find_slowest(a, ranks, l->ranks);
    free(ranks);
}

static const double *nearest_block(const struct account_series *series, int32_t block)
{
    int64_t best = 0;
    for (int64_t i = 1; i < series->n_blocks; i++)
        if (abs(series->blocks[i].block - block) < abs(series->blocks[best].block - block))
            best = i;
    return series->blocks[best].term_ns;
}

/* Each compute-only block beside the instrumented full block that ran nearest to it. */
static void counterfactual(struct account *a, uint64_t seed)
{
    const struct account_series *full = &a->series[ACCOUNT_INSTRUMENTED];
    const struct account_series *elided = &a->series[ACCOUNT_COMPUTE];
    double bubble = a->record->point.bubble_ms * 1e6;
    int64_t n = full->n_blocks > 0 ? elided->n_blocks : 0;
    double *value = must_alloc(4 * (size_t)n + 1, sizeof *value);
    double *difference = value, *slowdown = value + n, *exposed = value + 2 * n,
           *rest = value + 3 * n;
    for (int64_t i = 0; i < n; i++) {
        const double *c = elided->blocks[i].term_ns;
        const double *f = nearest_block(full, elided->blocks[i].block);
        difference[i] = f[TERM_STEP] - c[TERM_STEP];
        slowdown[i] = c[TERM_COMPUTE] > 0.0 ? f[TERM_COMPUTE] - c[TERM_COMPUTE] : (double)NAN;
        exposed[i] = difference[i] - slowdown[i] - bubble;
        rest[i] = difference[i] - slowdown[i] - f[TERM_STALL]; /* stalls hold the bubble too */
    }
    stats_mean_interval(difference, n, level, seed, &a->difference_ns);
    stats_mean_interval(slowdown, n, level, seed, &a->slowdown_ns);
    stats_mean_interval(exposed, n, level, seed, &a->counterfactual_ns);
    stats_mean_interval(rest, n, level, seed, &a->disagreement_ns);
    free(value);
}

/* Blocks of one kind against each other: no ratio can be known better than this one is. */
static void a_a(struct account *a, uint64_t seed)
{
    const struct account_series *full = &a->series[ACCOUNT_FULL];
    double *half[2] = {must_alloc((size_t)full->n + 1, sizeof **half),
                       must_alloc((size_t)full->n + 1, sizeof **half)};
    int64_t n[2] = {0, 0};
    for (int64_t i = 0; i < full->n; i++) {
        int side = full->in_block[i] % 2;
        half[side][n[side]++] = full->period_ns[i];
    }
    stats_ratio_interval(half[0], n[0], half[1], n[1], level, seed, &a->aa_ratio);
    free(half[0]);
    free(half[1]);
}

static double *copy_of(const double *x, int64_t n)
{
    double *copy = must_alloc((size_t)n + 1, sizeof *copy);
    for (int64_t i = 0; i < n; i++)
        copy[i] = x[i];
    return copy;
}

/* A study with --stamps 2 has instrumented full steps only: they are its full steps. */
static void stand_in(struct account *a)
{
    struct account_series *full = &a->series[ACCOUNT_FULL];
    const struct account_series *other = &a->series[ACCOUNT_INSTRUMENTED];
    if (full->n > 0 || other->n == 0)
        return;
    a->only_instrumented = true;
    free(full->in_block);
    free(full->period_ns);
    free(full->longest_ns);
    free(full->blocks);
    *full = *other;
    full->period_ns = copy_of(other->period_ns, other->n);
    full->longest_ns = copy_of(other->longest_ns, other->n);
    full->in_block = must_alloc((size_t)other->n + 1, sizeof *full->in_block);
    for (int64_t i = 0; i < other->n; i++)
        full->in_block[i] = other->in_block[i];
    full->blocks = must_alloc((size_t)other->n_blocks + 1, sizeof *full->blocks);
    for (int64_t i = 0; i < other->n_blocks; i++)
        full->blocks[i] = other->blocks[i];
}

static void capacity(struct account *a, const struct ledger *l, uint64_t seed)
{
    const struct account_series *full = &a->series[ACCOUNT_FULL];
    const struct account_series *stamped = &a->series[ACCOUNT_INSTRUMENTED];
    const struct account_series *graph = &a->series[ACCOUNT_GRAPH];
    stats_mean_interval(full->period_ns, full->n, level, seed, &a->step_ns);
    stats_positive(&a->step_ns);
    stats_quantile_interval(full->longest_ns, full->n, 0.50, level, &a->p50_ns);
    stats_quantile_interval(full->longest_ns, full->n, 0.95, level, &a->p95_ns);
    stats_quantile_interval(full->longest_ns, full->n, 0.99, level, &a->p99_ns);
    a->cv = stats_cv(full->longest_ns, full->n);
    a->stamps_ratio = a->host_ratio = (struct stats_interval){NAN, NAN, NAN, 0};
    if (graph->n > 0)
        stats_ratio_interval(full->period_ns, full->n, graph->period_ns, graph->n, level, seed,
                             &a->host_ratio);
    if (!a->only_instrumented)
        stats_ratio_interval(stamped->period_ns, stamped->n, full->period_ns, full->n, level, seed,
                             &a->stamps_ratio);
    enum account_kind kind = a->only_instrumented ? ACCOUNT_INSTRUMENTED : ACCOUNT_FULL;
    double tokens = 0.0, steps = 0.0;
    for (int64_t i = 0; i < l->n[VARIANT_FULL]; i++) {
        const struct cell *c = ledger_measured(l, VARIANT_FULL, (int)i);
        if (c == NULL || ledger_kind(VARIANT_FULL, c->flags) != kind)
            continue;
        tokens += (double)c->tokens;
        steps++;
    }
    a->tokens_per_step = tokens > 0.0 ? tokens / steps : (double)l->point->point.positions_per_step;
}

/*
 * Stall of plain full steps where their waits are stamped, else of instrumented ones. A point
 * without communication has no axis to wait for and none of the measures: full against
 * compute-only steps are noise there.
 */
static void exposed(struct account *a)
{
    a->stall_ns = a->interval_ns = a->n_axes > 0 ? 0.0 : (double)NAN;
    for (int i = 0; i < a->n_axes; i++) {
        const struct account_axis *axis = &a->axes[i];
        a->stall_ns += isnan(axis->stall_ns) ? axis->stall_closed_ns : axis->stall_ns;
        a->interval_ns += axis->exposed_ns;
    }
    if (a->n_axes == 0)
        a->counterfactual_ns = a->slowdown_ns = a->disagreement_ns =
            (struct stats_interval){NAN, NAN, NAN, 0};
}

int account_point(struct account *out, const struct record_point *point, uint64_t seed)
{
    struct ledger ledger;
    int rc;
    *out = (struct account){.record = point};
    TRY(ledger_open(&ledger, point));
    ledger_series(&ledger, out->series);
    stand_in(out);
    TRY(ledger_axes(&ledger, out));
    capacity(out, &ledger, seed);
    counterfactual(out, seed);
    a_a(out, seed);
    exposed(out);
    per_rank(out, &ledger);
    ledger_pace(&ledger, out);
    ledger_pop(&ledger, out);
    energy_of_point(&out->energy, point, seed);
    out->n_incomplete = ledger.n_incomplete;
    out->n_contradicting = ledger.n_contradicting;
out:
    ledger_release(&ledger);
    if (rc != 0)
        account_release(out);
    return rc;
}

void account_release(struct account *account)
{
    for (int k = 0; k < ACCOUNT_KINDS; k++) {
        free(account->series[k].period_ns);
        free(account->series[k].longest_ns);
        free(account->series[k].in_block);
        free(account->series[k].blocks);
    }
    free(account->axes);
    *account = (struct account){0};
}

/*
 * A point below the allocation sits on the first ranks of the first nodes: its rank r is rank
 * (r / its ranks a node) * (ranks a node of the job) + r % (its ranks a node) of the job.
 */
const char *account_host(const struct record_head *head, const struct point_row *point, int rank)
{
    int nodes = 0, wide = 0, narrow = point->ranks_per_node;
    const char *layout = record_head_get(head, "study", "layout");
    if (narrow < 1 || rank < 0)
        return "";
    if (layout == NULL || sscanf(layout, "%dx%d", &nodes, &wide) != 2 || wide < narrow)
        wide = narrow;
    int64_t job_rank = (int64_t)(rank / narrow) * wide + rank % narrow;
    for (int64_t i = 0; i < head->n_ranks; i++)
        if (head->ranks[i].launch == point->launch && head->ranks[i].rank == job_rank &&
            head->ranks[i].host >= 0 && head->ranks[i].host < head->n_hosts)
            return head->hosts[head->ranks[i].host].name;
    return "";
}
