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

/* The four 16-bit parts of a word as two sums, of the even and the odd parts: up to 2^17 each. */
static uint64_t pairs_of_parts(uint64_t bits)
{
    static const uint64_t even = 0x0000ffff0000ffff;
    return (bits & even) + (bits >> 16 & even);
}

/* From the three words at x, x + ODD and x + 2 ODD. 20 bits times a power of two: exact in a float
 * whatever the compiler does. */
static float normal_at(uint64_t x)
{
    uint64_t pairs =
        pairs_of_parts(mix(x)) + pairs_of_parts(mix(x + ODD)) + pairs_of_parts(mix(x + 2 * ODD));
    int32_t sum = (int32_t)(pairs & 0xffffffff) + (int32_t)(pairs >> 32);
    return (float)(sum - 6 * 65535) * 0x1p-16f;
}

float rng_normal(uint64_t key, uint64_t index)
{
    return normal_at(key + (3 * index + 1) * ODD);
}

void rng_fill_normal(float *out, int64_t count, uint64_t key, uint64_t first, float sigma)
{
    uint64_t x = key + (3 * first + 1) * ODD;
    for (int64_t i = 0; i < count; i++, x += 3 * ODD)
        out[i] = sigma * normal_at(x);
}

float rng_sign(uint64_t key, uint64_t index)
{
    return rng_bits(key, index) >> 63 ? -1.0f : 1.0f;
}
