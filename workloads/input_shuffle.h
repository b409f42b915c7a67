/*
 * input_shuffle: a seeded order of n things without a table.
 *
 * shuffle_at(key, n, i) is a permutation of [0, n) for each key: a Feistel network of six rounds
 * over the smallest even number of bits that hold n - 1 (Luby and Rackoff, SIAM J. Comput. 1988),
 * walked until it falls below n again (cycle walking: Black and Rogaway, CT-RSA 2002). Fewer than
 * four walks on average. With h half of the bits and round r = 0..5, in terms of base/rng:
 *
 *   (L, R) -> (R, L ^ (bits(bits(key, r), R) mod 2^h))
 */
#ifndef WORKLOADS_INPUT_SHUFFLE_H
#define WORKLOADS_INPUT_SHUFFLE_H

#include <stdint.h>

/* 0 <= index < n. */
int64_t shuffle_at(uint64_t key, int64_t n, int64_t index);

#endif
