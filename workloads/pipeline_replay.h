/*
 * pipeline_replay: what a pipeline leaves idle, from how long each op takes.
 *
 * The compute stream of a rank is a chain: what comes before the first slot of its schedule, the slots,
 * what comes behind them until the norm of the gradient is known, and the update. With free
 * communication a slot waits for the slots before it and for the one whose output it reads; the norm
 * waits for all stages. What is idle in that replay is the bubble: it is the schedule's, and that of
 * stages that do not take equally long, and no exposed communication.
 *
 * With transfers that take time the same replay says what step to expect. How long one takes once both
 * ends are there is the shorter of the two ends' times: the stage that comes last waits for nobody.
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

/* Transfers of one rank, seconds: by direction, sent and received, in its order; < 0: there is none, or
 * it was one post with another and has no time of its own. */
enum { PIPELINE_SENT, PIPELINE_RECEIVED, PIPELINE_ENDS };
static inline int pipeline_moves(const struct schedule *schedule)
{
    return 2 * PIPELINE_ENDS * schedule->micro_batches * schedule->chunks;
}

/* Fill moves[pipeline_moves()] from op_s[n_ops]. */
void pipeline_list_moves(const struct plan *plan, const double *op_s, double *moves);

/* Does a stage compute nothing while what it sent is on its way (--overlap without pp)? */
bool pipeline_blocks(const struct plan *plan);

/* A transfer as above, of moves[stages][pipeline_moves()]: the median; 0: none is known. */
double pipeline_transfer(const struct schedule *schedule, const double *moves);

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

/* times[stages][pipeline_times()]; stage[stages] may be NULL. The bubble is meant where transfers take
 * no time. */
void pipeline_replay(const struct schedule *schedule, const double *times,
                     struct schedule_transfer transfer, struct pipeline_stage *stage,
                     struct pipeline_bubble *out);

#endif
