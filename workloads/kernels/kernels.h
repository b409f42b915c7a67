/*
 * kernels: the computing ops of a plan, one function per kind, one table per device.
 *
 * A kernel reads its op and finds memory through the context: base[t.buffer] + t.offset. It counts
 * the work it really does where it does it (the third count of the fixed-work proof): model FLOPs
 * from the arguments it hands to the library, tokens where it embeds them. Kernels allocate nothing
 * and keep no state but what open() made; a kernel that cannot go on calls die(). A run on a device
 * of its own only launches: `native` is its stream.
 */
#ifndef WORKLOADS_KERNELS_H
#define WORKLOADS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/device.h"
#include "workloads/input.h"
#include "workloads/plan.h"

struct kernel_work {
    double model_flops; /* of the unpadded model; attention counts its causal half */
    double gemm_flops;  /* executed by OP_GEMM, padding included */
    int64_t tokens;     /* rows embedded */
};

struct kernel_context {
    unsigned char *base[PLAN_BUFFERS]; /* device memory of each arena */
    const struct input *input;
    int64_t first_sample; /* global index of the first sample of this step's batch */
    double *log;          /* [log_rows][SCALARS], written by OP_CLIP; NULL: no log */
    int64_t log_rows;
    int64_t log_next; /* next row, modulo log_rows */
    struct kernel_work work;
    bool tf32;          /* fp32 matrix products may round their inputs to tf32 */
    bool deterministic; /* same bits every time, whatever it costs */
    void *state;        /* of the set, from open() to close() */
};

typedef void kernel_run(const struct op *op, struct kernel_context *context, void *native);

struct kernel_set {
    const char *name;          /* of the device it serves */
    kernel_run *run[OP_KINDS]; /* NULL for OP_COLLECTIVE, and for what this set cannot do */
    /*
     * Before the first step and outside every fence: libraries, workspaces, chosen algorithms, so
     * that run() neither allocates nor waits. The plan is sealed, the arenas lie at context->base.
     * Fails with FAIL_ABSENT or FAIL_USAGE by name when the plan has an op, dtype or shape that this
     * set cannot do. NULL: nothing to prepare. close() is safe after a failed open.
     */
    int (*open)(struct kernel_context *context, const struct plan *plan, struct device *device);
    void (*close)(struct kernel_context *context);
    /* What was chosen (attention kernel, GEMM library, ...), one line for the record. NULL: "". */
    void (*describe)(const struct kernel_context *context, char *text, size_t size);
};

extern const struct kernel_set kernels_cpu;

/* The set for a device by name; FAIL_ABSENT when it was not built. */
int kernels_find(const char *device, const struct kernel_set **out);

/* Bytes of workspace that OP_ATTENTION (t3) and OP_ATTENTION_GRAD (t5) need on any of the sets. */
int64_t kernels_attention_workspace(const struct shape_attention *shape);

/* What BLAS this is: "OpenBLAS 0.3.21 ..." or "unknown CBLAS" (static text); and its thread count,
 * set by the driver: without effect on a BLAS that has no call for it. */
const char *kernels_blas_version(void);
void kernels_blas_threads(int n);

static inline void *tensor_at(const struct kernel_context *context, struct tensor t)
{
    return t.buffer == BUFFER_NONE ? (void *)0 : context->base[t.buffer] + t.offset;
}

#endif
