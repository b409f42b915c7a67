/* Memory of the "cuda" device that a communication library may map into other processes. */
#include "base/device_cuda.h"
#include "base/device_cuda_driver.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdlib.h>

#include "base/err.h"

/* Calls of the driver. */
static struct {
    bool asked, found;
    CUresult (*granularity)(size_t *, const CUmemAllocationProp *,
                            CUmemAllocationGranularity_flags);
    CUresult (*create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
                       unsigned long long);
    CUresult (*release)(CUmemGenericAllocationHandle);
    CUresult (*reserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
    CUresult (*unreserve)(CUdeviceptr, size_t);
    CUresult (*map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
    CUresult (*unmap)(CUdeviceptr, size_t);
    CUresult (*allow)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);
} driver;

static bool find(const char *name, void *to)
{
    return device_cuda_driver_find(name, 11030, to);
}

static bool driver_is_found(void)
{
    if (!driver.asked)
        driver.found =
            find("cuMemGetAllocationGranularity", &driver.granularity) &&
            find("cuMemCreate", &driver.create) && find("cuMemRelease", &driver.release) &&
            find("cuMemAddressReserve", &driver.reserve) &&
            find("cuMemAddressFree", &driver.unreserve) && find("cuMemMap", &driver.map) &&
            find("cuMemUnmap", &driver.unmap) && find("cuMemSetAccess", &driver.allow);
    driver.asked = true;
    return driver.found;
}

/* ---- pieces: one allocation each, mapped for its own device ---- */

static CUmemAllocationProp properties(const struct cuda *cuda)
{
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
    int direct = 0;
    prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    prop.location.id = cuda->index;
    cudaDeviceGetAttribute(&direct, cudaDevAttrGPUDirectRDMASupported, cuda->index);
    prop.allocFlags.gpuDirectRDMACapable = direct != 0;
    return prop;
}

static CUresult map_piece(const struct cuda *cuda, CUmemGenericAllocationHandle handle,
                          size_t bytes, CUdeviceptr *at)
{
    CUmemAccessDesc access = {.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUresult result = driver.reserve(at, bytes, 0, 0, 0);
    if (result != CUDA_SUCCESS)
        return result;
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = cuda->index;
    result = driver.map(*at, bytes, 0, handle, 0);
    if (result == CUDA_SUCCESS) {
        result = driver.allow(*at, bytes, &access, 1);
        if (result == CUDA_SUCCESS)
            return result;
        driver.unmap(*at, bytes);
    }
    driver.unreserve(*at, bytes);
    return result;
}

static void remember(struct cuda *cuda, void *memory, size_t bytes)
{
    cuda->exported =
        must_grow(cuda->exported, (size_t)cuda->n_exported + 1, sizeof *cuda->exported);
    cuda->exported[cuda->n_exported++] = (struct cuda_export){memory, bytes};
}

bool device_cuda_export_alloc(struct cuda *cuda, size_t bytes, void **out)
{
    CUmemAllocationProp prop = properties(cuda);
    CUmemGenericAllocationHandle handle;
    CUdeviceptr at = 0;
    size_t grain = 0;
    if (!driver_is_found() ||
        driver.granularity(&grain, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) != CUDA_SUCCESS)
        return false;
    bytes = (bytes + grain - 1) / grain * grain;
    if (driver.create(&handle, bytes, &prop, 0) != CUDA_SUCCESS)
        return false;
    CUresult result = map_piece(cuda, handle, bytes, &at);
    driver.release(handle); /* what is mapped stays */
    if (result != CUDA_SUCCESS)
        return false;
    *out = (void *)(uintptr_t)at;
    remember(cuda, *out, bytes);
    return true;
}

bool device_cuda_export_free(struct cuda *cuda, void *memory)
{
    for (int i = 0; i < cuda->n_exported; i++) {
        struct cuda_export *piece = &cuda->exported[i];
        if (piece->memory != memory)
            continue;
        driver.unmap((CUdeviceptr)(uintptr_t)memory, piece->bytes);
        driver.unreserve((CUdeviceptr)(uintptr_t)memory, piece->bytes);
        *piece = cuda->exported[--cuda->n_exported];
        return true;
    }
    return false;
}
