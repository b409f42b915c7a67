/*
 * cuda_mma: products of 16 x 16 x 8 on tensor cores, and the shared memory that feeds them.
 *
 * A warp computes c [16][8] += a [16][16] b [16][8], bf16 in, fp32 out. Lane l holds of c the rows
 * l / 4 (c[0], c[1]) and l / 4 + 8 (c[2], c[3]), columns 2 (l % 4) and the next; of a, as four
 * 32-bit pairs, rows l / 4, l / 4 + 8, l / 4, l / 4 + 8 and columns 2 (l % 4) + {0, 1}, the last
 * two pairs 8 columns on; of b rows 2 (l % 4) + {0, 1} (b0), 8 rows on (b1), column l / 4. So two
 * neighbouring c, rounded to bf16 and packed, are the a of a following product.
 *
 * A tile in shared memory is [rows][D] in chunks of 8 elements (16 bytes); chunk c of row r lies at
 * place c ^ (r & 7), so that eight rows of one column of chunks touch all banks.
 */
#ifndef WORKLOADS_KERNELS_CUDA_MMA_CUH
#define WORKLOADS_KERNELS_CUDA_MMA_CUH

#include "workloads/kernels/cuda_kernel.cuh"

__device__ inline void mma(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Four 8 x 8 matrices; lanes 8 i to 8 i + 7 give the rows of matrix i. */
__device__ inline void load_matrices(unsigned (&r)[4], const bf16 *row)
{
    unsigned at = (unsigned)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

__device__ inline void load_matrices_transposed(unsigned (&r)[4], const bf16 *row)
{
    unsigned at = (unsigned)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

/* 2^x to 2 units in the last place; what is below the normal numbers is 0. */
__device__ inline float power_of_two(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* 16 bytes on their way to shared memory; zeros when `exists` is false. */
__device__ inline void copy_chunk(bf16 *to, const bf16 *from, bool exists)
{
    unsigned at = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from),
                 "r"(exists ? 16 : 0)
                 : "memory");
}
__device__ inline void copy_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}
/* All copies of this thread have arrived. */
__device__ inline void copy_wait()
{
    asm volatile("cp.async.wait_all;" ::: "memory");
}

__device__ inline unsigned packed(float low, float high)
{
    __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<unsigned *>(&both);
}

__device__ inline void store_pair(bf16 *to, float low, float high)
{
    *reinterpret_cast<unsigned *>(to) = packed(low, high);
}

template <int D> __device__ inline bf16 *chunk_at(bf16 *tile, int row, int chunk)
{
    return tile + row * D + ((chunk ^ (row & 7)) * 8);
}

/* Rows first.. of a head into a tile by all threads of the block; zeros beyond the sequence. */
template <int ROWS, int D, int THREADS>
__device__ inline void copy_tile(bf16 *tile, const bf16 *from, int64_t row, int first, int sequence)
{
    const int CHUNKS = D / 8;
#pragma unroll
    for (int i = (int)threadIdx.x; i < ROWS * CHUNKS; i += THREADS) {
        int r = i / CHUNKS, c = i % CHUNKS;
        bool exists = first + r < sequence;
        copy_chunk(chunk_at<D>(tile, r, c), from + (exists ? first + r : 0) * row + c * 8, exists);
    }
}

/* a: rows `row` to row + 15 of a tile, columns 16 k to 16 k + 15. */
template <int D> __device__ inline void load_a(unsigned (&a)[4], bf16 *tile, int row, int k)
{
    int lane = (int)threadIdx.x % WARP;
    load_matrices(a, chunk_at<D>(tile, row + lane % 16, 2 * k + lane / 16));
}

/* b of two products whose columns are rows `row` to row + 15 of a tile, and whose rows are its
 * columns 16 k to 16 k + 15: b[0], b[1] and b[2], b[3]. */
template <int D> __device__ inline void load_b_rows(unsigned (&b)[4], bf16 *tile, int row, int k)
{
    int lane = (int)threadIdx.x % WARP;
    load_matrices(b, chunk_at<D>(tile, row + lane % 8 + lane / 16 * 8, 2 * k + lane / 8 % 2));
}

/* b of two products whose rows are rows `row` to row + 15 of a tile and whose columns are its
 * columns 16 n to 16 n + 15. */
template <int D> __device__ inline void load_b_columns(unsigned (&b)[4], bf16 *tile, int row, int n)
{
    int lane = (int)threadIdx.x % WARP;
    load_matrices_transposed(b, chunk_at<D>(tile, row + lane % 16, 2 * n + lane / 16));
}

/* s [16][8 N] = rows `row`.. of a times the first 8 N rows of b, transposed; both tiles [..][D]. */
template <int N, int D>
__device__ inline void multiply_rows(float (&s)[N][4], bf16 *a, int row, bf16 *b)
{
#pragma unroll
    for (int n = 0; n < N; n++)
        s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0;
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        unsigned x[4];
        load_a<D>(x, a, row, k);
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            unsigned y[4];
            load_b_rows<D>(y, b, 8 * n, k);
            mma(s[n], x, y[0], y[1]);
            mma(s[n + 1], x, y[2], y[3]);
        }
    }
}

/* out [16][D] += p [16][8 N] times the first 8 N rows of a tile [..][D]. */
template <int N, int D>
__device__ inline void multiply_add(float (&out)[D / 8][4], const float (&p)[N][4], bf16 *tile)
{
#pragma unroll
    for (int k = 0; k < N / 2; k++) {
        unsigned x[4] = {packed(p[2 * k][0], p[2 * k][1]), packed(p[2 * k][2], p[2 * k][3]),
                         packed(p[2 * k + 1][0], p[2 * k + 1][1]),
                         packed(p[2 * k + 1][2], p[2 * k + 1][3])};
#pragma unroll
        for (int n = 0; n < D / 16; n++) {
            unsigned y[4];
            load_b_columns<D>(y, tile, 16 * k, n);
            mma(out[2 * n], x, y[0], y[1]);
            mma(out[2 * n + 1], x, y[2], y[3]);
        }
    }
}

template <int N> __device__ inline void clear_products(float (&c)[N][4])
{
#pragma unroll
    for (int n = 0; n < N; n++)
        c[n][0] = c[n][1] = c[n][2] = c[n][3] = 0;
}

/* *to = the pair, or both added to what is there. */
__device__ inline void put_pair(bf16 *to, float low, float high, bool add)
{
    if (add) {
        __nv_bfloat162 before = *reinterpret_cast<const __nv_bfloat162 *>(to);
        low += __low2float(before);
        high += __high2float(before);
    }
    store_pair(to, low, high);
}

/* Rows first + l / 4 and 8 on of a head = c (or += c), times a factor for each. */
template <int D>
__device__ inline void put_rows(bf16 *to, int64_t row, int first, int sequence,
                                const float (&c)[D / 8][4], float low, float high, bool add)
{
    int lane = (int)threadIdx.x % WARP, r = first + lane / 4, column = lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < D / 8; n++) {
        if (r < sequence)
            put_pair(to + r * row + n * 8 + column, c[n][0] * low, c[n][1] * low, add);
        if (r + 8 < sequence)
            put_pair(to + (r + 8) * row + n * 8 + column, c[n][2] * high, c[n][3] * high, add);
    }
}

#endif
