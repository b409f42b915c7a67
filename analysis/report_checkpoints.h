/*
 * report_checkpoints: what saves and restores cost, a row per point, launch and mode. Nothing for a study that
 * saved and resumed nothing.
 */
#ifndef ANALYSIS_REPORT_CHECKPOINTS_H
#define ANALYSIS_REPORT_CHECKPOINTS_H

#include <stdio.h>

#include "analysis/checkpoints.h"
#include "analysis/report.h"

void report_checkpoints_text(FILE *to, const struct report *report);

/* Of one launch; the columns ckpt_* are means over launches of the first mode. */
struct checkpoints report_checkpoints(const struct scaling_run *run);

#endif
