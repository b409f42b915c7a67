/*
 * report_plot: the curve as a picture, drawn by gnuplot.
 *
 * Three panels: throughput against devices (log-log, with the ideal line through the base),
 * efficiency, and where an instrumented step went, stacked. Measured points carry their 95 %
 * interval and are never joined: a line means a model. Points that failed their gate are grey
 * crosses. The script, with the data inside it, stays beside the picture as PATH.gnuplot.
 *
 * Text that comes from a study reaches gnuplot in single quotes alone, doubled inside, with
 * `noenhanced`; control characters become spaces. Numbers are printed by this program and lie in
 * datablocks. So no title or model name can be read as a command.
 */
#ifndef ANALYSIS_REPORT_PLOT_H
#define ANALYSIS_REPORT_PLOT_H

#include "analysis/report.h"

/*
 * `path` ends in .svg, .png or .pdf, else FAIL_USAGE. `title` may be "". FAIL_FILE when the script
 * or the picture cannot be written, FAIL_ABSENT when there is no gnuplot (the script stays).
 */
int report_plot(const struct report *reports, int n, const char *path, const char *title);

/* The refusals that need no data: to be asked before anything is read. */
int report_plot_check(const char *path);

#endif
