/* Stamps of the "cuda" device: events from pools, and the two clocks. */
#include "base/device_cuda.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/units.h"

static void empty_pool(struct cuda_pool *pool)
{
    for (int i = 0; i < pool->n; i++)
        cudaEventDestroy(pool->events[i]);
    free(pool->events);
    *pool = (struct cuda_pool){0};
}

static cudaError_t fill_pool(struct cuda_pool *pool, int n, unsigned flags)
{
    cudaError_t error = cudaSuccess;

    if (n > pool->n)
        pool->events = must_grow(pool->events, (size_t)n, sizeof(cudaEvent_t));
    while (pool->n < n && error == cudaSuccess) {
        error = cudaEventCreateWithFlags(&pool->events[pool->n], flags);
        pool->n += error == cudaSuccess;
    }
    return error;
}

int device_cuda_reserve(struct device *device, int n_stamps, int n_tasks)
{
    struct cuda *cuda = device->state;
    cudaError_t error;

    if (n_stamps < 0 || n_tasks < 0)
        BUG("reserve of %d stamps and %d tasks", n_stamps, n_tasks);
    device->type->sync(device);
    free(cuda->slots);
    free(cuda->stamped);
    cuda->slots = must_alloc((size_t)n_stamps + 1, sizeof *cuda->slots);
    cuda->stamped = must_alloc((size_t)n_stamps + 1, sizeof *cuda->stamped);
    cuda->n_slots = n_stamps;
    error = fill_pool(&cuda->timed, n_stamps, cudaEventDefault);
    if (error == cudaSuccess)
        error = fill_pool(&cuda->untimed, n_stamps, cudaEventDisableTiming);
    if (error != cudaSuccess)
        return fail(FAIL_CUDA, "device: GPU %d: %d events: %s; take a smaller --block", cuda->index,
                    n_stamps, cudaGetErrorString(error));
    return 0;
}

void device_cuda_stamps_close(struct cuda *cuda)
{
    empty_pool(&cuda->timed);
    empty_pool(&cuda->untimed);
    free(cuda->slots);
    free(cuda->stamped);
}

static struct cuda_slot *slot_of(struct cuda *cuda, int stamp)
{
    if (stamp < 0 || stamp >= cuda->n_slots)
        BUG("stamp %d of %d", stamp, cuda->n_slots);
    return &cuda->slots[stamp];
}

/* A slot takes the next event of a pool for this generation. */
static struct cuda_slot *record(struct cuda *cuda, int stream, int stamp, struct cuda_pool *pool)
{
    struct cuda_slot *slot = slot_of(cuda, stamp);

    if (slot->generation == cuda->generation)
        die(FAIL_INTERNAL, "device: stamp %d was given twice without a sync between", stamp);
    slot->generation = cuda->generation;
    slot->stream = stream;
    slot->event = pool->events[pool->used++];
    device_cuda_must(cuda, cudaEventRecord(slot->event, cuda->streams[stream]), "cudaEventRecord");
    return slot;
}

void device_cuda_stamp(struct device *device, int stream, int stamp)
{
    struct cuda *cuda = device->state;

    record(cuda, stream, stamp, &cuda->timed);
    cuda->stamped[cuda->n_stamped++] = stamp;
}

void device_cuda_mark(struct device *device, int stream, int stamp)
{
    struct cuda *cuda = device->state;

    record(cuda, stream, stamp, &cuda->untimed);
}

void device_cuda_await(struct device *device, int stream, int stamp)
{
    struct cuda *cuda = device->state;
    const struct cuda_slot *slot = slot_of(cuda, stamp);

    if (slot->generation != cuda->generation)
        die(FAIL_INTERNAL,
            "device: stream %d waits for stamp %d, which nobody has given since the last sync: on "
            "\"cuda\" a stamp comes before its wait",
            stream, stamp);
    if (slot->stream != stream)
        device_cuda_must(cuda, cudaStreamWaitEvent(cuda->streams[stream], slot->event, 0),
                         "cudaStreamWaitEvent");
}

/*
 * The host's time at which the anchor event is reached on an empty stream. The last try is the one
 * whose event counts, so it is repeated until its bracket is near the narrowest.
 */
static int64_t drop_anchor(struct cuda *cuda)
{
    enum { TRIES = 5, MOST = 50 };
    int64_t best = INT64_MAX, middle = 0;

    for (int i = 0; i < MOST; i++) {
        int64_t before = units_now_ns(), width;
        device_cuda_must(cuda, cudaEventRecord(cuda->anchor, cuda->streams[0]), "cudaEventRecord");
        device_cuda_must(cuda, cudaEventSynchronize(cuda->anchor), "cudaEventSynchronize");
        width = units_now_ns() - before;
        middle = before + width / 2;
        best = width < best ? width : best;
        if (i >= TRIES - 1 && width <= best + best / 4)
            break;
    }
    return middle;
}

static double elapsed_ns(const struct cuda *cuda, cudaEvent_t from, cudaEvent_t to)
{
    float ms = 0;

    device_cuda_must(cuda, cudaEventElapsedTime(&ms, from, to), "cudaEventElapsedTime");
    return (double)ms * 1e6;
}

void device_cuda_stamps_settle(struct cuda *cuda)
{
    if (cuda->n_stamped > 0) {
        int64_t anchor = drop_anchor(cuda);
        for (int i = 0; i < cuda->n_stamped; i++) {
            struct cuda_slot *slot = &cuda->slots[cuda->stamped[i]];
            slot->when_ns = anchor - (int64_t)elapsed_ns(cuda, slot->event, cuda->anchor);
        }
    }
    cuda->n_stamped = cuda->timed.used = cuda->untimed.used = 0;
    cuda->generation++;
}

int64_t device_cuda_when(struct device *device, int stamp)
{
    struct cuda *cuda = device->state;

    return slot_of(cuda, stamp)->when_ns;
}

/* Median distance of stamps that follow each other at once. */
int64_t device_cuda_stamp_cost(struct cuda *cuda)
{
    enum { N = 65 };
    cudaEvent_t events[N];
    double distance[N - 1];

    for (int i = 0; i < N; i++)
        device_cuda_must(cuda, cudaEventCreate(&events[i]), "cudaEventCreate");
    for (int round = 0; round < 2; round++) /* the first one warms up */
        for (int i = 0; i < N; i++)
            device_cuda_must(cuda, cudaEventRecord(events[i], cuda->streams[0]), "cudaEventRecord");
    device_cuda_must(cuda, cudaStreamSynchronize(cuda->streams[0]), "cudaStreamSynchronize");
    for (int i = 0; i + 1 < N; i++) {
        double d = elapsed_ns(cuda, events[i], events[i + 1]);
        int at = i;
        for (; at > 0 && distance[at - 1] > d; at--)
            distance[at] = distance[at - 1];
        distance[at] = d;
    }
    for (int i = 0; i < N; i++)
        cudaEventDestroy(events[i]);
    return (int64_t)distance[(N - 1) / 2];
}
