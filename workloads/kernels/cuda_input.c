#include "workloads/kernels/cuda.h"

#include <cuda_runtime_api.h>

#include "base/err.h"

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
};

static int64_t batch_bytes(const struct op *op)
{
    int64_t positions = op->shape.input.samples * op->shape.input.sequence;
    return positions * (int64_t)(2 * sizeof(int32_t) + 1);
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
static unsigned char *take_slot(struct cuda_ring *ring, struct device *device)
{
    cudaEvent_t copied = ring->copied[ring->next];
    if (cudaEventQuery(copied) == cudaErrorNotReady) {
        ring->waits++;
        device->host_waits++;
        cuda_must((int)cudaEventSynchronize(copied), "input");
    }
    return ring->memory + ring->next * ring->slot_bytes;
}

void cuda_input(const struct op *op, struct kernel_context *context, void *native)
{
    const struct shape_input *shape = &op->shape.input;
    struct cuda_ring *ring = cuda_state(context)->ring;
    size_t positions = (size_t)(shape->samples * shape->sequence), words = positions * 4;
    unsigned char *slot = take_slot(ring, cuda_state(context)->device);

    if (context->input->sequence != shape->sequence)
        BUG("the input makes sequences of %lld, the plan wants %lld",
            (long long)context->input->sequence, (long long)shape->sequence);
    input_fill(context->input, context->first_sample + shape->first, shape->samples,
               (int32_t *)slot, (int32_t *)(slot + words), slot + 2 * words);
    cuda_must((int)cudaMemcpyAsync(tensor_at(context, op->t[0]), slot, words,
                                   cudaMemcpyHostToDevice, native),
              "input");
    cuda_must((int)cudaMemcpyAsync(tensor_at(context, op->t[1]), slot + words, words,
                                   cudaMemcpyHostToDevice, native),
              "input");
    cuda_must((int)cudaMemcpyAsync(tensor_at(context, op->t[2]), slot + 2 * words, positions,
                                   cudaMemcpyHostToDevice, native),
              "input");
    cuda_must((int)cudaEventRecord(ring->copied[ring->next], native), "input");
    ring->next = (ring->next + 1) % ring->n;
}
