/*
 * OP_COUNTS: the one kernel that waits, by its meaning: later ops cannot be given out before the host
 * knows how many rows they have. Waits are counted apart, and so is their time (kernel_context.counts,
 * waited_ns).
 */
#include <cuda_runtime_api.h>

#include "base/err.h"
#include "workloads/counts.h"
#include "workloads/kernels/cuda.h"

enum { TABLES = 2 }; /* counts of what goes, and of what comes */

static bool has_counts(const struct plan *plan)
{
    for (int i = 0; i < plan->n_ops; i++)
        if (plan->ops[i].kind == OP_COUNTS)
            return true;
    return false;
}

int cuda_counts_open(struct kernel_context *context)
{
    struct cuda_state *state = cuda_state(context);
    size_t bytes = TABLES * EXPERTS_MOST * sizeof *state->counts;
    if (!has_counts(state->plan))
        return 0;
    if (cudaMallocHost((void **)&state->counts, bytes) != cudaSuccess)
        return fail(FAIL_CUDA, "counts: no %zu bytes of page-locked memory", bytes);
    return 0;
}

void cuda_counts_close(struct cuda_state *state)
{
    if (state->counts != NULL)
        cudaFreeHost(state->counts);
    state->counts = NULL;
}

static void fetch(int32_t *to, const void *from, int n, void *native)
{
    cuda_must((int)cudaMemcpyAsync(to, from, (size_t)n * sizeof *to, cudaMemcpyDeviceToHost,
                                   (cudaStream_t)native),
              "counts");
}

void cuda_counts(const struct op *op, struct kernel_context *context, void *native)
{
    const struct shape_counts *s = &op->shape.counts;
    int32_t *own = cuda_state(context)->counts, *arrived = own + EXPERTS_MOST;
    fetch(own, tensor_at(context, op->t[0]), s->experts, native);
    fetch(arrived, tensor_at(context, op->t[1]), s->experts, native);
    context->waited_ns += cuda_wait(context, native, NULL, "counts");
    context->counts++;
    if (!context->keep_counts)
        counts_put(s, own, arrived);
}
