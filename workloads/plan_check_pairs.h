/*
 * plan_check_pairs: do ranks hand each other the same things in the same order?
 *
 * Libraries match transfers by order alone (NCCL always, MPI between equal tags): of a communicator, the
 * n-th send from one rank to another meets the n-th receive from it there, whatever either of them
 * posts in between and however posts are grouped. All activations of a pipeline are of one size, so a
 * library does not notice when one is taken for another. Compared are bytes, phase, micro-batch, and
 * the layer before which the model is cut.
 *
 * Of every rank's plan a sum is kept that is 0 over a group whose members agree; only when it is not,
 * plans are made again to say where. Shared by plan_check*.c alone.
 */
#ifndef WORKLOADS_PLAN_CHECK_PAIRS_H
#define WORKLOADS_PLAN_CHECK_PAIRS_H

#include "workloads/plan_check.h"

/* Add the transfers of a plan to sums[n_ranks][AXIS_COUNT], at the first rank of each group. */
void pairs_add(uint64_t *sums, const struct plan *plan);

/* FAIL_WRONG with the first transfer that is taken for another, else 0 or what `make` returns. */
int pairs_check(const uint64_t *sums, int n_ranks, plan_check_make *make, void *arg);

#endif
