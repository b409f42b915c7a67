#include "driver/point_run_part.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/ranges.h"
#include "base/units.h"
#include "collectives/comm_check.h"
#include "driver/agree.h"
#include "driver/audit.h"
#include "driver/check.h"
#include "driver/checkpoint_section.h"
#include "driver/dataset.h"
#include "driver/expert_load.h"
#include "driver/full_run.h"
#include "driver/measure.h"
#include "driver/pipeline_bubble.h"
#include "driver/point_memory.h"
#include "driver/point_plan.h"
#include "driver/point_row.h"
#include "driver/point_steps.h"
#include "driver/point_watch.h"
#include "driver/proof.h"
#include "driver/proof_traffic.h"
#include "driver/timed.h"
#include "driver/watchdog.h"
#include "workloads/input_feed.h"
#include "workloads/input_file.h"

/* ---- plan ---- */

/* Of the calls of a rank by axis: what all members of a group make, and what pairs of them do. */
struct calls {
    uint64_t of_all[AXIS_COUNT], of_pairs[AXIS_COUNT];
};

/* Compare a rank with the first of its groups; what pairs do is added there. */
static int compare_calls(const struct run *r, struct calls *calls, int rank)
{
    struct layout layout;
    int rc = layout_init(&layout, r->point->nodes, r->point->ranks_per_node, rank,
                         &r->plan.layout.degrees);
    for (int axis = 0; axis < AXIS_COUNT && rc == 0; axis++) {
        int first = layout.group[axis].first;
        if (layout.group[axis].size < 2 || first == rank)
            continue;
        if (calls[rank].of_all[axis] != calls[first].of_all[axis])
            rc = fail(FAIL_INTERNAL, "plan: rank %d would make other %s calls than rank %d", rank,
                      axis_name(axis), first);
        calls[first].of_pairs[axis] += calls[rank].of_pairs[axis];
        calls[rank].of_pairs[axis] = 0;
    }
    return rc;
}

/* Every member of every group must be about to make the same calls, and transfers that meet. */
static int agree_calls(const struct run *r)
{
    struct calls mine;
    void *all = NULL;
    int64_t total = 0, *counts = must_alloc((size_t)r->point->ranks, sizeof *counts);
    for (int axis = 0; axis < AXIS_COUNT; axis++) {
        mine.of_all[axis] = plan_digest(&r->plan, (enum axis)axis);
        mine.of_pairs[axis] = plan_digest_transfers(&r->plan, (enum axis)axis);
    }
    int rc = agree_gather(&mine, sizeof mine, &all, &total, counts, r->comm);
    if (rc == 0 && r->plan.layout.rank == 0) {
        struct calls *of = all;
        for (int rank = 0; rank < r->point->ranks && rc == 0; rank++)
            rc = compare_calls(r, of, rank);
        for (int rank = 0; rank < r->point->ranks && rc == 0; rank++)
            for (int axis = 0; axis < AXIS_COUNT && rc == 0; axis++)
                if (of[rank].of_pairs[axis] != 0)
                    rc = fail(FAIL_INTERNAL,
                              "plan: transfers on %s do not meet in the group of rank %d",
                              axis_name(axis), rank);
    }
    free(all);
    free(counts);
    return agree_quietly(rc, r->comm);
}

/* ---- phases ---- */

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

static double since(int64_t begin_ns)
{
    return (double)(units_now_ns() - begin_ns) / 1e9;
}

/* Files are each rank's own to read: one may find others than the rest. */
static int open_input(struct run *r, int most)
{
    const struct study *study = &r->job->study;
    int rc = 0;
    TRY(input_open_documents(&r->input, r->point->input, (uint64_t)study->seed, r->model.vocabulary,
                             r->model.sequence, study->padding, 16 * r->point->global_batch,
                             study->document_end));
    TRY(dataset_same(r->job, r->point, &r->input));
    r->input.pinned = study->pinned;
    TRY(input_feed_open(&r->input, &r->plan, (int)study->input_workers, (int)study->prefetch,
                        most));
out:
    return rc;
}

static int open_point(struct run *r)
{
    const struct study *study = &r->job->study;
    int64_t begin = units_now_ns();
    int rc = 0;
    int64_t most = full_run_wanted(study) ? full_run_most(study, &r->plan) : study->block + 1;
    TRY(agree_quietly(open_input(r, (int)most), r->comm));
    struct execute_config config = {.plan = &r->plan,
                                    .backend = &r->job->backend,
                                    .input = &r->input,
                                    .parent = r->comm,
                                    .max_steps = (int)most,
                                    .scratch = study->scratch != SCRATCH_RECREATE,
                                    .fault = r->fault,
                                    .graph = study->graph,
                                    .exportable = study->comm_tune};
    if (checkpoint_section_wanted(r->job, r->point)) {
        config.save_stamps = saver_stamps(&r->plan, r->job->backend.device);
        config.save_tasks = saver_tasks(&r->plan, r->job->backend.device);
    }
    watchdog_at("open", r->point->ranks, "ranks");
    TRY(execute_open(&r->execute, &config));
    if (study->comm_tune)
        TRY(tune_comms(&r->tune, &r->execute, &config, (uint64_t)study->seed,
                       study->comm_tune_seconds));
    else if (strcmp(study->comm_setup, "nothing") != 0 && r->execute.n_comms > 0)
        tune_asked(&r->tune, &r->job->backend.comm_setup);
out:
    r->rows->point.setup_s += since(begin);
    return agree_quietly(rc, r->comm);
}

static int prove(struct run *r)
{
    int64_t begin = units_now_ns(), wrong = 0;
    int rc = 0;
    ranges_push("prove collectives");
    for (int i = 0; i < execute_n_comms(&r->execute) && rc == 0; i++) {
        struct comm *comm = execute_comm(&r->execute, i);
        watchdog_at("prove collectives", i, axis_name((int)comm->axis));
        rc = comm_prove(comm, POINT_PROVE_ELEMENTS, &wrong);
        rc = keep_wrong(r, agree_quietly(rc, r->comm));
    }
    ranges_pop();
    r->rows->point.prove_s = since(begin);
    return rc;
}

static int gate(struct run *r)
{
    int64_t begin = units_now_ns();
    watchdog_at("gate", r->point->ranks, "ranks");
    ranges_push("gate");
    int rc = gate_point(&r->job->reference, &r->plan.layout, &r->policy, r->plan.micro_batches > 1,
                        &r->job->backend, r->comm, r->fault, r->rows);
    if (rc == 0 && checkpoint_section_wanted(r->job, r->point))
        rc = checkpoint_section_gate(r->job, r->point, &r->plan.layout, &r->policy,
                                     r->plan.micro_batches > 1, r->comm, r->rows);
    ranges_pop();
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
    ranges_push("full-model checks");
    watch_comms(r, true);
    if (r->job->study.check)
        TRY(check_full(&r->execute, &r->input, &r->model, seed, r->comm, &work, r->rows));
    else
        first_step(r, &work);
    TRY(proof_point(r->job, r->point, &r->plan, &work, r->comm, r->rows));
    TRY(proof_traffic(r->job, r->point, &r->plan, &work, r->comm, r->rows));
    TRY(expert_load(&r->execute, &r->model, &r->policy, seed, r->comm, r->rows));
out:
    watch_comms(r, false);
    ranges_pop();
    r->rows->point.gate_s += since(begin);
    return rc;
}

/* A run instead of timed blocks. What it publishes before its end has the verdict so far. */
static int run_steps(struct run *r)
{
    struct full_run_at at = {.job = r->job,
                             .point = r->point,
                             .measure = &r->measure,
                             .rows = r->rows,
                             .start_ns = r->start_ns,
                             .order = r->order};
    int rc = 0;
    if (r->plan.layout.rank == 0)
        point_run_verdict(r);
    timed_begin(&r->execute);
    TRY(full_run(&at));
    TRY(timed_end(&r->execute, r->comm, &r->rows->point));
    point_memory_rows(r->job, &r->plan, &r->execute, &r->measure.local);
out:
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
                          .t0_ns = r->job->t0_ns,
                          .telemetry = point_watch_open(r->job, r->plan.layout.rank)};
    struct checkpoint_section section = {r->job, r->point, m};
    if (full_run_wanted(&r->job->study)) {
        TRY(run_steps(r));
        return measure_gather(m, r->rows);
    }
    if (r->job->study.resume_from[0] != '\0') {
        TRY(checkpoint_resume(&section));
        m->again = checkpoint_resume_again;
        m->again_arg = &section;
    }
    TRY(point_capture(r->job, &r->execute, r->comm, &r->rows->point));
    timed_begin(&r->execute);
    TRY(keep_wrong(r, measure_run(m)));
    TRY(timed_end(&r->execute, r->comm, &r->rows->point));
    TRY(pipeline_bubble(&r->execute, &m->local, r->comm, r->rows));
    TRY(point_digest(r->job, &r->execute, r->comm, r->rows));
    point_memory_rows(r->job, &r->plan, &r->execute, &m->local);
    if (checkpoint_section_wanted(r->job, r->point))
        TRY(checkpoint_section(&section, r->rows));
    if (r->job->study.audit)
        TRY(audit_run(m));
    TRY(measure_gather(m, r->rows));
out:
    m->again = NULL; /* its argument ends here */
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

static void release(struct run *r)
{
    telemetry_close(r->measure.telemetry);
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
    struct run run = {.job = job,
                      .point = point,
                      .comm = comm,
                      .together = together,
                      .rows = rows,
                      .order = order};
    int64_t start = units_now_ns();
    run.start_ns = start;
    int rc = prepare(&run, rank, order, start);
    TRY(agree_quietly(rc, together)); /* no copy measures while another one has given up */
    TRY(measure(&run));
    TRY(check_input(&run));
    if (run.plan.layout.rank == 0) {
        point_run_summarise(&run, summary);
        point_run_verdict(&run);
        point_run_events(&run);
        rows->point.start_ns = start - job->t0_ns;
        rows->point.end_ns = units_now_ns() - job->t0_ns;
    }
out:
    release(&run);
    return rc;
}
