#include "workloads/kernels/cuda_tensor_map.h"

#include <cuda.h>
#include <string.h>

#include "base/device_cuda_driver.h"
#include "base/err.h"

/* cuTensorMapEncodeTiled. */
typedef CUresult encode(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *,
                        const cuuint64_t *, const cuuint32_t *, const cuuint32_t *,
                        CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                        CUtensorMapFloatOOBfill);

static encode *find_encode(void)
{
    static bool asked;
    static encode *found;
    if (!asked)
        device_cuda_driver_find("cuTensorMapEncodeTiled", 12000, &found);
    asked = true;
    return found;
}

bool cuda_tensor_map_found(void)
{
    return find_encode() != NULL;
}

enum { AXES = 4, BOX = 64, BYTES = 2 };

_Static_assert(sizeof(struct tensor_map) == sizeof(CUtensorMap) &&
                   _Alignof(struct tensor_map) >= _Alignof(CUtensorMap),
               "tensor_map is libcuda's");

void cuda_tensor_map(struct tensor_map *map, const struct tensor_rows *of)
{
    CUtensorMap made;
    const cuuint64_t size[AXES] = {(cuuint64_t)of->size, (cuuint64_t)of->rows,
                                   (cuuint64_t)of->heads, (cuuint64_t)of->samples};
    const cuuint64_t apart[AXES - 1] = {(cuuint64_t)of->rows_apart * BYTES,
                                        (cuuint64_t)of->size * BYTES,
                                        (cuuint64_t)of->samples_apart * BYTES};
    const cuuint32_t box[AXES] = {BOX, BOX, 1, 1}, step[AXES] = {1, 1, 1, 1};
    void *at = (void *)(uintptr_t)of->at;
    CUresult rc =
        find_encode()(&made, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, AXES, at, size, apart, box, step,
                      CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (rc != CUDA_SUCCESS)
        die(FAIL_CUDA, "cuTensorMapEncodeTiled: %d for %d rows of %d heads of %d at %p", (int)rc,
            of->rows, of->heads, of->size, of->at);
    memcpy(map, &made, sizeof made);
}
