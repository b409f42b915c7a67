#include "analysis/shift.h"

#include <math.h>
#include <stdlib.h>

#include <gsl/gsl_cdf.h>
#include <gsl/gsl_fit.h>

#include "analysis/stats.h"
#include "base/err.h"

static const double chance = 0.01;

/* Of the residuals, and how many independent values they are worth. */
static double long_run_variance(const double *residual, int64_t n, double *effective)
{
    double tau = stats_tau(residual, n), deviation = stats_deviation(residual, n);
    *effective = fmax((double)n / (2.0 * tau), 1.0);
    return deviation * deviation * 2.0 * tau * *effective / fmax(*effective - 2.0, 0.5);
}

/* P(largest |Brownian bridge| > x). */
static double kolmogorov_tail(double x)
{
    double sum = 0.0;
    if (x < 0.2)
        return 1.0;
    for (int j = 1; j <= 100; j++)
        sum += (j % 2 ? 2.0 : -2.0) * exp(-2.0 * j * j * x * x);
    return fmin(fmax(sum, 0.0), 1.0);
}

/* Returns the squares that the line leaves. */
static double find_drift(const double *x, const double *index, double *residual, int64_t n,
                         double mean, struct shift *out)
{
    double c0, c1, v00, v01, v11, squares, effective;
    gsl_fit_linear(index, 1, x, 1, (size_t)n, &c0, &c1, &v00, &v01, &v11, &squares);
    for (int64_t i = 0; i < n; i++)
        residual[i] = x[i] - c0 - c1 * index[i];
    double variance = long_run_variance(residual, n, &effective);
    double about = (double)n * ((double)n * (double)n - 1.0) / 12.0; /* sum (i - mean i)^2 */
    out->drift = c1 * ((double)n - 1.0) / mean;
    if (variance > 1e-24 * mean * mean)
        out->drift_p =
            2.0 * gsl_cdf_tdist_Q(fabs(c1) / sqrt(variance / about), fmax(effective - 2.0, 1.0));
    else
        out->drift_p = fabs(out->drift) > 1e-9 ? 0.0 : 1.0;
    return squares;
}

static double find_change(const double *x, double *residual, int64_t n, double mean,
                          struct shift *out)
{
    double sum = 0.0, largest = -1.0, effective, squares = 0.0, before, after;
    for (int64_t i = 0; i + 1 < n; i++) {
        sum += x[i] - mean;
        if (fabs(sum) > largest) {
            largest = fabs(sum);
            out->change_at = i + 1;
        }
    }
    before = stats_mean(x, out->change_at);
    after = stats_mean(x + out->change_at, n - out->change_at);
    out->change = after / before - 1.0;
    for (int64_t i = 0; i < n; i++) {
        residual[i] = x[i] - (i < out->change_at ? before : after);
        squares += residual[i] * residual[i];
    }
    double variance = long_run_variance(residual, n, &effective);
    if (variance > 1e-24 * mean * mean)
        out->change_p = kolmogorov_tail(largest / sqrt(variance * (double)n));
    else
        out->change_p = fabs(out->change) > 1e-9 ? 0.0 : 1.0;
    return squares;
}

void shift_find(const double *x, int64_t n, struct shift *out)
{
    *out = (struct shift){SHIFT_NONE, NAN, NAN, NAN, NAN, -1};
    if (n < SHIFT_SAMPLES)
        return;
    double mean = stats_mean(x, n), *index = must_alloc(2 * (size_t)n, sizeof *index);
    for (int64_t i = 0; i < n; i++)
        index[i] = (double)i;
    double drifts = find_drift(x, index, index + n, n, mean, out);
    double changes = find_change(x, index + n, n, mean, out);
    bool drift = out->drift_p < chance && fabs(out->drift) > SHIFT_SHARE;
    bool change = out->change_p < chance && fabs(out->change) > SHIFT_SHARE;
    if (drift && (!change || drifts <= changes))
        out->kind = SHIFT_DRIFT;
    else if (change)
        out->kind = SHIFT_CHANGE;
    free(index);
}
