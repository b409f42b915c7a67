#include "base/rng.h"

static const uint64_t ODD = 0x9e3779b97f4a7c15; /* 2^64 / golden ratio */

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

uint64_t rng_bits(uint64_t key, uint64_t index)
{
    return mix(key + (index + 1) * ODD);
}

uint64_t rng_key(uint64_t seed, const char *name)
{
    uint64_t key = seed;
    for (const char *c = name; *c != '\0'; c++)
        key = rng_bits(key, (unsigned char)*c);
    return rng_bits(key, 256);
}

uint32_t rng_below(uint64_t key, uint64_t index, uint32_t n)
{
    return (uint32_t)(((rng_bits(key, index) >> 32) * n) >> 32);
}

double rng_uniform(uint64_t key, uint64_t index)
{
    return (double)(rng_bits(key, index) >> 11) * 0x1p-53;
}

/* The sum of four 16-bit integers. */
static int32_t sum_of_four(uint64_t bits)
{
    return (int32_t)((bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) +
                     (bits >> 48));
}

float rng_normal(uint64_t key, uint64_t index)
{
    int32_t sum = sum_of_four(rng_bits(key, 3 * index)) +
                  sum_of_four(rng_bits(key, 3 * index + 1)) +
                  sum_of_four(rng_bits(key, 3 * index + 2));
    /* 20 bits times a power of two: exact in a float whatever the compiler does. */
    return (float)(sum - 6 * 65535) * 0x1p-16f;
}

void rng_fill_normal(float *out, int64_t count, uint64_t key, uint64_t first, float sigma)
{
    for (int64_t i = 0; i < count; i++)
        out[i] = sigma * rng_normal(key, first + (uint64_t)i);
}

float rng_sign(uint64_t key, uint64_t index)
{
    return rng_bits(key, index) >> 63 ? -1.0f : 1.0f;
}
