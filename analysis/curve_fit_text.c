#include "analysis/curve_fit.h"

#include <math.h>
#include <string.h>

#include "analysis/report_table.h"

static void interval_text(char *text, size_t size, const struct stats_interval *x)
{
    if (isnan(x->low) || isnan(x->high))
        snprintf(text, size, "exact");
    else
        snprintf(text, size, "%.6g to %.6g (95 %%)", x->low, x->high);
}

static void size_cell(struct table *t, double n)
{
    char text[32];
    snprintf(text, sizeof text, "%.10g", n);
    table_text(t, text);
}

static void print_head(FILE *to, const struct curve_fit *f)
{
    const struct regime *r = &f->regime;
    const struct series_point *base = r->points[0];
    char interval[64];
    fprintf(to, "# laws    %s: %s scaling, %s, %d point%s, %g to %g %s\n", f->series->name,
            series_mode_name(f->series->mode), regime_name(r->kind), r->n_points,
            r->n_points == 1 ? "" : "s", r->n[0], r->n[r->n_points - 1], curve_fit_counts(f));
    interval_text(interval, sizeof interval, &base->rate);
    fprintf(to, "# base    u = N / %g %s: %.6g %s, %s, n = %lld", r->n[0], curve_fit_counts(f),
            base->rate.value, curve_fit_unit(f), interval, (long long)base->rate.n);
    if (base->n_launches > 0 && base->rate.n > base->n_launches)
        fprintf(to, " step%s in %d launch%s", base->rate.n == 1 ? "" : "s", base->n_launches,
                base->n_launches == 1 ? "" : "es");
    fprintf(to, "\n");
    if (f->n_fits > 0)
        fprintf(to,
                "# fitted  %s residuals, %d points; +- is a standard error, low and high a 95 %% "
                "profile interval\n",
                f->fits[0].residual == FIT_RELATIVE ? "relative" : "absolute", r->n_points);
    for (int i = 0; i < f->n_fits; i++)
        fprintf(to, "#         %s: X = %s\n%s", f->fits[i].law->name, f->fits[i].law->formula,
                i + 1 == f->n_fits ? "#\n" : "");
}

static const char *state_of(const struct fit *fit, int j)
{
    const struct fit_parameter *p = &fit->parameters[j];
    if (fit->freedom < 1)
        return "as-many-as-points";
    if (p->at_bound)
        return "at-bound";
    return p->identified ? "identified" : "not-identified";
}

static void print_parameters(FILE *to, const struct curve_fit *f)
{
    struct table t;
    table_open(&t, "law parameter value +- low high unit state");
    for (int i = 0; i < f->n_fits; i++)
        for (int j = 0; j < f->fits[i].law->n_parameters; j++) {
            const struct fit_parameter *p = &f->fits[i].parameters[j];
            const struct law_parameter *about = &f->fits[i].law->parameters[j];
            table_text(&t, f->fits[i].law->name);
            table_text(&t, about->name);
            table_digits(&t, p->value, 5);
            table_digits(&t, p->error, 3);
            table_digits(&t, p->low, 4);
            if (isinf(p->high))
                table_text(&t, "none");
            else
                table_digits(&t, p->high, 4);
            table_text(&t, about->is_rate      ? curve_fit_unit(f)
                           : about->degree < 0 ? "base-steps"
                                               : "1");
            table_text(&t, state_of(&f->fits[i], j));
        }
    table_close(&t, to);
}

static void print_quality(FILE *to, const struct curve_fit *f)
{
    struct table t;
    char names[200];
    snprintf(names, sizeof names,
             "law points free_n residual_%% worst_%% last_out_%% peak_%s peak_%s limit_%s",
             curve_fit_counts(f), curve_fit_unit(f), curve_fit_unit(f));
    table_open(&t, names);
    for (int i = 0; i < f->n_fits; i++) {
        const struct fit *fit = &f->fits[i];
        struct law_marks marks;
        law_marks(fit->law, fit->p, fit->base, fit->scale, fit->weak, &marks);
        table_text(&t, fit->law->name);
        table_int(&t, fit->n_points);
        table_int(&t, fit->freedom);
        table_real(&t, 100.0 * fit->error / (fit->residual == FIT_ABSOLUTE ? fit->scale : 1.0), 2);
        table_real(&t, fit->worst_pct, 2);
        table_real(&t, fit->last_pct, 2);
        table_digits(&t, marks.peak_n, 4);
        table_digits(&t, marks.peak_rate, 4);
        table_digits(&t, marks.limit_rate, 4);
    }
    table_close(&t, to);
}

static void print_forecasts(FILE *to, const struct curve_fit *f)
{
    char names[256];
    struct table t;
    if (f->n_forecasts == 0)
        return;
    snprintf(names, sizeof names,
             "%s %s low high envelope_low envelope_high eff_base_%% floor_%% laws label",
             curve_fit_counts(f), curve_fit_unit(f));
    fprintf(
        to,
        "#\n# forecast, the geometric mean of amdahl and log2; low and high 95 %%, never narrower "
        "than the floor,\n# which is how wrong such forecasts were about curves of other machines; "
        "envelope of all laws that the points allow\n");
    if (!isnan(f->last_pct))
        fprintf(to, "# own back-test: %.10g %s from the %d before: forecast %+.1f %% off\n",
                f->regime.n[f->regime.n_points - 1], curve_fit_counts(f), f->regime.n_points - 1,
                f->last_pct);
    table_open(&t, names);
    for (int i = 0; i < f->n_forecasts; i++) {
        const struct forecast *x = &f->forecasts[i];
        char by[TABLE_CELL], label[TABLE_CELL];
        double perfect = f->regime.rate[0] * x->n / f->regime.n[0];
        snprintf(by, sizeof by, "%s..%s", x->lowest->name, x->highest->name);
        snprintf(label, sizeof label, "%s", forecast_label_name(x->label));
        for (char *c = label; *c != '\0'; c++)
            *c = *c == ' ' ? '-' : *c;
        size_cell(&t, x->n);
        table_digits(&t, x->value, 5);
        table_digits(&t, x->low, 5);
        table_digits(&t, x->high, 5);
        table_digits(&t, x->envelope_low, 5);
        table_digits(&t, x->envelope_high, 5);
        table_real(&t, 100.0 * x->value / perfect, 1);
        table_real(&t, x->floor > 0.0 ? 100.0 * (exp(x->floor) - 1.0) : (double)NAN, 1);
        table_text(&t, by);
        table_text(&t, label);
    }
    table_close(&t, to);
    for (int i = 0; i < f->n_forecasts; i++)
        if (f->forecasts[i].why) {
            char text[200];
            snprintf(text, sizeof text, "%.10g %s: no point forecast: %s", f->forecasts[i].n,
                     curve_fit_counts(f), f->forecasts[i].why);
            table_note(to, "# - ", text);
        }
}

void curve_fit_text(FILE *to, const struct curve_fit *f)
{
    char text[512];
    print_head(to, f);
    print_parameters(to, f);
    fprintf(to, "#\n");
    print_quality(to, f);
    print_forecasts(to, f);
    for (int i = 0; curve_fit_note(f, i, text, sizeof text); i++)
        table_note(to, "# - ", text);
}
