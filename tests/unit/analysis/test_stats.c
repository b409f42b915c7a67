/* Intervals cover the truth as often as they promise; warm-up is found where it was planted. */
#include "analysis/stats.h"

#include <stdlib.h>

#include "base/rng.h"
#include "tests/test.h"

enum { SEEDS = 1000, N = 400 };

/* A stationary AR(1) series around `mean`. */
static void ar1(double *x, int n, double phi, double mean, double sigma, uint64_t key)
{
    double state = (double)rng_normal(key, 0) / sqrt(1.0 - phi * phi);
    for (int i = 0; i < n; i++) {
        x[i] = mean + sigma * state;
        state = phi * state + (double)rng_normal(key, (uint64_t)i + 1);
    }
}

static void test_moments(void)
{
    const double x[] = {4, 1, 3, 2, 10};
    CHECK_NEAR(stats_mean(x, 5), 4.0, 1e-15);
    CHECK_NEAR(stats_deviation(x, 5), sqrt(10.0), 1e-14);
    CHECK_NEAR(stats_cv(x, 5), sqrt(10.0) / 4, 1e-14);
    CHECK_NEAR(stats_median(x, 5), 3.0, 0);
    CHECK_NEAR(stats_median(x, 4), 2.5, 0);
    CHECK_NEAR(stats_mad(x, 5), 1.0, 0);
    CHECK(isnan(stats_deviation(x, 0)) && isnan(stats_mad(x, 0)));
    CHECK(isnan(stats_mean(x, 0)) && isnan(stats_quantile(x, 0, 0.5)) && isnan(stats_cv(x, 0)));
}

static void test_quantiles(void)
{
    double x[400];
    for (int i = 0; i < 400; i++)
        x[i] = (i * 7) % 400 + 1; /* 1..400, shuffled */
    const struct {
        int n;
        double p, value;
    } cases[] = {
        {400, 0.5, 200}, {400, 0.95, 380}, {400, 0.99, 396}, {400, 1.0, 400}, {400, 0.001, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_NEAR(stats_quantile(x, cases[i].n, cases[i].p), cases[i].value, 0);
    CHECK_NEAR(stats_quantile(x, 1, 0.99), x[0], 0);
}

/* Few wild steps: what a time or a ratio cannot be bounds nothing. */
static void test_unbounded(void)
{
    const double wild[] = {1, 100}, calm[] = {50, 51, 50, 51};
    const double spike[] = {1, 1, 1, 1, 1, 1, 1, 400}; /* most resamples miss it */
    struct stats_interval x;
    stats_mean_interval(wild, 2, 0.95, 1, &x);
    CHECK(x.low < 0 && x.high > 100); /* a mean may be negative */
    stats_positive(&x);
    CHECK(isnan(x.low) && x.high > 100);
    stats_ratio_interval(spike, 8, calm, 4, 0.95, 1, &x);
    CHECK(isnan(x.low) && x.high > x.value);
    stats_ratio_interval(calm, 4, spike, 8, 0.95, 1, &x);
    CHECK(isnan(x.high) && x.low > 0 && x.low < x.value);
    x = (struct stats_interval){1, 0, INFINITY, 2};
    stats_positive(&x);
    CHECK(isnan(x.low) && isnan(x.high));
}

/* "p95 has an interval only from 72 steps, p99 from 368." */
static void test_quantile_interval(void)
{
    double x[1000];
    const struct {
        int n;
        double p;
        bool has;
    } cases[] = {{71, 0.95, false}, {72, 0.95, true}, {367, 0.99, false}, {368, 0.99, true}};
    for (int i = 0; i < 1000; i++)
        x[i] = i;
    struct stats_interval q;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        stats_quantile_interval(x, cases[i].n, cases[i].p, 0.95, &q);
        CHECK(!isnan(q.high) == cases[i].has);
        CHECK(!isnan(q.low));
    }
    stats_quantile_interval(x, 1, 0.95, 0.95, &q);
    CHECK(isnan(q.low) && isnan(q.high) && q.n == 1);
    int covered = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        for (uint64_t i = 0; i < 100; i++)
            x[i] = rng_uniform(rng_key(seed, "quantile"), i);
        stats_quantile_interval(x, 100, 0.95, 0.95, &q);
        covered += q.low <= 0.95 && 0.95 <= q.high;
    }
    printf("# p95 of 100 uniforms: covered %.1f %%\n", 100.0 * covered / SEEDS);
    CHECK(covered >= 945);
}

static void test_tau(void)
{
    static double x[200000];
    ar1(x, 200000, 0.8, 0, 1, 5);
    CHECK_NEAR(stats_tau(x, 200000), 4.5, 0.25); /* 1/2 + phi / (1 - phi) */
    double around_0 = stats_tau(x, 20000);
    for (int i = 0; i < 20000; i++)
        x[i] += 1000; /* wherever the mean is */
    CHECK_NEAR(stats_tau(x, 20000), around_0, 1e-6);
    ar1(x, 200000, 0.0, 0, 1, 6);
    CHECK_NEAR(stats_tau(x, 200000), 0.5, 0.02);
    for (int i = 0; i < 100; i++)
        x[i] = 7;
    CHECK_NEAR(stats_tau(x, 100), 0.5, 0);
    for (int i = 0; i < 100; i++)
        x[i] = i; /* a trend has hardly more than one sample */
    CHECK(stats_tau(x, 100) > 25 && stats_tau(x, 100) <= 50);
}

/* phi = 0.8, n = 400: the self-test of the formulas page. */
static void test_mean_coverage(void)
{
    const struct {
        double phi;
        int n, least;
    } cases[] = {{0.8, N, 900}, {0.0, N, 930}, {0.0, 10, 930}, {0.8, 100, 850}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        int covered = 0;
        double x[N], width = 0;
        struct stats_interval mean;
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            ar1(x, cases[c].n, cases[c].phi, 10, 1, rng_key(seed, "coverage"));
            stats_mean_interval(x, cases[c].n, 0.95, seed, &mean);
            covered += mean.low <= 10 && 10 <= mean.high;
            width += (mean.high - mean.low) / 2 / SEEDS;
        }
        double exact = 1.96 / (1 - cases[c].phi) / sqrt(cases[c].n);
        printf("# AR(1) phi %.1f, n %d: covered %.1f %%, half width %.2f of the ideal\n",
               cases[c].phi, cases[c].n, 100.0 * covered / SEEDS, width / exact);
        CHECK(covered >= cases[c].least);
        CHECK(width < 2.0 * exact); /* covering by being huge is no merit */
    }
}

static void test_mean_interval_edges(void)
{
    const double x[] = {5, 5, 5, 5}, pair[] = {1, 3};
    struct stats_interval a, b;
    stats_mean_interval(x, 0, 0.95, 1, &a);
    CHECK(isnan(a.value) && isnan(a.low) && isnan(a.high) && a.n == 0);
    stats_mean_interval(x, 1, 0.95, 1, &a);
    CHECK(a.value == 5 && isnan(a.low) && isnan(a.high) && a.n == 1);
    stats_mean_interval(x, 4, 0.95, 1, &a);
    CHECK(a.low == 5 && a.high == 5);
    stats_mean_interval(pair, 2, 0.95, 1, &a);
    CHECK(a.value == 2 && a.low < 1 && a.high > 3);
    double series[N];
    ar1(series, N, 0.5, 3, 0.1, 9);
    stats_mean_interval(series, N, 0.95, 42, &a);
    stats_mean_interval(series, N, 0.95, 42, &b);
    CHECK(memcmp(&a, &b, sizeof a) == 0);
}

static void test_ratio(void)
{
    int covered = 0;
    double x[N], y[N];
    struct stats_interval ratio;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        ar1(x, N, 0.8, 100, 1, rng_key(seed, "above"));
        ar1(y, N / 2, 0.5, 50, 1, rng_key(seed, "below"));
        stats_ratio_interval(x, N, y, N / 2, 0.95, seed, &ratio);
        covered += ratio.low <= 2 && 2 <= ratio.high;
    }
    printf("# ratio of two AR(1): covered %.1f %%\n", 100.0 * covered / SEEDS);
    CHECK(covered >= 900);
    stats_ratio_interval(x, N, y, 0, 0.95, 1, &ratio);
    CHECK(isnan(ratio.value));
    stats_ratio_interval(x, N, y, 1, 0.95, 1, &ratio);
    CHECK_NEAR(ratio.value, stats_mean(x, N) / y[0], 1e-12);
    CHECK(isnan(ratio.low));
}

/* Launches differ more than steps do: an interval of one launch misses, one over launches does not. */
static void test_launches(void)
{
    enum { LAUNCHES = 4, STEPS = 100 };
    static double x[LAUNCHES][STEPS], y[LAUNCHES][STEPS];
    struct stats_series num[LAUNCHES], den[LAUNCHES];
    int covered = 0, alone = 0, paired = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        for (uint64_t i = 0; i < LAUNCHES; i++) {
            double shift = 1 + 0.02 * (double)rng_normal(rng_key(seed, "launch"), i);
            ar1(x[i], STEPS, 0.5, 100 * shift, 0.5, rng_key(seed + i * SEEDS, "num"));
            ar1(y[i], STEPS, 0.5, 50 * shift, 0.25, rng_key(seed + i * SEEDS, "den"));
            num[i] = (struct stats_series){x[i], STEPS};
            den[i] = (struct stats_series){y[i], STEPS};
        }
        struct stats_interval all, one, ratio;
        stats_launches_interval(num, LAUNCHES, 0.95, seed, &all);
        stats_launches_interval(num, 1, 0.95, seed, &one);
        stats_launches_ratio(num, LAUNCHES, den, LAUNCHES, true, 0.95, seed, &ratio);
        covered += all.low <= 100 && 100 <= all.high;
        alone += one.low <= 100 && 100 <= one.high;
        /* The shift is common to both sides: pairing takes it out of the ratio. */
        paired += ratio.low <= 2 && 2 <= ratio.high && ratio.high - ratio.low < 0.02;
        CHECK(all.n == LAUNCHES * STEPS);
    }
    printf("# 4 launches: covered %.1f %%, one alone %.1f %%, paired ratio %.1f %%\n",
           100.0 * covered / SEEDS, 100.0 * alone / SEEDS, 100.0 * paired / SEEDS);
    CHECK(covered >= 920 && alone < 500 && paired >= 900);
}

/* How often the interval of a ratio of two means of launches that no side shares holds the truth. */
static double unpaired_share(int n_num, int n_den)
{
    enum { LAUNCHES = 5, STEPS = 40 };
    static double x[2 * LAUNCHES][STEPS];
    struct stats_series series[2 * LAUNCHES];
    int covered = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct stats_interval ratio;
        for (uint64_t i = 0; i < (uint64_t)(n_num + n_den); i++) {
            double shift = 1 + 0.02 * (double)rng_normal(rng_key(seed, "apart"), i);
            ar1(x[i], STEPS, 0.5, 100 * shift, 0.5, rng_key(seed + i * SEEDS, "steps"));
            series[i] = (struct stats_series){x[i], STEPS};
        }
        stats_launches_ratio(series, n_num, series + n_num, n_den, false, 0.95, seed, &ratio);
        covered += ratio.low <= 1 && 1 <= ratio.high;
    }
    printf("# %d launches over %d others: covered %.1f %%\n", n_num, n_den,
           100.0 * covered / SEEDS);
    return (double)covered / SEEDS;
}

/* Two jobs have no launch in common, and both their means vary between launches. */
static void test_unpaired_ratio(void)
{
    CHECK(unpaired_share(3, 3) >= 0.92);
    CHECK(unpaired_share(5, 5) >= 0.92);
    CHECK(unpaired_share(3, 1) >= 0.92);
    CHECK(unpaired_share(2, 4) >= 0.92);
    /* By hand, launches of one value: log spreads 0.02 and 0.04, Welch's freedom 50 / 17, t 3.2206. */
    const double a[] = {100 * exp(-0.02), 100, 100 * exp(0.02)};
    const double b[] = {exp(-0.04), 1, exp(0.04)};
    struct stats_series num[3], den[3];
    struct stats_interval ratio;
    for (int i = 0; i < 3; i++) {
        num[i] = (struct stats_series){&a[i], 1};
        den[i] = (struct stats_series){&b[i], 1};
    }
    stats_launches_ratio(num, 3, den, 3, false, 0.95, 1, &ratio);
    CHECK_NEAR(log(ratio.high / ratio.value), 3.2206 * sqrt(0.002 / 3), 1e-4);
    stats_launches_ratio(num, 3, den, 1, false, 0.95, 1, &ratio); /* t of 2 */
    CHECK_NEAR(log(ratio.value / ratio.low), 4.3026527 * 0.02 * sqrt(1.0 / 3 + 1), 1e-6);
    stats_launches_ratio(num, 2, den, 2, false, 0.95, 1, &ratio);
    CHECK(isnan(ratio.low) && isnan(ratio.high));
}

static double share_found(double phi, int n, bool heavy)
{
    double x[N];
    int found = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        uint64_t key = rng_key(seed, "stationary");
        ar1(x, n, phi, 100, 1, key);
        for (int i = 0; heavy && i < n; i++) /* one in a hundred takes half as long again */
            x[i] += rng_below(key ^ 77, (uint64_t)i, 100) == 0 ? 50 : 0;
        found += stats_warm_up(x, n) > 0;
    }
    printf("# no warm-up, phi %.1f, n %d%s: found in %.1f %%\n", phi, n, heavy ? ", outliers" : "",
           100.0 * found / SEEDS);
    return (double)found / SEEDS;
}

static void test_no_warm_up(void)
{
    double x[N] = {0};
    CHECK(share_found(0.0, N, false) <= 0.01);
    CHECK(share_found(0.0, 40, false) <= 0.02);
    CHECK(share_found(0.5, N, false) <= 0.02);
    CHECK(share_found(0.8, N, false) <= 0.05);
    CHECK(share_found(0.0, N, true) <= 0.03);
    for (int i = 0; i < N; i++)
        x[i] = 3.5;
    CHECK_EQ(stats_warm_up(x, N), 0);
    CHECK_EQ(stats_warm_up(x, 0), 0);
    CHECK_EQ(stats_warm_up(x, 7), 0);
}

static void test_planted_warm_up(void)
{
    double x[N];
    const struct {
        int n, length;
        double height; /* in sigma */
        bool decays;
        int slack; /* samples */
    } cases[] = {{100, 1, 50, false, 2}, {100, 5, 20, false, 2},  {400, 60, 5, false, 8},
                 {40, 8, 30, false, 2},  {200, 20, 40, true, 20}, {200, 10, -10, false, 3}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        int right = 0;
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            ar1(x, cases[c].n, 0.3, 100, 1, rng_key(seed, "planted"));
            for (int i = 0; i < cases[c].length; i++)
                x[i] +=
                    cases[c].height * (cases[c].decays ? 1.0 - i / (double)cases[c].length : 1.0);
            int64_t cut = stats_warm_up(x, cases[c].n);
            right += llabs(cut - cases[c].length) <= cases[c].slack;
        }
        printf("# warm-up of %d in %d, %+.0f sigma: placed in %.1f %%\n", cases[c].length,
               cases[c].n, cases[c].height, 100.0 * right / SEEDS);
        CHECK(right >= 900);
    }
    ar1(x, N, 0.0, 100, 1, 3);
    x[0] = x[1] = 200;
    x[150] = 300; /* an outlier later on moves nothing */
    CHECK_EQ(stats_warm_up(x, N), 2);
}

int main(void)
{
    test_moments();
    test_quantiles();
    test_quantile_interval();
    test_unbounded();
    test_tau();
    test_mean_coverage();
    test_mean_interval_edges();
    test_ratio();
    test_launches();
    test_unpaired_ratio();
    test_no_warm_up();
    test_planted_warm_up();
    return test_end();
}
