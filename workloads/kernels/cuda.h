/*
 * cuda: the kernels of the "cuda" set by name, and what open() makes for them.
 *
 * Read by C and by CUDA C++. The .c files speak with libraries (cuBLASLt, cuDNN, the runtime); the
 * .cu files hold kernels. Every run() only launches: it allocates nothing, waits for nothing, and
 * checks that the launch was taken.
 *
 * Scratch is one piece of device memory, as large as the neediest op of the plan wants. All ops but
 * OP_INPUT share the compute stream, so whoever runs has it all; nothing in it outlives an op.
 * Elements are fp32 or bf16 (op.dtype), arithmetic is fp32, and sums have a fixed order: same bits
 * every time. Accesses are 16 bytes wide where the addresses allow and one element wide elsewhere.
 */
#ifndef WORKLOADS_KERNELS_CUDA_H
#define WORKLOADS_KERNELS_CUDA_H

#ifdef __cplusplus
extern "C" {
#endif

#include "workloads/fuse.h"
#include "workloads/kernels/kernels.h"
#include "workloads/overwrite.h"

struct cuda_zeroings; /* cuda_zero.c: runs of accumulators that are zeroed */
struct cuda_updates;  /* cuda_updates.c: updates that share a launch */
struct cuda_gemms;    /* cuda_gemm.c: descriptors and chosen algorithms */
struct cuda_grouped;  /* cuda_grouped.c: the same for blocks of rows */
struct cuda_ring;     /* cuda_input.c: pinned staging */
struct cuda_rotary;   /* cuda_rotary.cu: tables of cosines and sines */
struct cuda_cudnn;    /* cuda_cudnn.c: execution plans */

struct cuda_state {
    const struct plan *plan;
    struct device *device;
    int multiprocessors;
    int64_t shared_bytes; /* most dynamic shared memory of a block */
    unsigned char *scratch;
    int64_t scratch_bytes;
    struct fusion fusion; /* pairs of the plan: none without a search */
    struct overwrite overwrite;
    struct cuda_zeroings *zeroings;
    struct cuda_updates *updates;
    struct cuda_gemms *gemms;
    struct cuda_grouped *grouped;
    struct cuda_ring *ring;
    struct cuda_rotary *rotary;
    struct cuda_cudnn *cudnn;
    bool wgmma;              /* what fused kernels there are of tensor cores are these */
    bool in_order;           /* attention's sums: asked for, and so wherever it runs */
    char attention_why[160]; /* why cuDNN does not run it, where it was asked */
    int32_t *counts;         /* cuda_counts.c: page-locked; NULL: no routing is dropless */
};

static inline struct cuda_state *cuda_state(const struct kernel_context *context)
{
    return (struct cuda_state *)context->state;
}

/* ---- ops ---- */

kernel_run cuda_input, cuda_zero, cuda_embed, cuda_embed_grad, cuda_norm, cuda_norm_grad, cuda_gemm,
    cuda_bias_grad, cuda_rotary, cuda_attention, cuda_attention_grad, cuda_gelu, cuda_gelu_grad,
    cuda_swiglu, cuda_swiglu_grad, cuda_add, cuda_cast, cuda_class_stats, cuda_cross_entropy,
    cuda_sumsq, cuda_clip, cuda_adamw, cuda_attention_block, cuda_attention_block_grad,
    cuda_attention_merge, cuda_move;

kernel_run cuda_route, cuda_route_grad, cuda_permute, cuda_combine, cuda_combine_grad,
    cuda_grouped_gemm, cuda_counts;

/* Bytes of scratch that an op needs. */
typedef int64_t cuda_scratch(const struct op *op, const struct cuda_state *state);
cuda_scratch cuda_embed_grad_scratch, cuda_norm_grad_scratch, cuda_gemm_scratch,
    cuda_bias_grad_scratch, cuda_attention_scratch, cuda_attention_grad_scratch,
    cuda_cross_entropy_scratch, cuda_sumsq_scratch;

cuda_scratch cuda_route_scratch, cuda_grouped_scratch;

/* ---- what open() makes ---- */

/* After cuda_gemm_open. */
int cuda_grouped_open(struct kernel_context *context);
void cuda_grouped_close(struct cuda_state *state);

int cuda_counts_open(struct kernel_context *context);
void cuda_counts_close(struct cuda_state *state);

/* Each fails with FAIL_USAGE or FAIL_CUDA in a sentence; each close is safe on what was not
 * opened. */
int cuda_gemm_open(struct kernel_context *context);
void cuda_gemm_close(struct cuda_state *state);
void cuda_gemm_describe(const struct cuda_state *state, char *text, size_t size);

/* With context->search, after scratch is taken: which algorithm each product takes and whether it
 * does its partner (fuse.h), by measurement; the same on all ranks that share. A line for each, each
 * after a newline. */
int cuda_gemm_search(struct kernel_context *context);
void cuda_gemm_describe_choices(const struct cuda_state *state, char *text, size_t size);

/* Collective over the ranks of `share` (NULL: this one alone): what all of them have, n_all records of
 * `size` bytes in the order of ranks, owned by the caller; of n keys, plain bytes, those that no lower
 * rank has. */
int cuda_share_all(const struct kernel_share *share, const void *mine, size_t size, int n,
                   void **all, int *n_all);
int cuda_share_out(const struct kernel_share *share, const void *keys, size_t key, int n,
                   bool *owns);
/* Collective too: 0 on all of them, or one failure on all, before they meet in the two above. */
int cuda_share_agree(const struct kernel_share *share, int code);

/* Before cuda_gemm_open, which asks the same state->overwrite. */
int cuda_zero_open(struct kernel_context *context);
void cuda_zero_close(struct cuda_state *state);
/* Of a zeroing's bytes: those that a product writes over. */
double cuda_zero_elsewhere(const struct op *op, const struct kernel_context *context);

int cuda_updates_open(struct kernel_context *context);
void cuda_updates_close(struct cuda_state *state);

int cuda_input_open(struct kernel_context *context);
void cuda_input_close(struct cuda_state *state);

/* kernel_set.capture and refill. */
int cuda_input_capture(struct kernel_context *context, int n_graphs);
void cuda_input_refill(struct kernel_context *context, int graph);

/* Waits of the host because the ring of staging buffers had wrapped around before its copies were
 * done. */
int64_t cuda_input_waits(const struct cuda_state *state);

int cuda_rotary_open(struct kernel_context *context);
void cuda_rotary_close(struct cuda_state *state);

/* Device memory of the set, counted as temporaries; with a copy of host memory in it. */
int cuda_take(struct cuda_state *state, int64_t bytes, void **out);
int cuda_upload(struct cuda_state *state, const void *from, int64_t bytes, void **to);
void cuda_drop(struct cuda_state *state, void *memory, int64_t bytes);

/* cuDNN or the fused kernels, by context->attention; with "auto", a search and cuDNN each shape and
 * direction by what is faster. */
int cuda_attention_open(struct kernel_context *context);
void cuda_attention_describe(const struct cuda_state *state, char *text, size_t size);

/* Execution plans of every attention shape of the plan; without failure *usable says whether cuDNN
 * takes them all, and `why` which it did not take. */
int cuda_cudnn_open(struct kernel_context *context, bool *usable, char *why, size_t size);
void cuda_cudnn_close(struct cuda_state *state);
void cuda_cudnn_describe(const struct cuda_state *state, char *text, size_t size);
int64_t cuda_cudnn_scratch(const struct cuda_state *state);

/* With context->search, before scratch is taken: which plan each attention shape takes, by
 * measurement, the same on all ranks that share; collective over these, whatever attends here. A line
 * for each, each after a newline. */
int cuda_cudnn_search(struct kernel_context *context);
void cuda_cudnn_describe_choices(const struct cuda_state *state, char *text, size_t size);

/* After scratch is taken: what a run passes to cuDNN, for the memory of now. Memory that comes later
 * (context->base) is bound at its first run. */
int cuda_cudnn_bind(struct kernel_context *context);
void cuda_cudnn_run(const struct op *op, struct kernel_context *context, void *native);

/*
 * Fused kernels of this project: scores live in tiles, never as a matrix; backward makes the
 * probabilities again from lse. It takes two passes, one over keys for dk and dv, one over queries
 * for dq, so that no sum depends on the order of blocks. "wgmma": bf16, heads of 64 and 128, on
 * Hopper's tensor cores (compute capability 9.0); "mma": the same on those of other cards from 8.0
 * on; "plain":
 * fp32 products, any dtype, heads up to 256. allow() goes before the first run; false: the device
 * does not give a block the shared memory or, of wgmma, runs no such code.
 */
struct cuda_fused {
    const char *name;
    int (*most_shared)(int head); /* bytes of shared memory that a block needs */
    bool (*allow)(const struct op *op);
    kernel_run *forward, *backward;
};
const struct cuda_fused *cuda_fused(const struct op *op, const struct cuda_state *state);
int cuda_plain_most_shared(int head);
bool cuda_plain_allow(const struct op *op);
bool cuda_plain_allow_forward(const struct op *op);
kernel_run cuda_plain_forward, cuda_plain_backward;
int cuda_mma_most_shared(int head);
bool cuda_mma_allow(const struct op *op);
bool cuda_mma_allow_forward(int head);
kernel_run cuda_mma_forward, cuda_mma_backward;
int cuda_wgmma_most_shared(int head);
int64_t cuda_wgmma_scratch(const struct shape_attention *shape); /* bytes, of a gradient */
bool cuda_wgmma_allow(const struct op *op);
bool cuda_wgmma_runs(const struct op *op); /* of this shape, dtype and alignment, on this device */
int cuda_wgmma_forward_shared(int head);
bool cuda_wgmma_allow_forward(int head);
kernel_run cuda_wgmma_forward, cuda_wgmma_backward;

/* delta f [batch][heads][sequence] = sum(dout out) of every query, into scratch, for backward. */
void cuda_attention_delta(const struct op *op, struct kernel_context *context, void *native);

/* Of OP_GEMM: C = bias or C += bias, before a product that adds to C, where no epilogue does it. */
void cuda_put_bias(const struct op *op, struct kernel_context *context, void *native);

/* One tensor of a launch of AdamW, by the tensors of its op. A block takes a chunk at a time. */
enum { CUDA_UPDATE_CHUNK = 4096 };
struct cuda_update {
    int64_t offset[6]; /* bytes from the starts of t[0] .. t[5]'s buffers */
    int64_t n, first_chunk;
    float weight_decay;
};
void cuda_update_all(const struct op *op, const struct cuda_update *updates, int n, int64_t chunks,
                     struct kernel_context *context, void *native);

/* Zeros in n runs of `base`, a table on the device. */
void cuda_zero_runs(unsigned char *base, const struct overwrite_run *runs, int n, void *native);

/* to[n] += from[n]; n normals, the same ones every time. */
void cuda_add_floats(float *to, const float *from, int64_t n, const struct cuda_state *state,
                     void *native);
void cuda_fill_normals(void *to, enum dtype dtype, int64_t n, void *native);

/* Of OP_ATTENTION_BLOCK_GRAD in bf16: dq [b][q_rows][heads * head], dense, added to that of dqkv. */
void cuda_add_queries(const struct op *op, struct kernel_context *context, const void *dq,
                      void *native);

/* A norm whose width no block holds: FAIL_USAGE. */
int cuda_norm_check(const struct op *op);
int64_t cuda_norm_packs(void); /* accesses of a row that a block holds */

/* ---- the training state, as struct kernel_set says ---- */

void cuda_state_fill(float *out, int64_t n, uint64_t key, uint64_t first, float sigma,
                     void *native);
void cuda_state_sums(const float *x, int64_t n, uint64_t key, double sums[2], void *native);
uint64_t cuda_state_digest(const void *x, int64_t bytes, void *native);

/* ---- waits ---- */

/* Until an event has come, or (NULL) all that a stream has been given: ns that it took. As it waits it
 * asks context->alive, which ends the job when that cannot come; the deadline is the watchdog's. */
int64_t cuda_wait(const struct kernel_context *context, void *stream, void *event,
                  const char *what);

/* ---- errors ---- */

/* die() when the launch of `what` was not taken. */
void cuda_launched(const char *what);

/* die() when a call inside a run failed; `code` is a cudaError_t. */
void cuda_must(int code, const char *what);

#ifdef __cplusplus
}
#endif

#endif
