#include "analysis/fit_search.h"

#include <math.h>
#include <string.h>

#include <gsl/gsl_blas.h>
#include <gsl/gsl_errno.h>
#include <gsl/gsl_multifit_nlinear.h>

#include "base/err.h"

enum { ITERATIONS = 200 };

/* A law outside its domain: a step that lands here is taken back. */
static const double far_off = 1e8;

struct search {
    const struct fit_problem *problem;
    int n_free, index[LAW_PARAMETERS];
    double p[LAW_PARAMETERS];
};

static void put_free(struct search *s, const gsl_vector *x)
{
    for (int i = 0; i < s->n_free; i++)
        s->p[s->index[i]] = gsl_vector_get(x, (size_t)i);
}

static double residual_of(const struct fit_problem *problem, const double *p, int i)
{
    double rate = problem->law->rate(p, problem->u[i], problem->work[i]);
    if (!(rate > 0.0) || !isfinite(rate))
        return far_off;
    return problem->residual == FIT_RELATIVE ? log(rate / problem->rate[i])
                                             : rate - problem->rate[i];
}

static int residuals(const gsl_vector *x, void *data, gsl_vector *f)
{
    struct search *s = data;
    put_free(s, x);
    for (int i = 0; i < s->problem->n_points; i++)
        gsl_vector_set(f, (size_t)i, residual_of(s->problem, s->p, i));
    return GSL_SUCCESS;
}

static int slopes(const gsl_vector *x, void *data, gsl_matrix *jacobian)
{
    struct search *s = data;
    const struct fit_problem *q = s->problem;
    double slope[LAW_PARAMETERS];
    put_free(s, x);
    for (int i = 0; i < q->n_points; i++) {
        double rate = q->law->rate(s->p, q->u[i], q->work[i]);
        q->law->slope(s->p, q->u[i], q->work[i], slope);
        for (int j = 0; j < s->n_free; j++) {
            double each = slope[s->index[j]];
            if (q->residual == FIT_RELATIVE)
                each /= rate;
            gsl_matrix_set(jacobian, (size_t)i, (size_t)j, isfinite(each) ? each : 0.0);
        }
    }
    return GSL_SUCCESS;
}

double fit_squares(const struct fit_problem *problem, const double *p)
{
    double sum = 0.0;
    for (int i = 0; i < problem->n_points; i++) {
        double r = residual_of(problem, p, i);
        sum += r * r;
    }
    return sum;
}

static void find_errors(const struct search *s, gsl_multifit_nlinear_workspace *w, double squares,
                        double *errors)
{
    int freedom = s->problem->n_points - s->n_free;
    gsl_matrix *covariance = gsl_matrix_alloc((size_t)s->n_free, (size_t)s->n_free);
    for (int j = 0; j < LAW_PARAMETERS; j++)
        errors[j] = NAN;
    if (covariance == NULL)
        die(FAIL_INTERNAL, "fit: no memory");
    if (freedom > 0 &&
        gsl_multifit_nlinear_covar(gsl_multifit_nlinear_jac(w), 0.0, covariance) == GSL_SUCCESS)
        for (int i = 0; i < s->n_free; i++)
            errors[s->index[i]] =
                sqrt(gsl_matrix_get(covariance, (size_t)i, (size_t)i) * squares / freedom);
    gsl_matrix_free(covariance);
}

static double run(struct search *s, double *errors)
{
    gsl_multifit_nlinear_parameters how = gsl_multifit_nlinear_default_parameters();
    gsl_multifit_nlinear_workspace *w = gsl_multifit_nlinear_alloc(
        gsl_multifit_nlinear_trust, &how, (size_t)s->problem->n_points, (size_t)s->n_free);
    gsl_multifit_nlinear_fdf f = {.f = residuals,
                                  .df = s->problem->law->slope ? slopes : NULL,
                                  .n = (size_t)s->problem->n_points,
                                  .p = (size_t)s->n_free,
                                  .params = s};
    double start[LAW_PARAMETERS];
    int info;
    if (w == NULL)
        die(FAIL_INTERNAL, "fit: no memory");
    for (int i = 0; i < s->n_free; i++)
        start[i] = s->p[s->index[i]];
    gsl_vector_view x = gsl_vector_view_array(start, (size_t)s->n_free);
    gsl_multifit_nlinear_init(&x.vector, &f, w);
    /* A search that cannot improve on rounding ends with an error that is none. */
    gsl_multifit_nlinear_driver(ITERATIONS, 1e-12, 1e-12, 0.0, NULL, NULL, &info, w);
    put_free(s, gsl_multifit_nlinear_position(w));
    double squares = fit_squares(s->problem, s->p);
    if (errors)
        find_errors(s, w, squares, errors);
    gsl_multifit_nlinear_free(w);
    return squares;
}

double fit_search_from(const struct fit_problem *problem, unsigned held, double *p, double *errors)
{
    struct search s = {.problem = problem};
    double squares;
    memcpy(s.p, p, sizeof s.p);
    for (int j = 0; j < problem->law->n_parameters; j++)
        if (!(held & 1u << j))
            s.index[s.n_free++] = j;
    for (int j = 0; errors && j < LAW_PARAMETERS; j++)
        errors[j] = NAN;
    if (s.n_free == 0)
        return fit_squares(problem, p);
    gsl_error_handler_t *handler = gsl_set_error_handler_off();
    squares = run(&s, errors);
    gsl_set_error_handler(handler);
    for (int i = 0; i < s.n_free; i++)
        if (!(s.p[s.index[i]] >= 0.0))
            return INFINITY;
    memcpy(p, s.p, sizeof s.p);
    return isfinite(squares) ? squares : (double)INFINITY;
}

/* A rate of 0 fits nothing, and neither do times that are all 0. */
static bool may_hold(const struct law *law, unsigned set, unsigned fixed)
{
    unsigned rates = 0, all = (1u << law->n_parameters) - 1u;
    for (int j = 0; j < law->n_parameters; j++)
        rates |= law->parameters[j].degree > 0 ? 1u << j : 0u;
    return (set & fixed) == fixed && (set & rates & ~fixed) == 0 && (set != all || fixed == all);
}

double fit_search_sets(const struct fit_problem *problem, unsigned fixed, const double *start,
                       double *p, unsigned *held)
{
    int n = problem->law->n_parameters;
    double best = INFINITY;
    /* From most to least held: a parameter leaves its bound only where that gains something. */
    for (unsigned set = 1u << n; set-- > 0;) {
        double try[LAW_PARAMETERS] = {0};
        if (!may_hold(problem->law, set, fixed))
            continue;
        for (int j = 0; j < n; j++)
            try[j] = fixed & 1u << j || !(set & 1u << j) ? start[j] : 0.0;
        double squares = fit_search_from(problem, set, try, NULL);
        if (squares < best * (1.0 - 1e-9) - 1e-26) {
            best = squares;
            memcpy(p, try, sizeof try);
            *held = set & ~fixed;
        }
    }
    return best;
}
