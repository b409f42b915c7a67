#include "analysis/stats.h"

#include <math.h>
#include <stdlib.h>

#include <gsl/gsl_cdf.h>
#include <gsl/gsl_rng.h>
#include <gsl/gsl_sort.h>

#include "base/err.h"

/* BLOCKS: most blocks that a resample of one side draws. Longer blocks than correlation asks for
 * keep all of it; with this many of them their spread is known well enough, and ten million steps
 * cost no more than ten thousand. A launch always has BLOCKS_LEAST. */
enum { RESAMPLES = 2000, BLOCKS = 512, BLOCKS_LEAST = 16 };

/* A series made ready for resampling. */
struct sample {
    int64_t n, block;
    double mean, error; /* of the mean, by the effective number of samples */
    double freedom;     /* of that error */
    double widen;       /* factor on deviations: what few blocks of finite length lose */
    double *prefix;     /* [n + 1] sums of deviations from the mean */
};

static void sample_init(struct sample *s, const double *x, int64_t n, int64_t most_blocks)
{
    double tau = stats_tau(x, n), size = (double)n;
    double effective = fmax(size / (2.0 * tau), 1.0);
    double deviation = stats_deviation(x, n) * sqrt(effective / fmax(effective - 1.0, 0.5));
    *s = (struct sample){.n = n, .mean = stats_mean(x, n)};
    s->error = deviation / sqrt(effective);
    s->freedom = fmax(effective - 1.0, 1.0);
    s->block = (int64_t)ceil(fmax(cbrt(size), fmax(3.0 * tau, size / (double)most_blocks)));
    if (s->block > n)
        s->block = n;
    /* A block of length b sees the share 1 - tau / b of the variance of the mean. */
    double blocks = fmax(size / (double)s->block, 2.0);
    s->widen = sqrt(blocks / (blocks - 1.0) / (1.0 - (tau - 0.5) / (double)s->block));
    s->prefix = must_alloc((size_t)n + 1, sizeof *s->prefix);
    for (int64_t i = 0; i < n; i++)
        s->prefix[i + 1] = s->prefix[i] + (x[i] - s->mean);
}

static void sample_release(struct sample *s)
{
    free(s->prefix);
    *s = (struct sample){0};
}

/* The mean of n values taken as circular blocks. */
static double sample_draw(const struct sample *s, gsl_rng *rng)
{
    double sum = 0.0;
    for (int64_t left = s->n; left > 0;) {
        int64_t length = left < s->block ? left : s->block;
        int64_t from = (int64_t)(gsl_rng_uniform(rng) * (double)s->n), to = from + length;
        if (to <= s->n)
            sum += s->prefix[to] - s->prefix[from];
        else
            sum += s->prefix[s->n] - s->prefix[from] + s->prefix[to - s->n];
        left -= length;
    }
    return s->mean + s->widen * sum / (double)s->n;
}

/* The launches of one side. */
struct side {
    int n;
    struct sample *samples; /* [n], owned */
};

static void side_release(struct side *side)
{
    for (int i = 0; i < side->n; i++)
        sample_release(&side->samples[i]);
    free(side->samples);
    *side = (struct side){0};
}

static void side_init(struct side *side, const struct stats_series *series, int n)
{
    *side = (struct side){.samples = must_alloc((size_t)n + 1, sizeof *side->samples)};
    int64_t most = n > BLOCKS / BLOCKS_LEAST ? BLOCKS_LEAST : BLOCKS / (n > 0 ? n : 1);
    for (int i = 0; i < n; i++)
        if (series[i].n > 0)
            sample_init(&side->samples[side->n++], series[i].x, series[i].n, most);
}

static double side_mean(const struct side *side)
{
    double sum = 0.0;
    for (int i = 0; i < side->n; i++)
        sum += side->samples[i].mean;
    return sum / side->n;
}

static int64_t side_count(const struct side *side)
{
    int64_t n = 0;
    for (int i = 0; i < side->n; i++)
        n += side->samples[i].n;
    return n;
}

/* Variance of the mean of means, and its degrees of freedom (Welch, Satterthwaite). */
static double side_variance(const struct side *side, double *freedom)
{
    double sum = 0.0, squares = 0.0;
    for (int i = 0; i < side->n; i++) {
        double part = pow(side->samples[i].error / side->n, 2);
        sum += part;
        squares += part * part / side->samples[i].freedom;
    }
    *freedom = squares > 0.0 ? sum * sum / squares : 1e6;
    return sum;
}

/* With few launches each one is taken as it is; from three on they are drawn too. */
static int pick(gsl_rng *rng, int i, int n)
{
    return n < 3 ? i : (int)gsl_rng_uniform_int(rng, (unsigned long)n);
}

static double side_draw(const struct side *side, gsl_rng *rng)
{
    double sum = 0.0;
    for (int i = 0; i < side->n; i++)
        sum += sample_draw(&side->samples[pick(rng, i, side->n)], rng);
    return sum / side->n;
}

/* Resampled steps of great spread may sum to nothing: then the ratio has no upper end. */
static double draw_ratio(double above, double below)
{
    return below > 0.0 ? above / below : (double)INFINITY;
}

static double paired_draw(const struct side *num, const struct side *den, gsl_rng *rng)
{
    double above = 0.0, below = 0.0;
    for (int i = 0; i < num->n; i++) {
        int launch = pick(rng, i, num->n);
        above += sample_draw(&num->samples[launch], rng);
        below += sample_draw(&den->samples[launch], rng);
    }
    return draw_ratio(above, below);
}

static gsl_rng *rng_open(uint64_t seed)
{
    gsl_rng *rng = gsl_rng_alloc(gsl_rng_taus2);
    if (rng == NULL)
        die(FAIL_INTERNAL, "stats: no memory for a random number generator");
    gsl_rng_set(rng, (unsigned long)((seed ^ (seed >> 32)) & 0xffffffffu));
    return rng;
}

static void widen_by(struct stats_interval *out, double low, double high)
{
    out->low = isnan(out->low) ? low : fmin(out->low, low);
    out->high = isnan(out->high) ? high : fmax(out->high, high);
}

void stats_positive(struct stats_interval *interval)
{
    if (!(interval->low > 0.0) || !isfinite(interval->low))
        interval->low = NAN;
    if (!(interval->high > 0.0) || !isfinite(interval->high))
        interval->high = NAN;
}

static double t_value(double level, double freedom)
{
    return gsl_cdf_tdist_Pinv(0.5 + level / 2.0, fmax(freedom, 1.0));
}

void stats_t_interval(const double *x, int64_t n, double level, struct stats_interval *out)
{
    *out = (struct stats_interval){n > 0 ? stats_mean(x, n) : (double)NAN, NAN, NAN, n};
    if (n < 2)
        return;
    double half = t_value(level, (double)n - 1.0) * stats_deviation(x, n) / sqrt((double)n - 1.0);
    out->low = out->value - half;
    out->high = out->value + half;
}

/* Percentiles of the resamples, sorted here. */
static void widen_by_resamples(struct stats_interval *out, double *draws, double level)
{
    double tail = (1.0 - level) / 2.0;
    gsl_sort(draws, 1, RESAMPLES);
    widen_by(out, draws[(int)(tail * (RESAMPLES - 1))],
             draws[(int)ceil((1.0 - tail) * (RESAMPLES - 1))]);
}

static void widen_by_reach(struct stats_interval *out, double reach)
{
    widen_by(out, out->value * exp(-reach), out->value * exp(reach));
}

/* Of the logarithms of n values. */
static double log_variance(const double *values, int n)
{
    double sum = 0.0, squares = 0.0;
    for (int i = 0; i < n; i++)
        sum += log(values[i]) / n;
    for (int i = 0; i < n; i++)
        squares += pow(log(values[i]) - sum, 2);
    return squares / (n - 1);
}

/* Launches as samples: t on the logarithms of values that belong together. */
static void widen_by_launches(struct stats_interval *out, const double *values, int n, double level)
{
    widen_by_reach(out, t_value(level, n - 1) * sqrt(log_variance(values, n) / n));
}

void stats_launches_interval(const struct stats_series *series, int launches, double level,
                             uint64_t seed, struct stats_interval *out)
{
    struct side side;
    side_init(&side, series, launches);
    *out = (struct stats_interval){NAN, NAN, NAN, side_count(&side)};
    if (side.n > 0)
        out->value = side_mean(&side);
    if (side.n > 0 && out->n > side.n) {
        double freedom, *draws = must_alloc(RESAMPLES, sizeof *draws);
        double reach = sqrt(side_variance(&side, &freedom));
        reach *= t_value(level, freedom);
        widen_by(out, out->value - reach, out->value + reach);
        gsl_rng *rng = rng_open(seed);
        for (int i = 0; i < RESAMPLES; i++)
            draws[i] = side_draw(&side, rng);
        gsl_rng_free(rng);
        widen_by_resamples(out, draws, level);
        free(draws);
    }
    if (side.n >= 3) {
        double *means = must_alloc((size_t)side.n, sizeof *means);
        for (int i = 0; i < side.n; i++)
            means[i] = side.samples[i].mean;
        widen_by_launches(out, means, side.n, level);
        free(means);
    }
    side_release(&side);
}

/* The t interval of log(num / den), from the errors within launches. */
static void widen_by_errors(struct stats_interval *out, const struct side *num,
                            const struct side *den, double level)
{
    double f_num, f_den;
    double v_num = side_variance(num, &f_num) / pow(side_mean(num), 2);
    double v_den = side_variance(den, &f_den) / pow(side_mean(den), 2);
    double v = v_num + v_den;
    double freedom = v > 0.0 ? v * v / (v_num * v_num / f_num + v_den * v_den / f_den) : 1e6;
    widen_by_reach(out, t_value(level, freedom) * sqrt(v));
}

static void widen_by_steps(struct stats_interval *out, const struct side *num,
                           const struct side *den, bool paired, double level, uint64_t seed)
{
    widen_by_errors(out, num, den, level);
    double *draws = must_alloc(RESAMPLES, sizeof *draws);
    gsl_rng *rng = rng_open(seed);
    for (int i = 0; i < RESAMPLES; i++)
        draws[i] = paired ? paired_draw(num, den, rng)
                          : draw_ratio(side_draw(num, rng), side_draw(den, rng));
    gsl_rng_free(rng);
    widen_by_resamples(out, draws, level);
    free(draws);
}

/* The ratio inside each launch. */
static void widen_by_pairs(struct stats_interval *out, const struct side *num,
                           const struct side *den, double level)
{
    double *ratios = must_alloc((size_t)num->n, sizeof *ratios);
    for (int i = 0; i < num->n; i++)
        ratios[i] = num->samples[i].mean / den->samples[i].mean;
    widen_by_launches(out, ratios, num->n, level);
    free(ratios);
}

/* Of the logarithm of one launch's mean. */
static double side_spread(const struct side *side)
{
    double *means = must_alloc((size_t)side->n, sizeof *means);
    for (int i = 0; i < side->n; i++)
        means[i] = side->samples[i].mean;
    double spread = log_variance(means, side->n);
    free(means);
    return spread;
}

/*
 * No launch in common: both means vary, each as launches of its side do (Welch, Satterthwaite). One
 * launch does not say how launches vary, and two hardly do: such a side takes the other's spread.
 */
static void widen_by_sides(struct stats_interval *out, const struct side *num,
                           const struct side *den, double level)
{
    const struct side *of_num = num->n >= 3 ? num : den, *of_den = den->n >= 3 ? den : num;
    double v_num = side_spread(of_num) / num->n, v_den = side_spread(of_den) / den->n;
    double v = v_num + v_den, freedom = of_num->n - 1;
    if (of_num != of_den && v > 0.0)
        freedom = v * v / (v_num * v_num / (num->n - 1) + v_den * v_den / (den->n - 1));
    widen_by_reach(out, t_value(level, freedom) * sqrt(v));
}

static void ratio_interval(const struct side *num, const struct side *den, bool paired,
                           double level, uint64_t seed, struct stats_interval *out)
{
    out->value = side_mean(num) / side_mean(den);
    if (side_count(num) > num->n && side_count(den) > den->n)
        widen_by_steps(out, num, den, paired, level, seed);
    if (paired && num->n >= 3)
        widen_by_pairs(out, num, den, level);
    else if (!paired && (num->n >= 3 || den->n >= 3))
        widen_by_sides(out, num, den, level);
}

void stats_launches_ratio(const struct stats_series *num, int n_num, const struct stats_series *den,
                          int n_den, bool paired, double level, uint64_t seed,
                          struct stats_interval *out)
{
    struct side above, below;
    side_init(&above, num, n_num);
    side_init(&below, den, n_den);
    int64_t n = side_count(&above) < side_count(&below) ? side_count(&above) : side_count(&below);
    *out = (struct stats_interval){NAN, NAN, NAN, n};
    paired = paired && above.n == n_num && below.n == n_den && n_num == n_den;
    if (above.n > 0 && below.n > 0)
        ratio_interval(&above, &below, paired, level, seed, out);
    stats_positive(out);
    side_release(&above);
    side_release(&below);
}

void stats_mean_interval(const double *x, int64_t n, double level, uint64_t seed,
                         struct stats_interval *out)
{
    struct stats_series series = {x, n};
    stats_launches_interval(&series, 1, level, seed, out);
}

void stats_ratio_interval(const double *num, int64_t n_num, const double *den, int64_t n_den,
                          double level, uint64_t seed, struct stats_interval *out)
{
    struct stats_series above = {num, n_num}, below = {den, n_den};
    stats_launches_ratio(&above, 1, &below, 1, true, level, seed, out);
}
