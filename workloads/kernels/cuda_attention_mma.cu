#include "workloads/kernels/cuda_attention.cuh"
#include "workloads/kernels/cuda_mma.cuh"

/*
 * A block of 8 warps owns 128 queries of one head, a warp 16 of them, and walks over tiles of KEYS
 * keys up to the diagonal. The next tile is copied while this one is worked on. Scores are never
 * scaled as such: e^(scale s) = 2^(fold s) with fold = scale log2(e).
 */
enum { WARPS = 8, THREADS = WARPS * WARP, QUERIES = WARPS * 16 };

template <int D> struct forward_tiles {
    static const int KEYS = 64;
    static const int BYTES = (QUERIES + 4 * KEYS) * D * 2;
    static const int BLOCKS = D == 64 ? 2 : 1; /* on a multiprocessor */
};

static const float LOG2_E = 1.4426950408889634f;

/* Largest score so far and sum of 2^(fold (s - most)) of the two rows of a lane; the sum is of this
 * lane's columns alone until the end. */
struct rows_seen {
    float most[2], sum[2];
};

__device__ inline float quad_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, 1));
    return fmaxf(x, __shfl_xor_sync(ALL_LANES, x, 2));
}
__device__ inline float quad_sum(float x)
{
    x += __shfl_xor_sync(ALL_LANES, x, 1);
    return x + __shfl_xor_sync(ALL_LANES, x, 2);
}

/* -inf where the query does not see the key; `query` is that of c[0], `key` that of column 0. */
template <int N>
__device__ inline void mask_scores(const attention<bf16> &a, float (&s)[N][4], int query, int key)
{
    int column = key + (int)threadIdx.x % 4 * 2;
    int unseen[2] = {unseen_of(a, query), unseen_of(a, query + 8)};
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (column + n * 8 + i % 2 >= unseen[i / 2])
                s[n][i] = -INFINITY;
}

/* Scores become probabilities up to 1 / sum; out is brought to the new largest score. */
template <int N, int D>
__device__ inline void soften(float (&s)[N][4], float (&out)[D / 8][4], rows_seen &seen, float fold)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float most = seen.most[half], sum = 0;
#pragma unroll
        for (int n = 0; n < N; n++)
            most = fmaxf(most, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
        most = quad_max(most);
        float base = most * fold, shrink = power_of_two(seen.most[half] * fold - base);
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 2 * half; i < 2 * half + 2; i++) {
                s[n][i] = power_of_two(s[n][i] * fold - base);
                sum += s[n][i];
            }
        seen.sum[half] = seen.sum[half] * shrink + sum;
        seen.most[half] = most;
#pragma unroll
        for (int n = 0; n < D / 8; n++) {
            out[n][2 * half] *= shrink;
            out[n][2 * half + 1] *= shrink;
        }
    }
}

extern __shared__ __align__(128) bf16 mma_shared[];

template <int D>
__global__ void __launch_bounds__(THREADS, forward_tiles<D>::BLOCKS) mma_forward(attention<bf16> a)
{
    const int KEYS = forward_tiles<D>::KEYS;
    bf16 *q = mma_shared, *stage = q + QUERIES * D; /* two of k, v */
    int h = (int)blockIdx.y, kv = h / (a.heads / a.kv_heads), lane = (int)threadIdx.x % WARP;
    int warp_row = (int)threadIdx.x / WARP * 16;
    int first = (int)(gridDim.x - 1 - blockIdx.x) * QUERIES; /* long rows first */
    int64_t sample = (int64_t)blockIdx.z;
    const bf16 *keys = a.k + sample * a.kv_sample + (int64_t)kv * D;
    const bf16 *values = a.v + sample * a.kv_sample + (int64_t)kv * D;
    int end = unseen_of(a, (first + QUERIES < a.queries ? first + QUERIES : a.queries) - 1);
    float out[D / 8][4], s[KEYS / 8][4], fold = a.scale * LOG2_E;
    rows_seen seen = {{-INFINITY, -INFINITY}, {0, 0}};

    copy_tile<QUERIES, D, THREADS>(q, a.q + sample * a.q_sample + (int64_t)h * D, a.row, first,
                                   a.queries);
    copy_tile<KEYS, D, THREADS>(stage, keys, a.kv_row, 0, a.keys);
    copy_tile<KEYS, D, THREADS>(stage + KEYS * D, values, a.kv_row, 0, a.keys);
    clear_products(out);
    for (int from = 0, turn = 0; from < end; from += KEYS, turn ^= 1) {
        bf16 *k = stage + turn * 2 * KEYS * D, *v = k + KEYS * D;
        copy_wait();
        __syncthreads(); /* this tile is there, and the other is no longer read */
        if (from + KEYS < end) {
            bf16 *other = stage + (turn ^ 1) * 2 * KEYS * D;
            copy_tile<KEYS, D, THREADS>(other, keys, a.kv_row, from + KEYS, a.keys);
            copy_tile<KEYS, D, THREADS>(other + KEYS * D, values, a.kv_row, from + KEYS, a.keys);
        }
        int query = first + warp_row;
        if (from > query + 15 + a.before)
            continue; /* these queries see nothing of it */
        multiply_rows<KEYS / 8, D>(s, q, warp_row, k);
        if (from + KEYS > unseen_of(a, query))
            mask_scores(a, s, query + lane / 4, from);
        soften<KEYS / 8, D>(s, out, seen, fold);
        multiply_add<KEYS / 8, D>(out, s, v);
    }
    float *lse = a.lse + head_of_sample(a, h) * a.lse_row;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int query = first + warp_row + lane / 4 + half * 8;
        seen.sum[half] = quad_sum(seen.sum[half]);
        if (lane % 4 == 0 && query < a.queries)
            lse[query] = seen.most[half] * a.scale + logf(seen.sum[half]);
    }
    put_rows<D>(a.out + sample * a.out_sample + (int64_t)h * D, a.out_row, first + warp_row,
                a.queries, out, 1 / seen.sum[0], 1 / seen.sum[1], false);
}

/* ---- launches ---- */

bool cuda_mma_allow_forward(int head)
{
    return head == 64 ? allow_shared((const void *)mma_forward<64>, forward_tiles<64>::BYTES)
                      : allow_shared((const void *)mma_forward<128>, forward_tiles<128>::BYTES);
}

template <int D>
static void launch(const struct op *op, struct kernel_context *context, void *native)
{
    const struct shape_attention *s = &op->shape.attention;
    dim3 grid((unsigned)ceil_div(queries_of(op), QUERIES), (unsigned)s->heads, (unsigned)s->batch);
    mma_forward<D><<<grid, THREADS, forward_tiles<D>::BYTES, NATIVE(native)>>>(
        attention_of<bf16>(op, context));
}

void cuda_mma_forward(const struct op *op, struct kernel_context *context, void *native)
{
    if (op->shape.attention.head == 64)
        launch<64>(op, context, native);
    else
        launch<128>(op, context, native);
    cuda_launched("attention");
}
