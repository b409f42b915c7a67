/*
 * plan_check_share: does a plan in which values share bytes do what it did when none of them shared?
 *
 * Proved of the two plans alone, knowing nothing of how bytes were given out. `packed` has the ops of
 * `plan` with other offsets. Then
 *   - in the order of the plan, over two steps, every byte that an op reads was left there by the same
 *     write in both;
 *   - of any two ops of `packed` that touch the same bytes, one of them writing, in a step or in two that
 *     follow each other, one is reached from the other by streams and waits alone: so every order that a
 *     device may keep gives what the order of the plan gives. No two values that share bytes ever live
 *     together, in any of them;
 *   - integers and doubles share their bytes with nothing else;
 *   - without communication, where values are stale, what a compute op reads was left by the same write
 *     in both, or by none in `packed`: nobody puts a value of another kind there. Let off: fp32 sums of
 *     gradients and gathered weights, for which lifetime.h says what else may lie there.
 * Reaching is a search from op to op, as naive as it can be.
 */
#ifndef WORKLOADS_PLAN_CHECK_SHARE_H
#define WORKLOADS_PLAN_CHECK_SHARE_H

#include "workloads/plan.h"

/* FAIL_WRONG with a sentence that names the two ops that meet. */
int plan_check_share(const struct plan *plan, const struct plan *packed);

#endif
