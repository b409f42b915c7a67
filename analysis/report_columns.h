/*
 * report_columns: what a row of the curve has. The list gives the CSV header, the JSON keys, and
 * the values of both. Units are in the names; the meaning is in analysis/README.md.
 *
 * The first part is the list of names that studies of this kind share; a column of it that this
 * study did not measure is there and empty. The second part is ours.
 */
#ifndef ANALYSIS_REPORT_COLUMNS_H
#define ANALYSIS_REPORT_COLUMNS_H

#include "analysis/report.h"

/* A truth is 0 or 1 in CSV, false or true in JSON. */
enum report_kind { REPORT_INTEGER, REPORT_TRUTH, REPORT_REAL, REPORT_TEXT };
#define REPORT_UNKNOWN INT64_MIN

struct report_value {
    enum report_kind kind;
    int64_t integer;  /* REPORT_UNKNOWN */
    double real;      /* NaN: unknown */
    const char *text; /* borrowed; "" : unknown */
};

int report_n_columns(void);
const char *report_column_name(int column);
struct report_value report_value(int column, const struct report *report,
                                 const struct scaling_row *row);

void report_csv_value(FILE *to, struct report_value value);

/* Figures that more than one form prints. */
double report_tflops_per_device(const struct scaling_row *row);
double report_mfu(const struct scaling_row *row); /* share; NaN without a peak */
double report_hfu(const struct scaling_row *row); /* the same with what is recomputed */
double report_ms(double ns);
const char *report_status(const struct scaling_row *row); /* ok, unsettled, invalid */
int64_t report_wrong(const struct scaling_row *row);      /* checks that failed, all runs */
/* The run with the largest excess of its slowest rank. */
const struct scaling_run *report_slowest(const struct scaling_row *row);
const char *report_attribute(const struct report *report, const char *group, const char *name);
int64_t report_peak_bytes(const struct scaling_row *row); /* process, worst rank; -1 unknown */

#endif
