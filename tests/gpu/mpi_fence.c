/* Nothing inside the timed section waits, allocates or copies synchronously: not by the device's own
 * count, and not by what CUPTI sees of every call of the runtime and of the driver, libraries' calls
 * included. */
#include <cupti.h>
#include <mpi.h>
#include <stdlib.h>

#include "base/err.h"
#include "driver/execute.h"
#include "tests/test.h"
#include "workloads/input_feed.h"
#include "workloads/transformer.h"

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
    if (starts(name, "cudaLaunchKernel") || starts(name, "cuLaunchKernel"))
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

/* ---- a step ---- */

struct step {
    struct model model;
    struct policy policy;
    struct layout layout;
    struct plan plan;
    struct input input;
    struct backend backend;
    struct execute execute;
};

static int open_step(struct step *s, int rank, int size, enum dtype dtype, MPI_Comm *world)
{
    struct degrees degrees = {0};
    int rc = 0;
    TRY(model_load(&s->model, "tiny"));
    policy_defaults(&s->policy, &s->model);
    s->policy.global_batch = 8 * size;
    s->policy.micro_batch = 4;
    s->policy.dtype = dtype;
    s->policy.copy_stream = true;
    s->policy.bucket_bytes = 64 << 10;
    TRY(layout_parse("", &degrees));
    TRY(layout_init(&s->layout, 1, size, rank, &degrees));
    TRY(transformer_plan(&s->plan, &s->model, &s->layout, &s->policy));
    TRY(input_open(&s->input, "synthetic", 1, s->model.vocabulary, s->model.sequence, 0, 0));
    TRY(input_feed_open(&s->input, &s->plan, 0, 4, STEPS));
    s->backend.device = &device_cuda;
    s->backend.comm = &comm_nccl;
    s->backend.kernels = &kernels_cuda;
    s->backend.local_rank = rank;
    struct execute_config config = {.plan = &s->plan,
                                    .backend = &s->backend,
                                    .input = &s->input,
                                    .parent = world,
                                    .max_steps = STEPS,
                                    .scratch = true,
                                    .fault = {.drop_op = -1}};
    TRY(execute_open(&s->execute, &config));
    execute_reset(&s->execute, 1);
out:
    return rc;
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
    static struct step step;
    memset(&step, 0, sizeof step);
    if (CHECK_EQ(open_step(&step, rank, size, dtype, world), 0)) {
        execute_block(&step.execute, VARIANT_FULL, 2, STEPS, -1, NULL); /* warms up */
        for (int level = 0; level < 3; level++)
            watch_block(&step.execute, VARIANT_FULL, level);
        watch_block(&step.execute, VARIANT_COMPUTE, 2);
        if (size > 1)
            watch_block(&step.execute, VARIANT_COMM, 1);
    } else {
        printf("%s\n", fail_message());
    }
    execute_close(&step.execute);
    input_close(&step.input);
    plan_release(&step.plan);
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
