/*
 * report_laws: a short section about laws in the report of a study, for every regime of a curve
 * with at least four valid points. `scalereport fit` says more.
 */
#ifndef ANALYSIS_REPORT_LAWS_H
#define ANALYSIS_REPORT_LAWS_H

#include "analysis/report.h"

enum { REPORT_LAWS_POINTS = 4 };

void report_laws(FILE *to, const struct report *report);

#endif
