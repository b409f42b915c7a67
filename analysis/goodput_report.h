/*
 * goodput_report: what `scalereport goodput` says, as text, CSV, JSON and a picture.
 *
 * A line is one row of CSV and one object of JSON: a measured run, or an expected goodput on one node
 * count at one interval. Its columns are one list (goodput_lines.c): name, unit in the name, value.
 * What is unknown is "-" in text, empty in CSV, null in JSON; every expected figure has beside it
 * where its costs come from.
 */
#ifndef ANALYSIS_GOODPUT_REPORT_H
#define ANALYSIS_GOODPUT_REPORT_H

#include <stdio.h>

#include "analysis/goodput_plan.h"

enum { GOODPUT_SCHEMA = 1, GOODPUT_NOTES = 64, GOODPUT_NOTE = 400 };

struct goodput_notes {
    int n;
    char text[GOODPUT_NOTES][GOODPUT_NOTE];
};

struct goodput_report {
    const struct goodput_study *study;
    const struct goodput_law *law;
    int n_plans;                      /* one per kind and mode */
    const struct goodput_plan *plans; /* borrowed */
    double run_s;                     /* how long the run is that is planned; NaN: not said */
    uint64_t seed;
    struct goodput_notes notes;
};

/* What must be said beside the numbers. */
void goodput_notes_find(struct goodput_report *report);

void goodput_text(FILE *to, const struct goodput_report *report);
void goodput_csv(FILE *to, const struct goodput_report *report);
int goodput_json(FILE *to, const struct goodput_report *report); /* FAIL_FILE */

/* Goodput over nodes, measured and expected, and g over the interval for each node count. Fails as
 * gnuplot_draw. */
int goodput_plot(const struct goodput_report *report, const char *path, const char *title);

/* ---- lines ---- */

/* point: a measured run; else a choice of a row of a plan. */
struct goodput_line {
    const struct goodput_report *report;
    const struct goodput_point *point;
    const struct goodput_plan *plan;
    const struct goodput_row *row;
    const struct goodput_choice *choice;
};

enum goodput_value_kind { VALUE_TEXT, VALUE_REAL, VALUE_INT, VALUE_FLAG };
struct goodput_value {
    enum goodput_value_kind kind;
    char text[96]; /* "": unknown */
    double real;   /* NaN: unknown */
    int64_t whole; /* -1: unknown */
};

int goodput_n_columns(void);
const char *goodput_column_name(int column);
struct goodput_value goodput_column_value(int column, const struct goodput_line *line);

/* Calls `take` for each line: measured ones, then expected ones. */
void goodput_each_line(const struct goodput_report *report,
                       void (*take)(const struct goodput_line *line, void *to), void *to);

/* Mean over the runs of a kind on one node count with so many failures: those with and without are not
 * the same thing. n = 0: none. */
struct stats_interval goodput_measured(const struct goodput_study *study, int kind, double nodes,
                                       int failures);

#endif
