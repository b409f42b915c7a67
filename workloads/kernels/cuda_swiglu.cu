#include "workloads/kernels/cuda_kernel.cuh"

/* silu(g) u with silu(g) = g s, s = 1 / (1 + e^-g). A row of x holds gate, then up. */
template <typename T, int N>
__global__ void swiglu_rows(const T *x, T *y, int64_t rows, int64_t width)
{
    for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
        const T *gate = x + 2 * r * width, *up = gate + width;
        for (int64_t j = (int64_t)threadIdx.x * N; j < width; j += (int64_t)blockDim.x * N) {
            float g[N], u[N];
            load(g, gate + j);
            load(u, up + j);
#pragma unroll
            for (int i = 0; i < N; i++)
                g[i] = g[i] / (1 + exponential<T>(-g[i])) * u[i];
            store(y + r * width + j, g);
        }
    }
}

/* dx may be x: a thread reads what it overwrites. */
template <typename T, int N>
__global__ void swiglu_grad_rows(const T *dy, const T *x, T *dx, int64_t rows, int64_t width)
{
    for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
        int64_t at = 2 * r * width;
        for (int64_t j = (int64_t)threadIdx.x * N; j < width; j += (int64_t)blockDim.x * N) {
            float g[N], u[N], d[N];
            load(g, x + at + j);
            load(u, x + at + width + j);
            load(d, dy + r * width + j);
#pragma unroll
            for (int i = 0; i < N; i++) {
                float s = 1 / (1 + exponential<T>(-g[i])), silu = g[i] * s;
                g[i] = d[i] * u[i] * (s + silu * (1 - s));
                u[i] = d[i] * silu;
            }
            store(dx + at + j, g);
            store(dx + at + width + j, u);
        }
    }
}

static int threads_of(int64_t packs)
{
    return packs < 256 ? round_warp(packs) : 256;
}

template <typename T, int N>
static void forward(const struct op *op, struct kernel_context *context, void *native)
{
    const struct shape_rows *s = &op->shape.rows;
    int64_t rows = rows_now(s);
    if (rows == 0)
        return;
    swiglu_rows<T, N><<<grid_of(rows, 1, 16, cuda_state(context)), threads_of(s->width / N), 0,
                        NATIVE(native)>>>((const T *)tensor_at(context, op->t[0]),
                                          (T *)tensor_at(context, op->t[1]), rows, s->width);
}

template <typename T, int N>
static void backward(const struct op *op, struct kernel_context *context, void *native)
{
    const struct shape_rows *s = &op->shape.rows;
    int64_t rows = rows_now(s);
    if (rows == 0)
        return;
    swiglu_grad_rows<T, N><<<grid_of(rows, 1, 16, cuda_state(context)), threads_of(s->width / N), 0,
                             NATIVE(native)>>>((const T *)tensor_at(context, op->t[0]),
                                               (const T *)tensor_at(context, op->t[1]),
                                               (T *)tensor_at(context, op->t[2]), rows, s->width);
}

static bool all_aligned(const struct op *op, struct kernel_context *context, int tensors)
{
    for (int i = 0; i < tensors; i++)
        if (!aligned(tensor_at(context, op->t[i]), 16))
            return false;
    return true;
}

void cuda_swiglu(const struct op *op, struct kernel_context *context, void *native)
{
    bool wide = all_aligned(op, context, 2) && op->shape.rows.width % 8 == 0;
    if (op->dtype == DTYPE_BF16)
        wide ? forward<bf16, 8>(op, context, native) : forward<bf16, 1>(op, context, native);
    else
        wide ? forward<float, 4>(op, context, native) : forward<float, 1>(op, context, native);
    cuda_launched("swiglu");
}

void cuda_swiglu_grad(const struct op *op, struct kernel_context *context, void *native)
{
    bool wide = all_aligned(op, context, 3) && op->shape.rows.width % 8 == 0;
    if (op->dtype == DTYPE_BF16)
        wide ? backward<bf16, 8>(op, context, native) : backward<bf16, 1>(op, context, native);
    else
        wide ? backward<float, 4>(op, context, native) : backward<float, 1>(op, context, native);
    cuda_launched("swiglu-grad");
}
