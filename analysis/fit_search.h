/*
 * fit_search: one least-squares search, with some parameters held. Internal to fit.
 *
 * `held` bit j keeps p[j] as it is; the others are free and begin at p. On return p is the end of
 * the search, and the value the sum of squares; infinite when the search ended outside the bounds
 * or nowhere. `errors`, when not NULL, receives the standard errors for `freedom` > 0 (NaN where
 * held).
 */
#ifndef ANALYSIS_FIT_SEARCH_H
#define ANALYSIS_FIT_SEARCH_H

#include "analysis/fit.h"

struct fit_problem {
    const struct law *law;
    enum fit_residual residual;
    int n_points;
    const double *u, *rate, *work; /* [n_points] in units of the base */
};

double fit_search_from(const struct fit_problem *problem, unsigned held, double *p, double *errors);

/* Best over all sets of further parameters at their bound, one start each; p and *held as found. */
double fit_search_sets(const struct fit_problem *problem, unsigned fixed, const double *start,
                       double *p, unsigned *held);

double fit_squares(const struct fit_problem *problem, const double *p);

#endif
