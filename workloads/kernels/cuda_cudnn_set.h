/*
 * cuda_cudnn_set: what open() makes of the attention of a plan. Read by cuda_cudnn*.c alone.
 */
#ifndef WORKLOADS_KERNELS_CUDA_CUDNN_SET_H
#define WORKLOADS_KERNELS_CUDA_CUDNN_SET_H

#include "workloads/kernels/cuda_cudnn_attention.h"

enum { MOST_POINTERS = 13, BINDINGS = 2 };

struct pointers {
    int n;
    int64_t uid[MOST_POINTERS];
    void *at[MOST_POINTERS];
};

/* The tensors of an op where they lie, as cuDNN takes them. An op has two: its memory may be the
 * real one or scratch. */
struct binding {
    struct pointers pointers;
    void *pack; /* NULL: none yet */
};

struct cuda_cudnn {
    struct cudnnContext *handle;
    void *stream; /* that the handle launches on */
    bool deterministic;
    int n;
    struct attention_entry *entries; /* [n] */
    struct binding *bindings;        /* [n_ops][BINDINGS] of the plan */
    int n_ops;
    int64_t sum_bytes; /* of the largest accumulator of dq */
    int64_t dq_bytes;  /* of the largest dq that is added to another; multiples of 256 */
};

/* What lies before the workspace in scratch: of the entries as they are now. */
void cudnn_size_scratch(struct cuda_cudnn *cudnn);

#endif
