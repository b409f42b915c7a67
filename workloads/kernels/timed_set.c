/*
 * The kernels of the "timed" device: each says how long cost.h has it take, and computes nothing.
 *
 * They still count the work that they stand for, and keep the scalars that are counted and not
 * computed: tokens, valid tokens, steps. What would be a result is NaN, so that nobody takes it for
 * one.
 */
#include <math.h>
#include <string.h>

#include "base/device_timed.h"
#include "base/err.h"
#include "workloads/cost.h"
#include "workloads/input_rows.h"
#include "workloads/kernels/kernels.h"

struct timed_state {
    const struct op *ops;
    int64_t *ns; /* [n_ops] */
    void *room;  /* of input_rows */
};

static int timed_open(struct kernel_context *context, const struct plan *plan,
                      struct device *device)
{
    struct cost cost = {.topology = context->topology,
                        .ranks_per_node = plan->layout.ranks_per_node,
                        .tf32 = plan->tf32};
    struct timed_state *state;
    int rc = 0;

    if (device->type != &device_timed || context->topology == NULL)
        BUG("timed kernels on device %s", device->type->name);
    TRY(cost_check(&cost, plan));
    state = must_alloc(1, sizeof *state);
    state->ops = plan->ops;
    state->ns = must_alloc((size_t)plan->n_ops + 1, sizeof *state->ns);
    for (int i = 0; i < plan->n_ops; i++)
        if (plan->ops[i].kind != OP_COLLECTIVE)
            state->ns[i] = llround(1e9 * cost_op_s(&cost, &plan->ops[i]));
    state->room = must_alloc(1, (size_t)input_rows_most_room(plan) + 1);
    context->state = state;
out:
    return rc;
}

static void timed_close(struct kernel_context *context)
{
    struct timed_state *state = context->state;

    if (state == NULL)
        return;
    free(state->ns);
    free(state->room);
    free(state);
    context->state = NULL;
}

static void timed_describe(const struct kernel_context *context, char *text, size_t size)
{
    snprintf(text, size, "cost model of %s; nothing is computed",
             context->topology != NULL ? context->topology->name : "?");
}

static void take_time(const struct op *op, const struct kernel_context *context, void *native)
{
    const struct timed_state *state = context->state;

    device_timed_busy(native, state->ns[op - state->ops]);
}

static void timed_any(const struct op *op, struct kernel_context *context, void *native)
{
    take_time(op, context, native);
}

/* Batches are real, made by the host while the stream is busy: loaders can be tried, and valid tokens
 * counted. */
static void timed_input(const struct op *op, struct kernel_context *context, void *native)
{
    const struct timed_state *state = context->state;

    take_time(op, context, native);
    input_rows(op, context, state->room, tensor_at(context, op->t[0]), tensor_at(context, op->t[1]),
               tensor_at(context, op->t[2]));
}

/* The sums of a step do start at zero: they are counted. */
static void timed_zero(const struct op *op, struct kernel_context *context, void *native)
{
    take_time(op, context, native);
    if (op->t[0].buffer == BUFFER_SCALAR)
        memset(tensor_at(context, op->t[0]), 0, (size_t)op->shape.vector.n * sizeof(float));
}

static void timed_embed(const struct op *op, struct kernel_context *context, void *native)
{
    take_time(op, context, native);
    if (op->shape.rows.first_column == 0)
        context->work.tokens += op->shape.rows.rows;
}

static double least(int64_t a, int64_t b)
{
    return (double)(a < b ? a : b);
}

static void timed_gemm(const struct op *op, struct kernel_context *context, void *native)
{
    const struct shape_gemm *g = &op->shape.gemm;

    take_time(op, context, native);
    context->work.gemm_flops += 2.0 * (double)g->m * (double)g->n * (double)g->k;
    kernel_flops(context, op,
                 2.0 * least(g->m_valid, g->m) * least(g->n_valid, g->n) * least(g->k_valid, g->k));
}

static void timed_grouped(const struct op *op, struct kernel_context *context, void *native)
{
    const struct shape_grouped *g = &op->shape.grouped;

    take_time(op, context, native);
    context->work.gemm_flops += 2.0 * (double)grouped_now(g) * (double)g->n * (double)g->k;
    kernel_flops(context, op, 2.0 * (double)g->rows_valid * (double)g->n * (double)g->k);
}

/* Nothing was counted: what the plan says stays. */
static void timed_counts(const struct op *op, struct kernel_context *context, void *native)
{
    take_time(op, context, native);
    context->counts++;
}

/* Scores and values forward; their two gradients each backward. */
static void timed_attention(const struct op *op, struct kernel_context *context, void *native)
{
    const struct shape_attention *a = &op->shape.attention;
    double row = 2.0 * (double)a->sequence * (double)a->head; /* a product of one row, whole */
    double rows = (double)a->batch * (double)a->heads * (double)a->sequence;

    take_time(op, context, native);
    kernel_flops(context, op, rows * row / 2 * (op->kind == OP_ATTENTION ? 2 : 4));
}

static void timed_attention_block(const struct op *op, struct kernel_context *context, void *native)
{
    const struct shape_attention *a = &op->shape.attention;
    double product = 2.0 * plan_block_pairs(a) * (double)a->heads * (double)a->head;

    take_time(op, context, native);
    kernel_flops(context, op, product * (op->kind == OP_ATTENTION_BLOCK ? 2 : 4));
}

static void timed_cross_entropy(const struct op *op, struct kernel_context *context, void *native)
{
    const uint8_t *mask = tensor_at(context, op->t[2]);
    double *scalars = tensor_at(context, op->t[3]);
    int64_t valid = 0;

    take_time(op, context, native);
    if (op->shape.rows.first_column != 0)
        return;
    for (int64_t r = 0; r < op->shape.rows.rows; r++)
        valid += mask[r] != 0;
    scalars[SCALAR_LOSS_SUM] = NAN;
    scalars[SCALAR_VALID] += (double)valid;
    scalars[SCALAR_TOKENS] += (double)op->shape.rows.rows;
}

static void timed_clip(const struct op *op, struct kernel_context *context, void *native)
{
    double *scalars = tensor_at(context, op->t[0]);

    take_time(op, context, native);
    scalars[SCALAR_STEP] += 1;
    scalars[SCALAR_NORM] = scalars[SCALAR_SCALE] = scalars[SCALAR_LR] = NAN;
    if (context->log != NULL) {
        memcpy(context->log + context->log_next % context->log_rows * SCALARS, scalars,
               SCALARS * sizeof *scalars);
        context->log_next++;
    }
}

const struct kernel_set kernels_timed = {
    .name = "timed",
    .no_numerics = true,
    .run =
        {
            [OP_INPUT] = timed_input,
            [OP_ZERO] = timed_zero,
            [OP_EMBED] = timed_embed,
            [OP_EMBED_GRAD] = timed_any,
            [OP_NORM] = timed_any,
            [OP_NORM_GRAD] = timed_any,
            [OP_GEMM] = timed_gemm,
            [OP_BIAS_GRAD] = timed_any,
            [OP_ROTARY] = timed_any,
            [OP_ATTENTION] = timed_attention,
            [OP_ATTENTION_GRAD] = timed_attention,
            [OP_ATTENTION_BLOCK] = timed_attention_block,
            [OP_ATTENTION_BLOCK_GRAD] = timed_attention_block,
            [OP_ATTENTION_MERGE] = timed_any,
            [OP_MOVE] = timed_any,
            [OP_GELU] = timed_any,
            [OP_GELU_GRAD] = timed_any,
            [OP_SWIGLU] = timed_any,
            [OP_SWIGLU_GRAD] = timed_any,
            [OP_ADD] = timed_any,
            [OP_CAST] = timed_any,
            [OP_CLASS_STATS] = timed_any,
            [OP_CROSS_ENTROPY] = timed_cross_entropy,
            [OP_SUMSQ] = timed_any,
            [OP_CLIP] = timed_clip,
            [OP_ADAMW] = timed_any,
            [OP_ROUTE] = timed_any,
            [OP_ROUTE_GRAD] = timed_any,
            [OP_PERMUTE] = timed_any,
            [OP_COMBINE] = timed_any,
            [OP_COMBINE_GRAD] = timed_any,
            [OP_GROUPED_GEMM] = timed_grouped,
            [OP_COUNTS] = timed_counts,
        },
    .open = timed_open,
    .close = timed_close,
    .describe = timed_describe,
};
