#include "driver/point_run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/stats.h"
#include "base/err.h"
#include "base/units.h"
#include "collectives/comm_check.h"
#include "driver/agree.h"
#include "driver/check.h"
#include "driver/checkpoint_section.h"
#include "driver/dataset.h"
#include "driver/measure.h"
#include "driver/point_memory.h"
#include "driver/point_plan.h"
#include "driver/point_row.h"
#include "driver/proof.h"
#include "driver/proof_traffic.h"
#include "driver/timed.h"
#include "driver/watchdog.h"
#include "workloads/input_feed.h"
#include "workloads/input_file.h"

/* One point while it runs, on one rank. */
struct run {
    struct job *job;
    const struct point *point;
    const void *comm, *together;
    struct model model; /* with the point's sequence */
    struct policy policy;
    struct plan plan;
    struct input input;
    struct execute execute;
    struct measure measure;
    struct execute_fault fault;
    struct record_point *rows;
    char wrong[512]; /* why the point is invalid, "" */
};

/* ---- plan ---- */

/* Every member of every group must be about to make the same calls. */
static int agree_calls(const struct run *r)
{
    uint64_t mine[AXIS_COUNT];
    void *all = NULL;
    int64_t total = 0, *counts = must_alloc((size_t)r->point->ranks, sizeof *counts);
    for (int axis = 0; axis < AXIS_COUNT; axis++)
        mine[axis] = plan_digest(&r->plan, (enum axis)axis);
    int rc = agree_gather(mine, sizeof mine, &all, &total, counts, r->comm);
    if (rc == 0 && r->plan.layout.rank == 0) {
        const uint64_t(*of)[AXIS_COUNT] = (const uint64_t(*)[AXIS_COUNT])all;
        for (int rank = 1; rank < r->point->ranks && rc == 0; rank++)
            for (int axis = 0; axis < AXIS_COUNT && rc == 0; axis++)
                if (of[rank][axis] != of[0][axis])
                    rc = fail(FAIL_INTERNAL, "plan: rank %d would make other %s calls than rank 0",
                              rank, axis_name(axis));
    }
    free(all);
    free(counts);
    return agree_quietly(rc, r->comm);
}

/* ---- events ---- */

static void note(struct record_point *rows, const char *kind, int64_t at_ns, const char *words)
{
    struct event_row *event = RECORD_ADD(&rows->events, 1);
    event->at_ns = at_ns;
    event->rank = -1;
    point_text(event->kind, sizeof event->kind, kind);
    point_text(event->text, sizeof event->text, words);
}

/* A wrong result ends the point's claim, not the point. */
static int keep_wrong(struct run *r, int rc)
{
    if (rc != FAIL_WRONG)
        return rc;
    if (!r->wrong[0])
        point_text(r->wrong, sizeof r->wrong, fail_message());
    fail_clear();
    return 0;
}

/* ---- phases ---- */

static double since(int64_t begin_ns)
{
    return (double)(units_now_ns() - begin_ns) / 1e9;
}

static int open_point(struct run *r)
{
    const struct study *study = &r->job->study;
    int64_t begin = units_now_ns();
    int rc = 0;
    int64_t most = study->block + 1;
    TRY(input_open_documents(&r->input, r->point->input, (uint64_t)study->seed, r->model.vocabulary,
                             r->model.sequence, study->padding, 16 * r->point->global_batch,
                             study->document_end));
    TRY(dataset_same(r->job, r->point, &r->input));
    r->input.pinned = study->pinned;
    TRY(input_feed_open(&r->input, &r->plan, (int)study->input_workers, (int)study->prefetch,
                        (int)most));
    struct execute_config config = {.plan = &r->plan,
                                    .backend = &r->job->backend,
                                    .input = &r->input,
                                    .parent = r->comm,
                                    .max_steps = (int)most,
                                    .scratch = study->scratch != SCRATCH_RECREATE,
                                    .fault = r->fault};
    if (checkpoint_section_wanted(r->job, r->point)) {
        config.save_stamps = saver_stamps(&r->plan, r->job->backend.device);
        config.save_tasks = saver_tasks(&r->plan, r->job->backend.device);
    }
    watchdog_at("open", r->point->ranks, "ranks");
    TRY(execute_open(&r->execute, &config));
out:
    r->rows->point.setup_s += since(begin);
    return agree_quietly(rc, r->comm);
}

static int prove(struct run *r)
{
    int64_t begin = units_now_ns(), wrong = 0;
    int rc = 0;
    for (int i = 0; i < r->execute.n_comms && rc == 0; i++) {
        watchdog_at("prove collectives", i, axis_name((int)r->execute.comm[i].axis));
        rc = comm_prove(&r->execute.comm[i], POINT_PROVE_ELEMENTS, &wrong);
        rc = keep_wrong(r, agree_quietly(rc, r->comm));
    }
    r->rows->point.prove_s = since(begin);
    return rc;
}

static int gate(struct run *r)
{
    int64_t begin = units_now_ns();
    watchdog_at("gate", r->point->ranks, "ranks");
    int rc = gate_point(&r->job->reference, &r->plan.layout, &r->policy, r->plan.micro_batches > 1,
                        &r->job->backend, r->comm, r->fault, r->rows);
    if (rc == 0 && checkpoint_section_wanted(r->job, r->point))
        rc = checkpoint_section_gate(r->job, r->point, &r->plan.layout, &r->policy,
                                     r->plan.micro_batches > 1, r->comm, r->rows);
    r->rows->point.gate_s += since(begin);
    return rc;
}

/* One step that is counted, when the gate is off. */
static void first_step(struct run *r, struct proof_counts *work)
{
    struct proof_counts before;
    proof_read(&r->execute, &before);
    execute_block(&r->execute, VARIANT_FULL, 0, 1, -1, NULL);
    proof_read(&r->execute, work);
    proof_subtract(work, &before);
    execute_reset(&r->execute, (uint64_t)r->job->study.seed);
}

/* What the communicators' library chooses for the calls of a step that is not timed. */
static void watch_comms(struct run *r, bool on)
{
    for (int i = 0; i < r->execute.n_comms; i++)
        if (r->execute.comm[i].type->watch != NULL)
            r->execute.comm[i].type->watch(&r->execute.comm[i], on);
}

static int check_and_prove_work(struct run *r)
{
    uint64_t seed = (uint64_t)r->job->study.seed;
    struct proof_counts work;
    int64_t begin = units_now_ns();
    int rc = 0;
    execute_reset(&r->execute, seed);
    r->rows->point.init_s = since(begin);
    begin = units_now_ns();
    watchdog_at("full-model checks", r->point->ranks, "ranks");
    watch_comms(r, true);
    if (r->job->study.check)
        TRY(check_full(&r->execute, &r->input, &r->model, seed, r->comm, &work, r->rows));
    else
        first_step(r, &work);
    TRY(proof_point(r->job, r->point, &r->plan, &work, r->comm, r->rows));
    TRY(proof_traffic(r->job, r->point, &r->plan, &work, r->comm, r->rows));
out:
    watch_comms(r, false);
    r->rows->point.gate_s += since(begin);
    return rc;
}

static int measure(struct run *r)
{
    struct measure *m = &r->measure;
    int rc = 0;
    *m = (struct measure){.study = &r->job->study,
                          .execute = &r->execute,
                          .layout = &r->plan.layout,
                          .parent = r->comm,
                          .together = r->together,
                          .seed = (uint64_t)r->job->study.seed,
                          .t0_ns = r->job->t0_ns};
    struct checkpoint_section section = {r->job, r->point, m};
    if (r->job->study.resume_from[0] != '\0')
        TRY(checkpoint_resume(&section));
    timed_begin(&r->execute);
    TRY(keep_wrong(r, measure_run(m)));
    TRY(timed_end(&r->execute, r->comm, &r->rows->point));
    point_memory_rows(r->job, &r->plan, &r->execute, &m->local);
    if (checkpoint_section_wanted(r->job, r->point))
        TRY(checkpoint_section(&section, r->rows));
    TRY(measure_gather(m, r->rows));
out:
    return rc;
}

/* ---- the end ---- */

/* What was read was the data of this study until the last step: else the point is none. */
static int check_input(struct run *r)
{
    int rc = input_failed(&r->input);
    if (rc == 0 && r->input.file != NULL)
        rc = input_file_unchanged(r->input.file);
    return agree_quietly(rc, r->comm);
}

static void verdict(struct run *r)
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

static void summarise(struct run *r, struct point_summary *summary)
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
    int bound = point_bound_to_one_core(r->job, r->point);
    if (p->emulated)
        note(r->rows, "warning", now, "emulated: several declared nodes are one host");
    if (r->job->shared_device)
        note(r->rows, "warning", now, "shared device, functional only: several ranks share a GPU");
    if (r->execute.fence_waits > 0)
        note(r->rows, "warning", now, "the host waited for the device inside the timed section");
    if (p->oversubscribed)
        note(r->rows, "warning", now, "oversubscribed: more ranks or threads than cores");
    if (r->point->ranks > 1 && bound > 0) {
        snprintf(words, sizeof words,
                 "%d of %d ranks are bound to one core: there communication takes its share of the "
                 "core that computes",
                 bound, r->point->ranks);
        note(r->rows, "warning", now, words);
    }
}

/* One note for each line that a communicator or the kernels have to say of their choices. */
static void note_lines(struct record_point *rows, int64_t now, const char *whose, char *lines)
{
    char words[512];
    for (char *line = lines, *end; line[0] != '\0'; line = end) {
        end = line + strcspn(line, "\n");
        snprintf(words, sizeof words, "%s: %.*s", whose, (int)(end - line), line);
        note(rows, "chosen", now, words);
        end += *end == '\n';
    }
}

static void add_choices(struct run *r, int64_t now)
{
    char text[4096];
    for (int i = 0; i < r->execute.n_comms; i++) {
        const struct comm *comm = &r->execute.comm[i];
        if (comm->type->describe == NULL)
            continue;
        comm->type->describe(comm, text, sizeof text);
        note_lines(r->rows, now, axis_name((int)comm->axis), text);
    }
    if (r->execute.kernels->describe == NULL)
        return;
    r->execute.kernels->describe(&r->execute.context, text, sizeof text);
    note_lines(r->rows, now, "kernels", text);
}

static void add_events(struct run *r)
{
    int64_t now = units_now_ns() - r->job->t0_ns;
    add_choices(r, now);
    add_warnings(r, now);
    if (r->job->launch > 0)
        note(r->rows, "resume", now, "measured by a resumed launch");
    if (r->job->backend.kernels->no_numerics)
        timed_note(r->rows, now, r->job);
    else if (!execute_has_scratch(&r->execute))
        note(r->rows, "note", now,
             "no scratch copies: variants ran on the training state, which was made again from the "
             "generator after each");
    if (r->job->study.test_delay > 0)
        note(r->rows, "fault", now, "a delay was planted before the first gradient all-reduce");
    if (r->fault.drop_op >= 0)
        note(r->rows, "fault", now, "one op of the plan was not launched");
}

static void release(struct run *r)
{
    measure_release(&r->measure);
    execute_close(&r->execute);
    input_close(&r->input);
    plan_release(&r->plan);
}

static struct execute_fault planted(const struct job *job, const struct layout *layout)
{
    bool last = layout->rank == layout->world - 1;
    return (struct execute_fault){.delay_ns = last ? (int64_t)(job->study.test_delay * 1e9) : 0,
                                  .drop_op = (int)job->study.test_drop_op};
}

/* Everything before the timed section. */
static int prepare(struct run *r, int rank, int order, int64_t start)
{
    int rc = 0;
    point_policy(r->job, r->point, &r->model, &r->policy);
    rc = point_plan(r->job, r->point, rank, &r->plan);
    TRY(agree_quietly(rc, r->comm));
    r->fault = planted(r->job, &r->plan.layout);
    point_describe(r->job, r->point, &r->plan, &r->model, order, &r->rows->point);
    TRY(agree_calls(r));
    r->rows->point.setup_s = since(start);
    if (r->job->study.check && !r->job->backend.kernels->no_numerics)
        TRY(gate(r));
    TRY(open_point(r));
    TRY(prove(r));
    TRY(check_and_prove_work(r));
out:
    return rc;
}

int point_run(struct job *job, const struct point *point, int rank, int order, const void *comm,
              const void *together, struct record_point *rows, struct point_summary *summary)
{
    struct run run = {.job = job, .point = point, .comm = comm, .together = together, .rows = rows};
    int64_t start = units_now_ns();
    int rc = prepare(&run, rank, order, start);
    TRY(agree_quietly(rc, together)); /* no copy measures while another one has given up */
    TRY(measure(&run));
    TRY(check_input(&run));
    if (run.plan.layout.rank == 0) {
        summarise(&run, summary);
        verdict(&run);
        add_events(&run);
        rows->point.start_ns = start - job->t0_ns;
        rows->point.end_ns = units_now_ns() - job->t0_ns;
    }
out:
    release(&run);
    return rc;
}
