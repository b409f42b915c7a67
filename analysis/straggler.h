/*
 * straggler: who holds the others up, by what they compute and never by how long they wait.
 *
 * In a step that ends together every rank's step is long when one is late: the late one computes,
 * the others wait. So a step is called late when its slowest compute time is far above the median
 * rank's (STRAGGLER_MADS scaled median absolute deviations of that step, and STRAGGLER_SHARE of
 * it), and the pattern over steps says what to look for:
 *
 *   one rank     the same rank in most late steps: a device, a host, a place
 *   rotating     many late steps and no rank of their own: noise of the system, uneven work
 *   few steps    late steps are rare: an event (a checkpoint, a page fault, a retry)
 */
#ifndef ANALYSIS_STRAGGLER_H
#define ANALYSIS_STRAGGLER_H

#include <stdint.h>

#define STRAGGLER_MADS 5.0
#define STRAGGLER_SHARE 0.02

enum straggler_kind {
    STRAGGLER_UNKNOWN, /* fewer than 3 ranks or no step */
    STRAGGLER_NONE,
    STRAGGLER_ONE_RANK,
    STRAGGLER_ROTATING,
    STRAGGLER_FEW_STEPS
};

struct straggler {
    enum straggler_kind kind;
    int rank;                     /* most often the late one, -1 */
    int64_t steps, late, of_rank; /* looked at; late; of those by `rank` */
    double excess; /* its compute over the median rank's in its late steps, mean share */
    double cost;   /* mean over all steps of (slowest - median) / median: what lateness costs */
    double wait_ns,
        others_wait_ns; /* mean in late steps: of the late rank, of the median rank; NaN */
};

/* compute_ns, wait_ns (or NULL): [steps][ranks]. */
void straggler_find(const double *compute_ns, const double *wait_ns, int64_t steps, int ranks,
                    struct straggler *out);

const char *straggler_name(enum straggler_kind kind); /* "one rank" */

#endif
