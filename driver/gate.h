/*
 * gate: correctness comes before performance.
 *
 * The gate model is the study's model with layers, width, vocabulary and sequence reduced until a
 * single-rank reference is cheap, run with the point's own layout, policy, kernels and dtype, on
 * data whose samples hold unequal numbers of valid tokens, in several buckets and micro-batches.
 * The reference is computed once per study, in fp32 on the CPU of rank 0 with one rank, whatever the
 * study computes with, and broadcast. Compared are, on every rank:
 *
 *   gradient  after step 1, before clipping and Adam, per tensor, in L2 norms:
 *             |g - g_ref| <= G max(|g_ref|, 1e-3 |all of g_ref|)
 *   loss      of step 1 within L1, of each later step within L, relative
 *   norm      gradient norm of step 1 within N1, of each later step within N, relative
 *   update    after the last step. fp32: max |theta - theta_ref| <= 1e-5 max |theta_ref| + 0.02 steps
 *             lr; others, in L2 norms and without what is structurally zero:
 *             |theta - theta_ref| <= U |theta_ref - theta_initial|; where one step is compared, without
 *             elements whose gradient is below 5 G of the root of the tensor's mean square and that lie no
 *             further off than an update the other way: AdamW's first step is the sign of the gradient, and
 *             theirs is not sure
 *   nonzero   every gradient is finite and not zero, but for parts that are structurally zero
 *   padded    rows that the unpadded model does not have: gradient and parameter exactly 0
 *
 *   routing   learned, step 1: the reference was told what the point chose for every token, and took that
 *             wherever it is as good within R (gate_choices.h): found is how often it did. Not one may be
 *             worse, and none unknown
 *
 *          steps      G      L1       L      N1       N       U       R      lr
 *   fp32       5   1e-5    1e-5    1e-5    1e-4    1e-4       -    1e-5       -
 *   tf32       5   1e-2    1e-3    1e-3    3e-3    1e-2    0.15    1e-2    3e-4
 *   bf16      20   2e-2    5e-4    1e-3    5e-3    1e-2    0.15    3e-2    3e-4
 *
 * Gradients that travel in bf16 are held as bf16 is, whatever computes (GATE_FP32_BF16, GATE_TF32_BF16); the
 * loss of step 1 and choices of experts, which no gradient has touched, as what computes.
 *
 * lr is the most that the gate's updates step by where numbers are rounded. Weights of 0.02 that AdamW moves
 * by 3e-3 a step are a path on which neighbours part: at that rate the norm of step 4 of a model 64 wide and 8
 * deep was up to 10 % off in bf16 with any layout, dp=4 included, where a tenth of it keeps every norm of 20
 * steps within 0.8 % and every loss within 2e-4. What is compared is the arithmetic, not the path.
 *
 * Adam's epsilon is 1e-6 here: at 1e-8 the sign of rounding noise would decide updates of tensors
 * whose true gradient is 0 (the key bias).
 */
#ifndef DRIVER_GATE_H
#define DRIVER_GATE_H

#include "analysis/record.h"
#include "driver/execute.h"
#include "workloads/transformer.h"

enum { GATE_STEPS = 5, GATE_STEPS_MOST = 20 };

/* What a study computes with, as --dtype numbers it; and with gradients that travel in bf16. */
enum gate_numbers { GATE_FP32, GATE_TF32, GATE_BF16, GATE_FP32_BF16, GATE_TF32_BF16 };

struct gate_bounds {
    int steps;
    double gradient, loss_first, loss, norm_first, norm;
    double update; /* 0: the rule of fp32 */
    double tie;    /* learned routing: logits so close, over their root mean square, are equal */
    double lr;     /* most; 0: the model's */
};

const struct gate_bounds *gate_bounds(enum gate_numbers numbers);

struct gate_reference {
    struct model model;               /* the gate model */
    const struct gate_bounds *bounds; /* NULL: those of fp32 */
    struct routing routing;           /* of experts */
    uint64_t seed;
    int64_t batch;    /* samples a step */
    struct plan plan; /* of one rank: tensor names and places */
    float *gradient;  /* [n_parameters] after step 1, sums over valid tokens */
    float *parameter; /* [n_parameters] after the last step */
    int steps; /* that were made: those of the bounds, or fewer where a test has many layouts */
    struct kernel_told *told; /* what it is told to choose; NULL: it chooses by itself */
    struct gate_routing {
        int64_t tokens, known, followed, refused; /* each layer for itself; 0: was told nothing */
    } routed;
    double loss[GATE_STEPS_MOST], norm[GATE_STEPS_MOST];
};

/* Collective over `world`: rank 0 computes on its CPU, all receive. `tp`: the least common multiple
 * of the tp degrees that will run the gate model. */
int gate_reference_make(struct gate_reference *reference, const struct model *model, int64_t tp,
                        int64_t batch, uint64_t seed, enum gate_numbers numbers, int rank,
                        const void *world);
/* The same for a model of experts, whose tokens come to them as `routing` says. What the router
 * chooses by itself may differ where two experts are all but tied, and from the second step on that
 * differs more and more: learned routing is compared at step 1 alone, and with a reference that each
 * point has made again with its own choices where they are as good. */
int gate_reference_routed(struct gate_reference *reference, const struct model *model,
                          const struct routing *routing, const struct gate_shape *shape,
                          int64_t batch, uint64_t seed, enum gate_numbers numbers, int rank,
                          const void *world);
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

/* The policy that the gate model is run with at a point. */
struct policy gate_point_policy(const struct gate_reference *reference, const struct layout *layout,
                                const struct policy *policy, bool accumulate);

/*
 * Append the worst of all ranks for each of n rows (the same checks in the same order on every
 * rank) to `out` on rank 0. Collective.
 */
int gate_collect(const struct gate_row *rows, int64_t n, const struct layout *layout,
                 const void *parent, struct record_point *out);

/*
 * What a rank found: its pieces of gradient (after step 1) and of masters (after the last step), at the
 * offsets of the pieces. Rows are one per check and tensor of the reference, in the same order on
 * every rank whatever part it holds: at most 4 a tensor and 2 a step. Returns how many.
 */
struct gate_found {
    const struct plan *plan;
    float *gradient, *parameter; /* [n_state] */
    double loss[GATE_STEPS_MOST], norm[GATE_STEPS_MOST];
    double tied; /* learned routing: tokens of this rank whose experts rounding may have chosen */
};
int64_t gate_compare(const struct gate_reference *reference, const struct gate_found *found,
                     struct gate_row *rows);

/* How far a row is from passing: above 1 it failed; NaN counts as worst. */
double gate_severity(const struct gate_row *row);

/* One row; passed is difference <= allowed (false for NaN). */
struct gate_row gate_row_of(const char *check, const char *subject, double expected, double found,
                            double difference, double allowed);

/* 0 when every gate row passed, else FAIL_WRONG with `why` naming the first that did not. */
int gate_verdict(const struct record_point *point, char *why, size_t size);

#endif
