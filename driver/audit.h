/*
 * audit: steps under the profiler, after everything that is measured, beside their stamps.
 *
 * Blocks of full steps run without the stamps of ops, bare (the study's stamps), instrumented (every op
 * stamped) and under the profiler with every op stamped, mirrored, so that slow drift falls on all alike. Records
 * give each step's union of computation (what the compute stream ran but for input), of
 * communication, and their difference; both sides are rows of `audit` (analysis/audit.h judges).
 * A step's records are found by order: every step launches the same kernels, so the records of the
 * compute stream divide by the number of steps; where they do not, the rows say -1. Single calls are
 * compared too (audit_calls.h).
 */
#ifndef DRIVER_AUDIT_H
#define DRIVER_AUDIT_H

#include "driver/job.h"
#include "driver/measure.h"

/* FAIL_ABSENT by name when the device of --audit has no profiler. */
int audit_check(const struct job *job);

/* Collective over the point, behind the timed section. Rows are left in measure->local. */
int audit_run(struct measure *measure);

/* Begin of the first kernel of each step of a block, first[n_steps]; false: the records do not divide. */
bool audit_steps(const struct plan *plan, const struct device_record *records, int64_t n,
                 int n_steps, int64_t *first);

/*
 * Arithmetic alone: the records of a block of `n_steps` steps (by begin; streams as the plan's)
 * into the record_* columns of rows [n_steps - 1]; the last step has no next one and is left out.
 */
void audit_records(const struct plan *plan, const struct device_record *records, int64_t n,
                   int n_steps, struct audit_row *rows);

#endif
