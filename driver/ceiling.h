/*
 * ceiling: rates of this machine, measured in the launch that uses them.
 */
#ifndef DRIVER_CEILING_H
#define DRIVER_CEILING_H

#include "driver/execute.h"

/*
 * FLOP/s of C = A B with m = n = k = `size` on random data, by the study's kernels and stamps, on
 * one rank while the others sleep: the fastest of the calls after one that warms
 * up, since a ceiling is what the machine can do. Not collective.
 */
struct ceiling_gemm {
    int64_t size;
    enum dtype dtype; /* of all three; fp32 or bf16 */
    bool tf32;
};
int ceiling_gemm(const struct backend *backend, const struct ceiling_gemm *gemm, uint64_t seed,
                 double *flops_per_s);

#endif
