#include "workloads/kernels/cuda_row.cuh"

static const float EPSILON = 1e-5f;

struct norm_args {
    const void *x, *residual, *w, *b;
    void *y, *sum;
    float *mean, *rstd;
    int64_t rows;
    int width;
    bool rms;
};

/*
 * A row is held in registers by the threads of a row of the block: P accesses of N elements each,
 * so x is read once, and the variance is that of the deviations. A block has THREADS or fewer, so
 * that the compiler keeps to the registers that so many can have.
 */
template <typename T, int N, int P, int THREADS>
__global__ void __launch_bounds__(THREADS) norm_rows(norm_args a)
{
    __shared__ float slots[2][WARP];
    int packs = a.width / N;
    int64_t step = (int64_t)gridDim.x * blockDim.y;
    for (int64_t r = (int64_t)blockIdx.x * blockDim.y + threadIdx.y; r < a.rows; r += step) {
        int64_t at = r * a.width;
        float v[P][N], more[P][N], sum = 0;
        load_row<T, N, P>(v, (const T *)a.x + at, packs);
        if (a.residual != NULL) {
            load_row<T, N, P>(more, (const T *)a.residual + at, packs);
#pragma unroll
            for (int p = 0; p < P; p++)
#pragma unroll
                for (int j = 0; j < N; j++)
                    v[p][j] = rounded<T>(v[p][j] + more[p][j]);
            store_row<T, N, P>((T *)a.sum + at, v, packs);
        }
#pragma unroll
        for (int p = 0; p < P; p++)
#pragma unroll
            for (int j = 0; j < N; j++)
                sum += v[p][j];
        float center = a.rms ? 0 : block_sum(sum, slots[0]) / (float)a.width, squares = 0;
#pragma unroll
        for (int p = 0; p < P; p++)
            if ((int)(threadIdx.x + p * blockDim.x) < packs) {
#pragma unroll
                for (int j = 0; j < N; j++) {
                    v[p][j] -= center;
                    squares += v[p][j] * v[p][j];
                }
            }
        float scale = 1 / sqrtf(block_sum(squares, slots[1]) / (float)a.width + EPSILON);
#pragma unroll
        for (int p = 0; p < P; p++) {
            int i = (int)(threadIdx.x + p * blockDim.x);
            if (i >= packs)
                continue;
            float w[N], b[N] = {0};
            load(w, (const T *)a.w + i * N);
            if (!a.rms)
                load(b, (const T *)a.b + i * N);
#pragma unroll
            for (int j = 0; j < N; j++)
                v[p][j] = v[p][j] * scale * w[j] + b[j];
        }
        store_row<T, N, P>((T *)a.y + at, v, packs);
        if (threadIdx.x == 0) {
            if (!a.rms)
                a.mean[r] = center;
            a.rstd[r] = scale;
        }
        if (blockDim.x > WARP)
            __syncthreads(); /* rms uses slots[1] alone: nobody may still read it */
    }
}

enum { WARPS = 8, BLOCK_THREADS = WARPS * WARP, LONG_THREADS = 512, MOST_THREADS = 1024 };

/* Rows of up to 8 packs a lane belong to a warp: no barrier. */
template <typename T, int N>
static void launch(const norm_args *a, const struct cuda_state *state, void *native)
{
    int packs = a->width / N;
    dim3 warps(WARP, WARPS), row((unsigned)round_warp(ceil_div(packs, 4)), 1);
    unsigned grid = grid_of(a->rows, WARPS, 64, state), rows = grid_of(a->rows, 1, 64, state);
    if (packs <= 2 * WARP)
        norm_rows<T, N, 2, BLOCK_THREADS><<<grid, warps, 0, NATIVE(native)>>>(*a);
    else if (packs <= 4 * WARP)
        norm_rows<T, N, 4, BLOCK_THREADS><<<grid, warps, 0, NATIVE(native)>>>(*a);
    else if (packs <= 8 * WARP)
        norm_rows<T, N, 8, BLOCK_THREADS><<<grid, warps, 0, NATIVE(native)>>>(*a);
    else if (packs <= 4 * LONG_THREADS)
        norm_rows<T, N, 4, LONG_THREADS><<<rows, row, 0, NATIVE(native)>>>(*a);
    else
        norm_rows<T, N, 4, MOST_THREADS><<<rows, row, 0, NATIVE(native)>>>(*a);
}

void cuda_norm(const struct op *op, struct kernel_context *context, void *native)
{
    const struct shape_rows *s = &op->shape.rows;
    void *t[OP_TENSORS];
    bool wide = s->width % 8 == 0;
    for (int i = 0; i < OP_TENSORS; i++) {
        t[i] = tensor_at(context, op->t[i]);
        wide = wide && (i == 4 || i == 5 || aligned(t[i], 16));
    }
    norm_args a;
    a.x = t[0], a.w = t[1], a.b = t[2], a.y = t[3];
    a.mean = (float *)t[4], a.rstd = (float *)t[5];
    a.residual = t[6], a.sum = t[7];
    a.rows = s->rows, a.width = (int)s->width, a.rms = s->rms;
    if (op->dtype == DTYPE_BF16)
        wide ? launch<bf16, 8>(&a, cuda_state(context), native)
             : launch<bf16, 1>(&a, cuda_state(context), native);
    else
        wide ? launch<float, 4>(&a, cuda_state(context), native)
             : launch<float, 1>(&a, cuda_state(context), native);
    cuda_launched("norm");
}
