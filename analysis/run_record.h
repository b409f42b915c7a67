/*
 * run_record: what a point was, as one flat JSON object: the batch and window contract.
 *
 * Two figures may be compared when their contracts agree; so the contract goes where the figures
 * go, without the study file and without a host name: world size, what a rank and a step hold,
 * what was accumulated, precision, recompute, how it was launched and split, on what class of
 * hardware, over which window of steps, and how it ended. Keys are the names of the CSV where that
 * has one (analysis/README.md); what is unknown is null.
 */
#ifndef ANALYSIS_RUN_RECORD_H
#define ANALYSIS_RUN_RECORD_H

#include <stdio.h>

#include "analysis/scaling.h"

/* One line for each point and launch of a file. FAIL_FILE when writing fails. */
int run_record_print(FILE *to, const struct record_file *file);

/*
 * How a point ended: "none", "wrong-result" (gate or collectives), "work-mismatch" (fixed-work proof),
 * "unsettled" (the interval stayed wider than asked); a point that was not finished has no row.
 */
const char *run_record_failure_class(const struct point_row *point);

/* "4 nodes x 8 ranks on AMD EPYC, 64 cores, 755 GiB", for a timed device "4 nodes x 8 ranks, timed as
 * h100-8x400g on ...": without names. */
void run_record_hardware(const struct record_head *head, const struct point_row *point, char *text,
                         size_t size);

/* The rule of the window, as asked for: "at least 10 warm-up steps, then blocks of 5 until ...". */
void run_record_rule(const struct record_head *head, char *text, size_t size);

#endif
