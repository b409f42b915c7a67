/*
 * cpu_math: an exponential and row reductions that compilers vectorise without -ffast-math.
 *
 * libm's expf is a call per element, and a plain float sum has one order only, so neither becomes
 * vector code under C's rules. Here the exponential is straight arithmetic, and a reduction keeps
 * CPU_LANES partial results whose order is written down: the same bits from every vector width.
 */
#ifndef WORKLOADS_KERNELS_CPU_MATH_H
#define WORKLOADS_KERNELS_CPU_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

enum { CPU_LANES = 16, CPU_CHUNK = 1024 };

/*
 * e^-y to 1e-7 relative for y in [-88, 87]: what softmax and GELU need, whose y is never below 0.
 * Above 87 it stays at e^-87, so it is never 0 or subnormal; a y that is not finite gives NaN.
 *
 * The limit is put on the bits of y, since integers have no NaN: with floats it would become a
 * branch, and the loop scalar. Then -y = n ln 2 + r with |r| <= ln 2 / 2: n by adding 1.5 * 2^23,
 * which leaves it in the low bits; ln 2 in two parts, the first short enough for n times it to be
 * exact; for e^r, 1 + r + r^2 p with p of degree 4 through five Chebyshev points (1.1e-8); 2^n into
 * the exponent. y - y is 0 or NaN.
 */
static inline float cpu_exp_minus(float y)
{
    const int32_t limit = 0x42ae0000; /* 87.0f */
    const float shift = 12582912.0f;
    int32_t bits;
    float x, power;
    memcpy(&bits, &y, sizeof bits);
    bits = bits < limit ? bits : limit;
    memcpy(&x, &bits, sizeof x);
    float n = shift - x * 1.44269504f;
    memcpy(&bits, &n, sizeof bits);
    n -= shift;
    float r = n * 2.12194440e-4f - (x + n * 0.693359375f);
    float p = 1.3926191e-3f;
    p = p * r + 8.3631855e-3f;
    p = p * r + 4.1666556e-2f;
    p = p * r + 1.6666576e-1f;
    p = p * r + 5.0000000e-1f;
    p = (p * (r * r) + r) + 1.0f;
    uint32_t exponent = ((uint32_t)bits << 23) + 0x3f800000u;
    memcpy(&power, &exponent, sizeof power);
    return p * power + (y - y);
}

static inline float cpu_fold(const float lane[CPU_LANES])
{
    float half[8];
    for (int l = 0; l < 8; l++)
        half[l] = lane[l] + lane[l + 8];
    return ((half[0] + half[4]) + (half[2] + half[6])) +
           ((half[1] + half[5]) + (half[3] + half[7]));
}

static inline float cpu_row_max(const float *x, int64_t n)
{
    float lane[CPU_LANES], most = x[0];
    int64_t i = 0;
    for (int l = 0; l < CPU_LANES; l++)
        lane[l] = x[0];
    for (; i + CPU_LANES <= n; i += CPU_LANES)
        for (int l = 0; l < CPU_LANES; l++)
            lane[l] = x[i + l] > lane[l] ? x[i + l] : lane[l];
    for (int l = 0; l < CPU_LANES; l++)
        most = lane[l] > most ? lane[l] : most;
    for (; i < n; i++)
        most = x[i] > most ? x[i] : most;
    return most;
}

static inline float cpu_row_sum(const float *x, int64_t n)
{
    float lane[CPU_LANES] = {0};
    int64_t i = 0;
    for (; i + CPU_LANES <= n; i += CPU_LANES)
        for (int l = 0; l < CPU_LANES; l++)
            lane[l] += x[i + l];
    for (; i < n; i++)
        lane[i % CPU_LANES] += x[i];
    return cpu_fold(lane);
}

static inline float cpu_row_dot(const float *x, const float *y, int64_t n)
{
    float lane[CPU_LANES] = {0};
    int64_t i = 0;
    for (; i + CPU_LANES <= n; i += CPU_LANES)
        for (int l = 0; l < CPU_LANES; l++)
            lane[l] += x[i + l] * y[i + l];
    for (; i < n; i++)
        lane[i % CPU_LANES] += x[i] * y[i];
    return cpu_fold(lane);
}

/* x = e^(x - most) in place; returns the sum, kept in double from chunk to chunk. */
static inline double cpu_row_exp(float *x, int64_t n, float most)
{
    double sum = 0;
    for (int64_t first = 0; first < n; first += CPU_CHUNK) {
        int64_t count = n - first < CPU_CHUNK ? n - first : CPU_CHUNK;
        for (int64_t i = 0; i < count; i++)
            x[first + i] = cpu_exp_minus(most - x[first + i]);
        sum += (double)cpu_row_sum(x + first, count);
    }
    return sum;
}

#endif
