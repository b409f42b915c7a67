/*
 * point_watch: who looks on while a point runs, and what is said of it afterwards: telemetry of the
 * GPUs, the audit of the stamps.
 */
#ifndef DRIVER_POINT_WATCH_H
#define DRIVER_POINT_WATCH_H

#include "analysis/record.h"
#include "driver/job.h"
#include "driver/telemetry.h"

/* Telemetry of this rank's GPU: NULL for a device that is the host itself, a GPU that ranks share,
 * --telemetry off, or a machine without it, which rank 0 of the job says once on stderr. */
struct telemetry *point_watch_open(struct job *job, int rank);

/* Rank 0 of a point, when all rows are there: events for GPUs that were throttled or failed, and for
 * an audit; `print` says the audit as a comment on stdout. */
void point_watch_note(struct record_point *rows, int64_t at_ns);
void point_watch_print(const struct record_point *rows);

#endif
