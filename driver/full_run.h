/*
 * full_run: N more steps of training at a point, with their checkpoints, every nanosecond accounted for.
 *
 *   nothing is timed by variants: steps go on from the state that is there (the generator's, that of
 *   --resume-from, or the newest checkpoint that can be read of the run that --resume goes on with: newer ones
 *   are named, renamed damaged-N and kept; where a run has published and there is none, FAIL_FILE)
 *   blocks of steps, each a second or a step: a save is called before the first step of a block,
 *   with --checkpoint-every K when K steps (seconds) have gone since the last call, else as soon as the
 *   last save is over; a call whose predecessor is still on its way waits for it
 *   behind each block: two sums over ranks (who was late, what they waited for, whether their sums gave all the
 *   same losses and gradient norms to the bit: the first that had others is a warning; replicas whose parameters come
 *   apart are not seen so), one row of intervals
 *   every PIECE_NS the rows come together and are published, and then are no longer in memory
 *   a launch that is over before its first save by time was due says so in an event "note"
 *   a signal (driver/preempt.h): one save more, what there is published, exit code 11
 *   the end: the last save is waited for; with a folder of checkpoints the state is saved once more, due or
 *   not, unless the last call was at this step. Where that is lost the study is whole and the job leaves with
 *   FAIL_UNSAVED
 *
 * Within the run of a point the account is analysis/wall.h; between them nothing is recorded.
 */
#ifndef DRIVER_FULL_RUN_H
#define DRIVER_FULL_RUN_H

#include "analysis/record.h"
#include "driver/job.h"
#include "driver/measure.h"

struct full_run_at {
    struct job *job;
    const struct point *point;
    struct measure *measure;   /* its executor is open and reset */
    struct record_point *rows; /* rank 0: the point so far; its row says what it was */
    int64_t start_ns;          /* the point began */
    int order;                 /* of the point in its launch */
};

/* The kind of the event that says that the run of a point is whole and its end in no checkpoint. */
#define FULL_RUN_UNSAVED "unsaved"

bool full_run_wanted(const struct study *study);

/* On rank 0, of a finished point's rows: is there one? */
bool full_run_is_unsaved(const struct record_point *rows);

/* The options alone: FAIL_USAGE. */
int full_run_options(const struct study *study);

/* And with the points. */
int full_run_check(const struct job *job);

/* Steps of a block, at most: what the executor opens for. */
int full_run_most(const struct study *study, const struct plan *plan);

/*
 * Collective over the point. Rows that are not published yet are left in measure->local and, on rank 0,
 * in `rows`: intervals, account, recoveries. FAIL_STOPPED on all ranks after a signal: everything is
 * published.
 */
int full_run(const struct full_run_at *at);

#endif
