/*
 * goodput_costs: what saves and failures cost on N nodes, and where each figure comes from.
 *
 * In this order: what was given as an option (assumed); what was measured on N nodes; what the measured
 * node counts say about others:
 *
 *   complete(N)  = bytes / min(N B_node, B_shared)      fitted to saves of two or more node counts
 *   blocked(N)   = bytes / (N g) / B_copy               B_copy: bytes a rank copies a second, g ranks a node;
 *                  of mode sync: complete(N) x blocked / complete as measured
 *   inflation(N) = phi (complete(N) - blocked(N))       phi: what steps lose a second of draining
 *   d_b = blocked + inflation, d_c = complete
 *
 * The bytes of a save are those of the training state and do not change with N: as measured, else
 * 12 a parameter (fp32 master and two moments) as the plan of any layout has them. Where an option gives other
 * bytes than N nodes saved, what was measured there is a rate and no time: complete(N) is fitted or, without a
 * fit, carried by that rate, and so is blocked(N). D and R are means
 * over failures that somebody noted; where none was, R is from the begin of the next launch's program and D is not
 * known. They are those of failures on N nodes, else over all failures of the kind (carried). The step is measured on N
 * nodes, in all launches that were named (goodput_steps.h), or from three node counts on what the laws of the curve forecast (forecast.h: at most 4 times the
 * largest, with its interval); in weak scaling the largest measured one is carried where they do not.
 */
#ifndef ANALYSIS_GOODPUT_COSTS_H
#define ANALYSIS_GOODPUT_COSTS_H

#include "analysis/goodput_model.h"
#include "analysis/goodput_study.h"

enum { GOODPUT_COUNTS = 32 };

enum goodput_source {
    FROM_NONE,     /* not known */
    FROM_MEASURED, /* on this node count */
    FROM_FITTED,   /* by a law over node counts */
    FROM_CARRIED,  /* measured on another one, taken as it is; or of other bytes, by its rate */
    FROM_FORMULA,  /* from the plan */
    FROM_ASSUMED,  /* from an option */
};
const char *goodput_source_name(enum goodput_source source);

struct goodput_figure {
    struct stats_interval x;
    enum goodput_source source;
};
struct goodput_figure goodput_figure_given(double x); /* an option's: assumed, no interval */

/* Options; NaN: not given. */
struct goodput_given {
    double blocked_s, complete_s, detect_s, restart_s, step_s;
    double node_per_s, shared_per_s, bytes; /* bytes/s, bytes/s, bytes */
    double local_s, local_share;            /* a first level: its cost, what it survives */
};

/* What is known of one kind and mode. */
struct goodput_known {
    const struct goodput_study *study;
    int kind; /* -1: no file, options alone */
    uint64_t seed;
    struct goodput_given given;
    char mode[16]; /* "": nothing was saved */
    int ranks_per_node;
    int n_costs;
    struct goodput_save_cost costs[GOODPUT_COUNTS]; /* by nodes, where the mode saved */
    bool has_storage;
    struct goodput_storage storage;
    double copy_per_s; /* B_copy of a rank; NaN */
    double phi[3];     /* value, low, high; NaN */
    double bytes;      /* of a save, all ranks; NaN */
    enum goodput_source bytes_source;
};

struct goodput_at {
    double nodes, devices;
    struct goodput_figure blocked, cost, complete, detect, restart, step; /* seconds */
    double tokens_per_step;                                               /* NaN */
    bool bottom; /* D or R is unknown and counted as 0: goodput is an upper bound */
};

void goodput_known_init(struct goodput_known *out, const struct goodput_study *study, int kind,
                        const char *mode, const struct goodput_given *given, uint64_t seed);

/* What is published costs no more than it takes: false where options, beside each other or beside what was
 * measured, say otherwise; `why` is then the one sentence. */
bool goodput_costs_agree(const struct goodput_at *at, char *why, size_t size);

/* False when nothing says what a save costs there; `why` is then the one sentence about it. */
bool goodput_costs_at(struct goodput_at *out, const struct goodput_known *known, double nodes,
                      char *why, size_t size);

#endif
