#include "driver/measure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/stats.h"
#include "base/err.h"
#include "base/ranges.h"
#include "base/units.h"
#include "driver/agree.h"
#include "driver/preempt.h"
#include "driver/watchdog.h"

enum block_kind {
    BLOCK_FULL,
    BLOCK_GRAPH,
    BLOCK_COMPUTE,
    BLOCK_COMM,
    BLOCK_INSTRUMENTED,
    BLOCK_KINDS
};
static const char *const kind_name[BLOCK_KINDS] = {
    "block full", "block graph", "block compute-only", "block comm-only", "block instrumented"};

/* ---- rows of a block ---- */

#define APPEND(to, from, row)                                                                      \
    do {                                                                                           \
        if ((from)->n > 0)                                                                         \
            memcpy(RECORD_ADD(to, (from)->n), (from)->rows, (size_t)(from)->n * sizeof(row));      \
    } while (0)

/* Step indices count from 0 in a block; here they become indices of point and variant. */
void measure_keep(struct measure *m, struct execute_samples *s, enum variant variant, int flags,
                  int first_flags)
{
    int first = m->next_step[variant], rank = m->layout->rank;
    if (variant == VARIANT_FULL && first == 0)
        m->initial_loss = s->step[0].loss;
    for (int i = 0; i < s->n; i++) {
        s->step[i].step += first;
        s->step[i].block = m->next_block;
        s->step[i].rank = rank;
        s->step[i].flags |= flags | (i == 0 ? first_flags : 0);
    }
    for (int64_t i = 0; i < s->rows.stalls.n; i++) {
        s->rows.stalls.rows[i].step += first;
        s->rows.stalls.rows[i].rank = rank;
    }
    for (int64_t i = 0; i < s->rows.collectives.n; i++) {
        s->rows.collectives.rows[i].step += first;
        s->rows.collectives.rows[i].rank = rank;
    }
    for (int64_t i = 0; i < s->rows.ops.n; i++) {
        s->rows.ops.rows[i].step += first;
        s->rows.ops.rows[i].rank = rank;
    }
    for (int64_t i = 0; i < s->rows.inputs.n; i++) {
        s->rows.inputs.rows[i].step += first;
        s->rows.inputs.rows[i].rank = rank;
    }
    memcpy(RECORD_ADD(&m->local.steps, s->n), s->step, (size_t)s->n * sizeof *s->step);
    APPEND(&m->local.stalls, &s->rows.stalls, struct stall_row);
    APPEND(&m->local.collectives, &s->rows.collectives, struct call_row);
    APPEND(&m->local.ops, &s->rows.ops, struct op_row);
    APPEND(&m->local.inputs, &s->rows.inputs, struct input_row);
    m->next_step[variant] += s->n;
}

/* A block of the alternation: its first step is its lead-in. */
static void keep(struct measure *m, struct execute_samples *s, enum variant variant, int flags)
{
    measure_keep(m, s, variant, flags, STEP_LEAD_IN);
    m->next_block++;
}

void measure_series(struct measure *m, const int64_t *ends, int n, int64_t before, int first_step)
{
    for (int i = 0; i < n; i++) {
        m->series = record_room(m->series, sizeof *m->series, m->n_series, &m->capacity, 1);
        m->series_step = must_grow(m->series_step, (size_t)m->capacity, sizeof *m->series_step);
        m->series_step[m->n_series] = first_step + i;
        m->series[m->n_series++] = (double)(ends[i] - before);
        before = ends[i];
    }
}

/* Rank 0: the latest end of each step over ranks -> time between ends, behind the lead-in. */
static int extend_series(struct measure *m, const struct execute_samples *s, int first_step)
{
    int size = m->layout->world;
    int64_t *ends = must_alloc((size_t)s->n, sizeof *ends);
    int64_t *counts = must_alloc((size_t)size, sizeof *counts), total = 0;
    void *all = NULL;
    for (int i = 0; i < s->n; i++)
        ends[i] = clock_global_ns(&m->clock, s->step[i].end_ns);
    int rc = agree_gather(ends, s->n * (int64_t)sizeof *ends, &all, &total, counts, m->parent);
    if (rc == 0 && m->layout->rank == 0) {
        const int64_t *of = all;
        for (int i = 0; i < s->n; i++) {
            ends[i] = of[i];
            for (int r = 1; r < size; r++)
                ends[i] = of[r * s->n + i] > ends[i] ? of[r * s->n + i] : ends[i];
        }
        measure_series(m, ends + 1, s->n - 1, ends[0], first_step + 1);
    }
    free(all);
    free(counts);
    free(ends);
    return rc;
}

/* ---- blocks ---- */

/* The first launch of a graph is not like the others. */
static void warm_up_graphs(struct measure *m)
{
    struct execute_samples samples;
    execute_replay(m->execute, m->execute->max_steps, -1, &samples);
    keep(m, &samples, VARIANT_FULL, STEP_WARM_UP);
    execute_samples_release(&samples);
}

static int warm_up(struct measure *m)
{
    int64_t begin = units_now_ns();
    int64_t left = m->study->warm_up;
    ranges_push("warm-up");
    while (left > 0) {
        int n = (int)(left < m->execute->max_steps ? left : m->execute->max_steps);
        struct execute_samples samples;
        telemetry_block(m->telemetry, true);
        execute_block(m->execute, VARIANT_FULL, (int)m->study->stamps, n, -1, &samples);
        telemetry_block_end(m->telemetry, m->next_block, &m->local);
        keep(m, &samples, VARIANT_FULL, STEP_WARM_UP);
        execute_samples_release(&samples);
        left -= n;
    }
    if (m->study->graph)
        warm_up_graphs(m);
    ranges_pop();
    m->warm_up_s = (double)(units_now_ns() - begin) / 1e9;
    return agree_barrier(m->parent);
}

/* Variants without scratch memory ran on the real state: start again. */
static int restore(struct measure *m)
{
    if (execute_has_scratch(m->execute))
        return 0;
    if (m->again != NULL)
        return m->again(m->again_arg);
    execute_reset(m->execute, m->seed);
    return 0;
}

static int run_block(struct measure *m, enum block_kind kind, int n)
{
    static const enum variant variant_of[BLOCK_KINDS] = {
        [BLOCK_COMPUTE] = VARIANT_COMPUTE, [BLOCK_COMM] = VARIANT_COMM}; /* the others: full */
    const int level_of[BLOCK_KINDS] = {[BLOCK_FULL] = (int)m->study->stamps,
                                       [BLOCK_COMPUTE] = 2,
                                       [BLOCK_COMM] = 1,
                                       [BLOCK_INSTRUMENTED] = 2};
    enum variant variant = variant_of[kind];
    struct execute_samples samples;
    int rc = 0;
    watchdog_at("barrier before block", m->next_block, "all ranks of the point");
    rc = input_failed(m->execute->context.input);
    rc = rc ? rc : preempt_check(m->study->out);
    TRY(agree_quietly(rc, m->together)); /* the barrier */
    int first = m->next_step[variant];
    ranges_push(kind_name[kind]);
    telemetry_block(m->telemetry, kind == BLOCK_INSTRUMENTED);
    if (kind == BLOCK_GRAPH)
        execute_replay(m->execute, n + 1, n, &samples);
    else
        execute_block(m->execute, variant, level_of[kind], n + 1, n, &samples);
    telemetry_block_end(m->telemetry, m->next_block, &m->local);
    ranges_pop();
    if (variant == VARIANT_FULL)
        m->final_loss = samples.step[n].loss;
    if (kind == BLOCK_FULL) {
        rc = extend_series(m, &samples, first);
        m->full_steps += n;
    }
    keep(m, &samples, variant, 0);
    execute_samples_release(&samples);
    if (variant != VARIANT_FULL)
        TRY(restore(m));
out:
    return rc;
}

/* A digest brings the whole state to the host: of a large one that of the first variants must do. */
static bool watches_state(const struct measure *m)
{
    static const int64_t large = INT64_C(2) << 30;
    int64_t bytes = 0;
    for (int b = 1; b < PLAN_BUFFERS; b++)
        bytes += execute_is_state(b) ? m->execute->plan->bytes[b] : 0;
    return execute_has_scratch(m->execute) &&
           (bytes <= large || m->next_step[VARIANT_COMPUTE] == 0);
}

/* The training state must not notice the variants. */
static int run_variants(struct measure *m, const enum block_kind *kinds, int n_kinds)
{
    bool watch = watches_state(m);
    uint64_t before = watch ? execute_digest(m->execute) : 0;
    int rc = 0;
    for (int i = 0; i < n_kinds; i++) {
        if (kinds[i] == BLOCK_COMM && m->execute->plan->n_channels == 0)
            continue;
        TRY(run_block(m, kinds[i], (int)m->study->block));
    }
    if (watch && execute_digest(m->execute) != before)
        rc = fail(FAIL_WRONG, "variants: the training state changed while they ran on scratch");
    rc = agree_quietly(rc, m->together);
out:
    return rc;
}

/* Full steps at the study's level; beside them, so that the two can be compared, steps as graphs. */
static int run_plain(struct measure *m, bool mirrored)
{
    int64_t left = m->study->max_steps - m->full_steps;
    int n = (int)(left < m->study->block ? left : m->study->block), rc = 0;
    if (m->study->graph && mirrored)
        TRY(run_block(m, BLOCK_GRAPH, n));
    TRY(run_block(m, BLOCK_FULL, n));
    if (m->study->graph && !mirrored)
        TRY(run_block(m, BLOCK_GRAPH, n));
out:
    return rc;
}

static int run_half_cycle(struct measure *m, bool mirrored)
{
    static const enum block_kind forth[] = {BLOCK_COMPUTE, BLOCK_COMM};
    static const enum block_kind back[] = {BLOCK_COMM, BLOCK_COMPUTE};
    int n = (int)m->study->block, rc = 0;
    TRY(mirrored ? run_block(m, BLOCK_INSTRUMENTED, n) : run_plain(m, false));
    TRY(run_variants(m, mirrored ? back : forth, 2));
    TRY(mirrored ? run_plain(m, true) : run_block(m, BLOCK_INSTRUMENTED, n));
out:
    return rc;
}

/* ---- when to stop ---- */

/* Settled: the interval is narrow, and made of min-steps that are no warm-up. */
void measure_judge(struct measure *m)
{
    int64_t skip = stats_warm_up(m->series, m->n_series);
    int64_t n = m->n_series - skip;
    struct stats_interval mean;
    stats_mean_interval(m->series + skip, n, 0.95, m->seed, &mean);
    double half = (mean.high - mean.low) / 2;
    bool enough = n >= m->study->min_steps || m->full_steps >= m->study->max_steps;
    m->settled = enough && half <= m->study->settle * mean.value; /* false for NaN */
}

static int decide(struct measure *m, int64_t begin_ns, int *stop)
{
    watchdog_at("decision after block", m->next_block, "rank 0 of the point");
    if (m->layout->rank == 0) {
        measure_judge(m);
        bool late = (double)(units_now_ns() - begin_ns) / 1e9 >= m->study->max_seconds;
        *stop = m->full_steps >= m->study->max_steps ||
                (m->full_steps >= m->study->min_steps && (m->settled || late));
    }
    return agree_broadcast(stop, sizeof *stop, 0, m->together);
}

int measure_run(struct measure *m)
{
    int rc = 0, stop = 0;
    TRY(clock_measure(&m->clock, 0, m->parent));
    TRY(warm_up(m));
    telemetry_section(m->telemetry);
    int64_t begin = units_now_ns();
    for (int half = 0; !stop; half++) {
        TRY(run_half_cycle(m, half % 2 == 1));
        TRY(decide(m, begin, &stop));
    }
    m->timed_s = (double)(units_now_ns() - begin) / 1e9;
    telemetry_section_end(m->telemetry, &m->local);
    rc = clock_measure(&m->clock, 1, m->parent);
out:
    return rc;
}

/* ---- bringing the rows together ---- */

static int gather_table(void **rows, int64_t *n, int64_t *capacity, size_t row_size, void *local,
                        int64_t n_local, const struct measure *m)
{
    int64_t *counts = must_alloc((size_t)m->layout->world, sizeof *counts), total = 0;
    void *all = NULL;
    int rc = agree_gather(local, n_local * (int64_t)row_size, &all, &total, counts, m->parent);
    if (rc == 0 && m->layout->rank == 0) {
        free(*rows);
        *rows = all;
        *n = *capacity = total / (int64_t)row_size;
    }
    free(counts);
    return rc;
}

#define GATHER(table)                                                                              \
    gather_table((void **)&out->table.rows, &out->table.n, &out->table.capacity,                   \
                 sizeof *out->table.rows, m->local.table.rows, m->local.table.n, m)

static void flag_warm_up(struct measure *m, struct record_point *out)
{
    int64_t skip = stats_warm_up(m->series, m->n_series);
    if (skip == 0)
        return;
    int first = m->series_step[skip < m->n_series ? skip : m->n_series - 1];
    for (int64_t i = 0; i < out->steps.n; i++)
        if (out->steps.rows[i].variant == VARIANT_FULL && out->steps.rows[i].step < first)
            out->steps.rows[i].flags |= STEP_WARM_UP;
}

int measure_gather(struct measure *m, struct record_point *out)
{
    int rc = 0;
    for (int64_t i = 0; i < m->local.steps.n; i++) {
        struct step_row *row = &m->local.steps.rows[i];
        row->start_ns = clock_global_ns(&m->clock, row->start_ns) - m->t0_ns;
        row->end_ns = clock_global_ns(&m->clock, row->end_ns) - m->t0_ns;
    }
    for (int64_t i = 0; i < m->local.drains.n; i++) {
        struct drain_row *row = &m->local.drains.rows[i];
        row->start_ns = clock_global_ns(&m->clock, row->start_ns) - m->t0_ns;
        row->end_ns = clock_global_ns(&m->clock, row->end_ns) - m->t0_ns;
    }
    for (int64_t i = 0; i < m->local.telemetry.n; i++) {
        struct telemetry_row *row = &m->local.telemetry.rows[i];
        row->start_ns = clock_global_ns(&m->clock, row->start_ns) - m->t0_ns;
    }
    watchdog_at("gather rows", m->next_block, "all ranks of the point");
    TRY(GATHER(steps));
    TRY(GATHER(stalls));
    TRY(GATHER(collectives));
    TRY(GATHER(ops));
    TRY(GATHER(inputs));
    TRY(GATHER(checkpoints));
    TRY(GATHER(drains));
    TRY(GATHER(memory));
    TRY(GATHER(telemetry));
    TRY(GATHER(audit));
    TRY(GATHER(audit_calls));
    if (m->layout->rank == 0)
        flag_warm_up(m, out);
out:
    return rc;
}

void measure_release(struct measure *m)
{
    record_point_release(&m->local);
    free(m->series);
    free(m->series_step);
    memset(m, 0, sizeof *m);
}
