#include "workloads/kernels/cuda_cudnn_attention.h"

#include <cudnn.h>
#include <float.h>
#include <math.h>

/* Sizes and strides of what a graph shares: s queries, t keys. */
struct shapes {
    int64_t b, h, hk, s, t, d;
    bool causal;
    int64_t q[4], kt[4], kv[4], stats[4];
    int64_t q_stride[4], kt_stride[4], kv_stride[4], out_stride[4], dq_stride[4], stats_stride[4];
};

static struct shapes shapes_of(const struct shape_attention *a)
{
    bool block = a->q_rows > 0;
    int64_t b = a->batch, h = a->heads, k = a->kv_heads, d = a->head, all = a->sequence;
    int64_t s = block ? a->q_rows : all, t = block ? a->kv_rows : all;
    int64_t row = (h + 2 * k) * d, out = h * d, kv_row = block ? 2 * k * d : row;
    int64_t kv_sample = (block ? a->kv_sequence : all) * kv_row;
    int64_t dq_row = a->add_q ? out : row, dq_sample = (a->add_q ? s : all) * dq_row;
    return (struct shapes){
        .b = b,
        .h = h,
        .hk = k,
        .s = s,
        .t = t,
        .d = d,
        .causal = !block || a->causal,
        .q = {b, h, s, d},
        .kt = {b, k, d, t},
        .kv = {b, k, t, d},
        .stats = {b, h, s, 1},
        .q_stride = {all * row, d, row, 1},
        .kt_stride = {kv_sample, d, 1, kv_row},
        .kv_stride = {kv_sample, d, kv_row, 1},
        .out_stride = {all * out, d, out, 1},
        .dq_stride = {dq_sample, d, dq_row, 1},
        .stats_stride = {h * all, all, 1, 1},
    };
}

/* [s][t] of every head. */
static struct cudnn_tensor square(struct cudnn_graph *g, const struct shapes *n, int t)
{
    return cudnn_packed(g, t, n->b, n->h, n->s, n->t);
}

static struct cudnn_tensor column(struct cudnn_graph *g, const struct shapes *n)
{
    int64_t stride[4] = {n->h * n->s, n->s, 1, 1};
    return cudnn_virtual(g, CUDNN_DATA_FLOAT, n->stats, stride);
}

/* y = x (mode) b in fp32, [s][t]. */
static struct cudnn_tensor scores(struct cudnn_graph *g, const struct shapes *n, int mode,
                                  struct cudnn_tensor x, const struct cudnn_tensor *b)
{
    struct cudnn_tensor y = square(g, n, CUDNN_DATA_FLOAT);
    cudnn_pointwise(g, mode, CUDNN_DATA_FLOAT, x, b, y);
    return y;
}

/* Scaled scores of q and k, with the least float where a key comes after its query (causal). */
static struct cudnn_tensor masked_scores(struct cudnn_graph *g, const struct shapes *n,
                                         struct cudnn_tensor q, struct cudnn_tensor kt,
                                         struct cudnn_tensor scale)
{
    struct cudnn_tensor product = square(g, n, CUDNN_DATA_FLOAT);
    cudnn_matmul(g, q, kt, product);
    struct cudnn_tensor scaled = scores(g, n, CUDNN_POINTWISE_MUL, product, &scale);
    if (!n->causal)
        return scaled;
    struct cudnn_tensor least = cudnn_constant(g, ATTENTION_LEAST);
    struct cudnn_tensor query = square(g, n, CUDNN_DATA_INT32);
    struct cudnn_tensor key = square(g, n, CUDNN_DATA_INT32);
    struct cudnn_tensor seen = square(g, n, CUDNN_DATA_BOOLEAN);
    struct cudnn_tensor masked = square(g, n, CUDNN_DATA_FLOAT);
    cudnn_index(g, 2, scaled, query);
    cudnn_index(g, 3, scaled, key);
    cudnn_pointwise(g, CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, query, &key, seen);
    cudnn_select(g, scaled, least, seen, masked);
    return masked;
}

void cudnn_attention_forward(struct cudnn_graph *g, const struct shape_attention *shape)
{
    struct shapes n = shapes_of(shape);
    int bf16 = CUDNN_DATA_BFLOAT16;
    struct cudnn_tensor q = cudnn_memory(g, ATTENTION_Q, bf16, n.q, n.q_stride);
    struct cudnn_tensor kt = cudnn_memory(g, ATTENTION_K, bf16, n.kt, n.kt_stride);
    struct cudnn_tensor v = cudnn_memory(g, ATTENTION_V, bf16, n.kv, n.kv_stride);
    struct cudnn_tensor out = cudnn_memory(g, ATTENTION_OUT, bf16, n.q, n.out_stride);
    struct cudnn_tensor lse =
        cudnn_memory(g, ATTENTION_LSE, CUDNN_DATA_FLOAT, n.stats, n.stats_stride);
    struct cudnn_tensor x = masked_scores(g, &n, q, kt, cudnn_constant(g, ATTENTION_SCALE));
    struct cudnn_tensor most = column(g, &n), sum = column(g, &n), log_sum = column(g, &n);

    cudnn_reduction(g, CUDNN_REDUCE_TENSOR_MAX, x, most);
    x = scores(g, &n, CUDNN_POINTWISE_SUB, x, &most);
    x = scores(g, &n, CUDNN_POINTWISE_EXP, x, NULL);
    cudnn_reduction(g, CUDNN_REDUCE_TENSOR_ADD, x, sum);
    cudnn_pointwise(g, CUDNN_POINTWISE_LOG, CUDNN_DATA_FLOAT, sum, NULL, log_sum);
    cudnn_pointwise(g, CUDNN_POINTWISE_ADD, CUDNN_DATA_FLOAT, most, &log_sum, lse);
    struct cudnn_tensor p = square(g, &n, bf16);
    cudnn_pointwise(g, CUDNN_POINTWISE_DIV, CUDNN_DATA_FLOAT, x, &sum, p);
    cudnn_matmul(g, p, v, out);
}

/* [s][t] turned round, in bf16: a left factor. */
static struct cudnn_tensor turned(struct cudnn_graph *g, const struct shapes *n,
                                  struct cudnn_tensor x)
{
    int64_t size[4] = {n->b, n->h, n->t, n->s};
    int64_t stride[4] = {n->h * n->s * n->t, n->s * n->t, 1, n->t};
    struct cudnn_tensor y = cudnn_virtual(g, CUDNN_DATA_BFLOAT16, size, stride);
    cudnn_reshape(g, x, y);
    return y;
}

/* dk or dv = left^T right, summed over the query heads that share a key head. */
static void key_grad(struct cudnn_graph *g, const struct shapes *n, struct cudnn_tensor left,
                     struct cudnn_tensor right, struct cudnn_tensor out)
{
    struct cudnn_tensor t = turned(g, n, left);
    if (n->h == n->hk) {
        cudnn_matmul(g, t, right, out);
        return;
    }
    struct cudnn_tensor every = cudnn_packed(g, CUDNN_DATA_BFLOAT16, n->b, n->h, n->t, n->d);
    cudnn_matmul(g, t, right, every);
    cudnn_reduction(g, CUDNN_REDUCE_TENSOR_ADD, every, out);
}

/* sum(dout out) of every query. */
static struct cudnn_tensor delta(struct cudnn_graph *g, const struct shapes *n,
                                 struct cudnn_tensor dout, struct cudnn_tensor out,
                                 struct cudnn_tensor one)
{
    int64_t stride[4] = {n->h * n->s * n->d, n->s * n->d, n->h * n->d, 1};
    struct cudnn_tensor product = cudnn_virtual(g, CUDNN_DATA_FLOAT, n->q, stride);
    struct cudnn_tensor sum = column(g, n), delta = column(g, n);
    cudnn_pointwise(g, CUDNN_POINTWISE_MUL, CUDNN_DATA_FLOAT, dout, &out, product);
    cudnn_reduction(g, CUDNN_REDUCE_TENSOR_ADD, product, sum);
    cudnn_pointwise(g, CUDNN_POINTWISE_MUL, CUDNN_DATA_FLOAT, sum, &one, delta);
    return delta;
}

/* dq = ds k; into an accumulator first unless the order of sums is to be fixed. */
static void query_grad(struct cudnn_graph *g, const struct shapes *n, struct cudnn_tensor ds,
                       struct cudnn_tensor kt, struct cudnn_tensor dq, bool deterministic)
{
    int64_t stride[4] = {n->kv_stride[0], n->kv_stride[1], n->kv_stride[2], 1};
    struct cudnn_tensor k = cudnn_virtual(g, CUDNN_DATA_FLOAT, n->kv, stride);
    cudnn_reshape(g, kt, k);
    if (deterministic) {
        cudnn_matmul(g, ds, k, dq);
        return;
    }
    struct cudnn_tensor sum = cudnn_accumulator(g, ATTENTION_DQ_SUM, n->q);
    cudnn_matmul(g, ds, k, sum);
    cudnn_pointwise(g, CUDNN_POINTWISE_IDENTITY, CUDNN_DATA_FLOAT, sum, NULL, dq);
}

void cudnn_attention_backward(struct cudnn_graph *g, const struct shape_attention *shape,
                              bool deterministic)
{
    struct shapes n = shapes_of(shape);
    int bf16 = CUDNN_DATA_BFLOAT16;
    struct cudnn_tensor one = cudnn_constant(g, ATTENTION_ONE);
    struct cudnn_tensor scale = cudnn_constant(g, ATTENTION_SCALE);
    struct cudnn_tensor q = cudnn_memory(g, ATTENTION_Q, bf16, n.q, n.q_stride);
    struct cudnn_tensor kt = cudnn_memory(g, ATTENTION_K, bf16, n.kt, n.kt_stride);
    struct cudnn_tensor vt = cudnn_memory(g, ATTENTION_V, bf16, n.kt, n.kt_stride);
    struct cudnn_tensor out = cudnn_memory(g, ATTENTION_OUT, bf16, n.q, n.out_stride);
    struct cudnn_tensor dout = cudnn_memory(g, ATTENTION_DOUT, bf16, n.q, n.out_stride);
    struct cudnn_tensor lse =
        cudnn_memory(g, ATTENTION_LSE, CUDNN_DATA_FLOAT, n.stats, n.stats_stride);
    struct cudnn_tensor dq = cudnn_memory(g, ATTENTION_DQ, bf16, n.q, n.dq_stride);
    struct cudnn_tensor dk = cudnn_memory(g, ATTENTION_DK, bf16, n.kv, n.kv_stride);
    struct cudnn_tensor dv = cudnn_memory(g, ATTENTION_DV, bf16, n.kv, n.kv_stride);

    struct cudnn_tensor inner = delta(g, &n, dout, out, one);
    struct cudnn_tensor p = masked_scores(g, &n, q, kt, scale);
    p = scores(g, &n, CUDNN_POINTWISE_SUB, p, &lse);
    p = scores(g, &n, CUDNN_POINTWISE_EXP, p, NULL);
    key_grad(g, &n, p, dout, dv);
    struct cudnn_tensor ds = square(g, &n, CUDNN_DATA_FLOAT);
    cudnn_matmul(g, dout, vt, ds);
    ds = scores(g, &n, CUDNN_POINTWISE_MUL, ds, &one);
    ds = scores(g, &n, CUDNN_POINTWISE_SUB, ds, &inner);
    ds = scores(g, &n, CUDNN_POINTWISE_MUL, ds, &p);
    ds = scores(g, &n, CUDNN_POINTWISE_MUL, ds, &scale);
    key_grad(g, &n, ds, q, dk);
    query_grad(g, &n, ds, kt, dq, deterministic);
}

void cudnn_attention_constants(const struct shape_attention *shape, float out[3])
{
    out[0] = (float)(1 / sqrt((double)shape->head));
    out[1] = 1;
    out[2] = -FLT_MAX;
}
