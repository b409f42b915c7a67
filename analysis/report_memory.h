/*
 * report_memory: what the ranks of a run held, predicted from the plan beside what was counted.
 */
#ifndef ANALYSIS_REPORT_MEMORY_H
#define ANALYSIS_REPORT_MEMORY_H

#include <stdint.h>
#include <stdio.h>

#include "analysis/report.h"

/* The row of a class with the largest peak; NULL when there is none. `rank` of it is the rank. */
const struct memory_row *report_memory_worst(const struct record_point *point, const char *class);

/* Does every row that was predicted for an arena agree to the byte? *n counts them. */
bool report_memory_exact(const struct record_point *point, int64_t *n);

/* A table: a line per point and class, of the rank that holds most, in the launch where it does ("all":
 * in each as much). Nothing when no file says. */
void report_memory(FILE *to, const struct scaling *scaling, bool launches);

/* One sentence where a prediction and what was counted differ; false: nothing to say. */
bool report_memory_sentence(char *text, size_t size, const struct record_point *point);

#endif
