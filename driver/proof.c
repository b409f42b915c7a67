#include "driver/proof.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "driver/agree.h"
#include "driver/point_plan.h"
#include "workloads/formulas.h"
#include "workloads/formulas_expert.h"

void proof_read(const struct execute *execute, struct proof_counts *out)
{
    const struct kernel_work *work = execute_work(execute);
    out->tokens = (double)work->tokens;
    out->model_flops = work->model_flops;
    out->hardware_flops = work->hardware_flops;
    out->ops = (double)execute->ops_given_out;
    out->counts = (double)execute->context.counts;
    for (int axis = 0; axis < AXIS_COUNT; axis++)
        out->wire_bytes[axis] = execute_wire_bytes(execute, (enum axis)axis);
}

void proof_subtract(struct proof_counts *later, const struct proof_counts *earlier)
{
    later->tokens -= earlier->tokens;
    later->model_flops -= earlier->model_flops;
    later->hardware_flops -= earlier->hardware_flops;
    later->ops -= earlier->ops;
    later->counts -= earlier->counts;
    for (int axis = 0; axis < AXIS_COUNT; axis++)
        later->wire_bytes[axis] -= earlier->wire_bytes[axis];
}

/* Sums of whole numbers beyond 2^53 round; nothing that matters is smaller than this share. */
static bool same(double a, double b)
{
    return fabs(a - b) <= 1e-12 * fmax(fabs(a), fabs(b));
}

static void add_row(struct record_point *out, const char *quantity, const char *unit,
                    double formula, double plan, double executed, bool as_base)
{
    struct work_row *row = RECORD_ADD(&out->work, 1);
    snprintf(row->quantity, sizeof row->quantity, "%s", quantity);
    snprintf(row->unit, sizeof row->unit, "%s", unit);
    row->formula = formula;
    row->plan = plan;
    row->executed = executed;
    row->passed = as_base && same(formula, plan) && same(plan, executed);
}

/* The first point of this launch with the same sequence; this one when there was none. */
static const struct job_first *first_of(struct job *job, const struct point *point, double tokens,
                                        double flops)
{
    for (int i = 0; i < job->n_first; i++)
        if (job->first[i].sequence == point->sequence)
            return &job->first[i];
    job->first = must_grow(job->first, (size_t)job->n_first + 1, sizeof *job->first);
    job->first[job->n_first] = (struct job_first){point->sequence, point->ranks, tokens, flops};
    return &job->first[job->n_first++];
}

struct both { /* what each rank sends */
    struct proof_counts plan, step;
};

static void sum_ranks(const struct both *all, int n, struct both *sum)
{
    memset(sum, 0, sizeof *sum);
    for (int r = 0; r < n; r++) {
        sum->plan.tokens += all[r].plan.tokens;
        sum->plan.model_flops += all[r].plan.model_flops;
        sum->plan.hardware_flops += all[r].plan.hardware_flops;
        sum->plan.ops += all[r].plan.ops;
        sum->step.ops += all[r].step.ops;
        sum->plan.counts += all[r].plan.counts;
        sum->step.counts += all[r].step.counts;
        sum->step.tokens += all[r].step.tokens;
        sum->step.model_flops += all[r].step.model_flops;
        sum->step.hardware_flops += all[r].step.hardware_flops;
        for (int axis = 0; axis < AXIS_COUNT; axis++) {
            sum->plan.wire_bytes[axis] += all[r].plan.wire_bytes[axis];
            sum->step.wire_bytes[axis] += all[r].step.wire_bytes[axis];
        }
    }
}

/* One row for each axis of this layout that has several members. */
static void judge_bytes(const struct point *point, const struct model *model,
                        const struct policy *policy, const struct plan *plan,
                        const struct both *sum, struct record_point *out)
{
    static const enum axis axes[] = {AXIS_DP,   AXIS_TP, AXIS_SHARD, AXIS_REPLICATE, AXIS_CP,
                                     AXIS_DPCP, AXIS_EP, AXIS_EDP,   AXIS_PP,        AXIS_EMBED};
    for (size_t i = 0; i < sizeof axes / sizeof axes[0]; i++) {
        enum axis axis = axes[i];
        char quantity[32];
        bool unused =
            (axis == AXIS_DPCP && plan->layout.group[AXIS_CP].size < 2) ||
            (axis == AXIS_EDP && plan->totals.calls[axis] == 0) || /* nothing is divided */
            (axis == AXIS_EMBED && !model->tied);
        if (axis != AXIS_DP && (unused || plan->layout.group[axis].size < 2))
            continue;
        double formula = point->ranks * formula_bytes(model, &plan->layout.degrees, policy, axis);
        double planned = sum->plan.wire_bytes[axis], executed = sum->step.wire_bytes[axis];
        bool measured = axis == AXIS_EP && routing_is_dropless(&policy->routing);
        snprintf(quantity, sizeof quantity, "wire bytes %s%s", axis_name((int)axis),
                 measured ? ", measured" : "");
        add_row(out, quantity, "B", formula, planned, executed, true);
        if (measured) /* two say what even routing would send */
            out->work.rows[out->work.n - 1].passed = same(formula, planned);
    }
}

static void judge(struct job *job, const struct point *point, const struct plan *plan,
                  const struct both *sum, struct record_point *out)
{
    struct model model;
    struct policy policy;
    point_policy(job, point, &model, &policy);
    double tokens = (double)point->global_batch * (double)point->sequence;
    double flops = (double)point->global_batch * model_flops_per_sequence(&model);
    double ops = formula_ops(&model, &plan->layout.degrees, &policy);
    const struct job_first *first = first_of(job, point, tokens, flops);
    bool weak = job->study.scaling == SCALING_WEAK;
    double share = weak ? (double)point->ranks / (double)first->ranks : 1.0;
    add_row(out, "tokens", "tokens", tokens, sum->plan.tokens, sum->step.tokens,
            same(first->tokens * share, sum->step.tokens));
    add_row(out, "model FLOPs", "FLOP", flops, sum->plan.model_flops, sum->step.model_flops,
            same(first->flops * share, sum->step.model_flops));
    if (policy.recompute != RECOMPUTE_NONE)
        add_row(out, "hardware FLOPs", "FLOP",
                (double)point->global_batch * formula_hardware_flops(&model, &policy),
                sum->plan.hardware_flops, sum->step.hardware_flops, true);
    judge_bytes(point, &model, &policy, plan, sum, out);
    if (model.experts > 0 && routing_is_dropless(&policy.routing))
        add_row(out, "host waits for counts", "",
                formula_expert_counts(&model, &plan->layout.degrees, &policy), sum->plan.counts,
                sum->step.counts, true);
    /* Where state is sharded there is no closed form: then two counts are compared. */
    add_row(out, "operations", "", ops < 0 ? sum->plan.ops : ops, sum->plan.ops, sum->step.ops,
            true);
}

int proof_point(struct job *job, const struct point *point, const struct plan *plan,
                const struct proof_counts *step, const void *parent, struct record_point *out)
{
    struct both mine = {.step = *step}, sum;
    struct plan_totals totals;
    plan_count(plan, &totals);
    mine.plan.tokens = (double)totals.tokens;
    mine.plan.model_flops = totals.model_flops;
    mine.plan.hardware_flops = totals.hardware_flops;
    mine.plan.ops = plan->n_ops;
    for (int i = 0; i < plan->n_ops; i++)
        mine.plan.counts += plan->ops[i].kind == OP_COUNTS;
    memcpy(mine.plan.wire_bytes, totals.wire_bytes, sizeof totals.wire_bytes);
    int64_t *counts = must_alloc((size_t)point->ranks, sizeof *counts), total = 0;
    void *all = NULL;
    int rc = agree_gather(&mine, sizeof mine, &all, &total, counts, parent);
    if (rc == 0 && plan->layout.rank == 0) {
        sum_ranks(all, point->ranks, &sum);
        judge(job, point, plan, &sum, out);
    }
    free(all);
    free(counts);
    return rc;
}

int proof_verdict(const struct record_point *out, char *why, size_t size)
{
    for (int64_t i = 0; i < out->work.n; i++) {
        const struct work_row *row = &out->work.rows[i];
        if (row->passed)
            continue;
        snprintf(why, size,
                 "work: %s a step: formula %.17g, plan %.17g, executed %.17g: they must be equal, "
                 "and agree with the other points of this sequence",
                 row->quantity, row->formula, row->plan, row->executed);
        return FAIL_WRONG;
    }
    return 0;
}
