/*
 * cpu: the kernels of the "cpu" set by name; kernels_cpu is made of them and nobody else calls them.
 *
 * All run on the calling thread. Products go to CBLAS, which may use more threads of its own
 * (kernels_blas_threads); everything else is plain loops over contiguous floats that a compiler can
 * vectorise without relaxed floating-point rules, so a build gives the same bits every time.
 */
#ifndef WORKLOADS_KERNELS_CPU_H
#define WORKLOADS_KERNELS_CPU_H

#include "workloads/kernels/kernels.h"

kernel_run cpu_input, cpu_zero, cpu_embed, cpu_embed_grad, cpu_norm, cpu_norm_grad, cpu_gemm,
    cpu_bias_grad, cpu_rotary, cpu_attention, cpu_attention_grad, cpu_gelu, cpu_gelu_grad,
    cpu_swiglu, cpu_swiglu_grad, cpu_add, cpu_cast, cpu_class_stats, cpu_cross_entropy, cpu_sumsq,
    cpu_clip, cpu_adamw, cpu_attention_block, cpu_attention_block_grad, cpu_attention_merge,
    cpu_move, cpu_route, cpu_route_grad, cpu_permute, cpu_combine, cpu_combine_grad,
    cpu_grouped_gemm, cpu_counts;

#endif
