/*
 * lockstep: the plans of all ranks of a point run in one process, by one thread.
 *
 * Each rank has arenas of its own; computing ops are run by a set of kernels for host memory;
 * a collective is a copy or a sum between arenas, made at one instant, when all members of its
 * group have it at the head of the stream and what it waits for has finished. Nothing else is
 * ordered: a stream does its ops in plan order, an op its waits, steps follow each other without
 * a barrier. So a plan that relies on luck shows it under one of the two orders:
 *
 *   early   a collective runs as soon as the plan allows: before a buffer is filled that it should
 *           have waited for
 *   late    no collective runs before some rank cannot go on without it: after a buffer has been
 *           used again that should have been held
 *
 * A right plan gives the same bits in both, whatever the order. Sums are made in fp64 over the members
 * in their order and rounded once.
 *
 * Ranks that can never go on are found, and named with what they wait for; members of a group that
 * make different calls likewise.
 */
#ifndef DRIVER_LOCKSTEP_H
#define DRIVER_LOCKSTEP_H

#include <stdint.h>

#include "workloads/kernels/kernels.h"
#include "workloads/plan.h"

enum lockstep_order { LOCKSTEP_EARLY, LOCKSTEP_LATE };

struct lockstep_rank;

struct lockstep {
    int n_ranks;
    const struct kernel_set *kernels;
    struct lockstep_rank *rank; /* [n_ranks], owned */
    int64_t steps_done;
    int64_t posted_calls[AXIS_COUNT]; /* of all ranks since open */
    double posted_bytes[AXIS_COUNT];  /* coll_wire_bytes of them */
    unsigned char *gathered;          /* what a collective collects before it delivers */
    size_t gathered_size;
};

/*
 * plans[n]: sealed, plan r of rank r of one point; borrowed until close, as is the input. The state
 * is that of the generator under `seed`. FAIL_* of the kernels.
 */
int lockstep_open(struct lockstep *lockstep, const struct plan *plans, int n,
                  const struct kernel_set *kernels, const struct input *input, uint64_t seed);
void lockstep_close(struct lockstep *lockstep); /* safe on a zeroed struct */

/* The state of the generator again, all other memory zero. */
void lockstep_reset(struct lockstep *lockstep, uint64_t seed);

/*
 * n_steps training steps. `log`, when not NULL, receives the scalars of each step of rank 0:
 * [n_steps][SCALARS], those that OP_CLIP saw. FAIL_WRONG when ranks cannot go on or make different
 * calls: one sentence naming rank, op, and whom it waits for.
 */
int lockstep_run(struct lockstep *lockstep, enum lockstep_order order, int n_steps, double *log);

/* Where an arena of a rank lies. */
void *lockstep_memory(const struct lockstep *lockstep, int rank, enum plan_buffer buffer);

#endif
