#include "workloads/kernels/cuda_soften.cuh"

/*
 * Two passes of 8 warps a block, 16 rows a warp. Keys: 128 keys against tiles of queries from the
 * diagonal on, with scores transposed (keys are rows), so that probabilities and their gradients
 * are ready as left factors. Queries: 128 queries against tiles of keys up to the diagonal. A query
 * beyond the sequence has lse = inf, so all its probabilities are 0.
 */
enum { WARPS = 8, THREADS = WARPS * WARP, OWN = WARPS * 16 };

template <int D> struct grad_tiles {
    static const int QUERIES = D == 64 ? 64 : 32; /* of a tile in the pass over keys */
    static const int KEYS = D == 64 ? 64 : 32;    /* of a tile in the pass over queries */
    static const int KEY_BYTES = (2 * OWN + 4 * QUERIES) * D * 2 + 4 * QUERIES * 4;
    static const int QUERY_BYTES = (2 * OWN + 4 * KEYS) * D * 2;
};

extern __shared__ __align__(128) bf16 grad_shared[];

/* One tile of queries on its way: q, dout by copies, lse (times log2 e) and delta by threads. */
template <int D>
__device__ inline void copy_queries(const attention<bf16> &a, bf16 *tile, float *rows, int h,
                                    int from)
{
    const int QUERIES = grad_tiles<D>::QUERIES;
    int64_t sample = (int64_t)blockIdx.z;
    copy_tile<QUERIES, D, THREADS>(tile, a.q + sample * a.q_sample + (int64_t)h * D, a.row, from,
                                   a.queries);
    copy_tile<QUERIES, D, THREADS>(tile + QUERIES * D,
                                   a.dout + sample * a.out_sample + (int64_t)h * D, a.out_row, from,
                                   a.queries);
    if (threadIdx.x < QUERIES) {
        int query = from + (int)threadIdx.x;
        int64_t head = head_of_sample(a, h);
        bool exists = query < a.queries;
        rows[threadIdx.x] = exists ? a.lse[head * a.lse_row + query] * LOG2_E : INFINITY;
        rows[QUERIES + threadIdx.x] = exists ? a.delta[head * a.queries + query] : 0;
    }
}

template <int D> __global__ void __launch_bounds__(THREADS, 1) mma_keys(attention<bf16> a)
{
    const int QUERIES = grad_tiles<D>::QUERIES, N = QUERIES / 8;
    bf16 *k = grad_shared, *v = k + OWN * D, *stage = v + OWN * D; /* two of q, dout */
    float *rows = (float *)(stage + 4 * QUERIES * D);              /* two of lse, delta */
    int kv = (int)blockIdx.y, group = a.heads / a.kv_heads, lane = (int)threadIdx.x % WARP;
    int warp_row = (int)threadIdx.x / WARP * 16, first = (int)blockIdx.x * OWN;
    int64_t own = (int64_t)blockIdx.z * a.kv_sample + (int64_t)kv * D;
    int start = first_seeing(a, first);
    int head = kv * group, past = start < a.queries ? head + group : head;
    int next, next_head, turn = 0;
    float dk[D / 8][4], dv[D / 8][4], p[N][4], dp[N][4], fold = a.scale * LOG2_E;

    copy_tile<OWN, D, THREADS>(k, a.k + own, a.kv_row, first, a.keys);
    copy_tile<OWN, D, THREADS>(v, a.v + own, a.kv_row, first, a.keys);
    copy_queries<D>(a, stage, rows, kv * group, start);
    clear_products(dk);
    clear_products(dv);
    for (int from = start; head < past; from = next, head = next_head, turn ^= 1) {
        next = from + QUERIES, next_head = head;
        if (next >= a.queries)
            next = start, next_head++;
        bf16 *q = stage + turn * 2 * QUERIES * D, *dout = q + QUERIES * D;
        const float *lse = rows + turn * 2 * QUERIES, *delta = lse + QUERIES;
        copy_wait();
        __syncthreads(); /* this tile is there, and the other is no longer read */
        if (next_head < past)
            copy_queries<D>(a, stage + (turn ^ 1) * 2 * QUERIES * D,
                            rows + (turn ^ 1) * 2 * QUERIES, next_head, next);
        int key = first + warp_row;
        int last = from + a.before; /* key that the first of these queries sees */
        if (last + QUERIES - 1 < key)
            continue; /* no query of it sees these keys */
        multiply_rows<N, D>(p, k, warp_row, q);
        if (last < key + 15)
            mask_keys(p, key + lane / 4, last);
        soften_keys(p, lse, fold);
        multiply_add<N, D>(dv, p, dout);
        multiply_rows<N, D>(dp, v, warp_row, dout);
        score_grad_keys<N>(dp, p, delta);
        multiply_add<N, D>(dk, dp, q);
    }
    put_rows<D>(a.dk + own, a.kv_row, first + warp_row, a.keys, dk, a.scale, a.scale, a.add_kv);
    put_rows<D>(a.dv + own, a.kv_row, first + warp_row, a.keys, dv, 1, 1, a.add_kv);
}

template <int D> __global__ void __launch_bounds__(THREADS, 1) mma_queries(attention<bf16> a)
{
    const int KEYS = grad_tiles<D>::KEYS, N = KEYS / 8;
    bf16 *q = grad_shared, *dout = q + OWN * D, *stage = dout + OWN * D; /* two of k, v */
    int h = (int)blockIdx.y, kv = h / (a.heads / a.kv_heads), lane = (int)threadIdx.x % WARP;
    int warp_row = (int)threadIdx.x / WARP * 16;
    int first = (int)(gridDim.x - 1 - blockIdx.x) * OWN;
    int64_t sample = (int64_t)blockIdx.z, own = sample * a.q_sample + (int64_t)h * D;
    const bf16 *keys = a.k + sample * a.kv_sample + (int64_t)kv * D;
    const bf16 *values = a.v + sample * a.kv_sample + (int64_t)kv * D;
    int end = unseen_of(a, (first + OWN < a.queries ? first + OWN : a.queries) - 1);
    float dq[D / 8][4], s[N][4], dp[N][4], lse[2], delta[2], fold = a.scale * LOG2_E;

    copy_tile<OWN, D, THREADS>(q, a.q + own, a.row, first, a.queries);
    copy_tile<OWN, D, THREADS>(dout, a.dout + sample * a.out_sample + (int64_t)h * D, a.out_row,
                               first, a.queries);
    copy_tile<KEYS, D, THREADS>(stage, keys, a.kv_row, 0, a.keys);
    copy_tile<KEYS, D, THREADS>(stage + KEYS * D, values, a.kv_row, 0, a.keys);
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int query = first + warp_row + lane / 4 + half * 8;
        int64_t head = head_of_sample(a, h);
        lse[half] = query < a.queries ? a.lse[head * a.lse_row + query] * LOG2_E : INFINITY;
        delta[half] = query < a.queries ? a.delta[head * a.queries + query] : 0;
    }
    clear_products(dq);
    for (int from = 0, turn = 0; from < end; from += KEYS, turn ^= 1) {
        bf16 *k = stage + turn * 2 * KEYS * D, *v = k + KEYS * D;
        copy_wait();
        __syncthreads();
        if (from + KEYS < end) {
            bf16 *other = stage + (turn ^ 1) * 2 * KEYS * D;
            copy_tile<KEYS, D, THREADS>(other, keys, a.kv_row, from + KEYS, a.keys);
            copy_tile<KEYS, D, THREADS>(other + KEYS * D, values, a.kv_row, from + KEYS, a.keys);
        }
        int query = first + warp_row;
        if (from > query + 15 + a.before)
            continue;
        multiply_rows<N, D>(s, q, warp_row, k);
        multiply_rows<N, D>(dp, dout, warp_row, v);
        if (from + KEYS > unseen_of(a, query))
            mask_scores(a, s, query + lane / 4, from);
        score_grad_queries(dp, s, lse, delta, fold);
        multiply_add<N, D>(dq, dp, k);
    }
    put_rows<D>(a.dq + own, a.row, first + warp_row, a.queries, dq, a.scale, a.scale, a.add_q);
}

/* ---- launches ---- */

template <int D> static bool allow()
{
    return allow_shared((const void *)mma_keys<D>, grad_tiles<D>::KEY_BYTES) &&
           allow_shared((const void *)mma_queries<D>, grad_tiles<D>::QUERY_BYTES);
}

int cuda_mma_most_shared(int head)
{
    return head == 64 ? grad_tiles<64>::KEY_BYTES : grad_tiles<128>::KEY_BYTES;
}

bool cuda_mma_allow(const struct op *op)
{
    int head = op->shape.attention.head;
    return cuda_mma_allow_forward(head) && (head == 64 ? allow<64>() : allow<128>());
}

template <int D>
static void launch(const struct op *op, struct kernel_context *context, void *native)
{
    const struct shape_attention *s = &op->shape.attention;
    dim3 keys((unsigned)ceil_div(keys_of(op), OWN), (unsigned)s->kv_heads, (unsigned)s->batch);
    dim3 queries((unsigned)ceil_div(queries_of(op), OWN), (unsigned)s->heads, (unsigned)s->batch);
    attention<bf16> a = attention_of<bf16>(op, context);
    mma_keys<D><<<keys, THREADS, grad_tiles<D>::KEY_BYTES, NATIVE(native)>>>(a);
    mma_queries<D><<<queries, THREADS, grad_tiles<D>::QUERY_BYTES, NATIVE(native)>>>(a);
}

void cuda_mma_backward(const struct op *op, struct kernel_context *context, void *native)
{
    cuda_attention_delta(op, context, native);
    if (op->shape.attention.head == 64)
        launch<64>(op, context, native);
    else
        launch<128>(op, context, native);
    cuda_launched("attention-grad");
}
