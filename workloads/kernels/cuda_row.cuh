/*
 * cuda_row: a row in the registers of the threads of a row of a block: P accesses of N elements
 * each, access i of a thread at (threadIdx.x + i blockDim.x) N. What lies beyond the row is 0.
 */
#ifndef WORKLOADS_KERNELS_CUDA_ROW_CUH
#define WORKLOADS_KERNELS_CUDA_ROW_CUH

#include "workloads/kernels/cuda_kernel.cuh"

template <typename T, int N, int P>
__device__ inline void load_row(float (&v)[P][N], const T *row, int packs)
{
#pragma unroll
    for (int p = 0; p < P; p++) {
        int i = (int)(threadIdx.x + p * blockDim.x);
        if (i < packs)
            load(v[p], row + i * N);
        else
#pragma unroll
            for (int j = 0; j < N; j++)
                v[p][j] = 0;
    }
}

template <typename T, int N, int P>
__device__ inline void store_row(T *row, const float (&v)[P][N], int packs)
{
#pragma unroll
    for (int p = 0; p < P; p++) {
        int i = (int)(threadIdx.x + p * blockDim.x);
        if (i < packs)
            store(row + i * N, v[p]);
    }
}

/* The same as it is stored: half the registers for bf16, until it is used. */
template <typename T, int N, int P> struct packed_row {
    wide<T, N> v[P];
};

template <typename T, int N, int P>
__device__ inline void load_packed(packed_row<T, N, P> &to, const T *row, int packs)
{
    typedef wide<T, N> W;
    typedef typename W::word_type word;
#pragma unroll
    for (int p = 0; p < P; p++) {
        int i = (int)(threadIdx.x + p * blockDim.x);
        const word *from = reinterpret_cast<const word *>(row + i * N);
#pragma unroll
        for (int k = 0; k < W::WORDS; k++)
            reinterpret_cast<word *>(to.v[p].at)[k] = i < packs ? from[k] : word();
    }
}

#endif
