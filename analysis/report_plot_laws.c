#include "analysis/report_plot_laws.h"

#include <math.h>

#include "analysis/curve_fit.h"
#include "analysis/report_laws.h"
#include "base/err.h"

enum { STEPS = 16 }; /* of a line, per part */

static void numbers(FILE *to, const double *x, int n)
{
    for (int i = 0; i < n; i++)
        if (isfinite(x[i]))
            fprintf(to, " %.9g", x[i]);
        else
            fputs(" NaN", to);
}

static void write_line(FILE *to, const struct curve_fit *fit, double from, double until,
                       double base)
{
    for (int i = 0; i <= STEPS; i++) {
        struct forecast f;
        double n = from * pow(until / from, (double)i / STEPS);
        forecast_at(&fit->forecaster, n, &f);
        double x[7] = {n, f.value, f.envelope_low, f.envelope_high};
        for (int c = 1; c < 4; c++)
            x[3 + c] = 100.0 * x[c] / (base * n);
        numbers(to, x, 7);
        fputc('\n', to);
    }
    fputs("END\n", to);
}

static void write_forecasts(FILE *to, const struct curve_fit *fit, double base)
{
    for (int i = 0; i < fit->n_forecasts; i++) {
        const struct forecast *f = &fit->forecasts[i];
        double each = 100.0 / (base * f->n);
        double rates[] = {f->n, f->value, f->low, f->high};
        double shares[] = {each * f->value, each * f->low, each * f->high};
        numbers(to, rates, 4);
        fprintf(to, " x%.3g", f->factor);
        numbers(to, shares, 3);
        fputc('\n', to);
    }
    fputs("END\n", to);
}

static void write_fit(FILE *to, const struct curve_fit *fit, int k, struct plot_laws *out)
{
    const struct series_point *b = &fit->series->points[fit->series->base];
    double first = fit->regime.n[0], last = fit->regime.n[fit->regime.n_points - 1];
    double base = b->rate.value / b->n, most = fmin(4.0 * last, fit->regime.most);
    int r = out->n++;
    fprintf(to, "$law_%d_%d << END\n", k, r);
    write_line(to, fit, first, last, base);
    out->regimes[r].beyond = most > last;
    if (most > last) {
        fprintf(to, "$beyond_%d_%d << END\n", k, r);
        write_line(to, fit, last, most, base);
    }
    out->regimes[r].forecasts = fit->n_forecasts > 0;
    if (fit->n_forecasts > 0) {
        fprintf(to, "$forecast_%d_%d << END\n", k, r);
        write_forecasts(to, fit, base);
    }
}

static void one_series(FILE *to, const struct series *series, uint64_t seed, int k,
                       struct plot_laws *out)
{
    struct curve_fit_options how = {.seed = seed};
    struct regime regimes[REGIMES];
    const char *why;
    int n;
    if (!series_fittable(series, &why) || series->base < 0 ||
        regime_find(regimes, &n, series, REGIME_AS_SERIES) != 0) {
        fail_clear();
        return;
    }
    for (int i = 0; i < n; i++) {
        struct curve_fit fit;
        if (regimes[i].n_points < REPORT_LAWS_POINTS || out->n == REPORT_PLOT_REGIMES) {
            regime_release(&regimes[i]);
        } else if (curve_fit_init(&fit, series, &regimes[i], &how) == 0) {
            write_fit(to, &fit, k, out);
            curve_fit_release(&fit);
        }
        fail_clear();
    }
}

void report_plot_laws_data(FILE *to, const struct report *report, int set, int ranks_per_node,
                           int k, struct plot_laws *out)
{
    struct series_set all = {0};
    *out = (struct plot_laws){0};
    series_from_scaling(&all, report->scaling, "curve", report->files[0]->path);
    for (int i = 0; i < all.n_series; i++)
        if (all.series[i].set == set && all.series[i].devices_per_node == ranks_per_node)
            one_series(to, &all.series[i], report->seed, k, out);
    series_set_release(&all);
}

static void shade(FILE *to, const char *block, int k, int r, const char *columns,
                  const char *opacity, const char *title)
{
    fprintf(to,
            ", \\\n    $%s_%d_%d using %s with filledcurves lc %d fs transparent solid %s noborder "
            "title '%s'",
            block, k, r, columns, k + 1, opacity, title);
}

static void line(FILE *to, const char *block, int k, int r, const char *columns, const char *dash,
                 const char *title)
{
    fprintf(to, ", \\\n    $%s_%d_%d using %s with lines dt %s lc %d title '%s'", block, k, r,
            columns, dash, k + 1, title);
}

void report_plot_laws(FILE *to, enum report_plot_panel panel, int k, const struct plot_laws *drawn,
                      bool titled)
{
    static const char *const means[] = {"1:2", "1:5"}, *const envelopes[] = {"1:3:4", "1:6:7"},
                             *const forecasts[] = {"1:2:3:4", "1:6:7:8"},
                             *const labels[] = {"1:2:5", "1:6:5"};
    for (int r = 0; r < drawn->n; r++) {
        bool first = titled && r == 0, beyond = drawn->regimes[r].beyond;
        shade(to, "law", k, r, envelopes[panel], "0.08", first ? "envelope of all laws" : "");
        line(to, "law", k, r, means[panel], "1", first ? "geometric mean of amdahl and log2" : "");
        if (beyond)
            shade(to, "beyond", k, r, envelopes[panel], "0.2",
                  first ? "envelope, extrapolated" : "");
        if (beyond)
            line(to, "beyond", k, r, means[panel], "3", "");
        if (drawn->regimes[r].forecasts)
            fprintf(to,
                    ", \\\n    $forecast_%d_%d using %s with yerrorbars pt 6 lc %d title '%s', "
                    "\\\n    $forecast_%d_%d using %s with labels offset 1.5,-0.8 notitle",
                    k, r, forecasts[panel], k + 1, first ? "forecast, 95 % interval" : "", k, r,
                    labels[panel]);
    }
}
