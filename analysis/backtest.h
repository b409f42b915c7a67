/*
 * backtest: forecasts of points that were measured. Of every curve the first k points are fitted
 * and each later one is predicted; what went wrong there is the floor of every other interval.
 *
 * Hold-outs of one curve are not independent: in quantiles a curve counts once, however many
 * hold-outs it has, and the floor for a curve comes from the other curves.
 */
#ifndef ANALYSIS_BACKTEST_H
#define ANALYSIS_BACKTEST_H

#include "analysis/forecast.h"

struct backtest_curve {
    char name[64];
    bool weak;
    int n_points;
    double *n, *rate; /* [n_points], owned */
};

struct backtest_holdout {
    int curve, n_fitted;
    enum forecast_label label;
    double n, factor, truth;
    double value; /* the ensemble's, even beyond 4 times */
    double error; /* log(value / truth) */
    double low,
        high; /* interval with the floor of the other curves; NaN without a point forecast */
    double envelope_low, envelope_high;
};

struct backtest {
    int n_curves, n_holdouts;
    struct backtest_curve *curves; /* owned */
    struct backtest_holdout *holdouts;
};

/* Reads "curve,mode,n,quantity,value" lines (see tests/golden/backtest/README.md). FAIL_FILE,
 * FAIL_USAGE. */
int backtest_read(struct backtest *out, const char *path);
void backtest_release(struct backtest *backtest);

/* Every hold-out; intervals at `level` where there are three fitted points. */
int backtest_run(struct backtest *backtest, double level, int replicates);

/* The floors from all curves but `without` (-1: all), three fitted points or more. */
void backtest_floors(const struct backtest *backtest, int without,
                     struct forecast_floor out[FORECAST_FLOORS]);

/* Median |value / truth - 1| in percent of hold-outs with that label; exactly two fitted points, or
 * three and more. *n: how many. */
double backtest_median_pct(const struct backtest *backtest, enum forecast_label label,
                           bool two_points, int *n);

#endif
