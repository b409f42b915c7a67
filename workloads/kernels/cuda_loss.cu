#include "workloads/kernels/cuda_kernel.cuh"

struct loss {
    void *logits;
    const int32_t *targets;
    const uint8_t *mask;
    const float *stats; /* [parts][rows][3], or NULL */
    float *out;         /* class-stats: [rows][3] */
    double *losses;     /* [rows] */
    int64_t rows, width, valid, first_column;
    int parts;
};

/* Largest logit and sum of exp(logit - largest), of some columns. */
struct spread {
    float most, sum;
};

__device__ inline spread joined(spread a, spread b)
{
    spread c;
    c.most = fmaxf(a.most, b.most);
    if (c.most == -INFINITY) /* neither has seen a column */
        c.sum = 0;
    else
        c.sum = a.sum * expf(a.most - c.most) + b.sum * expf(b.most - c.most);
    return c;
}

__device__ inline spread warp_join(spread x)
{
#pragma unroll
    for (int step = WARP / 2; step > 0; step /= 2) {
        spread other;
        other.most = __shfl_xor_sync(ALL_LANES, x.most, step);
        other.sum = __shfl_xor_sync(ALL_LANES, x.sum, step);
        x = joined(x, other);
    }
    return x;
}

__device__ inline spread block_join(spread x, spread *slots)
{
    int lane = (int)threadIdx.x % WARP;
    spread none = {-INFINITY, 0};
    x = warp_join(x);
    if (lane == 0)
        slots[threadIdx.x / WARP] = x;
    __syncthreads();
    return warp_join(lane < (int)blockDim.x / WARP ? slots[lane] : none);
}

template <typename T, int N> __device__ inline spread row_spread(const T *row, int64_t valid)
{
    spread s = {-INFINITY, 0};
    for (int64_t j = (int64_t)threadIdx.x * N; j < valid; j += (int64_t)blockDim.x * N) {
        float x[N], most = s.most;
        load(x, row + j);
#pragma unroll
        for (int i = 0; i < N; i++) {
            x[i] = j + i < valid ? x[i] : -INFINITY;
            most = fmaxf(most, x[i]);
        }
        if (most == -INFINITY)
            continue;
        float sum = s.sum * exponential<T>(s.most - most);
#pragma unroll
        for (int i = 0; i < N; i++)
            sum += exponential<T>(x[i] - most);
        s.most = most;
        s.sum = sum;
    }
    return s;
}

/* Of all ranks; *target is the target's logit. */
__device__ inline spread parts_spread(const loss &a, int64_t r, float *target)
{
    spread s = {-INFINITY, 0};
    *target = 0;
    for (int part = 0; part < a.parts; part++) {
        const float *stats = a.stats + (part * a.rows + r) * 3;
        spread one = {stats[0], stats[1]};
        s = joined(s, one);
        *target += stats[2];
    }
    return s;
}

enum { THREADS = 1024 };

template <typename T, int N> __global__ void __launch_bounds__(THREADS) cross_entropy_rows(loss a)
{
    __shared__ spread slots[WARP];
    for (int64_t r = blockIdx.x; r < a.rows; r += gridDim.x) {
        T *row = (T *)a.logits + r * a.width;
        int64_t at = (int64_t)a.targets[r] - a.first_column;
        bool counts = a.mask[r] != 0;
        float target = 0;
        spread s = {0, 1};
        if (counts && a.stats != NULL)
            s = parts_spread(a, r, &target);
        else if (counts) {
            s = block_join(row_spread<T, N>(row, a.valid), slots);
            target = at >= 0 && at < a.valid ? to_float(row[at]) : NAN; /* nobody can die() here */
            __syncthreads(); /* the target is read, the slots too: the row may be overwritten */
        }
        float inverse = counts ? 1 / s.sum : 0;
        for (int64_t j = (int64_t)threadIdx.x * N; j < a.width; j += (int64_t)blockDim.x * N) {
            float x[N];
            load(x, row + j);
#pragma unroll
            for (int i = 0; i < N; i++) {
                float p = counts && j + i < a.valid ? exponential<T>(x[i] - s.most) * inverse : 0;
                x[i] = counts && j + i == at ? p - 1 : p;
            }
            store(row + j, x);
        }
        if (threadIdx.x == 0)
            a.losses[r] = counts ? log((double)s.sum) + ((double)s.most - (double)target) : 0;
    }
}

template <typename T, int N> __global__ void __launch_bounds__(THREADS) class_stats_rows(loss a)
{
    __shared__ spread slots[WARP];
    for (int64_t r = blockIdx.x; r < a.rows; r += gridDim.x) {
        const T *row = (const T *)a.logits + r * a.width;
        int64_t at = (int64_t)a.targets[r] - a.first_column;
        spread s = block_join(row_spread<T, N>(row, a.valid), slots);
        if (threadIdx.x == 0) {
            a.out[3 * r] = s.most;
            a.out[3 * r + 1] = s.sum;
            a.out[3 * r + 2] = at >= 0 && at < a.valid ? to_float(row[at]) : 0;
        }
        __syncthreads();
    }
}

/* One block: the sums of rows, in a fixed order. */
__global__ void __launch_bounds__(THREADS)
    add_losses(const double *losses, const uint8_t *mask, int64_t rows, double *scalars)
{
    __shared__ double slots[2][WARP];
    double sum = 0, counted = 0;
    for (int64_t r = threadIdx.x; r < rows; r += blockDim.x) {
        sum += losses[r];
        counted += mask[r] != 0;
    }
    sum = block_sum(sum, slots[0]);
    counted = block_sum(counted, slots[1]);
    if (threadIdx.x == 0) {
        scalars[SCALAR_LOSS_SUM] += sum;
        scalars[SCALAR_VALID] += counted;
        scalars[SCALAR_TOKENS] += (double)rows;
    }
}

int64_t cuda_cross_entropy_scratch(const struct op *op, const struct cuda_state *state)
{
    (void)state;
    return op->shape.rows.rows * (int64_t)sizeof(double);
}

static loss loss_of(const struct op *op, struct kernel_context *context)
{
    const struct shape_rows *s = &op->shape.rows;
    loss a = {};
    a.logits = tensor_at(context, op->t[0]);
    a.targets = (const int32_t *)tensor_at(context, op->t[1]);
    a.rows = s->rows, a.width = s->width, a.valid = s->valid;
    a.first_column = s->first_column;
    a.parts = s->parts;
    return a;
}

static bool fits(const loss *a)
{
    return aligned(a->logits, 16) && a->width % 8 == 0;
}

static int threads_of(int64_t width)
{
    int64_t packs = ceil_div(width, 4);
    return packs < THREADS ? round_warp(packs) : THREADS;
}

template <typename T, int N>
static void launch_entropy(const loss *a, const struct cuda_state *state, void *native)
{
    cross_entropy_rows<T, N>
        <<<grid_of(a->rows, 1, 32, state), threads_of(a->width), 0, NATIVE(native)>>>(*a);
}

template <typename T, int N>
static void launch_stats(const loss *a, const struct cuda_state *state, void *native)
{
    class_stats_rows<T, N>
        <<<grid_of(a->rows, 1, 32, state), threads_of(a->width), 0, NATIVE(native)>>>(*a);
}

void cuda_cross_entropy(const struct op *op, struct kernel_context *context, void *native)
{
    const struct cuda_state *state = cuda_state(context);
    double *scalars = (double *)tensor_at(context, op->t[3]);
    loss a = loss_of(op, context);
    a.mask = (const uint8_t *)tensor_at(context, op->t[2]);
    a.stats = (const float *)tensor_at(context, op->t[4]);
    a.losses = (double *)state->scratch;
    if (op->dtype == DTYPE_BF16)
        fits(&a) ? launch_entropy<bf16, 8>(&a, state, native)
                 : launch_entropy<bf16, 1>(&a, state, native);
    else
        fits(&a) ? launch_entropy<float, 4>(&a, state, native)
                 : launch_entropy<float, 1>(&a, state, native);
    if (a.first_column == 0)
        add_losses<<<1, THREADS, 0, NATIVE(native)>>>(a.losses, a.mask, a.rows, scalars);
    cuda_launched("cross-entropy");
}

void cuda_class_stats(const struct op *op, struct kernel_context *context, void *native)
{
    const struct cuda_state *state = cuda_state(context);
    loss a = loss_of(op, context);
    a.out = (float *)tensor_at(context, op->t[2]);
    if (op->dtype == DTYPE_BF16)
        fits(&a) ? launch_stats<bf16, 8>(&a, state, native)
                 : launch_stats<bf16, 1>(&a, state, native);
    else
        fits(&a) ? launch_stats<float, 4>(&a, state, native)
                 : launch_stats<float, 1>(&a, state, native);
    cuda_launched("class-stats");
}
