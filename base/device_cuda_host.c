/* Host memory of others, and the host's turn in a stream, for copies that run beside training. */
#include "base/device_cuda.h"
#include "base/device_cuda_driver.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "base/err.h"

void device_cuda_notify(struct device *device, int stream, void (*call)(void *arg), void *arg)
{
    struct cuda *cuda = device->state;

    device_cuda_must(cuda, cudaLaunchHostFunc(cuda->streams[stream], call, arg),
                     "cudaLaunchHostFunc");
}

/* cuStreamWriteValue32. Before it writes it fences what the stream wrote before, like
 * __threadfence_system(). */
typedef CUresult write_value(CUstream, CUdeviceptr, cuuint32_t, unsigned);

static write_value *find_write_value(void)
{
    static bool asked;
    static write_value *found;
    if (!asked)
        device_cuda_driver_find("cuStreamWriteValue32", 12000, &found);
    asked = true;
    return found;
}

bool device_cuda_tell(struct device *device, int stream, int32_t *to, int32_t value)
{
    const struct cuda *cuda = device->state;
    write_value *write = find_write_value();
    void *there = NULL;

    if (write == NULL || cudaHostGetDevicePointer(&there, to, 0) != cudaSuccess ||
        write((CUstream)cuda->streams[stream], (CUdeviceptr)there, (cuuint32_t)value,
              CU_STREAM_WRITE_VALUE_DEFAULT) != CUDA_SUCCESS) {
        cudaGetLastError(); /* answered for by the return value */
        return false;
    }
    return true;
}

int device_cuda_pin(struct device *device, void *memory, size_t bytes)
{
    struct cuda *cuda = device->state;
    cudaError_t error = cudaHostRegister(memory, bytes, cudaHostRegisterPortable);

    if (error == cudaSuccess)
        return 0;
    cudaGetLastError(); /* this one is answered for; it must not end a later call */
    return fail(FAIL_CUDA, "device: GPU %d: %zu bytes of host memory cannot be page-locked: %s",
                cuda->index, bytes, cudaGetErrorString(error));
}

void device_cuda_unpin(struct device *device, void *memory)
{
    (void)device;
    cudaHostUnregister(memory);
}
