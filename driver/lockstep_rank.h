/*
 * lockstep_rank: one rank inside a lockstep run; shared by the files of lockstep alone.
 */
#ifndef DRIVER_LOCKSTEP_RANK_H
#define DRIVER_LOCKSTEP_RANK_H

#include "driver/lockstep.h"

struct lockstep_stream {
    int n;        /* ops of one step */
    int *op;      /* [n] their indices, in plan order; owned */
    int64_t done; /* finished since this run began, all steps */
};

struct lockstep_rank {
    const struct plan *plan;
    struct kernel_context context;
    int n_streams;
    struct lockstep_stream stream[PLAN_CHANNELS + 2]; /* compute, channels, copies */
    int *place;                                       /* [n_ops] of an op in its stream; owned */
    int *host; /* [n_ops + 1] the last op before it for which the host waits, -1; owned */
};

/* An op of a step, as it stands at the head of a stream. */
struct lockstep_head {
    const struct op *op; /* NULL: the stream has nothing left */
    int index;
    int64_t step;
};
struct lockstep_head lockstep_head(const struct lockstep_rank *rank, int stream, int64_t n_steps);

/* The stream that the op at the head still waits for, and the op there; -1: for nothing. */
int lockstep_waits_for(const struct lockstep_rank *rank, const struct lockstep_head *head,
                       int *awaited);

/* The stream of a rank for a channel; -1 when its plan has none. */
int lockstep_stream_of(const struct lockstep_rank *rank, enum axis axis, int direction);

/* The ranks that take part in the collective at a head: first + i * stride, i < size. */
struct group lockstep_members(const struct lockstep_rank *rank, const struct op *op);

/* Same kind (or the other half of a transfer), dtype, count and group? */
bool lockstep_same_call(const struct lockstep_rank *a, const struct op *x,
                        const struct lockstep_rank *b, const struct op *y);

/* Of an all-to-all-v: is what one sends what the other receives, both ways? */
bool lockstep_same_parts(const struct coll *mine, int me, const struct coll *theirs, int other);

/* Carry out the collective that stands at the heads of stream[i] of members i, and count it. */
void lockstep_collect(struct lockstep *lockstep, const struct group *members, const int *stream,
                      int64_t n_steps);

/* The sentence for ranks that cannot go on, FAIL_WRONG; and for calls that do not match. */
int lockstep_stuck(const struct lockstep *lockstep, int64_t n_steps);
int lockstep_mismatch(int rank, const struct lockstep_head *mine, int other,
                      const struct lockstep_head *theirs);

#endif
