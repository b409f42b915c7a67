/* Nothing inside the timed section waits, allocates or copies synchronously: not by the device's own
 * count, and not by what CUPTI sees of every call of the runtime and of the driver, libraries' calls
 * included. */
#include <cupti.h>

#include "tests/gpu/gpu_step.h"

enum { STEPS = 6 };

/* ---- what CUPTI sees ---- */

static struct {
    bool armed,
        inside; /* a block has begun; between its first launch and the first query behind it */
    int64_t calls, launches, waits;
    char first_wait[128];
} seen;

static bool starts(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* A call that makes the host wait for the device, or may. */
static bool waits(const char *name)
{
    static const char *const known[] = {
        "cudaMalloc",  "cudaFree",       "cudaHostAlloc", "cudaHostRegister", "cuMemAlloc",
        "cuMemFree",   "cuMemHostAlloc", "cuMemcpyHtoD_", "cuMemcpyDtoH_",    "cuMemcpyDtoD_",
        "cuMemsetD8_", "cuMemsetD32_",   "cuModuleLoad",  "cuModuleUnload"};
    if (strstr(name, "Synchronize") != NULL)
        return true;
    if (starts(name, "cudaMemcpy") && strstr(name, "Async") == NULL)
        return true;
    if (starts(name, "cudaMallocAsync") || starts(name, "cudaFreeAsync") ||
        strstr(name, "AllocAsync") != NULL || strstr(name, "FreeAsync") != NULL)
        return false;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (starts(name, known[i]))
            return true;
    return false;
}

static void CUPTIAPI called(void *mine, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                            const void *data)
{
    const CUpti_CallbackData *call = data;
    const char *name = call->functionName;
    (void)mine, (void)domain, (void)id;
    if (!seen.armed || call->callbackSite != CUPTI_API_ENTER || name == NULL)
        return;
    if (starts(name, "cudaLaunchKernel") || starts(name, "cuLaunchKernel") ||
        starts(name, "cudaGraphLaunch"))
        seen.inside = true;
    if (seen.inside && starts(name, "cudaStreamQuery")) /* the block drains */
        seen.inside = seen.armed = false;
    if (!seen.inside)
        return;
    seen.calls++;
    seen.launches += starts(name, "cuLaunchKernel");
    if (waits(name) && seen.waits++ == 0)
        snprintf(seen.first_wait, sizeof seen.first_wait, "%s", name);
}

/* ---- steps ---- */

static void watch_graphs(struct execute *e)
{
    int64_t before = e->fence_waits;
    memset(&seen, 0, sizeof seen);
    CHECK_EQ(execute_capture(e, 1), 0);
    seen.armed = true;
    execute_replay(e, STEPS, -1, NULL);
    printf("graphs: %lld calls, %lld waits %s\n", (long long)seen.calls, (long long)seen.waits,
           seen.first_wait);
    CHECK(seen.calls >= STEPS && !seen.armed);
    CHECK_EQ(seen.waits, 0);
    CHECK_EQ(e->fence_waits, before);
}

static void watch_block(struct execute *e, enum variant variant, int level)
{
    struct execute_samples samples;
    int64_t before = e->fence_waits;
    memset(&seen, 0, sizeof seen);
    seen.armed = true;
    execute_block(e, variant, level, STEPS, 0, &samples);
    printf("variant %d level %d: %lld calls, %lld launches, %lld waits %s\n", (int)variant, level,
           (long long)seen.calls, (long long)seen.launches, (long long)seen.waits, seen.first_wait);
    CHECK(seen.launches >= (variant == VARIANT_COMM ? 1 : 100) || e->n_comms == 0);
    CHECK(!seen.armed);
    CHECK_EQ(seen.waits, 0);
    CHECK_EQ(e->fence_waits, before);
    execute_samples_release(&samples);
}

static void watch_steps(int rank, int size, enum dtype dtype, MPI_Comm *world)
{
    static struct gpu_step step;
    struct gpu_step_ask ask = {dtype, STEPS, true, false};
    if (CHECK_EQ(gpu_step_open(&step, &ask, rank, size, world), 0)) {
        execute_block(&step.execute, VARIANT_FULL, 2, STEPS, -1, NULL); /* warms up */
        for (int level = 0; level < 3; level++)
            watch_block(&step.execute, VARIANT_FULL, level);
        watch_block(&step.execute, VARIANT_COMPUTE, 2);
        if (size > 1)
            watch_block(&step.execute, VARIANT_COMM, 1);
        watch_graphs(&step.execute);
    } else {
        printf("%s\n", fail_message());
    }
    gpu_step_close(&step);
}

int main(int argc, char **argv)
{
    int level, rank, size, gpus = 0;
    CUpti_SubscriberHandle subscriber;
    MPI_Comm world;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level);
    MPI_Comm_dup(MPI_COMM_WORLD, &world);
    MPI_Comm_rank(world, &rank);
    MPI_Comm_size(world, &size);
    if (device_cuda.probe(NULL, 0, &gpus) != 0 || gpus < size) {
        if (rank == 0)
            printf("skipped: %d GPUs for %d ranks\n", gpus, size);
        MPI_Finalize();
        return 77;
    }
    CHECK_EQ(comm_nccl.expect(&(struct comm_promise){.graph = true}), 0);
    CHECK_EQ(comm_nccl.prepare(NULL), 0);
    if (cuptiSubscribe(&subscriber, called, NULL) != CUPTI_SUCCESS) {
        printf("skipped: CUPTI takes no subscriber here\n");
        MPI_Finalize();
        return 77;
    }
    CHECK_EQ(cuptiEnableDomain(1, subscriber, CUPTI_CB_DOMAIN_RUNTIME_API), CUPTI_SUCCESS);
    CHECK_EQ(cuptiEnableDomain(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API), CUPTI_SUCCESS);
    watch_steps(rank, size, DTYPE_BF16, &world);
    watch_steps(rank, size, DTYPE_F32, &world);
    cuptiUnsubscribe(subscriber);
    int failed = test_end(), all = 0;
    MPI_Allreduce(&failed, &all, 1, MPI_INT, MPI_MAX, world);
    MPI_Comm_free(&world);
    MPI_Finalize();
    return all;
}
