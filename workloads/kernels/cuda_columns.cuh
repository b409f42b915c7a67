/*
 * cuda_columns: sums over the blocks of a first pass, column by column, always in the same order.
 */
#ifndef WORKLOADS_KERNELS_CUDA_COLUMNS_CUH
#define WORKLOADS_KERNELS_CUDA_COLUMNS_CUH

#include "workloads/kernels/cuda_kernel.cuh"

/* out[c] += sum over b of partial[b stride + c]; blockIdx.y 1 does the same for the second run of
 * `width` columns and `second`. Blocks are 32 columns by 32 threads. */
__global__ static void __launch_bounds__(WARP *WARP)
    add_partial_columns(const float *partial, int64_t blocks, int64_t stride, int64_t width,
                        float *out, float *second)
{
    __shared__ float sums[WARP][WARP + 1];
    int64_t c = (int64_t)blockIdx.x * WARP + threadIdx.x;
    const float *from = partial + blockIdx.y * width;
    float sum = 0;
    if (c < width)
        for (int64_t b = threadIdx.y; b < blocks; b += WARP)
            sum += from[b * stride + c];
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    sum = warp_sum(sums[threadIdx.x][threadIdx.y]); /* of column threadIdx.y of the block */
    c = (int64_t)blockIdx.x * WARP + threadIdx.y;
    float *to = blockIdx.y == 0 ? out : second;
    if (threadIdx.x == 0 && c < width)
        to[c] += sum;
}

static inline void add_partials(const float *partial, int64_t blocks, int64_t stride, int64_t width,
                                float *out, float *second, void *native)
{
    dim3 grid((unsigned)ceil_div(width, WARP), second != NULL ? 2 : 1), block(WARP, WARP);
    add_partial_columns<<<grid, block, 0, NATIVE(native)>>>(partial, blocks, stride, width, out,
                                                            second);
}

#endif
