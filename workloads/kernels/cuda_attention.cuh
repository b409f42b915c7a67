/*
 * cuda_attention: where the heads of an attention op lie, for the kernels that compute it.
 */
#ifndef WORKLOADS_KERNELS_CUDA_ATTENTION_CUH
#define WORKLOADS_KERNELS_CUDA_ATTENTION_CUH

#include "workloads/kernels/cuda_kernel.cuh"

/* Element (batch, position, head, i) of q, k, v lies at (batch sequence + position) row + head
 * width + i of its pointer; of out and dout the same with out_row. lse and delta: [batch][heads]
 * [sequence]. dq, dk, dv as q, k, v. */
template <typename T> struct attention {
    const T *q, *k, *v;
    T *out;
    const T *dout;
    T *dq, *dk, *dv;
    float *lse;
    const float *delta;
    int64_t row, out_row;
    int sequence, heads, kv_heads, head;
    float scale;
};

template <typename T>
static attention<T> attention_of(const struct op *op, struct kernel_context *context)
{
    const struct shape_attention *s = &op->shape.attention;
    bool backward = op->kind == OP_ATTENTION_GRAD;
    attention<T> a = {};
    int64_t q = (int64_t)s->heads * s->head, kv = (int64_t)s->kv_heads * s->head;
    T *qkv = (T *)tensor_at(context, op->t[backward ? 1 : 0]);
    a.q = qkv, a.k = qkv + q, a.v = qkv + q + kv;
    a.out = (T *)tensor_at(context, op->t[backward ? 2 : 1]);
    a.lse = (float *)tensor_at(context, op->t[backward ? 3 : 2]);
    if (backward) {
        T *dqkv = (T *)tensor_at(context, op->t[4]);
        a.dout = (const T *)tensor_at(context, op->t[0]);
        a.dq = dqkv, a.dk = dqkv + q, a.dv = dqkv + q + kv;
        a.delta = (const float *)cuda_state(context)->scratch;
    }
    a.row = q + 2 * kv, a.out_row = q;
    a.sequence = (int)s->sequence, a.heads = s->heads, a.kv_heads = s->kv_heads, a.head = s->head;
    a.scale = (float)(1 / sqrt((double)s->head));
    return a;
}

#endif
