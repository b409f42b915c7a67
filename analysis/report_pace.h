/*
 * report_pace: what the intervals of a study are made of and what one more launch would give; and
 * notes about launches that drift and about ranks that are late.
 */
#ifndef ANALYSIS_REPORT_PACE_H
#define ANALYSIS_REPORT_PACE_H

#include "analysis/report.h"

/* A table, one row per point. */
void report_pace(FILE *to, const struct report *report);

/* Whether the efficiency of a row differs from its base's by more than A/A of both: "lost",
 * "gained", "undecided", "base", "" when nothing is known. */
const char *report_pace_loss(const struct report *report, const struct scaling_row *row);
const char *report_pace_level(const struct scaling_row *row); /* "steps", "launches", "" */

/* What must be said about the pace of one launch of a point; false: nothing. */
bool report_pace_shift(char *text, size_t size, const struct account *account);
bool report_pace_straggler(char *text, size_t size, const struct scaling_run *run);

#endif
