/* Which GPUs this process could open, and why not. */
#include "base/device_cuda.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"

static int no_driver(cudaError_t error, int driver, int runtime)
{
    if (driver == 0)
        return fail(FAIL_ABSENT, "device: no NVIDIA driver is loaded here (%s)",
                    cudaGetErrorName(error));
    if (error == cudaErrorInsufficientDriver)
        return fail(FAIL_ABSENT,
                    "device: the NVIDIA driver offers CUDA %d.%d and this program was built with "
                    "%d.%d: update the driver, or build with a toolkit as old",
                    driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    if (error == cudaErrorNoDevice)
        return fail(FAIL_ABSENT, "device: the NVIDIA driver shows no GPU to this process "
                                 "(CUDA_VISIBLE_DEVICES, or none in this machine)");
    return fail(FAIL_CUDA, "device: the NVIDIA driver does not start: %s (%s)",
                cudaGetErrorString(error), cudaGetErrorName(error));
}

static void write_uuid(char *text, size_t size, const unsigned char *bytes)
{
    size_t used = (size_t)snprintf(text, size, "GPU-");

    for (int i = 0; i < 16 && used + 3 < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%02x",
                                 i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", bytes[i]);
}

static cudaError_t describe(struct device_unit *unit, int index, int driver, int runtime)
{
    struct cudaDeviceProp prop;
    cudaError_t error = cudaGetDeviceProperties(&prop, index);

    memset(unit, 0, sizeof *unit);
    if (error != cudaSuccess)
        return error;
    snprintf(unit->name, sizeof unit->name, "%.*s", (int)sizeof unit->name - 1, prop.name);
    snprintf(unit->bus, sizeof unit->bus, "%04x:%02x:%02x.0", (unsigned)prop.pciDomainID & 0xffffu,
             (unsigned)prop.pciBusID & 0xffu, (unsigned)prop.pciDeviceID & 0xffu);
    write_uuid(unit->uuid, sizeof unit->uuid, (const unsigned char *)prop.uuid.bytes);
    unit->memory_bytes = (int64_t)prop.totalGlobalMem;
    unit->capability = 10 * prop.major + prop.minor;
    unit->multiprocessors = prop.multiProcessorCount;
    unit->driver = driver;
    unit->runtime = runtime;
    return cudaSuccess;
}

int device_cuda_probe(struct device_unit *units, int max, int *n)
{
    int driver = 0, runtime = 0;
    cudaError_t error;

    *n = 0;
    cudaDriverGetVersion(&driver); /* 0 where there is no driver */
    cudaRuntimeGetVersion(&runtime);
    error = cudaGetDeviceCount(n);
    for (int i = 0; i < *n && i < max && error == cudaSuccess; i++)
        error = describe(&units[i], i, driver, runtime);
    cudaGetLastError();
    if (error == cudaSuccess && *n == 0)
        error = cudaErrorNoDevice;
    return error == cudaSuccess ? 0 : no_driver(error, driver, runtime);
}
