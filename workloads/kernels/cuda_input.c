#include "workloads/kernels/cuda.h"

#include <cuda_runtime_api.h>

#include "base/err.h"
#include "workloads/input_rows.h"

/*
 * Batches are made in pinned memory and copied from there; or, where the input says so, in pageable
 * memory, from which the runtime copies by itself. The ring is deep, so that the host may run ahead
 * by many steps; only when it has gone all the way round does it wait for the oldest copy.
 */
enum { RING_BYTES = 64 << 20, LEAST_SLOTS = 4, MOST_SLOTS = 512 };

struct cuda_ring {
    unsigned char *memory; /* [n][slot_bytes] */
    bool pinned;
    int64_t slot_bytes;
    int n, next;
    cudaEvent_t *copied; /* [n] */
    int n_events;
    int64_t waits;
    /* Graphs copy from memory of their own: [n_graphs][inputs of a step][slot_bytes], pinned. */
    unsigned char *captured;
    int n_graphs, inputs;
};

/* What is copied, and room behind it in which it is made. */
static int64_t batch_bytes(const struct op *op)
{
    return (input_rows_bytes(op) + 63) / 64 * 64 + input_rows_room(op);
}

static int slots_for(int64_t bytes)
{
    int64_t n = RING_BYTES / bytes;
    return (int)(n < LEAST_SLOTS ? LEAST_SLOTS : n < MOST_SLOTS ? n : MOST_SLOTS);
}

int cuda_input_open(struct kernel_context *context)
{
    struct cuda_state *state = cuda_state(context);
    struct cuda_ring *ring = state->ring = must_alloc(1, sizeof *ring);
    for (int i = 0; i < state->plan->n_ops; i++)
        if (state->plan->ops[i].kind == OP_INPUT) {
            int64_t bytes = (batch_bytes(&state->plan->ops[i]) + 63) / 64 * 64;
            ring->slot_bytes = bytes > ring->slot_bytes ? bytes : ring->slot_bytes;
        }
    if (ring->slot_bytes == 0)
        return 0;
    ring->n = slots_for(ring->slot_bytes);
    ring->copied = must_alloc((size_t)ring->n, sizeof *ring->copied);
    size_t bytes = (size_t)ring->n * (size_t)ring->slot_bytes;
    ring->pinned = context->input == NULL || context->input->pinned;
    if (!ring->pinned)
        ring->memory = must_alloc(1, bytes);
    else if (cudaMallocHost((void **)&ring->memory, bytes) != cudaSuccess)
        return fail(FAIL_CUDA, "input: no %zu bytes of pinned memory for batches", bytes);
    for (; ring->n_events < ring->n; ring->n_events++)
        if (cudaEventCreateWithFlags(&ring->copied[ring->n_events], cudaEventDisableTiming) !=
            cudaSuccess)
            return fail(FAIL_CUDA, "input: no more CUDA events");
    return 0;
}

void cuda_input_close(struct cuda_state *state)
{
    struct cuda_ring *ring = state->ring;
    if (ring == NULL)
        return;
    for (int i = 0; i < ring->n_events; i++)
        cudaEventDestroy(ring->copied[i]);
    if (ring->captured)
        cudaFreeHost(ring->captured);
    if (ring->memory && ring->pinned)
        cudaFreeHost(ring->memory);
    else
        free(ring->memory);
    free(ring->copied);
    free(ring);
    state->ring = NULL;
}

int64_t cuda_input_waits(const struct cuda_state *state)
{
    return state->ring->waits;
}

/* A slot whose last copy is done. */
static unsigned char *take_slot(const struct kernel_context *context)
{
    struct cuda_ring *ring = cuda_state(context)->ring;
    cudaEvent_t copied = ring->copied[ring->next];
    if (cudaEventQuery(copied) == cudaErrorNotReady) {
        cudaGetLastError();
        ring->waits++;
        cuda_state(context)->device->host_waits++;
        cuda_wait(context, NULL, copied, "input");
    }
    return ring->memory + ring->next * ring->slot_bytes;
}

/* ---- what one input is ---- */

static int64_t positions_of(const struct op *op)
{
    const struct shape_input *shape = &op->shape.input;
    return shape->samples * cut_rows(&shape->cut, shape->sequence);
}

static void make_batch(const struct op *op, const struct kernel_context *context,
                       unsigned char *slot)
{
    size_t words = (size_t)positions_of(op) * 4;

    input_rows(op, context, slot + (input_rows_bytes(op) + 63) / 64 * 64, (int32_t *)slot,
               (int32_t *)(slot + words), slot + 2 * words);
}

static void copy_batch(const struct op *op, const struct kernel_context *context,
                       const unsigned char *slot, void *native)
{
    size_t positions = (size_t)positions_of(op);
    size_t words = positions * 4;

    cuda_must((int)cudaMemcpyAsync(tensor_at(context, op->t[0]), slot, words,
                                   cudaMemcpyHostToDevice, native),
              "input");
    cuda_must((int)cudaMemcpyAsync(tensor_at(context, op->t[1]), slot + words, words,
                                   cudaMemcpyHostToDevice, native),
              "input");
    cuda_must((int)cudaMemcpyAsync(tensor_at(context, op->t[2]), slot + 2 * words, positions,
                                   cudaMemcpyHostToDevice, native),
              "input");
}

/* ---- steps as graphs ---- */

int cuda_input_capture(struct kernel_context *context, int n_graphs)
{
    struct cuda_state *state = cuda_state(context);
    struct cuda_ring *ring = state->ring;

    if (!ring->pinned)
        return fail(FAIL_USAGE, "--graph: batches of a graph are copied from page-locked memory: "
                                "leave --pinned on");
    for (int i = 0; i < state->plan->n_ops; i++)
        ring->inputs += state->plan->ops[i].kind == OP_INPUT;
    ring->n_graphs = n_graphs;
    size_t bytes = (size_t)n_graphs * (size_t)ring->inputs * (size_t)ring->slot_bytes;
    if (bytes > 0 && cudaMallocHost((void **)&ring->captured, bytes) != cudaSuccess)
        return fail(FAIL_CUDA, "input: no %zu bytes of pinned memory for the batches of %d graphs",
                    bytes, n_graphs);
    return 0;
}

static unsigned char *captured_slot(const struct cuda_ring *ring, int graph, int input)
{
    if (graph >= ring->n_graphs)
        BUG("graph %d of %d", graph, ring->n_graphs);
    return ring->captured + (int64_t)(graph * ring->inputs + input) * ring->slot_bytes;
}

/* A block of graphs has come to its end before the next one refills: nothing is still copied. */
void cuda_input_refill(struct kernel_context *context, int graph)
{
    const struct cuda_state *state = cuda_state(context);

    for (int i = 0, input = 0; i < state->plan->n_ops; i++)
        if (state->plan->ops[i].kind == OP_INPUT)
            make_batch(&state->plan->ops[i], context, captured_slot(state->ring, graph, input++));
}

static int index_of_input(const struct plan *plan, const struct op *op)
{
    int index = 0;
    for (const struct op *before = plan->ops; before < op; before++)
        index += before->kind == OP_INPUT;
    return index;
}

/* ---- the run ---- */

void cuda_input(const struct op *op, struct kernel_context *context, void *native)
{
    const struct cuda_state *state = cuda_state(context);
    struct cuda_ring *ring = state->ring;

    if (context->captured > 0) {
        int input = index_of_input(state->plan, op);
        copy_batch(op, context, captured_slot(ring, context->captured - 1, input), native);
        return;
    }
    unsigned char *slot = take_slot(context);
    make_batch(op, context, slot);
    copy_batch(op, context, slot, native);
    cuda_must((int)cudaEventRecord(ring->copied[ring->next], native), "input");
    ring->next = (ring->next + 1) % ring->n;
}
