#include "analysis/stats.h"

#include <math.h>
#include <stdlib.h>

#include "base/err.h"

/*
 * The second half of a series is taken as its settled state: `tail` below. Errors of the mean of k
 * values come from it, and so do the windows that a beginning is compared with.
 */
static const double critical = 4.5;

static bool outside_windows(const double *prefix, int64_t n, int64_t k)
{
    double head = prefix[k], low = INFINITY, high = -INFINITY;
    for (int64_t i = n / 2; i + k <= n; i++) {
        double window = prefix[i + k] - prefix[i];
        low = fmin(low, window);
        high = fmax(high, window);
    }
    return head < low || head > high;
}

static bool begins_apart(const double *x, int64_t n, const double *prefix)
{
    const double *tail = x + n / 2;
    int64_t n_tail = n - n / 2;
    double mean = stats_mean(tail, n_tail), tau = stats_tau(tail, n_tail);
    double deviation = stats_deviation(tail, n_tail);
    for (int64_t k = 1; k <= n / 4; k += 1 + k / 4) {
        /* The mean of k neighbours cannot be worse known than one value. */
        double effective = fmax((double)k / (2.0 * tau), 1.0);
        double error = deviation * sqrt(1.0 / effective + 2.0 * tau / (double)n_tail);
        double apart = fabs(prefix[k] / (double)k - mean);
        if (apart > critical * error && apart > 1e-9 * fabs(mean) && outside_windows(prefix, n, k))
            return true;
    }
    return false;
}

/*
 * MSER: the cut k that minimises sum (x - mean)^2 / (n - k)^2 over the values kept. Dropping a few
 * more always finds a slightly better score by chance, so the earliest cut that comes within four
 * average values of the best is taken.
 */
static int64_t best_cut(const double *x, int64_t n, double low, double high)
{
    double sum = 0.0, squares = 0.0, best = INFINITY, middle = (low + high) / 2.0;
    double *score = must_alloc((size_t)n, sizeof *score);
    for (int64_t i = n - 1; i >= 0; i--) {
        double value = fmin(fmax(x[i], low), high) - middle, kept = (double)(n - i);
        sum += value;
        squares += value * value;
        score[i] = fmax(squares - sum * sum / kept, 0.0) / (kept * kept); /* rounding */
        if (i <= n / 2)
            best = fmin(best, score[i]);
    }
    int64_t cut = 0;
    while (score[cut] > best * (1.0 + 4.0 / (double)n))
        cut++;
    free(score);
    return cut;
}

int64_t stats_warm_up(const double *x, int64_t n)
{
    if (n < 8)
        return 0;
    double *prefix = must_alloc((size_t)n + 1, sizeof *prefix);
    for (int64_t i = 0; i < n; i++)
        prefix[i + 1] = prefix[i] + x[i];
    bool apart = begins_apart(x, n, prefix);
    free(prefix);
    if (!apart)
        return 0;
    double middle = stats_median(x + n / 2, n - n / 2),
           reach = 5.0 * stats_mad(x + n / 2, n - n / 2);
    if (!(reach > 0.0))
        reach = 0.05 * fabs(middle);
    return best_cut(x, n, middle - reach, middle + reach);
}
