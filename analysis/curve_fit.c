#include "analysis/curve_fit.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"

void curve_fit_release(struct curve_fit *fit)
{
    forecaster_release(&fit->forecaster);
    regime_release(&fit->regime);
    *fit = (struct curve_fit){0};
}

const char *curve_fit_counts(const struct curve_fit *fit)
{
    return fit->regime.in_nodes ? "nodes" : "devices";
}

const char *curve_fit_unit(const struct curve_fit *fit)
{
    return series_rate_unit(fit->series->rate);
}

static int fit_laws(struct curve_fit *out, const struct fit_data *data, unsigned asked)
{
    for (int i = 0; i < n_laws; i++) {
        bool allowed = laws[i].n_parameters < data->n_points ||
                       (laws[i].in_forecast && laws[i].n_parameters == data->n_points);
        if (asked ? !(asked & 1u << i) : !allowed)
            continue;
        int rc = fit_law(&out->fits[out->n_fits++], &laws[i], data);
        if (rc != 0)
            return rc;
    }
    return 0;
}

/* What the forecast would have said about the last point without it. */
static double forecast_last(const struct forecast_data *about)
{
    struct forecast_data fewer = *about;
    struct forecaster f;
    int last = about->fit.n_points - 1;
    double sum = 0.0;
    int count = 0;
    fewer.fit.n_points = last;
    fewer.replicates = 1;
    if (last < 2)
        return NAN;
    if (forecaster_init(&f, &fewer) != 0) {
        fail_clear();
        return NAN;
    }
    for (int i = 0; i < f.n_fits; i++)
        if (f.fits[i].law->in_forecast) {
            sum += log(fit_rate(&f.fits[i], about->fit.n[last]));
            count++;
        }
    forecaster_release(&f);
    return 100.0 * (exp(sum / count) / about->fit.rate[last] - 1.0);
}

static void predict(struct curve_fit *out, const struct curve_fit_options *options)
{
    double largest = out->regime.n[out->regime.n_points - 1];
    int n = options->n_predict > 0 ? options->n_predict : 2;
    for (int i = 0; i < n; i++) {
        double size = options->n_predict > 0 ? options->predict[i] : largest * (i == 0 ? 2 : 4);
        if (size <= out->regime.most)
            forecast_at(&out->forecaster, size, &out->forecasts[out->n_forecasts++]);
        else if (options->n_predict > 0)
            out->crossing[out->n_crossing++] = size;
    }
}

int curve_fit_init(struct curve_fit *out, const struct series *series, struct regime *regime,
                   const struct curve_fit_options *options)
{
    int rc;
    *out = (struct curve_fit){.series = series, .regime = *regime};
    *regime = (struct regime){0};
    struct fit_data data = {.n_points = out->regime.n_points,
                            .n = out->regime.n,
                            .rate = out->regime.rate,
                            .residual = options->residual,
                            .weak = series->mode == SERIES_WEAK};
    struct forecast_data about = {.fit = data,
                                  .spread = out->regime.spread,
                                  .floors = forecast_floors,
                                  .level = 0.95,
                                  .replicates = FORECAST_REPLICATES,
                                  .seed = options->seed};
    TRY(forecaster_init(&out->forecaster, &about));
    TRY(fit_laws(out, &data, options->laws));
    out->last_pct = forecast_last(&about);
    predict(out, options);
    return 0;
out:
    curve_fit_release(out);
    return rc;
}

static bool note_points(const struct curve_fit *f, char *text, size_t size)
{
    int n = f->regime.n_points;
    if (n < 6)
        snprintf(text, size,
                 "%d points: what fits USL asks for 6, Extra-P for 5; parameters say little, the "
                 "forecast rests on how such curves went on elsewhere",
                 n);
    return n < 6;
}

static bool note_one_node(const struct curve_fit *f, char *text, size_t size)
{
    if (f->regime.takes_one_node)
        snprintf(
            text, size,
            "fewer than %d points on two nodes and more: the full node is taken along, and the "
            "step from no network to a network is in the fit",
            FORECAST_POINTS);
    return f->regime.takes_one_node;
}

static bool note_inside(const struct curve_fit *f, char *text, size_t size)
{
    if (f->regime.n_one_node > 0)
        snprintf(text, size, "%d point%s of one node in another regime: no network there",
                 f->regime.n_one_node, f->regime.n_one_node == 1 ? "" : "s");
    return f->regime.n_one_node > 0;
}

static bool note_declared(const struct curve_fit *f, char *text, size_t size)
{
    if (f->regime.kind == REGIME_DECLARED)
        snprintf(
            text, size,
            "the source does not say how many nodes a point had: if N crosses from one node to "
            "several, these laws hold for neither");
    return f->regime.kind == REGIME_DECLARED;
}

static bool note_left_out(const struct curve_fit *f, char *text, size_t size)
{
    if (f->regime.n_left_out > 0)
        snprintf(text, size, "%d point%s left out: invalid, or more ranks than cores",
                 f->regime.n_left_out, f->regime.n_left_out == 1 ? "" : "s");
    return f->regime.n_left_out > 0;
}

static bool note_emulated(const struct curve_fit *f, char *text, size_t size)
{
    int n = 0;
    for (int i = 0; i < f->regime.n_points; i++)
        n += f->regime.points[i]->emulated;
    if (n > 0)
        snprintf(text, size,
                 "EMULATED NODES at %d of %d points: these laws are about one host, no network", n,
                 f->regime.n_points);
    return n > 0;
}

static bool note_unsettled(const struct curve_fit *f, char *text, size_t size)
{
    int n = 0;
    for (int i = 0; i < f->regime.n_points; i++)
        n += f->regime.points[i]->unsettled;
    if (n > 0)
        snprintf(text, size,
                 "unsettled at %d of %d points: their intervals are wider than the study asked for",
                 n, f->regime.n_points);
    return n > 0;
}

static bool note_single(const struct curve_fit *f, char *text, size_t size)
{
    int launches = 0, spread = 0;
    for (int i = 0; i < f->regime.n_points; i++) {
        launches += f->regime.spread[i].launch > 0.0;
        spread += f->regime.spread[i].error > 0.0;
    }
    if (launches == f->regime.n_points)
        return false;
    snprintf(text, size,
             spread == 0 ? "exact single values: intervals come from residuals and the floor alone"
                         : "fewer than two launches of a point: intervals cover variation within a "
                           "launch, residuals and the floor");
    return true;
}

static bool note_crossing(const struct curve_fit *f, char *text, size_t size)
{
    size_t used;
    if (f->n_crossing == 0)
        return false;
    used = (size_t)snprintf(text, size, "not said: ");
    for (int i = 0; i < f->n_crossing && used < size; i++)
        used +=
            (size_t)snprintf(text + used, size - used, "%s%g", i > 0 ? ", " : "", f->crossing[i]);
    if (used < size)
        snprintf(text + used, size - used,
                 " %s: more than a node has, and a curve inside one node says nothing across nodes",
                 curve_fit_counts(f));
    return true;
}

static bool note_bounds(const struct curve_fit *f, char *text, size_t size)
{
    size_t used = 0;
    for (int i = 0; i < f->n_fits; i++)
        for (int j = 0; j < f->fits[i].law->n_parameters && used < size; j++)
            if (f->fits[i].parameters[j].at_bound)
                used += (size_t)snprintf(text + used, size - used, "%s%s of %s",
                                         used > 0 ? ", " : "at the bound 0: ",
                                         f->fits[i].law->parameters[j].name, f->fits[i].law->name);
    return used > 0;
}

bool curve_fit_note(const struct curve_fit *fit, int i, char *text, size_t size)
{
    static bool (*const all[])(const struct curve_fit *, char *, size_t) = {
        note_emulated, note_unsettled, note_points,   note_one_node, note_inside,
        note_declared, note_single,    note_left_out, note_crossing, note_bounds};
    for (size_t k = 0; k < sizeof all / sizeof *all; k++)
        if (all[k](fit, text, size) && i-- == 0)
            return true;
    return false;
}
