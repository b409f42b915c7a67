/*
 * cuda_wgmma: products of a warpgroup (four warps, 128 threads) on Hopper's tensor cores, and the
 * shared memory that they read by themselves. For sm_90a alone.
 *
 * A warpgroup computes c [64][8 N] += a [64][16] b [16][8 N], bf16 in, fp32 out, for N of 8 and 16.
 * Warp w holds rows 16 w to 16 w + 15 of c, and of an a in registers, each as in cuda_mma.cuh: so
 * what is computed for a product of 16 rows serves here too, and neighbouring c, rounded and packed,
 * are the a of a following product.
 *
 * A tile in shared memory is D / 64 panels [rows][64], each beginning at 1024 bytes; chunk c (8
 * elements, 16 bytes) of row r of a panel lies at place c ^ (r & 7). That is the "128-byte swizzle"
 * of the PTX manual (asynchronous warpgroup level matrix, shared memory layout), in which a tile is
 * read with its rows as the sum (k contiguous) or across them, 64 columns of a panel at a time. The
 * copy unit leaves it so (cuda_slots.cuh).
 *
 * Products run behind the program: registers and tiles of one are left alone until wgmma_wait.
 */
#ifndef WORKLOADS_KERNELS_CUDA_WGMMA_CUH
#define WORKLOADS_KERNELS_CUDA_WGMMA_CUH

#include "workloads/kernels/cuda_mma.cuh"

enum { WARPGROUP = 128, PANEL = 64, PANEL_ROW = PANEL * 2 }; /* threads; elements; bytes */

/* ---- order ---- */

/* Registers written so far are seen by the products that follow. */
__device__ inline void wgmma_begin()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ inline void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/* All but the last LEFT groups of products have ended. */
template <int LEFT> __device__ inline void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}
/* The compiler moves no use of these across this, and keeps what products read until they have. */
template <int N> __device__ inline void wgmma_hold(float (&c)[N][4])
{
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            asm volatile("" : "+f"(c[n][i])::"memory");
}
template <int N> __device__ inline void wgmma_hold(unsigned (&a)[N][4])
{
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            asm volatile("" : "+r"(a[n][i])::"memory");
}

/* ---- one product ---- */

#define WGMMA_4(i) "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])
#define WGMMA_32(i)                                                                                \
    WGMMA_4(i), WGMMA_4(i + 1), WGMMA_4(i + 2), WGMMA_4(i + 3), WGMMA_4(i + 4), WGMMA_4(i + 5),    \
        WGMMA_4(i + 6), WGMMA_4(i + 7)
#define WGMMA_REGISTERS_32                                                                         \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                       \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define WGMMA_REGISTERS_64                                                                         \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                       \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "             \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "             \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"

/* c (+)= a b^T, both in shared memory with k contiguous; add: 0 or 1. */
__device__ inline void wgmma_shared(float (&c)[8][4], uint64_t a, uint64_t b, int add)
{
    asm volatile("{.reg .pred p; setp.ne.b32 p, %34, 0; "
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" WGMMA_REGISTERS_32
                 "}, %32, %33, p, 1, 1, 0, 0;}"
                 : WGMMA_32(0)
                 : "l"(a), "l"(b), "r"(add));
}
__device__ inline void wgmma_shared(float (&c)[16][4], uint64_t a, uint64_t b, int add)
{
    asm volatile("{.reg .pred p; setp.ne.b32 p, %66, 0; "
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" WGMMA_REGISTERS_64
                 "}, %64, %65, p, 1, 1, 0, 0;}"
                 : WGMMA_32(0), WGMMA_32(8)
                 : "l"(a), "l"(b), "r"(add));
}

/* c += a b, a in registers, b in shared memory with n contiguous. */
__device__ inline void wgmma_registers(float (&c)[8][4], const unsigned (&a)[4], uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" WGMMA_REGISTERS_32
                 "}, {%32, %33, %34, %35}, %36, 1, 1, 1, 1;"
                 : WGMMA_32(0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
__device__ inline void wgmma_registers(float (&c)[16][4], const unsigned (&a)[4], uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" WGMMA_REGISTERS_64
                 "}, {%64, %65, %66, %67}, %68, 1, 1, 1, 1;"
                 : WGMMA_32(0), WGMMA_32(8)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

#undef WGMMA_4
#undef WGMMA_32
#undef WGMMA_REGISTERS_32
#undef WGMMA_REGISTERS_64

/* ---- tiles ---- */

extern __shared__ __align__(1024) bf16 wgmma_memory[];

/* How products read a tile of `rows` rows from here on: address, bytes from a panel to the next, from
 * eight rows to the next eight, 128-byte swizzle. */
__device__ inline uint64_t tile_described(const bf16 *tile, int rows)
{
    uint64_t at = (uint64_t)__cvta_generic_to_shared(tile);
    return (at & 0x3ffff) >> 4 | (uint64_t)(rows * PANEL_ROW >> 4) << 16 |
           (uint64_t)(8 * PANEL_ROW >> 4) << 32 | (uint64_t)1 << 62;
}

/* s [64][8 N] = 64 rows of a, from `row` on, times the 8 N rows of b, transposed. */
template <int N, int D, int ROWS>
__device__ inline void wgmma_rows(float (&s)[N][4], const bf16 *a, int row, const bf16 *b)
{
    uint64_t x = tile_described(a + row * PANEL, ROWS), y = tile_described(b, 8 * N);
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        int panel = k / 4, within = k % 4 * 32 >> 4;
        wgmma_shared(s, x + (uint64_t)((panel * ROWS * PANEL_ROW >> 4) + within),
                     y + (uint64_t)((panel * 8 * N * PANEL_ROW >> 4) + within), k > 0);
    }
}

/* out [64][D] += p [64][8 N] times the 8 N rows of a tile. */
template <int N, int M>
__device__ inline void wgmma_columns(float (&out)[M][4], const unsigned (&p)[N / 2][4],
                                     const bf16 *tile)
{
    uint64_t y = tile_described(tile, 8 * N);
#pragma unroll
    for (int k = 0; k < N / 2; k++)
        wgmma_registers(out, p[k], y + (uint64_t)(k * 16 * PANEL_ROW >> 4));
}

/* p, rounded and packed, as the left factor of a product. */
template <int N> __device__ inline void pack_rows(unsigned (&to)[N / 2][4], const float (&p)[N][4])
{
#pragma unroll
    for (int k = 0; k < N / 2; k++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            to[k][i] = packed(p[2 * k + i / 2][i % 2 * 2], p[2 * k + i / 2][i % 2 * 2 + 1]);
}

/* The warpgroup of this thread, known to the compiler as the same for a whole warp. */
__device__ inline int warpgroup()
{
    return __shfl_sync(ALL_LANES, (int)threadIdx.x / WARPGROUP, 0);
}

#endif
