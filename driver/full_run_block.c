/* A block of steps of a run, and what it says of all ranks. */
#include "driver/full_run_part.h"

#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/units.h"
#include "driver/agree.h"
#include "driver/clock.h"
#include "driver/point_row.h"
#include "driver/preempt.h"
#include "driver/watchdog.h"

bool full_run_is_first(const struct full_run *x)
{
    return x->m->layout->rank == 0;
}

int64_t full_run_done(const struct full_run *x)
{
    return x->m->execute->global_steps;
}

/* A log that cannot be written is every rank's end, but not here: ranks leave together. */
static void log_row(struct full_run *x, const struct interval_row *row)
{
    int rc = full_run_is_first(x) ? run_log_add(&x->log, row) : 0;
    x->failed = x->failed ? x->failed : rc;
}

/* Clocks of hosts agree to some us: rows that take time are kept from lying over each other. */
void full_run_row(struct full_run *x, struct interval_row *row)
{
    static const char *const beside[] = {"save", "record", "preempted", "end"};
    bool takes_time = true;
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++)
        takes_time &= strcmp(row->kind, beside[i]) != 0;
    if (takes_time) {
        row->begin_ns = row->begin_ns > x->covered_ns ? row->begin_ns : x->covered_ns;
        row->end_ns = row->end_ns > row->begin_ns ? row->end_ns : row->begin_ns;
        x->covered_ns = row->end_ns;
    }
    log_row(x, row);
}

void full_run_interval(struct full_run *x, const char *kind, int64_t begin_ns, int64_t end_ns,
                       int64_t first_step, int flags, const char *text)
{
    struct interval_row row = {
        .begin_ns = begin_ns, .end_ns = end_ns, .first_step = first_step, .flags = flags};
    point_text(row.kind, sizeof row.kind, kind);
    point_text(row.text, sizeof row.text, text);
    full_run_row(x, &row);
}

void full_run_books(struct full_run *x, int64_t until_ns, int64_t block_ns)
{
    int64_t length = until_ns - x->books_ns;
    if (x->books_ns > 0 && length > 0 && length * 2000 > block_ns)
        full_run_interval(x, "record", x->books_ns, until_ns, x->first + x->steps, 0, "");
    x->books_ns = x->books_ns > 0 ? until_ns : 0;
}

void full_run_start_up(struct full_run *x, int64_t begin_ns, int64_t end_ns, const char *text)
{
    struct interval_row row = {.kind = "start-up", .begin_ns = begin_ns, .end_ns = end_ns};
    point_text(row.text, sizeof row.text, text);
    log_row(x, &row);
}

/* ---- what ranks know together ---- */

static int together(const struct full_run *x, int64_t *values, int n, MPI_Op op)
{
    MPI_Request request;
    AGREE_MPI(MPI_Iallreduce(MPI_IN_PLACE, values, n, MPI_INT64_T, op,
                             *(const MPI_Comm *)x->m->parent, &request));
    return agree_wait(&request);
}

/* Largest over ranks: n ends, n times of work, and these. */
enum { WORST_BEGIN, WORST_SIGNAL, WORST_FAILED, WORST_TRAINED, WORST_TRAINED_LEAST, WORSTS };
/* Sums over ranks. */
enum { SUM_CALL, SUM_INPUT, SUM_STRAGGLER, SUM_STALL, SUMS };

/* Work: what others may have to wait for. */
static void look(const struct full_run *x, const struct execute_samples *s, int64_t begin_ns,
                 int64_t *worst)
{
    for (int i = 0; i < s->n; i++) {
        worst[i] = clock_global_ns(&x->m->clock, s->step[i].end_ns);
        worst[s->n + i] = s->step[i].end_ns - s->step[i].start_ns - s->step[i].stall_ns;
    }
    worst[2 * s->n + WORST_BEGIN] = -clock_global_ns(&x->m->clock, begin_ns);
    worst[2 * s->n + WORST_SIGNAL] = preempt_seen();
    worst[2 * s->n + WORST_FAILED] =
        x->failed != 0 || input_failed(x->m->execute->context.input) != 0;
    worst[2 * s->n + WORST_TRAINED] = full_run_trained(x, s);
    worst[2 * s->n + WORST_TRAINED_LEAST] = -worst[2 * s->n + WORST_TRAINED];
}

static void add_up(const struct execute_samples *s, int64_t call_ns, const int64_t *worst,
                   int64_t *sums)
{
    memset(sums, 0, SUMS * sizeof *sums);
    sums[SUM_CALL] = call_ns;
    for (int64_t i = 0; i < s->rows.inputs.n; i++)
        sums[SUM_INPUT] += s->rows.inputs.rows[i].wait_ns;
    for (int i = 0; i < s->n; i++) {
        const struct step_row *row = &s->step[i];
        int64_t late = worst[s->n + i] - (row->end_ns - row->start_ns - row->stall_ns);
        sums[SUM_STALL] += row->stall_ns;
        sums[SUM_STRAGGLER] += late < row->stall_ns ? late : row->stall_ns;
    }
}

/* ---- rows ---- */

static int flags_of(const struct full_run *x, bool calls)
{
    if (x->steps < x->warm_up)
        return INTERVAL_WARM_UP;
    return calls || x->behind > 0 || saver_under_way(&x->saver) > 0 ? INTERVAL_SAVING : 0;
}

static void add_interval(struct full_run *x, const struct execute_samples *s, int64_t begin_ns,
                         int64_t end_ns, int flags, const int64_t *sums)
{
    struct interval_row row = {.kind = "steps",
                               .begin_ns = begin_ns,
                               .end_ns = end_ns,
                               .flags = flags,
                               .first_step = full_run_done(x) - s->n,
                               .steps = s->n,
                               .call_ns = sums[SUM_CALL],
                               .input_ns = sums[SUM_INPUT],
                               .straggler_ns = sums[SUM_STRAGGLER],
                               .stall_ns = sums[SUM_STALL]};
    for (int i = 0; i < s->n; i++)
        row.tokens += s->step[i].valid_tokens;
    full_run_row(x, &row);
}

/* Steps lie end to end, so blocks of one kind are one block of the step rows: only where something else
 * lay between is the first step a lead-in. */
static void keep(struct full_run *x, struct execute_samples *s, int flags, const int64_t *ends)
{
    struct measure *m = x->m;
    bool begins = x->stretch || flags != x->last_kind;
    int first = m->next_step[VARIANT_FULL];
    if (begins)
        m->next_block++;
    if (full_run_is_first(x) && flags == 0)
        measure_series(m, ends + begins, s->n - begins, begins ? ends[0] : x->end_ns,
                       first + begins);
    m->full_steps += s->n;
    m->final_loss = s->step[s->n - 1].loss;
    measure_keep(m, s, VARIANT_FULL, flags == INTERVAL_WARM_UP ? STEP_WARM_UP : 0,
                 begins ? STEP_LEAD_IN : 0);
    x->stretch = false;
    x->last_kind = flags;
}

/* The call of a save lies before the first step's first stamp. */
static int64_t begin_of(const struct full_run *x, const struct execute_samples *s, int called)
{
    int64_t begin = s->step[0].start_ns;
    if (called >= 0 && x->saver.slot[called].call_begin_ns < begin)
        begin = x->saver.slot[called].call_begin_ns;
    return begin;
}

/* posted_ns: when this rank began the block, on the clock of all. */
static int finish(struct full_run *x, struct execute_samples *s, bool calls, int64_t posted_ns)
{
    int n = s->n, rc = 0, flags = flags_of(x, calls);
    int64_t sums[SUMS], *worst = must_alloc(2 * (size_t)n + WORSTS, sizeof *worst);
    int called = x->ask.saves ? saver_collect(&x->saver) : -1;
    look(x, s, begin_of(x, s, called), worst);
    TRY(together(x, worst, 2 * n + WORSTS, MPI_MAX));
    add_up(s, called >= 0 ? x->saver.slot[called].blocked_ns : 0, worst, sums);
    TRY(together(x, sums, SUMS, MPI_SUM));
    int64_t begin = -worst[(ptrdiff_t)2 * n + WORST_BEGIN];
    keep(x, s, flags, worst);
    x->step_ns = (worst[n - 1] - begin - (calls ? sums[SUM_CALL] / x->m->layout->world : 0)) / n;
    x->end_ns = worst[n - 1];
    if (calls)
        x->called_ns = begin;
    x->signal = (int)worst[2 * n + WORST_SIGNAL];
    full_run_books(x, posted_ns, x->end_ns - begin);
    x->steps += n;
    x->behind = x->behind > n ? x->behind - n : 0;
    add_interval(x, s, begin, x->end_ns, flags, sums);
    if (worst[2 * n + WORST_TRAINED] != -worst[2 * n + WORST_TRAINED_LEAST] && !x->unlike)
        TRY(full_run_say_unlike(x, s));
    if (worst[2 * n + WORST_FAILED])
        rc = agree_quietly(x->failed ? x->failed : input_failed(x->m->execute->context.input),
                           x->m->parent);
out:
    free(worst);
    return rc;
}

int full_run_block(struct full_run *x, int n, bool calls)
{
    struct execute *e = x->m->execute;
    struct execute_samples samples;
    watchdog_at("block of the run", full_run_done(x), "all ranks of the point");
    drill_block(&x->drill, full_run_done(x), n, x->step_ns * n, calls ? x->saves - 1 : -1,
                x->saver.n_published > 0);
    telemetry_block(x->m->telemetry, false);
    int64_t posted_ns = clock_global_ns(&x->m->clock, units_now_ns());
    execute_block(e, VARIANT_FULL, (int)x->m->study->stamps, n, -1, &samples);
    telemetry_block_stop(x->m->telemetry);
    int rc = finish(x, &samples, calls, posted_ns);
    x->books_ns = clock_global_ns(&x->m->clock, samples.step[samples.n - 1].end_ns);
    telemetry_block_rows(x->m->telemetry, x->m->next_block, &x->m->local);
    drill_block_over(&x->drill, x->ask.saves && saver_under_way(&x->saver) > 0);
    execute_samples_release(&samples);
    return rc;
}
