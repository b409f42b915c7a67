#include "workloads/kernels/cpu.h"
#include "workloads/kernels/cpu_bf16.h"

/* Kernels whose tensors are of op.dtype: the fp32 one, and cpu_bf16 around it. */
static kernel_run *const fp32[OP_KINDS] = {
    [OP_EMBED] = cpu_embed,
    [OP_EMBED_GRAD] = cpu_embed_grad,
    [OP_NORM] = cpu_norm,
    [OP_NORM_GRAD] = cpu_norm_grad,
    [OP_GEMM] = cpu_gemm,
    [OP_BIAS_GRAD] = cpu_bias_grad,
    [OP_ROTARY] = cpu_rotary,
    [OP_ATTENTION] = cpu_attention,
    [OP_ATTENTION_GRAD] = cpu_attention_grad,
    [OP_ATTENTION_BLOCK] = cpu_attention_block,
    [OP_ATTENTION_BLOCK_GRAD] = cpu_attention_block_grad,
    [OP_ATTENTION_MERGE] = cpu_attention_merge,
    [OP_GELU] = cpu_gelu,
    [OP_GELU_GRAD] = cpu_gelu_grad,
    [OP_SWIGLU] = cpu_swiglu,
    [OP_SWIGLU_GRAD] = cpu_swiglu_grad,
    [OP_ADD] = cpu_add,
    [OP_CLASS_STATS] = cpu_class_stats,
    [OP_CROSS_ENTROPY] = cpu_cross_entropy,
    [OP_SUMSQ] = cpu_sumsq,
    [OP_ADAMW] = cpu_adamw,
    [OP_PERMUTE] = cpu_permute,
    [OP_COMBINE] = cpu_combine,
    [OP_COMBINE_GRAD] = cpu_combine_grad,
    [OP_GROUPED_GEMM] = cpu_grouped_gemm,
};

static void typed(const struct op *op, struct kernel_context *context, void *native)
{
    bool narrow = op->dtype == DTYPE_BF16 ||
                  (op->kind == OP_ADAMW && op->shape.optimizer.gradient == DTYPE_BF16);
    if (narrow)
        cpu_bf16(op, context, native, fp32[op->kind]);
    else
        fp32[op->kind](op, context, native);
}

const struct kernel_set kernels_cpu = {
    .name = "cpu",
    .run =
        {
            [OP_INPUT] = cpu_input,
            [OP_ZERO] = cpu_zero,
            [OP_EMBED] = typed,
            [OP_EMBED_GRAD] = typed,
            [OP_NORM] = typed,
            [OP_NORM_GRAD] = typed,
            [OP_GEMM] = typed,
            [OP_BIAS_GRAD] = typed,
            [OP_ROTARY] = typed,
            [OP_ATTENTION] = typed,
            [OP_ATTENTION_GRAD] = typed,
            [OP_GELU] = typed,
            [OP_GELU_GRAD] = typed,
            [OP_SWIGLU] = typed,
            [OP_SWIGLU_GRAD] = typed,
            [OP_ADD] = typed,
            [OP_CAST] = cpu_cast,
            [OP_CLASS_STATS] = typed,
            [OP_CROSS_ENTROPY] = typed,
            [OP_SUMSQ] = typed,
            [OP_CLIP] = cpu_clip,
            [OP_ADAMW] = typed,
            [OP_ATTENTION_BLOCK] = typed,
            [OP_MOVE] = cpu_move,
            [OP_ATTENTION_BLOCK_GRAD] = typed,
            [OP_ATTENTION_MERGE] = typed,
            [OP_ROUTE] = cpu_route,
            [OP_ROUTE_GRAD] = cpu_route_grad,
            [OP_PERMUTE] = typed,
            [OP_COMBINE] = typed,
            [OP_COMBINE_GRAD] = typed,
            [OP_GROUPED_GEMM] = typed,
            [OP_COUNTS] = cpu_counts,
        },
    .open = cpu_open,
    .close = cpu_close,
};
