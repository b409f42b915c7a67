/*
 * fit: a law fitted to the points of one curve by least squares (GSL), with what is known about its
 * parameters.
 *
 *   residuals   relative: log(X_law / X), the default: a point of 2 devices counts as much as one
 *               of 2,000; absolute: X_law - X
 *   bounds      every parameter >= 0. The optimum is searched with every set of parameters held at
 *               its bound, so `at_bound` is a fact about the optimum and not where a search stopped
 *   starts      several per law; the best end counts
 *   error       standard error of a free parameter, from n - k degrees of freedom; NaN without one
 *   interval    95 % profile likelihood: the other parameters are fitted again at every value. A
 *               parameter whose interval includes its bound is not identified
 *   last_pct    the last point, predicted from the others: error of that prediction. With four
 *               points and three parameters no criterion of information says anything; this does
 *
 * What cannot be known is NaN. Data are refused (FAIL_USAGE) when fewer than the parameters of the
 * law, not finite, not positive, or when N does not increase.
 */
#ifndef ANALYSIS_FIT_H
#define ANALYSIS_FIT_H

#include <stdbool.h>
#include <stdint.h>

#include "analysis/law.h"

enum fit_residual { FIT_RELATIVE, FIT_ABSOLUTE };

/* Borrowed. n[0] is the base. */
struct fit_data {
    int n_points;
    const double *n, *rate; /* [n_points] strictly increasing; of all devices together */
    enum fit_residual residual;
    bool weak; /* the work of a step grows with N */
};

struct fit_parameter {
    double value, error;
    double low, high; /* 95 % profile interval; high INFINITY: no upper end */
    bool at_bound, identified;
};

struct fit {
    const struct law *law;
    enum fit_residual residual;
    bool weak;
    int n_points, freedom; /* n - k */
    double base, scale;    /* N0; rate of the base, the unit of `p` */
    double p[LAW_PARAMETERS];
    unsigned held;                                   /* bit j: parameter j is at its bound */
    struct fit_parameter parameters[LAW_PARAMETERS]; /* in the unit of the curve */
    double rss;                                      /* of log X, or of X / scale */
    double error;     /* residual standard error: relative, or in the unit of the rate */
    double worst_pct; /* largest |X_law / X - 1| */
    double last_pct;  /* X_law / X - 1 of the last point, fitted without it */
};

/* The optimum alone: p, held, rss, freedom. `start`, when not NULL, is the only start. */
int fit_search(struct fit *out, const struct law *law, const struct fit_data *data,
               const double *start);

/* The same with errors, intervals and the prediction of the last point. */
int fit_law(struct fit *out, const struct law *law, const struct fit_data *data);

double fit_rate(const struct fit *fit, double n);

/* Refuses data that no law can be fitted to: one sentence. */
int fit_check(const struct fit_data *data);

#endif
