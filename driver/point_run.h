/*
 * point_run: everything that happens at one point, on its members.
 *
 *   plan, seal, agree that every group makes the same calls      setup
 *   gate model against the single-rank reference                  gate
 *   allocate, communicators, prove every collective               setup, prove
 *   full model: first step, changes, repeated batch; work proof   gate
 *   state from the generator; warm up; measure                    init, warm-up, timed
 *   gather rows to rank 0
 */
#ifndef DRIVER_POINT_RUN_H
#define DRIVER_POINT_RUN_H

#include "analysis/record.h"
#include "driver/job.h"

struct point_summary { /* rank 0, for the row on stdout */
    double tokens_per_s, half_width_pct, step_ms, stall_ms;
};

/*
 * Collective over the ranks of all copies of the point: `together` is the address of their MPI_Comm,
 * `comm` of that of this copy, `rank` is this one's in it. On rank 0 of a copy `rows` receives the
 * whole point. Returns the same code on every rank; a wrong result is no error here (rows say it).
 */
int point_run(struct job *job, const struct point *point, int rank, int order, const void *comm,
              const void *together, struct record_point *rows, struct point_summary *summary);

#endif
