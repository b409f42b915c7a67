/*
 * report_goodput: the share of wall time that a point's runs (--run-steps) made useful, for the curve.
 * `scalereport goodput` says all of it.
 */
#ifndef ANALYSIS_REPORT_GOODPUT_H
#define ANALYSIS_REPORT_GOODPUT_H

#include "analysis/report.h"

/* As --goodput states it, else measured: the mean over files with a run of this point. %; NaN: neither. */
double report_goodput_pct(const struct report *report, const struct scaling_row *row);

#endif
