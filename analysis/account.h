/*
 * account: where the time of one point went.
 *
 * A pure function of one struct record_point. The driver measures in blocks: a lead-in step whose
 * end starts the block's clock, then measured steps, all of one kind; four kinds alternate. Steps
 * flagged warm-up or lead-in, and steps that some rank has no row for, enter nothing here.
 *
 *   capacity    E_k - E_(k-1), where E_k is the last rank's end of step k: what throughput is
 *   stability   the longest step of any rank, end - start: what jitter is
 *   terms       per rank and step, then averaged over both, so that they add up:
 *               step = compute + input + stall + idle + stamps + residual, on instrumented steps
 *
 * Times are doubles in ns; what is unknown is NaN. Formulas: analysis/README.md.
 */
#ifndef ANALYSIS_ACCOUNT_H
#define ANALYSIS_ACCOUNT_H

#include <stdint.h>

#include "analysis/energy.h"
#include "analysis/record.h"
#include "analysis/shift.h"
#include "analysis/stats.h"
#include "analysis/straggler.h"

enum account_kind {
    ACCOUNT_FULL,         /* as a user would run it */
    ACCOUNT_INSTRUMENTED, /* full, every op stamped */
    ACCOUNT_COMPUTE,      /* communication elided */
    ACCOUNT_COMM,         /* compute elided */
    ACCOUNT_GRAPH,        /* full, each step launched as one graph */
    ACCOUNT_KINDS
};

enum account_term {
    TERM_STEP, /* end - start of the rank */
    TERM_COMPUTE,
    TERM_INPUT,
    TERM_STALL,
    TERM_IDLE,
    TERM_STAMPS,   /* what the stamps between ops cost, calibrated */
    TERM_RESIDUAL, /* what is left of the step */
    TERM_EXPOSED,  /* communication outside compute intervals; not a part of the sum */
    TERM_HOST,     /* the host giving the step out; beside the step, not a part of it */
    TERMS
};

struct account_block {
    int32_t block;         /* number in the file */
    int64_t steps;         /* measured */
    double term_ns[TERMS]; /* mean over steps and ranks */
};

/* The measured steps of one kind in the order of time. */
struct account_series {
    int64_t n, n_blocks;
    double *period_ns;  /* [n] E_k - E_(k-1) */
    double *longest_ns; /* [n] max over ranks of end - start */
    int32_t *in_block;  /* [n] index into blocks */
    struct account_block *blocks;
    double term_ns[TERMS]; /* mean over steps and ranks */
};

/* One axis that communicates. Means over the measured steps and ranks, per step. */
struct account_axis {
    text16 name;
    double stall_ns;        /* full steps without instrumentation; NaN when they are bare */
    double stall_closed_ns; /* instrumented steps: the term of the closure */
    double comm_ns;         /* union of the communication intervals, instrumented steps */
    double exposed_ns;      /* of it outside compute; NaN unknown */
    double waits, wire_bytes;
    double calls;       /* NaN when no call was recorded */
    double transfer_ns; /* sum over calls of the shortest duration of any rank */
    double skew_ns;     /* sum over calls of mean - shortest: waiting for late peers */
};

/*
 * What the POP efficiencies are made of, instrumented steps, ns a step. Useful: a rank's compute
 * operations. Active: those and communication outside of them (axes added up; they may overlap each
 * other, so an active time is never more than the rank's own step). NaN when nothing is stamped.
 */
struct account_pop {
    double useful_mean_ns, useful_most_ns; /* over ranks */
    double active_most_ns;
    double elapsed_ns; /* mean period */
};

struct account {
    const struct record_point *record; /* borrowed */
    struct account_series series[ACCOUNT_KINDS];
    bool only_instrumented; /* no other full steps: series[ACCOUNT_FULL] is a copy of those */
    double tokens_per_step; /* valid tokens, all ranks; positions where not recorded */

    struct stats_interval step_ns; /* capacity: mean period of a full step */
    struct stats_interval p50_ns, p95_ns,
        p99_ns; /* of the longest step; p95 from 72, p99 from 368 */
    double cv;

    /* Exposed communication, three ways. Without an axis only difference_ns is known. */
    double stall_ns, interval_ns;            /* first two */
    struct stats_interval counterfactual_ns; /* third: full - compute-only - slowdown - bubble */
    struct stats_interval slowdown_ns;       /* compute ops in full - in compute-only */
    struct stats_interval difference_ns;     /* full - compute-only */
    struct stats_interval disagreement_ns;   /* difference - stall - slowdown */
    struct stats_interval aa_ratio;          /* full blocks, odd / even: what noise looks like */
    struct stats_interval stamps_ratio;      /* instrumented / full period */
    struct stats_interval host_ratio; /* full / graph period: what giving out op by op costs */

    double worst_residual_share; /* of any rank: sum |residual| / sum step */
    int32_t worst_residual_rank; /* -1 unknown */

    int32_t slowest;      /* rank with the most compute time, -1 unknown */
    double slowest_share; /* its excess over the median rank */
    double slowest_mads;  /* the same in 1.4826 MAD, NaN for fewer than 3 ranks or MAD 0 */

    struct shift shift;         /* of the periods of full steps: did the launch keep its pace */
    struct straggler straggler; /* instrumented steps: who is late, by compute time */

    struct account_pop pop;
    struct energy energy; /* of its GPUs; nothing told: no telemetry */

    int n_axes;
    struct account_axis *axes;

    int64_t n_incomplete; /* steps left out: not a row of every rank */
    int64_t
        n_contradicting; /* instrumented rows whose recorded residual is not that of its terms */
};

/* FAIL_FILE when rows contradict the point (a rank or step that cannot be). `seed`: resampling. */
int account_point(struct account *out, const struct record_point *point, uint64_t seed);
void account_release(struct account *account);

/* Name of the host that carried `rank` of the point; "" when the file does not say. */
const char *account_host(const struct record_head *head, const struct point_row *point, int rank);

#endif
