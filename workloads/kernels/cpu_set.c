#include "workloads/kernels/cpu.h"

const struct kernel_set kernels_cpu = {
    .name = "cpu",
    .run =
        {
            [OP_INPUT] = cpu_input,
            [OP_ZERO] = cpu_zero,
            [OP_EMBED] = cpu_embed,
            [OP_EMBED_GRAD] = cpu_embed_grad,
            [OP_NORM] = cpu_norm,
            [OP_NORM_GRAD] = cpu_norm_grad,
            [OP_GEMM] = cpu_gemm,
            [OP_BIAS_GRAD] = cpu_bias_grad,
            [OP_ATTENTION] = cpu_attention,
            [OP_ATTENTION_GRAD] = cpu_attention_grad,
            [OP_GELU] = cpu_gelu,
            [OP_GELU_GRAD] = cpu_gelu_grad,
            [OP_ADD] = cpu_add,
            [OP_CROSS_ENTROPY] = cpu_cross_entropy,
            [OP_SUMSQ] = cpu_sumsq,
            [OP_CLIP] = cpu_clip,
            [OP_ADAMW] = cpu_adamw,
        },
};
