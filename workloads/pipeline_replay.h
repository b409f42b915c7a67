/*
 * pipeline_replay: what a pipeline leaves idle, from how long each op takes.
 *
 * The compute stream of a rank is a chain: what comes before the first slot of its schedule, the slots,
 * what comes behind them until the norm of the gradient is known, and the update. With free
 * communication a slot waits for the slots before it and for the one whose output it reads; the norm
 * waits for all stages. What is idle in that replay is the bubble: it is the schedule's, and that of
 * stages that do not take equally long, and no exposed communication.
 */
#ifndef WORKLOADS_PIPELINE_REPLAY_H
#define WORKLOADS_PIPELINE_REPLAY_H

#include "workloads/plan.h"

/* Of one rank, seconds: before, slots in the order of its list, up to the norm, the update. */
enum { PIPELINE_BEFORE, PIPELINE_NORM, PIPELINE_UPDATE, PIPELINE_SLOTS };
static inline int pipeline_times(const struct schedule *schedule)
{
    return PIPELINE_SLOTS + schedule_slots(schedule);
}

/* Fill times[pipeline_times()] from op_s[n_ops]; entries of calls, and of copies of batches that have a
 * stream of their own, are not read. */
void pipeline_add_up(const struct plan *plan, const double *op_s, double *times);

struct pipeline_stage {
    double compute_s, bubble_s; /* together the step */
};
struct pipeline_bubble {
    double step_s;
    double bubble_s;  /* mean over stages */
    double compute_s; /* mean over stages: the ideal step, all equal and none idle */
};

/* times[stages][pipeline_times()]; stage[stages] may be NULL. */
void pipeline_replay(const struct schedule *schedule, const double *times,
                     struct pipeline_stage *stage, struct pipeline_bubble *out);

#endif
