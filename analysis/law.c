#include "analysis/law.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static double linear_rate(const double *p, double u, double work)
{
    (void)work;
    return p[0] * u;
}

static void linear_slope(const double *p, double u, double work, double *slope)
{
    (void)p;
    (void)work;
    slope[0] = u;
}

static double amdahl_rate(const double *p, double u, double work)
{
    (void)work;
    return p[1] * u / (1.0 + p[0] * (u - 1.0));
}

static void amdahl_slope(const double *p, double u, double work, double *slope)
{
    double below = 1.0 + p[0] * (u - 1.0);
    (void)work;
    slope[0] = -p[1] * u * (u - 1.0) / (below * below);
    slope[1] = u / below;
}

static double log2_rate(const double *p, double u, double work)
{
    (void)work;
    return p[1] * u / (1.0 + p[0] * log2(u));
}

static void log2_slope(const double *p, double u, double work, double *slope)
{
    double below = 1.0 + p[0] * log2(u);
    (void)work;
    slope[0] = -p[1] * u * log2(u) / (below * below);
    slope[1] = u / below;
}

static double power_rate(const double *p, double u, double work)
{
    (void)work;
    return p[1] * pow(u, 1.0 - p[0]);
}

static void power_slope(const double *p, double u, double work, double *slope)
{
    (void)work;
    slope[1] = pow(u, 1.0 - p[0]);
    slope[0] = -p[1] * slope[1] * log(u);
}

static double usl_rate(const double *p, double u, double work)
{
    (void)work;
    return p[2] * u / (1.0 + p[0] * (u - 1.0) + p[1] * u * (u - 1.0));
}

static void usl_slope(const double *p, double u, double work, double *slope)
{
    double below = 1.0 + p[0] * (u - 1.0) + p[1] * u * (u - 1.0);
    (void)work;
    slope[0] = -p[2] * u * (u - 1.0) / (below * below);
    slope[1] = slope[0] * u;
    slope[2] = u / below;
}

static double physical_rate(const double *p, double u, double work)
{
    return work / (p[0] + p[1] / u + p[2] * log2(u) + p[3] * u);
}

static void physical_slope(const double *p, double u, double work, double *slope)
{
    double time = p[0] + p[1] / u + p[2] * log2(u) + p[3] * u, each = -work / (time * time);
    slope[0] = each;
    slope[1] = each / u;
    slope[2] = each * log2(u);
    slope[3] = each * u;
}

#define GAMMA                                                                                      \
    {                                                                                              \
        "gamma", "rate of the base point", 1, true                                                 \
    }

const struct law laws[] = {
    {.name = "linear",
     .formula = "gamma u",
     .n_parameters = 1,
     .parameters = {GAMMA},
     .rate = linear_rate,
     .slope = linear_slope,
     .starts = {{1}},
     .n_starts = 1},
    {.name = "amdahl",
     .formula = "gamma u / (1 + alpha (u - 1))",
     .n_parameters = 2,
     .parameters = {{"alpha", "serial share of the base point's time", 0, false}, GAMMA},
     .rate = amdahl_rate,
     .slope = amdahl_slope,
     .starts = {{1e-3, 1}, {0.03, 1}, {0.3, 1}},
     .n_starts = 3,
     .in_forecast = true},
    {.name = "log2",
     .formula = "gamma u / (1 + a log2 u)",
     .n_parameters = 2,
     .parameters = {{"a", "time added by each doubling, over the base point's", 0, false}, GAMMA},
     .rate = log2_rate,
     .slope = log2_slope,
     .starts = {{1e-3, 1}, {0.03, 1}, {0.3, 1}},
     .n_starts = 3,
     .in_forecast = true},
    {.name = "power",
     .formula = "gamma u^(1 - c)",
     .n_parameters = 2,
     .parameters = {{"c", "exponent by which efficiency falls", 0, false}, GAMMA},
     .rate = power_rate,
     .slope = power_slope,
     .starts = {{0.01, 1}, {0.3, 1}},
     .n_starts = 2},
    {.name = "usl",
     .formula = "gamma u / (1 + alpha (u - 1) + beta u (u - 1))",
     .n_parameters = 3,
     .parameters = {{"alpha", "contention: share of time that queues", 0, false},
                    {"beta", "coherency: time that each pair adds", 0, false},
                    GAMMA},
     .rate = usl_rate,
     .slope = usl_slope,
     .starts = {{1e-3, 1e-6, 1}, {0.03, 1e-4, 1}, {0.3, 1e-2, 1}, {0.01, 1e-2, 1}, {0.1, 1e-6, 1}},
     .n_starts = 5},
    {.name = "physical",
     .formula = "work / (c0 + c1/u + c2 log2 u + c3 u)",
     .n_parameters = 4,
     .parameters = {{"c0", "time that N does not change", -1, false},
                    {"c1", "time that is divided by N (strong: compute; weak: sharded state)", -1,
                     false},
                    {"c2", "time that each doubling adds (trees, the slowest of many)", -1, false},
                    {"c3", "time that grows with N (latency of rings, contention)", -1, false}},
     .rate = physical_rate,
     .slope = physical_slope,
     .starts = {{0.3, 0.6, 0.05, 0.05},
                {0.9, 0.05, 0.02, 1e-3},
                {0.05, 0.9, 0.02, 1e-3},
                {0.2, 0.2, 0.3, 1e-4}},
     .n_starts = 4},
};

const int n_laws = sizeof laws / sizeof *laws;
_Static_assert(sizeof laws / sizeof *laws <= LAWS_MOST, "LAWS_MOST is too small");

const struct law *law_find(const char *name)
{
    for (int i = 0; i < n_laws; i++)
        if (strcmp(laws[i].name, name) == 0)
            return &laws[i];
    return NULL;
}

const char *law_names(void)
{
    static char text[128];
    size_t used = 0;
    for (int i = 0; i < n_laws; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", i > 0 ? ", " : "",
                                 laws[i].name);
    return text;
}

/* The peak of the physical law in strong scaling: where c3 u^2 + (c2 / ln 2) u = c1. */
static double physical_peak(const double *p)
{
    double b = p[2] / log(2.0);
    if (p[3] > 0.0)
        return (-b + sqrt(b * b + 4.0 * p[3] * p[1])) / (2.0 * p[3]);
    return b > 0.0 ? p[1] / b : (double)NAN;
}

void law_marks(const struct law *law, const double *p, double base, double scale, bool weak,
               struct law_marks *out)
{
    double u = NAN;
    bool amdahl = strcmp(law->name, "amdahl") == 0, usl = strcmp(law->name, "usl") == 0;
    *out = (struct law_marks){NAN, NAN, NAN, NAN};
    if ((amdahl || usl) && p[0] > 0.0) {
        out->limit_rate = scale * p[law->n_parameters - 1] / p[0];
        out->optimum_n = base / p[0];
    }
    if (usl && p[1] > 0.0 && p[0] < 1.0)
        u = sqrt((1.0 - p[0]) / p[1]);
    if (strcmp(law->name, "physical") == 0 && !weak)
        u = physical_peak(p);
    if (u >= 1.0) {
        out->peak_n = base * u;
        out->peak_rate = scale * law->rate(p, u, 1.0);
    }
}
