#include "workloads/kernels/cuda_columns.cuh"
#include "workloads/kernels/cuda_row.cuh"

struct norm_grad {
    const void *dy, *x, *w;
    const float *mean, *rstd;
    void *dx;
    float *partial; /* [blocks][2][width]: dw, db of the rows of a block */
    int64_t rows;
    int width;
    bool rms, accumulate;
};

/* Two sums at once, with one barrier. */
struct two_sums {
    float a, b;
};
__device__ inline two_sums block_sums(two_sums x, two_sums *slots)
{
    x.a = warp_sum(x.a);
    x.b = warp_sum(x.b);
    if (blockDim.x == WARP)
        return x;
    int lane = (int)threadIdx.x % WARP;
    if (lane == 0)
        slots[threadIdx.x / WARP] = x;
    __syncthreads();
    two_sums none = {0, 0}, y = lane < (int)blockDim.x / WARP ? slots[lane] : none;
    y.a = warp_sum(y.a);
    y.b = warp_sum(y.b);
    return y;
}

/*
 * With xhat = (x - center) scale and g = dy w: dx = scale (g - mean(g) - xhat mean(g xhat)), dw +=
 * dy xhat, db += dy. A block walks over rows; a thread keeps its columns, so their sums stay in
 * registers. norm_grad_rows keeps the row and the weights there as well, and all of the next row is
 * on its way, as it lies in memory, while this one is summed: no access is waited for where it is
 * issued. Its launch bounds are what 65536 registers hold. Longer rows are read twice by
 * norm_grad_long_rows, the second time from a cache.
 */
enum { MOST_THREADS = 1024, WIDE_THREADS = 640, LONG_THREADS = 512, MOST_BLOCKS = 8 };

template <int N> struct resident {
    enum { THREADS = N > 4 ? WIDE_THREADS : MOST_THREADS };
};

/* What a row brings, as it is stored. */
template <typename T, int N, int P> struct arriving {
    packed_row<T, N, P> dy, x, dx;
    float center, scale;
};

template <typename T, int N, int P>
__device__ inline void fetch(arriving<T, N, P> &to, const norm_grad &a, int64_t r, int packs)
{
    load_packed<T, N, P>(to.dy, (const T *)a.dy + r * a.width, packs);
    load_packed<T, N, P>(to.x, (const T *)a.x + r * a.width, packs);
    if (a.accumulate)
        load_packed<T, N, P>(to.dx, (const T *)a.dx + r * a.width, packs);
    to.center = a.rms ? 0 : a.mean[r];
    to.scale = a.rstd[r];
}

template <typename T, int N, int P>
__global__ void __launch_bounds__(resident<N>::THREADS) norm_grad_rows(norm_grad a)
{
    __shared__ two_sums slots[2][WARP];
    int packs = a.width / N, turn = 0;
    float w[P][N], dw[P][N] = {{0}}, db[P][N] = {{0}};
    arriving<T, N, P> row;
    load_row<T, N, P>(w, (const T *)a.w, packs);
    fetch(row, a, blockIdx.x, packs);
    for (int64_t r = blockIdx.x; r < a.rows; r += gridDim.x, turn ^= 1) {
        two_sums sums = {0, 0};
        float g[P][N], hat[P][N], scale = row.scale;
#pragma unroll
        for (int p = 0; p < P; p++)
#pragma unroll
            for (int j = 0; j < N; j++) {
                float dy = to_float(row.dy.v[p].at[j]);
                hat[p][j] = (to_float(row.x.v[p].at[j]) - row.center) * scale;
                g[p][j] = dy * w[p][j];
                sums.a += g[p][j];
                sums.b += g[p][j] * hat[p][j];
                dw[p][j] += dy * hat[p][j];
                db[p][j] += dy;
            }
        packed_row<T, N, P> old = row.dx;
        if (r + gridDim.x < a.rows)
            fetch(row, a, r + gridDim.x, packs);
        sums = block_sums(sums, slots[turn]);
        float mean = a.rms ? 0 : sums.a / (float)a.width, slope = sums.b / (float)a.width;
#pragma unroll
        for (int p = 0; p < P; p++)
#pragma unroll
            for (int j = 0; j < N; j++) {
                float d = a.accumulate ? to_float(old.v[p].at[j]) : 0;
                g[p][j] = d + scale * (g[p][j] - mean - hat[p][j] * slope);
            }
        store_row<T, N, P>((T *)a.dx + r * a.width, g, packs);
    }
    float *partial = a.partial + (int64_t)blockIdx.x * 2 * a.width;
    store_row<float, N, P>(partial, dw, packs);
    store_row<float, N, P>(partial + a.width, db, packs);
}

/* One access of each operand of a row: xhat and dy w. */
template <typename T, int N>
__device__ inline void load_terms(const norm_grad &a, int64_t at, int i, float center, float scale,
                                  float (&dy)[N], float (&g)[N], float (&hat)[N])
{
    load(dy, (const T *)a.dy + at + i * N);
    load(hat, (const T *)a.x + at + i * N);
    load(g, (const T *)a.w + i * N);
#pragma unroll
    for (int j = 0; j < N; j++) {
        hat[j] = (hat[j] - center) * scale;
        g[j] *= dy[j];
    }
}

template <typename T, int N, int P>
__global__ void __launch_bounds__(LONG_THREADS) norm_grad_long_rows(norm_grad a)
{
    __shared__ two_sums slots[2][WARP];
    int packs = a.width / N, turn = 0;
    float dw[P][N] = {{0}}, db[P][N] = {{0}};
    for (int64_t r = blockIdx.x; r < a.rows; r += gridDim.x, turn ^= 1) {
        float center = a.rms ? 0 : a.mean[r], scale = a.rstd[r], dy[N], g[N], hat[N];
        two_sums sums = {0, 0};
#pragma unroll
        for (int p = 0; p < P; p++) {
            int i = (int)(threadIdx.x + p * blockDim.x);
            if (i >= packs)
                continue;
            load_terms<T, N>(a, r * a.width, i, center, scale, dy, g, hat);
#pragma unroll
            for (int j = 0; j < N; j++) {
                sums.a += g[j];
                sums.b += g[j] * hat[j];
                dw[p][j] += dy[j] * hat[j];
                db[p][j] += dy[j];
            }
        }
        sums = block_sums(sums, slots[turn]);
        float mean = a.rms ? 0 : sums.a / (float)a.width, slope = sums.b / (float)a.width;
        for (int i = (int)threadIdx.x; i < packs; i += (int)blockDim.x) {
            T *dx = (T *)a.dx + r * a.width + i * N;
            float d[N] = {0};
            load_terms<T, N>(a, r * a.width, i, center, scale, dy, g, hat);
            if (a.accumulate)
                load(d, dx);
#pragma unroll
            for (int j = 0; j < N; j++)
                d[j] += scale * (g[j] - mean - hat[j] * slope);
            store(dx, d);
        }
    }
    float *partial = a.partial + (int64_t)blockIdx.x * 2 * a.width;
    store_row<float, N, P>(partial, dw, packs);
    store_row<float, N, P>(partial + a.width, db, packs);
}

static unsigned blocks_of(int64_t rows, int threads, const struct cuda_state *state)
{
    int each = MOST_THREADS / threads;
    return grid_of(rows, 1, each < 1 ? 1 : each < MOST_BLOCKS ? each : MOST_BLOCKS, state);
}

int64_t cuda_norm_grad_scratch(const struct op *op, const struct cuda_state *state)
{
    return (int64_t)grid_of(op->shape.rows.rows, 1, MOST_BLOCKS, state) * 2 * op->shape.rows.width *
           (int64_t)sizeof(float);
}

/* As many blocks as run at once, so that none begins when the others end. */
template <typename T, int N, int P> static int resident_blocks(int threads)
{
    static int known[MOST_THREADS / WARP + 1];
    int *blocks = &known[threads / WARP];
    if (*blocks == 0 && (cudaOccupancyMaxActiveBlocksPerMultiprocessor(
                             blocks, norm_grad_rows<T, N, P>, threads, 0) != cudaSuccess ||
                         *blocks < 1))
        *blocks = 1;
    return *blocks < MOST_BLOCKS ? *blocks : (int)MOST_BLOCKS;
}

template <typename T, int N, int P>
static unsigned launch_resident(const norm_grad *a, const struct cuda_state *state, void *native)
{
    int threads = (int)round_warp(ceil_div(a->width / N, P));
    unsigned blocks = grid_of(a->rows, 1, resident_blocks<T, N, P>(threads), state);
    norm_grad_rows<T, N, P><<<blocks, threads, 0, NATIVE(native)>>>(*a);
    return blocks;
}

template <typename T, int N, int P>
static unsigned launch_long(const norm_grad *a, const struct cuda_state *state, void *native)
{
    int threads = round_warp(ceil_div(a->width / N, P));
    unsigned blocks = blocks_of(a->rows, threads, state);
    norm_grad_long_rows<T, N, P><<<blocks, threads, 0, NATIVE(native)>>>(*a);
    return blocks;
}

/* Blocks of the launch, each with sums of its own in a->partial. */
template <typename T>
static unsigned launch_narrow(const norm_grad *a, const struct cuda_state *state, void *native)
{
    if (a->width <= MOST_THREADS)
        return launch_resident<T, 1, 1>(a, state, native);
    if (a->width <= 2 * MOST_THREADS)
        return launch_resident<T, 1, 2>(a, state, native);
    return launch_long<T, 1, 8>(a, state, native);
}

template <typename T, int N>
static unsigned launch_wide(const norm_grad *a, const struct cuda_state *state, void *native)
{
    int packs = a->width / N;
    if (packs <= resident<N>::THREADS)
        return launch_resident<T, N, 1>(a, state, native);
    if (packs <= 2 * LONG_THREADS)
        return launch_long<T, N, 2>(a, state, native);
    if (packs <= 4 * LONG_THREADS)
        return launch_long<T, N, 4>(a, state, native);
    return launch_long<T, N, 8>(a, state, native);
}

void cuda_norm_grad(const struct op *op, struct kernel_context *context, void *native)
{
    const struct shape_rows *s = &op->shape.rows;
    const struct cuda_state *state = cuda_state(context);
    void *t[OP_TENSORS];
    for (int i = 0; i < OP_TENSORS; i++)
        t[i] = tensor_at(context, op->t[i]);
    bool wide = s->width % 8 == 0 && aligned(t[0], 16) && aligned(t[1], 16) && aligned(t[2], 16) &&
                aligned(t[5], 16);
    norm_grad a;
    a.dy = t[0], a.x = t[1], a.w = t[2], a.mean = (const float *)t[3], a.rstd = (const float *)t[4];
    a.dx = t[5], a.partial = (float *)state->scratch;
    a.rows = s->rows, a.width = (int)s->width, a.rms = s->rms, a.accumulate = s->accumulate;
    unsigned blocks = op->dtype == DTYPE_BF16 ? (wide ? launch_wide<bf16, 8>(&a, state, native)
                                                      : launch_narrow<bf16>(&a, state, native))
                                              : (wide ? launch_wide<float, 4>(&a, state, native)
                                                      : launch_narrow<float>(&a, state, native));
    cuda_launched("norm-grad");
    add_partials(a.partial, blocks, 2 * s->width, s->width, (float *)t[6],
                 s->rms ? NULL : (float *)t[7], native);
    cuda_launched("norm-grad");
}

int64_t cuda_norm_packs(void)
{
    return 8 * LONG_THREADS;
}
