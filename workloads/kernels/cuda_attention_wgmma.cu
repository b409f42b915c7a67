#include "workloads/kernels/cuda_slots.cuh"
#include "workloads/kernels/cuda_soften.cuh"

/*
 * A block of GROUPS warpgroups owns 64 queries of one head for each, and walks over tiles of KEYS
 * keys up to the diagonal. While a tile's probabilities are multiplied by its values, the scores of
 * the next are made and softened; the keys behind that and the values behind these are copied.
 */
template <int D> struct wgmma_tiles {
    static const int GROUPS = D == 64 ? 1 : 2, THREADS = GROUPS * WARPGROUP, QUERIES = GROUPS * 64;
    static const int KEYS = D == 64 ? 64 : 128, TILE = KEYS * D;
    static const int BYTES = (QUERIES * D + 4 * TILE) * 2 + 2 * SLOT_BARRIERS * 8;
    static const int BLOCKS = D == 64 ? 4 : 1; /* on a multiprocessor */
};

struct forward_maps {
    tensor_map q, k, v;
};

template <int D> struct forward_block {
    bf16 *q, *k, *v; /* two of k and of v */
    slots ks, vs;
    int h, kv, first, last; /* heads, query, tile of keys */
};

template <int D>
__device__ inline void fill_keys(const forward_block<D> &b, const forward_maps &maps, int i)
{
    const int KEYS = wgmma_tiles<D>::KEYS, TILE = wgmma_tiles<D>::TILE;
    copy_rows<KEYS, D>(b.k + i % 2 * TILE, &maps.k, i * KEYS, b.kv, (int)blockIdx.z,
                       slot_fill(b.ks, i, TILE * 2));
}
template <int D>
__device__ inline void fill_values(const forward_block<D> &b, const forward_maps &maps, int i)
{
    const int KEYS = wgmma_tiles<D>::KEYS, TILE = wgmma_tiles<D>::TILE;
    copy_rows<KEYS, D>(b.v + i % 2 * TILE, &maps.v, i * KEYS, b.kv, (int)blockIdx.z,
                       slot_fill(b.vs, i, TILE * 2));
}

/* What this block works on; its queries, the first keys and values are on their way. */
template <int D>
__device__ inline forward_block<D> forward_open(const forward_maps &maps, const attention<bf16> &a)
{
    typedef wgmma_tiles<D> tiles;
    const int QUERIES = tiles::QUERIES, TILE = tiles::TILE;
    forward_block<D> b;
    b.q = wgmma_memory, b.k = b.q + QUERIES * D, b.v = b.k + 2 * TILE;
    uint64_t *barriers = (uint64_t *)(b.v + 2 * TILE);
    b.ks = slots_open(barriers, tiles::THREADS / WARP);
    b.vs = slots_open(barriers + SLOT_BARRIERS, tiles::THREADS / WARP);
    b.h = (int)blockIdx.y, b.kv = b.h / (a.heads / a.kv_heads);
    b.first = (int)(gridDim.x - 1 - blockIdx.x) * QUERIES; /* long rows first */
    int past = b.first + QUERIES < a.queries ? b.first + QUERIES : a.queries;
    b.last = (unseen_of(a, past - 1) - 1) / tiles::KEYS;
    if (threadIdx.x == 0) {
        barriers_publish();
        uint64_t *arrived = slot_fill(b.ks, 0, (QUERIES * D + TILE) * 2);
        copy_rows<QUERIES, D>(b.q, &maps.q, b.first, b.h, (int)blockIdx.z, arrived);
        copy_rows<tiles::KEYS, D>(b.k, &maps.k, 0, b.kv, (int)blockIdx.z, arrived);
        fill_values(b, maps, 0);
        if (b.last > 0)
            fill_keys(b, maps, 1);
    }
    __syncthreads();
    return b;
}

template <int D>
__global__ void __launch_bounds__(wgmma_tiles<D>::THREADS, wgmma_tiles<D>::BLOCKS)
    wgmma_forward(const __grid_constant__ forward_maps maps, attention<bf16> a)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    typedef wgmma_tiles<D> tiles;
    const int KEYS = tiles::KEYS, QUERIES = tiles::QUERIES, N = KEYS / 8, TILE = tiles::TILE;
    const forward_block<D> b = forward_open<D>(maps, a);
    int lane = (int)threadIdx.x % WARP, group_row = warpgroup() * 64;
    int query = b.first + (int)threadIdx.x / WARP * 16, unmasked = unseen_of(a, query);
    float out[D / 8][4], s[N][4], shrink[2], fold = a.scale * LOG2_E;
    unsigned p[N / 2][4];
    rows_seen seen = {{-INFINITY, -INFINITY}, {0, 0}};

    clear_products(out);
    slot_wait(b.ks, 0);
    wgmma_begin();
    wgmma_rows<N, D, QUERIES>(s, b.q, group_row, b.k);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_hold(s);
    slot_leave(b.ks, 0);
    if (KEYS > unmasked)
        mask_scores(a, s, query + lane / 4, 0);
    soften(s, seen, shrink, fold);
    pack_rows(p, s);
    for (int i = 0, next = 1; i < b.last; i++, next++) {
        slot_wait(b.ks, next);
        wgmma_hold(s);
        wgmma_hold(out);
        wgmma_begin();
        wgmma_rows<N, D, QUERIES>(s, b.q, group_row, b.k + next % 2 * TILE);
        wgmma_commit();
        slot_wait(b.vs, i);
        wgmma_begin();
        wgmma_columns<N>(out, p, b.v + i % 2 * TILE);
        wgmma_commit();
        if (threadIdx.x == 0) {
            fill_values(b, maps, next);
            if (next < b.last)
                fill_keys(b, maps, next + 1);
        }
        __syncwarp(); /* together again, as products want a warp */
        wgmma_wait<1>();
        wgmma_hold(s);
        slot_leave(b.ks, next);
        if ((next + 1) * KEYS > unmasked)
            mask_scores(a, s, query + lane / 4, next * KEYS);
        soften(s, seen, shrink, fold);
        wgmma_wait<0>();
        wgmma_hold(out);
        wgmma_hold(p);
        slot_leave(b.vs, i);
        scale_rows(out, shrink);
        pack_rows(p, s);
    }
    slot_wait(b.vs, b.last);
    wgmma_hold(out);
    wgmma_begin();
    wgmma_columns<N>(out, p, b.v + b.last % 2 * TILE);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_hold(out);
    put_softened<D>(a, b.h, query, out, seen);
#endif
}

/* ---- launches ---- */

int cuda_wgmma_forward_shared(int head)
{
    return head == 64 ? wgmma_tiles<64>::BYTES : wgmma_tiles<128>::BYTES;
}

bool cuda_wgmma_allow_forward(int head)
{
    return cuda_tensor_map_found() &&
           (head == 64 ? allow_shared((const void *)wgmma_forward<64>, wgmma_tiles<64>::BYTES)
                       : allow_shared((const void *)wgmma_forward<128>, wgmma_tiles<128>::BYTES));
}

template <int D>
static void launch(const struct op *op, struct kernel_context *context, void *native)
{
    typedef wgmma_tiles<D> tiles;
    const struct shape_attention *s = &op->shape.attention;
    attention<bf16> a = attention_of<bf16>(op, context);
    forward_maps maps;
    dim3 grid((unsigned)ceil_div(a.queries, tiles::QUERIES), (unsigned)s->heads,
              (unsigned)s->batch);
    map_queries(&maps.q, a, a.q, (int)s->batch);
    map_keys(&maps.k, a, a.k, (int)s->batch);
    map_keys(&maps.v, a, a.v, (int)s->batch);
    wgmma_forward<D><<<grid, tiles::THREADS, tiles::BYTES, NATIVE(native)>>>(maps, a);
}

void cuda_wgmma_forward(const struct op *op, struct kernel_context *context, void *native)
{
    if (op->shape.attention.head == 64)
        launch<64>(op, context, native);
    else
        launch<128>(op, context, native);
    cuda_launched("attention");
}
