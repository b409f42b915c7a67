/*
 * report_ceilings: what a machine can do, as "scalestudy calibrate" measured it.
 */
#ifndef ANALYSIS_REPORT_CEILINGS_H
#define ANALYSIS_REPORT_CEILINGS_H

#include <stdio.h>

#include "analysis/record.h"

struct json_t;

/* A table of the rows of machine/ceilings; nothing when there are none. */
void report_ceilings(FILE *to, const struct record_head *head);

/* The same as JSON, a list; the caller owns it. */
struct json_t *report_ceilings_json(const struct record_head *head);

#endif
