/* Runs of the "cuda" device recorded once and launched as graphs. */
#include "base/device_cuda.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/units.h"

/* Stamps are nodes that record an event of the graph's own; marks are edges, and no nodes. */
struct graph_stamp {
    int slot, stream;
    cudaEvent_t event; /* NULL: a mark */
};

struct device_graph {
    cudaGraphExec_t exec;
    int n_stamps, capacity;
    struct graph_stamp *stamps;
};

/* ---- capture ---- */

static int capture_failed(const struct cuda *cuda, cudaError_t error, const char *call)
{
    cudaGetLastError(); /* this one is answered for; it must not end a later call */
    return fail(FAIL_CUDA, "device: GPU %d: the step cannot be made a graph: %s: %s (%s)",
                cuda->index, call, cudaGetErrorString(error), cudaGetErrorName(error));
}

static cudaEvent_t take_order(struct cuda *cuda)
{
    return device_cuda_take_event(cuda, &cuda->capture.pool, cudaEventDisableTiming);
}

/* `later` goes on when what `earlier` was given so far is done. */
static void order(struct cuda *cuda, int earlier, int later)
{
    cudaEvent_t event = take_order(cuda);

    device_cuda_must(cuda, cudaEventRecord(event, cuda->streams[earlier]), "cudaEventRecord");
    device_cuda_must(cuda, cudaStreamWaitEvent(cuda->streams[later], event, 0),
                     "cudaStreamWaitEvent");
}

int device_cuda_capture_begin(struct device *device)
{
    struct cuda *cuda = device->state;
    struct cuda_capture *capture = &cuda->capture;
    cudaError_t error;

    if (capture->graph != NULL)
        BUG("a capture inside another");
    device->type->sync(device);
    error = cudaStreamBeginCapture(cuda->streams[DEVICE_COMPUTE], cudaStreamCaptureModeThreadLocal);
    if (error != cudaSuccess)
        return capture_failed(cuda, error, "cudaStreamBeginCapture");
    capture->graph = must_alloc(1, sizeof *capture->graph);
    capture->order = must_alloc((size_t)cuda->n_slots + 1, sizeof *capture->order);
    capture->stream = must_alloc((size_t)cuda->n_slots + 1, sizeof *capture->stream);
    capture->pool.used = 0;
    device->capture = ++capture->n;
    for (int i = 1; i < cuda->n_streams; i++)
        order(cuda, DEVICE_COMPUTE, i);
    return 0;
}

static struct graph_stamp *add_stamp(struct device_graph *graph)
{
    if (graph->n_stamps == graph->capacity) {
        graph->capacity = 2 * graph->capacity + 64;
        graph->stamps = must_grow(graph->stamps, (size_t)graph->capacity, sizeof *graph->stamps);
    }
    return &graph->stamps[graph->n_stamps++];
}

void device_cuda_capture_stamp(struct cuda *cuda, int stream, int stamp, bool timed)
{
    struct cuda_capture *capture = &cuda->capture;
    struct graph_stamp *to = add_stamp(capture->graph);

    if (capture->order[stamp] != NULL)
        die(FAIL_INTERNAL, "device: stamp %d was given twice in one capture", stamp);
    *to = (struct graph_stamp){.slot = stamp, .stream = stream};
    if (timed) {
        device_cuda_must(cuda, cudaEventCreate(&to->event), "cudaEventCreate");
        device_cuda_must(
            cuda,
            cudaEventRecordWithFlags(to->event, cuda->streams[stream], cudaEventRecordExternal),
            "cudaEventRecordWithFlags");
    }
    capture->order[stamp] = take_order(cuda);
    capture->stream[stamp] = stream;
    device_cuda_must(cuda, cudaEventRecord(capture->order[stamp], cuda->streams[stream]),
                     "cudaEventRecord");
}

void device_cuda_capture_await(struct cuda *cuda, int stream, int stamp)
{
    const struct cuda_capture *capture = &cuda->capture;

    if (capture->order[stamp] == NULL)
        die(FAIL_INTERNAL,
            "device: stream %d waits for stamp %d, which nobody has given since the capture began",
            stream, stamp);
    if (capture->stream[stamp] != stream)
        device_cuda_must(cuda, cudaStreamWaitEvent(cuda->streams[stream], capture->order[stamp], 0),
                         "cudaStreamWaitEvent");
}

/* ---- from the capture to a graph that can be launched ---- */

static void release(struct device_graph *graph)
{
    if (graph->exec != NULL)
        cudaGraphExecDestroy(graph->exec);
    for (int i = 0; i < graph->n_stamps; i++)
        if (graph->stamps[i].event != NULL)
            cudaEventDestroy(graph->stamps[i].event);
    free(graph->stamps);
    free(graph);
}

/* Kernels keep the priority of the stream on which they were captured. */
static int instantiate(const struct cuda *cuda, struct device_graph *graph, cudaGraph_t captured)
{
    cudaError_t error = cudaGraphInstantiateWithFlags(&graph->exec, captured,
                                                      cudaGraphInstantiateFlagUseNodePriority);

    if (error != cudaSuccess)
        return capture_failed(cuda, error, "cudaGraphInstantiate");
    error = cudaGraphUpload(graph->exec, cuda->streams[DEVICE_COMPUTE]);
    if (error != cudaSuccess)
        return capture_failed(cuda, error, "cudaGraphUpload");
    return 0;
}

int device_cuda_capture_end(struct device *device, struct device_graph **out)
{
    struct cuda *cuda = device->state;
    struct device_graph *graph = cuda->capture.graph;
    cudaGraph_t captured = NULL;
    cudaError_t error;
    int rc = 0;

    if (graph == NULL)
        BUG("the end of a capture that never began");
    for (int i = 1; i < cuda->n_streams; i++)
        order(cuda, i, DEVICE_COMPUTE);
    device_cuda_capture_close(cuda);
    device->capture = 0;
    error = cudaStreamEndCapture(cuda->streams[DEVICE_COMPUTE], &captured);
    rc = error != cudaSuccess ? capture_failed(cuda, error, "cudaStreamEndCapture")
                              : instantiate(cuda, graph, captured);
    if (captured != NULL)
        cudaGraphDestroy(captured);
    if (rc != 0)
        release(graph);
    else
        device->type->sync(device);
    *out = rc == 0 ? graph : NULL;
    return rc;
}

/* What a capture needs while it lasts; its events stay for the next one. */
void device_cuda_capture_close(struct cuda *cuda)
{
    free(cuda->capture.order);
    free(cuda->capture.stream);
    cuda->capture.order = NULL;
    cuda->capture.stream = NULL;
    cuda->capture.graph = NULL;
}

/* ---- launches ---- */

/* Stamps of this launch count as given: awaited by what comes behind it, and read at the next sync. */
static void count_stamps(struct cuda *cuda, const struct device_graph *graph, int64_t given_ns)
{
    for (int i = 0; i < graph->n_stamps; i++) {
        const struct graph_stamp *from = &graph->stamps[i];
        struct cuda_slot *slot = &cuda->slots[from->slot];
        if (slot->generation == cuda->generation)
            die(FAIL_INTERNAL, "device: stamp %d was given twice without a sync between",
                from->slot);
        *slot = (struct cuda_slot){.generation = cuda->generation,
                                   .stream = DEVICE_COMPUTE,
                                   .event = from->event,
                                   .given_ns = given_ns,
                                   .when_ns = slot->when_ns};
        if (from->event != NULL)
            cuda->stamped[cuda->n_stamped++] = from->slot;
    }
}

void device_cuda_launch_graph(struct device *device, struct device_graph *graph)
{
    struct cuda *cuda = device->state;
    int64_t given_ns = units_now_ns();

    device_cuda_must(cuda, cudaGraphLaunch(graph->exec, cuda->streams[DEVICE_COMPUTE]),
                     "cudaGraphLaunch");
    count_stamps(cuda, graph, given_ns);
}

void device_cuda_free_graph(struct device *device, struct device_graph *graph)
{
    (void)device;
    if (graph != NULL)
        release(graph);
}
