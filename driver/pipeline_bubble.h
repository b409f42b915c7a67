/*
 * pipeline_bubble: what the pipeline of a point leaves idle, from the ops that its instrumented steps
 * timed (workloads/pipeline_replay.h).
 *
 * Each rank adds up its ops, means over the kept steps; rank 0 replays every pipeline of the point (as
 * many as tp, cp and dp make) and records the mean: bubble_ms, its ratio to the ideal, the closed form
 * of equal stages beside it, and a row for each stage; then the same replay with transfers as long as
 * those of the last timed step (transfer_ms), which is the step to expect (replay_moved_ms). A timed device
 * hands on what a slot made when it has woken up: later by its late_ms, which is added there.
 */
#ifndef DRIVER_PIPELINE_BUBBLE_H
#define DRIVER_PIPELINE_BUBBLE_H

#include "driver/execute.h"

/*
 * Collective over the point, before its rows are gathered: `local` has this rank's. Fills point columns
 * and the table of stages of `rows` on rank 0; nothing with pp = 1, or where no op was timed. On a timed
 * device critical_ms becomes the step of a replay of the cost model's ops.
 */
int pipeline_bubble(const struct execute *execute, const struct record_point *local,
                    const void *parent, struct record_point *rows);

#endif
