/*
 * report_text: the tables behind the curve, one row per point and launch. Private to report_text*.c.
 */
#ifndef ANALYSIS_REPORT_TEXT_H
#define ANALYSIS_REPORT_TEXT_H

#include "analysis/report.h"

void report_text_details(FILE *to, const struct report *report);

#endif
