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
 *   /machine     hosts, ranks, ceilings (tables)
 *   /points/NNN  point (1 row), gate, work, traffic, experts, stages, steps, stalls, collectives, ops, inputs,
 *                checkpoints, drains, intervals, account, recoveries, memory, telemetry,
 *                audit, audit_calls, events
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
 * point that a later launch measures again is added as points/NNN.launchL, never replaced. A long run
 * publishes pieces before its last, points/NNN.launchL.partPPPPPP; readers here join them to one point.
 *
 * One writer: rank 0, outside the timed fence. Errors are FAIL_FILE with path and the system's
 * words.
 */
#ifndef ANALYSIS_RECORD_H
#define ANALYSIS_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RECORD_SCHEMA = 4, RECORD_FORMULAS = 1 /* version of FORMULAS' definitions */ };

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

/* What this machine can do, measured by "scalestudy calibrate": one row per kind of work and shape,
 * on rank 0 unless a group is said. */
#define CEILING_COLUMNS(X)                                                                         \
    X(i32, launch, "", "launch that measured it")                                                  \
    X(text32, kind, "", "op of a plan, peak, copy, disk, or a collective")                         \
    X(text128, shape, "", "what it worked on")                                                     \
    X(text16, dtype, "", "of it, empty: bytes")                                                    \
    X(text16, level, "", "collectives: level of the topology")                                     \
    X(i32, group, "", "ranks that took part, 1: one alone")                                        \
    X(i32, calls, "", "ops of the plan that are like it, a step")                                  \
    X(i32, n, "", "samples behind the time")                                                       \
    X(f64, bytes, "B", "moved by one; of a collective: S of the busbw table")                      \
    X(f64, flops, "FLOP", "of one")                                                                \
    X(f64, time_us, "us", "of one, median")                                                        \
    X(f64, least_us, "us", "the fastest sample")                                                   \
    X(f64, rate, "", "by the median")                                                              \
    X(text16, unit, "", "of the rate: FLOP/s, B/s; collectives: bus bandwidth, B/s")

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
    X(i32, experts, "", "experts of a layer, 0: a dense model")                                    \
    X(text64, routing, "", "how tokens come to experts, with its capacity; empty: a dense model")  \
    X(i64, global_batch, "samples", "samples a step, all ranks")                                   \
    X(i64, micro_batch, "samples", "samples of a micro-batch of one rank")                         \
    X(i64, micro_steps, "", "micro-steps a step (accumulation)")                                   \
    X(text16, cp_kind, "", "how attention reaches the keys of other ranks; empty: cp is 1")        \
    X(text16, schedule, "", "of the pipeline; empty: pp is 1")                                     \
    X(i32, virtual_stages, "", "chunks of layers of a stage, 0: pp is 1")                          \
    X(f64, replay_ms, "ms", "step of a pipeline, replayed with this point's ops, transfers free")  \
    X(f64, bubble_ms, "ms", "idle in that replay, mean over stages; 0: pp is 1, or no op timed")   \
    X(f64, bubble_ideal, "", "bubble over what is not idle, in that replay")                       \
    X(f64, bubble_closed, "", "the same of equal stages, in closed form (workloads/schedule.h)")   \
    X(f64, transfer_ms, "ms", "a transfer between stages once both ends are there, their median")  \
    X(f64, replay_moved_ms, "ms", "step of the replay with transfers of that length")              \
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
    X(f64, capture_s, "s", "steps captured as graphs, 0: none")                                    \
    X(f64, stamp_ns, "ns", "what a stamp takes of its stream, calibrated, 0: nothing")             \
    X(f64, graph_stamp_ns, "ns", "the same inside a graph, 0: nothing, or no graphs")              \
    X(i32, deterministic, "", "1: algorithms, order of sums and threads were fixed")               \
    X(f64, warm_up_s, "s", "warm-up steps")                                                        \
    X(f64, timed_s, "s", "timed section, all variants")                                            \
    X(f64, initial_loss, "nat", "mean token loss of the first step")                               \
    X(f64, final_loss, "nat", "mean token loss of the last full step")                             \
    X(f64, input_entropy, "nat", "entropy rate of the input, 0: unknown")                          \
    X(f64, clock_error_ns, "ns", "largest uncertainty of a host clock offset, 0: one host")        \
    X(i64, start_ns, "ns", "start of the point since t0")                                          \
    X(i64, end_ns, "ns", "end of the point since t0")                                              \
    X(i32, part, "",                                                                               \
      "0: whole; n: the n-th part of a long run, and nothing later of its launch was published")

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

/* Layers of experts, as the first step routed: one row per layer and expert, and one for a layer as a
 * whole (expert -1). Sums over ranks. */
#define LOAD_COLUMNS(X)                                                                            \
    X(i32, layer, "", "")                                                                          \
    X(i32, expert, "", "-1: the layer as a whole")                                                 \
    X(i64, tokens, "tokens", "that chose the expert, before dropping; -1: choices of all tokens")  \
    X(f64, load, "", "tokens over the mean of the layer's experts; -1: that of the hottest")       \
    X(i64, dropped, "tokens", "-1: choices that found no room; else 0")                            \
    X(i64, tied, "tokens", "-1: whose last and next logit differ by rounding; else 0")             \
    X(f64, balance, "", "-1: load-balance loss per sequence and position; else 0")

/* Stages of a pipeline: one row each; means over the ranks of a stage. */
#define STAGE_COLUMNS(X)                                                                           \
    X(i32, stage, "", "")                                                                          \
    X(i32, ranks, "", "that make it up")                                                           \
    X(i32, layers, "", "of it")                                                                    \
    X(i32, in_flight, "", "chunks times micro-batches whose activations it keeps at most")         \
    X(i64, parameters, "", "that one rank of it computes with, padding included")                  \
    X(i64, activation_bytes, "B", "arena of a rank")                                               \
    X(f64, compute_ms, "ms", "its ops in an instrumented step")                                    \
    X(f64, bubble_ms, "ms", "idle beside them in the replay with free transfers")

/* variant: 0 full, 1 compute-only, 2 comm-only. One row per point, variant, step and rank. */
#define STEP_FLAGS(X)                                                                              \
    X(STEP_WARM_UP, 1, "before the fence or found to be warm-up by the change-point rule")         \
    X(STEP_LEAD_IN, 2, "first of a block: its end starts the block's clock")                       \
    X(STEP_INSTRUMENTED, 4, "every op was stamped")                                                \
    X(STEP_BARE, 8, "two stamps only")                                                             \
    X(STEP_SCRATCH, 16, "ran on scratch state")                                                    \
    X(STEP_GRAPH, 32, "launched as one graph")

#define STEP_COLUMNS(X)                                                                            \
    X(i32, variant, "", "0 full, 1 compute-only, 2 comm-only")                                     \
    X(i32, block, "", "block of the alternation")                                                  \
    X(i32, step, "", "index within point and variant")                                             \
    X(i32, rank, "", "rank of the point")                                                          \
    X(i32, flags, "", "sum of 1 warm-up, 2 lead-in, 4 instrumented, 8 bare, 16 scratch, 32 graph") \
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
      "compute stream held up by the host: it posts communication, or is late (instrumented)")     \
    X(i64, stamps_ns, "ns",                                                                        \
      "stamps between ops: their number times what one costs, calibrated (instrumented), else 0")  \
    X(i64, residual_ns, "ns",                                                                      \
      "step - compute - input - stall - idle - stamps (instrumented), else 0")                     \
    X(i64, host_ns, "ns",                                                                          \
      "the host giving the step out: waits for room included; for counted rows, and batches of a " \
      "graph, not")

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
    X(i64, bytes, "B",                                                                             \
      "S of the busbw table; where routing decides: what this rank sends or gets")                 \
    X(i32, group, "", "ranks of the group")                                                        \
    X(i64, start_ns, "ns", "since the step's start on this rank")                                  \
    X(i64, duration_ns, "ns",                                                                      \
      "start to completion on this rank; the minimum over the group's ranks is the transfer")      \
    X(i32, first, "", "lowest rank of the group; 0 in files that do not know it")

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
    X(f64, flops, "FLOP", "executed by a GEMM, else 0")                                            \
    X(f64, elsewhere_bytes, "B", "of its reads and writes: those that another op did for it")

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

/*
 * A run (--run-steps) as it went by, one row per thing that took time, in order, none over another but
 * those marked *. Times are since the t0 of the study's first launch, by the wall clock of rank 0's host.
 * Sums are over ranks: what each rank lost, added up. A run that was cut off and gone on with has rows of
 * several launches; the later launch brings those that the earlier could not publish (the same row may
 * come twice then: launch, kind and begin_ns are its key).
 *
 *   launch     the program begins; until its point begins. Of the first point of a launch alone
 *   start-up   plan, gate, memory, communicators, proofs, until the state is there
 *   load       the state from a checkpoint; first_step: the step it holds
 *   steps      a block of steps of training
 *   save *     from the call to publication; first_step: the step it holds; SAVE_LOST: never published
 *   save-wait  no step runs: a save before is on its way, or the last one of the run is waited for
 *   file       rows come together and are published
 *   failure *  an instant: a rank was killed, as it said itself; text says which and in what
 *   preempted * an instant: the first signal that asks the run to stop was seen
 *   detected * an instant: who restarts the job knew that it had ended (jobscripts)
 *   end *      an instant: the launch left in order; first_step: steps done
 */
#define INTERVAL_FLAGS(X)                                                                          \
    X(INTERVAL_WARM_UP, 1, "steps: of the -w first ones of a launch")                              \
    X(INTERVAL_SAVING, 2, "steps: a save is on its way, or ended less than five steps before")     \
    X(INTERVAL_LOST, 4, "save: never published")                                                   \
    X(INTERVAL_STOPS, 8, "end: before all steps were done, for a signal")

#define INTERVAL_COLUMNS(X)                                                                        \
    X(i32, launch, "", "launch in which it was")                                                   \
    X(text16, kind, "",                                                                            \
      "launch, start-up, load, steps, save, save-wait, file, record, failure, ...")                \
    X(i64, begin_ns, "ns", "since the first launch's t0, wall clock of rank 0's host")             \
    X(i64, end_ns, "ns", "the same")                                                               \
    X(i32, ranks, "", "ranks of the run")                                                          \
    X(i32, flags, "", "sum of 1 warm-up, 2 saving, 4 lost, 8 stops")                               \
    X(i64, first_step, "", "optimizer steps done before it; of saves and loads: in them")          \
    X(i64, steps, "", "optimizer steps done in it")                                                \
    X(i64, tokens, "tokens", "targets trained on in it, all ranks")                                \
    X(i64, call_ns, "ns", "sum over ranks: the device held by a save's call or copies")            \
    X(i64, input_ns, "ns", "sum over ranks: waiting for data")                                     \
    X(i64, straggler_ns, "ns", "sum over ranks: waiting for ranks that compute longer")            \
    X(i64, stall_ns, "ns", "sum over ranks: waiting for communication, straggler_ns included")     \
    X(text64, text, "", "what else there is to say")

/*
 * The account of a run: every nanosecond of each rank's wall time, from the begin of the first launch to
 * the end of the last, is in exactly one bucket: rows with view 0 sum to wall exactly. By precedence:
 * restart, detection, rework, start-up, warm-up, checkpoint-call, data-stall, inflation, straggler-wait,
 * useful, record; what is left is "other". Views are parts of a bucket, and no buckets. Written by the
 * last launch (analysis/wall.h).
 */
#define ACCOUNT_COLUMNS(X)                                                                         \
    X(text16, bucket, "", "restart, detection, rework, ..., useful, other; wall")                  \
    X(text16, within, "", "view: the bucket that it is part of; empty: a bucket, or wall itself")  \
    X(i32, view, "", "0 bucket, 1 view, 2 wall: the sum of the buckets")                           \
    X(i32, ranks, "", "ranks of the run")                                                          \
    X(i64, rank_ns, "ns", "sum over ranks; of a view it may be negative (inflation-raw)")          \
    X(f64, seconds, "s", "rank_ns / ranks")                                                        \
    X(f64, share, "", "of wall")                                                                   \
    X(i64, count, "", "intervals, steps of useful, rework and warm-up, saves of checkpoint-call")

/* What each failure of a run cost: one row per launch that did not end its run, whole once the next
 * launch has made its steps. Times as in intervals; -1: not known. */
#define RECOVERY_COLUMNS(X)                                                                        \
    X(i32, launch, "", "launch that failed or was stopped")                                        \
    X(text16, cause, "", "rank, host (killed by a drill), preempted, or unknown")                  \
    X(text16, moment, "", "step or save: in what it was hit, empty: unknown")                      \
    X(i32, victim, "", "rank or node that was killed, -1")                                         \
    X(i32, ranks, "", "ranks of the run")                                                          \
    X(i64, failed_ns, "ns", "the failure; unknown cause: the last sign of life")                   \
    X(i64, detected_ns, "ns", "who restarts knew of it")                                           \
    X(i64, began_ns, "ns", "the next launch's program began")                                      \
    X(i64, loading_ns, "ns", "it began to load the state")                                         \
    X(i64, loaded_ns, "ns", "the state was there")                                                 \
    X(i64, first_step_ns, "ns", "end of the first step that it made")                              \
    X(i64, caught_up_ns, "ns", "end of the block whose steps reach reached_step again")            \
    X(i64, reached_step, "", "steps done before the failure")                                      \
    X(i64, resumed_step, "", "steps that the loaded state had")                                    \
    X(i64, lost_steps, "", "whole steps to be done again")                                         \
    X(i64, lost_ns, "ns", "wall time from the state that was saved to the failure")

#define MEMORY_COLUMNS(X)                                                                          \
    X(i32, rank, "", "rank of the point")                                                          \
    X(text16, class, "",                                                                           \
      "parameters, gradients, optimizer, activations, temporaries, communication; kernels; "       \
      "reserved; training: no scratch; process")                                                   \
    X(i64, peak_bytes, "B", "measured; the six classes without what kernels took")                 \
    X(i64, predicted_bytes, "B", "from the plan, before anything was taken; -1: not predicted")    \
    X(i64, largest_bytes, "B", "of the largest tensor in it, 0: unknown")                          \
    X(text128, largest, "", "that tensor: a parameter, or the op that touches it, with its shape")

/* What the GPU of a rank said of itself. f64: NaN, i64: -1 where it did not tell. */
#define TELEMETRY_COLUMNS(X)                                                                       \
    X(text16, kind, "", "block: a block of steps; moment: within one; section: all timed blocks")  \
    X(i32, rank, "", "rank of the point")                                                          \
    X(i32, block, "", "as steps; 0 of a section")                                                  \
    X(i64, start_ns, "ns", "since t0, clock-corrected")                                            \
    X(i64, duration_ns, "ns", "between two readings of counters, 0: a moment")                     \
    X(f64, energy_j, "J", "gain of the energy counter of the GPU")                                 \
    X(i64, power_limited_ns, "ns", "gain of the time that the power limit held clocks down")       \
    X(i64, thermal_limited_ns, "ns", "gain of the time that heat held clocks down")                \
    X(i64, ecc_corrected, "", "gain of the volatile count of corrected memory errors")             \
    X(i64, ecc_uncorrected, "", "gain of the volatile count of uncorrected memory errors")         \
    X(i64, nvlink_errors, "", "gain of CRC errors, replays and recoveries of all links")           \
    X(f64, sm_mhz, "MHz", "clock of the multiprocessors; of a section: the highest there is")      \
    X(f64, memory_mhz, "MHz", "clock of the memory; of a section: the highest there is")           \
    X(f64, power_w, "W", "power drawn; of a section: the limit in force")                          \
    X(f64, temperature_c, "C", "temperature of the GPU")                                           \
    X(i64, reasons, "", "bits of NVML's reasons for clocks below what is asked for")

/* The audit: activity records of the profiler beside the stamps of the same steps, one row per step
 * and rank. Its steps are no rows of `steps`. Times in ns of one step; -1: not in this kind. */
#define AUDIT_COLUMNS(X)                                                                           \
    X(text16, kind, "", "unstamped, bare, instrumented (all without records), or audit")           \
    X(i32, rank, "", "rank of the point")                                                          \
    X(i32, turn, "", "index of the step in the audit")                                             \
    X(i32, block, "", "block of the audit, in the order in which they ran")                        \
    X(i64, step_ns, "ns", "by stamps: from this step's first to the next one's")                   \
    X(i64, compute_ns, "ns", "by stamps: sum of the ops of the compute stream")                    \
    X(i64, comm_ns, "ns", "by stamps: union of communication, all axes")                           \
    X(i64, exposed_ns, "ns", "by stamps: of it, beside no op of the compute stream")               \
    X(i64, record_step_ns, "ns", "by records: from this step's first kernel to the next one's")    \
    X(i64, record_compute_ns, "ns", "by records: union of what is no communication and no input")  \
    X(i64, record_comm_ns, "ns", "by records: union of communication")                             \
    X(i64, record_exposed_ns, "ns", "by records: of it, beside no such kernel")                    \
    X(i32, records, "", "kernels, copies and fills of the step")                                   \
    X(i32, lost, "", "records that the profiler dropped in the block")

/* The audit, call by call: a collective of an audited step by its stamps and by the kernel that ran it,
 * the k-th of its stream on both sides. Calls that are posted as one are one row, that of the first. */
#define AUDIT_CALL_COLUMNS(X)                                                                      \
    X(i32, rank, "", "rank of the point")                                                          \
    X(i32, turn, "", "index of the step in the audit")                                             \
    X(i32, block, "", "block of the audit")                                                        \
    X(i32, op, "", "index in the plan")                                                            \
    X(text16, axis, "", "dp, tp, ...")                                                             \
    X(text16, kind, "", "all-reduce, ...")                                                         \
    X(i64, bytes, "B", "S of the busbw table, of all calls that are one")                          \
    X(i64, start_ns, "ns", "by stamps, since the step's start")                                    \
    X(i64, duration_ns, "ns", "by stamps")                                                         \
    X(i64, record_start_ns, "ns", "by the record, since the step's first kernel")                  \
    X(i64, record_duration_ns, "ns", "by the record")

#define EVENT_COLUMNS(X)                                                                           \
    X(i64, at_ns, "ns", "since t0")                                                                \
    X(i32, rank, "", "rank of the job, -1: all")                                                   \
    X(text16, kind, "", "warning, note, fault, resume, unsaved")                                   \
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
struct ceiling_row {
    CEILING_COLUMNS(RECORD_FIELD)
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
struct load_row {
    LOAD_COLUMNS(RECORD_FIELD)
};
struct stage_row {
    STAGE_COLUMNS(RECORD_FIELD)
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
struct interval_row {
    INTERVAL_COLUMNS(RECORD_FIELD)
};
struct account_row {
    ACCOUNT_COLUMNS(RECORD_FIELD)
};
struct recovery_row {
    RECOVERY_COLUMNS(RECORD_FIELD)
};
struct memory_row {
    MEMORY_COLUMNS(RECORD_FIELD)
};
struct telemetry_row {
    TELEMETRY_COLUMNS(RECORD_FIELD)
};
struct audit_row {
    AUDIT_COLUMNS(RECORD_FIELD)
};
struct audit_call_row {
    AUDIT_CALL_COLUMNS(RECORD_FIELD)
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
enum interval_flag {
#define INTERVAL_ENUM(name, value, meaning) name = value,
    INTERVAL_FLAGS(INTERVAL_ENUM)
#undef INTERVAL_ENUM
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
    X(experts, struct load_row, LOAD_COLUMNS)                                                      \
    X(stages, struct stage_row, STAGE_COLUMNS)                                                     \
    X(steps, struct step_row, STEP_COLUMNS)                                                        \
    X(stalls, struct stall_row, STALL_COLUMNS)                                                     \
    X(collectives, struct call_row, CALL_COLUMNS)                                                  \
    X(ops, struct op_row, OP_COLUMNS)                                                              \
    X(inputs, struct input_row, INPUT_COLUMNS)                                                     \
    X(checkpoints, struct checkpoint_row, CHECKPOINT_COLUMNS)                                      \
    X(drains, struct drain_row, DRAIN_COLUMNS)                                                     \
    X(intervals, struct interval_row, INTERVAL_COLUMNS)                                            \
    X(account, struct account_row, ACCOUNT_COLUMNS)                                                \
    X(recoveries, struct recovery_row, RECOVERY_COLUMNS)                                           \
    X(memory, struct memory_row, MEMORY_COLUMNS)                                                   \
    X(telemetry, struct telemetry_row, TELEMETRY_COLUMNS)                                          \
    X(audit, struct audit_row, AUDIT_COLUMNS)                                                      \
    X(audit_calls, struct audit_call_row, AUDIT_CALL_COLUMNS)                                      \
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
    int64_t n_hosts, n_ranks, n_ceilings;
    struct host_row *hosts;
    struct rank_row *ranks;
    struct ceiling_row *ceilings;
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

/*
 * What record_begin() would answer now, with nothing made or changed; the writer's lock is held while it looks.
 * Only writing shows that a disk is full.
 */
int record_look(const char *path, const struct record_head *head, bool resume);

/* Publish one point: when this returns 0 the point survives any kill. On failure nothing that was
 * there is lost. Its launch is written as this record's, whatever the row says. FAIL_INTERNAL for
 * rows that a reader would refuse: a rank not below `ranks`, a text without end. */
int record_append(struct record *record, const struct record_point *point);

/*
 * The same for the rows that a long run has made since the last piece: piece counts from 1 in a launch, and
 * what record_append() then publishes of that point is its last. A reader sees one point, all rows of its
 * pieces in order and the point's row of the last; `part` says when the last is missing.
 */
int record_append_piece(struct record *record, const struct record_point *point, int piece);

/* Merge, publish, remove the parts, free. Failure leaves the parts. */
int record_finish(struct record *record);

/* Free without merging: the parts stay and are readable (after an error or interruption). */
void record_abandon(struct record *record);

/* ---- reading ---- */
struct record_file {
    char path[512];
    bool whole; /* false: read from a parts directory */
    struct record_head head;
    int n_points, n_parts;       /* n_parts: files or groups that they were in */
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
