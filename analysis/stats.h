/*
 * stats: numbers about series of times, and how sure they are.
 *
 * A series is an array of doubles in the order of measurement, one unit throughout. Step times are
 * not independent: neighbours resemble each other, so every interval of a mean here resamples whole
 * circular blocks, at least n^(1/3) and 3 tau long (tau: integrated autocorrelation time) and long
 * enough that a side has no more than some 500 of them, and is the wider of that and a t interval with n / (2 tau) effective samples. The self-test holds it to
 * what it promises: on AR(1) series with phi = 0.8 and n = 400 a nominal 95 % interval covers the
 * truth in at least 90 % of 1,000 cases.
 *
 * What cannot be known is NaN, never 0: the ends of an interval from one sample, the p95 of
 * nothing. Everything is a pure function of its arguments, seed included; nothing fails.
 */
#ifndef ANALYSIS_STATS_H
#define ANALYSIS_STATS_H

#include <stdbool.h>
#include <stdint.h>

struct stats_interval {
    double value, low, high; /* low, high: NaN when there is no interval */
    int64_t n;               /* samples behind it */
};

double stats_mean(const double *x, int64_t n);
double stats_deviation(const double *x, int64_t n);          /* population standard deviation */
double stats_cv(const double *x, int64_t n);                 /* deviation / mean */
double stats_quantile(const double *x, int64_t n, double p); /* nearest rank: a value of x */
double stats_median(const double *x, int64_t n); /* mean of the middle two if n is even */
double stats_mad(const double *x, int64_t n);    /* median distance from the median, not scaled */

/*
 * Integrated autocorrelation time in samples, 1/2 + the sum of the autocorrelations up to the first
 * lag W >= 5 tau(W), corrected for the bias of a finite series; 1/2 for independent samples and
 * never below. The mean of n samples is as good as that of n / (2 tau) independent ones.
 */
double stats_tau(const double *x, int64_t n);

/* The mean and its interval at `level` (0.95), with 2,000 resamples drawn from `seed`. */
void stats_mean_interval(const double *x, int64_t n, double level, uint64_t seed,
                         struct stats_interval *out);

/* The mean and, of two samples and more, mean +- t s / sqrt(n) with n - 1 degrees of freedom: of samples that are
 * independent, few, and may be 0 or less. */
void stats_t_interval(const double *x, int64_t n, double level, struct stats_interval *out);

/* mean(num) / mean(den), each side resampled on its own. */
void stats_ratio_interval(const double *num, int64_t n_num, const double *den, int64_t n_den,
                          double level, uint64_t seed, struct stats_interval *out);

/* For what cannot be 0 or less (times, rates, ratios of them): an end that is not positive and
 * finite bounds nothing and becomes NaN. The ratios here are bounded already. */
void stats_positive(struct stats_interval *interval);

/*
 * The same quantile as stats_quantile with an interval from order statistics (binomial, no shape
 * assumed, neighbours taken as independent). An end that no sample can give is NaN: at 95 % p95 has
 * an upper end only from 72 samples, p99 from 368.
 */
void stats_quantile_interval(const double *x, int64_t n, double p, double level,
                             struct stats_interval *out);

/*
 * How many leading samples are warm-up: 0 unless the beginning differs from the second half of the
 * series beyond chance, and at most n / 2 (then the series may not have settled at all). Beyond
 * chance: some beginning of k samples has a mean 4.5 standard errors away, autocorrelation
 * counted, and outside every window of k samples of the second half. Where to cut is then MSER's
 * choice (the cut that minimises the squared standard error of the rest), on values clipped around
 * the second half, so that one outlier in the middle moves nothing. Fewer than 8 samples: 0.
 */
int64_t stats_warm_up(const double *x, int64_t n);

/* ---- several launches of the same point ---- */

struct stats_series {
    const double *x;
    int64_t n;
};

/*
 * The mean over launches of their means. From three launches on the interval is the wider of a t
 * interval over launches (on logarithms, df = launches - 1) and a two-level bootstrap (launches,
 * then circular blocks); with one or two it covers variation within a launch only. Values > 0.
 */
void stats_launches_interval(const struct stats_series *series, int launches, double level,
                             uint64_t seed, struct stats_interval *out);

/*
 * The ratio of two such means. `paired`: num[i] and den[i] are the same launch (both arrays have
 * n_num = n_den entries) and the ratio is taken inside each replicate, its t interval over the
 * launches' own ratios. Else t is Welch's, over the launches of both sides; where one side has fewer
 * than three it is taken to vary as the other does.
 */
void stats_launches_ratio(const struct stats_series *num, int n_num, const struct stats_series *den,
                          int n_den, bool paired, double level, uint64_t seed,
                          struct stats_interval *out);

#endif
