#include "driver/proof_traffic.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "driver/agree.h"
#include "driver/point_plan.h"
#include "workloads/formulas.h"
#include "workloads/traffic.h"

enum level { INSIDE, ACROSS, LEVELS };

/* What each rank sends to rank 0. */
struct share {
    int64_t calls[AXIS_COUNT];
    double plan[AXIS_COUNT][LEVELS], executed[AXIS_COUNT][LEVELS];
};

static void fill_share(struct share *share, const struct plan *plan,
                       const struct proof_counts *step)
{
    const struct layout *layout = &plan->layout;
    struct traffic planned[AXIS_COUNT] = {0};
    traffic_of_plan(plan, planned);
    for (int axis = 0; axis < AXIS_COUNT; axis++) {
        struct traffic posted = traffic_of_bytes(step->wire_bytes[axis], planned[axis].calls,
                                                 &layout->group[axis], layout->ranks_per_node);
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

static void add_row(struct record_point *out, int axis, enum level level, double formula,
                    const struct share *all, int ranks)
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
    row->passed = same(row->formula, row->plan) && same(row->plan, row->executed);
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
        if (plan->totals.calls[axis] == 0)
            continue;
        double bytes =
            point->ranks * formula_bytes(&model, &layout->degrees, &policy, (enum axis)axis);
        double crossing = proof_crossing(group, layout->world, layout->ranks_per_node);
        add_row(out, axis, INSIDE, bytes * (1 - crossing), all, point->ranks);
        add_row(out, axis, ACROSS, bytes * crossing, all, point->ranks);
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
