#include "analysis/collective_line.h"

#include <math.h>

#include <gsl/gsl_errno.h>
#include <gsl/gsl_multifit.h>

#include "base/err.h"

/* Intercept (us) and slope (us per GB moved on the bus), with their covariance. */
struct straight {
    double c[2], variance[2];
    double squares;
};

static double squares_of(const double *bytes, const double *time_us, int n, const double *c)
{
    double sum = 0.0;
    for (int i = 0; i < n; i++)
        sum += pow((c[0] + c[1] * bytes[i]) / time_us[i] - 1.0, 2);
    return sum;
}

/* Columns 1 / t and S / t against 1: every row has the same relative weight. */
static void fit_both(const double *bytes, const double *time_us, int n, struct straight *out)
{
    size_t rows = (size_t)n;
    gsl_matrix *x = gsl_matrix_alloc(rows, 2), *covariance = gsl_matrix_alloc(2, 2);
    gsl_vector *y = gsl_vector_alloc(rows), *c = gsl_vector_alloc(2);
    gsl_multifit_linear_workspace *w = gsl_multifit_linear_alloc(rows, 2);
    if (x == NULL || covariance == NULL || y == NULL || c == NULL || w == NULL)
        die(FAIL_INTERNAL, "collective: no memory");
    for (size_t i = 0; i < rows; i++) {
        gsl_matrix_set(x, i, 0, 1.0 / time_us[i]);
        gsl_matrix_set(x, i, 1, bytes[i] / time_us[i]);
        gsl_vector_set(y, i, 1.0);
    }
    gsl_multifit_linear(x, y, c, covariance, &out->squares, w);
    for (size_t j = 0; j < 2; j++) {
        out->c[j] = gsl_vector_get(c, j);
        out->variance[j] = n > 2 ? gsl_matrix_get(covariance, j, j) : (double)NAN;
    }
    gsl_multifit_linear_free(w);
    gsl_vector_free(c);
    gsl_vector_free(y);
    gsl_matrix_free(covariance);
    gsl_matrix_free(x);
}

/* One of the two alone, the other at its bound. */
static void fit_one(const double *bytes, const double *time_us, int n, int which,
                    struct straight *out)
{
    double above = 0.0, below = 0.0;
    for (int i = 0; i < n; i++) {
        double x = (which == 0 ? 1.0 : bytes[i]) / time_us[i];
        above += x;
        below += x * x;
    }
    *out = (struct straight){.variance = {NAN, NAN}};
    out->c[which] = above / below;
    out->squares = squares_of(bytes, time_us, n, out->c);
    out->variance[which] = n > 1 ? out->squares / (n - 1) / below : (double)NAN;
}

void collective_line_fit(const double *bytes, const double *time_us, int n, double factor,
                         struct collective_line *out)
{
    struct straight best, alone[2];
    fit_both(bytes, time_us, n, &best);
    if (best.c[0] < 0.0 || best.c[1] < 0.0) {
        fit_one(bytes, time_us, n, 0, &alone[0]);
        fit_one(bytes, time_us, n, 1, &alone[1]);
        best = alone[alone[0].squares <= alone[1].squares ? 0 : 1];
    }
    *out = (struct collective_line){.n = n, .squares = best.squares};
    out->alpha_us = best.c[0];
    out->alpha_error = sqrt(best.variance[0]);
    out->bus_GBps = best.c[1] > 0.0 ? factor / best.c[1] * 1e-3 : (double)INFINITY;
    out->bus_error = out->bus_GBps * sqrt(best.variance[1]) / best.c[1];
    for (int i = 0; i < n; i++)
        out->worst = fmax(out->worst, fabs((best.c[0] + best.c[1] * bytes[i]) / time_us[i] - 1.0));
}
