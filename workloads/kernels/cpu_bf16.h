/*
 * cpu_bf16: bf16 on the CPU, slow and right, so that a plan in bf16 can be checked without a GPU.
 *
 * The fp32 kernel runs on fp32 copies of the op's bf16 tensors and what it wrote is rounded once:
 * arithmetic in fp32, storage in bf16, as everywhere. The copies live in memory that cpu_open takes
 * for the largest op of the plan.
 */
#ifndef WORKLOADS_KERNELS_CPU_BF16_H
#define WORKLOADS_KERNELS_CPU_BF16_H

#include "workloads/kernels/kernels.h"

int cpu_open(struct kernel_context *context, const struct plan *plan, struct device *device);
void cpu_close(struct kernel_context *context);

/* What input_rows works in; NULL where it takes none, or kernels were not opened. */
void *cpu_room(const struct kernel_context *context);

/* Run the fp32 kernel `run` on an op that touches bf16 tensors. */
void cpu_bf16(const struct op *op, struct kernel_context *context, void *native, kernel_run *run);

#endif
