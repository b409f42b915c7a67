/*
 * compare: layouts that did equal work, ranked, and why one is slower than another.
 *
 * Rows are ranked together when they did the same work (model, batch, sequence, precision, padding)
 * on the same number of devices of one kind; order is that of the mean step. Each is held against
 * the fastest by the ratio of step times, taken inside the launches that both share; rows of two
 * studies share none and are unpaired. A row whose ratio does not differ from 1 by more than its
 * interval and the A/A ratio of both cannot be told apart from the fastest.
 *
 * Why: the step of each row as a sum,
 *
 *   step = compute + recompute + slowdown + exposed communication by axis + input + idle + other
 *
 * compute is that of instrumented steps without what overlap costs it (slowdown) and what backward
 * made again (recompute: operations of forward in the backward phase, and of matrix products the
 * FLOPs beyond twice those of forward). Exposed: stalls of the compute stream, so with a pipeline
 * pp has its bubble. other closes the sum (between steps, residual). The first-order reason is the
 * term that grew most, and its share of the difference. Terms are exact, reasons are arithmetic: a
 * smaller matrix that computes less efficiently is compute.
 */
#ifndef ANALYSIS_COMPARE_H
#define ANALYSIS_COMPARE_H

#include "analysis/contract.h"

#define COMPARE_TERMS(X)                                                                           \
    X(COMPARE_COMPUTE, "compute")                                                                  \
    X(COMPARE_RECOMPUTE, "recompute")                                                              \
    X(COMPARE_SLOWDOWN, "slowdown")                                                                \
    X(COMPARE_DP, "dp")                                                                            \
    X(COMPARE_SHARD, "shard")                                                                      \
    X(COMPARE_REPLICATE, "replicate")                                                              \
    X(COMPARE_TP, "tp")                                                                            \
    X(COMPARE_PP, "pp")                                                                            \
    X(COMPARE_CP, "cp")                                                                            \
    X(COMPARE_EP, "ep")                                                                            \
    X(COMPARE_EDP, "edp")                                                                          \
    X(COMPARE_INPUT, "input")                                                                      \
    X(COMPARE_IDLE, "idle")                                                                        \
    X(COMPARE_OTHER, "other")

enum compare_term {
#define COMPARE_ENUM(name, text) name,
    COMPARE_TERMS(COMPARE_ENUM)
#undef COMPARE_ENUM
        N_COMPARE_TERMS
};
const char *compare_term_name(int term);

/* Terms of a row in ns, NaN where nothing was stamped; a term that does not occur is 0. */
void compare_terms(const struct scaling_row *row, double term_ns[N_COMPARE_TERMS]);

enum compare_verdict {
    COMPARE_BEST,
    COMPARE_SLOWER,
    COMPARE_NOT_TOLD_APART, /* the interval of the ratio contains 1, or there is none */
    COMPARE_WITHIN_NOISE    /* it does not, but A/A reaches as far: not told apart either */
};
const char *compare_verdict_name(int verdict);

struct compare_row {
    int study; /* index of the report */
    const struct report *report;
    const struct scaling_row *row;
    int place; /* from 1; those that cannot be told apart from the fastest share place 1 */
    struct stats_interval ratio; /* step of this row over that of the fastest */
    struct stats_interval aa;    /* the widest of both */
    bool unpaired;
    enum compare_verdict verdict;
    double term_ns[N_COMPARE_TERMS];
    int reason;                         /* term; -1: the fastest, not told apart, or not stamped */
    double reason_share;                /* of the difference of steps */
    double exposed_ns;                  /* sum of the axes; NaN */
    double inside_bytes, across_bytes;  /* a rank sends in a step, in and between nodes; NaN */
    int64_t arena_bytes, process_bytes; /* of the rank that holds most; -1 unknown */
};

struct compare_group {
    int n, room;
    struct compare_row *rows; /* fastest first */
    int n_studies;
};

struct compare {
    int n_groups;
    struct compare_group *groups; /* of two rows or more, by devices */
    int n_alone;                  /* valid rows that nothing can be held against */
    int n_invalid;                /* rows whose proof failed: never ranked */
};

/*
 * FAIL_USAGE when nothing can be ranked: no two rows did equal work, or no two of the studies named
 * did; one sentence says the first thing that differs. *out then has no groups.
 */
int compare_init(struct compare *out, const struct report *studies, int n, uint64_t seed);
void compare_release(struct compare *compare);

/* "exposed tp +3.21 of +4.10 ms, 78 %"; "" without a reason. */
void compare_reason(const struct compare_group *group, const struct compare_row *row, char *text,
                    size_t size);

#endif
