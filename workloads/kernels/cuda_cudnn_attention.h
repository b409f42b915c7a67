/*
 * cuda_cudnn_attention: attention as a graph of products, pointwise operations and reductions, the
 * form that cuDNN's fused engines recognise: [s][s] tensors are virtual and never stored. The node
 * that says all this at once (CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR, _BWD_) has no attribute
 * for a causal mask up to 9.19, so it is of no use here. Blocks of a cut sequence: squares under the
 * mask and strips without; where dq is added to it is written densely, [b][q_rows][heads * head].
 * Read by cuda_cudnn*.c alone.
 */
#ifndef WORKLOADS_KERNELS_CUDA_CUDNN_ATTENTION_H
#define WORKLOADS_KERNELS_CUDA_CUDNN_ATTENTION_H

#include "workloads/kernels/cuda_cudnn.h"
#include "workloads/plan.h"

/* Names of tensors in memory; then of constants, whose values cudnn_attention_constants gives. */
enum attention_uid {
    ATTENTION_Q = 1,
    ATTENTION_K,
    ATTENTION_V,
    ATTENTION_OUT,
    ATTENTION_LSE,
    ATTENTION_DOUT,
    ATTENTION_DQ,
    ATTENTION_DK,
    ATTENTION_DV,
    ATTENTION_DQ_SUM, /* fp32 [b][h][s][d], zero before a run */
    ATTENTION_SCALE,
    ATTENTION_ONE,
    ATTENTION_LEAST
};

/* `ordered`: dq without an accumulator, its sums in a fixed order; the plan may want more workspace. */
void cudnn_attention_forward(struct cudnn_graph *graph, const struct shape_attention *shape);
void cudnn_attention_backward(struct cudnn_graph *graph, const struct shape_attention *shape,
                              bool ordered);
void cudnn_attention_constants(const struct shape_attention *shape, float out[3]);

/* What a choice of plan depends on, and the choice: plain bytes that ranks hand to each other, made by
 * attention_key alone. */
struct attention_key {
    int64_t batch, sequence, q_rows, kv_sequence, kv_rows;
    int heads, kv_heads, head, causal, add_q, backward, may_own, unused; /* no padding */
};
struct attention_found {
    struct attention_key key;
    struct cudnn_engine engine;
    int ordered;
    int own;        /* kernels of this project, not the engine */
    int candidates; /* that were timed; 0: none, the heuristic's first was taken */
    int refused;    /* that gave other results than the heuristic's first */
    float us, first_us;
    int64_t workspace_bytes;
};

/* One attention shape in one direction, and what runs it. */
struct attention_entry {
    struct shape_attention shape;
    bool backward, ordered;
    bool may_own, own; /* kernels of this project (wgmma) run here and may be tried; run it */
    struct cudnn_plan plan;
    float constants[3]; /* packs point to them */
    struct attention_found found;
};

struct attention_key attention_key(const struct attention_entry *entry);
int64_t attention_sum_bytes(const struct attention_entry *entry); /* of the accumulator of dq; 0 */

/* The graph of an entry with dq in one way or the other; the caller ends it. */
void attention_graph(struct cudnn_graph *graph, struct cudnnContext *handle,
                     const struct attention_entry *entry, bool ordered);

struct kernel_context;

/*
 * Times, on `native`, what the heuristic's three modes name for an entry, with and without an
 * accumulator of dq, and this project's own kernel, and leaves the choice in entry->found; entry->plan stays. Candidates that take
 * more memory than the plan there is by more than 64 MiB, or whose results differ from its by more
 * than roundings do, are left out. The heuristic's first stays unless another is faster by 1 %. Without
 * memory for the tensors there is no choice (candidates 0), which is no failure.
 */
void attention_search(struct attention_entry *entry, struct cudnnContext *handle,
                      struct kernel_context *context, void *native);

/* Make the plan that was found, here or on another rank. */
int attention_adopt(struct attention_entry *entry, struct cudnnContext *handle,
                    const struct attention_found *found);

#endif
