#include "workloads/kernels/cuda.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"

/* Which kernels run attention, decided in open(). "fused": those of this project, for all of a plan.
 * "auto": cuDNN where it takes every shape of the plan, else fused; with a search or a fixed order a
 * shape and direction may then be given to a kernel of ours (cuda_cudnn*.c), and the description of
 * the set says which. */

static bool is_attention(const struct op *op)
{
    return op->kind == OP_ATTENTION || op->kind == OP_ATTENTION_GRAD ||
           op->kind == OP_ATTENTION_BLOCK || op->kind == OP_ATTENTION_BLOCK_GRAD;
}

enum { MOST_BLOCKS = 65535, MOST_HEAD = 256 }; /* of a grid in y and z; elements */

static int check_shape(const struct shape_attention *s)
{
    if (s->heads < 1 || s->kv_heads < 1 || s->heads % s->kv_heads != 0)
        return fail(FAIL_USAGE, "attention: %d heads do not share %d key heads evenly", s->heads,
                    s->kv_heads);
    if (s->heads > MOST_BLOCKS || s->batch > MOST_BLOCKS)
        return fail(FAIL_USAGE,
                    "attention: %lld samples of %d heads: fused kernels take up to %d of either: "
                    "choose a smaller micro-batch",
                    (long long)s->batch, s->heads, MOST_BLOCKS);
    return 0;
}

/* Heads of 64 and 128 in bf16, at whole 16 bytes. */
static bool on_tensor_cores(const struct op *op)
{
    int head = op->shape.attention.head;
    for (int i = 0; i < OP_TENSORS; i++)
        if (op->t[i].offset % 16 != 0)
            return false;
    return op->dtype == DTYPE_BF16 && (head == 64 || head == 128);
}

bool cuda_wgmma_runs(const struct op *op)
{
    const struct shape_attention *s = &op->shape.attention;
    return on_tensor_cores(op) && s->heads <= MOST_BLOCKS && s->batch <= MOST_BLOCKS &&
           cuda_wgmma_allow(op);
}

const struct cuda_fused *cuda_fused(const struct op *op, const struct cuda_state *state)
{
    static const struct cuda_fused plain = {"plain", cuda_plain_most_shared, cuda_plain_allow,
                                            cuda_plain_forward, cuda_plain_backward};
    static const struct cuda_fused mma = {"mma", cuda_mma_most_shared, cuda_mma_allow,
                                          cuda_mma_forward, cuda_mma_backward};
    static const struct cuda_fused wgmma = {"wgmma", cuda_wgmma_most_shared, cuda_wgmma_allow,
                                            cuda_wgmma_forward, cuda_wgmma_backward};
    return !on_tensor_cores(op) ? &plain : state->wgmma ? &wgmma : &mma;
}

static int prepare_fused(const struct op *op, const struct cuda_state *state)
{
    const struct cuda_fused *fused = cuda_fused(op, state);
    int head = op->shape.attention.head;
    if (head < 1 || head > MOST_HEAD)
        return fail(FAIL_USAGE,
                    "attention: heads of %d elements: this device takes heads of up to %d", head,
                    MOST_HEAD);
    int shared = fused->most_shared(head);
    if (shared > state->shared_bytes)
        return fail(
            FAIL_USAGE,
            "attention: heads of %d elements need %d bytes of shared memory and this device "
            "has %lld: choose smaller heads",
            head, shared, (long long)state->shared_bytes);
    if (!fused->allow(op))
        return fail(FAIL_CUDA, "attention: the device refuses %d bytes of shared memory", shared);
    return 0;
}

/* One kind for all that tensor cores take. */
static int check_fused(struct cuda_state *state)
{
    int rc = 0;
    state->wgmma = true;
    for (int i = 0; i < state->plan->n_ops; i++) {
        const struct op *op = &state->plan->ops[i];
        if (!is_attention(op))
            continue;
        TRY(check_shape(&op->shape.attention));
        state->wgmma = state->wgmma && (!on_tensor_cores(op) || cuda_wgmma_runs(op));
    }
    for (int i = 0; i < state->plan->n_ops; i++)
        if (is_attention(&state->plan->ops[i]))
            TRY(prepare_fused(&state->plan->ops[i], state));
out:
    return rc;
}

static const struct op *first_attention(const struct plan *plan)
{
    for (int i = 0; i < plan->n_ops; i++)
        if (is_attention(&plan->ops[i]))
            return &plan->ops[i];
    return NULL;
}

int cuda_attention_open(struct kernel_context *context)
{
    struct cuda_state *state = cuda_state(context);
    bool usable = false;
    char why[256] = "";
    int rc = 0;
    if (first_attention(state->plan) == NULL)
        return 0;
    state->in_order = context->deterministic;
    if (context->attention != ATTENTION_FUSED)
        TRY(cuda_cudnn_open(context, &usable, why, sizeof why));
    if (usable)
        return 0;
    cuda_cudnn_close(state);
    snprintf(state->attention_why, sizeof state->attention_why, "%.159s", why);
    if (context->attention == ATTENTION_CUDNN)
        return fail(FAIL_USAGE,
                    "attention: cuDNN does not take this plan (%s): choose auto or fused", why);
    TRY(check_fused(state));
out:
    return rc;
}

void cuda_attention_describe(const struct cuda_state *state, char *text, size_t size)
{
    const struct op *op = first_attention(state->plan);
    text[0] = '\0';
    if (op == NULL)
        return;
    if (state->cudnn)
        cuda_cudnn_describe(state, text, size);
    else
        snprintf(text, size, "attention fused, %s%s%s%s%s", cuda_fused(op, state)->name,
                 state->in_order ? ", fixed order" : "", state->attention_why[0] ? " (cuDNN: " : "",
                 state->attention_why, state->attention_why[0] ? ")" : "");
}

int64_t cuda_attention_scratch(const struct op *op, const struct cuda_state *state)
{
    (void)op;
    return state->cudnn ? cuda_cudnn_scratch(state) : 0;
}

/* delta of every query; lse beside it where wgmma runs. */
int64_t cuda_attention_grad_scratch(const struct op *op, const struct cuda_state *state)
{
    const struct shape_attention *s = &op->shape.attention;
    int64_t queries = s->q_rows > 0 ? s->q_rows : s->sequence;
    return state->cudnn ? cuda_cudnn_scratch(state)
           : on_tensor_cores(op) && state->wgmma
               ? cuda_wgmma_scratch(s)
               : s->batch * s->heads * queries * (int64_t)sizeof(float);
}

static double pair_flops(const struct op *op)
{
    const struct shape_attention *s = &op->shape.attention;
    return 2.0 * (double)s->batch * (double)s->sequence * (double)s->sequence * s->heads * s->head;
}

static void forward(const struct op *op, struct kernel_context *context, void *native)
{
    if (cuda_state(context)->cudnn)
        cuda_cudnn_run(op, context, native);
    else
        cuda_fused(op, cuda_state(context))->forward(op, context, native);
}

static void backward(const struct op *op, struct kernel_context *context, void *native)
{
    if (cuda_state(context)->cudnn)
        cuda_cudnn_run(op, context, native);
    else
        cuda_fused(op, cuda_state(context))->backward(op, context, native);
}

void cuda_attention(const struct op *op, struct kernel_context *context, void *native)
{
    forward(op, context, native);
    kernel_flops(context, op, pair_flops(op));
}

void cuda_attention_grad(const struct op *op, struct kernel_context *context, void *native)
{
    backward(op, context, native);
    kernel_flops(context, op, 2 * pair_flops(op));
}

static double block_flops(const struct op *op)
{
    const struct shape_attention *s = &op->shape.attention;
    return 2.0 * plan_block_pairs(s) * s->heads * s->head;
}

void cuda_attention_block(const struct op *op, struct kernel_context *context, void *native)
{
    forward(op, context, native);
    kernel_flops(context, op, 2 * block_flops(op));
}

void cuda_attention_block_grad(const struct op *op, struct kernel_context *context, void *native)
{
    backward(op, context, native);
    kernel_flops(context, op, 4 * block_flops(op));
}
