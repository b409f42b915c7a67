/* What saves of a kind and mode cost: rows of checkpoints and accounts of runs, pooled by node count. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/checkpoints.h"
#include "analysis/goodput_study.h"
#include "analysis/launches.h"
#include "base/err.h"

#define IS(column, word) (strncmp((column), (word), sizeof(column)) == 0)

/* ---- single saves ---- */

struct save { /* of all ranks */
    const struct record_point *part;
    int index;
    bool first, lost;
    double nodes, bytes, blocked_s, complete_s;
};

static void add_rank(struct save *s, const struct checkpoint_row *row)
{
    s->first |= (row->flags & CHECKPOINT_FIRST) != 0;
    s->lost |= (row->flags & CHECKPOINT_FAILED) != 0;
    s->bytes += (double)row->bytes;
    s->blocked_s = fmax(s->blocked_s, (double)row->blocked_ns / 1e9);
    s->complete_s = fmax(s->complete_s, (double)row->complete_ns / 1e9);
}

/* The saves of one launch of a point; rows of a save follow each other or not. */
static int collect_part(struct save *list, int n, const struct record_point *part, const char *mode,
                        double nodes)
{
    int begin = n;
    for (int64_t i = 0; i < part->checkpoints.n; i++) {
        const struct checkpoint_row *row = &part->checkpoints.rows[i];
        int at = begin;
        if (!IS(row->kind, "save") || strncmp(row->mode, mode, sizeof row->mode) != 0)
            continue;
        while (at < n && list[at].index != row->save)
            at++;
        if (at == n)
            list[n++] = (struct save){.part = part, .index = row->save, .nodes = nodes};
        add_rank(&list[at], row);
    }
    return n;
}

static int64_t all_rows(const struct goodput_study *study)
{
    int64_t n = 1;
    for (int i = 0; i < study->n_points; i++)
        for (int k = 0; k < study->points[i].n_parts; k++)
            n += study->points[i].parts[k]->checkpoints.n;
    return n;
}

/* Of a kind and mode; nodes 0: on all node counts. malloc'd. */
static struct save *collect(const struct goodput_study *study, int kind, const char *mode,
                            double nodes, int *n)
{
    struct save *list = must_alloc((size_t)all_rows(study), sizeof *list);
    *n = 0;
    for (int i = 0; i < study->n_points; i++) {
        const struct goodput_point *p = &study->points[i];
        if (p->kind != kind || (nodes > 0.0 && p->row->nodes != nodes))
            continue;
        for (int k = 0; k < p->n_parts; k++)
            *n = collect_part(list, *n, p->parts[k], mode, p->row->nodes);
    }
    return list;
}

/* Published ones; first ones only where no others are. -> how many stay. */
static int keep(struct save *list, int n)
{
    int later = 0, kept = 0;
    for (int i = 0; i < n; i++)
        later += !list[i].first && !list[i].lost;
    for (int i = 0; i < n; i++)
        if (!list[i].lost && (later == 0 || !list[i].first))
            list[kept++] = list[i];
    return kept;
}

struct goodput_save *goodput_saves(const struct goodput_study *study, int kind, const char *mode,
                                   int *n)
{
    int all, kept = 0;
    struct save *list = collect(study, kind, mode, 0.0, &all);
    struct goodput_save *out = must_alloc((size_t)all + 1, sizeof *out);
    *n = keep(list, all);
    for (int i = 0; i < *n; i++)
        if (list[i].complete_s > 0.0 && list[i].bytes > 0.0)
            out[kept++] = (struct goodput_save){list[i].nodes, list[i].bytes, list[i].complete_s};
    *n = kept;
    free(list);
    return out;
}

int goodput_modes(const struct goodput_study *study, int kind, char modes[GOODPUT_MODES][16])
{
    int n = 0;
    for (int i = 0; i < study->n_points; i++)
        for (int k = 0; k < study->points[i].n_parts && study->points[i].kind == kind; k++) {
            const struct record_point *part = study->points[i].parts[k];
            for (int64_t r = 0; r < part->checkpoints.n && n < GOODPUT_MODES; r++) {
                const struct checkpoint_row *row = &part->checkpoints.rows[r];
                int at = 0;
                while (at < n && !IS(row->mode, modes[at]))
                    at++;
                if (at == n && IS(row->kind, "save"))
                    snprintf(modes[n++], 16, "%.15s", row->mode);
            }
        }
    return n;
}

/* ---- inflation ---- */

/* A mean over saves: a run of many weighs as many. Half widths of runs in quadrature, each as often as
 * it has saves; none where a run has none. */
struct pool {
    double sum, squares;
    int64_t saves;
};

static void add_inflation(struct pool *pool, double value, double half, int64_t saves)
{
    double n = (double)saves;
    pool->sum += n * value;
    pool->squares += n * half * n * half;
    pool->saves += saves;
}

static void of_section(struct pool *pool, const struct record_point *part, const char *mode,
                       uint64_t seed)
{
    struct checkpoints c;
    checkpoints_of_point(&c, part, seed);
    for (int m = 0; m < c.n_modes; m++)
        if (strcmp(c.mode[m].mode, mode) == 0 && isfinite(c.mode[m].inflation.value))
            add_inflation(pool, c.mode[m].inflation.value / 1e9,
                          (c.mode[m].inflation.high - c.mode[m].inflation.low) / 2e9,
                          llround((double)c.mode[m].inflation.n / c.mode[m].steps));
}

/* ---- inflation of a run: its blocks of steps beside saves and without ---- */

static int by_key(const void *left, const void *right)
{
    const struct interval_row *a = left, *b = right;
    if (a->launch != b->launch)
        return a->launch < b->launch ? -1 : 1;
    if (a->begin_ns != b->begin_ns)
        return a->begin_ns < b->begin_ns ? -1 : 1;
    return strncmp(a->kind, b->kind, sizeof a->kind);
}

/* Rows of steps behind warm-up, and of saves, all launches; one that came twice stays once. malloc'd. */
static int64_t rows_of(const struct goodput_point *p, struct interval_row **out)
{
    int64_t n = 0, kept = 0, capacity = 0;
    struct interval_row *list = NULL;
    for (int i = 0; i < p->n_parts; i++)
        for (int64_t k = 0; k < p->parts[i]->intervals.n; k++) {
            const struct interval_row *row = &p->parts[i]->intervals.rows[k];
            bool steps =
                IS(row->kind, "steps") && row->steps > 0 && (row->flags & INTERVAL_WARM_UP) == 0;
            if (!steps && !IS(row->kind, "save"))
                continue;
            list = record_room(list, sizeof *list, n, &capacity, 1);
            list[n++] = *row;
        }
    if (n > 1)
        qsort(list, (size_t)n, sizeof *list, by_key);
    for (int64_t i = 0; i < n; i++)
        if (kept == 0 || by_key(&list[kept - 1], &list[i]) != 0)
            list[kept++] = list[i];
    *out = list;
    return kept;
}

/* Mean step of a block in s, without calls of saves and waits for data. */
static double step_of(const struct interval_row *row)
{
    double rank_ns = (double)(row->end_ns - row->begin_ns) * row->ranks;
    return (rank_ns - (double)row->call_ns - (double)row->input_ns) / row->ranks / 1e9 /
           (double)row->steps;
}

/* What a block of steps adds to: those beside saves, or the quiet ones. */
struct beside {
    double *saving, *quiet; /* mean step of each block, s */
    int64_t n_saving, n_quiet, steps, saves;
};

static void sort_out(struct beside *b, const struct interval_row *row, const char *mode)
{
    if (IS(row->kind, "save")) {
        b->saves += strcmp(row->text, mode) == 0;
    } else if (row->flags & INTERVAL_SAVING) {
        b->saving[b->n_saving++] = step_of(row);
        b->steps += row->steps;
    } else {
        b->quiet[b->n_quiet++] = step_of(row);
    }
}

static void of_run(struct pool *pool, const struct goodput_point *p, const char *mode,
                   uint64_t seed)
{
    struct interval_row *rows;
    struct stats_interval saving, quiet;
    int64_t n = rows_of(p, &rows);
    struct beside b = {must_alloc((size_t)n + 1, sizeof(double)),
                       must_alloc((size_t)n + 1, sizeof(double)),
                       0,
                       0,
                       0,
                       0};
    for (int64_t i = 0; i < n; i++)
        sort_out(&b, &rows[i], mode);
    if (b.n_saving > 0 && b.n_quiet > 0 && b.saves > 0) {
        double each = (double)b.steps / (double)b.saves;
        stats_mean_interval(b.saving, b.n_saving, 0.95, seed, &saving);
        stats_mean_interval(b.quiet, b.n_quiet, 0.95, seed, &quiet);
        add_inflation(pool, each * (saving.value - quiet.value),
                      each *
                          hypot((saving.high - saving.low) / 2.0, (quiet.high - quiet.low) / 2.0),
                      b.saves);
    }
    free(rows);
    free(b.saving);
    free(b.quiet);
}

/* Where steps around saves were looked at, by those; else by blocks of the run. */
static void add_point(struct pool *section, struct pool *run, const struct goodput_point *p,
                      const char *mode, uint64_t seed)
{
    for (int k = 0; k < p->n_parts; k++)
        if (p->parts[k]->drains.n > 0)
            of_section(section, p->parts[k], mode, seed);
    if (p->run.there)
        of_run(run, p, mode, seed);
}

static void find_inflation(struct goodput_save_cost *out, const struct goodput_study *study,
                           int kind, uint64_t seed)
{
    struct pool section = {0}, run = {0};
    for (int i = 0; i < study->n_points; i++)
        if (study->points[i].kind == kind && study->points[i].row->nodes == out->nodes)
            add_point(&section, &run, &study->points[i], out->mode, seed);
    const struct pool *use = section.saves > 0 ? &section : &run;
    double n = (double)use->saves, half = use->saves > 0 ? sqrt(use->squares) / n : (double)NAN;
    double value = use->saves > 0 ? use->sum / n : (double)NAN;
    out->of_run = section.saves == 0 && run.saves > 0;
    out->inflation_s = (struct stats_interval){value, value - half, value + half, use->saves};
    out->detected = out->inflation_s.low > 0.0 || out->inflation_s.high < 0.0;
}

/* ---- together ---- */

/* Faster steps under a save are chance, or another cause: they pay for no save. */
static double cost_of(double x)
{
    return isnan(x) ? 0.0 : fmax(x, 0.0);
}

static void sum_cost(struct goodput_save_cost *out)
{
    const struct stats_interval *b = &out->blocked_s, *i = &out->inflation_s;
    double most = isnan(i->high) ? i->value : i->high; /* one save: no interval, and not detected */
    out->cost_s = (struct stats_interval){b->value + (out->detected ? cost_of(i->value) : 0.0),
                                          b->low + cost_of(i->low), b->high + cost_of(most), b->n};
}

/* Saves of a launch follow each other, and launches differ by more than their saves tell: from three on
 * the interval is at least t over their means, around the mean over saves. */
static void widen_by_launches(struct stats_interval *out, const struct save *list, const double *x,
                              int n)
{
    struct stats_interval over, *launches = must_alloc((size_t)n + 1, sizeof *launches);
    int k = 0;
    for (int i = 0, each; i < n; i += each) {
        for (each = 1; i + each < n && list[i + each].part == list[i].part; each++)
            ;
        launches[k++] = (struct stats_interval){stats_mean(x + i, each), NAN, NAN, each};
    }
    launches_join(launches, k, 0.95, &over);
    free(launches);
    out->low = fmin(out->low, out->value - (over.value - over.low)); /* NaN: no such end */
    out->high = fmax(out->high, out->value + (over.high - over.value));
}

static void mean_of(struct stats_interval *out, const struct save *list, int n, size_t offset,
                    uint64_t seed)
{
    double *x = must_alloc((size_t)n + 1, sizeof *x);
    for (int i = 0; i < n; i++)
        memcpy(&x[i], (const char *)&list[i] + offset, sizeof *x);
    stats_mean_interval(x, n, 0.95, seed, out);
    if (n < 2)
        out->low = out->high = NAN;
    widen_by_launches(out, list, x, n);
    stats_positive(out);
    free(x);
}

bool goodput_save_cost(struct goodput_save_cost *out, const struct goodput_study *study, int kind,
                       const char *mode, double nodes, uint64_t seed)
{
    int all, n;
    struct save *list = collect(study, kind, mode, nodes, &all);
    *out = (struct goodput_save_cost){.nodes = nodes};
    snprintf(out->mode, sizeof out->mode, "%s", mode);
    for (int i = 0; i < all; i++)
        out->lost += list[i].lost;
    n = keep(list, all);
    if (n > 0) {
        const struct checkpoint_row *row = &list[0].part->checkpoints.rows[0];
        snprintf(out->file_system, sizeof out->file_system, "%.15s", row->file_system);
        out->ranks = list[0].part->point.ranks;
        out->saves = n;
        out->bytes = list[0].bytes;
        mean_of(&out->blocked_s, list, n, offsetof(struct save, blocked_s), seed);
        mean_of(&out->complete_s, list, n, offsetof(struct save, complete_s), seed);
        find_inflation(out, study, kind, seed);
        sum_cost(out);
    }
    free(list);
    return n > 0;
}
