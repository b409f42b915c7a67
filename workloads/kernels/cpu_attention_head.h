/*
 * cpu_attention_head: one head of one sample on the host, forward and backward, a block of queries
 * at a time. Shared by cpu_attention*.c alone.
 *
 * Queries and keys may lie in different tensors, and the mask may be one of a part of a sequence:
 * under `causal` the last query sees all keys, each one before it one fewer.
 */
#ifndef WORKLOADS_KERNELS_CPU_ATTENTION_HEAD_H
#define WORKLOADS_KERNELS_CPU_ATTENTION_HEAD_H

#include <stdbool.h>
#include <stdint.h>

#include "workloads/kernels/cpu_attention.h"
#include "workloads/plan.h"

struct cpu_head {
    const float *q, *k, *v; /* [queries][width] and [keys][width] */
    int queries, keys;
    int row, kv_row; /* floats from one row of q, of k and v to the next */
    int out_row;     /* the same of out and dout */
    int width;
    float scale;
    bool causal;
};

/* Gradients of one head, laid out as its q, k, v. */
struct cpu_head_grad {
    float *dq, *dk, *dv;
    const float *out, *dout; /* [queries], `out_row` floats apart */
    const float *lse;        /* [queries] */
    float *p, *ds;           /* score blocks of CPU_ATTENTION_BLOCK rows, `ld` floats apart */
    int ld;
    bool add_q, add_kv;
};

/* What all heads of an op have in common: all fields but q, k and v. */
struct cpu_head cpu_head_of(const struct shape_attention *shape, int64_t queries, int64_t keys,
                            int64_t row, int64_t kv_row, bool causal);

/* out [queries] and lse [queries]; scores is one block. */
void cpu_head_forward(const struct cpu_head *head, float *out, float *lse, float *scores, int ld);
void cpu_head_backward(const struct cpu_head *head, const struct cpu_head_grad *grad);

#endif
