/*
 * cuda_tensor_map: what Hopper's copy unit (TMA) must know of the rows of heads in global memory to
 * bring boxes of 64 rows x 64 columns of them into a tile (cuda_wgmma.cuh). The map goes to a kernel
 * by value. Rows beyond the last arrive as zeros.
 */
#ifndef WORKLOADS_KERNELS_CUDA_TENSOR_MAP_H
#define WORKLOADS_KERNELS_CUDA_TENSOR_MAP_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* libcuda's CUtensorMap, which it must be as long and as aligned as. */
struct tensor_map {
#ifdef __cplusplus
    alignas(128)
#else
    _Alignas(128)
#endif
        uint64_t opaque[16];
};

/* Element (sample, r, head, i), bf16, lies at sample * samples_apart + r * rows_apart + head * size +
 * i of `at`, which is at whole 16 bytes as all of these are. */
struct tensor_rows {
    const void *at;
    int64_t rows_apart, samples_apart;
    int size, heads, rows, samples;
};

/* False: this driver makes none. */
bool cuda_tensor_map_found(void);
void cuda_tensor_map(struct tensor_map *map, const struct tensor_rows *of);

#ifdef __cplusplus
}
#endif
#endif
