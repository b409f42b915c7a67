/*
 * forecast: what the laws say about an N that was not measured, and how far that may be off.
 *
 * No law of scaling is right for all machines, so none is believed alone:
 *
 *   point      geometric mean of the laws marked in_forecast (amdahl, which falls short, and log2,
 *              which promises too much). Needs three points, and N at most 4 times the largest
 *              measured
 *   envelope   lowest and highest of all laws that were fitted: printed however far N is
 *   interval   union of the bands of the two laws, widened to the floor. A band is made of
 *              replicates: every point moves by the larger of the residual and of its own error
 *              between launches, the law is fitted again, and a residual and a launch are drawn
 *              on top; the scale of the residual is drawn too, so that few points give the wide
 *              tails of Student's t
 *   floor      how wrong such forecasts were about published curves of other machines, for this
 *              ratio N / N_max (forecast_floors). An interval is never narrower
 *
 * Labels say what a number is: measured, interpolated, extrapolated x2, x4, >x4, or below the
 * smallest N. A curve is of one regime; the caller sees to it that it is not crossed.
 */
#ifndef ANALYSIS_FORECAST_H
#define ANALYSIS_FORECAST_H

#include <stdint.h>

#include "analysis/fit.h"

enum { FORECAST_POINTS = 3, FORECAST_REPLICATES = 1000 };

enum forecast_label {
    FORECAST_BELOW, /* smaller than every measured N */
    FORECAST_MEASURED,
    FORECAST_INTERPOLATED,
    FORECAST_X2,
    FORECAST_X4,
    FORECAST_FAR, /* more than 4 times the largest N */
    FORECAST_LABELS
};

/* How far a forecast was off, as |log(forecast / truth)|: one row per label that has one. */
struct forecast_floor {
    enum forecast_label label;
    double at_90, at_95; /* quantiles over hold-outs, every curve counting once */
    int n_curves, n_holdouts;
};

enum { FORECAST_FLOORS = 2 };

/* From tests/golden/backtest/curves.csv; a test computes it again. */
extern const struct forecast_floor forecast_floors[FORECAST_FLOORS];

struct forecast_spread {
    double error;  /* standard error of the log of a point's mean, between launches; 0: unknown */
    double launch; /* standard deviation of the log of one launch; 0: unknown */
    double freedom;
};

struct forecast_data {
    struct fit_data fit;
    const struct forecast_spread *spread; /* [n_points] or NULL */
    const struct forecast_floor *floors;  /* [FORECAST_FLOORS] */
    double level;                         /* 0.95 or 0.90 */
    int replicates;
    uint64_t seed;
};

struct forecast {
    double n, factor; /* N / largest measured */
    enum forecast_label label;
    double value, low, high; /* NaN: no point forecast; `why` says so */
    double floor;            /* of the interval, as a share; 0: none for this label */
    double envelope_low, envelope_high;
    const struct law *lowest, *highest;
    const char *why;
};

/* The laws fitted to one curve, and what replicates of the two that forecast say. */
struct forecaster {
    struct forecast_data data; /* borrowed arrays */
    int n_fits;
    struct fit
        fits[LAWS_MOST]; /* of laws with fewer parameters than points, or as many at two points */
    int n_bands;
    const struct law *bands[LAWS_MOST]; /* laws with replicates */
    struct fit *replicates[LAWS_MOST];  /* [replicates] p alone; owned */
    double *scale; /* [replicates] of the residual draw, law after law; owned */
};

/* Fits every law that the points allow. FAIL_USAGE as fit; one point is refused. */
int forecaster_init(struct forecaster *out, const struct forecast_data *data);
void forecaster_release(struct forecaster *forecaster);

void forecast_at(const struct forecaster *forecaster, double n, struct forecast *out);

const char *forecast_label_name(enum forecast_label label); /* "extrapolated x2" */
enum forecast_label forecast_label_of(const struct fit_data *data, double n);

#endif
