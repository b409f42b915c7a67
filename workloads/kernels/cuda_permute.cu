/* Rows to the send buffer, and the weighted sum of what came back. */
#include "workloads/kernels/cuda_kernel.cuh"

template <typename T, int N>
__global__ void permute_rows(const T *x, const int32_t *source, T *out, int64_t sent, int64_t width,
                             int top_k)
{
    for (int64_t i = blockIdx.x; i < sent; i += gridDim.x) {
        int32_t slot = source[i];
        const T *from = x + (slot < 0 ? 0 : slot / top_k) * width;
        for (int64_t j = (int64_t)threadIdx.x * N; j < width; j += (int64_t)blockDim.x * N) {
            float v[N] = {};
            if (slot >= 0)
                load(v, from + j);
            store(out + i * width + j, v);
        }
    }
}

template <typename T, int N>
__global__ void combine_rows(const T *y, const int32_t *place, const float *gates, T *out,
                             int64_t rows, int64_t width, int top_k, bool accumulate)
{
    for (int64_t t = blockIdx.x; t < rows; t += gridDim.x)
        for (int64_t j = (int64_t)threadIdx.x * N; j < width; j += (int64_t)blockDim.x * N) {
            float sum[N] = {}, v[N];
            if (accumulate)
                load(sum, out + t * width + j);
            for (int64_t slot = t * top_k; slot < (t + 1) * top_k; slot++) {
                float gate = gates != NULL ? gates[slot] : 1;
                if (place[slot] < 0)
                    continue;
                load(v, y + place[slot] * width + j);
#pragma unroll
                for (int i = 0; i < N; i++)
                    sum[i] += gate * v[i];
            }
            store(out + t * width + j, sum);
        }
}

/* A block has a row of the send buffer: its dy, and the gradient of its slot's gate. */
template <typename T, int N>
__global__ void combine_grad_rows(const T *dout, const T *y, const float *gates,
                                  const int32_t *source, T *dy, float *dgates, int64_t sent,
                                  int64_t width, int top_k)
{
    __shared__ float slots[2][WARP];
    int turn = 0;
    for (int64_t i = blockIdx.x; i < sent; i += gridDim.x, turn ^= 1) {
        int32_t slot = source[i];
        float gate = slot < 0 ? 0 : gates[slot], dot = 0;
        const T *from = dout + (slot < 0 ? 0 : slot / top_k) * width;
        for (int64_t j = (int64_t)threadIdx.x * N; j < width; j += (int64_t)blockDim.x * N) {
            float d[N] = {}, v[N];
            if (slot >= 0) {
                load(d, from + j);
                load(v, y + i * width + j);
            }
#pragma unroll
            for (int k = 0; k < N; k++) {
                dot += slot >= 0 ? d[k] * v[k] : 0;
                d[k] *= gate;
            }
            store(dy + i * width + j, d);
        }
        dot = block_sum(dot, slots[turn]);
        if (threadIdx.x == 0 && slot >= 0)
            dgates[slot] = dot;
    }
}

__global__ void clear_dropped(const int32_t *place, float *dgates, int64_t slots)
{
    for (int64_t i = thread_index(); i < slots; i += thread_count())
        if (place[i] < 0)
            dgates[i] = 0;
}

static int threads_of(int64_t packs)
{
    return packs < 256 ? round_warp(packs) : 256;
}

template <typename T, int N>
static void permute(const struct op *op, struct kernel_context *context, void *native)
{
    const struct shape_permute *s = &op->shape.permute;
    permute_rows<T, N><<<grid_of(s->sent, 1, 16, cuda_state(context)), threads_of(s->width / N), 0,
                         NATIVE(native)>>>(
        (const T *)tensor_at(context, op->t[0]), (const int32_t *)tensor_at(context, op->t[1]),
        (T *)tensor_at(context, op->t[2]), s->sent, s->width, s->top_k);
}

template <typename T, int N>
static void combine(const struct op *op, struct kernel_context *context, void *native)
{
    const struct shape_permute *s = &op->shape.permute;
    combine_rows<T, N><<<grid_of(s->rows, 1, 16, cuda_state(context)), threads_of(s->width / N), 0,
                         NATIVE(native)>>>(
        (const T *)tensor_at(context, op->t[0]), (const int32_t *)tensor_at(context, op->t[1]),
        (const float *)tensor_at(context, op->t[2]), (T *)tensor_at(context, op->t[3]), s->rows,
        s->width, s->top_k, s->accumulate);
}

template <typename T, int N>
static void combine_grad(const struct op *op, struct kernel_context *context, void *native)
{
    const struct shape_permute *s = &op->shape.permute;
    float *dgates = (float *)tensor_at(context, op->t[6]);
    int64_t slots = s->rows * s->top_k;
    clear_dropped<<<grid_of(slots, 256, 8, cuda_state(context)), 256, 0, NATIVE(native)>>>(
        (const int32_t *)tensor_at(context, op->t[3]), dgates, slots);
    if (s->sent > 0)
        combine_grad_rows<T, N><<<grid_of(s->sent, 1, 16, cuda_state(context)),
                                  threads_of(s->width / N), 0, NATIVE(native)>>>(
            (const T *)tensor_at(context, op->t[0]), (const T *)tensor_at(context, op->t[1]),
            (const float *)tensor_at(context, op->t[2]),
            (const int32_t *)tensor_at(context, op->t[4]), (T *)tensor_at(context, op->t[5]),
            dgates, s->sent, s->width, s->top_k);
}

static bool is_wide(const struct op *op, const struct kernel_context *context)
{
    bool fits = op->shape.permute.width % 8 == 0;
    for (int i = 0; i < OP_TENSORS; i++)
        fits = fits && aligned(tensor_at(context, op->t[i]), 16);
    return fits;
}

void cuda_permute(const struct op *op, struct kernel_context *context, void *native)
{
    bool wide = is_wide(op, context);
    if (op->shape.permute.sent == 0)
        return;
    if (op->dtype == DTYPE_BF16)
        wide ? permute<bf16, 8>(op, context, native) : permute<bf16, 1>(op, context, native);
    else
        wide ? permute<float, 4>(op, context, native) : permute<float, 1>(op, context, native);
    cuda_launched("permute");
}

void cuda_combine(const struct op *op, struct kernel_context *context, void *native)
{
    bool wide = is_wide(op, context);
    if (op->dtype == DTYPE_BF16)
        wide ? combine<bf16, 8>(op, context, native) : combine<bf16, 1>(op, context, native);
    else
        wide ? combine<float, 4>(op, context, native) : combine<float, 1>(op, context, native);
    cuda_launched("combine");
}

void cuda_combine_grad(const struct op *op, struct kernel_context *context, void *native)
{
    bool wide = is_wide(op, context);
    if (op->dtype == DTYPE_BF16)
        wide ? combine_grad<bf16, 8>(op, context, native)
             : combine_grad<bf16, 1>(op, context, native);
    else
        wide ? combine_grad<float, 4>(op, context, native)
             : combine_grad<float, 1>(op, context, native);
    cuda_launched("combine-grad");
}
