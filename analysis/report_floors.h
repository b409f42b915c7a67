/*
 * report_floors: floors of each point (floors.h) as a table and as JSON, and the ceilings they come from.
 */
#ifndef ANALYSIS_REPORT_FLOORS_H
#define ANALYSIS_REPORT_FLOORS_H

#include <stdio.h>

#include "analysis/report.h"

struct json_t;

/* The study's own ceilings, then floors by these or by those asked for; nothing where there are none. */
void report_floors(FILE *to, const struct report *report);

/* The same, as members "ceilings" and "floors" of a study. */
void report_floors_json(struct json_t *study, const struct report *report);

#endif
