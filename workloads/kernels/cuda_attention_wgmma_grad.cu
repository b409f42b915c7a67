#include "workloads/kernels/cuda_slots.cuh"
#include "workloads/kernels/cuda_soften.cuh"

/*
 * Two passes; a block is a warpgroup and owns 64 rows. Queries: a block's queries against tiles of
 * keys up to the diagonal. Keys: a block's keys against tiles of queries from the diagonal on, with
 * scores transposed (keys are rows), so that probabilities and their gradients are ready as left
 * factors. The next tile is copied while this one is worked on.
 *
 * The first pass leaves lse (times log2 e) and delta of every query to the second, in scratch, each
 * [batch][heads][padded] with padded = queries rounded up to whole tiles: lse = inf there, so that
 * all probabilities are 0.
 */
enum { OWN = 64, TILE_ROWS = 64, N = TILE_ROWS / 8, ROW_BYTES = TILE_ROWS * 4 };

template <int D> struct grad_tiles {
    static const int TILE = TILE_ROWS * D; /* elements of one of two: q and dout, or k and v */
    static const int BYTES = (2 * OWN * D + 4 * TILE) * 2 + 4 * ROW_BYTES + SLOT_BARRIERS * 8 + 8;
    static const int KEY_BLOCKS = D == 64 ? 3 : 2, QUERY_BLOCKS = D == 64 ? 4 : 2;
};

struct grad_maps {
    tensor_map q, k, v, dout;
};
struct grad_rows {
    float *lse, *delta;
    int padded;
};

__device__ inline int64_t padded_row(const grad_rows &rows, const attention<bf16> &a, int h)
{
    return head_of_sample(a, h) * rows.padded;
}

/* Memory of a block: what it owns (q and dout, or k and v), and what passes by. */
struct grad_block {
    bf16 *own, *stage; /* two tiles; two of two */
    float *rows;       /* two of lse, delta */
    slots passing;
    uint64_t *here; /* what it owns */
};

template <int D> __device__ inline grad_block grad_open()
{
    const int TILE = grad_tiles<D>::TILE;
    grad_block b;
    b.own = wgmma_memory, b.stage = b.own + 2 * OWN * D;
    b.rows = (float *)(b.stage + 4 * TILE);
    uint64_t *barriers = (uint64_t *)(b.rows + 4 * TILE_ROWS);
    b.here = barriers + SLOT_BARRIERS;
    b.passing = slots_open(barriers, WARPGROUP / WARP);
    if (threadIdx.x == 0) {
        barrier_open(b.here, 1);
        barriers_publish();
    }
    return b;
}

/* Both of its own from row `first` on, by one thread. */
template <int D>
__device__ inline void fill_own(const grad_block &b, const tensor_map *x, const tensor_map *y,
                                int first, int head)
{
    barrier_expect(b.here, 2 * OWN * D * 2);
    copy_rows<OWN, D>(b.own, x, first, head, (int)blockIdx.z, b.here);
    copy_rows<OWN, D>(b.own + OWN * D, y, first, head, (int)blockIdx.z, b.here);
}

/* Tile i of two that pass by, rows from `from` on of a head, and where `more` bytes are to arrive, too. By
 * one thread. */
template <int D>
__device__ inline uint64_t *fill_pair(const grad_block &b, const tensor_map *x, const tensor_map *y,
                                      int i, int head, int from, int more)
{
    const int TILE = grad_tiles<D>::TILE;
    bf16 *tile = b.stage + i % 2 * 2 * TILE;
    uint64_t *arrived = slot_fill(b.passing, i, 2 * TILE * 2 + more);
    copy_rows<TILE_ROWS, D>(tile, x, from, head, (int)blockIdx.z, arrived);
    copy_rows<TILE_ROWS, D>(tile + TILE, y, from, head, (int)blockIdx.z, arrived);
    return arrived;
}

/* ---- queries ---- */

/* Of eight neighbours, at 16 bytes. */
__device__ inline float product_of_8(const bf16 *a, const bf16 *b)
{
    uint4 x = *(const uint4 *)a, y = *(const uint4 *)b;
    const __nv_bfloat162 *xs = (const __nv_bfloat162 *)&x, *ys = (const __nv_bfloat162 *)&y;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        float2 p = __bfloat1622float2(xs[i]), q = __bfloat1622float2(ys[i]);
        sum += p.x * q.x + p.y * q.y;
    }
    return sum;
}

/* lse and delta of the rows of a lane, query and query + 8; four lanes share them. */
template <int D>
__device__ inline void rows_of_lane(const attention<bf16> &a, const grad_rows &rows, int h,
                                    int query, float (&lse)[2], float (&delta)[2])
{
    int64_t head = (int64_t)blockIdx.z * a.out_sample + h * D + (int)threadIdx.x % 4 * 8;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int row = query + half * 8;
        bool exists = row < a.queries;
        float sum = 0;
        for (int i = 0; i < D && exists; i += 32)
            sum += product_of_8(a.out + head + row * a.out_row + i,
                                a.dout + head + row * a.out_row + i);
        delta[half] = quad_sum(sum);
        lse[half] = exists ? a.lse[head_of_sample(a, h) * a.lse_row + row] * LOG2_E : INFINITY;
        if (threadIdx.x % 4 == 0) {
            rows.lse[padded_row(rows, a, h) + row] = lse[half];
            rows.delta[padded_row(rows, a, h) + row] = delta[half];
        }
    }
}

template <int D>
__global__ void __launch_bounds__(WARPGROUP, grad_tiles<D>::QUERY_BLOCKS)
    wgmma_queries(const __grid_constant__ grad_maps maps, attention<bf16> a, grad_rows rows)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    const int TILE = grad_tiles<D>::TILE;
    const grad_block b = grad_open<D>();
    int h = (int)blockIdx.y, kv = h / (a.heads / a.kv_heads), lane = (int)threadIdx.x % WARP;
    int first = (int)(gridDim.x - 1 - blockIdx.x) * OWN;
    int query = first + (int)threadIdx.x / WARP * 16, unmasked = unseen_of(a, query);
    int end = unseen_of(a, (first + OWN < a.queries ? first + OWN : a.queries) - 1);
    float dq[D / 8][4], s[N][4], dp[N][4], lse[2], delta[2], fold = a.scale * LOG2_E;
    unsigned left[N / 2][4];

    if (threadIdx.x == 0) {
        fill_own<D>(b, &maps.q, &maps.dout, first, h);
        fill_pair<D>(b, &maps.k, &maps.v, 0, kv, 0, 0);
    }
    __syncthreads();
    rows_of_lane<D>(a, rows, h, query + lane / 4, lse, delta);
    clear_products(dq);
    barrier_wait(b.here, 0);
    for (int i = 0, from = 0; from < end; i++, from += TILE_ROWS) {
        const bf16 *k = b.stage + i % 2 * 2 * TILE, *v = k + TILE;
        if (threadIdx.x == 0 && from + TILE_ROWS < end)
            fill_pair<D>(b, &maps.k, &maps.v, i + 1, kv, from + TILE_ROWS, 0);
        __syncwarp(); /* together again, as products want a warp */
        slot_wait(b.passing, i);
        wgmma_hold(s);
        wgmma_hold(dp);
        wgmma_begin();
        wgmma_rows<N, D, OWN>(s, b.own, 0, k);
        wgmma_rows<N, D, OWN>(dp, b.own + OWN * D, 0, v);
        wgmma_commit();
        wgmma_wait<0>();
        wgmma_hold(s);
        wgmma_hold(dp);
        if (from + TILE_ROWS > unmasked)
            mask_scores(a, s, query + lane / 4, from);
        score_grad_queries(dp, s, lse, delta, fold);
        pack_rows(left, dp);
        wgmma_hold(dq);
        wgmma_begin();
        wgmma_columns<N>(dq, left, k);
        wgmma_commit();
        wgmma_wait<0>();
        wgmma_hold(dq);
        wgmma_hold(left);
        slot_leave(b.passing, i);
    }
    put_rows<D>(a.dq + (int64_t)blockIdx.z * a.q_sample + (int64_t)h * D, a.row, query, a.queries,
                dq, a.scale, a.scale, a.add_q);
#endif
}

/* ---- keys ---- */

/* Tile i of queries, from `from` of head h on: q, dout, lse, delta. By one thread. */
template <int D>
__device__ inline void fill_queries(const grad_block &b, const grad_maps &maps,
                                    const attention<bf16> &a, const grad_rows &rows, int i, int h,
                                    int from)
{
    uint64_t *arrived = fill_pair<D>(b, &maps.q, &maps.dout, i, h, from, 2 * ROW_BYTES);
    float *stage = b.rows + i % 2 * 2 * TILE_ROWS;
    int64_t row = padded_row(rows, a, h) + from;
    copy_bytes(stage, rows.lse + row, ROW_BYTES, arrived);
    copy_bytes(stage + TILE_ROWS, rows.delta + row, ROW_BYTES, arrived);
}

/* dk and dv += what one tile of queries gives; `key`: the warp's first; `last`: that the first of these
 * queries sees. */
template <int D>
__device__ inline void add_queries(float (&dk)[D / 8][4], float (&dv)[D / 8][4], const bf16 *own,
                                   const bf16 *tile, const float *rows, int key, int last,
                                   float fold)
{
    const bf16 *q = tile, *dout = tile + grad_tiles<D>::TILE;
    float p[N][4], dp[N][4];
    unsigned left[N / 2][4], right[N / 2][4];
    wgmma_hold(p);
    wgmma_hold(dp);
    wgmma_begin();
    wgmma_rows<N, D, OWN>(p, own, 0, q);
    wgmma_commit();
    wgmma_rows<N, D, OWN>(dp, own + OWN * D, 0, dout);
    wgmma_commit();
    wgmma_wait<1>();
    wgmma_hold(p);
    if (last < key + 15)
        mask_keys(p, key + (int)threadIdx.x % WARP / 4, last);
    soften_keys(p, rows, fold);
    pack_rows(left, p);
    wgmma_hold(dv);
    wgmma_begin();
    wgmma_columns<N>(dv, left, dout);
    wgmma_commit();
    wgmma_wait<1>();
    wgmma_hold(dp);
    /* Products still read `left`, and so does this: to copy it takes registers that are not there. */
    score_grad_packed<N>(dp, left, rows + TILE_ROWS);
    pack_rows(right, dp);
    wgmma_hold(dk);
    wgmma_begin();
    wgmma_columns<N>(dk, right, q);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_hold(dk);
    wgmma_hold(dv);
    wgmma_hold(left);
    wgmma_hold(right);
}

template <int D>
__global__ void __launch_bounds__(WARPGROUP, grad_tiles<D>::KEY_BLOCKS)
    wgmma_keys(const __grid_constant__ grad_maps maps, attention<bf16> a, grad_rows rows)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    const int TILE = grad_tiles<D>::TILE;
    const grad_block b = grad_open<D>();
    int kv = (int)blockIdx.y, group = a.heads / a.kv_heads;
    int first = (int)blockIdx.x * OWN, key = first + (int)threadIdx.x / WARP * 16;
    int start = first_seeing(a, first) / TILE_ROWS * TILE_ROWS;
    int head = kv * group, past = start < a.queries ? head + group : head;
    float dk[D / 8][4], dv[D / 8][4], fold = a.scale * LOG2_E;

    if (threadIdx.x == 0) {
        fill_own<D>(b, &maps.k, &maps.v, first, kv);
        if (head < past)
            fill_queries<D>(b, maps, a, rows, 0, head, start);
    }
    __syncthreads();
    clear_products(dk);
    clear_products(dv);
    barrier_wait(b.here, 0);
    for (int i = 0, from = start; head < past; i++) {
        int next = from + TILE_ROWS, next_head = head;
        if (next >= a.queries)
            next = start, next_head++;
        if (threadIdx.x == 0 && next_head < past)
            fill_queries<D>(b, maps, a, rows, i + 1, next_head, next);
        __syncwarp();
        slot_wait(b.passing, i);
        add_queries<D>(dk, dv, b.own, b.stage + i % 2 * 2 * TILE, b.rows + i % 2 * 2 * TILE_ROWS,
                       key, from + a.before, fold);
        slot_leave(b.passing, i);
        from = next, head = next_head;
    }
    int64_t own = (int64_t)blockIdx.z * a.kv_sample + (int64_t)kv * D;
    put_rows<D>(a.dk + own, a.kv_row, key, a.keys, dk, a.scale, a.scale, a.add_kv);
    put_rows<D>(a.dv + own, a.kv_row, key, a.keys, dv, 1, 1, a.add_kv);
#endif
}

/* ---- launches ---- */

template <int D> static bool allow()
{
    return allow_shared((const void *)wgmma_keys<D>, grad_tiles<D>::BYTES) &&
           allow_shared((const void *)wgmma_queries<D>, grad_tiles<D>::BYTES);
}

int cuda_wgmma_most_shared(int head)
{
    int forward = cuda_wgmma_forward_shared(head);
    int backward = head == 64 ? grad_tiles<64>::BYTES : grad_tiles<128>::BYTES;
    return forward > backward ? forward : backward;
}

/* Refused where no code of this device is in the program, too. */
bool cuda_wgmma_allow(const struct op *op)
{
    int head = op->shape.attention.head;
    bool allowed = cuda_wgmma_allow_forward(head) && (head == 64 ? allow<64>() : allow<128>());
    if (!allowed)
        (void)cudaGetLastError();
    return allowed;
}

int64_t cuda_wgmma_scratch(const struct shape_attention *s)
{
    int64_t queries = s->q_rows > 0 ? s->q_rows : s->sequence;
    return 2 * s->batch * s->heads * ceil_div(queries, TILE_ROWS) * ROW_BYTES;
}

template <int D>
static void launch(const struct op *op, struct kernel_context *context, cudaStream_t stream)
{
    const int bytes = grad_tiles<D>::BYTES;
    attention<bf16> a = attention_of<bf16>(op, context);
    unsigned samples = (unsigned)op->shape.attention.batch, heads = (unsigned)a.heads;
    grad_rows rows;
    rows.padded = (int)(ceil_div(a.queries, TILE_ROWS) * TILE_ROWS);
    rows.lse = (float *)cuda_state(context)->scratch;
    rows.delta = rows.lse + (int64_t)samples * heads * rows.padded;
    grad_maps maps;
    map_queries(&maps.q, a, a.q, (int)samples);
    map_keys(&maps.k, a, a.k, (int)samples);
    map_keys(&maps.v, a, a.v, (int)samples);
    map_results(&maps.dout, a, a.dout, (int)samples);
    dim3 keys((unsigned)ceil_div(a.keys, OWN), (unsigned)a.kv_heads, samples);
    dim3 queries((unsigned)ceil_div(a.queries, OWN), heads, samples);
    wgmma_queries<D><<<queries, WARPGROUP, bytes, stream>>>(maps, a, rows);
    wgmma_keys<D><<<keys, WARPGROUP, bytes, stream>>>(maps, a, rows);
}

void cuda_wgmma_backward(const struct op *op, struct kernel_context *context, void *native)
{
    if (op->shape.attention.head == 64)
        launch<64>(op, context, NATIVE(native));
    else
        launch<128>(op, context, NATIVE(native));
    cuda_launched("attention-grad");
}
