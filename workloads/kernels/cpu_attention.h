/*
 * cpu_attention: the size of what attention works on, known to plans as well as to the kernel.
 *
 * Queries go in blocks of rows: a block of scores is CPU_ATTENTION_BLOCK x (positions up to its
 * last), never sequence x sequence.
 */
#ifndef WORKLOADS_KERNELS_CPU_ATTENTION_H
#define WORKLOADS_KERNELS_CPU_ATTENTION_H

#include <stdint.h>

enum { CPU_ATTENTION_BLOCK = 64 };

/* Floats from one row of a score block to the next; not a power of two, which would map a column to
 * one cache set. */
static inline int64_t cpu_attention_score_row(int64_t sequence)
{
    return (sequence + 15) / 16 * 16 + 16;
}

#endif
