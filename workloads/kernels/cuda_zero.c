#include "workloads/kernels/cuda.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>

#include "base/err.h"

/* ---- zeros, but for what a product writes first (overwrite.h) ---- */

enum { LARGE = 1 << 20 }; /* bytes of a run that has a memset of its own */

struct zeroing {
    int n_large, n_small;
    struct overwrite_run *large; /* on the host, owned */
    int64_t first_small;         /* in the table on the device */
};

struct cuda_zeroings {
    int n;
    struct zeroing *zeroing; /* [n_ops of the plan] */
    struct overwrite_run *small;
    int64_t n_small;
};

static void split_runs(struct zeroing *z, const struct overwrite_run *left, int n,
                       struct overwrite_run *small)
{
    z->large = must_alloc((size_t)n + 1, sizeof *z->large);
    for (int i = 0; i < n; i++) {
        if (left[i].end - left[i].begin >= LARGE)
            z->large[z->n_large++] = left[i];
        else
            small[z->n_small++] = left[i];
    }
}

int cuda_zero_open(struct kernel_context *context)
{
    struct cuda_state *state = cuda_state(context);
    const struct overwrite *o = &state->overwrite;
    struct cuda_zeroings *zeroings = must_alloc(1, sizeof *zeroings);
    struct overwrite_run *small;
    int64_t most = 0;
    int rc = 0;
    state->zeroings = zeroings;
    if (o->plan == NULL)
        return 0;
    zeroings->n = state->plan->n_ops;
    zeroings->zeroing = must_alloc((size_t)zeroings->n + 1, sizeof *zeroings->zeroing);
    for (int i = 0; i < zeroings->n; i++)
        most += o->n_left[i];
    small = must_alloc((size_t)most + 1, sizeof *small);
    for (int i = 0; i < zeroings->n; i++) {
        struct zeroing *z = &zeroings->zeroing[i];
        z->first_small = zeroings->n_small;
        split_runs(z, o->left[i], o->n_left[i], small + zeroings->n_small);
        zeroings->n_small += z->n_small;
    }
    void *table = NULL;
    if (zeroings->n_small > 0)
        rc = cuda_upload(state, small, zeroings->n_small * (int64_t)sizeof *small, &table);
    zeroings->small = table;
    free(small);
    return rc;
}

void cuda_zero_close(struct cuda_state *state)
{
    struct cuda_zeroings *zeroings = state->zeroings;
    if (zeroings == NULL)
        return;
    for (int i = 0; zeroings->zeroing != NULL && i < zeroings->n; i++)
        free(zeroings->zeroing[i].large);
    cuda_drop(state, zeroings->small, zeroings->n_small * (int64_t)sizeof *zeroings->small);
    free(zeroings->zeroing);
    free(zeroings);
    state->zeroings = NULL;
}

void cuda_zero(const struct op *op, struct kernel_context *context, void *native)
{
    const struct cuda_state *state = cuda_state(context);
    int index = context->alone ? -1 : fuse_index(state->plan, op);
    if (index < 0) {
        size_t bytes = (size_t)op->shape.vector.n * sizeof(float);
        cuda_must((int)cudaMemsetAsync(tensor_at(context, op->t[0]), 0, bytes, native), "zero");
        return;
    }
    const struct zeroing *z = &state->zeroings->zeroing[index];
    unsigned char *base = context->base[op->t[0].buffer];
    for (int i = 0; i < z->n_large; i++)
        cuda_must((int)cudaMemsetAsync(base + z->large[i].begin, 0,
                                       (size_t)(z->large[i].end - z->large[i].begin), native),
                  "zero");
    if (z->n_small > 0)
        cuda_zero_runs(base, state->zeroings->small + z->first_small, z->n_small, native);
}

double cuda_zero_elsewhere(const struct op *op, const struct kernel_context *context)
{
    const struct cuda_state *state = cuda_state(context);
    const struct overwrite *o = &state->overwrite;
    int index = context->alone || o->plan == NULL ? -1 : fuse_index(state->plan, op);
    double left = 0;
    for (int i = 0; index >= 0 && i < o->n_left[index]; i++)
        left += (double)(o->left[index][i].end - o->left[index][i].begin);
    return index >= 0 ? (double)op->shape.vector.n * sizeof(float) - left : 0;
}
