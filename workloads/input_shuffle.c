#include "workloads/input_shuffle.h"

#include "base/rng.h"

enum { ROUNDS = 6 };

static int half_bits(int64_t n)
{
    int half = 1;
    while (half < 32 && (uint64_t)(n - 1) >> (2 * half) != 0)
        half++;
    return half;
}

static uint64_t network(uint64_t key, int half, uint64_t value)
{
    uint64_t mask = (UINT64_C(1) << half) - 1;
    uint64_t left = value >> half, right = value & mask;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        uint64_t mixed = left ^ (rng_bits(rng_bits(key, round), right) & mask);
        left = right;
        right = mixed;
    }
    return left << half | right;
}

int64_t shuffle_at(uint64_t key, int64_t n, int64_t index)
{
    int half = half_bits(n);
    uint64_t value = (uint64_t)index;
    do
        value = network(key, half, value);
    while (value >= (uint64_t)n);
    return (int64_t)value;
}
