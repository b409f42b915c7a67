/*
 * transformer: the plan of one training step of a decoder-only network.
 *
 * Pure: (model, layout, policy) in, plan out. This file knows the order of forward and backward;
 * the ways of splitting (data.h, ...) add the communication to it. A step is
 *
 *   zero gradients and sums
 *   for each of A micro-batches: input, embed, layers, loss; backward in reverse, adding gradients
 *   all-reduce of buckets (as backward of the last micro-batch finishes them)
 *   sum of squares, clip and learning rate, AdamW of every tensor
 *
 * Replica r takes samples [r, r + 1) * A * micro_batch of the global batch: together all replicas
 * take each sample once, whatever the layout.
 */
#ifndef WORKLOADS_TRANSFORMER_H
#define WORKLOADS_TRANSFORMER_H

#include "workloads/model.h"
#include "workloads/plan.h"

struct policy {
    int64_t global_batch;   /* samples a step */
    int64_t micro_batch;    /* samples of a micro-batch of one rank */
    int64_t bucket_bytes;   /* a gradient bucket is posted when it holds this; the first at 1 MiB */
    bool overlap_gradients; /* all-reduce as buckets fill; else after backward */
    float lr, lr_min, beta1, beta2, epsilon, weight_decay, clip;
    int64_t warm_up, decay_steps; /* optimizer steps */
};

/*
 * AdamW as GPT-2 trainers set it: betas 0.9 0.95, epsilon 1e-8, decay 0.1, clip 1; the model's peak
 * learning rate after 10 steps, a cosine to a tenth of it at 1,000. Buckets of 25 MiB, overlapped.
 * The batches stay 0.
 */
void policy_defaults(struct policy *policy, const struct model *model);

/*
 * Build and seal. FAIL_USAGE when the batch does not split (both numbers said); FAIL_ABSENT by name
 * for a degree that has no way of splitting in this version. *out is zeroed on failure; release it
 * with plan_release.
 */
int transformer_plan(struct plan *out, const struct model *model, const struct layout *layout,
                     const struct policy *policy);

/*
 * Initial values of a tensor, on the host: out[rows * columns]. Element i of the unpadded tensor is
 * sigma * rng_normal(rng_key(seed, name), i) in fp32; padded rows are 0. sigma: 0.02 for matrices
 * and wte, 0.01 for wpe, 0.02 / sqrt(2 layers) for the two projections into the residual stream;
 * biases 0, norm weights 1.
 */
void transformer_init_tensor(const struct plan_tensor *tensor, uint64_t seed, float *out);

/*
 * The formulas that the plan is proved against: bytes that one rank sends at least in a step on the
 * dp axis: 2 (n-1)/n (4 bytes * padded parameters + 3 * 8 bytes of sums).
 */
double transformer_dp_bytes(const struct model *model, int replicas);

/*
 * Operations of one rank in a step: A (26 layers + 9) of forward and backward, one update per tensor
 * (12 layers + 4), two zeros and a clip, and per gradient bucket a sum of squares and (with several
 * replicas) an all-reduce, one more for the sums.
 */
double transformer_ops(const struct model *model, int64_t micro_batches, int replicas,
                       int64_t bucket_bytes);

#endif
