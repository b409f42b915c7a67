/*
 * report_series: curves that came from tables and logs, in the form of the report of a study.
 *
 * Text, CSV and JSON have the names of report_columns.h; what a table does not say is "-", empty or
 * null. Names that only such series have (the line a point was read from, the efficiency of time to
 * work) follow behind. Identities that do not hold stand first in the text, as notes with file and
 * line. A single printed value is marked "exact" where an interval would stand.
 */
#ifndef ANALYSIS_REPORT_SERIES_H
#define ANALYSIS_REPORT_SERIES_H

#include <stdio.h>

#include "analysis/collective_table.h"
#include "analysis/curve.h"
#include "analysis/report_columns.h"
#include "analysis/series.h"

struct report_series {
    const struct series_set *set;                /* borrowed, as all here */
    const struct collective_tables *collectives; /* may be empty */
    struct curve_point **curves;                 /* [set->n_series][n_points], owned */
    int n_columns; /* those of report_columns.h first, then those of series alone */
    int *columns;  /* [n_columns] index of our own list, -1: unknown here; owned */
};

void report_series_open(struct report_series *report, const struct series_set *set,
                        const struct collective_tables *collectives);
void report_series_close(struct report_series *report);

void report_series_text(FILE *to, const struct report_series *report);
void report_series_csv(FILE *to, const struct report_series *report);
int report_series_json(FILE *to, const struct report_series *report); /* FAIL_FILE */

/* Of column 0 to report->n_columns - 1. */
const char *report_series_column_name(const struct report_series *report, int column);
struct report_value report_series_value(int column, const struct report_series *report, int series,
                                        int point);

#endif
