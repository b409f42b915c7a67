/*
 * curve_fit: one regime of a series with its laws and forecasts; and how they are said.
 *
 * The three forms say the same. In text every number has its unit, n, and an interval or "exact"; a
 * curve names its base with its absolute rate.
 */
#ifndef ANALYSIS_CURVE_FIT_H
#define ANALYSIS_CURVE_FIT_H

#include <stdio.h>

#include "analysis/regime.h"

enum { CURVE_FIT_PREDICTIONS = 32 };

struct curve_fit_options {
    unsigned laws; /* bit i: laws[i] was asked for by name; 0: all that the points allow */
    enum fit_residual residual;
    enum regime_unit unit;
    int n_predict; /* 0: 2 and 4 times the largest measured */
    double predict[CURVE_FIT_PREDICTIONS];
    uint64_t seed;
};

struct curve_fit {
    const struct series *series; /* borrowed */
    struct regime regime;        /* owned */
    int n_fits;
    struct fit fits[LAWS_MOST];
    struct forecaster forecaster;
    double last_pct; /* the last point forecast from the others, over what was measured, - 1; NaN */
    int n_forecasts;
    struct forecast forecasts[CURVE_FIT_PREDICTIONS];
    int n_crossing; /* sizes asked for that lie beyond the regime */
    double crossing[CURVE_FIT_PREDICTIONS];
};

/*
 * Takes the regime over (released on failure too). FAIL_USAGE for one point, for a law asked for by
 * name that has more parameters than there are points, and for data that fit_check refuses.
 */
int curve_fit_init(struct curve_fit *out, const struct series *series, struct regime *regime,
                   const struct curve_fit_options *options);
void curve_fit_release(struct curve_fit *fit);

void curve_fit_text(FILE *to, const struct curve_fit *fit);

/* One header for all, then a line per point, parameter and forecast. */
void curve_fit_csv_head(FILE *to);
void curve_fit_csv(FILE *to, const struct curve_fit *fit);

/* A json_t *, to be put into an array. */
void *curve_fit_json(const struct curve_fit *fit);

/* What is counted and in which unit rates are: "devices", "tokens/s". */
const char *curve_fit_counts(const struct curve_fit *fit);
const char *curve_fit_unit(const struct curve_fit *fit);

/* Sentences that must stand beside the numbers; false: no more. */
bool curve_fit_note(const struct curve_fit *fit, int i, char *text, size_t size);

#endif
