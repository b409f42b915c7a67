/*
 * timed: what the driver does for --device timed, where kernels take the time that a cost model gives
 * them on another machine. All of it is outside the fence; on other devices nothing happens.
 */
#ifndef DRIVER_TIMED_H
#define DRIVER_TIMED_H

#include "driver/job.h"

/* What is said of every such point, behind the name of its topology. */
extern const char timed_words[];

/*
 * Load --topology. FAIL_USAGE when the timed device has none, or a point of the study does not fit on
 * its nodes; what topology_load() fails with. On other devices a topology is recorded and changes
 * nothing.
 */
int timed_prepare(struct job *job);

/* FAIL_USAGE when a plan needs a peak that the topology does not give. */
int timed_check(const struct job *job, const struct plan *plan);

/* The peak that MFU is taken over: the topology's, of the type of the study. */
void timed_ceiling(struct job *job);

/* How late deadlines were kept counts from here ... */
void timed_begin(struct execute *execute);

/* ... to here. Collective over the point: late_ms, late_most_ms and critical_ms of the worst rank. */
int timed_end(struct execute *execute, const void *parent, struct point_row *row);

/* The label of a point among its events. */
void timed_note(struct record_point *rows, int64_t at_ns, const struct job *job);

#endif
