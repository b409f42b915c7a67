#include "workloads/kernels/cuda_columns.cuh"

/* ---- column sums: a block takes 32 N columns and a run of rows ---- */

enum { COLUMN_ROWS = 8 };

template <typename T, int N>
__global__ void column_sums(const T *dy, int64_t rows, int64_t width, int64_t run, float *partial)
{
    __shared__ float sums[COLUMN_ROWS][WARP * N + 1];
    int64_t column = ((int64_t)blockIdx.x * WARP + threadIdx.x) * N;
    int64_t first = blockIdx.y * run, end = first + run < rows ? first + run : rows;
    float sum[N] = {0};
    if (column < width)
#pragma unroll 4
        for (int64_t r = first + threadIdx.y; r < end; r += COLUMN_ROWS) {
            float x[N];
            load(x, dy + r * width + column);
#pragma unroll
            for (int i = 0; i < N; i++)
                sum[i] += x[i];
        }
#pragma unroll
    for (int i = 0; i < N; i++)
        sums[threadIdx.y][threadIdx.x * N + i] = sum[i];
    __syncthreads();
    for (int c = (int)(threadIdx.y * WARP + threadIdx.x); c < WARP * N; c += WARP * COLUMN_ROWS) {
        int64_t to = (int64_t)blockIdx.x * WARP * N + c;
        float total = 0;
        for (int y = 0; y < COLUMN_ROWS; y++)
            total += sums[y][c];
        if (to < width)
            partial[blockIdx.y * width + to] = total;
    }
}

/* Rows a block takes, so that there are about eight blocks a multiprocessor. */
static int64_t run_of(int64_t rows, int64_t tiles, const struct cuda_state *state)
{
    int64_t runs = ceil_div(8 * (int64_t)state->multiprocessors, tiles);
    int64_t run = ceil_div(rows, runs);
    return run < 4 * COLUMN_ROWS ? 4 * COLUMN_ROWS : run;
}

int64_t cuda_bias_grad_scratch(const struct op *op, const struct cuda_state *state)
{
    const struct shape_rows *s = &op->shape.rows;
    int64_t most = 0;
    for (int n = 1; n <= 8; n++) { /* of every width of an access */
        int64_t run = run_of(s->rows, ceil_div(s->width, WARP * n), state);
        int64_t runs = ceil_div(s->rows, run);
        most = runs > most ? runs : most;
    }
    return most * s->width * (int64_t)sizeof(float);
}

template <typename T, int N>
static void launch_columns(const void *dy, int64_t rows, int64_t width, float *out,
                           const struct cuda_state *state, void *native)
{
    int64_t tiles = ceil_div(width, WARP * N), run = run_of(rows, tiles, state);
    float *partial = (float *)state->scratch;
    dim3 grid((unsigned)tiles, (unsigned)ceil_div(rows, run)), block(WARP, COLUMN_ROWS);
    column_sums<T, N><<<grid, block, 0, NATIVE(native)>>>((const T *)dy, rows, width, run, partial);
    add_partials(partial, grid.y, width, width, out, NULL, native);
}

void cuda_bias_grad(const struct op *op, struct kernel_context *context, void *native)
{
    const struct shape_rows *s = &op->shape.rows;
    const struct cuda_state *state = cuda_state(context);
    const void *dy = tensor_at(context, op->t[0]);
    float *db = (float *)tensor_at(context, op->t[1]);
    bool wide = s->width % 8 == 0 && aligned(dy, 16);
    if (op->dtype == DTYPE_BF16)
        wide ? launch_columns<bf16, 8>(dy, s->rows, s->width, db, state, native)
             : launch_columns<bf16, 1>(dy, s->rows, s->width, db, state, native);
    else
        wide ? launch_columns<float, 4>(dy, s->rows, s->width, db, state, native)
             : launch_columns<float, 1>(dy, s->rows, s->width, db, state, native);
    cuda_launched("bias-grad");
}

/* ---- sum of squares, in fp64 ---- */

enum { SQUARE_THREADS = 512, SQUARE_PER_SM = 4 };

template <typename T, int N>
__global__ void __launch_bounds__(SQUARE_THREADS)
    square_sums(const T *x, int64_t n, double *partial)
{
    __shared__ double slots[WARP];
    int64_t whole = n / N, rest = n - whole * N;
    double sum = 0;
    for (int64_t i = thread_index(); i < whole; i += thread_count()) {
        float v[N];
        load(v, x + i * N);
#pragma unroll
        for (int j = 0; j < N; j++)
            sum += (double)v[j] * (double)v[j];
    }
    if (thread_index() < rest) {
        double v = (double)to_float(x[whole * N + thread_index()]);
        sum += v * v;
    }
    sum = block_sum(sum, slots);
    if (threadIdx.x == 0)
        partial[blockIdx.x] = sum;
}

__global__ void add_squares(const double *partial, int blocks, double *scalars)
{
    __shared__ double slots[WARP];
    double sum = 0;
    for (int b = (int)threadIdx.x; b < blocks; b += (int)blockDim.x)
        sum += partial[b];
    sum = block_sum(sum, slots);
    if (threadIdx.x == 0)
        scalars[SCALAR_SUMSQ] += sum;
}

int64_t cuda_sumsq_scratch(const struct op *op, const struct cuda_state *state)
{
    return (int64_t)grid_of(op->shape.vector.n, SQUARE_THREADS, SQUARE_PER_SM, state) *
           (int64_t)sizeof(double);
}

template <typename T, int N>
static void launch_squares(const void *x, int64_t n, double *scalars,
                           const struct cuda_state *state, void *native)
{
    unsigned blocks = grid_of(n / N + 1, SQUARE_THREADS, SQUARE_PER_SM, state);
    double *partial = (double *)state->scratch;
    square_sums<T, N><<<blocks, SQUARE_THREADS, 0, NATIVE(native)>>>((const T *)x, n, partial);
    add_squares<<<1, SQUARE_THREADS, 0, NATIVE(native)>>>(partial, (int)blocks, scalars);
}

void cuda_sumsq(const struct op *op, struct kernel_context *context, void *native)
{
    const struct cuda_state *state = cuda_state(context);
    const void *x = tensor_at(context, op->t[0]);
    double *scalars = (double *)tensor_at(context, op->t[1]);
    int64_t n = op->shape.vector.n;
    if (op->dtype == DTYPE_BF16)
        aligned(x, 16) ? launch_squares<bf16, 8>(x, n, scalars, state, native)
                       : launch_squares<bf16, 1>(x, n, scalars, state, native);
    else
        aligned(x, 16) ? launch_squares<float, 4>(x, n, scalars, state, native)
                       : launch_squares<float, 1>(x, n, scalars, state, native);
    cuda_launched("sumsq");
}
