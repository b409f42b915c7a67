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
#include "workloads/routing.h"
#include "workloads/schedule.h"

enum recompute {
    RECOMPUTE_NONE,
    RECOMPUTE_SELECTIVE, /* attention: its output is made again from q, k, v */
    RECOMPUTE_FULL,      /* the layer: only its input is kept */
    RECOMPUTE_MLP        /* the activation of the MLP, from its input: elementwise, no products */
};

enum cp_kind {
    CP_RING,       /* keys and values pass from rank to rank */
    CP_ALL_GATHER, /* every rank has all keys and values of a layer for a while */
    CP_ULYSSES     /* for attention ranks have all rows of some heads */
};

/* Choices that depend on whether there is a pipeline, unless they are said. */
enum choice { CHOICE_OFF, CHOICE_ON, CHOICE_AUTO };

struct policy {
    int64_t global_batch;   /* samples a step */
    int64_t micro_batch;    /* samples of a micro-batch of one rank */
    enum dtype dtype;       /* of parameters and activations: fp32 or bf16 */
    bool tf32;              /* fp32 matrix products may round their inputs to tf32 */
    enum dtype grad_dtype;  /* of gradients on their way between replicas: fp32 or bf16 */
    int64_t bucket_bytes;   /* a gradient bucket is posted when it holds this; the first at 1 MiB */
    bool overlap_gradients; /* gradients travel as buckets fill; else after backward */
    bool overlap_parameters; /* sharded parameters are gathered ahead of their use */
    enum cp_kind cp_kind;    /* cp > 1: how attention reaches the keys of other ranks */
    bool overlap_context;    /* cp: keys and their gradients travel beside attention */
    bool overlap_tensor;     /* tp: calls beside the products that do not need them */
    bool overlap_expert;     /* ep: rows travel beside shared experts and the router's gradient */
    bool overlap_pipeline;   /* pp: a stage computes while what it has sent is on its way */
    int head_chunks;         /* tp = pp = 1: rows of the head, product to gradient of one part after
                                the other, so that logits of one part are there at once */
    int tp_chunks;           /* tp: a product and its call are cut into so many chunks of rows */
    bool sequence_parallel;  /* tp > 1: norms and residuals are split by rows */
    enum recompute recompute;
    int recompute_every; /* of every so many layers the first is recomputed; 1: all */
    int pack;            /* enum choice: values that do not live together share memory (pack.h);
                            auto: plan_check packs one plan of each kind in place of all */
    bool copy_stream;    /* batches come on a stream of their own, one micro-batch ahead */
    int shard_stage;     /* shard > 1: 1, 2 (ZeRO) or 3 (FSDP) */
    int fsdp_prefetch;   /* units gathered ahead */
    int fsdp_reshard;    /* enum choice: let a unit's parameters go after each use; auto: pp = 1 */
    int reduce_every; /* enum choice: stages 2 and 3 reduce in every micro-batch, else in the last;
                            auto: pp = 1 */
    enum schedule_kind schedule; /* pp > 1 */
    int virtual_stages;          /* pp > 1: chunks of layers of a stage */
    struct routing routing;      /* of models with experts */
    float lr, lr_min, beta1, beta2, epsilon, weight_decay, clip;
    int64_t warm_up, decay_steps; /* optimizer steps */
};

/*
 * fp32, nothing recomputed, all that overlaps overlaps, in one chunk; sharded state is that of FSDP
 * with one unit of prefetch. AdamW as GPT-2 trainers set it: betas 0.9 0.95, epsilon 1e-8, decay
 * 0.1, clip 1; the model's peak learning rate after 10 steps, a cosine to a tenth of it at 1,000.
 * Buckets of 25 MiB. The batches stay 0.
 */
void policy_defaults(struct policy *policy, const struct model *model);

/* What auto stands for. */
bool policy_reshards(const struct policy *policy, int pp);
bool policy_reduces_every(const struct policy *policy, int pp);

/* The pipeline of a layout: stages, micro-batches, chunks; pp = 1: one stage. */
struct schedule policy_schedule(const struct policy *policy, const struct degrees *degrees);

/*
 * Can a plan be made at all? The one predicate of what is legal, beside layout_init; then build and
 * seal. FAIL_USAGE when the batch does not split (both numbers said), a degree does not
 * divide what it splits (the nearest that do are said), or this version has no way of splitting for
 * a combination, by name. *out is zeroed on failure; release it with plan_release.
 */
int transformer_check(const struct model *model, const struct layout *layout,
                      const struct policy *policy);
int transformer_plan(struct plan *out, const struct model *model, const struct layout *layout,
                     const struct policy *policy);

/*
 * Initial values of a piece, on the host: out[piece->count], the same bits however the tensor is
 * cut. Element i of the unpadded, unsplit tensor is sigma * rng_normal(rng_key(seed, name), i) in
 * fp32; padded rows are 0. sigma: 0.02 for matrices, 0.01 for wpe, 0.02 / sqrt(2 layers) for the two
 * projections into the residual stream; biases 0, norm weights 1.
 */
void transformer_init_piece(const struct plan *plan, const struct plan_piece *piece, uint64_t seed,
                            float *out);

#endif
