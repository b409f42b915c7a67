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
    double model_flops;    /* of the unpadded model; attention counts its causal half */
    double hardware_flops; /* the same and what is recomputed (op.again) */
    double gemm_flops;     /* executed by OP_GEMM, padding included */
    int64_t tokens;        /* rows embedded; by the rank that holds the first row of wte alone */
};

/* Who computes attention on "cuda": cuDNN where it takes the shapes, or kernels of this project. */
enum attention_choice { ATTENTION_AUTO, ATTENTION_CUDNN, ATTENTION_FUSED };

struct topology;

/*
 * How ranks that open the same set hand each other what they measured: `all` becomes what all of
 * them gave, in the order of ranks, owned by the caller. Collective, and so is agree(): 0 when it was
 * called with 0 everywhere, else the failure of the first rank that had one, on all of them. It goes
 * before a gather where something could have failed on one rank alone, lest the others wait for it.
 */
struct kernel_share {
    void *arg;
    int rank;
    int (*gather)(void *arg, const void *mine, size_t bytes, void **all, size_t *all_bytes);
    int (*agree)(void *arg, int rc);
};

/*
 * Learned routing as another run chose it, for a reference that is compared with that run. A token whose
 * own choice differs takes the told experts where they are as good but for rounding: none that is left out
 * has a logit above one that is taken by more than `within` times the root of the mean square of all
 * logits of the op. By kernels_cpu alone.
 */
struct kernel_told {
    const int32_t *experts; /* [layers][tokens][top_k], index in the global batch; -1: unknown */
    int64_t tokens;
    double within;
    int64_t followed, refused; /* tokens, each layer for itself: took what was told; did not */
};

struct kernel_context {
    unsigned char *base[PLAN_BUFFERS]; /* device memory of each arena */
    const struct input *input;
    int64_t first_sample; /* global index of the first sample of this step's batch */
    double *log; /* [log_rows][SCALARS] in the device's memory, written by OP_CLIP; NULL: no log */
    int64_t log_rows;
    int64_t log_next; /* next row, modulo log_rows */
    struct kernel_work work;
    bool tf32; /* fp32 matrix products may round their inputs to tf32 */
    enum attention_choice attention;
    bool deterministic; /* same bits every time, whatever it costs */
    bool search;        /* open() measures which algorithms and epilogues products take, and which
                    plans attention takes; not when deterministic */
    int margin; /* multiprocessors that products leave to calls that may run beside them (beside.h) */
    bool alone;    /* each op does all that is its own, whatever stands beside it in the plan */
    bool fuse_all; /* with search: epilogues wherever there is one, whatever they cost (tests) */
    const struct kernel_share *share; /* NULL: this rank is alone. Borrowed, read by open() */
    bool keep_counts;  /* OP_COUNTS waits and leaves its tables: those of the last full step */
    int64_t counts;    /* times that OP_COUNTS had the host wait, since open */
    int64_t waited_ns; /* of the host, in all of them: no time of its own */
    /* Asked again and again while a kernel has the host wait for the device: ends the job when what
     * the device waits for cannot come. NULL: nobody knows. */
    void (*alive)(void *arg);
    void *alive_arg;
    int captured; /* 0: ops run; else 1 + which of the graphs of capture() they become a part of */
    struct kernel_told *told;        /* NULL: every token chooses by itself. Borrowed */
    const struct topology *topology; /* whose time the timed set keeps; else NULL. Borrowed */
    void *state;                     /* of the set, from open() to close() */
};

typedef void kernel_run(const struct op *op, struct kernel_context *context, void *native);

struct kernel_set {
    const char *name;          /* of the device it serves */
    bool no_numerics;          /* nothing is computed: results mean nothing, work and time do */
    kernel_run *run[OP_KINDS]; /* NULL for OP_COLLECTIVE, and for what this set cannot do */
    /*
     * Before the first step and outside every fence: libraries, workspaces, chosen algorithms, so
     * that run() neither allocates nor waits. The plan is sealed, the arenas lie at context->base.
     * Fails with FAIL_ABSENT or FAIL_USAGE by name when the plan has an op, dtype or shape that this
     * set cannot do. NULL: nothing to prepare. close() is safe after a failed open.
     */
    int (*open)(struct kernel_context *context, const struct plan *plan, struct device *device);
    void (*close)(struct kernel_context *context);
    /*
     * Steps as graphs (device.capture_begin). capture(): room for n_graphs of them, outside every
     * fence; then runs with context->captured > 0 may be captured, and do nothing of the host's part.
     * refill() does that, before each launch of graph `graph`: batches from context->first_sample on.
     * FAIL_USAGE where ops of the plan cannot be captured. NULL: none can.
     */
    int (*capture)(struct kernel_context *context, int n_graphs);
    void (*refill)(struct kernel_context *context, int graph);
    /* What was chosen (attention kernel, GEMM library, ...), one line for the record. NULL: "". */
    void (*describe)(const struct kernel_context *context, char *text, size_t size);
    /* Bytes of cost_work(op) that the op's own run leaves to another op: a partner that its product
     * does, zeros that a product writes over. NULL: none. */
    double (*elsewhere)(const struct kernel_context *context, const struct op *op);
    /*
     * The training state where it lies, outside every fence; NULL, all three: the host does it, and
     * what lies elsewhere travels. fill: out[i] = sigma * rng_normal(key, first + i), or 1 when sigma
     * < 0. sums, of x[n]: squares, and products with rng_sign(key, i), in fp64 and in an order that
     * n alone decides; waits. digest: of words of 4 bytes and their places; waits.
     */
    void (*fill)(float *out, int64_t n, uint64_t key, uint64_t first, float sigma, void *native);
    void (*sums)(const float *x, int64_t n, uint64_t key, double sums[2], void *native);
    uint64_t (*digest)(const void *x, int64_t bytes, void *native);
};

extern const struct kernel_set kernels_cpu, kernels_cuda; /* the latter where CUDA was built in */
extern const struct kernel_set kernels_timed;

/* The set for a device by name; FAIL_ABSENT when it was not built. */
int kernels_find(const char *device, const struct kernel_set **out);

/* Bytes of workspace that OP_ATTENTION (t3) and OP_ATTENTION_GRAD (t5) need on any of the sets. */
int64_t kernels_attention_workspace(const struct shape_attention *shape);

/* The version of cuDNN that is loaded, as "9.14.0", or "none" in a build without it; static text. */
const char *kernels_cudnn_version(void);

/* What BLAS this is: "OpenBLAS 0.3.21 ..." or "unknown CBLAS" (static text); and its thread count,
 * set by the driver: without effect on a BLAS that has no call for it. */
const char *kernels_blas_version(void);
void kernels_blas_threads(int n);

/* Model FLOPs of an op, counted where they are executed. */
static inline void kernel_flops(struct kernel_context *context, const struct op *op, double flops)
{
    context->work.hardware_flops += flops;
    context->work.model_flops += op->again ? 0 : flops;
}

static inline void *tensor_at(const struct kernel_context *context, struct tensor t)
{
    return t.buffer == BUFFER_NONE ? (void *)0 : context->base[t.buffer] + t.offset;
}

#endif
