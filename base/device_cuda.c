#include "base/device_cuda.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/units.h"

void device_cuda_must(const struct cuda *cuda, unsigned error, const char *call)
{
    if (error != cudaSuccess)
        die(FAIL_CUDA, "device: GPU %d: %s: %s (%s)", cuda->index, call,
            cudaGetErrorString((cudaError_t)error), cudaGetErrorName((cudaError_t)error));
}

/* ---- open and close ---- */

static int open_failed(const struct cuda *cuda, cudaError_t error, const char *call)
{
    return fail(FAIL_CUDA, "device: GPU %d: %s: %s (%s)", cuda->index, call,
                cudaGetErrorString(error), cudaGetErrorName(error));
}

#define CUDA_TRY(call)                                                                             \
    do {                                                                                           \
        cudaError_t cuda_error = (call);                                                           \
        if (cuda_error != cudaSuccess) {                                                           \
            rc = open_failed(cuda, cuda_error, #call);                                             \
            goto out;                                                                              \
        }                                                                                          \
    } while (0)

static int open_streams(struct cuda *cuda, int n_streams)
{
    int least = 0, greatest = 0, rc = 0;

    CUDA_TRY(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    for (int i = 0; i < n_streams; i++) {
        int priority = i == DEVICE_COMPUTE ? least : greatest;
        CUDA_TRY(cudaStreamCreateWithPriority(&cuda->streams[i], cudaStreamNonBlocking, priority));
        cuda->n_streams++;
    }
    CUDA_TRY(cudaEventCreate(&cuda->anchor));
out:
    return rc;
}

static int check_index(int index)
{
    int n = 0, rc = 0;

    TRY(device_cuda_probe(NULL, 0, &n));
    if (index < 0 || index >= n)
        rc =
            fail(FAIL_USAGE,
                 "device: GPU %d is wanted and this process sees %d: start as many ranks on a host "
                 "as it has GPUs, or give more of them (CUDA_VISIBLE_DEVICES)",
                 index, n);
out:
    return rc;
}

static void cuda_close(struct device *device)
{
    struct cuda *cuda = device->state;

    if (cuda == NULL)
        return;
    device_cuda_capture_close(cuda);
    device_cuda_stamps_close(cuda);
    device_cuda_ring_close(cuda);
    if (cuda->anchor != NULL)
        cudaEventDestroy(cuda->anchor);
    for (int i = 0; i < cuda->n_streams; i++)
        cudaStreamDestroy(cuda->streams[i]);
    free(cuda->streams);
    free(cuda->exported);
    free(cuda);
}

static int cuda_open(struct device *device, int index, int n_streams)
{
    struct cuda *cuda = must_alloc(1, sizeof *cuda);
    int rc = 0;

    cuda->index = index;
    cuda->generation = 1;
    cuda->streams = must_alloc((size_t)n_streams, sizeof(cudaStream_t));
    device->state = cuda;
    TRY(check_index(index));
    CUDA_TRY(cudaSetDevice(index));
    TRY(open_streams(cuda, n_streams));
    TRY(device_cuda_ring_open(cuda));
    device->stamp_ns = device_cuda_stamp_cost(cuda, false);
    device->graph_stamp_ns = device_cuda_stamp_cost(cuda, true);
    return 0;
out:
    cuda_close(device);
    return rc;
}

/* ---- streams ---- */

/* The kernel only launches: what it asks of the GPU happens later, in the order of the stream. */
static void cuda_launch(struct device *device, int stream, void (*kernel)(void *arg, void *native),
                        void *arg)
{
    struct cuda *cuda = device->state;

    kernel(arg, cuda->streams[stream]);
    device_cuda_must(cuda, cudaPeekAtLastError(), "launch");
}

static bool cuda_idle(struct device *device)
{
    struct cuda *cuda = device->state;

    for (int i = 0; i < cuda->n_streams; i++) {
        cudaError_t error = cudaStreamQuery(cuda->streams[i]);
        if (error == cudaErrorNotReady) {
            cudaGetLastError(); /* no error, and yet kept as the last one */
            return false;
        }
        device_cuda_must(cuda, error, "a kernel or copy");
    }
    return true;
}

/* Polled rather than waited for: a spinning wait would take the core that a communication thread
 * needs. The pause is short against a block, and no stamp depends on it. */
static void cuda_sync(struct device *device)
{
    struct cuda *cuda = device->state;

    device->host_waits++;
    while (!cuda_idle(device))
        units_sleep_ns(10000);
    device_cuda_ring_settle(device);
    device_cuda_stamps_settle(cuda);
}

static int cuda_prioritise(struct device *device, int stream, bool before)
{
    struct cuda *cuda = device->state;
    int least = 0, greatest = 0, rc = 0;

    CUDA_TRY(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    CUDA_TRY(cudaStreamDestroy(cuda->streams[stream]));
    CUDA_TRY(cudaStreamCreateWithPriority(&cuda->streams[stream], cudaStreamNonBlocking,
                                          before ? greatest : least));
out:
    return rc;
}

static void *cuda_native(struct device *device, int stream)
{
    struct cuda *cuda = device->state;

    return cuda->streams[stream];
}

const struct device_type device_cuda = {
    .name = "cuda",
    .probe = device_cuda_probe,
    .open = cuda_open,
    .close = cuda_close,
    .alloc = device_cuda_alloc,
    .free = device_cuda_free,
    .upload = device_cuda_upload,
    .download = device_cuda_download,
    .fill = device_cuda_fill,
    .reserve = device_cuda_reserve,
    .launch = cuda_launch,
    .stamp = device_cuda_stamp,
    .mark = device_cuda_mark,
    .await = device_cuda_await,
    .idle = cuda_idle,
    .sync = cuda_sync,
    .when = device_cuda_when,
    .given = device_cuda_given,
    .native = cuda_native,
    .prioritise = cuda_prioritise,
    .memory = device_cuda_memory,
    .notify = device_cuda_notify,
    .tell = device_cuda_tell,
    .pin = device_cuda_pin,
    .unpin = device_cuda_unpin,
#ifdef SCALESTUDY_CUPTI
    .trace_begin = device_cuda_trace_begin,
    .trace_end = device_cuda_trace_end,
#endif
    .capture_begin = device_cuda_capture_begin,
    .capture_end = device_cuda_capture_end,
    .launch_graph = device_cuda_launch_graph,
    .free_graph = device_cuda_free_graph,
};
