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

void cudnn_attention_forward(struct cudnn_graph *graph, const struct shape_attention *shape);
void cudnn_attention_backward(struct cudnn_graph *graph, const struct shape_attention *shape,
                              bool deterministic);
void cudnn_attention_constants(const struct shape_attention *shape, float out[3]);

#endif
