/*
 * report: one study as text, CSV or JSON.
 *
 * The three forms say the same: report_columns.h is the list of what a row of the curve has, once,
 * with names that other tools know (extended, never renamed), and report_notes.h is what must be
 * said beside the numbers. What is unknown is "-" in text, empty in CSV and null in JSON; never 0.
 * Results go to `to`; nothing else is printed.
 */
#ifndef ANALYSIS_REPORT_H
#define ANALYSIS_REPORT_H

#include <stdio.h>

#include "analysis/scaling.h"

enum { REPORT_SCHEMA = 1 }; /* of the JSON form */

struct report_work;

/* Files of one study digest and their curve; all borrowed. */
struct report {
    const struct record_file *const *files;
    int n_files;
    const struct scaling *scaling;
    uint64_t seed;                      /* of the resampling */
    const struct report_work *work;     /* what time to the same work is asked for; or NULL */
    const struct record_head *ceilings; /* of a calibration, for floors; NULL: the study's own */
};

void report_text(FILE *to, const struct report *report);

/* One header line for all studies, then a line per point. */
void report_csv(FILE *to, const struct report *reports, int n);

/* FAIL_FILE when writing fails. */
int report_json(FILE *to, const struct report *reports, int n);

#endif
