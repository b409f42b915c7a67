#include "base/device_cuda_driver.h"

#include <cuda_runtime_api.h>
#include <string.h>

bool device_cuda_driver_find(const char *name, unsigned version, void *function)
{
    enum cudaDriverEntryPointQueryResult status = cudaDriverEntryPointSymbolNotFound;
    void *found = NULL;
#if CUDART_VERSION >= 12050
    cudaError_t error =
        cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &status);
#else /* as it is in the version of this toolkit */
    cudaError_t error = cudaGetDriverEntryPoint(name, &found, cudaEnableDefault, &status);
    (void)version;
#endif
    if (error != cudaSuccess || status != cudaDriverEntryPointSuccess)
        found = NULL;
    memcpy(function, &found, sizeof found);
    return found != NULL;
}
