/*
 * run: the story of a study, point by point.
 *
 * Points run inside the one job, on node-aligned sub-communicators; ranks outside a point sleep
 * until its end. A point that fails its gate or its work proof keeps its data, is marked invalid,
 * says why, and the study goes on; its code is returned at the end.
 */
#ifndef DRIVER_RUN_H
#define DRIVER_RUN_H

#include "driver/job.h"

/* Build the plan of every point for this rank and throw it away: refuses before anything runs. */
int run_validate(const struct job *job);

/*
 * Collective over the job. `record` on rank 0, NULL elsewhere; `done` marks points that are already
 * in the file. Prints one row per finished point on rank 0's stdout. 0, or the worst of FAIL_WRONG,
 * FAIL_UNSAVED and FAIL_UNSETTLED (points were kept), or what ended the study early.
 */
struct record;
int run_study(struct job *job, struct record *record, const bool *done);

/* That worst code with one point more. */
struct record_point;
int run_verdict(int so_far, const struct record_point *rows, bool require_settled);

#endif
