/* The forms for machines. */
#include "analysis/curve_fit.h"

#include <math.h>

#include <jansson.h>

#include "base/err.h"

static void quoted(FILE *to, const char *text)
{
    fputc('"', to);
    for (; *text != '\0'; text++) {
        if (*text == '"')
            fputc('"', to);
        fputc(*text, to);
    }
    fputc('"', to);
}

/* Unknown is empty. */
static void number(FILE *to, double value)
{
    fputc(',', to);
    if (isfinite(value))
        fprintf(to, "%.10g", value);
}

void curve_fit_csv_head(FILE *to)
{
    fprintf(to, "series,mode,regime,kind,law,name,n,counts,value,error,low,high,envelope_low,"
                "envelope_high,unit,samples,label\n");
}

static void begin(FILE *to, const struct curve_fit *f, const char *kind, const char *law,
                  const char *name, double n)
{
    quoted(to, f->series->name);
    fprintf(to, ",%s,%s,%s,%s,%s", series_mode_name(f->series->mode), regime_name(f->regime.kind),
            kind, law, name);
    number(to, n);
    fprintf(to, ",%s", curve_fit_counts(f));
}

static void points_csv(FILE *to, const struct curve_fit *f)
{
    for (int i = 0; i < f->regime.n_points; i++) {
        const struct stats_interval *x = &f->regime.points[i]->rate;
        begin(to, f, "point", "", "rate", f->regime.n[i]);
        number(to, x->value);
        number(to, f->regime.spread[i].error > 0.0 ? f->regime.spread[i].error * x->value
                                                   : (double)NAN);
        number(to, x->low);
        number(to, x->high);
        fprintf(to, ",,,%s,%lld,%s\n", curve_fit_unit(f), (long long)x->n,
                isnan(x->low) ? "exact" : "measured");
    }
}

static const char *state_of(const struct fit *fit, const struct fit_parameter *p)
{
    if (fit->freedom < 1)
        return "as many as points";
    return p->at_bound ? "at bound" : p->identified ? "identified" : "not identified";
}

static void fits_csv(FILE *to, const struct curve_fit *f)
{
    for (int i = 0; i < f->n_fits; i++) {
        const struct fit *fit = &f->fits[i];
        for (int j = 0; j < fit->law->n_parameters; j++) {
            const struct fit_parameter *p = &fit->parameters[j];
            const struct law_parameter *about = &fit->law->parameters[j];
            begin(to, f, "parameter", fit->law->name, about->name, NAN);
            number(to, p->value);
            number(to, p->error);
            number(to, p->low);
            number(to, p->high);
            fprintf(to, ",,,%s,%d,%s\n",
                    about->is_rate      ? curve_fit_unit(f)
                    : about->degree < 0 ? "base steps"
                                        : "1",
                    fit->n_points, state_of(fit, p));
        }
        begin(to, f, "last out", fit->law->name, "error", f->regime.n[f->regime.n_points - 1]);
        number(to, fit->last_pct);
        fprintf(to, ",,,,,,%%,%d,\n", fit->n_points - 1);
    }
}

void curve_fit_csv(FILE *to, const struct curve_fit *f)
{
    points_csv(to, f);
    fits_csv(to, f);
    begin(to, f, "last out", "amdahl*log2", "error", f->regime.n[f->regime.n_points - 1]);
    number(to, f->last_pct);
    fprintf(to, ",,,,,,%%,%d,\n", f->regime.n_points - 1);
    for (int i = 0; i < f->n_forecasts; i++) {
        const struct forecast *x = &f->forecasts[i];
        begin(to, f, "forecast", "amdahl*log2", "rate", x->n);
        number(to, x->value);
        fputc(',', to);
        number(to, x->low);
        number(to, x->high);
        number(to, x->envelope_low);
        number(to, x->envelope_high);
        fprintf(to, ",%s,%d,%s\n", curve_fit_unit(f), f->regime.n_points,
                forecast_label_name(x->label));
    }
}

static json_t *real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *point_json(const struct curve_fit *f, int i)
{
    const struct series_point *p = f->regime.points[i];
    return json_pack("{s:f,s:o,s:o,s:o,s:I,s:i,s:b}", "n", f->regime.n[i], "rate",
                     real(p->rate.value), "low", real(p->rate.low), "high", real(p->rate.high),
                     "samples", (json_int_t)p->rate.n, "launches", p->n_launches, "exact",
                     isnan(p->rate.low) != 0);
}

static json_t *parameter_json(const struct curve_fit *f, const struct fit *fit, int j)
{
    const struct fit_parameter *p = &fit->parameters[j];
    const struct law_parameter *about = &fit->law->parameters[j];
    return json_pack("{s:s,s:s,s:s,s:o,s:o,s:o,s:o,s:b,s:b}", "name", about->name, "meaning",
                     about->meaning, "unit",
                     about->is_rate      ? curve_fit_unit(f)
                     : about->degree < 0 ? "base steps"
                                         : "1",
                     "value", real(p->value), "error", real(p->error), "low", real(p->low), "high",
                     real(p->high), "at_bound", p->at_bound, "identified", p->identified);
}

static json_t *fit_json(const struct curve_fit *f, const struct fit *fit)
{
    struct law_marks marks;
    json_t *parameters = json_array();
    law_marks(fit->law, fit->p, fit->base, fit->scale, fit->weak, &marks);
    for (int j = 0; j < fit->law->n_parameters; j++)
        json_array_append_new(parameters, parameter_json(f, fit, j));
    return json_pack(
        "{s:s,s:s,s:s,s:i,s:i,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "law", fit->law->name, "formula",
        fit->law->formula, "residuals", fit->residual == FIT_RELATIVE ? "relative" : "absolute",
        "points", fit->n_points, "freedom", fit->freedom, "residual_error", real(fit->error),
        "worst_pct", real(fit->worst_pct), "last_out_pct", real(fit->last_pct), "peak_n",
        real(marks.peak_n), "peak_rate", real(marks.peak_rate), "limit_rate",
        real(marks.limit_rate), "optimum_n", real(marks.optimum_n), "parameters", parameters);
}

static json_t *forecast_json(const struct forecast *x)
{
    return json_pack("{s:f,s:f,s:s,s:o,s:o,s:o,s:o,s:o,s:o,s:s,s:s,s:s}", "n", x->n, "factor",
                     x->factor, "label", forecast_label_name(x->label), "value", real(x->value),
                     "low", real(x->low), "high", real(x->high), "floor_pct",
                     real(x->floor > 0.0 ? 100.0 * (exp(x->floor) - 1.0) : (double)NAN),
                     "envelope_low", real(x->envelope_low), "envelope_high", real(x->envelope_high),
                     "lowest_law", x->lowest->name, "highest_law", x->highest->name, "why",
                     x->why ? x->why : "");
}

void *curve_fit_json(const struct curve_fit *f)
{
    char text[512];
    json_t *points = json_array(), *fits = json_array(), *forecasts = json_array(),
           *notes = json_array();
    for (int i = 0; i < f->regime.n_points; i++)
        json_array_append_new(points, point_json(f, i));
    for (int i = 0; i < f->n_fits; i++)
        json_array_append_new(fits, fit_json(f, &f->fits[i]));
    for (int i = 0; i < f->n_forecasts; i++)
        json_array_append_new(forecasts, forecast_json(&f->forecasts[i]));
    for (int i = 0; curve_fit_note(f, i, text, sizeof text); i++)
        json_array_append_new(notes, json_string(text));
    json_t *all =
        json_pack("{s:s,s:s,s:s,s:s,s:s,s:s,s:f,s:o,s:o,s:o,s:o,s:o}", "series", f->series->name,
                  "source", f->series->source, "mode", series_mode_name(f->series->mode), "regime",
                  regime_name(f->regime.kind), "counts", curve_fit_counts(f), "unit",
                  curve_fit_unit(f), "interval_level", 0.95, "last_out_pct", real(f->last_pct),
                  "points", points, "laws", fits, "forecasts", forecasts, "notes", notes);
    if (all == NULL)
        die(FAIL_INTERNAL, "fit: the JSON form could not be built");
    return all;
}
