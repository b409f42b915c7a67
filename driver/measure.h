/*
 * measure: the timed section of a point, as an alternation of blocks.
 *
 * A cycle is F C M I and then its mirror image I M C F: full steps at the study's stamp level,
 * compute-only with every op stamped, comm-only, full with every op stamped; with --graph F G C M I
 * and I M C G F, where G are full steps launched as graphs. Slow drift of the machine then falls on
 * all of them alike. Each block starts with a lead-in step whose end starts the block's clock, so that capacity is time between ends of steps, as the last rank sees them.
 * Between blocks, outside any fence, rank 0 looks at the ends and decides whether to go on:
 *
 *   stop when min-steps (warm-up apart) are done and the 95 % interval of the mean step of F is
 *   within +- settle, or max-steps are done, or max-seconds have passed since the timed section
 *   began (never before min-steps).
 *
 * Warm-up is `warm_up` full steps at least; leading F steps that a change-point test finds to
 * differ are flagged as warm-up too. Nothing is dropped.
 */
#ifndef DRIVER_MEASURE_H
#define DRIVER_MEASURE_H

#include "driver/clock.h"
#include "driver/execute.h"
#include "driver/study.h"
#include "driver/telemetry.h"

struct measure {
    const struct study *study;
    struct execute *execute;
    const struct layout *layout;
    const void *parent;   /* address of the point's MPI_Comm */
    const void *together; /* of all copies of the point: they run the same blocks at once, as the
                             first one's rank 0 decides; with one copy the same as parent */
    uint64_t seed;
    int64_t t0_ns;               /* the launch's t0 on the clock of the job's rank 0 */
    struct telemetry *telemetry; /* of this rank's GPU; NULL: none. Borrowed */
    /* Collective: the state as the steps began, where a variant without scratch memory ruined it.
     * NULL: that of the generator. */
    int (*again)(void *arg);
    void *again_arg;
    struct clock_fit clock;    /* second measurement made at the end */
    struct record_point local; /* this rank's rows, local time */
    int next_step[VARIANTS], next_block;
    double *series;   /* rank 0: ns between ends of F steps, max over ranks */
    int *series_step; /* rank 0: step index of each */
    int64_t n_series, capacity;
    int64_t full_steps; /* F steps done, lead-ins apart */
    bool settled;
    double warm_up_s, timed_s;
    double initial_loss, final_loss;
};

/* Collective over the point. `execute` is open and reset. Rows are left in measure->local. */
int measure_run(struct measure *measure);

/*
 * Their parts, for steps that no alternation runs (driver/full_run.h): rows of a block of steps as
 * measure->next_block, `first_flags` for its first step; and on rank 0 n ends of steps, latest rank's,
 * behind `before`. And whether the series has settled.
 */
void measure_keep(struct measure *measure, struct execute_samples *samples, enum variant variant,
                  int flags, int first_flags);
void measure_series(struct measure *measure, const int64_t *ends, int n, int64_t before,
                    int first_step);
void measure_judge(struct measure *measure);

/* Collective: convert times, gather all rows to rank 0 of the point, flag warm-up there. */
int measure_gather(struct measure *measure, struct record_point *out);

void measure_release(struct measure *measure);

#endif
