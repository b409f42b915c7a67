/*
 * record: the study file. Schema, writer and reader; what the tool knows goes through here.
 *
 * Columns are said once, in the *_COLUMNS lists below: they give the C struct, the HDF5 compound
 * type, the `<table>.columns` table beside it (name, unit, meaning, formula version), CSV headers
 * and JSON keys. Times are int64 ns since the study's t0, or durations in ns; text has fixed
 * length; hosts are by index.
 *
 *   /study, /provenance, /launch.N   attributes: what was asked, one per option; with what (no
 *                secrets); what was different in a launch
 *   /machine     hosts, ranks (tables)
 *   /points/NNN  point (1 row), gate, work, traffic, steps, stalls, collectives, ops, inputs,
 *                checkpoints, drains, memory, events
 *
 * Whole files only. HDF5 does not survive a kill while open for writing, so nothing that readers
 * may see is ever open for writing: the head (head.h5) and each finished point (NNN.h5) are built
 * in memory, written as OUT.parts/NAME.tmp, fsynced, renamed, and the directory is fsynced; at the
 * end the parts are merged (H5Ocopy, in a child process: HDF5 may crash on a full disk) into
 * OUT.tmp, fsynced, read back, published as OUT, and the parts removed. record_read takes a merged
 * file or a parts directory. An existing output is never overwritten. Every foreign file is read in
 * a forked child with memory and time limits.
 *
 * A study may have several launches. The head keeps "study" and "provenance" of the first; group
 * "launch.N" has each launch's own attributes, its t0_unix_ns, and of its provenance what differs
 * from the first launch's. Times of a point are since the t0 of the launch that measured it. A
 * point that a later launch measures again is added as points/NNN.launchL, never replaced.
 *
 * One writer: rank 0, outside the timed fence. Errors are FAIL_FILE with path and the system's
 * words.
 */
#ifndef ANALYSIS_RECORD_H
#define ANALYSIS_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RECORD_SCHEMA = 2, RECORD_FORMULAS = 1 /* version of FORMULAS' definitions */ };

/* Column types: i32 i64 f64, and text16/32/64/128/512 (char arrays, zero padded). */

/* One row per launch and host / world rank of the job. A resumed job adds its rows at the end, so
 * the first launch's come first. */
#define HOST_COLUMNS(X)                                                                            \
    X(i32, launch, "", "launch that ran on it")                                                    \
    X(text64, name, "", "host name (or hostNN with --anonymous)")                                  \
    X(text64, processor, "", "processor model")                                                    \
    X(i32, ranks, "", "ranks of this job on the host")                                             \
    X(i32, cores, "", "physical cores")                                                            \
    X(i32, cpus, "", "hardware threads")                                                           \
    X(i64, memory_bytes, "B", "memory of the host")

#define RANK_COLUMNS(X)                                                                            \
    X(i32, launch, "", "launch that it belongs to")                                                \
    X(i32, rank, "", "rank in the job")                                                            \
    X(i32, host, "", "index into machine/hosts")                                                   \
    X(i32, local, "", "index among the ranks of its host")                                         \
    X(i32, n_cpus, "", "hardware threads it may run on")                                           \
    X(i32, n_cores, "", "cores among them")                                                        \
    X(i32, oversubscribed, "", "1: more ranks share its cores than there are cores")               \
    X(text128, cpus, "", "affinity that the launcher gave")                                        \
    X(text128, cpus_used, "", "affinity used: spread near the device; empty: as given")            \
    X(text64, device, "", "device model, empty: the host itself")                                  \
    X(text16, device_bus, "", "PCI address of the device")                                         \
    X(i64, device_bytes, "B", "memory of the device")                                              \
    X(i32, device_shared, "", "1: with another rank: functional only, its times mean nothing")

/* One row per point: what it was, what it proved, what went wrong. */
#define POINT_COLUMNS(X)                                                                           \
    X(i32, point, "", "index in the order of --points")                                            \
    X(i32, launch, "", "launch that measured it (a resumed job is a new launch)")                  \
    X(i32, order, "", "position in the shuffled order of its launch")                              \
    X(i32, nodes, "", "nodes used")                                                                \
    X(i32, ranks, "", "ranks used = devices")                                                      \
    X(i32, ranks_per_node, "", "ranks on each node")                                               \
    X(i32, copies, "", "copies that ran at once, one per node, the first one measured; 1: alone")  \
    X(i32, tp, "", "tensor-parallel degree")                                                       \
    X(i32, pp, "", "pipeline-parallel degree")                                                     \
    X(i32, cp, "", "context-parallel degree")                                                      \
    X(i32, ep, "", "expert-parallel degree")                                                       \
    X(i32, dp, "", "data-parallel degree (dense replicas)")                                        \
    X(i32, shard, "", "shard (FSDP/ZeRO) degree")                                                  \
    X(text32, parallel, "", "layout as text")                                                      \
    X(text16, scaling, "", "strong or weak")                                                       \
    X(text64, model, "", "model name")                                                             \
    X(text16, dtype, "", "dtype of parameters and activations")                                    \
    X(text16, device, "", "device type")                                                           \
    X(text16, comm, "", "communicator type")                                                       \
    X(text64, topology, "", "machine whose time a timed device keeps, empty: a real device")       \
    X(f64, critical_ms, "ms", "critical path of the plan on that topology, 0: a real device")      \
    X(f64, late_ms, "ms", "timed device: mean overrun of kernels' deadlines, worst rank")          \
    X(f64, late_most_ms, "ms", "timed device: largest overrun, all ranks")                         \
    X(text64, input, "", "synthetic, memory or file:NAME")                                         \
    X(i64, global_batch, "samples", "samples a step, all ranks")                                   \
    X(i64, micro_batch, "samples", "samples of a micro-batch of one rank")                         \
    X(i64, micro_steps, "", "micro-steps a step (accumulation)")                                   \
    X(i64, sequence, "tokens", "positions of a sample")                                            \
    X(i64, positions_per_step, "tokens", "positions a step, all ranks")                            \
    X(i64, parameters, "", "parameters of the unpadded model")                                     \
    X(f64, model_flops_per_step, "FLOP",                                                           \
      "forward and backward, causal half, logits counted, no recompute")                           \
    X(f64, peak_flops_per_rank, "FLOP/s",                                                          \
      "GEMM rate measured in this launch on one rank alone, 0: not measured")                      \
    X(text64, peak_source, "", "how the peak was found")                                           \
    X(i32, emulated, "", "1: several declared nodes are one host")                                 \
    X(i32, oversubscribed, "", "1: more ranks or threads than cores")                              \
    X(i32, settled, "", "1: the interval reached --settle")                                        \
    X(i32, valid, "", "1: gate and work proof passed")                                             \
    X(text16, gate, "", "passed, failed or off")                                                   \
    X(text512, why, "", "why it is not valid")                                                     \
    X(f64, gate_s, "s", "time the correctness gate took")                                          \
    X(f64, setup_s, "s", "plan, allocation and communicators")                                     \
    X(f64, init_s, "s", "state from the generator")                                                \
    X(f64, prove_s, "s", "collectives proved")                                                     \
    X(f64, warm_up_s, "s", "warm-up steps")                                                        \
    X(f64, timed_s, "s", "timed section, all variants")                                            \
    X(f64, initial_loss, "nat", "mean token loss of the first step")                               \
    X(f64, final_loss, "nat", "mean token loss of the last full step")                             \
    X(f64, input_entropy, "nat", "entropy rate of the input, 0: unknown")                          \
    X(f64, clock_error_ns, "ns", "largest uncertainty of a host clock offset, 0: one host")        \
    X(i64, start_ns, "ns", "start of the point since t0")                                          \
    X(i64, end_ns, "ns", "end of the point since t0")

/* The correctness gate, one row per tensor and check (worst rank), and per whole-model check. */
#define GATE_COLUMNS(X)                                                                            \
    X(text32, check, "", "gradient, update, loss, norm, initial-loss, ...")                        \
    X(text64, subject, "", "tensor name or step")                                                  \
    X(f64, expected, "", "reference value (a norm, a loss)")                                       \
    X(f64, found, "", "value of the worst rank")                                                   \
    X(f64, difference, "", "as the check defines it")                                              \
    X(f64, allowed, "", "bound of the difference")                                                 \
    X(i32, passed, "", "1 or 0")                                                                   \
    X(i32, rank, "", "the worst rank")

/* The fixed-work proof: three counts that share no code, sums over ranks, per step. */
#define WORK_COLUMNS(X)                                                                            \
    X(text32, quantity, "", "tokens, model FLOPs, wire bytes of an axis")                          \
    X(text16, unit, "", "")                                                                        \
    X(f64, formula, "", "closed form from model and layout")                                       \
    X(f64, plan, "", "sum over the ops of the plan")                                               \
    X(f64, executed, "", "counted where kernels launch and calls are posted")                      \
    X(i32, passed, "", "1: all three agree, and agree with the base point")

/* One row per axis that communicates and level. Which bytes cross nodes is the library's choice; here
 * a ring in the order of the members is assumed. Sums over ranks, a step. */
#define TRAFFIC_COLUMNS(X)                                                                         \
    X(text16, axis, "", "dp, tp, ...")                                                             \
    X(text16, level, "", "inside: within nodes; across: from node to node")                        \
    X(i64, calls, "", "calls of the axis, all ranks")                                              \
    X(f64, formula, "B", "closed form from model, layout and policy")                              \
    X(f64, plan, "B", "sum over the ops of the plan")                                              \
    X(f64, executed, "B", "of the calls that were posted")                                         \
    X(f64, most, "B", "what the rank sends that sends the most, plan")                             \
    X(i32, passed, "", "1: all three agree")

/* variant: 0 full, 1 compute-only, 2 comm-only. One row per point, variant, step and rank. */
#define STEP_FLAGS(X)                                                                              \
    X(STEP_WARM_UP, 1, "before the fence or found to be warm-up by the change-point rule")         \
    X(STEP_LEAD_IN, 2, "first of a block: its end starts the block's clock")                       \
    X(STEP_INSTRUMENTED, 4, "every op was stamped")                                                \
    X(STEP_BARE, 8, "two stamps only")                                                             \
    X(STEP_SCRATCH, 16, "ran on scratch state")

#define STEP_COLUMNS(X)                                                                            \
    X(i32, variant, "", "0 full, 1 compute-only, 2 comm-only")                                     \
    X(i32, block, "", "block of the alternation")                                                  \
    X(i32, step, "", "index within point and variant")                                             \
    X(i32, rank, "", "rank of the point")                                                          \
    X(i32, flags, "", "sum of 1 warm-up, 2 lead-in, 4 instrumented, 8 bare, 16 scratch")           \
    X(i32, skipped, "", "updates skipped so far")                                                  \
    X(i32, micro_step, "", "micro-steps of training so far, this rank")                            \
    X(i32, optimizer_step, "", "updates so far; with skipped: global steps")                       \
    X(i64, start_ns, "ns", "start on this rank's device since t0, clock-corrected")                \
    X(i64, end_ns, "ns", "end on this rank's device since t0, clock-corrected")                    \
    X(i64, consumed, "samples", "samples of the study consumed after this step, all ranks")        \
    X(i64, valid_tokens, "tokens",                                                                 \
      "valid tokens of the step, all ranks (0: variant without data)")                             \
    X(f64, loss, "nat", "mean loss of a valid token")                                              \
    X(f64, grad_norm, "", "gradient norm before clipping")                                         \
    X(f64, lr, "", "learning rate")                                                                \
    X(i64, compute_ns, "ns", "sum of compute ops (instrumented), else 0")                          \
    X(i64, input_ns, "ns", "sum of input ops (instrumented), else 0")                              \
    X(i64, stall_ns, "ns", "compute stream waiting for communication, all axes")                   \
    X(i64, idle_ns, "ns",                                                                          \
      "compute stream held up by the host while it posts communication (instrumented), else 0")    \
    X(i64, residual_ns, "ns", "step - compute - input - stall - idle (instrumented), else 0")

/* One row per step, rank and axis that communicates. */
#define STALL_COLUMNS(X)                                                                           \
    X(i32, variant, "", "as steps")                                                                \
    X(i32, step, "", "as steps")                                                                   \
    X(i32, rank, "", "as steps")                                                                   \
    X(text16, axis, "", "dp, tp, ...")                                                             \
    X(i32, waits, "", "waits of the compute stream")                                               \
    X(i64, stall_ns, "ns", "between the stamps around each wait")                                  \
    X(i64, comm_ns, "ns", "union of the axis' communication intervals")                            \
    X(i64, exposed_ns, "ns", "communication outside compute intervals (instrumented), -1 unknown") \
    X(i64, wire_bytes, "B", "bytes this rank sends at least")

/* One row per collective call, step and rank. */
#define CALL_COLUMNS(X)                                                                            \
    X(i32, variant, "", "as steps")                                                                \
    X(i32, step, "", "as steps")                                                                   \
    X(i32, rank, "", "as steps")                                                                   \
    X(i32, call, "", "index of the call in the step")                                              \
    X(text16, axis, "", "dp, tp, ...")                                                             \
    X(text16, kind, "", "all-reduce, ...")                                                         \
    X(i64, bytes, "B", "S of the busbw table")                                                     \
    X(i32, group, "", "ranks of the group")                                                        \
    X(i64, start_ns, "ns", "since the step's start on this rank")                                  \
    X(i64, duration_ns, "ns",                                                                      \
      "start to completion on this rank; the minimum over ranks is the transfer")

/* One row per op of the instrumented steps that are kept (one per block). */
#define OP_COLUMNS(X)                                                                              \
    X(i32, variant, "", "as steps")                                                                \
    X(i32, step, "", "as steps")                                                                   \
    X(i32, rank, "", "as steps")                                                                   \
    X(i32, op, "", "index in the plan")                                                            \
    X(text16, kind, "", "gemm, attention, ...")                                                    \
    X(text16, phase, "", "forward, backward, ...")                                                 \
    X(i32, layer, "", "-1: outside the layers")                                                    \
    X(i32, micro, "", "-1: once a step")                                                           \
    X(i64, start_ns, "ns", "since the step's start")                                               \
    X(i64, duration_ns, "ns", "")                                                                  \
    X(f64, flops, "FLOP", "executed by a GEMM, else 0")

/* What a step paid for its input, one row per step that takes samples (full, compute-only) and
 * rank. */
#define INPUT_COLUMNS(X)                                                                           \
    X(i32, variant, "", "as steps")                                                                \
    X(i32, step, "", "as steps")                                                                   \
    X(i32, rank, "", "as steps")                                                                   \
    X(i32, depth, "batches", "fewest ready batches that the step found, 0 without workers")        \
    X(i32, waits, "", "batches that were not ready")                                               \
    X(i64, input_ns, "ns", "taking batches, all of it")                                            \
    X(i64, wait_ns, "ns", "of it: waiting for workers, or without them making the batch")          \
    X(i64, read_bytes, "B", "read from files (page cache or storage) for its samples")             \
    X(i64, cpu_ns, "ns", "CPU time of the process in the step, all threads")                       \
    X(i64, worker_cpu_ns, "ns", "CPU time that workers took to make its batches")                  \
    X(i64, resident_bytes, "B", "resident set of the process at the end of the step's block")

/* One row per save of the training state, or restore of it, and rank. Times are counted from the call;
 * -1: does not apply. */
#define CHECKPOINT_FLAGS(X)                                                                        \
    X(CHECKPOINT_FIRST, 1, "first of its mode: what is done once is in it")                        \
    X(CHECKPOINT_OVERLAPS, 2, "wanted while the one before was still on its way")                  \
    X(CHECKPOINT_DIRECT, 4, "O_DIRECT: past the page cache")                                       \
    X(CHECKPOINT_FAILED, 8, "not published: the one before stays the newest")

#define CHECKPOINT_COLUMNS(X)                                                                      \
    X(text16, kind, "", "save or restore")                                                         \
    X(text16, mode, "", "sync, staged, snapshot or lazy")                                          \
    X(text16, file_system, "", "type of the file system of the folder")                            \
    X(i32, save, "", "index among the saves of the mode")                                          \
    X(i32, rank, "", "rank of the point")                                                          \
    X(i32, flags, "", "sum of 1 first, 2 overlaps, 4 direct, 8 failed")                            \
    X(i64, trained, "", "optimizer steps and skipped ones that it holds")                          \
    X(i64, bytes, "B", "written or read by this rank")                                             \
    X(i64, wait_ns, "ns", "before the call: room was still taken by the save before")              \
    X(i64, call_ns, "ns", "of the host in the call")                                               \
    X(i64, blocked_ns, "ns", "the compute stream held: by the call, and by waits of updates")      \
    X(i64, staged_ns, "ns", "until all bytes were in host memory")                                 \
    X(i64, written_ns, "ns", "until this rank's bytes were fsynced")                               \
    X(i64, complete_ns, "ns", "until the checkpoint was published, as rank 0 sees it")             \
    X(i64, first_quarter_ns, "ns", "writing the first quarter of the bytes")                       \
    X(i64, last_quarter_ns, "ns", "writing the last quarter and the fsync")                        \
    X(i64, host_bytes, "B", "host memory for staging, all ranks of the node, at most")             \
    X(i64, read_ns, "ns", "restore: waiting for storage")                                          \
    X(i64, verify_ns, "ns", "restore: hashing")                                                    \
    X(i64, recut_ns, "ns", "restore: from the layout of the files to this one")                    \
    X(i64, upload_ns, "ns", "restore: to the device, and rounding of parameters")

/* Steps around saves, one row per step and rank. Each such step is a block of its own. */
#define DRAIN_PHASES(X)                                                                            \
    X(DRAIN_QUIET, 0, "no save is on its way")                                                     \
    X(DRAIN_SAVING, 1, "the save was called before it")                                            \
    X(DRAIN_DRAINING, 2, "a save is on its way")                                                   \
    X(DRAIN_BEHIND, 3, "one of the five behind the end of a save")

#define DRAIN_COLUMNS(X)                                                                           \
    X(text16, mode, "", "as checkpoints")                                                          \
    X(i32, save, "", "as checkpoints; of quiet steps: the save before which they ran")             \
    X(i32, phase, "", "0 quiet, 1 saving, 2 draining, 3 behind")                                   \
    X(i32, turn, "", "index of the step in the section that saves")                                \
    X(i32, rank, "", "rank of the point")                                                          \
    X(i64, start_ns, "ns", "start on this rank's device since t0, clock-corrected")                \
    X(i64, end_ns, "ns", "end on this rank's device since t0, clock-corrected")                    \
    X(i64, held_ns, "ns", "of it: updates waiting for their copies (lazy)")

#define MEMORY_COLUMNS(X)                                                                          \
    X(i32, rank, "", "rank of the point")                                                          \
    X(text16, class, "",                                                                           \
      "parameters, gradients, optimizer, activations, temporaries, communication; kernels; "       \
      "reserved: all of these; process")                                                           \
    X(i64, peak_bytes, "B", "measured; the six classes without what kernels took")                 \
    X(i64, predicted_bytes, "B", "from the plan, before anything was taken; -1: not predicted")    \
    X(i64, largest_bytes, "B", "of the largest tensor in it, 0: unknown")                          \
    X(text128, largest, "", "that tensor: a parameter, or the op that touches it, with its shape")

#define EVENT_COLUMNS(X)                                                                           \
    X(i64, at_ns, "ns", "since t0")                                                                \
    X(i32, rank, "", "rank of the job, -1: all")                                                   \
    X(text16, kind, "", "warning, note, fault, resume")                                            \
    X(text512, text, "", "")

typedef int32_t i32;
typedef int64_t i64;
typedef double f64;
typedef char text16[16];
typedef char text32[32];
typedef char text64[64];
typedef char text128[128];
typedef char text512[512];

#define RECORD_FIELD(type, name, unit, meaning) type name;
struct host_row {
    HOST_COLUMNS(RECORD_FIELD)
};
struct rank_row {
    RANK_COLUMNS(RECORD_FIELD)
};
struct point_row {
    POINT_COLUMNS(RECORD_FIELD)
};
struct gate_row {
    GATE_COLUMNS(RECORD_FIELD)
};
struct work_row {
    WORK_COLUMNS(RECORD_FIELD)
};
struct traffic_row {
    TRAFFIC_COLUMNS(RECORD_FIELD)
};
struct step_row {
    STEP_COLUMNS(RECORD_FIELD)
};
struct stall_row {
    STALL_COLUMNS(RECORD_FIELD)
};
struct call_row {
    CALL_COLUMNS(RECORD_FIELD)
};
struct op_row {
    OP_COLUMNS(RECORD_FIELD)
};
struct input_row {
    INPUT_COLUMNS(RECORD_FIELD)
};
struct checkpoint_row {
    CHECKPOINT_COLUMNS(RECORD_FIELD)
};
struct drain_row {
    DRAIN_COLUMNS(RECORD_FIELD)
};
struct memory_row {
    MEMORY_COLUMNS(RECORD_FIELD)
};
struct event_row {
    EVENT_COLUMNS(RECORD_FIELD)
};

enum step_flag {
#define STEP_ENUM(name, value, meaning) name = value,
    STEP_FLAGS(STEP_ENUM)
#undef STEP_ENUM
};
enum checkpoint_flag {
#define CHECKPOINT_ENUM(name, value, meaning) name = value,
    CHECKPOINT_FLAGS(CHECKPOINT_ENUM)
#undef CHECKPOINT_ENUM
};
enum drain_phase {
#define DRAIN_ENUM(name, value, meaning) name = value,
    DRAIN_PHASES(DRAIN_ENUM)
#undef DRAIN_ENUM
};
enum variant { VARIANT_FULL, VARIANT_COMPUTE, VARIANT_COMM, VARIANTS };

/* The tables of a point, in the order of the file: name in HDF5, row struct, columns list. */
#define POINT_TABLES(X)                                                                            \
    X(gate, struct gate_row, GATE_COLUMNS)                                                         \
    X(work, struct work_row, WORK_COLUMNS)                                                         \
    X(traffic, struct traffic_row, TRAFFIC_COLUMNS)                                                \
    X(steps, struct step_row, STEP_COLUMNS)                                                        \
    X(stalls, struct stall_row, STALL_COLUMNS)                                                     \
    X(collectives, struct call_row, CALL_COLUMNS)                                                  \
    X(ops, struct op_row, OP_COLUMNS)                                                              \
    X(inputs, struct input_row, INPUT_COLUMNS)                                                     \
    X(checkpoints, struct checkpoint_row, CHECKPOINT_COLUMNS)                                      \
    X(drains, struct drain_row, DRAIN_COLUMNS)                                                     \
    X(memory, struct memory_row, MEMORY_COLUMNS)                                                   \
    X(events, struct event_row, EVENT_COLUMNS)

/* A growing table. Rows are owned by the struct record_point that holds it. */
#define RECORD_TABLE(name, row, columns)                                                           \
    struct {                                                                                       \
        row *rows;                                                                                 \
        int64_t n, capacity;                                                                       \
    } name;
struct record_point {
    struct point_row point;
    POINT_TABLES(RECORD_TABLE)
};
void record_point_release(struct record_point *point); /* frees the rows, zeroes the struct */

/* Make room for n more rows and return the first; usage: struct step_row *r = RECORD_ADD(&p->steps,
 * 1); */
#define RECORD_ADD(table, more)                                                                    \
    ((table)->rows = record_room((table)->rows, sizeof *(table)->rows, (table)->n,                 \
                                 &(table)->capacity, (more)),                                      \
     (table)->n += (more), (table)->rows + (table)->n - (more))
void *record_room(void *rows, size_t row_size, int64_t n, int64_t *capacity,
                  int64_t more); /* new rows zeroed */

/* Attributes: what was asked and where it ran. `group` is "study", "provenance" or "launch.N". */
struct record_attribute {
    char group[32], name[64];
    char *text; /* canonical text of any value; owned */
};
struct record_head {
    int schema;
    char study_digest[65]; /* SHA-256 over everything that --resume must find unchanged */
    int64_t t0_unix_ns;    /* wall clock at t0, for people */
    int64_t n_attributes, attributes_capacity;
    struct record_attribute *attributes;
    int64_t n_hosts, n_ranks;
    struct host_row *hosts;
    struct rank_row *ranks;
};
void record_head_set(struct record_head *head, const char *group, const char *name,
                     const char *text); /* replaces */
const char *record_head_get(const struct record_head *head, const char *group,
                            const char *name); /* NULL: none */
void record_head_release(struct record_head *head);

/* ---- writing (rank 0) ---- */
struct record;

/*
 * Begin a study at `path`. FAIL_FILE when path or path.parts exists (without resume), when the
 * directory cannot be written, when another process is writing this study, or on any I/O error.
 * With resume: path.parts must exist; FAIL_USAGE naming the first attribute of group "study" that
 * differs ("resume" and "out" excepted) or the digest. *done, when not NULL, receives a malloc'd
 * array [*n_done] of the points already there, ascending. A launch index one above the last is
 * returned in *launch; attributes that the head has in group "launch" (or "launch.N", whatever N)
 * become that launch's.
 */
int record_begin(struct record **out, const char *path, const struct record_head *head, bool resume,
                 int *launch, int **done, int *n_done);

/* Publish one point: when this returns 0 the point survives any kill. On failure nothing that was
 * there is lost. Its launch is written as this record's, whatever the row says. FAIL_INTERNAL for
 * rows that a reader would refuse: a rank not below `ranks`, a text without end. */
int record_append(struct record *record, const struct record_point *point);

/* Merge, publish, remove the parts, free. Failure leaves the parts. */
int record_finish(struct record *record);

/* Free without merging: the parts stay and are readable (after an error or interruption). */
void record_abandon(struct record *record);

/* ---- reading ---- */
struct record_file {
    char path[512];
    bool whole; /* false: read from a parts directory */
    struct record_head head;
    int n_points;
    struct record_point *points; /* by point index, then launch */
};

/*
 * Read a file or parts directory. FAIL_FILE with one sentence for: missing, not HDF5, truncated,
 * damaged or hostile (the forked reader died or ran out of its limits: "damaged file"), a newer
 * schema (both versions said).
 */
int record_read(struct record_file *out, const char *path);
void record_file_release(struct record_file *file);

/* The schema as text: every table and column with unit and meaning (`scalereport schema`). */
void record_schema(void *to_FILE);

#endif
