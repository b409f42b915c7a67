/*
 * gate: correctness comes before performance.
 *
 * The gate model is the study's model with layers, width, vocabulary and sequence reduced until a
 * single-rank reference is cheap, run with the point's own layout, policy, kernels and dtype, on
 * data whose samples hold unequal numbers of valid tokens, in several buckets and micro-batches.
 * The reference is computed once per study, on rank 0 with one rank and broadcast. Compared are, on
 * every rank:
 *
 *   gradient  after step 1, before clipping and Adam, per tensor, in L2 norms:
 *             |g - g_ref| <= 1e-5 max(|g_ref|, 1e-3 |all of g_ref|)
 *   loss      of each of 5 steps, 1e-5 relative
 *   norm      gradient norm of each step, 1e-4 relative
 *   update    after 5 steps, max |theta - theta_ref| <= 1e-5 max |theta_ref| + 0.02 * 5 * lr
 *   nonzero   every gradient is finite and not zero, but for parts that are structurally zero
 *   padded    rows that the unpadded model does not have: gradient and parameter exactly 0
 *
 * Adam's epsilon is 1e-6 here: at 1e-8 the sign of rounding noise would decide updates of tensors
 * whose true gradient is 0 (the key bias).
 */
#ifndef DRIVER_GATE_H
#define DRIVER_GATE_H

#include "analysis/record.h"
#include "driver/execute.h"
#include "workloads/transformer.h"

enum { GATE_STEPS = 5 };

struct gate_reference {
    struct model model; /* the gate model */
    uint64_t seed;
    int64_t batch;    /* samples a step */
    struct plan plan; /* of one rank: tensor names and places */
    float *gradient;  /* [n_parameters] after step 1, sums over valid tokens */
    float *parameter; /* [n_parameters] after GATE_STEPS */
    double loss[GATE_STEPS], norm[GATE_STEPS];
};

/* Collective over `world`: rank 0 computes, all receive. */
int gate_reference_make(struct gate_reference *reference, const struct model *model, int64_t batch,
                        uint64_t seed, const struct backend *backend, int rank, const void *world);
void gate_reference_release(struct gate_reference *reference);

/*
 * Collective over the point. Runs the gate model with `layout` and appends to `rows`, on rank 0 of
 * the point, one row per check and subject: that of the worst rank. Returns 0 whatever the verdict
 * (rows say it); FAIL_* when the gate could not run. `accumulate`: the point has several
 * micro-batches.
 */
int gate_point(const struct gate_reference *reference, const struct layout *layout,
               const struct policy *policy, bool accumulate, const struct backend *backend,
               const void *parent, struct execute_fault fault, struct record_point *rows);

/*
 * Append the worst of all ranks for each of n rows (the same checks in the same order on every
 * rank) to `out` on rank 0. Collective.
 */
int gate_collect(const struct gate_row *rows, int64_t n, const struct layout *layout,
                 const void *parent, struct record_point *out);

/* One row; passed is difference <= allowed (false for NaN). */
struct gate_row gate_row_of(const char *check, const char *subject, double expected, double found,
                            double difference, double allowed);

/* 0 when every gate row passed, else FAIL_WRONG with `why` naming the first that did not. */
int gate_verdict(const struct record_point *point, char *why, size_t size);

/* (L2 norm, dot product with a generated +-1 vector) of a tensor, in fp64. */
struct checksum {
    double norm, dot;
};
struct checksum gate_checksum(const float *values, int64_t n, uint64_t seed, const char *name);

#endif
