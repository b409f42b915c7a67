#include "workloads/kernels/cuda_attention_plain.cuh"

/* p and ds of one pair from its score and dp; 0 where the query does not see the key. */
struct pair {
    float p, ds;
};
__device__ inline pair pair_grad(float score, float dp, float lse, float delta, bool seen,
                                 float scale)
{
    pair x = {0, 0};
    if (seen) {
        x.p = expf(score * scale - lse);
        x.ds = x.p * (dp - delta) * scale;
    }
    return x;
}

/* dk, dv of the keys of a tile: over queries from the diagonal on, of all heads that share it. */
template <typename T, int D> __global__ void __launch_bounds__(THREADS) plain_keys(attention<T> a)
{
    typedef tiling<D> G;
    float *k = plain_shared, *v = k + G::BYTES / 4, *q = v + G::BYTES / 4, *dout = q + G::BYTES / 4;
    float *p = dout + G::BYTES / 4, *ds = p + G::SCORE_BYTES / 4;
    int kv = (int)blockIdx.y, group = a.heads / a.kv_heads, first = (int)blockIdx.x * G::TILE;
    float dk[G::R][G::C], dv[G::R][G::C], s[G::R][G::R], dp[G::R][G::R], one[G::R];

    load_tile<D>(k, a.k + head_at(kv, a.head, a.kv_sample), a.kv_row, first, a.keys, a.head);
    load_tile<D>(v, a.v + head_at(kv, a.head, a.kv_sample), a.kv_row, first, a.keys, a.head);
    clear<D>(dk);
    clear<D>(dv);
    for (int h = kv * group; h < (kv + 1) * group; h++) {
        const float *lse = a.lse + head_of_sample(a, h) * a.lse_row;
        const float *delta = a.delta + head_of_sample(a, h) * a.queries;
        for (int from = first_seeing(a, first); from < a.queries; from += G::TILE) {
            __syncthreads();
            load_tile<D>(q, a.q + head_at(h, a.head, a.q_sample), a.row, from, a.queries, a.head);
            load_tile<D>(dout, a.dout + head_at(h, a.head, a.out_sample), a.out_row, from,
                         a.queries, a.head);
            __syncthreads();
            scores<D>(s, k, q);
            scores<D>(dp, v, dout);
#pragma unroll
            for (int j = 0; j < G::R; j++) {
                int query = from + THREAD_COLUMN + j * SIDE;
                bool exists = query < a.queries;
                float l = exists ? lse[query] : 0, d = exists ? delta[query] : 0;
#pragma unroll
                for (int i = 0; i < G::R; i++) {
                    bool seen = exists && first + THREAD_ROW * G::R + i < unseen_of(a, query);
                    pair x = pair_grad(s[i][j], dp[i][j], l, d, seen, a.scale);
                    s[i][j] = x.p;
                    dp[i][j] = x.ds;
                }
            }
            put_scores<D>(p, s);
            put_scores<D>(ds, dp);
            __syncthreads();
            accumulate<D>(dv, p, dout);
            accumulate<D>(dk, ds, q);
        }
    }
#pragma unroll
    for (int i = 0; i < G::R; i++)
        one[i] = 1;
    put_tile<D>(a.dk + head_at(kv, a.head, a.kv_sample), a.kv_row, first, a.keys, a.head, dk, one,
                a.add_kv);
    put_tile<D>(a.dv + head_at(kv, a.head, a.kv_sample), a.kv_row, first, a.keys, a.head, dv, one,
                a.add_kv);
}

/* dq of the queries of a tile: over the keys up to the diagonal. */
template <typename T, int D>
__global__ void __launch_bounds__(THREADS) plain_queries(attention<T> a)
{
    typedef tiling<D> G;
    float *q = plain_shared, *dout = q + G::BYTES / 4, *k = dout + G::BYTES / 4,
          *v = k + G::BYTES / 4;
    float *ds = v + G::BYTES / 4;
    int h = (int)blockIdx.y, kv = h / (a.heads / a.kv_heads);
    int tile = (int)(gridDim.x - 1 - blockIdx.x), first = tile * G::TILE;
    const float *lse = a.lse + head_of_sample(a, h) * a.lse_row;
    const float *delta = a.delta + head_of_sample(a, h) * a.queries;
    int last = first + G::TILE < a.queries ? first + G::TILE : a.queries,
        end = unseen_of(a, last - 1);
    float dq[G::R][G::C], s[G::R][G::R], dp[G::R][G::R], one[G::R];

    load_tile<D>(q, a.q + head_at(h, a.head, a.q_sample), a.row, first, a.queries, a.head);
    load_tile<D>(dout, a.dout + head_at(h, a.head, a.out_sample), a.out_row, first, a.queries,
                 a.head);
    clear<D>(dq);
    for (int from = 0; from < end; from += G::TILE) {
        __syncthreads();
        load_tile<D>(k, a.k + head_at(kv, a.head, a.kv_sample), a.kv_row, from, a.keys, a.head);
        load_tile<D>(v, a.v + head_at(kv, a.head, a.kv_sample), a.kv_row, from, a.keys, a.head);
        __syncthreads();
        scores<D>(s, q, k);
        scores<D>(dp, dout, v);
#pragma unroll
        for (int i = 0; i < G::R; i++) {
            int query = first + THREAD_ROW * G::R + i;
            bool exists = query < a.queries;
            float l = exists ? lse[query] : 0, d = exists ? delta[query] : 0;
#pragma unroll
            for (int j = 0; j < G::R; j++) {
                bool seen = exists && from + THREAD_COLUMN + j * SIDE < unseen_of(a, query);
                dp[i][j] = pair_grad(s[i][j], dp[i][j], l, d, seen, a.scale).ds;
            }
            one[i] = 1;
        }
        put_scores<D>(ds, dp);
        __syncthreads();
        accumulate<D>(dq, ds, k);
    }
    put_tile<D>(a.dq + head_at(h, a.head, a.q_sample), a.row, first, a.queries, a.head, dq, one,
                a.add_q);
}

/* ---- delta: a warp for each query of each head ---- */

template <typename T> __global__ void delta_rows(attention<T> a, float *delta, int64_t items)
{
    int lane = (int)threadIdx.x % WARP;
    for (int64_t i = thread_index() / WARP; i < items; i += thread_count() / WARP) {
        int64_t position = i % a.queries, head = i / a.queries % a.heads;
        int64_t batch = i / a.queries / a.heads;
        int64_t at = batch * a.out_sample + position * a.out_row + head * a.head;
        float sum = 0;
        for (int c = lane; c < a.head; c += WARP)
            sum += to_float(a.out[at + c]) * to_float(a.dout[at + c]);
        sum = warp_sum(sum);
        if (lane == 0)
            delta[i] = sum;
    }
}

void cuda_attention_delta(const struct op *op, struct kernel_context *context, void *native)
{
    const struct shape_attention *s = &op->shape.attention;
    const struct cuda_state *state = cuda_state(context);
    int64_t items = s->batch * s->heads * queries_of(op);
    unsigned grid = grid_of(items, 8, 8, state);
    float *delta = (float *)state->scratch;
    if (op->dtype == DTYPE_BF16)
        delta_rows<bf16>
            <<<grid, 256, 0, NATIVE(native)>>>(attention_of<bf16>(op, context), delta, items);
    else
        delta_rows<float>
            <<<grid, 256, 0, NATIVE(native)>>>(attention_of<float>(op, context), delta, items);
    cuda_launched("attention-grad");
}

/* ---- launches ---- */

template <typename T, int D>
static void launch(const struct op *op, struct kernel_context *context, void *native)
{
    const struct shape_attention *s = &op->shape.attention;
    const int64_t tile = tiling<D>::TILE;
    dim3 keys((unsigned)ceil_div(keys_of(op), tile), (unsigned)s->kv_heads, (unsigned)s->batch);
    dim3 queries((unsigned)ceil_div(queries_of(op), tile), (unsigned)s->heads, (unsigned)s->batch);
    attention<T> a = attention_of<T>(op, context);
    plain_keys<T, D><<<keys, THREADS, tile_bytes<D>(4, 2), NATIVE(native)>>>(a);
    plain_queries<T, D><<<queries, THREADS, tile_bytes<D>(4, 1), NATIVE(native)>>>(a);
}

template <typename T, int D> static bool allow()
{
    return allow_shared((const void *)plain_keys<T, D>, tile_bytes<D>(4, 2)) &&
           allow_shared((const void *)plain_queries<T, D>, tile_bytes<D>(4, 1));
}

int cuda_plain_most_shared(int head)
{
    return head <= 32    ? tile_bytes<32>(4, 2)
           : head <= 64  ? tile_bytes<64>(4, 2)
           : head <= 128 ? tile_bytes<128>(4, 2)
                         : tile_bytes<256>(4, 2);
}

bool cuda_plain_allow(const struct op *op)
{
    int head = op->shape.attention.head;
    return cuda_plain_allow_forward(op) &&
           (op->dtype == DTYPE_BF16 ? WITH_HEAD(bf16, head, allow)()
                                    : WITH_HEAD(float, head, allow)());
}

void cuda_plain_backward(const struct op *op, struct kernel_context *context, void *native)
{
    int head = op->shape.attention.head;
    cuda_attention_delta(op, context, native);
    if (op->dtype == DTYPE_BF16)
        WITH_HEAD(bf16, head, launch)(op, context, native);
    else
        WITH_HEAD(float, head, launch)(op, context, native);
    cuda_launched("attention-grad");
}
