#include "analysis/forecast.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <gsl/gsl_randist.h>
#include <gsl/gsl_rng.h>
#include <gsl/gsl_sort.h>

#include "base/err.h"

static const char *const label_names[FORECAST_LABELS] = {
    "below", "measured", "interpolated", "extrapolated x2", "extrapolated x4", "extrapolated >x4"};

const char *forecast_label_name(enum forecast_label label)
{
    return label_names[label];
}

enum forecast_label forecast_label_of(const struct fit_data *data, double n)
{
    double largest = data->n[data->n_points - 1], slack = 1.0 + 1e-9;
    for (int i = 0; i < data->n_points; i++)
        if (fabs(n / data->n[i] - 1.0) < 1e-9)
            return FORECAST_MEASURED;
    if (n < data->n[0])
        return FORECAST_BELOW;
    if (n < largest)
        return FORECAST_INTERPOLATED;
    if (n <= 2.0 * largest * slack)
        return FORECAST_X2;
    return n <= 4.0 * largest * slack ? FORECAST_X4 : FORECAST_FAR;
}

static gsl_rng *rng_open(uint64_t seed)
{
    gsl_rng *rng = gsl_rng_alloc(gsl_rng_taus2);
    if (rng == NULL)
        die(FAIL_INTERNAL, "forecast: no memory for a random number generator");
    gsl_rng_set(rng, (unsigned long)((seed ^ (seed >> 32)) & 0xffffffffu));
    return rng;
}

/*
 * The scale of the residual, drawn as it may be after seeing `freedom` degrees of it: s sqrt(f /
 * chi2_f). A sum of it and a normal is Student's t.
 */
static double draw_scale(gsl_rng *rng, double rss, int freedom)
{
    return sqrt(rss / fmax(gsl_ran_chisq(rng, freedom), 1e-9));
}

/* Of residuals of log X; those of X itself are brought to it by the mean rate. */
static double log_squares(const struct fit *fit, const struct fit_data *data)
{
    double sum = 0.0;
    for (int i = 0; i < data->n_points; i++)
        sum += pow(log(fit_rate(fit, data->n[i]) / data->rate[i]), 2);
    return sum;
}

static double point_error(const struct forecast_data *data, int i, gsl_rng *rng)
{
    const struct forecast_spread *s = data->spread ? &data->spread[i] : NULL;
    if (s == NULL || !(s->error > 0.0))
        return 0.0;
    return s->error * sqrt(s->freedom / fmax(gsl_ran_chisq(rng, s->freedom), 1e-9));
}

static void draw_replicates(struct forecaster *f, const struct fit *fit, int band, gsl_rng *rng)
{
    const struct forecast_data *data = &f->data;
    int n = data->fit.n_points, count = data->replicates;
    double squares = log_squares(fit, &data->fit), *rate = must_alloc((size_t)n, sizeof *rate);
    double *scale = f->scale + (size_t)band * (size_t)count;
    for (int r = 0; r < count; r++) {
        struct fit_data moved = data->fit;
        scale[r] = draw_scale(rng, squares, fit->freedom);
        for (int i = 0; i < n; i++)
            rate[i] = fit_rate(fit, data->fit.n[i]) *
                      exp(gsl_ran_gaussian(rng, fmax(scale[r], point_error(data, i, rng))));
        moved.rate = rate;
        if (fit_search(&f->replicates[band][r], fit->law, &moved, fit->p) != 0) {
            fail_clear();
            f->replicates[band][r] = *fit;
        }
    }
    free(rate);
}

static void open_bands(struct forecaster *f)
{
    size_t count = (size_t)f->data.replicates;
    gsl_rng *rng = rng_open(f->data.seed);
    f->scale = must_alloc(count * LAWS_MOST + 1, sizeof *f->scale);
    for (int i = 0; i < f->n_fits; i++) {
        if (!f->fits[i].law->in_forecast || f->fits[i].freedom < 1)
            continue;
        f->bands[f->n_bands] = f->fits[i].law;
        f->replicates[f->n_bands] = must_alloc(count + 1, sizeof **f->replicates);
        draw_replicates(f, &f->fits[i], f->n_bands++, rng);
    }
    gsl_rng_free(rng);
}

int forecaster_init(struct forecaster *out, const struct forecast_data *data)
{
    int n = data->fit.n_points, rc;
    *out = (struct forecaster){.data = *data};
    if (n < 2)
        return fail(FAIL_USAGE,
                    "forecast: one point is no curve: nothing can be said about another N; measure "
                    "at least %d",
                    FORECAST_POINTS);
    TRY(fit_check(&data->fit));
    for (int i = 0; i < n_laws; i++) {
        const struct law *law = &laws[i];
        bool enough = law->n_parameters < n || (law->in_forecast && law->n_parameters == n);
        if (enough)
            TRY(fit_law(&out->fits[out->n_fits++], law, &data->fit));
    }
    if (n >= FORECAST_POINTS)
        open_bands(out);
    return 0;
out:
    forecaster_release(out);
    return rc;
}

void forecaster_release(struct forecaster *f)
{
    for (int i = 0; i < f->n_bands; i++)
        free(f->replicates[i]);
    free(f->scale);
    *f = (struct forecaster){0};
}

static void find_envelope(const struct forecaster *f, double n, struct forecast *out)
{
    for (int i = 0; i < f->n_fits; i++) {
        double rate = fit_rate(&f->fits[i], n);
        if (!isfinite(rate) || !(rate > 0.0))
            continue;
        if (isnan(out->envelope_low) || rate < out->envelope_low) {
            out->envelope_low = rate;
            out->lowest = f->fits[i].law;
        }
        if (isnan(out->envelope_high) || rate > out->envelope_high) {
            out->envelope_high = rate;
            out->highest = f->fits[i].law;
        }
    }
}

static double ensemble(const struct forecaster *f, double n)
{
    double sum = 0.0;
    int count = 0;
    for (int i = 0; i < f->n_fits; i++)
        if (f->fits[i].law->in_forecast) {
            sum += log(fit_rate(&f->fits[i], n));
            count++;
        }
    return count > 0 ? exp(sum / count) : (double)NAN;
}

/* Standard deviation of the log of one launch: the largest that a point showed. */
static double launch_spread(const struct forecast_data *data)
{
    double largest = 0.0;
    for (int i = 0; data->spread && i < data->fit.n_points; i++)
        largest = fmax(largest, data->spread[i].launch);
    return largest;
}

static void widen_by_band(const struct forecaster *f, int band, double n, struct forecast *out)
{
    int count = f->data.replicates;
    double launch = launch_spread(&f->data), tail = (1.0 - f->data.level) / 2.0;
    double *draws = must_alloc((size_t)count, sizeof *draws);
    gsl_rng *rng = rng_open(f->data.seed + 1);
    for (int r = 0; r < count; r++) {
        double scale = fmax(f->scale[band * count + r], launch);
        draws[r] = log(fit_rate(&f->replicates[band][r], n)) + gsl_ran_gaussian(rng, scale);
    }
    gsl_rng_free(rng);
    gsl_sort(draws, 1, (size_t)count);
    out->low = fmin(out->low, exp(draws[(int)(tail * (count - 1))]));
    out->high = fmax(out->high, exp(draws[(int)ceil((1.0 - tail) * (count - 1))]));
    free(draws);
}

static double floor_of(const struct forecast_data *data, enum forecast_label label)
{
    for (int i = 0; data->floors && i < FORECAST_FLOORS; i++)
        if (data->floors[i].label == label)
            return data->level > 0.9 ? data->floors[i].at_95 : data->floors[i].at_90;
    return 0.0;
}

static const char *why_no_value(const struct forecaster *f, enum forecast_label label)
{
    if (f->data.fit.n_points < FORECAST_POINTS)
        return "two points determine two parameters and leave nothing to judge them by";
    if (label == FORECAST_FAR)
        return "more than 4 times the largest N that was measured";
    return label == FORECAST_BELOW ? "below the smallest N that was measured" : NULL;
}

void forecast_at(const struct forecaster *f, double n, struct forecast *out)
{
    const struct fit_data *data = &f->data.fit;
    *out = (struct forecast){.n = n,
                             .factor = n / data->n[data->n_points - 1],
                             .label = forecast_label_of(data, n),
                             .value = NAN,
                             .low = NAN,
                             .high = NAN,
                             .envelope_low = NAN,
                             .envelope_high = NAN};
    find_envelope(f, n, out);
    out->why = why_no_value(f, out->label);
    if (out->why)
        return;
    out->value = out->low = out->high = ensemble(f, n);
    out->floor = floor_of(&f->data, out->label);
    for (int band = 0; band < f->n_bands; band++)
        widen_by_band(f, band, n, out);
    out->low = fmin(out->low, out->value * exp(-out->floor));
    out->high = fmax(out->high, out->value * exp(out->floor));
}
