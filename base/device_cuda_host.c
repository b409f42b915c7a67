/* Host memory of others, and the host's turn in a stream, for copies that run beside training. */
#include "base/device_cuda.h"

#include <cuda_runtime_api.h>

#include "base/err.h"

void device_cuda_notify(struct device *device, int stream, void (*call)(void *arg), void *arg)
{
    struct cuda *cuda = device->state;

    device_cuda_must(cuda, cudaLaunchHostFunc(cuda->streams[stream], call, arg),
                     "cudaLaunchHostFunc");
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
