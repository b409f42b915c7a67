#include "driver/proof_traffic.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "driver/agree.h"
#include "driver/point_plan.h"
#include "workloads/formulas.h"
#include "workloads/formulas_expert.h"
#include "workloads/traffic.h"

enum level { INSIDE, ACROSS, LEVELS };

/* What each rank sends to rank 0. */
struct share {
    int64_t calls[AXIS_COUNT];
    double plan[AXIS_COUNT][LEVELS], executed[AXIS_COUNT][LEVELS];
};

/* Do calls of the axis go round a ring? Else where their bytes go is known to the plan alone, and what
 * was posted and what the formula says is shared out as the plan has it. */
static bool is_ring(const struct plan *plan, int axis)
{
    for (int i = 0; i < plan->n_ops; i++) {
        const struct shape_coll *call = &plan->ops[i].shape.coll;
        enum coll_kind kind = call->coll.kind;
        if (plan->ops[i].kind == OP_COLLECTIVE && (int)call->axis == axis &&
            (kind == COLL_ALL_TO_ALL || kind == COLL_ALL_TO_ALL_V || kind == COLL_SEND ||
             kind == COLL_RECV))
            return false;
    }
    return true;
}

static struct traffic shared_out(double bytes, const struct traffic *planned)
{
    double all = planned->inside + planned->across, inside = all > 0 ? planned->inside / all : 0;
    return (struct traffic){planned->calls, bytes * inside, bytes - bytes * inside};
}

static void fill_share(struct share *share, const struct plan *plan,
                       const struct proof_counts *step)
{
    const struct layout *layout = &plan->layout;
    struct traffic planned[AXIS_COUNT] = {0};
    traffic_of_plan(plan, planned);
    for (int axis = 0; axis < AXIS_COUNT; axis++) {
        struct traffic posted = traffic_of_bytes(step->wire_bytes[axis], planned[axis].calls,
                                                 &layout->group[axis], layout->ranks_per_node);
        if (!is_ring(plan, axis))
            posted = shared_out(step->wire_bytes[axis], &planned[axis]);
        share->calls[axis] = planned[axis].calls;
        share->plan[axis][INSIDE] = planned[axis].inside;
        share->plan[axis][ACROSS] = planned[axis].across;
        share->executed[axis][INSIDE] = posted.inside;
        share->executed[axis][ACROSS] = posted.across;
    }
}

double proof_crossing(const struct group *group, int world, int ranks_per_node)
{
    int crossing = 0;
    for (int rank = 0; rank < world; rank++) {
        int me = rank / group->stride % group->size;
        int next = me + 1 < group->size ? rank + group->stride : rank - me * group->stride;
        crossing += rank / ranks_per_node != next / ranks_per_node;
    }
    return (double)crossing / world;
}

static bool same(double a, double b)
{
    return fabs(a - b) <= 1e-12 * fmax(fabs(a), fabs(b));
}

/* measured: the router decides, and the plan has what it chose last (dropless). */
static void add_row(struct record_point *out, int axis, enum level level, double formula,
                    const struct share *all, int ranks, bool measured)
{
    struct traffic_row *row = RECORD_ADD(&out->traffic, 1);
    snprintf(row->axis, sizeof row->axis, "%s", axis_name(axis));
    snprintf(row->level, sizeof row->level, "%s", level == INSIDE ? "inside" : "across");
    row->formula = formula;
    for (int r = 0; r < ranks; r++) {
        row->calls += all[r].calls[axis];
        row->plan += all[r].plan[axis][level];
        row->executed += all[r].executed[axis][level];
        row->most = fmax(row->most, all[r].plan[axis][level]);
    }
    row->passed = measured || (same(row->formula, row->plan) && same(row->plan, row->executed));
}

/* All-to-alls by pairs of ranks; what is left of the bytes, a sum, in a ring. */
static void expert_levels(const struct model *model, const struct layout *layout,
                          const struct policy *policy, double bytes, double *inside, double *across)
{
    double crossing =
        proof_crossing(&layout->group[AXIS_EP], layout->world, layout->ranks_per_node);
    formula_expert_exchange(model, &layout->degrees, policy, layout->ranks_per_node, inside,
                            across);
    double rest = bytes - (*inside + *across);
    *inside += rest * (1 - crossing);
    *across += rest * crossing;
}

static double planned_crossing(const struct share *all, int ranks, int axis)
{
    double inside = 0, across = 0;
    for (int r = 0; r < ranks; r++) {
        inside += all[r].plan[axis][INSIDE];
        across += all[r].plan[axis][ACROSS];
    }
    return across > 0 ? across / (inside + across) : 0;
}

static void judge(const struct job *job, const struct point *point, const struct plan *plan,
                  const struct share *all, struct record_point *out)
{
    struct model model;
    struct policy policy;
    point_policy(job, point, &model, &policy);
    for (int axis = 0; axis < AXIS_COUNT; axis++) {
        const struct layout *layout = &plan->layout;
        const struct group *group = &layout->group[axis];
        int64_t calls = 0; /* of all stages: the first may have none */
        for (int r = 0; r < point->ranks; r++)
            calls += all[r].calls[axis];
        if (calls == 0)
            continue;
        double bytes =
            point->ranks * formula_bytes(&model, &layout->degrees, &policy, (enum axis)axis);
        bool alike = layout->degrees.pp == 1 && is_ring(plan, axis); /* stages send other amounts */
        double crossing = alike ? proof_crossing(group, layout->world, layout->ranks_per_node)
                                : planned_crossing(all, point->ranks, axis);
        double inside = bytes * (1 - crossing), across = bytes * crossing;
        if (axis == AXIS_EP)
            expert_levels(&model, layout, &policy, bytes, &inside, &across);
        bool measured = axis == AXIS_EP && routing_is_dropless(&policy.routing);
        add_row(out, axis, INSIDE, inside, all, point->ranks, measured);
        add_row(out, axis, ACROSS, across, all, point->ranks, measured);
    }
}

int proof_traffic(const struct job *job, const struct point *point, const struct plan *plan,
                  const struct proof_counts *step, const void *parent, struct record_point *out)
{
    struct share mine = {{0}, {{0}}, {{0}}};
    int64_t *counts = must_alloc((size_t)point->ranks, sizeof *counts), total = 0;
    void *all = NULL;
    fill_share(&mine, plan, step);
    int rc = agree_gather(&mine, sizeof mine, &all, &total, counts, parent);
    if (rc == 0 && plan->layout.rank == 0)
        judge(job, point, plan, all, out);
    free(all);
    free(counts);
    return rc;
}

int proof_traffic_verdict(const struct record_point *out, char *why, size_t size)
{
    for (int64_t i = 0; i < out->traffic.n; i++) {
        const struct traffic_row *row = &out->traffic.rows[i];
        if (row->passed)
            continue;
        snprintf(why, size,
                 "traffic: bytes of %s %s nodes a step: formula %.17g, plan %.17g, executed %.17g: "
                 "they must be equal",
                 row->axis, row->level, row->formula, row->plan, row->executed);
        return FAIL_WRONG;
    }
    return 0;
}
