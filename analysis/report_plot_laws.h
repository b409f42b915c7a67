/*
 * report_plot_laws: the laws of a curve in its picture.
 *
 * What the text says of a regime with REPORT_LAWS_POINTS points is drawn: the geometric mean of the
 * two laws that forecast, solid where points were measured and dashed beyond; the envelope of all
 * laws as a shade; and the forecasts at 2 and 4 times the largest N as open circles with their 95 %
 * interval, called x2 and x4. Nothing is drawn beyond that, or beyond the regime: a curve inside one
 * node ends at the node. A curve with fewer points has no law and no line.
 *
 * Datablocks of curve K, regime R: $law_K_R with N, mean, envelope, and the same three over perfect
 * scaling of the base in %; $beyond_K_R the extrapolated part; $forecast_K_R with N, forecast, low,
 * high, label, and the same three in %.
 */
#ifndef ANALYSIS_REPORT_PLOT_LAWS_H
#define ANALYSIS_REPORT_PLOT_LAWS_H

#include "analysis/report.h"

enum { REPORT_PLOT_REGIMES = 4 };

/* The regimes of a curve that were written; gnuplot takes no empty datablock. */
struct plot_laws {
    int n;
    struct {
        bool beyond, forecasts;
    } regimes[REPORT_PLOT_REGIMES];
};

/* Writes the datablocks of curve `k`, the rows of `set` on nodes of one shape. */
void report_plot_laws_data(FILE *to, const struct report *report, int set, int ranks_per_node,
                           int k, struct plot_laws *out);

enum report_plot_panel { REPORT_PLOT_RATE, REPORT_PLOT_EFFICIENCY };

/* Further parts of a plot command that has begun, for curve k in colour k + 1. */
void report_plot_laws(FILE *to, enum report_plot_panel panel, int k, const struct plot_laws *drawn,
                      bool titled);

#endif
