/*
 * law: how throughput may grow with N. A law is one row of a table.
 *
 * Laws are written in u = N / N0, N0 the smallest N of the curve, so that u = 1 is a point that was
 * measured and no parameter speaks about sizes below it. `rate` gives X(N) over a unit that the
 * fit chooses; `work` is the work of a step over that of the base's step: 1 in strong scaling,
 * u in weak scaling, where a law about the time of a step needs it.
 *
 *   linear    X = gamma u                                  perfect scaling
 *   amdahl    X = gamma u / (1 + alpha (u - 1))            a serial share
 *   log2      X = gamma u / (1 + a log2 u)                 trees, waiting for the slowest
 *   power     X = gamma u^(1 - c)
 *   usl       X = gamma u / (1 + alpha (u - 1) + beta u (u - 1))     Gunther's contention,
 *             coherency
 *   physical  X = work / (c0 + c1 / u + c2 log2 u + c3 u)  time of a step by its parts
 *
 * Every parameter is at least 0. `degree` says how a parameter answers when all rates are
 * multiplied by f: by f^degree. Adding a law is adding a row; `slope` may be NULL (finite
 * differences).
 */
#ifndef ANALYSIS_LAW_H
#define ANALYSIS_LAW_H

#include <stdbool.h>

enum { LAW_PARAMETERS = 4, LAW_STARTS = 6 };

struct law_parameter {
    const char *name, *meaning;
    int degree;   /* 1: a rate; 0: a share; -1: a time */
    bool is_rate; /* in the unit of the curve; else a number as it is */
};

struct law {
    const char *name, *formula;
    int n_parameters;
    struct law_parameter parameters[LAW_PARAMETERS];
    double (*rate)(const double *p, double u, double work);
    void (*slope)(const double *p, double u, double work,
                  double *slope);              /* d rate / d p, or NULL */
    double starts[LAW_STARTS][LAW_PARAMETERS]; /* where searches begin; the scale is found */
    int n_starts;
    bool in_forecast; /* the point forecast is the geometric mean of these */
};

enum { LAWS_MOST = 16 /* room of those who keep a fit of each */ };
extern const struct law laws[];
extern const int n_laws;

/* The row called `name`, or NULL. */
const struct law *law_find(const char *name);

/* "linear, amdahl, ..." for messages; owned by law. */
const char *law_names(void);

/*
 * What a law implies, in N: the size of the largest rate and that rate (usl; physical when strong),
 * the limit of the rate (alpha > 0), and N0 / alpha, where a serial share alone would leave about
 * half of that limit. NaN: none. `weak` as in fit_data.
 */
struct law_marks {
    double peak_n, peak_rate, limit_rate, optimum_n;
};
void law_marks(const struct law *law, const double *p, double base, double scale, bool weak,
               struct law_marks *out);

#endif
