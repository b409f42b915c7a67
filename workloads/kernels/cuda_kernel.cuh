/*
 * cuda_kernel: what the kernels are written with: wide accesses, sums over warps and blocks, grids.
 *
 * load and store move N elements as accesses of up to 16 bytes and turn them into fp32 and back;
 * addresses must be aligned to min(16, N sizeof(T)) bytes. N is 16 / sizeof(T) where all addresses
 * allow it, else 1.
 */
#ifndef WORKLOADS_KERNELS_CUDA_KERNEL_CUH
#define WORKLOADS_KERNELS_CUDA_KERNEL_CUH

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "workloads/kernels/cuda.h"

typedef __nv_bfloat16 bf16;

enum { WARP = 32 };
static const unsigned ALL_LANES = 0xffffffffu;

template <int BYTES> struct word;
template <> struct word<2> {
    typedef unsigned short type;
};
template <> struct word<4> {
    typedef unsigned type;
};
template <> struct word<8> {
    typedef uint2 type;
};
template <> struct word<16> {
    typedef uint4 type;
};

__device__ inline float to_float(float x)
{
    return x;
}
__device__ inline float to_float(bf16 x)
{
    return __bfloat162float(x);
}
__device__ inline void from_float(float *to, float x)
{
    *to = x;
}
__device__ inline void from_float(bf16 *to, float x)
{
    *to = __float2bfloat16_rn(x);
}

template <typename T, int N> struct wide {
    static const int BYTES = N * (int)sizeof(T) < 16 ? N * (int)sizeof(T) : 16;
    static const int WORDS = N * (int)sizeof(T) / BYTES;
    typedef typename word<BYTES>::type word_type;
    alignas(BYTES) T at[N];
};

template <typename T, int N> __device__ inline void load(float (&x)[N], const T *from)
{
    typedef wide<T, N> W;
    W v;
#pragma unroll
    for (int i = 0; i < W::WORDS; i++)
        reinterpret_cast<typename W::word_type *>(v.at)[i] =
            reinterpret_cast<const typename W::word_type *>(from)[i];
#pragma unroll
    for (int i = 0; i < N; i++)
        x[i] = to_float(v.at[i]);
}

template <typename T, int N> __device__ inline void store(T *to, const float (&x)[N])
{
    typedef wide<T, N> W;
    W v;
#pragma unroll
    for (int i = 0; i < N; i++)
        from_float(&v.at[i], x[i]);
#pragma unroll
    for (int i = 0; i < W::WORDS; i++)
        reinterpret_cast<typename W::word_type *>(to)[i] =
            reinterpret_cast<const typename W::word_type *>(v.at)[i];
}

/* e^x, as exactly as the type that takes the result can tell. */
template <typename T> __device__ inline float exponential(float x);
template <> __device__ inline float exponential<float>(float x)
{
    return expf(x);
}
template <> __device__ inline float exponential<bf16>(float x)
{
    return __expf(x);
}

/* As a value that was stored and loaded again. */
template <typename T> __device__ inline float rounded(float x)
{
    T stored;
    from_float(&stored, x);
    return to_float(stored);
}

/* ---- sums: every lane or thread gets the result ---- */

__device__ inline float warp_sum(float x)
{
#pragma unroll
    for (int step = WARP / 2; step > 0; step /= 2)
        x += __shfl_xor_sync(ALL_LANES, x, step);
    return x;
}

__device__ inline double warp_sum(double x)
{
#pragma unroll
    for (int step = WARP / 2; step > 0; step /= 2)
        x += __shfl_xor_sync(ALL_LANES, x, step);
    return x;
}

__device__ inline float warp_max(float x)
{
#pragma unroll
    for (int step = WARP / 2; step > 0; step /= 2)
        x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, step));
    return x;
}

/*
 * Over the threads of a row of the block (blockDim.x, a multiple of 32; blockDim.y rows only when
 * blockDim.x is 32). `slots` is shared memory for 32 values; two calls in a row take different ones
 */
template <typename V> __device__ inline V block_sum(V x, V *slots)
{
    x = warp_sum(x);
    if (blockDim.x == WARP)
        return x;
    int lane = (int)threadIdx.x % WARP;
    if (lane == 0)
        slots[threadIdx.x / WARP] = x;
    __syncthreads();
    return warp_sum(lane < (int)blockDim.x / WARP ? slots[lane] : V(0));
}

/* ---- grids ---- */

static inline int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Blocks for `items` threads, at most `waves` full blocks a multiprocessor: the rest is a loop. */
static inline unsigned grid_of(int64_t items, int threads, int per_multiprocessor,
                               const struct cuda_state *state)
{
    int64_t most = (int64_t)state->multiprocessors * per_multiprocessor;
    int64_t blocks = ceil_div(items, threads);
    return (unsigned)(blocks < 1 ? 1 : blocks < most ? blocks : most);
}

static inline bool aligned(const void *p, size_t bytes)
{
    return (size_t)p % bytes == 0; /* NULL is aligned */
}

static inline int round_warp(int64_t threads)
{
    return (int)(ceil_div(threads, WARP) * WARP);
}

/* Let a kernel have so much dynamic shared memory; before its first launch. */
static inline bool allow_shared(const void *kernel, int bytes)
{
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes) ==
           cudaSuccess;
}

/* Index of this thread in the grid, and their number. */
__device__ inline int64_t thread_index()
{
    return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}
__device__ inline int64_t thread_count()
{
    return (int64_t)gridDim.x * blockDim.x;
}

#define NATIVE(native) ((cudaStream_t)(native))

#endif
