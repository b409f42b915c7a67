#include "analysis/fit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/fit_search.h"
#include "analysis/quantile.h"
#include "base/err.h"

enum { HALVINGS = 40, DOUBLINGS = 60 };

/* The problem in units of the base, with the arrays that it borrows. */
struct scaled {
    struct fit_problem problem;
    double *values; /* [3][n] */
};

static void scale_data(struct scaled *out, const struct law *law, const struct fit_data *data)
{
    int n = data->n_points;
    double *values = must_alloc(3 * (size_t)n, sizeof *values);
    for (int i = 0; i < n; i++) {
        values[i] = data->n[i] / data->n[0];
        values[n + i] = data->rate[i] / data->rate[0];
        values[2 * n + i] = data->weak ? values[i] : 1.0;
    }
    *out = (struct scaled){{law, data->residual, n, values, values + n, values + 2 * (size_t)n},
                           values};
}

int fit_check(const struct fit_data *data)
{
    for (int i = 0; i < data->n_points; i++) {
        if (!isfinite(data->n[i]) || !(data->n[i] > 0.0))
            return fail(FAIL_USAGE, "fit: N must be a positive number, found %g at point %d",
                        data->n[i], i + 1);
        if (!isfinite(data->rate[i]) || !(data->rate[i] > 0.0))
            return fail(FAIL_USAGE, "fit: a rate must be a positive number, found %g at N = %g",
                        data->rate[i], data->n[i]);
        if (i > 0 && !(data->n[i] > data->n[i - 1]))
            return fail(FAIL_USAGE, "fit: N must increase from point to point, found %g after %g",
                        data->n[i], data->n[i - 1]);
    }
    return 0;
}

static int check_count(const struct law *law, const struct fit_data *data)
{
    if (data->n_points < law->n_parameters)
        return fail(FAIL_USAGE,
                    "fit: law %s has %d parameter%s and the curve %d point%s: measure at least %d",
                    law->name, law->n_parameters, law->n_parameters == 1 ? "" : "s", data->n_points,
                    data->n_points == 1 ? "" : "s", law->n_parameters);
    return fit_check(data);
}

/* Multiplies the start by what brings its mean log rate to that of the data. */
static void bring_to_scale(const struct fit_problem *q, const double *start, double *p)
{
    double sum = 0.0;
    for (int i = 0; i < q->n_points; i++)
        sum += log(q->rate[i] / q->law->rate(start, q->u[i], q->work[i])) / q->n_points;
    for (int j = 0; j < q->law->n_parameters; j++)
        p[j] = start[j] * exp(sum * q->law->parameters[j].degree);
}

static double search(const struct fit_problem *q, const double *only, double *p, unsigned *held)
{
    double best = INFINITY;
    int n_starts = only ? 1 : q->law->n_starts;
    for (int s = 0; s < n_starts; s++) {
        double start[LAW_PARAMETERS] = {0}, end[LAW_PARAMETERS] = {0};
        unsigned set = 0;
        bring_to_scale(q, only ? only : q->law->starts[s], start);
        double squares = fit_search_sets(q, 0, start, end, &set);
        if (squares < best * (1.0 - 1e-9)) {
            best = squares;
            *held = set;
            memcpy(p, end, sizeof end);
        }
    }
    return best;
}

static int find_optimum(struct fit *out, const struct fit_problem *q, const struct fit_data *data,
                        const double *start)
{
    *out = (struct fit){.law = q->law,
                        .residual = data->residual,
                        .weak = data->weak,
                        .n_points = data->n_points,
                        .freedom = data->n_points - q->law->n_parameters,
                        .base = data->n[0],
                        .scale = data->rate[0],
                        .error = NAN,
                        .worst_pct = NAN,
                        .last_pct = NAN};
    out->rss = search(q, start, out->p, &out->held);
    if (!isfinite(out->rss))
        return fail(FAIL_INTERNAL, "fit: no optimum of law %s was found", q->law->name);
    return 0;
}

int fit_search(struct fit *out, const struct law *law, const struct fit_data *data,
               const double *start)
{
    struct scaled scaled;
    int rc = check_count(law, data);
    if (rc != 0)
        return rc;
    scale_data(&scaled, law, data);
    rc = find_optimum(out, &scaled.problem, data, start);
    free(scaled.values);
    return rc;
}

/* Sum of squares with parameter j held at `value`, the others as good as they can be. */
static double profile(const struct fit_problem *q, const struct fit *fit, int j, double value)
{
    double start[LAW_PARAMETERS], p[LAW_PARAMETERS], best;
    unsigned held;
    memcpy(start, fit->p, sizeof start);
    for (int i = 0; i < LAW_PARAMETERS; i++) /* what is at its bound may leave it */
        if (start[i] == 0.0)
            start[i] = 1e-4;
    start[j] = value;
    best = fit_search_sets(q, 1u << j, start, p, &held);
    return best;
}

/* Between a value inside the interval and one outside. */
static double halve(const struct fit_problem *q, const struct fit *fit, int j, double inside,
                    double outside, double limit)
{
    for (int i = 0; i < HALVINGS && fabs(outside - inside) > 1e-7 * fabs(inside); i++) {
        double middle = (inside + outside) / 2.0;
        if (profile(q, fit, j, middle) <= limit)
            inside = middle;
        else
            outside = middle;
    }
    return (inside + outside) / 2.0;
}

static double upper_end(const struct fit_problem *q, const struct fit *fit, int j, double step,
                        double limit)
{
    double inside = fit->p[j];
    for (int i = 0; i < DOUBLINGS; i++, step *= 2.0) {
        double outside = fit->p[j] + step;
        if (profile(q, fit, j, outside) > limit)
            return halve(q, fit, j, inside, outside, limit);
        inside = outside;
    }
    return INFINITY;
}

static void find_interval(const struct fit_problem *q, const struct fit *fit, int j, double error,
                          struct fit_parameter *out)
{
    double f = quantile_f_of_1(0.95, fit->freedom);
    double limit = fit->rss * (1.0 + f / fit->freedom) + 1e-24;
    double step = isfinite(error) && error > 0.0 ? error : 1e-3 * fmax(fit->p[j], 1e-3);
    bool at_zero = fit->p[j] == 0.0 || profile(q, fit, j, 0.0) <= limit;
    out->low = at_zero ? 0.0 : halve(q, fit, j, fit->p[j], 0.0, limit);
    out->high = upper_end(q, fit, j, step, limit);
    out->identified = !at_zero && isfinite(out->high);
}

static void describe_parameters(struct fit *fit, const struct fit_problem *q)
{
    double errors[LAW_PARAMETERS], p[LAW_PARAMETERS];
    memcpy(p, fit->p, sizeof p);
    fit_search_from(q, fit->held, p, errors);
    for (int j = 0; j < fit->law->n_parameters; j++) {
        struct fit_parameter *parameter = &fit->parameters[j];
        double unit = fit->law->parameters[j].is_rate ? fit->scale : 1.0;
        *parameter = (struct fit_parameter){.value = fit->p[j], .low = NAN, .high = NAN};
        parameter->at_bound = (fit->held & 1u << j) != 0;
        if (fit->freedom > 0)
            find_interval(q, fit, j, errors[j], parameter);
        parameter->value *= unit;
        parameter->error = errors[j] * unit;
        parameter->low *= unit;
        parameter->high *= unit;
    }
}

static void describe_residuals(struct fit *fit, const struct fit_data *data)
{
    double unit = data->residual == FIT_ABSOLUTE ? fit->scale : 1.0;
    if (fit->freedom > 0)
        fit->error = unit * sqrt(fit->rss / fit->freedom);
    fit->worst_pct = 0.0;
    for (int i = 0; i < data->n_points; i++)
        fit->worst_pct =
            fmax(fit->worst_pct, 100.0 * fabs(fit_rate(fit, data->n[i]) / data->rate[i] - 1.0));
}

static void predict_last(struct fit *fit, const struct fit_data *data)
{
    struct fit_data fewer = *data;
    struct fit without;
    int last = data->n_points - 1;
    fewer.n_points = last;
    if (last < fit->law->n_parameters)
        return;
    if (fit_search(&without, fit->law, &fewer, NULL) != 0) {
        fail_clear();
        return;
    }
    fit->last_pct = 100.0 * (fit_rate(&without, data->n[last]) / data->rate[last] - 1.0);
}

int fit_law(struct fit *out, const struct law *law, const struct fit_data *data)
{
    struct scaled scaled;
    int rc = check_count(law, data);
    if (rc != 0)
        return rc;
    scale_data(&scaled, law, data);
    rc = find_optimum(out, &scaled.problem, data, NULL);
    if (rc == 0) {
        describe_parameters(out, &scaled.problem);
        describe_residuals(out, data);
        predict_last(out, data);
    }
    free(scaled.values);
    return rc;
}

double fit_rate(const struct fit *fit, double n)
{
    double u = n / fit->base;
    return fit->scale * fit->law->rate(fit->p, u, fit->weak ? u : 1.0);
}
