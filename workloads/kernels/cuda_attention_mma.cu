#include "workloads/kernels/cuda_soften.cuh"

/*
 * A block of 8 warps owns 128 queries of one head, a warp 16 of them, and walks over tiles of KEYS
 * keys up to the diagonal. The next tile is copied while this one is worked on.
 */
enum { WARPS = 8, THREADS = WARPS * WARP, QUERIES = WARPS * 16 };

template <int D> struct forward_tiles {
    static const int KEYS = 64;
    static const int BYTES = (QUERIES + 4 * KEYS) * D * 2;
    static const int BLOCKS = D == 64 ? 2 : 1; /* on a multiprocessor */
};

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
    float out[D / 8][4], s[KEYS / 8][4], shrink[2], fold = a.scale * LOG2_E;
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
        soften(s, seen, shrink, fold);
        scale_rows(out, shrink);
        multiply_add<KEYS / 8, D>(out, s, v);
    }
    put_softened<D>(a, h, first + warp_row, out, seen);
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
