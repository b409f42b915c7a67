#include "workloads/kernels/cuda_attention_plain.cuh"

template <typename T, int D>
__global__ void __launch_bounds__(THREADS) plain_forward(attention<T> a)
{
    typedef tiling<D> G;
    float *q = plain_shared, *k = q + G::BYTES / 4, *v = k + G::BYTES / 4, *p = v + G::BYTES / 4;
    int h = (int)blockIdx.y, kv = h / (a.heads / a.kv_heads);
    int tile = (int)(gridDim.x - 1 - blockIdx.x), first = tile * G::TILE; /* long rows first */
    const T *keys = a.k + head_at(kv, a.head, a.kv_sample);
    const T *values = a.v + head_at(kv, a.head, a.kv_sample);
    int last = first + G::TILE < a.queries ? first + G::TILE : a.queries,
        end = unseen_of(a, last - 1);
    float out[G::R][G::C], most[G::R], sum[G::R], s[G::R][G::R];

    load_tile<D>(q, a.q + head_at(h, a.head, a.q_sample), a.row, first, a.queries, a.head);
    clear<D>(out);
#pragma unroll
    for (int i = 0; i < G::R; i++)
        most[i] = -INFINITY, sum[i] = 0;
    for (int from = 0; from < end; from += G::TILE) {
        __syncthreads();
        load_tile<D>(k, keys, a.kv_row, from, a.keys, a.head);
        load_tile<D>(v, values, a.kv_row, from, a.keys, a.head);
        __syncthreads();
        scores<D>(s, q, k);
#pragma unroll
        for (int i = 0; i < G::R; i++) {
            int unseen = unseen_of(a, first + THREAD_ROW * G::R + i);
            float larger = most[i], part = 0;
#pragma unroll
            for (int j = 0; j < G::R; j++) {
                int key = from + THREAD_COLUMN + j * SIDE;
                s[i][j] = key < unseen ? s[i][j] * a.scale : -INFINITY;
                larger = fmaxf(larger, s[i][j]);
            }
            larger = row_max(larger);
#pragma unroll
            for (int j = 0; j < G::R; j++) {
                s[i][j] = expf(s[i][j] - larger);
                part += s[i][j];
            }
            float shrink = expf(most[i] - larger);
            sum[i] = sum[i] * shrink + row_sum(part);
            most[i] = larger;
#pragma unroll
            for (int c = 0; c < G::C; c++)
                out[i][c] *= shrink;
        }
        put_scores<D>(p, s);
        __syncthreads();
        accumulate<D>(out, p, v);
    }
    float *lse = a.lse + head_of_sample(a, h) * a.lse_row;
#pragma unroll
    for (int i = 0; i < G::R; i++) {
        int query = first + THREAD_ROW * G::R + i;
        if (THREAD_COLUMN == 0 && query < a.queries)
            lse[query] = most[i] + logf(sum[i]);
        sum[i] = 1 / sum[i];
    }
    put_tile<D>(a.out + head_at(h, a.head, a.out_sample), a.out_row, first, a.queries, a.head, out,
                sum, false);
}

template <typename T, int D>
static void launch(const struct op *op, struct kernel_context *context, void *native)
{
    const struct shape_attention *s = &op->shape.attention;
    dim3 grid((unsigned)ceil_div(queries_of(op), tiling<D>::TILE), (unsigned)s->heads,
              (unsigned)s->batch);
    plain_forward<T, D>
        <<<grid, THREADS, tile_bytes<D>(3, 1), NATIVE(native)>>>(attention_of<T>(op, context));
}

template <typename T, int D> static bool allow()
{
    return allow_shared((const void *)plain_forward<T, D>, tile_bytes<D>(3, 1));
}

bool cuda_plain_allow_forward(const struct op *op)
{
    int head = op->shape.attention.head;
    return op->dtype == DTYPE_BF16 ? WITH_HEAD(bf16, head, allow)()
                                   : WITH_HEAD(float, head, allow)();
}

void cuda_plain_forward(const struct op *op, struct kernel_context *context, void *native)
{
    int head = op->shape.attention.head;
    if (op->dtype == DTYPE_BF16)
        WITH_HEAD(bf16, head, launch)(op, context, native);
    else
        WITH_HEAD(float, head, launch)(op, context, native);
    cuda_launched("attention");
}
