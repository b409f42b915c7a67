/*
 * cuda_attention: where the heads of an attention op lie, for the kernels that compute it.
 */
#ifndef WORKLOADS_KERNELS_CUDA_ATTENTION_CUH
#define WORKLOADS_KERNELS_CUDA_ATTENTION_CUH

#include "workloads/kernels/cuda_kernel.cuh"

/*
 * Element (batch, position, head, i) of q lies at batch q_sample + position row + head width + i of
 * its pointer; of k and v the same with kv_sample and kv_row, of out and dout with out_sample and
 * out_row. lse: [batch][heads], lse_row apart; delta: [batch][heads][queries]. dq, dk, dv as q, k, v.
 * A query sees the keys up to its own position and `before` more, as far as they exist.
 */
template <typename T> struct attention {
    const T *q, *k, *v;
    T *out;
    const T *dout;
    T *dq, *dk, *dv;
    float *lse;
    const float *delta;
    int64_t row, kv_row, out_row, q_sample, kv_sample, out_sample, lse_row;
    int queries, keys, before;
    int heads, kv_heads, head;
    bool add_q, add_kv; /* gradients are added */
    float scale;
};

/* The first key that query `query` does not see; may be beyond all keys. */
template <typename T> __device__ inline int unseen_of(const attention<T> &a, int query)
{
    int end = query + a.before + 1;
    return end < a.keys ? end : a.keys;
}
/* The first query that sees `key`. */
template <typename T> __device__ inline int first_seeing(const attention<T> &a, int key)
{
    return key > a.before ? key - a.before : 0;
}
template <typename T> __device__ inline int64_t head_of_sample(const attention<T> &a, int h)
{
    return (int64_t)blockIdx.z * a.heads + h;
}

/* q, k and v side by side, all rows of each. */
template <typename T>
static attention<T> whole_of(const struct op *op, struct kernel_context *context)
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
    a.row = a.kv_row = q + 2 * kv;
    a.q_sample = a.kv_sample = s->sequence * a.row;
    a.queries = a.keys = (int)s->sequence;
    return a;
}

/* Some rows of q, and of keys that lie elsewhere. */
template <typename T>
static attention<T> block_of(const struct op *op, struct kernel_context *context)
{
    const struct shape_attention *s = &op->shape.attention;
    bool backward = op->kind == OP_ATTENTION_BLOCK_GRAD;
    attention<T> a = {};
    int64_t q = (int64_t)s->heads * s->head, kv = (int64_t)s->kv_heads * s->head;
    a.row = q + 2 * kv, a.kv_row = 2 * kv;
    a.q_sample = s->sequence * a.row, a.kv_sample = s->kv_sequence * a.kv_row;
    int64_t first = s->q_first * a.row, first_key = s->kv_first * a.kv_row;
    a.q = (const T *)tensor_at(context, op->t[backward ? 1 : 0]) + first;
    a.k = (const T *)tensor_at(context, op->t[backward ? 2 : 1]) + first_key, a.v = a.k + kv;
    a.out = (T *)tensor_at(context, op->t[backward ? 3 : 2]) + s->q_first * q;
    a.lse = (float *)tensor_at(context, op->t[backward ? 4 : 3]) + s->q_first;
    if (backward) {
        a.dout = (const T *)tensor_at(context, op->t[0]) + s->q_first * q;
        a.dq = (T *)tensor_at(context, op->t[5]) + first;
        a.dk = (T *)tensor_at(context, op->t[6]) + first_key, a.dv = a.dk + kv;
        a.delta = (const float *)cuda_state(context)->scratch;
        a.add_q = s->add_q, a.add_kv = s->add_kv;
    }
    a.queries = (int)s->q_rows, a.keys = (int)s->kv_rows;
    a.before = s->causal ? a.keys - a.queries : a.keys;
    return a;
}

template <typename T>
static attention<T> attention_of(const struct op *op, struct kernel_context *context)
{
    const struct shape_attention *s = &op->shape.attention;
    bool whole = op->kind == OP_ATTENTION || op->kind == OP_ATTENTION_GRAD;
    attention<T> a = whole ? whole_of<T>(op, context) : block_of<T>(op, context);
    a.heads = s->heads, a.kv_heads = s->kv_heads, a.head = s->head;
    a.out_row = (int64_t)s->heads * s->head;
    a.out_sample = s->sequence * a.out_row, a.lse_row = s->sequence;
    a.scale = (float)(1 / sqrt((double)s->head));
    return a;
}

/* Rows of queries and of keys that an op computes with. */
static inline int64_t queries_of(const struct op *op)
{
    const struct shape_attention *s = &op->shape.attention;
    return s->q_rows > 0 ? s->q_rows : s->sequence;
}
static inline int64_t keys_of(const struct op *op)
{
    const struct shape_attention *s = &op->shape.attention;
    return s->kv_rows > 0 ? s->kv_rows : s->sequence;
}

#endif
