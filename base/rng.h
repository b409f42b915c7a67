/*
 * rng: random numbers as pure functions of (key, index): no state, no order, no platform.
 *
 * Every value of a study is f(seed, canonical tensor name, index in the unsplit tensor), so that
 * any layout, device and compiler draws the same bits. All of it, with unsigned 64-bit arithmetic
 * modulo 2^64 (the mixing function is splitmix64's: Steele, Lea, Flood, OOPSLA 2014):
 *
 *   mix(x):            x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
 *                      x = (x ^ x>>27) * 0x94d049bb133111eb
 *                      x ^ x>>31
 *   bits(key, i)       mix(key + (i + 1) * 0x9e3779b97f4a7c15)
 *   key(seed, name)    k = seed; for each byte c of name: k = bits(k, c); then bits(k, 256)
 *   below(key, i, n)   ((bits(key, i) >> 32) * n) >> 32
 *   uniform(key, i)    (bits(key, i) >> 11) * 2^-53
 *   sign(key, i)       -1 when the top bit of bits(key, i) is set, else +1
 *   normal(key, i)     (S - 6 * 65535) * 2^-16, S the sum of the twelve 16-bit parts of
 *                      bits(key, 3i), bits(key, 3i + 1), bits(key, 3i + 2)
 *
 * A 16-bit uniform has variance (65536^2 - 1) / 12, so a normal has mean 0 and variance 1 - 2^-32.
 * It is a whole number of at most 20 bits times a power of two: exact in a float, |z| < 6, and the
 * same arithmetic runs on a GPU. Its tails are lighter than a Gaussian's (kurtosis 2.9).
 */
#ifndef BASE_RNG_H
#define BASE_RNG_H

#include <stdint.h>

/* 64 well-mixed bits for (key, index). */
uint64_t rng_bits(uint64_t key, uint64_t index);

/* The key of a named stream: a seed mixed with the bytes of a name, in order. */
uint64_t rng_key(uint64_t seed, const char *name);

/* A uniform integer in [0, n), n > 0: the high half of a 32x32-bit product; bias below n / 2^32. */
uint32_t rng_below(uint64_t key, uint64_t index, uint32_t n);

/* A uniform double in [0, 1) with 53 bits. */
double rng_uniform(uint64_t key, uint64_t index);

/* A normal of mean 0 and variance 1; and `count` of them times `sigma` (one rounding), from index
 * `first` on. */
float rng_normal(uint64_t key, uint64_t index);
void rng_fill_normal(float *out, int64_t count, uint64_t key, uint64_t first, float sigma);

/* +1 or -1. */
float rng_sign(uint64_t key, uint64_t index);

#endif
