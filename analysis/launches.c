#include "analysis/launches.h"

#include <math.h>
#include <stdlib.h>

#include <gsl/gsl_cdf.h>

#include "base/err.h"

enum { ENOUGH = 3 }; /* launches, for an interval over them: as in stats.h */

static double t_value(double level, double freedom)
{
    return gsl_cdf_tdist_Pinv(0.5 + level / 2.0, freedom);
}

void launches_log_moments(const double *x, int k, double *mean, double *deviation)
{
    double squares = 0.0;
    *mean = 0.0;
    for (int i = 0; i < k; i++)
        *mean += log(x[i]) / k;
    for (int i = 0; i < k; i++)
        squares += pow(log(x[i]) - *mean, 2);
    *deviation = k > 1 ? sqrt(squares / (k - 1)) : (double)NAN;
}

void launches_next(const double *means, int k, double level, struct stats_interval *out)
{
    double mean, deviation;
    *out = (struct stats_interval){NAN, NAN, NAN, k > 0 ? k : 0};
    if (k <= 0)
        return;
    launches_log_moments(means, k, &mean, &deviation);
    out->value = exp(mean);
    if (k < 2)
        return;
    double reach = t_value(level, k - 1) * deviation * sqrt(1.0 + 1.0 / k);
    out->low = exp(mean - reach);
    out->high = exp(mean + reach);
    stats_positive(out);
}

void launches_join(const struct stats_interval *launches, int n, double level,
                   struct stats_interval *out)
{
    double below = 0.0, above = 0.0, *known = must_alloc((size_t)n + 1, sizeof *known);
    int64_t steps = 0;
    int k = 0;
    for (int i = 0; i < n; i++) {
        const struct stats_interval *x = &launches[i];
        if (isnan(x->value))
            continue;
        below += pow(x->value - x->low, 2);
        above += pow(x->high - x->value, 2);
        steps += x->n;
        known[k++] = x->value;
    }
    stats_t_interval(known, k, level, out);
    free(known);
    double low = out->value - sqrt(below) / k, high = out->value + sqrt(above) / k;
    if (k < ENOUGH)
        out->low = out->high = NAN;
    out->low = fmin(low, out->low); /* the number where the other is none */
    out->high = fmax(high, out->high);
    out->n = steps;
}

static double independent_half(const struct stats_series *series, int k, double level)
{
    double variance = 0.0, mean = 0.0;
    for (int i = 0; i < k; i++) {
        double n = (double)series[i].n, m = stats_mean(series[i].x, series[i].n);
        double d = stats_deviation(series[i].x, series[i].n);
        mean += m / k;
        variance += n > 1.0 ? d * d / (n - 1.0) / k / k : 0.0;
    }
    return gsl_cdf_ugaussian_Pinv(0.5 + level / 2.0) * sqrt(variance) / mean;
}

/* The launches as they are: errors of their means from n / (2 tau) effective steps, added; degrees
 * of freedom after Welch and Satterthwaite. */
static double steps_half(const struct stats_series *series, int k, double level)
{
    double variance = 0.0, squares = 0.0, mean = 0.0;
    for (int i = 0; i < k; i++) {
        double n = (double)series[i].n, d = stats_deviation(series[i].x, series[i].n);
        double effective = fmax(n / (2.0 * stats_tau(series[i].x, series[i].n)), 1.0);
        double freedom = fmax(effective - 1.0, 0.5), part = d * d / freedom / k / k;
        mean += stats_mean(series[i].x, series[i].n) / k;
        variance += part;
        squares += part * part / freedom;
    }
    if (!(variance > 0.0))
        return 0.0;
    return t_value(level, fmax(variance * variance / squares, 1.0)) * sqrt(variance) / mean;
}

void launches_find_levels(const struct stats_series *series, int launches, double level,
                          struct launches_levels *out)
{
    double *means = must_alloc((size_t)launches + 1, sizeof *means), mean;
    struct stats_series *used = must_alloc((size_t)launches + 1, sizeof *used);
    *out = (struct launches_levels){NAN, {NAN, NAN}, NAN, -1, 0, 0};
    for (int i = 0; i < launches; i++) {
        if (series[i].n <= 0)
            continue;
        used[out->n_launches] = series[i];
        means[out->n_launches++] = stats_mean(series[i].x, series[i].n);
        out->n_steps += series[i].n;
    }
    int k = out->n_launches;
    if (k > 0) {
        launches_log_moments(means, k, &mean, &out->spread);
        out->independent = independent_half(used, k, level);
        out->half[LEVEL_STEPS] = steps_half(used, k, level);
    }
    if (k > 1) {
        out->half[LEVEL_LAUNCHES] = t_value(level, k - 1) * out->spread / sqrt(k);
        out->dominant =
            out->half[LEVEL_LAUNCHES] > out->half[LEVEL_STEPS] ? LEVEL_LAUNCHES : LEVEL_STEPS;
    }
    free(used);
    free(means);
}

const char *launches_level_name(int level)
{
    return level == LEVEL_STEPS ? "steps within a launch" : "launches";
}
