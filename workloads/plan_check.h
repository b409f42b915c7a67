/*
 * plan_check: do the plans of all ranks of a point fit together? Arithmetic in one process.
 *
 * Checked: the groups that ranks believe to be in partition the ranks and agree; every send meets
 * its receive, and by order alone the one that it was meant for (plan_check_pairs.h); the members of a group make the same calls (kind, dtype, count, root) in the same
 * order; and no ring of waiting ranks exists even where a device runs all its communication one
 * call at a time, in the order in which the plan gives it out. That is the strictest order any
 * device keeps, so one that lets groups run beside each other cannot hang either. Inside a rank
 * nothing can hang: waits point backwards in the plan, hence to calls that were given out before.
 *
 * Plans are made one after another and dropped: of each the sequence of its calls is hashed, and kept once
 * for every class of ranks with equal calls. So 4,096 ranks need one plan's memory and a sequence
 * or a few.
 */
#ifndef WORKLOADS_PLAN_CHECK_H
#define WORKLOADS_PLAN_CHECK_H

#include "workloads/pack.h"
#include "workloads/plan.h"
#include "workloads/traffic.h"

/* Makes the plan of a rank; what it returns ends the check. */
typedef int plan_check_make(void *arg, int rank, struct plan *out);

struct plan_check {
    int n_ranks, n_classes;
    int64_t ops, calls; /* of all ranks */
    int64_t longest;    /* calls of the rank that makes the most */
    /* arenas: rank with the most and the fewest bytes, and what the former holds in each */
    int most_rank, least_rank;
    int64_t most_bytes, least_bytes;
    int64_t bytes[PLAN_BUFFERS];
    struct pack_found pack;             /* of the former, where its plan is packed here */
    struct traffic traffic[AXIS_COUNT]; /* sums over all ranks, a step */
    double model_flops, hardware_flops; /* sums over all ranks, a step */
};

/*
 * FAIL_WRONG with a sentence that names ranks and calls when the plans do not fit together; else
 * what `make` returned. *out is zeroed on failure.
 */
int plan_check_all(struct plan_check *out, int n_ranks, plan_check_make *make, void *arg);

/* All arenas of a plan, bytes. */
int64_t plan_check_bytes(const struct plan *plan);

#endif
