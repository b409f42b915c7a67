/* The timed section keeps its promises: blocks F C M I I M C F, a lead-in in front of each, warm-up
 * apart, as many rows as steps, a training state that never notices the variants, or is there again
 * behind each, and a series that is the time between the last ranks' ends. */
#include "analysis/stats.h"
#include "tests/mpi/measure_rig.h"

enum { MOST_BLOCKS = 9 };

/* ---- what the header promises: the blocks of a section, in order ---- */

struct block {
    enum variant variant;
    int steps; /* lead-in included */
    bool instrumented, warm_up;
};

struct blocks {
    int n;
    struct block of[MOST_BLOCKS];
};

static void add_block(struct blocks *blocks, enum variant variant, int steps, bool instrumented)
{
    if (variant != VARIANT_COMM || size > 1) /* one rank alone has nothing to say */
        blocks->of[blocks->n++] = (struct block){variant, steps, instrumented, false};
}

/* One step of warm-up, then a half cycle and its mirror image; `last`: steps of the last F. */
static struct blocks promised(int last)
{
    struct blocks blocks = {1, {{VARIANT_FULL, 1, false, true}}};
    add_block(&blocks, VARIANT_FULL, 1 + BLOCK, false);
    add_block(&blocks, VARIANT_COMPUTE, 1 + BLOCK, true);
    add_block(&blocks, VARIANT_COMM, 1 + BLOCK, false);
    add_block(&blocks, VARIANT_FULL, 1 + BLOCK, true);
    add_block(&blocks, VARIANT_FULL, 1 + BLOCK, true);
    add_block(&blocks, VARIANT_COMM, 1 + BLOCK, false);
    add_block(&blocks, VARIANT_COMPUTE, 1 + BLOCK, true);
    add_block(&blocks, VARIANT_FULL, 1 + last, false);
    return blocks;
}

static int steps_of(const struct blocks *blocks, enum variant variant)
{
    int n = 0;
    for (int b = 0; b < blocks->n; b++)
        n += blocks->of[b].variant == variant ? blocks->of[b].steps : 0;
    return n;
}

/* This rank's rows, one by one: block, step, variant and flags. */
static void check_steps(const struct record_point *rows, const struct blocks *blocks, bool scratch)
{
    int step[VARIANTS] = {0};
    int64_t row = 0;
    for (int b = 0; b < blocks->n; b++)
        for (int i = 0; i < blocks->of[b].steps && row < rows->steps.n; i++, row++) {
            const struct block *block = &blocks->of[b];
            const struct step_row *s = &rows->steps.rows[row];
            bool on_scratch = scratch && block->variant != VARIANT_FULL;
            CHECK_EQ(s->block, b);
            CHECK_EQ(s->rank, rank);
            CHECK_EQ(s->variant, block->variant);
            CHECK_EQ(s->step, step[block->variant]++);
            CHECK_EQ(s->flags, (block->warm_up ? STEP_WARM_UP : 0) | (i == 0 ? STEP_LEAD_IN : 0) |
                                   (block->instrumented ? STEP_INSTRUMENTED : 0) |
                                   (on_scratch ? STEP_SCRATCH : 0));
            CHECK(s->end_ns > s->start_ns);
        }
    CHECK_EQ(row, rows->steps.n);
    for (int v = 0; v < VARIANTS; v++)
        CHECK_EQ(step[v], steps_of(blocks, (enum variant)v));
}

/* Calls and ops are kept for the last step of a block; stalls for each step that communicates. */
static void check_details(const struct record_point *rows, const struct blocks *blocks,
                          const struct plan *plan)
{
    int64_t calls = 0, ops = 0, stalls = 0;
    int step[VARIANTS] = {0}, n_calls = (int)plan->totals.calls[AXIS_DP];
    for (int b = 0; b < blocks->n; b++) {
        const struct block *block = &blocks->of[b];
        int last = step[block->variant] += block->steps;
        bool communicates = size > 1 && block->variant != VARIANT_COMPUTE;
        for (int i = 0; communicates && !block->warm_up && i < n_calls; i++, calls++) {
            if (calls >= rows->collectives.n)
                continue;
            const struct call_row *call = &rows->collectives.rows[calls];
            CHECK(call->rank == rank && call->variant == (i32)block->variant);
            CHECK_EQ(call->step, last - 1);
            CHECK_EQ(call->call, i);
        }
        int n_ops = block->variant == VARIANT_COMPUTE ? plan->n_ops - n_calls : plan->n_ops;
        for (int i = 0; block->instrumented && i < n_ops; i++, ops++)
            CHECK(ops >= rows->ops.n ||
                  (rows->ops.rows[ops].step == last - 1 && rows->ops.rows[ops].rank == rank &&
                   rows->ops.rows[ops].variant == (i32)block->variant));
        for (int i = last - block->steps; communicates && i < last; i++, stalls++)
            CHECK(stalls >= rows->stalls.n ||
                  (rows->stalls.rows[stalls].step == i && rows->stalls.rows[stalls].rank == rank &&
                   rows->stalls.rows[stalls].variant == (i32)block->variant));
    }
    CHECK_EQ(rows->collectives.n, calls);
    CHECK_EQ(rows->ops.n, ops);
    CHECK_EQ(rows->stalls.n, stalls);
}

static const struct step_row *last_full(const struct record_point *rows)
{
    const struct step_row *last = NULL;
    for (int64_t i = 0; i < rows->steps.n; i++)
        if (rows->steps.rows[i].variant == VARIANT_FULL)
            last = &rows->steps.rows[i];
    return last;
}

/* ---- rank 0: the series, and the flags that are set when all rows are there ---- */

static int64_t latest_end(const struct record_point *all, int step)
{
    int64_t latest = INT64_MIN;
    for (int64_t i = 0; i < all->steps.n; i++) {
        const struct step_row *row = &all->steps.rows[i];
        if (row->variant == VARIANT_FULL && row->step == step && row->end_ns > latest)
            latest = row->end_ns;
    }
    return latest;
}

/* Time between ends of F steps as the last rank sees them, lead-ins and other blocks apart. */
static void check_series(const struct measure *m, const struct record_point *all,
                         const struct blocks *blocks)
{
    int64_t at = 0;
    int step = 0;
    for (int b = 0; b < blocks->n; b++) {
        const struct block *block = &blocks->of[b];
        if (block->variant != VARIANT_FULL)
            continue;
        for (int i = 1; i < block->steps && !block->instrumented && !block->warm_up; i++, at++) {
            if (!CHECK(at < m->n_series))
                return;
            CHECK_EQ(m->series_step[at], step + i);
            CHECK_NEAR(m->series[at], latest_end(all, step + i) - latest_end(all, step + i - 1), 0);
        }
        step += block->steps;
    }
    CHECK_EQ(m->n_series, at);
    CHECK_EQ(m->full_steps, at);
}

/* A series that begins ten times slower: what the change-point rule cuts off is flagged. */
static void check_change_point(struct rig *rig)
{
    enum { N = 40, SLOW = 5 };
    struct measure *m = &rig->measure;
    m->series = must_grow(m->series, N, sizeof *m->series);
    m->series_step = must_grow(m->series_step, N, sizeof *m->series_step);
    m->n_series = N;
    for (int i = 0; i < N; i++) {
        m->series[i] = (i < SLOW ? 1e7 : 1e6) + 1e3 * (i % 7);
        m->series_step[i] = i + 2;
    }
    struct record_point all = {0};
    CHECK_EQ(measure_gather(m, &all), 0);
    if (rank == 0) {
        CHECK_EQ(stats_warm_up(m->series, N), SLOW);
        for (int64_t i = 0; i < all.steps.n; i++) {
            const struct step_row *row = &all.steps.rows[i];
            bool early = row->variant == VARIANT_FULL && row->step < SLOW + 2;
            CHECK_EQ((row->flags & STEP_WARM_UP) != 0, early);
        }
    }
    record_point_release(&all);
}

static void check_gathered(struct rig *rig, const struct blocks *blocks)
{
    struct record_point all = {0};
    int64_t mine = rig->measure.local.steps.n, ops = rig->measure.local.ops.n;
    const struct step_row *row = &rig->measure.local.steps.rows[mine - 1], local = *row;
    CHECK_EQ(measure_gather(&rig->measure, &all), 0);
    const struct clock_fit *clock = &rig->measure.clock;
    CHECK_EQ(row->start_ns, clock_global_ns(clock, local.start_ns) - rig->measure.t0_ns);
    CHECK_EQ(row->end_ns, clock_global_ns(clock, local.end_ns) - rig->measure.t0_ns);
    if (rank == 0) {
        CHECK_EQ(all.steps.n, size * mine);
        CHECK_EQ(all.ops.n, size * ops);
        for (int64_t i = 0; i < all.steps.n; i++)
            CHECK_EQ(all.steps.rows[i].rank, i / mine);
        check_series(&rig->measure, &all, blocks);
    }
    CHECK(rank == 0 || all.steps.n == 0);
    record_point_release(&all);
}

/* ---- the tests ---- */

/* Full steps alone, from the beginning. */
static uint64_t digest_of(struct rig *rig, int steps)
{
    execute_reset(&rig->execute, 1);
    for (int i = 0; i < steps; i++)
        execute_block(&rig->execute, VARIANT_FULL, 0, 1, -1, NULL);
    return execute_digest(&rig->execute);
}

static void with_scratch(int64_t steps)
{
    struct rig rig;
    rig_open(&rig, true, steps);
    CHECK(execute_has_scratch(&rig.execute));
    CHECK_EQ(measure_run(&rig.measure), 0);
    uint64_t digest = execute_digest(&rig.execute);
    struct blocks blocks = promised((int)steps - BLOCK);
    const struct record_point *rows = &rig.measure.local;
    int full = steps_of(&blocks, VARIANT_FULL);
    check_steps(rows, &blocks, true);
    check_details(rows, &blocks, &rig.plan);
    CHECK_EQ(rig.measure.full_steps, steps);
    CHECK_NEAR(rig.measure.initial_loss, rows->steps.rows[0].loss, 0);
    CHECK_NEAR(rig.measure.final_loss, last_full(rows)->loss, 0);
    CHECK(last_full(rows)->loss > 0 && last_full(rows)->loss != rows->steps.rows[0].loss);
    CHECK_EQ(last_full(rows)->consumed, full * 2 * size);
    CHECK_EQ(last_full(rows)->optimizer_step, full);
    check_gathered(&rig, &blocks);
    check_change_point(&rig);
    CHECK(digest_of(&rig, full) == digest);
    CHECK(digest_of(&rig, full - 1) != digest);
    rig_close(&rig);
}

/* Since the last variant these full steps were done, from where training began; returns how many. */
static int check_since(const struct record_point *rows, int before)
{
    int since = 0;
    double first_loss = rows->steps.rows[0].loss;
    for (int64_t i = 0; i < rows->steps.n; i++) {
        const struct step_row *row = &rows->steps.rows[i];
        if (row->variant != VARIANT_FULL) {
            since = 0;
            continue;
        }
        since++;
        CHECK_EQ(row->consumed, (before + since) * 2 * size);
        CHECK_EQ(row->micro_step, (before + since) * 2);
        CHECK_EQ(row->optimizer_step, before + since);
        CHECK_EQ(row->loss == first_loss, since == 1);
    }
    return since;
}

/* The variants run on the state itself: after each one training starts again, from the generator or from a
 * state that is known, of `before` steps: bit by bit what full steps alone make of it. */
static void without_scratch(int before)
{
    struct rig rig;
    struct known known = {0};
    rig_open(&rig, false, 2 * BLOCK);
    CHECK(!execute_has_scratch(&rig.execute));
    if (before > 0) {
        digest_of(&rig, before);
        known_keep(&known, &rig.execute);
        rig.measure.again = known_again;
        rig.measure.again_arg = &known;
    }
    CHECK_EQ(measure_run(&rig.measure), 0);
    uint64_t digest = execute_digest(&rig.execute);
    struct blocks blocks = promised(BLOCK);
    const struct record_point *rows = &rig.measure.local;
    check_steps(rows, &blocks, false);
    int last = check_since(rows, before);
    CHECK_EQ(last, 1 + BLOCK);
    CHECK_EQ(known.asked, before == 0 ? 0 : size > 1 ? 4 : 2);
    CHECK_NEAR(rig.measure.final_loss, last_full(rows)->loss, 0);
    CHECK(digest_of(&rig, before + last) == digest);
    CHECK(digest_of(&rig, last) != digest || before == 0);
    known_release(&known);
    rig_close(&rig);
}

/* Each block of a variant starts from a copy of the state, whatever the block before it did: sums
 * over ranks of gradients that are sums already are `size` times as large, not size squared; and
 * what one rank computes on scratch is the next step of training. */
static void scratch_is_a_copy(void)
{
    struct rig rig;
    rig_open(&rig, true, BLOCK);
    struct execute *e = &rig.execute;
    int64_t n = rig.plan.n_parameters;
    int wrong = 0;
    execute_block(e, VARIANT_FULL, 0, 1, -1, NULL);
    execute_block(e, VARIANT_COMM, 0, 1, -1, NULL);
    execute_block(e, VARIANT_COMM, 0, 1, -1, NULL);
    const float *real = (const float *)(const void *)e->memory[BUFFER_GRADIENT];
    const float *copy = (const float *)(const void *)e->scratch[BUFFER_GRADIENT];
    for (int64_t i = 0; size > 1 && i < n; i++)
        wrong += !(fabs(copy[i] - size * (double)real[i]) <= 1e-5 * size * fabs(real[i]));
    CHECK_EQ(wrong, 0);
    execute_block(e, VARIANT_COMPUTE, 0, 1, -1, NULL);
    execute_block(e, VARIANT_COMPUTE, 0, 1, -1, NULL);
    execute_block(e, VARIANT_FULL, 0, 1, -1, NULL);
    size_t bytes = (size_t)n * sizeof(float);
    if (size == 1)
        CHECK(memcmp(e->scratch[BUFFER_PARAMETER], e->memory[BUFFER_PARAMETER], bytes) == 0);
    rig_close(&rig);
}

/* Out of time, or settled, it goes on to min-steps and no further; unsettled, to max-steps. */
static void when_it_stops(void)
{
    static const struct {
        double settle, max_seconds;
        int64_t min_steps, full_steps;
    } cases[] = {{0, 0, 1, 2}, {0, 0, 3, 4}, {1e9, 60, 3, 4}, {0, 60, 1, 6}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct rig rig;
        rig_open(&rig, true, 6);
        rig.study.settle = cases[i].settle;
        rig.study.max_seconds = cases[i].max_seconds;
        rig.study.min_steps = cases[i].min_steps;
        CHECK_EQ(measure_run(&rig.measure), 0);
        CHECK_EQ(rig.measure.full_steps, cases[i].full_steps);
        if (rank == 0 && cases[i].full_steps > 2)
            CHECK_EQ(rig.measure.settled, cases[i].settle > 1);
        rig_close(&rig);
    }
}

int main(int argc, char **argv)
{
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level);
    MPI_Comm_rank(world, &rank);
    MPI_Comm_size(world, &size);
    with_scratch(2 * BLOCK);
    with_scratch(2 * BLOCK - 1);
    without_scratch(0);
    without_scratch(3);
    scratch_is_a_copy();
    when_it_stops();
    int failed = test_end();
    MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, world);
    MPI_Finalize();
    return failed;
}
