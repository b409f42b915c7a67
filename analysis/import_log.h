/*
 * import_log: what the readers of training logs share.
 *
 * A log is one point: a header that says what ran, then a line per step or per few steps. The frame
 * streams the file, hands every whole line to the reader, leaves out a last line that was cut (with
 * a note), drops warm-up (at least the first `warm_up` samples, more where the series begins
 * otherwise than it goes on), and adds the row. A step number that goes back opens another launch.
 */
#ifndef ANALYSIS_IMPORT_LOG_H
#define ANALYSIS_IMPORT_LOG_H

#include "analysis/import.h"
#include "analysis/import_lines.h"
#include "analysis/import_number.h"

struct import_log {
    struct import *import;
    const struct import_options *options;
    struct import_lines lines;
    struct import_row row;
    int64_t step;    /* number of the last one; -1: none */
    double raw_mean; /* running mean of another figure that the log prints, and its samples */
    int64_t raw_n;
    double state[8]; /* the reader's own, 0 at first */
};

/* One line; 0 or FAIL_*. */
typedef int import_log_line(struct import_log *log, char *line);

int import_log_read(struct import *import, const char *path, const struct import_options *options,
                    const char *words, import_log_line *read, import_log_line *finish);

/* One sample: the time of a step, ended by step number `step`. FAIL_FILE when it cannot be one. */
int import_log_step(struct import_log *log, int64_t step, double step_s);

/* A number at `at`, called `what` in a message; *end may be NULL. */
int import_log_number(const struct import_log *log, const char *at, const char *what, int thousands,
                      double *out, const char **end);

/* The number behind `key` in `line`: 1 found, 0 no such key, < 0 failed. */
int import_log_find(const struct import_log *log, const char *line, const char *key, double *out);

/* Sets a figure that a log may say more than once, with the same value. */
void import_log_set(struct import_log *log, enum import_figure figure, double value);

#endif
