/*
 * report_text: the tables behind the curve, one row per point and launch. Private to report_text*.c.
 */
#ifndef ANALYSIS_REPORT_TEXT_H
#define ANALYSIS_REPORT_TEXT_H

#include "analysis/report.h"

void report_text_details(FILE *to, const struct report *report);
void report_text_pop(FILE *to,
                     const struct scaling *scaling); /* why efficiency fell, a row a point */

/* Bytes by axis and level; nothing where no file has them. */
void report_text_traffic(FILE *to, const struct scaling *scaling, bool launches);
void report_text_pipeline(FILE *to, const struct scaling *scaling, bool launches);
void report_text_experts(FILE *to, const struct scaling *scaling, bool launches);

#endif
