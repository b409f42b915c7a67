#include "analysis/backtest.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/stats.h"
#include "base/err.h"

void backtest_release(struct backtest *b)
{
    for (int i = 0; i < b->n_curves; i++) {
        free(b->curves[i].n);
        free(b->curves[i].rate);
    }
    free(b->curves);
    free(b->holdouts);
    *b = (struct backtest){0};
}

static struct backtest_curve *curve_called(struct backtest *b, const char *name, bool weak)
{
    for (int i = 0; i < b->n_curves; i++)
        if (strcmp(b->curves[i].name, name) == 0)
            return &b->curves[i];
    b->curves = must_grow(b->curves, (size_t)b->n_curves + 1, sizeof *b->curves);
    struct backtest_curve *curve = &b->curves[b->n_curves++];
    *curve = (struct backtest_curve){.weak = weak};
    snprintf(curve->name, sizeof curve->name, "%s", name);
    return curve;
}

static void add_point(struct backtest_curve *curve, double n, double rate)
{
    size_t count = (size_t)curve->n_points + 1;
    curve->n = must_grow(curve->n, count, sizeof *curve->n);
    curve->rate = must_grow(curve->rate, count, sizeof *curve->rate);
    curve->n[curve->n_points] = n;
    curve->rate[curve->n_points++] = rate;
}

/* A rate in whatever unit: a curve is only compared with itself. */
static bool rate_of(const char *quantity, double n, bool weak, double value, double *rate)
{
    if (strcmp(quantity, "step_s") == 0)
        *rate = (weak ? n : 1.0) / value;
    else if (strcmp(quantity, "tflops_per_s_gpu") == 0 || strcmp(quantity, "mfu_pct") == 0)
        *rate = n * value;
    else
        return false;
    return true;
}

static int read_line(struct backtest *b, const char *path, int line, const char *text)
{
    char name[64], mode[16], quantity[24], rest;
    double n, value, rate;
    if (sscanf(text, "%63[^,],%15[^,],%lf,%23[^,],%lf %c", name, mode, &n, quantity, &value,
               &rest) != 5)
        return fail(FAIL_USAGE, "%s:%d: wanted curve,mode,n,quantity,value", path, line);
    bool weak = strcmp(mode, "weak") == 0;
    if (!(n > 0.0) || !(value > 0.0) || (!weak && strcmp(mode, "strong") != 0) ||
        !rate_of(quantity, n, weak, value, &rate))
        return fail(FAIL_USAGE,
                    "%s:%d: wanted strong or weak, positive numbers, and step_s, tflops_per_s_gpu "
                    "or mfu_pct",
                    path, line);
    add_point(curve_called(b, name, weak), n, rate);
    return 0;
}

int backtest_read(struct backtest *out, const char *path)
{
    char text[256];
    int line = 0, rc = 0;
    *out = (struct backtest){0};
    FILE *from = fopen(path, "r");
    if (from == NULL)
        return fail(FAIL_FILE, "%s: %s", path, strerror(errno));
    while (rc == 0 && fgets(text, sizeof text, from) != NULL) {
        text[strcspn(text, "\r\n")] = '\0';
        if (++line > 1 && text[0] != '\0' && text[0] != '#')
            rc = read_line(out, path, line, text);
    }
    fclose(from);
    if (rc != 0)
        backtest_release(out);
    return rc;
}

static double ensemble_of(const struct forecaster *f, double n)
{
    double sum = 0.0;
    int count = 0;
    for (int i = 0; i < f->n_fits; i++)
        if (f->fits[i].law->in_forecast) {
            sum += log(fit_rate(&f->fits[i], n));
            count++;
        }
    return exp(sum / count);
}

static void predict(struct backtest *b, const struct forecaster *f, int curve, int target)
{
    const struct backtest_curve *c = &b->curves[curve];
    struct forecast forecast;
    forecast_at(f, c->n[target], &forecast);
    b->holdouts = must_grow(b->holdouts, (size_t)b->n_holdouts + 1, sizeof *b->holdouts);
    struct backtest_holdout *h = &b->holdouts[b->n_holdouts++];
    *h = (struct backtest_holdout){.curve = curve,
                                   .n_fitted = f->data.fit.n_points,
                                   .label = forecast.label,
                                   .n = forecast.n,
                                   .factor = forecast.factor,
                                   .truth = c->rate[target],
                                   .value = ensemble_of(f, forecast.n),
                                   .low = forecast.low,
                                   .high = forecast.high,
                                   .envelope_low = forecast.envelope_low,
                                   .envelope_high = forecast.envelope_high};
    h->error = log(h->value / h->truth);
}

/* The floors of the other curves need their hold-outs: intervals are made without floors first. */
static void widen_to_floors(struct backtest *b, double level)
{
    for (int i = 0; i < b->n_holdouts; i++) {
        struct backtest_holdout *h = &b->holdouts[i];
        struct forecast_floor floors[FORECAST_FLOORS];
        if (isnan(h->low))
            continue;
        backtest_floors(b, h->curve, floors);
        for (int k = 0; k < FORECAST_FLOORS; k++) {
            double floor = level > 0.9 ? floors[k].at_95 : floors[k].at_90;
            if (floors[k].label != h->label)
                continue;
            h->low = fmin(h->low, h->value * exp(-floor));
            h->high = fmax(h->high, h->value * exp(floor));
        }
    }
}

int backtest_run(struct backtest *b, double level, int replicates)
{
    for (int i = 0; i < b->n_curves; i++) {
        const struct backtest_curve *c = &b->curves[i];
        for (int fitted = 2; fitted < c->n_points; fitted++) {
            struct forecast_data data = {.fit = {fitted, c->n, c->rate, FIT_RELATIVE, c->weak},
                                         .level = level,
                                         .replicates = replicates,
                                         .seed = 1};
            struct forecaster forecaster;
            int rc = forecaster_init(&forecaster, &data);
            if (rc != 0)
                return rc;
            for (int target = fitted; target < c->n_points; target++)
                predict(b, &forecaster, i, target);
            forecaster_release(&forecaster);
        }
    }
    widen_to_floors(b, level);
    return 0;
}

struct weighted {
    double value, weight;
};

static int by_value(const void *a, const void *b)
{
    double x = ((const struct weighted *)a)->value, y = ((const struct weighted *)b)->value;
    return (x > y) - (x < y);
}

/* The smallest value with at least the share p of the weight at or below it; sorts `w`. */
static double quantile(struct weighted *w, int n, double p)
{
    double total = 0.0, sum = 0.0;
    qsort(w, (size_t)n, sizeof *w, by_value);
    for (int i = 0; i < n; i++)
        total += w[i].weight;
    for (int i = 0; i < n; i++) {
        sum += w[i].weight;
        if (sum >= (p - 1e-9) * total)
            return w[i].value;
    }
    return NAN;
}

static bool counts(const struct backtest_holdout *h, enum forecast_label label, int without)
{
    return h->label == label && h->n_fitted >= FORECAST_POINTS && h->curve != without;
}

static void one_floor(const struct backtest *b, enum forecast_label label, int without,
                      struct forecast_floor *out)
{
    struct weighted *w = must_alloc((size_t)b->n_holdouts + 1, sizeof *w);
    *out = (struct forecast_floor){.label = label};
    for (int c = 0; c < b->n_curves; c++) {
        int first = out->n_holdouts, n;
        for (int i = 0; i < b->n_holdouts; i++)
            if (b->holdouts[i].curve == c && counts(&b->holdouts[i], label, without))
                w[out->n_holdouts++].value = fabs(b->holdouts[i].error);
        n = out->n_holdouts - first;
        out->n_curves += n > 0;
        for (int i = first; i < out->n_holdouts; i++)
            w[i].weight = 1.0 / n;
    }
    out->at_90 = quantile(w, out->n_holdouts, 0.90);
    out->at_95 = quantile(w, out->n_holdouts, 0.95);
    free(w);
}

void backtest_floors(const struct backtest *b, int without,
                     struct forecast_floor out[FORECAST_FLOORS])
{
    one_floor(b, FORECAST_X2, without, &out[0]);
    one_floor(b, FORECAST_X4, without, &out[1]);
}

double backtest_median_pct(const struct backtest *b, enum forecast_label label, bool two_points,
                           int *n)
{
    double *errors = must_alloc((size_t)b->n_holdouts + 1, sizeof *errors), median;
    *n = 0;
    for (int i = 0; i < b->n_holdouts; i++) {
        const struct backtest_holdout *h = &b->holdouts[i];
        if (h->label == label && (h->n_fitted == 2) == two_points)
            errors[(*n)++] = 100.0 * fabs(h->value / h->truth - 1.0);
    }
    median = stats_median(errors, *n);
    free(errors);
    return median;
}
