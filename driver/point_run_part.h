/*
 * point_run_part: what the files of point_run share. Nobody else includes it.
 */
#ifndef DRIVER_POINT_RUN_PART_H
#define DRIVER_POINT_RUN_PART_H

#include "driver/measure.h"
#include "driver/point_run.h"
#include "driver/tune.h"
#include "workloads/input.h"

/* One point while it runs, on one rank. */
struct run {
    struct job *job;
    const struct point *point;
    const void *comm, *together;
    struct model model; /* with the point's sequence */
    struct policy policy;
    struct plan plan;
    struct input input;
    struct execute execute;
    struct tune tune;
    struct measure measure;
    struct execute_fault fault;
    struct record_point *rows;
    int64_t start_ns;
    int order;       /* of the point in its launch */
    char wrong[512]; /* why the point is invalid, "" */
};

/* ---- point_run_end.c: what is said of a point when it is over; rank 0 ---- */
void point_run_verdict(struct run *run);
void point_run_summarise(struct run *run, struct point_summary *summary);
void point_run_events(struct run *run);

#endif
