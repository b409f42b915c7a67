/*
 * plan_check_reach: has an op ended for certain when another begins? Over two steps of a plan in a row, by
 * a search from op to op along streams and waits. Calls that are posted as one begin and end together, and
 * are not ordered among themselves. Shared by plan_check*.c alone.
 */
#ifndef WORKLOADS_PLAN_CHECK_REACH_H
#define WORKLOADS_PLAN_CHECK_REACH_H

#include "workloads/plan.h"

enum { REACH_STEPS = 2 };

struct reach {
    const struct plan *plan;
    int *before; /* [n_ops] the op before on the same stream, in the step before: - n_ops; NONE */
    int *seen;   /* [REACH_STEPS n_ops] search that came by */
    int *stack, search;
};

void reach_open(struct reach *reach, const struct plan *plan);
void reach_close(struct reach *reach);

/* Ops of step s count from s n_ops. */
bool reach_is(struct reach *reach, int earlier, int later);

#endif
