#include "analysis/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <gsl/gsl_cdf.h>
#include <gsl/gsl_statistics_double.h>

#include "base/err.h"

enum { LAGS_MAX = 2000 };

/* GSL divides once for every value, which was an eighth of the time of reading many studies. */
double stats_mean(const double *x, int64_t n)
{
    long double sum = 0.0L;
    for (int64_t i = 0; i < n; i++)
        sum += x[i];
    return n > 0 ? (double)(sum / (long double)n) : (double)NAN;
}

double stats_deviation(const double *x, int64_t n)
{
    if (n <= 0)
        return NAN;
    double mean = stats_mean(x, n);
    long double squares = 0.0L;
    for (int64_t i = 0; i < n; i++)
        squares += (long double)(x[i] - mean) * (x[i] - mean);
    return (double)sqrtl(squares / (long double)n);
}

double stats_cv(const double *x, int64_t n)
{
    double mean = stats_mean(x, n);
    return n > 0 && mean != 0.0 ? stats_deviation(x, n) / mean : NAN;
}

/* The k-th smallest of x, from 0; x is permuted. */
static double kth(double *x, int64_t n, int64_t k)
{
    return gsl_stats_select(x, 1, (size_t)n, (size_t)k);
}

static double *copy_of(const double *x, int64_t n)
{
    double *copy = must_alloc((size_t)n, sizeof *copy);
    memcpy(copy, x, (size_t)n * sizeof *copy);
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
    double *copy = copy_of(x, n), value = kth(copy, n, nearest_rank(n, p) - 1);
    free(copy);
    return value;
}

double stats_median(const double *x, int64_t n)
{
    if (n <= 0)
        return NAN;
    double *copy = copy_of(x, n), value = gsl_stats_median(copy, 1, (size_t)n);
    free(copy);
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
    double *copy = copy_of(x, n), tail = (1.0 - level) / 2.0;
    int64_t low = order_below(n, p, tail), high = order_below(n, 1.0 - p, tail);
    out->value = kth(copy, n, nearest_rank(n, p) - 1);
    if (low >= 1)
        out->low = kth(copy, n, low - 1);
    if (high >= 1)
        out->high = kth(copy, n, n - high);
    free(copy);
}
