#include "workloads/kernels/cuda.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "workloads/cost.h"

static cuda_scratch *const scratch_of[OP_KINDS] = {
    [OP_EMBED_GRAD] = cuda_embed_grad_scratch,
    [OP_NORM_GRAD] = cuda_norm_grad_scratch,
    [OP_GEMM] = cuda_gemm_scratch,
    [OP_BIAS_GRAD] = cuda_bias_grad_scratch,
    [OP_ATTENTION] = cuda_attention_scratch,
    [OP_ATTENTION_GRAD] = cuda_attention_grad_scratch,
    [OP_ATTENTION_BLOCK] = cuda_attention_scratch,
    [OP_ATTENTION_BLOCK_GRAD] = cuda_attention_grad_scratch,
    [OP_CROSS_ENTROPY] = cuda_cross_entropy_scratch,
    [OP_SUMSQ] = cuda_sumsq_scratch,
    [OP_ROUTE] = cuda_route_scratch,
    [OP_GROUPED_GEMM] = cuda_grouped_scratch,
};

/* ---- errors ---- */

void cuda_launched(const char *what)
{
    cuda_must((int)cudaPeekAtLastError(), what);
}

void cuda_must(int code, const char *what)
{
    if (code != cudaSuccess)
        die(FAIL_CUDA, "%s: %s", what, cudaGetErrorString((cudaError_t)code));
}

static int runtime(cudaError_t code, const char *what)
{
    if (code == cudaSuccess)
        return 0;
    return fail(FAIL_CUDA, "kernels: %s: %s", what, cudaGetErrorString(code));
}

/* ---- memory ---- */

int cuda_take(struct cuda_state *state, int64_t bytes, void **out)
{
    return state->device->type->alloc(state->device, DEVICE_TEMPORARIES, (size_t)bytes, out);
}

void cuda_drop(struct cuda_state *state, void *memory, int64_t bytes)
{
    if (memory != NULL)
        state->device->type->free(state->device, DEVICE_TEMPORARIES, memory, (size_t)bytes);
}

int cuda_upload(struct cuda_state *state, const void *from, int64_t bytes, void **to)
{
    int rc = 0;
    TRY(cuda_take(state, bytes, to));
    TRY(runtime(cudaMemcpy(*to, from, (size_t)bytes, cudaMemcpyHostToDevice), "copy of a table"));
out:
    return rc;
}

static int take_scratch(struct cuda_state *state)
{
    for (int i = 0; i < state->plan->n_ops; i++) {
        const struct op *op = &state->plan->ops[i];
        int64_t bytes = scratch_of[op->kind] ? scratch_of[op->kind](op, state) : 0;
        state->scratch_bytes = bytes > state->scratch_bytes ? bytes : state->scratch_bytes;
    }
    if (state->scratch_bytes == 0)
        return 0;
    return cuda_take(state, state->scratch_bytes, (void **)&state->scratch);
}

/* ---- open and close ---- */

int cuda_norm_check(const struct op *op)
{
    bool wide = op->shape.rows.width % 8 == 0;
    for (int i = 0; i < OP_TENSORS; i++)
        wide = wide && op->t[i].offset % 16 == 0;
    int64_t each = !wide ? 1 : op->dtype == DTYPE_BF16 ? 8 : 4;
    int64_t most = cuda_norm_packs() * each;
    if (op->shape.rows.width <= most)
        return 0;
    return fail(FAIL_USAGE, "norm: a row of %lld elements of %s: this device takes up to %lld",
                (long long)op->shape.rows.width, dtype_name((int)op->dtype), (long long)most);
}

static int check_op(const struct op *op)
{
    if (op->kind == OP_COLLECTIVE)
        return 0;
    if (op->dtype != DTYPE_F32 && op->dtype != DTYPE_BF16)
        return fail(FAIL_USAGE, "kernels: %s in %s: this device computes in fp32 and bf16",
                    op_name((int)op->kind), dtype_name((int)op->dtype));
    if (op->kind == OP_NORM || op->kind == OP_NORM_GRAD)
        return cuda_norm_check(op);
    return 0;
}

static int ask_device(struct cuda_state *state)
{
    int device = 0, shared = 0, rc = 0;
    TRY(runtime(cudaGetDevice(&device), "no current device"));
    TRY(runtime(
        cudaDeviceGetAttribute(&state->multiprocessors, cudaDevAttrMultiProcessorCount, device),
        "multiprocessors"));
    TRY(runtime(cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
                "shared memory"));
    state->shared_bytes = shared;
out:
    return rc;
}

/* What needs no other rank. */
static int open_own(struct kernel_context *context)
{
    struct cuda_state *state = cuda_state(context);
    const struct plan *plan = state->plan;
    int rc = 0;
    for (int i = 0; i < plan->n_ops; i++)
        TRY(check_op(&plan->ops[i]));
    TRY(ask_device(state));
    if (context->search && !context->deterministic && !context->alone)
        fuse_pairs(&state->fusion, plan);
    if (!context->alone)
        overwrite_find(&state->overwrite, plan);
    TRY(cuda_zero_open(context));
    TRY(cuda_updates_open(context));
    TRY(cuda_gemm_open(context));
    TRY(cuda_grouped_open(context));
    TRY(cuda_counts_open(context));
    TRY(cuda_input_open(context));
    TRY(cuda_rotary_open(context));
    TRY(cuda_attention_open(context));
out:
    return rc;
}

static int choose_attention(struct kernel_context *context)
{
    int rc = 0;
    TRY(cuda_cudnn_search(context));
    TRY(take_scratch(cuda_state(context)));
out:
    return rc;
}

/* Both searches gather over the ranks of context->share: no rank enters one that another has left. */
static int set_open(struct kernel_context *context, const struct plan *plan, struct device *device)
{
    struct cuda_state *state = must_alloc(1, sizeof *state);
    int rc = 0;
    context->state = state;
    state->plan = plan;
    state->device = device;
    TRY(cuda_share_agree(context->share, open_own(context)));
    TRY(cuda_share_agree(context->share, choose_attention(context)));
    TRY(cuda_gemm_search(context));
    TRY(cuda_cudnn_bind(context));
out:
    return rc;
}

static void set_close(struct kernel_context *context)
{
    struct cuda_state *state = cuda_state(context);
    if (state == NULL)
        return;
    cuda_cudnn_close(state);
    cuda_rotary_close(state);
    cuda_input_close(state);
    cuda_grouped_close(state);
    cuda_counts_close(state);
    cuda_gemm_close(state);
    cuda_zero_close(state);
    cuda_updates_close(state);
    overwrite_release(&state->overwrite);
    fuse_release(&state->fusion);
    cuda_drop(state, state->scratch, state->scratch_bytes);
    free(state);
    context->state = NULL;
}

static void set_describe(const struct kernel_context *context, char *text, size_t size)
{
    const struct cuda_state *state = cuda_state(context);
    char attention[256], gemm[512];
    text[0] = '\0';
    if (state == NULL || state->gemms == NULL || state->ring == NULL)
        return; /* not opened */
    cuda_attention_describe(state, attention, sizeof attention);
    cuda_gemm_describe(state, gemm, sizeof gemm);
    snprintf(text, size, "%s%s%s; %lld host waits for input", attention, attention[0] ? "; " : "",
             gemm, (long long)cuda_input_waits(state));
    size_t used = strlen(text);
    if (state->cudnn != NULL)
        cuda_cudnn_describe_choices(state, text + used, size - used);
    used = strlen(text);
    cuda_gemm_describe_choices(state, text + used, size - used);
}

/* ---- ops that a product may have done already ---- */

static void gelu_unless_done(const struct op *op, struct kernel_context *context, void *native)
{
    if (!fuse_is_used(&cuda_state(context)->fusion, op))
        cuda_gelu(op, context, native);
}

static void gelu_grad_unless_done(const struct op *op, struct kernel_context *context, void *native)
{
    if (!fuse_is_used(&cuda_state(context)->fusion, op))
        cuda_gelu_grad(op, context, native);
}

static void bias_grad_unless_done(const struct op *op, struct kernel_context *context, void *native)
{
    if (!fuse_is_used(&cuda_state(context)->fusion, op))
        cuda_bias_grad(op, context, native);
}

static double set_elsewhere(const struct kernel_context *context, const struct op *op)
{
    struct cost_work work;
    if (op->kind == OP_ZERO)
        return cuda_zero_elsewhere(op, context);
    if (op->kind == OP_GEMM || !fuse_is_used(&cuda_state(context)->fusion, op))
        return 0;
    cost_work(op, &work);
    return work.bytes;
}

const struct kernel_set kernels_cuda = {
    .name = "cuda",
    .run =
        {
            [OP_INPUT] = cuda_input,
            [OP_ZERO] = cuda_zero,
            [OP_EMBED] = cuda_embed,
            [OP_EMBED_GRAD] = cuda_embed_grad,
            [OP_NORM] = cuda_norm,
            [OP_NORM_GRAD] = cuda_norm_grad,
            [OP_GEMM] = cuda_gemm,
            [OP_BIAS_GRAD] = bias_grad_unless_done,
            [OP_ROTARY] = cuda_rotary,
            [OP_ATTENTION] = cuda_attention,
            [OP_ATTENTION_GRAD] = cuda_attention_grad,
            [OP_ATTENTION_BLOCK] = cuda_attention_block,
            [OP_ATTENTION_BLOCK_GRAD] = cuda_attention_block_grad,
            [OP_ATTENTION_MERGE] = cuda_attention_merge,
            [OP_MOVE] = cuda_move,
            [OP_GELU] = gelu_unless_done,
            [OP_GELU_GRAD] = gelu_grad_unless_done,
            [OP_SWIGLU] = cuda_swiglu,
            [OP_SWIGLU_GRAD] = cuda_swiglu_grad,
            [OP_ADD] = cuda_add,
            [OP_CAST] = cuda_cast,
            [OP_CLASS_STATS] = cuda_class_stats,
            [OP_CROSS_ENTROPY] = cuda_cross_entropy,
            [OP_SUMSQ] = cuda_sumsq,
            [OP_CLIP] = cuda_clip,
            [OP_ADAMW] = cuda_adamw,
            [OP_ROUTE] = cuda_route,
            [OP_ROUTE_GRAD] = cuda_route_grad,
            [OP_PERMUTE] = cuda_permute,
            [OP_COMBINE] = cuda_combine,
            [OP_COMBINE_GRAD] = cuda_combine_grad,
            [OP_GROUPED_GEMM] = cuda_grouped_gemm,
            [OP_COUNTS] = cuda_counts,
        },
    .open = set_open,
    .close = set_close,
    .describe = set_describe,
    .elsewhere = set_elsewhere,
    .capture = cuda_input_capture,
    .refill = cuda_input_refill,
    .fill = cuda_state_fill,
    .sums = cuda_state_sums,
    .digest = cuda_state_digest,
};
