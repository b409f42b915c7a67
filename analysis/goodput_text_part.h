/*
 * goodput_text_part: what the files of goodput's text share. Nobody else includes it.
 */
#ifndef ANALYSIS_GOODPUT_TEXT_PART_H
#define ANALYSIS_GOODPUT_TEXT_PART_H

#include "analysis/goodput_report.h"
#include "analysis/report_table.h"

/* Value, low and high of an interval times `scale`. */
void goodput_cells(struct table *t, const struct stats_interval *x, double scale, int digits);

/* Costs, intervals to choose, and goodput of each, of a plan that has a row. */
void goodput_text_plan(FILE *to, const struct goodput_plan *plan);

#endif
