/*
 * crew_check.h: what plan_check needs of a crew of lockstep_gate.h, and whether three counts of what
 * the crew communicated agree: closed form, plans, and what was posted.
 */
#ifndef TESTS_CREW_CHECK_H
#define TESTS_CREW_CHECK_H

#include "tests/lockstep_gate.h"
#include "workloads/formulas.h"
#include "workloads/plan_check.h"

/* Makes of the plans of a crew what plan_check reads; it frees them, so they are copied. */
static inline int crew_lend(void *arg, int rank, struct plan *out)
{
    const struct crew *crew = arg;
    *out = crew->plans[rank];
    out->ops = must_alloc((size_t)out->n_ops, sizeof *out->ops);
    memcpy(out->ops, crew->plans[rank].ops, (size_t)out->n_ops * sizeof *out->ops);
    out->tensors = NULL;
    out->pieces = NULL;
    out->kept = NULL;
    out->n_kept = 0;
    return 0;
}

/* Bytes of all ranks on every axis, posted in so many steps. */
static inline bool crew_volumes_agree(const struct crew *crew, const struct plan_check *check,
                                      const struct model *model, const struct policy *policy,
                                      int steps)
{
    bool agree = true;
    for (int axis = 0; axis < AXIS_COUNT; axis++) {
        double formula =
            crew->n * formula_bytes(model, &crew->plans[0].layout.degrees, policy, (enum axis)axis);
        double plan = check->traffic[axis].inside + check->traffic[axis].across;
        double posted = crew->lockstep.posted_bytes[axis] / steps;
        bool measured = axis == AXIS_EP && routing_is_dropless(&policy->routing);
        bool same = fabs(formula - plan) <= 1e-12 * plan &&
                    (measured || fabs(posted - plan) <= 1e-12 * plan);
        if (!same)
            printf("%s: formula %.17g, plan %.17g, posted %.17g bytes\n", axis_name(axis), formula,
                   plan, posted);
        agree = agree && same;
    }
    return agree;
}

#endif
