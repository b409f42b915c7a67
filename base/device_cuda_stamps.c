/* Stamps of the "cuda" device: events from pools, and the two clocks. */
#include "base/device_cuda.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/units.h"

void device_cuda_empty_pool(struct cuda_pool *pool)
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

cudaEvent_t device_cuda_take_event(struct cuda *cuda, struct cuda_pool *pool, unsigned flags)
{
    if (pool->used == pool->n)
        device_cuda_must(cuda, fill_pool(pool, pool->n + 1, flags), "cudaEventCreate");
    return pool->events[pool->used++];
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
    device_cuda_empty_pool(&cuda->timed);
    device_cuda_empty_pool(&cuda->untimed);
    device_cuda_empty_pool(&cuda->capture.pool);
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
    slot->given_ns = units_now_ns();
    slot->event = pool->events[pool->used++];
    device_cuda_must(cuda, cudaEventRecord(slot->event, cuda->streams[stream]), "cudaEventRecord");
    return slot;
}

void device_cuda_stamp(struct device *device, int stream, int stamp)
{
    struct cuda *cuda = device->state;

    if (cuda->capture.graph != NULL) {
        slot_of(cuda, stamp);
        device_cuda_capture_stamp(cuda, stream, stamp, true);
        return;
    }
    record(cuda, stream, stamp, &cuda->timed);
    cuda->stamped[cuda->n_stamped++] = stamp;
}

void device_cuda_mark(struct device *device, int stream, int stamp)
{
    struct cuda *cuda = device->state;

    if (cuda->capture.graph != NULL) {
        slot_of(cuda, stamp);
        device_cuda_capture_stamp(cuda, stream, stamp, false);
        return;
    }
    record(cuda, stream, stamp, &cuda->untimed);
}

void device_cuda_await(struct device *device, int stream, int stamp)
{
    struct cuda *cuda = device->state;
    const struct cuda_slot *slot = slot_of(cuda, stamp);

    if (cuda->capture.graph != NULL) {
        device_cuda_capture_await(cuda, stream, stamp);
        return;
    }
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

int64_t device_cuda_given(struct device *device, int stamp)
{
    struct cuda *cuda = device->state;

    return slot_of(cuda, stamp)->given_ns;
}

/* ---- what a stamp costs ---- */

enum { PAIRS = 33 };

/* Ops that take next to nothing, stamped as the executor stamps its own. */
struct calibration {
    void *memory;
    cudaEvent_t begin[PAIRS], end[PAIRS];
};

static void hold(void *arg)
{
    (void)arg;
    units_sleep_ns(2000000);
}

static void record_as(struct cuda *cuda, cudaEvent_t event, bool in_graph)
{
    unsigned flags = in_graph ? cudaEventRecordExternal : cudaEventRecordDefault;

    device_cuda_must(cuda, cudaEventRecordWithFlags(event, cuda->streams[0], flags),
                     "cudaEventRecordWithFlags");
}

static void give_pairs(struct cuda *cuda, const struct calibration *c, bool in_graph)
{
    for (int i = 0; i < PAIRS; i++) {
        record_as(cuda, c->begin[i], in_graph);
        device_cuda_must(cuda, cudaMemsetAsync(c->memory, 0, 256, cuda->streams[0]),
                         "cudaMemsetAsync");
        record_as(cuda, c->end[i], in_graph);
    }
}

/* The stream is held until the host has given everything: nothing of it is the host's time. */
static void run_pairs(struct cuda *cuda, const struct calibration *c)
{
    device_cuda_must(cuda, cudaLaunchHostFunc(cuda->streams[0], hold, NULL), "cudaLaunchHostFunc");
    give_pairs(cuda, c, false);
    device_cuda_must(cuda, cudaStreamSynchronize(cuda->streams[0]), "cudaStreamSynchronize");
}

static void run_graph(struct cuda *cuda, const struct calibration *c)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;

    device_cuda_must(cuda,
                     cudaStreamBeginCapture(cuda->streams[0], cudaStreamCaptureModeThreadLocal),
                     "cudaStreamBeginCapture");
    give_pairs(cuda, c, true);
    device_cuda_must(cuda, cudaStreamEndCapture(cuda->streams[0], &graph), "cudaStreamEndCapture");
    device_cuda_must(cuda, cudaGraphInstantiateWithFlags(&exec, graph, 0), "cudaGraphInstantiate");
    for (int round = 0; round < 2; round++) { /* the first one warms up */
        device_cuda_must(cuda, cudaGraphLaunch(exec, cuda->streams[0]), "cudaGraphLaunch");
        device_cuda_must(cuda, cudaStreamSynchronize(cuda->streams[0]), "cudaStreamSynchronize");
    }
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int64_t median_gap(const struct cuda *cuda, const struct calibration *c)
{
    double gap[PAIRS - 1];

    for (int i = 0; i + 1 < PAIRS; i++)
        gap[i] = elapsed_ns(cuda, c->end[i], c->begin[i + 1]);
    qsort(gap, PAIRS - 1, sizeof *gap, by_value);
    return (int64_t)gap[(PAIRS - 1) / 2];
}

int64_t device_cuda_stamp_cost(struct cuda *cuda, bool as_graph)
{
    struct calibration c;
    int64_t cost;

    device_cuda_must(cuda, cudaMalloc(&c.memory, 256), "cudaMalloc");
    for (int i = 0; i < PAIRS; i++) {
        device_cuda_must(cuda, cudaEventCreate(&c.begin[i]), "cudaEventCreate");
        device_cuda_must(cuda, cudaEventCreate(&c.end[i]), "cudaEventCreate");
    }
    run_pairs(cuda, &c); /* warms up */
    if (as_graph)
        run_graph(cuda, &c);
    else
        run_pairs(cuda, &c);
    cost = median_gap(cuda, &c);
    for (int i = 0; i < PAIRS; i++) {
        cudaEventDestroy(c.begin[i]);
        cudaEventDestroy(c.end[i]);
    }
    cudaFree(c.memory);
    return cost;
}
