#include "analysis/scaling.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

static const double level = 0.95;

static int order_of(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

static int64_t work_of(const struct point_row *p)
{
    bool weak = strncmp(p->scaling, "weak", sizeof p->scaling) == 0;
    return weak && p->ranks > 0 ? p->global_batch / p->ranks : p->global_batch;
}

/* 0 when the two points did the same work, split the same way, on the same kind of machine. */
static int set_order(const struct point_row *a, const struct point_row *b)
{
    const int by_text[] = {strncmp(a->scaling, b->scaling, sizeof a->scaling),
                           strncmp(a->model, b->model, sizeof a->model),
                           strncmp(a->dtype, b->dtype, sizeof a->dtype),
                           strncmp(a->device, b->device, sizeof a->device),
                           strncmp(a->topology, b->topology, sizeof a->topology),
                           strncmp(a->schedule, b->schedule, sizeof a->schedule),
                           strncmp(a->cp_kind, b->cp_kind, sizeof a->cp_kind),
                           strncmp(a->input, b->input, sizeof a->input)};
    const int by_number[] = {order_of(a->sequence, b->sequence),
                             order_of(a->micro_batch, b->micro_batch),
                             order_of(a->tp, b->tp),
                             order_of(a->pp, b->pp),
                             order_of(a->virtual_stages, b->virtual_stages),
                             order_of(a->cp, b->cp),
                             order_of(a->ep, b->ep),
                             order_of(a->shard > 1, b->shard > 1),
                             order_of(work_of(a), work_of(b))};
    for (size_t i = 0; i < sizeof by_text / sizeof *by_text; i++)
        if (by_text[i] != 0)
            return by_text[i];
    for (size_t i = 0; i < sizeof by_number / sizeof *by_number; i++)
        if (by_number[i] != 0)
            return by_number[i];
    return 0;
}

static int row_order(const struct point_row *a, const struct point_row *b)
{
    const int by[] = {set_order(a, b), order_of(a->ranks, b->ranks), order_of(a->nodes, b->nodes),
                      order_of(a->copies, b->copies), order_of(a->point, b->point)};
    for (size_t i = 0; i < sizeof by / sizeof *by; i++)
        if (by[i] != 0)
            return by[i];
    return 0;
}

/* Valid runs come first in their row; then in the order of files and launches. */
static int run_order(const void *left, const void *right)
{
    const struct scaling_run *a = left, *b = right;
    const struct point_row *p = &a->account.record->point, *q = &b->account.record->point;
    const int by[] = {row_order(p, q), -order_of(p->valid != 0, q->valid != 0),
                      order_of(a->file_index, b->file_index), order_of(p->launch, q->launch)};
    for (size_t i = 0; i < sizeof by / sizeof *by; i++)
        if (by[i] != 0)
            return by[i];
    return 0;
}

static const struct point_row *point_of(const struct scaling_run *run)
{
    return &run->account.record->point;
}

static bool same_launch(const struct scaling_run *a, const struct scaling_run *b)
{
    return a->file_index == b->file_index && point_of(a)->launch == point_of(b)->launch;
}

static int count_launches(const struct scaling *s)
{
    int n = 0;
    for (int i = 0; i < s->n_runs; i++) {
        int j = 0;
        while (j < i && !same_launch(&s->runs[i], &s->runs[j]))
            j++;
        n += j == i;
    }
    return n;
}

static struct stats_series periods(const struct scaling_run *run)
{
    const struct account_series *full = &run->account.series[ACCOUNT_FULL];
    return (struct stats_series){full->period_ns, full->n};
}

static void pool_stability(struct scaling_row *row)
{
    int64_t n = 0;
    for (int i = 0; i < row->n_used; i++)
        n += row->runs[i].account.series[ACCOUNT_FULL].n;
    double *longest = must_alloc((size_t)n + 1, sizeof *longest);
    n = 0;
    for (int i = 0; i < row->n_used; i++) {
        const struct account_series *full = &row->runs[i].account.series[ACCOUNT_FULL];
        memcpy(longest + n, full->longest_ns, (size_t)full->n * sizeof *longest);
        n += full->n;
    }
    row->p50_ns = stats_quantile(longest, n, 0.50);
    row->p95_ns = stats_quantile(longest, n, 0.95);
    row->p99_ns = stats_quantile(longest, n, 0.99);
    row->cv = stats_cv(longest, n);
    free(longest);
}

static double tokens_of(const struct account *a)
{
    return a->tokens_per_step;
}

static void look_at_launches(struct scaling_row *row, const struct stats_series *series)
{
    double *means = must_alloc((size_t)row->n_used + 1, sizeof *means);
    int n = 0;
    for (int i = 0; i < row->n_used; i++)
        if (series[i].n > 0)
            means[n++] = stats_mean(series[i].x, series[i].n);
    launches_next(means, n, level, &row->next_ns);
    launches_find_levels(series, row->n_used, level, &row->levels);
    free(means);
}

static void measure_row(struct scaling_row *row, uint64_t seed)
{
    struct stats_series *series = must_alloc((size_t)row->n_used, sizeof *series);
    for (int i = 0; i < row->n_used; i++)
        series[i] = periods(&row->runs[i]);
    stats_launches_interval(series, row->n_used, level, seed, &row->step_ns);
    stats_positive(&row->step_ns);
    look_at_launches(row, series);
    free(series);
    row->tokens_per_step = scaling_mean(row, tokens_of);
    double tokens = row->tokens_per_step * 1e9;
    row->tokens_per_s =
        (struct stats_interval){tokens / row->step_ns.value, tokens / row->step_ns.high,
                                tokens / row->step_ns.low, row->step_ns.n};
    pool_stability(row);
}

static void make_rows(struct scaling *s, uint64_t seed)
{
    s->rows = must_alloc((size_t)s->n_runs + 1, sizeof *s->rows);
    for (int i = 0; i < s->n_runs; i++) {
        struct scaling_run *run = &s->runs[i];
        if (i == 0 || row_order(point_of(run), point_of(run - 1)) != 0) {
            bool opens = i == 0 || set_order(point_of(run), point_of(run - 1)) != 0;
            s->n_sets += opens;
            s->rows[s->n_rows++] =
                (struct scaling_row){.point = point_of(run), .runs = run, .set = s->n_sets - 1};
        }
        struct scaling_row *row = &s->rows[s->n_rows - 1];
        row->n_runs++;
        row->n_used += point_of(run)->valid != 0;
    }
    for (int i = 0; i < s->n_rows; i++) {
        struct scaling_row *row = &s->rows[i];
        row->valid = row->n_used > 0;
        if (!row->valid)
            row->n_used = row->n_runs;
        measure_row(row, seed + (uint64_t)i);
    }
}

bool scaling_shares(const struct scaling_row *row, const struct scaling_run *run)
{
    for (int i = 0; i < row->n_used; i++)
        if (same_launch(&row->runs[i], run))
            return true;
    return false;
}

/* A curve has one peak, the largest that one of its launches saw: a GEMM can only be disturbed. */
static void find_peak(const struct scaling *s, struct scaling_row *row)
{
    row->peak_flops = row->peak_lowest_flops = NAN;
    row->peak_source = "";
    for (int i = 0; i < s->n_runs; i++) {
        const struct point_row *p = point_of(&s->runs[i]);
        double peak = p->peak_flops_per_rank;
        if (!(peak > 0.0) || set_order(p, row->point) != 0)
            continue;
        if (!(peak <= row->peak_flops)) {
            row->peak_flops = peak;
            row->peak_source = p->peak_source;
        }
        row->peak_lowest_flops = fmin(row->peak_lowest_flops, peak);
    }
}

/* The runs of both sides that share a launch, or all runs of both when none do. */
struct sides {
    struct stats_series *num, *den;
    int n_num, n_den;
    bool paired;
};

static void sides_init(struct sides *out, const struct scaling_row *num,
                       const struct scaling_row *den)
{
    *out = (struct sides){.num = must_alloc((size_t)num->n_used + 1, sizeof *out->num),
                          .den = must_alloc((size_t)den->n_used + 1, sizeof *out->den)};
    for (int i = 0; i < num->n_used; i++)
        for (int j = 0; j < den->n_used && out->n_den < den->n_used; j++)
            if (same_launch(&num->runs[i], &den->runs[j]) && out->n_num == out->n_den) {
                out->num[out->n_num++] = periods(&num->runs[i]);
                out->den[out->n_den++] = periods(&den->runs[j]);
                break;
            }
    out->paired = out->n_num > 0;
    for (int i = 0; i < num->n_used && !out->paired; i++)
        out->num[out->n_num++] = periods(&num->runs[i]);
    for (int i = 0; i < den->n_used && !out->paired; i++)
        out->den[out->n_den++] = periods(&den->runs[i]);
}

/* Tokens over the mean of the launches' mean periods. */
static double rate_of(double tokens, const struct stats_series *series, int n)
{
    double sum = 0.0;
    int launches = 0;
    for (int i = 0; i < n; i++)
        if (series[i].n > 0) {
            sum += stats_mean(series[i].x, series[i].n);
            launches++;
        }
    return tokens * 1e9 * launches / sum;
}

/* (tokens/s of row) / (tokens/s of base), times `factor`. */
static struct scaling_ratio compare(const struct scaling *s, const struct scaling_row *row,
                                    int base, double per_rank, uint64_t seed)
{
    struct scaling_ratio out = {{NAN, NAN, NAN, 0}, base, NAN, false, false};
    if (base < 0)
        return out;
    const struct scaling_row *b = &s->rows[base];
    if (b == row) { /* by definition */
        out.ratio = (struct stats_interval){1.0, 1.0, 1.0, row->step_ns.n};
        out.base_tokens_per_s = row->tokens_per_s.value;
        return out;
    }
    struct sides sides;
    sides_init(&sides, b, row);
    stats_launches_ratio(sides.num, sides.n_num, sides.den, sides.n_den, sides.paired, level, seed,
                         &out.ratio);
    out.unpaired = !sides.paired;
    out.partial = sides.n_num < b->n_used || sides.n_den < row->n_used;
    out.base_tokens_per_s = rate_of(b->tokens_per_step, sides.num, sides.n_num);
    free(sides.num);
    free(sides.den);
    double factor = row->tokens_per_step / b->tokens_per_step;
    factor *= pow((double)b->point->ranks / row->point->ranks, per_rank);
    out.ratio.value *= factor;
    out.ratio.low *= factor;
    out.ratio.high *= factor;
    return out;
}

/* One node shape, or a part of one node on the way to it. */
static bool joins(const struct scaling_row *smaller, const struct scaling_row *row)
{
    const struct point_row *q = smaller->point, *p = row->point;
    return smaller->valid && q->copies <= 1 && smaller->set == row->set && smaller->step_ns.n > 0 &&
           (q->ranks_per_node == p->ranks_per_node ||
            (q->nodes == 1 && q->ranks_per_node < p->ranks_per_node));
}

static bool below_a_node(const struct scaling *s, const struct scaling_row *row)
{
    for (int i = 0; i < s->n_rows; i++)
        if (s->rows[i].set == row->set &&
            s->rows[i].point->ranks_per_node > row->point->ranks_per_node)
            return row->point->nodes == 1;
    return false;
}

static void find_bases(const struct scaling *s, const struct scaling_row *row, int *smallest,
                       int *device, int *node, int *previous)
{
    *smallest = *device = *node = *previous = -1;
    bool part = below_a_node(s, row);
    for (int i = 0; i < s->n_rows; i++) { /* rows of a set are in the order of their ranks */
        const struct point_row *q = s->rows[i].point, *p = row->point;
        if (!joins(&s->rows[i], row))
            continue;
        if (*smallest < 0)
            *smallest = i;
        if (*device < 0 && q->ranks == 1)
            *device = i;
        if (*node < 0 && !part && q->nodes == 1 && q->ranks_per_node == p->ranks_per_node)
            *node = i;
        if (q->ranks < p->ranks)
            *previous = i;
    }
}

static int find_loaded(const struct scaling *s, const struct scaling_row *row)
{
    for (int i = 0; i < s->n_rows; i++) {
        const struct scaling_row *r = &s->rows[i];
        if (r->valid && r->point->copies > 1 && !r->point->oversubscribed && r->set == row->set &&
            r->step_ns.n > 0 && r->point->ranks_per_node == row->point->ranks_per_node)
            return i;
    }
    return -1;
}

/* The same per rank. The resampling against a base that `known` has already is taken from there. */
static struct scaling_ratio compare_per_rank(const struct scaling *s, const struct scaling_row *row,
                                             int base, const struct scaling_ratio *known,
                                             uint64_t seed)
{
    if (base < 0 || base != known->base)
        return compare(s, row, base, 1.0, seed);
    struct scaling_ratio out = *known;
    double each = (double)s->rows[base].point->ranks / row->point->ranks;
    out.ratio.value *= each;
    out.ratio.low *= each;
    out.ratio.high *= each;
    return out;
}

static void compare_row(const struct scaling *s, struct scaling_row *row, uint64_t seed)
{
    int smallest = -1, device = -1, node = -1, previous = -1;
    if (row->valid)
        find_bases(s, row, &smallest, &device, &node, &previous);
    row->speedup = compare(s, row, smallest, 0.0, seed);
    row->efficiency = compare_per_rank(s, row, smallest, &row->speedup, seed);
    row->eff_device = compare_per_rank(s, row, device, &row->speedup, seed);
    row->eff_node = compare_per_rank(s, row, node, &row->speedup, seed);
    row->incremental =
        compare_per_rank(s, row, row->point->copies > 1 ? -1 : previous, &row->speedup, seed);
    row->eff_loaded = compare(s, row, row->valid ? find_loaded(s, row) : -1, 1.0, seed);
}

int scaling_add(struct scaling *out, const struct record_file *file, int file_index, uint64_t seed)
{
    out->runs = must_grow(out->runs, (size_t)(out->n_runs + file->n_points + 1), sizeof *out->runs);
    for (int j = 0; j < file->n_points; j++) {
        struct scaling_run *run = &out->runs[out->n_runs];
        *run = (struct scaling_run){.file = file, .file_index = file_index};
        int rc = account_point(&run->account, &file->points[j], seed + (uint64_t)j);
        if (rc != 0)
            return rc;
        out->n_runs++;
    }
    return 0;
}

void scaling_join(struct scaling *out, uint64_t seed)
{
    qsort(out->runs, (size_t)out->n_runs, sizeof *out->runs, run_order);
    out->n_launches = count_launches(out);
    make_rows(out, seed);
    for (int i = 0; i < out->n_rows; i++)
        compare_row(out, &out->rows[i], seed + (uint64_t)i);
    for (int i = 0; i < out->n_rows; i++)
        find_peak(out, &out->rows[i]);
}

int scaling_init(struct scaling *out, const struct record_file *const *files, int n_files,
                 uint64_t seed)
{
    int rc = 0;
    *out = (struct scaling){0};
    for (int i = 0; i < n_files; i++)
        TRY(scaling_add(out, files[i], i, seed));
    scaling_join(out, seed);
out:
    if (rc != 0)
        scaling_release(out);
    return rc;
}

void scaling_release(struct scaling *scaling)
{
    for (int i = 0; i < scaling->n_runs; i++)
        account_release(&scaling->runs[i].account);
    free(scaling->runs);
    free(scaling->rows);
    *scaling = (struct scaling){0};
}
