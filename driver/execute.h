/*
 * execute: runs a plan. The only place where device and communicators meet, and the only clocks.
 *
 * Steps run in blocks: execute_block() runs n steps without looking at anything, then waits for the
 * device once and turns stamps into samples. Inside the block nothing allocates, prints, logs,
 * synchronises with the host or branches on a result; the host gives out ops in plan order.
 *
 * Variants are masks of the same plan: compute-only leaves out the collectives (and the waits for
 * them), comm-only the rest. They run on scratch copies of parameters, gradients, moments and
 * sums: buffers of the last full step, copied before each block outside the fence, so the training
 * state never notices (its checksum is the proof). Where scratch memory is refused, the
 * variants run on the real state and the caller restores it from the generator.
 *
 * Stamps: level 0, two a step; level 1 adds the waits of the compute stream and both ends of each
 * collective; level 2 adds both ends of each compute op.
 */
#ifndef DRIVER_EXECUTE_H
#define DRIVER_EXECUTE_H

#include <stdbool.h>
#include <stdint.h>

#include "analysis/record.h"
#include "base/device.h"
#include "collectives/comm.h"
#include "workloads/input.h"
#include "workloads/kernels/kernels.h"
#include "workloads/plan.h"

/* Faults that tests plant; shown in the study file when used. */
struct execute_fault {
    int64_t delay_ns; /* before the first gradient all-reduce of each step, on the comm stream */
    int drop_op;      /* op that is not launched; -1 */
};

/* Who saves the training state while it trains (driver/checkpoint_save.h). */
struct execute_hook {
    void *arg;
    void (*step)(void *arg, int step);    /* before the first op of a full step of a block */
    void (*update)(void *arg, int piece); /* before the AdamW of a piece in a full step */
};

/* Who wants to know what OP_ROUTE chose (driver/gate_choices.h): called behind each in full steps. */
struct execute_routed {
    void *arg;
    void (*take)(void *arg, const struct op *op);
};

struct execute_graphs; /* driver/execute_graph.h */

/* A call whose parts routing decides (shape_coll.counted), as it was posted: S of this rank, the more of
 * what it sends and receives, and what leaves it. */
struct execute_counted {
    int64_t bytes, wire_bytes;
};

struct execute {
    const struct plan *plan; /* borrowed */
    struct device device;
    const struct kernel_set *kernels;
    struct comm comm[PLAN_CHANNELS];
    int n_comms;
    struct comm *posts; /* [n_comms] comm, or while a step is captured those of the graphs */
    struct execute_graphs *graphs;      /* config.graph, else NULL */
    struct comm_call group[PLAN_GROUP]; /* calls of the post that is being gathered */
    int n_group;
    struct kernel_context context;
    struct kernel_share share; /* of the ranks of the point */
    unsigned char *memory[PLAN_BUFFERS], *scratch[PLAN_BUFFERS];
    int64_t kernel_bytes; /* of DEVICE_TEMPORARIES: what kernels took when they opened */
    double *log;          /* [max_steps][SCALARS], device memory, written by OP_CLIP */
    int max_steps;        /* of one block */
    int threads;          /* of the backend */
    /* of training since the last reset: samples of the study, steps, micro-steps of this rank */
    int64_t consumed, global_steps, micro_steps;
    int64_t aside;         /* samples that compute-only steps took for themselves since open */
    int64_t ops_given_out; /* launches and posts since open, all variants */
    int64_t fence_waits;   /* times the host waited for a stream inside fences, since open */
    int64_t waits_before;  /* device.host_waits when the fence began */
    int *stamp_slot;       /* [n_ops][STAMPS_PER_OP] slot within a step, -1: never made */
    int stamp_slots;       /* of a step */
    int64_t *micro_after;  /* [max_steps] micro_steps after each step of the block */
    int64_t *host_ns;      /* [max_steps] of the host, giving each of them out */
    int64_t waited_before; /* context.waited_ns when the step began */
    struct execute_counted *counted; /* [max_steps][n_ops]; NULL: no call of the plan is counted */
    struct execute_hook hook;        /* may be set and cleared between blocks */
    struct execute_routed routed;    /* as hook */
    int save_stream, save_stamp;     /* config.save_stamps: stream and first stamp of the saver */
    struct execute_fault fault;
};

/* What a study runs on; chosen once by name. */
struct backend {
    const struct device_type *device;
    const struct comm_type *comm;
    const struct kernel_set *kernels;
    const struct topology *topology; /* of --topology; NULL: none */
    enum attention_choice attention;
    bool gemm_search;   /* products take what measures fastest at set-up; not when deterministic */
    int gemm_margin;    /* multiprocessors that products leave to calls beside them */
    bool deterministic; /* kernels give the same bits every time */
    struct comm_setup comm_setup; /* how communicators are made, of every executor */
    int local_rank;
    int threads; /* that a rank may use for the host's own work between fences; 0: one */
};

struct execute_config {
    const struct plan *plan;
    const struct backend *backend;
    const struct input *input;
    const void *parent; /* address of the point's MPI_Comm; NULL when the plan has no collective */
    int max_steps;      /* of one block, lead-in included */
    bool scratch;       /* take memory for scratch copies (refused quietly when there is none) */
    int save_stamps, save_tasks; /* > 0: a stream, stamps and room on its queue for a saver */
    struct execute_fault fault;
    bool graph; /* communicators of their own for steps as graphs, which execute_capture() makes */
    bool alone; /* ops are going to run one by one (kernel_context.alone) */
    bool exportable; /* memory that a communication library may map into other processes */
};

/* Collective over the point: all ranks open, or all fail with what one of them failed with (said by
 * nobody yet). Calls that the communicators cannot make are refused. execute_close is always safe. */
int execute_open(struct execute *execute, const struct execute_config *config);
void execute_close(struct execute *execute);

/* State from the generator: parameters; moments, sums and counters zero; consumed 0. Of kernels
 * without numerics only the counters. */
void execute_reset(struct execute *execute, uint64_t seed);

/* Samples of one block on this rank; rows have no rank, block or step yet. */
struct execute_samples {
    struct step_row *step; /* [n] start, end, stalls, ...; local time */
    int n;
    struct record_point rows; /* stalls, collectives, ops of these steps (step counts from 0) */
};
void execute_samples_release(struct execute_samples *samples);

enum { EXECUTE_KEEP_ALL = -2 };

/*
 * Run n_steps (<= max_steps) of a variant at a stamp level. Full steps consume samples and train.
 * `keep`: the step whose calls (and at level 2 ops) are kept as rows, -1 none, or all. `samples` may be
 * NULL (warm-up).
 */
void execute_block(struct execute *execute, enum variant variant, int level, int n_steps, int keep,
                   struct execute_samples *samples);

/*
 * Steps as graphs (config.graph): capture each step of a block once, at a stamp level, on
 * communicators that nothing else uses; then replay() is execute_block() for full steps, each launched
 * whole. Step number, learning rate, clip factor and log live in device memory; each graph copies its
 * batches from host memory of its own, which is filled before it is launched. Work and traffic
 * count as of any step. Saves (hook) do not reach into graphs.
 *
 * capture() is collective over the point, outside any fence, behind a block of full steps at least:
 * what libraries load at first use is loaded. FAIL_USAGE when the device, kernels or communicators have
 * no graphs, FAIL_CUDA when the capture fails.
 */
int execute_capture(struct execute *execute, int level);
void execute_replay(struct execute *execute, int n_steps, int keep,
                    struct execute_samples *samples);

/*
 * Host copies, outside any fence, as fp32: n elements of a buffer from an element on (parameters are
 * of the plan's dtype, the rest of the state is fp32), or of a tensor of a given dtype.
 */
void execute_download(struct execute *execute, enum plan_buffer buffer, int64_t first, int64_t n,
                      float *out);
void execute_download_tensor(struct execute *execute, struct tensor tensor, enum dtype dtype,
                             int64_t n, float *out);

/* n values to a tensor of fp32 or bf16 (rounded in place: `values` is done with). Syncs. */
void execute_upload_tensor(struct execute *execute, struct tensor tensor, enum dtype dtype,
                           float *values, int64_t n);

/* Buffers whose contents a variant would ruin: they have scratch copies, and make the digest. */
bool execute_is_state(int buffer);
enum device_class execute_class_of(int buffer);

/* Of n fp32 elements: sum of squares, and of products with rng_sign(key, i), in fp64. */
void execute_sums(struct execute *execute, struct tensor tensor, int64_t n, uint64_t key,
                  double sums[2]);

/* A 64-bit digest of the training state (parameters, moments, sums): equal before and after a variant. */
uint64_t execute_digest(struct execute *execute);

/* All communicators that are open: those of eager steps, then those of graphs. */
int execute_n_comms(const struct execute *execute);
struct comm *execute_comm(struct execute *execute, int index);

bool execute_has_scratch(const struct execute *execute);

/* Work done since open, counted where it was done: kernels and posts. */
const struct kernel_work *execute_work(const struct execute *execute);
double execute_wire_bytes(const struct execute *execute, enum axis axis);

#endif
