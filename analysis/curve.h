/*
 * curve: what a series says about scaling, point by point.
 *
 *   speedup       X / X0                       X: the rate of all devices
 *   efficiency    (X / N) / (X0 / N0)          strong and weak alike; work-normalised:
 *                 (W / W0) / (N / N0) T0 / T   with W = parameters x sequences a step
 *   ratio         the same against the next smaller valid point: the last step up
 *   marginal      ((X - Xp) / Xp) / ((N - Np) / Np): what the added devices deliver
 *   time to work  E_ttw = E_throughput E_samples E_goodput, with E_samples = samples(N0) / samples(N)
 *                 to the same target and E_goodput = g / g0; each factor 1 when the source does not
 *                 know it, and said; measured from times to the target where there are any
 *
 * The base is the smallest valid point of the series. Everything is NaN where it is not defined: the
 * increments of the base, all of an invalid point, the speedup of a series whose model grows. Ends
 * of intervals are NaN for exact single values. With raw steps ratios are resampled; with intervals
 * alone both sides' logarithms add in squares.
 */
#ifndef ANALYSIS_CURVE_H
#define ANALYSIS_CURVE_H

#include "analysis/series.h"

struct curve_point {
    struct stats_interval speedup, efficiency, ratio, marginal;
    int base, previous;                    /* points of the series; -1 */
    double samples_factor, goodput_factor; /* NaN: not known */
    double throughput_factor;              /* efficiency */
    double time_to_work;                   /* E_ttw; NaN when neither factor nor times known */
    double hours_to_work;                  /* of the work that `tokens_total` or samples say */
};

/* [series->n_points], to be freed by the caller. */
struct curve_point *curve_of(const struct series *series, uint64_t seed);

#endif
