/*
 * cuda_attention_plain: fp32 products of tiles in shared memory, for heads of any size and type.
 *
 * A block of 16 x 16 threads owns TILE rows (queries, or keys in the pass for dk and dv) of one
 * head and walks over tiles of the other side. Thread (ty, tx) holds R rows ty R + i; of a tile of
 * scores the columns tx + 16 j, of a row of D numbers the columns tx + 16 c. Numbers are fp32 in
 * shared memory, heads are filled up with zeros to D, rows end in 4 unused floats against bank
 * conflicts.
 */
#ifndef WORKLOADS_KERNELS_CUDA_ATTENTION_PLAIN_CUH
#define WORKLOADS_KERNELS_CUDA_ATTENTION_PLAIN_CUH

#include "workloads/kernels/cuda_attention.cuh"
enum { SIDE = 16, THREADS = SIDE * SIDE, PAD = 4 };

template <int D> struct tiling {
    static const int TILE = D <= 64 ? 64 : 32;
    static const int R = TILE / SIDE, C = D / SIDE;
    static const int ROW = D + PAD, SCORE_ROW = TILE + PAD;
    static const int BYTES = TILE * ROW * 4, SCORE_BYTES = TILE * SCORE_ROW * 4;
};

#define THREAD_ROW ((int)threadIdx.x / SIDE)
#define THREAD_COLUMN ((int)threadIdx.x % SIDE)

/* Rows first.. of a head; zeros beyond the sequence and the head. */
template <int D, typename T>
__device__ void load_tile(float *to, const T *from, int64_t row, int first, int sequence, int head)
{
    typedef tiling<D> G;
    for (int i = (int)threadIdx.x; i < G::TILE * D; i += THREADS) {
        int r = i / D, c = i % D;
        bool in = first + r < sequence && c < head;
        to[r * G::ROW + c] = in ? to_float(from[(first + r) * row + c]) : 0;
    }
}

/* s[i][j] = a[row i] . b[column j] */
template <int D>
__device__ void scores(float (&s)[tiling<D>::R][tiling<D>::R], const float *a, const float *b)
{
    typedef tiling<D> G;
#pragma unroll
    for (int i = 0; i < G::R; i++)
#pragma unroll
        for (int j = 0; j < G::R; j++)
            s[i][j] = 0;
    a += THREAD_ROW * G::R * G::ROW;
    b += THREAD_COLUMN * G::ROW;
#pragma unroll 4
    for (int k = 0; k < D; k += 4) {
        float4 y[G::R];
#pragma unroll
        for (int j = 0; j < G::R; j++)
            y[j] = *(const float4 *)(b + j * SIDE * G::ROW + k);
#pragma unroll
        for (int i = 0; i < G::R; i++) {
            float4 x = *(const float4 *)(a + i * G::ROW + k);
#pragma unroll
            for (int j = 0; j < G::R; j++)
                s[i][j] += x.x * y[j].x + x.y * y[j].y + x.z * y[j].z + x.w * y[j].w;
        }
    }
}

template <int D> __device__ void put_scores(float *to, const float (&s)[tiling<D>::R][tiling<D>::R])
{
    typedef tiling<D> G;
#pragma unroll
    for (int i = 0; i < G::R; i++)
#pragma unroll
        for (int j = 0; j < G::R; j++)
            to[(THREAD_ROW * G::R + i) * G::SCORE_ROW + THREAD_COLUMN + j * SIDE] = s[i][j];
}

/* out[i][c] += sum over k of p[row i][k] v[k][column c] */
template <int D>
__device__ void accumulate(float (&out)[tiling<D>::R][tiling<D>::C], const float *p, const float *v)
{
    typedef tiling<D> G;
    p += THREAD_ROW * G::R * G::SCORE_ROW;
    v += THREAD_COLUMN;
#pragma unroll 4
    for (int k = 0; k < G::TILE; k++) {
        float y[G::C];
#pragma unroll
        for (int c = 0; c < G::C; c++)
            y[c] = v[k * G::ROW + c * SIDE];
#pragma unroll
        for (int i = 0; i < G::R; i++) {
            float x = p[i * G::SCORE_ROW + k];
#pragma unroll
            for (int c = 0; c < G::C; c++)
                out[i][c] += x * y[c];
        }
    }
}

template <int D> __device__ void clear(float (&out)[tiling<D>::R][tiling<D>::C])
{
#pragma unroll
    for (int i = 0; i < tiling<D>::R; i++)
#pragma unroll
        for (int c = 0; c < tiling<D>::C; c++)
            out[i][c] = 0;
}

/* Rows first.. of a head = out (or += out), each times factor[i]. */
template <int D, typename T>
__device__ void put_tile(T *to, int64_t row, int first, int sequence, int head,
                         const float (&out)[tiling<D>::R][tiling<D>::C],
                         const float (&factor)[tiling<D>::R], bool add)
{
    typedef tiling<D> G;
#pragma unroll
    for (int i = 0; i < G::R; i++) {
        int r = first + THREAD_ROW * G::R + i;
#pragma unroll
        for (int c = 0; c < G::C; c++) {
            int column = THREAD_COLUMN + c * SIDE;
            T *at = &to[r * row + column];
            if (r < sequence && column < head)
                from_float(at, out[i][c] * factor[i] + (add ? to_float(*at) : 0));
        }
    }
}

/* Over the 16 threads that share a row. */
__device__ inline float row_max(float x)
{
#pragma unroll
    for (int step = SIDE / 2; step > 0; step /= 2)
        x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, step));
    return x;
}
__device__ inline float row_sum(float x)
{
#pragma unroll
    for (int step = SIDE / 2; step > 0; step /= 2)
        x += __shfl_xor_sync(ALL_LANES, x, step);
    return x;
}

/* Where a head of sample blockIdx.z begins, with samples `sample` elements apart. */
__device__ inline int64_t head_at(int head, int width, int64_t sample)
{
    return (int64_t)blockIdx.z * sample + (int64_t)head * width;
}

extern __shared__ __align__(16) float plain_shared[];

template <int D> static int tile_bytes(int tiles, int score_tiles)
{
    return tiles * tiling<D>::BYTES + score_tiles * tiling<D>::SCORE_BYTES;
}

/* call<T, D> for the least D that holds a head. */
#define WITH_HEAD(T, head, call)                                                                   \
    ((head) <= 32    ? call<T, 32>                                                                 \
     : (head) <= 64  ? call<T, 64>                                                                 \
     : (head) <= 128 ? call<T, 128>                                                                \
                     : call<T, 256>)

#endif
