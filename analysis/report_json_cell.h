/*
 * report_json_cell: values of a report as JSON, for every file that writes some. The caller owns
 * what it gets (a json_t of jansson).
 */
#ifndef ANALYSIS_REPORT_JSON_CELL_H
#define ANALYSIS_REPORT_JSON_CELL_H

#include "analysis/report_columns.h"

struct json_t;

struct json_t *report_json_cell(struct report_value value);
struct json_t *report_json_text(const char *value); /* any bytes: what is no UTF-8 becomes '?' */

#endif
