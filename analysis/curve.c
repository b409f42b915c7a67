#include "analysis/curve.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/err.h"

static const double level = 0.95;
static const struct stats_interval unknown = {NAN, NAN, NAN, 0};

static bool counts(const struct series_point *p)
{
    return p->valid && p->rate.value > 0.0;
}

/* Half width on a logarithmic scale of one side; NaN where an end is missing. */
static double log_reach(const struct stats_interval *x)
{
    return 0.5 * log(x->high / x->low);
}

/* X / X0 of two points; raw steps of both are resampled. */
static struct stats_interval rate_ratio(const struct series_point *p, const struct series_point *b,
                                        uint64_t seed)
{
    struct stats_interval out = {p->rate.value / b->rate.value, NAN, NAN,
                                 p->rate.n < b->rate.n ? p->rate.n : b->rate.n};
    if (p == b && !p->exact) {
        out.low = out.high = out.value;
        return out;
    }
    if (p->n_launches > 0 && b->n_launches > 0) {
        struct stats_interval times;
        stats_launches_ratio(b->launches, b->n_launches, p->launches, p->n_launches, false, level,
                             seed, &times);
        out.low = out.value * times.low / times.value;
        out.high = out.value * times.high / times.value;
        return out;
    }
    if (p == b)
        return out;
    double reach = hypot(log_reach(&p->rate), log_reach(&b->rate));
    out.low = out.value * exp(-reach);
    out.high = out.value * exp(reach);
    return out;
}

static struct stats_interval scaled(struct stats_interval x, double factor)
{
    return (struct stats_interval){x.value * factor, x.low * factor, x.high * factor, x.n};
}

/* Of work-normalised series: (W / W0) T0 / T, which is to W what X / X0 is to tokens. */
static struct stats_interval work_ratio(const struct series *s, const struct series_point *p,
                                        const struct series_point *b, uint64_t seed)
{
    struct stats_interval x = rate_ratio(p, b, seed);
    if (s->mode != SERIES_WORK)
        return x;
    double value = p->work / b->work * b->step_s.value / p->step_s.value;
    return scaled(x, value / x.value);
}

/* ((X / Xp) - 1) / ((N / Np) - 1), which grows with the ratio. */
static struct stats_interval marginal_of(struct stats_interval x, double steps_up)
{
    return (struct stats_interval){(x.value - 1.0) / (steps_up - 1.0),
                                   (x.low - 1.0) / (steps_up - 1.0),
                                   (x.high - 1.0) / (steps_up - 1.0), x.n};
}

static double known_or_one(double value)
{
    return isnan(value) ? 1.0 : value;
}

/* The work of the whole training in the unit of the rate: to the target, or what the source says. */
static double total_work(const struct series *s, const struct series_point *p)
{
    if (s->rate == SERIES_TOKENS)
        return isnan(p->tokens_total) ? p->samples_to_target * (double)p->sequence
                                      : p->tokens_total;
    return s->rate == SERIES_SAMPLES ? p->samples_to_target : (double)NAN;
}

/* What the rate would have delivered in the measured time is more than the work: the rest was lost. */
static double goodput_of(const struct series *s, const struct series_point *p)
{
    double derived = total_work(s, p) / (p->rate.value * p->time_to_work_s);
    return isnan(p->goodput) ? derived : p->goodput;
}

static double time_of(const struct series *s, const struct series_point *p)
{
    return isnan(p->time_to_work_s) ? total_work(s, p) / p->rate.value / known_or_one(p->goodput)
                                    : p->time_to_work_s;
}

static void fill_time_to_work(const struct series *s, const struct series_point *p,
                              const struct series_point *b, struct curve_point *out)
{
    double time = time_of(s, p), base_time = time_of(s, b);
    out->throughput_factor = out->efficiency.value;
    out->samples_factor = b->samples_to_target / p->samples_to_target;
    out->goodput_factor = goodput_of(s, p) / goodput_of(s, b);
    out->hours_to_work = time / 3600.0;
    out->time_to_work = base_time * b->n / (time * p->n);
    if (isnan(out->time_to_work) && !(isnan(out->samples_factor) && isnan(out->goodput_factor)))
        out->time_to_work = out->throughput_factor * known_or_one(out->samples_factor) *
                            known_or_one(out->goodput_factor);
}

static int previous_of(const struct series *s, int i)
{
    for (int j = i - 1; j >= 0; j--)
        if (counts(&s->points[j]) && s->points[j].n < s->points[i].n)
            return j;
    return -1;
}

struct curve_point *curve_of(const struct series *series, uint64_t seed)
{
    struct curve_point *out = must_alloc((size_t)series->n_points + 1, sizeof *out);
    int counting = 0;
    for (int i = 0; i < series->n_points; i++)
        counting += counts(&series->points[i]);
    for (int i = 0; i < series->n_points; i++) {
        const struct series_point *p = &series->points[i];
        out[i] = (struct curve_point){unknown, unknown, unknown, unknown, -1, -1,
                                      NAN,     NAN,     NAN,     NAN,     NAN};
        if (!counts(p) || series->base < 0 || counting < 2)
            continue;
        const struct series_point *b = &series->points[series->base];
        struct stats_interval x = work_ratio(series, p, b, seed + (uint64_t)i);
        out[i].base = series->base;
        if (series->mode != SERIES_WORK)
            out[i].speedup = x;
        out[i].efficiency = scaled(x, b->n / p->n);
        fill_time_to_work(series, p, b, &out[i]);
        if ((out[i].previous = previous_of(series, i)) < 0)
            continue;
        const struct series_point *q = &series->points[out[i].previous];
        x = work_ratio(series, p, q, seed + (uint64_t)i);
        out[i].ratio = scaled(x, q->n / p->n);
        out[i].marginal = marginal_of(x, p->n / q->n);
    }
    return out;
}
