#include "workloads/kernels/cuda_soften.cuh"
#include "workloads/kernels/cuda_wgmma.cuh"

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
    CUtensorMap q, k, v;
};

template <int D>
__global__ void __launch_bounds__(wgmma_tiles<D>::THREADS, wgmma_tiles<D>::BLOCKS)
    wgmma_forward(const __grid_constant__ forward_maps maps, attention<bf16> a)
{
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    typedef wgmma_tiles<D> tiles;
    const int KEYS = tiles::KEYS, QUERIES = tiles::QUERIES, N = KEYS / 8, TILE = tiles::TILE;
    bf16 *q = wgmma_memory, *k = q + QUERIES * D, *v = k + 2 * TILE; /* two of each */
    uint64_t *barriers = (uint64_t *)(v + 2 * TILE);
    slots ks = slots_open(barriers, tiles::THREADS / WARP);
    slots vs = slots_open(barriers + SLOT_BARRIERS, tiles::THREADS / WARP);
    int h = (int)blockIdx.y, kv = h / (a.heads / a.kv_heads), sample = (int)blockIdx.z;
    int lane = (int)threadIdx.x % WARP, group_row = warpgroup() * 64;
    int first = (int)(gridDim.x - 1 - blockIdx.x) * QUERIES; /* long rows first */
    int past = first + QUERIES < a.queries ? first + QUERIES : a.queries;
    int last = (unseen_of(a, past - 1) - 1) / KEYS; /* tile */
    int query = first + (int)threadIdx.x / WARP * 16, unmasked = unseen_of(a, query);
    float out[D / 8][4], s[N][4], shrink[2], fold = a.scale * LOG2_E;
    unsigned p[N / 2][4];
    rows_seen seen = {{-INFINITY, -INFINITY}, {0, 0}};

    if (threadIdx.x == 0) {
        barriers_publish();
        uint64_t *arrived = slot_fill(ks, 0, (QUERIES * D + TILE) * 2);
        copy_rows<QUERIES, D>(q, &maps.q, first, h, sample, arrived);
        copy_rows<KEYS, D>(k, &maps.k, 0, kv, sample, arrived);
        copy_rows<KEYS, D>(v, &maps.v, 0, kv, sample, slot_fill(vs, 0, TILE * 2));
        if (last > 0)
            copy_rows<KEYS, D>(k + TILE, &maps.k, KEYS, kv, sample, slot_fill(ks, 1, TILE * 2));
    }
    __syncthreads();
    clear_products(out);
    slot_wait(ks, 0);
    wgmma_begin();
    wgmma_rows<N, D, QUERIES>(s, q, group_row, k);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_hold(s);
    slot_leave(ks, 0);
    if (KEYS > unmasked)
        mask_scores(a, s, query + lane / 4, 0);
    soften(s, seen, shrink, fold);
    pack_rows(p, s);
    for (int i = 0, next = 1; i < last; i++, next++) {
        slot_wait(ks, next);
        wgmma_hold(s);
        wgmma_hold(out);
        wgmma_begin();
        wgmma_rows<N, D, QUERIES>(s, q, group_row, k + next % 2 * TILE);
        wgmma_commit();
        slot_wait(vs, i);
        wgmma_begin();
        wgmma_columns<N>(out, p, v + i % 2 * TILE);
        wgmma_commit();
        if (threadIdx.x == 0) {
            copy_rows<KEYS, D>(v + next % 2 * TILE, &maps.v, next * KEYS, kv, sample,
                               slot_fill(vs, next, TILE * 2));
            if (next < last)
                copy_rows<KEYS, D>(k + i % 2 * TILE, &maps.k, (next + 1) * KEYS, kv, sample,
                                   slot_fill(ks, next + 1, TILE * 2));
        }
        wgmma_wait<1>();
        wgmma_hold(s);
        slot_leave(ks, next);
        if ((next + 1) * KEYS > unmasked)
            mask_scores(a, s, query + lane / 4, next * KEYS);
        soften(s, seen, shrink, fold);
        wgmma_wait<0>();
        wgmma_hold(out);
        wgmma_hold(p);
        slot_leave(vs, i);
        scale_rows(out, shrink);
        pack_rows(p, s);
    }
    slot_wait(vs, last);
    wgmma_hold(out);
    wgmma_begin();
    wgmma_columns<N>(out, p, v + last % 2 * TILE);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_hold(out);
    put_softened<D>(a, h, query, out, seen);
#endif
}

/* ---- launches ---- */

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
