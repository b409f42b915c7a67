/*
 * cuda_soften: scores of attention in registers, as products on tensor cores leave them: to
 * probabilities, and their gradients. c [n][0], [1] are columns 8 n + 2 (l % 4) and the next of row
 * l / 4 of a warp's 16, [2], [3] the same of the row 8 on (cuda_mma.cuh, cuda_wgmma.cuh).
 *
 * Scores are never scaled as such: e^(scale s) = 2^(fold s) with fold = scale log2(e).
 */
#ifndef WORKLOADS_KERNELS_CUDA_SOFTEN_CUH
#define WORKLOADS_KERNELS_CUDA_SOFTEN_CUH

#include "workloads/kernels/cuda_attention.cuh"
#include "workloads/kernels/cuda_mma.cuh"

static const float LOG2_E = 1.4426950408889634f;

/* ---- forward: rows are queries ---- */

/* Largest score so far and sum of 2^(fold (s - most)) of the two rows of a lane; the sum is of this
 * lane's columns alone until the end. */
struct rows_seen {
    float most[2], sum[2];
};

__device__ inline float quad_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, 1));
    return fmaxf(x, __shfl_xor_sync(ALL_LANES, x, 2));
}
__device__ inline float quad_sum(float x)
{
    x += __shfl_xor_sync(ALL_LANES, x, 1);
    return x + __shfl_xor_sync(ALL_LANES, x, 2);
}

/* -inf where the query does not see the key; `query` is that of c[0], `key` that of column 0. */
template <int N>
__device__ inline void mask_scores(const attention<bf16> &a, float (&s)[N][4], int query, int key)
{
    int column = key + (int)threadIdx.x % 4 * 2;
    int unseen[2] = {unseen_of(a, query), unseen_of(a, query + 8)};
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (column + n * 8 + i % 2 >= unseen[i / 2])
                s[n][i] = -INFINITY;
}

/* Scores become probabilities up to 1 / sum; shrink: what brings earlier ones to the new largest. */
template <int N>
__device__ inline void soften(float (&s)[N][4], rows_seen &seen, float (&shrink)[2], float fold)
{
#pragma unroll
    for (int half = 0; half < 2; half++) {
        float most = seen.most[half], sum = 0;
#pragma unroll
        for (int n = 0; n < N; n++)
            most = fmaxf(most, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
        most = quad_max(most);
        float base = most * fold;
        shrink[half] = power_of_two(seen.most[half] * fold - base);
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 2 * half; i < 2 * half + 2; i++) {
                s[n][i] = power_of_two(s[n][i] * fold - base);
                sum += s[n][i];
            }
        seen.sum[half] = seen.sum[half] * shrink[half] + sum;
        seen.most[half] = most;
    }
}

template <int N> __device__ inline void scale_rows(float (&out)[N][4], const float (&factor)[2])
{
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            out[n][i] *= factor[i / 2];
}

/* At the end: out and lse of rows query, query + 8 of head h. */
template <int D>
__device__ inline void put_softened(const attention<bf16> &a, int h, int warp_first,
                                    const float (&out)[D / 8][4], rows_seen &seen)
{
    int lane = (int)threadIdx.x % WARP;
    float *lse = a.lse + head_of_sample(a, h) * a.lse_row;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        int query = warp_first + lane / 4 + half * 8;
        seen.sum[half] = quad_sum(seen.sum[half]);
        if (lane % 4 == 0 && query < a.queries)
            lse[query] = seen.most[half] * a.scale + logf(seen.sum[half]);
    }
    put_rows<D>(a.out + (int64_t)blockIdx.z * a.out_sample + (int64_t)h * D, a.out_row, warp_first,
                a.queries, out, 1 / seen.sum[0], 1 / seen.sum[1], false);
}

/* ---- backward, transposed: rows are keys ---- */

/* -inf where the key comes after `query`, the last that column 0 sees; `key` is that of c[0]. */
template <int N> __device__ inline void mask_keys(float (&s)[N][4], int key, int query)
{
    int column = query + (int)threadIdx.x % 4 * 2;
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (key + i / 2 * 8 > column + n * 8 + i % 2)
                s[n][i] = -INFINITY;
}

/* Scores [keys][queries] become probabilities. lse: of the columns, times log2 e. */
template <int N> __device__ inline void soften_keys(float (&s)[N][4], const float *lse, float fold)
{
    int column = (int)threadIdx.x % 4 * 2;
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            s[n][i] = power_of_two(s[n][i] * fold - lse[n * 8 + column + i % 2]);
}

template <int N>
__device__ inline void score_grad_keys(float (&dp)[N][4], const float (&p)[N][4],
                                       const float *delta)
{
    int column = (int)threadIdx.x % 4 * 2;
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            dp[n][i] = p[n][i] * (dp[n][i] - delta[n * 8 + column + i % 2]);
}

/* The same from probabilities that are rounded and packed already: fewer registers. */
template <int N>
__device__ inline void score_grad_packed(float (&dp)[N][4], const unsigned (&p)[N / 2][4],
                                         const float *delta)
{
    int column = (int)threadIdx.x % 4 * 2;
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            unsigned both = p[n / 2][n % 2 * 2 + half];
            float *x = &dp[n][2 * half];
            x[0] = __uint_as_float(both << 16) * (x[0] - delta[n * 8 + column]);
            x[1] = __uint_as_float(both & 0xffff0000u) * (x[1] - delta[n * 8 + column + 1]);
        }
}

/* ---- backward: rows are queries ---- */

/* ds of scores [queries][keys] and dp, in place of dp; lse (times log2 e) and delta of two rows. */
template <int N>
__device__ inline void score_grad_queries(float (&dp)[N][4], const float (&s)[N][4],
                                          const float (&lse)[2], const float (&delta)[2],
                                          float fold)
{
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            dp[n][i] = power_of_two(s[n][i] * fold - lse[i / 2]) * (dp[n][i] - delta[i / 2]);
}

#endif
