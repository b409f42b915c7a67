/*
 * report_checkpoints: what saves and restores cost, a row per point and mode. Nothing for a study that
 * saved and resumed nothing.
 */
#ifndef ANALYSIS_REPORT_CHECKPOINTS_H
#define ANALYSIS_REPORT_CHECKPOINTS_H

#include <stdio.h>

#include "analysis/checkpoints.h"
#include "analysis/report.h"

void report_checkpoints_text(FILE *to, const struct report *report);

/* Of the first run of a row; for the columns ckpt_*: the first mode. */
struct checkpoints report_checkpoints(const struct scaling_row *row);

#endif
