/*
 * report_inputs: one table of what the kinds of input cost at each point, and what the gaps bound.
 * Nothing for a study whose samples were all made where they were used.
 */
#ifndef ANALYSIS_REPORT_INPUTS_H
#define ANALYSIS_REPORT_INPUTS_H

#include <stdio.h>

#include "analysis/report.h"

void report_inputs_text(FILE *to, const struct report *report);

#endif
