/* What is said of a point when it is over: verdict, summary, events. */
#include "driver/point_run_part.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "analysis/stats.h"
#include "base/units.h"
#include "driver/point_memory.h"
#include "driver/point_row.h"
#include "driver/point_watch.h"
#include "driver/proof.h"
#include "driver/proof_traffic.h"
#include "driver/timed.h"

void point_run_verdict(struct run *r)
{
    struct point_row *p = &r->rows->point;
    char why[sizeof p->why] = "";
    if (r->job->study.check) {
        int failed = gate_verdict(r->rows, why, sizeof why);
        const char *good = r->job->backend.kernels->no_numerics ? "no numerics" : "passed";
        point_text(p->gate, sizeof p->gate, failed || r->wrong[0] ? "failed" : good);
    }
    if (!why[0])
        proof_verdict(r->rows, why, sizeof why);
    if (!why[0])
        proof_traffic_verdict(r->rows, why, sizeof why);
    point_text(p->why, sizeof p->why, r->wrong[0] ? r->wrong : why);
    p->valid = !p->why[0];
}

/* Means over the full steps that capacity is made of. */
static void mean_of_steps(const struct run *r, double *stall_ms, double *valid_tokens)
{
    double stall = 0, valid = 0;
    int64_t n = 0;
    for (int64_t i = 0; i < r->rows->steps.n; i++) {
        const struct step_row *row = &r->rows->steps.rows[i];
        int left_out = STEP_WARM_UP | STEP_LEAD_IN;
        if (row->variant != VARIANT_FULL || (row->flags & left_out) != 0)
            continue;
        stall += (double)row->stall_ns;
        valid += (double)row->valid_tokens;
        n++;
    }
    *stall_ms = n > 0 && r->job->study.stamps > 0 ? stall / (double)n / 1e6 : NAN;
    *valid_tokens = n > 0 ? valid / (double)n : NAN;
}

void point_run_summarise(struct run *r, struct point_summary *summary)
{
    const struct measure *m = &r->measure;
    struct point_row *p = &r->rows->point;
    struct stats_interval mean;
    int64_t skip = stats_warm_up(m->series, m->n_series);
    stats_mean_interval(m->series + skip, m->n_series - skip, 0.95, m->seed, &mean);
    summary->step_ms = mean.value / 1e6;
    summary->half_width_pct = 50.0 * (mean.high - mean.low) / mean.value;
    double valid_tokens;
    mean_of_steps(r, &summary->stall_ms, &valid_tokens);
    summary->tokens_per_s = valid_tokens / (mean.value / 1e9);
    p->settled = m->settled;
    p->warm_up_s = m->warm_up_s;
    p->timed_s = m->timed_s;
    p->initial_loss = m->initial_loss;
    p->final_loss = m->final_loss;
    p->clock_error_ns = (double)m->clock.error_ns;
}

static void add_warnings(struct run *r, int64_t now)
{
    const struct point_row *p = &r->rows->point;
    char words[256];
    int rank = -1, bound = point_bound_to_one_core(r->job, r->point);
    if (p->emulated)
        point_event(r->rows, "warning", now, "emulated: several declared nodes are one host");
    if (r->job->shared_device)
        point_event(r->rows, "warning", now,
                    "shared device, functional only: several ranks share a GPU");
    int64_t foreign = point_memory_foreign(r->job, r->point, &rank);
    if (foreign > 0) {
        snprintf(words, sizeof words,
                 "%.1f GiB of the GPU of rank %d were held when the job began: it may not be this "
                 "job's alone",
                 (double)foreign / 1073741824.0, rank);
        point_event(r->rows, "warning", now, words);
    }
    if (r->execute.fence_waits > 0)
        point_event(r->rows, "warning", now,
                    "the host waited for the device inside the timed section");
    if (p->oversubscribed)
        point_event(r->rows, "warning", now, "oversubscribed: more ranks or threads than cores");
    if (r->point->ranks > 1 && bound > 0) {
        snprintf(words, sizeof words,
                 "%d of %d ranks are bound to one core: there communication takes its share of the "
                 "core that computes",
                 bound, r->point->ranks);
        point_event(r->rows, "warning", now, words);
    }
}

/* One note for each line that a communicator or the kernels have to say of their choices. */
static void note_lines(struct record_point *rows, int64_t now, const char *whose, char *lines)
{
    char words[512];
    for (char *line = lines, *end; line[0] != '\0'; line = end) {
        end = line + strcspn(line, "\n");
        snprintf(words, sizeof words, "%s: %.*s", whose, (int)(end - line), line);
        point_event(rows, "chosen", now, words);
        end += *end == '\n';
    }
}

static void add_choices(struct run *r, int64_t now)
{
    char text[16384];
    for (int i = 0; i < r->execute.n_comms; i++) {
        const struct comm *comm = &r->execute.comm[i];
        if (comm->type->describe == NULL)
            continue;
        comm->type->describe(comm, text, sizeof text);
        note_lines(r->rows, now, axis_name((int)comm->axis), text);
    }
    tune_say(&r->tune, text, sizeof text);
    note_lines(r->rows, now, "communicators", text);
    if (r->execute.kernels->describe == NULL)
        return;
    r->execute.kernels->describe(&r->execute.context, text, sizeof text);
    note_lines(r->rows, now, "kernels", text);
}

/* Dropless routing has the host wait inside the timed section: by plan, and said. */
static void note_counts(struct run *r, int64_t now)
{
    const struct kernel_context *context = &r->execute.context;
    char words[200];
    int waits = 0;
    for (int i = 0; i < r->plan.n_ops; i++)
        waits += r->plan.ops[i].kind == OP_COUNTS;
    if (waits == 0)
        return;
    snprintf(words, sizeof words,
             "dropless routing: the host waits for counts of rows %d times a step of a rank, by "
             "plan",
             waits);
    size_t length = strlen(words);
    if (context->waited_ns > 0) /* where waiting is no part of a stream's own time */
        snprintf(words + length, sizeof words - length, ", %.1f us each on rank 0",
                 1e-3 * (double)context->waited_ns / (double)context->counts);
    point_event(r->rows, "note", now, words);
}

void point_run_events(struct run *r)
{
    int64_t now = units_now_ns() - r->job->t0_ns;
    add_choices(r, now);
    add_warnings(r, now);
    point_watch_note(r->rows, now);
    note_counts(r, now);
    if (r->job->launch > 0)
        point_event(r->rows, "resume", now, "measured by a resumed launch");
    if (r->job->backend.kernels->no_numerics)
        timed_note(r->rows, now, r->job);
    else if (!execute_has_scratch(&r->execute))
        point_event(r->rows, "note", now,
                    r->job->study.resume_from[0] != '\0'
                        ? "no scratch copies: variants ran on the training state, which was read "
                          "again from the checkpoint after each"
                        : "no scratch copies: variants ran on the training state, which was made "
                          "again from the generator after each");
    if (r->job->study.test_delay > 0)
        point_event(r->rows, "fault", now,
                    "a delay was planted before the first gradient all-reduce");
    if (r->fault.drop_op >= 0)
        point_event(r->rows, "fault", now, "one op of the plan was not launched");
}
