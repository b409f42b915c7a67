/*
 * bf16: the upper half of a float, and back; rounded to nearest even, NaN stays NaN.
 */
#ifndef BASE_BF16_H
#define BASE_BF16_H

#include <stdint.h>
#include <string.h>

static inline uint16_t bf16_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static inline float bf16_to_float(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

#endif
