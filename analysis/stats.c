#include "analysis/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <gsl/gsl_cdf.h>
#include <gsl/gsl_statistics_double.h>

#include "base/err.h"

enum { LAGS_MAX = 2000 };

double stats_mean(const double *x, int64_t n)
{
    return n > 0 ? gsl_stats_mean(x, 1, (size_t)n) : NAN;
}

double stats_deviation(const double *x, int64_t n)
{
    if (n <= 0)
        return NAN;
    return sqrt(gsl_stats_variance_with_fixed_mean(x, 1, (size_t)n, stats_mean(x, n)));
}

double stats_cv(const double *x, int64_t n)
{
    double mean = stats_mean(x, n);
    return n > 0 && mean != 0.0 ? stats_deviation(x, n) / mean : NAN;
}

static int by_value(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static double *sorted_copy(const double *x, int64_t n)
{
    double *copy = must_alloc((size_t)n, sizeof *copy);
    memcpy(copy, x, (size_t)n * sizeof *copy);
    qsort(copy, (size_t)n, sizeof *copy, by_value);
    return copy;
}

/* Rounding must not push p n = 19.000000000000004 to the 20th value. */
static int64_t nearest_rank(int64_t n, double p)
{
    int64_t rank = (int64_t)ceil(p * (double)n - 1e-9 * (double)n);
    return rank < 1 ? 1 : rank > n ? n : rank;
}

double stats_quantile(const double *x, int64_t n, double p)
{
    if (n <= 0)
        return NAN;
    double *copy = must_alloc((size_t)n, sizeof *copy);
    memcpy(copy, x, (size_t)n * sizeof *copy);
    double value = gsl_stats_select(copy, 1, (size_t)n, (size_t)nearest_rank(n, p) - 1);
    free(copy);
    return value;
}

double stats_median(const double *x, int64_t n)
{
    if (n <= 0)
        return NAN;
    double *sorted = sorted_copy(x, n);
    double value = gsl_stats_median_from_sorted_data(sorted, 1, (size_t)n);
    free(sorted);
    return value;
}

double stats_mad(const double *x, int64_t n)
{
    if (n <= 0)
        return NAN;
    double median = stats_median(x, n);
    double *distance = must_alloc((size_t)n, sizeof *distance);
    for (int64_t i = 0; i < n; i++)
        distance[i] = fabs(x[i] - median);
    double value = stats_median(distance, n);
    free(distance);
    return value;
}

static double autocovariance(const double *x, int64_t n, double mean, int64_t lag)
{
    double sum = 0.0;
    for (int64_t i = 0; i + lag < n; i++)
        sum += (x[i] - mean) * (x[i + lag] - mean);
    return sum / (double)n;
}

double stats_tau(const double *x, int64_t n)
{
    double mean = stats_mean(x, n), tau = 0.5;
    double variance = n > 1 ? autocovariance(x, n, mean, 0) : 0.0;
    /* Rounding alone must not look like correlation. */
    if (!(variance > 1e-24 * mean * mean))
        return tau;
    int64_t lag = 1;
    for (; lag < n / 2 && lag < LAGS_MAX; lag++) {
        tau += autocovariance(x, n, mean, lag) / variance;
        if ((double)lag >= 5.0 * tau)
            break;
    }
    /* The mean was estimated too, which takes 2 tau / n from each autocorrelation (Wolff 2004). */
    tau *= 1.0 + (2.0 * (double)lag + 1.0) / (double)n;
    return fmin(fmax(tau, 0.5), (double)n / 2.0);
}

/* The largest l with P(B <= l - 1) <= tail for B binomial (n, p); 0: none. */
static int64_t order_below(int64_t n, double p, double tail)
{
    int64_t low = 0, high = n + 1; /* low holds, high does not */
    while (high - low > 1) {
        int64_t mid = low + (high - low) / 2;
        if (gsl_cdf_binomial_P((unsigned)(mid - 1), p, (unsigned)n) <= tail)
            low = mid;
        else
            high = mid;
    }
    return low;
}

/*
 * The l-th smallest lies below the quantile unless fewer than l samples do. The upper end is the
 * lower end of the mirrored problem.
 */
void stats_quantile_interval(const double *x, int64_t n, double p, double level,
                             struct stats_interval *out)
{
    *out = (struct stats_interval){NAN, NAN, NAN, n > 0 ? n : 0};
    if (n <= 0 || n >= UINT32_MAX)
        return;
    double *sorted = sorted_copy(x, n), tail = (1.0 - level) / 2.0;
    int64_t low = order_below(n, p, tail), high = order_below(n, 1.0 - p, tail);
    out->value = sorted[nearest_rank(n, p) - 1];
    if (low >= 1)
        out->low = sorted[low - 1];
    if (high >= 1)
        out->high = sorted[n - high];
    free(sorted);
}
