/* The host waits inside a step: by plan (counts of rows), or since staging buffers have wrapped around. */
#include <cuda_runtime_api.h>
#include <sched.h>

#include "base/units.h"
#include "workloads/kernels/cuda.h"

static const int64_t ask_ns = 1000000;

static int is_done(void *stream, void *event, const char *what)
{
    cudaError_t code = event != NULL ? cudaEventQuery(event) : cudaStreamQuery(stream);
    if (code == cudaErrorNotReady) {
        cudaGetLastError(); /* no error, and yet kept as the last one */
        return 0;
    }
    cuda_must((int)code, what);
    return 1;
}

/* Asked again and again: what waits in the library hears nothing of a communicator that fails. It stays
 * awake, since the device has nothing to do until it is told how many rows come, and lets others run. */
int64_t cuda_wait(const struct kernel_context *context, void *stream, void *event, const char *what)
{
    int64_t begin = units_now_ns(), asked = begin, now = begin;
    while (!is_done(stream, event, what)) {
        now = units_now_ns();
        if (context->alive != NULL && now - asked >= ask_ns) {
            context->alive(context->alive_arg);
            asked = now;
        }
        sched_yield();
    }
    return units_now_ns() - begin;
}
