/*
 * series: a curve in one neutral form, whether it was measured by a study or typed in from a paper.
 *
 * A series is what may be drawn as one line: points of one way of scaling, N strictly increasing.
 * What it counts (devices or nodes), in which unit it gives its rate, what is held fixed and what
 * follows N is said once for the series; a point has what is known about it, NaN or -1 for the
 * rest, never 0. Rates are what speedup and efficiency come from: tokens/s where step time, batch
 * and sequence or a printed value give it, else samples/s, steps/s, or model TFLOP/s of all devices.
 *
 * `rate` and `step_s` are intervals; a table has single values (`exact`: low and high are NaN and
 * n is 1 because nobody said how often it was measured). `launches` are raw step times where the
 * source has them. A point that is not `valid` stays visible and enters no ratio and no fit.
 *
 * Strong: the same work a step at every N. Weak: the same work a device. Work: the model (or its
 * layers) changes with N, so that only W = parameters x sequences a step can be compared; every
 * print says "the model grows with N". A series with `best_layout` changes tp, pp, cp or ep with
 * N: each point is another program, it may be drawn and is never fitted by one law.
 */
#ifndef ANALYSIS_SERIES_H
#define ANALYSIS_SERIES_H

#include <stdbool.h>
#include <stdint.h>

#include "analysis/scaling.h"
#include "analysis/stats.h"

enum series_mode {
    SERIES_STRONG,
    SERIES_WEAK,
    SERIES_WORK, /* work-normalised: the model grows with N */
    SERIES_MODES
};

enum series_counts { SERIES_DEVICES, SERIES_NODES };

/* What a rate is a rate of. */
enum series_rate {
    SERIES_TOKENS,       /* tokens/s */
    SERIES_SAMPLES,      /* samples/s */
    SERIES_STEPS,        /* steps/s, strong: the work of a step is not known */
    SERIES_TFLOPS,       /* model TFLOP/s of all devices */
    SERIES_DEVICE_STEPS, /* devices x steps/s, weak: the work of a device is not known */
    SERIES_RATES
};

/* Figures that a source prints beside what it measured: kept apart, checked, never used where the
 * measurement itself is there. Shares, not percent. */
enum series_printed {
    PRINTED_TOKENS_PER_S,
    PRINTED_TOKENS_PER_S_DEVICE,
    PRINTED_SAMPLES_PER_S,
    PRINTED_TFLOPS_DEVICE, /* TFLOP/s of one device */
    PRINTED_PFLOPS,        /* PFLOP/s of all devices */
    PRINTED_MFU,
    PRINTED_HFU,
    PRINTED_EFFICIENCY,
    PRINTED_SPEEDUP,
    PRINTED_DAYS,            /* to train `tokens_total` */
    PRINTED_TOKENS_PER_STEP, /* "tokens per batch" */
    PRINTED_FIGURES
};

struct series_point {
    int line;        /* in the source; 0: none */
    double n;        /* what series.counts says */
    int64_t devices; /* -1 unknown */
    int64_t nodes;   /* -1 unknown */
    bool valid;
    char why[96]; /* not valid: why */
    bool oversubscribed,
        emulated;   /* of a study: in no fit and no gate; says nothing of a network */
    bool unsettled; /* of a study: its interval stayed wider than the study asked for */
    bool exact;     /* single values: nothing is known about their spread */

    struct stats_interval step_s; /* NaN when only a rate is known */
    struct stats_interval rate;   /* of all devices, in the unit of series.rate */
    int n_launches;               /* 0: a single value, or an interval as printed */
    struct stats_series
        *launches; /* [n_launches] step times, s; one value each where a run is a row
                                      (1 / rate where it says no time); owned by the series */

    double parameters; /* NaN unknown */
    int64_t layers;    /* -1 unknown, like all counts below */
    int64_t hidden, heads, vocabulary, kv_heads, ffn;
    int64_t global_batch; /* sequences a step */
    int64_t micro_batch, sequence;
    int64_t tp, pp, cp, dp, ep;
    double tokens_per_step;          /* valid tokens; NaN */
    double flops_per_step;           /* model FLOPs: no recompute; NaN */
    double work;                     /* W = parameters x sequences a step; NaN */
    double mfu, hfu;                 /* shares, derived by us; NaN */
    double samples_to_target;        /* NaN */
    double tokens_total;             /* of the whole training; NaN */
    double time_to_work_s;           /* measured: from start to target or to tokens_total; NaN */
    double goodput;                  /* share of wall time that trains; NaN */
    double loss;                     /* last printed; NaN */
    double printed[PRINTED_FIGURES]; /* NaN: not printed */
};

struct series {
    char name[96];
    char source[256]; /* file, for messages */
    enum series_mode mode;
    enum series_counts counts;
    enum series_rate rate;
    bool best_layout;
    bool from_study;
    int set; /* of a study: its set of points; else 0 */
    /* Empty: not said. One value holds for all points. */
    char model[64], device[64], precision[16], fabric[32];
    char flop_convention[48]; /* "causal", "full attention", "printed by the source" */
    char peak_source[64];
    double peak_tflops; /* of a device; NaN */
    bool sparse_peak;   /* the peak is the 2:4-sparse one */
    bool moe;
    int64_t devices_per_node; /* -1: differs or unknown */
    int base;                 /* index of the smallest valid point; -1 */
    int n_points;
    struct series_point *points; /* by n */
};

/* Of the whole input: series, and what was found wrong with it. */
struct series_note {
    char text[256]; /* one sentence with its numbers */
    char source[256];
    int line;
};

struct series_set {
    int n_series, n_notes;
    struct series *series;
    struct series_note *notes;
};

/* A point with everything unknown. */
struct series_point series_point_unknown(void);

/* Adds an empty series, or a point to one; the pointer is good until the next addition. */
struct series *series_set_add(struct series_set *set, const char *name, const char *source);
struct series_point *series_add(struct series *series, const struct series_point *point);

/* Appends raw step times, n of them times `scale`, as one more launch of the point. */
void series_add_launch(struct series_point *point, const double *x, int64_t n, double scale);

/* Sets `base`. */
void series_find_base(struct series *series);

/* Adds a note; text is cut at its size. */
void series_set_note(struct series_set *set, const char *source, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/*
 * The curves of a study: one series per set and node shape of `scaling` (a row that is part of one
 * node belongs to every shape that contains it). Raw steps are copied, in launches.
 */
void series_from_scaling(struct series_set *set, const struct scaling *scaling, const char *name,
                         const char *source);

void series_point_release(struct series_point *point);
void series_release(struct series *series);
void series_set_release(struct series_set *set);

const char *series_mode_name(enum series_mode mode);       /* "strong", "weak", "work-normalised" */
const char *series_rate_unit(enum series_rate rate);       /* "tokens/s" */
const char *series_counts_name(enum series_counts counts); /* "devices", "nodes" */

/* Whether a law may be fitted: not best_layout and not work-normalised; `why` gets the reason. */
bool series_fittable(const struct series *series, const char **why);

#endif
