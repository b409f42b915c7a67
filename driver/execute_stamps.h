/*
 * execute_stamps: which stamp means what, and how stamps become rows.
 *
 * Each step of a block has its own slots: two for the step, and up to four for each op. Private to
 * the executor.
 *
 * On a GPU stamps are events on its streams, and between the end of one op of the compute stream and
 * the first stamp of the next lies a gap. Who made it is told by the host's clock: where the host had
 * not yet given that stamp when the stream was done with the op before, the GPU waited for it, and
 * all of the gap is host idle. Elsewhere the gap is what a stamp costs, as calibrated when the device
 * was opened (device.stamp_ns, in a graph graph_stamp_ns): so much goes to the term "stamps", and
 * what the gap really took beyond or below that is left to the residual. An op that the host had not
 * yet given whole when its first stamp was reached computes from then on; before it is host idle.
 */
#ifndef DRIVER_EXECUTE_STAMPS_H
#define DRIVER_EXECUTE_STAMPS_H

#include "driver/execute_fence.h"

enum { STAMP_STEP_BEGIN, STAMP_STEP_END, STAMP_FIRST_OP };
enum stamp {
    STAMP_WAIT, /* compute stream: before it waits for others, or before the host posts a collective */
    STAMP_BEGIN, /* the op's stream */
    STAMP_END,
    STAMP_POSTED, /* compute stream: after the host has posted a collective */
    STAMPS_PER_OP
};

/* Number the slots of a step: those alone that some level and variant makes. */
void stamps_number(struct execute *execute);

static inline int stamps_per_step(const struct execute *execute)
{
    return execute->stamp_slots;
}

static inline int stamp_of(const struct execute *execute, int op, enum stamp which)
{
    return execute->stamp_slot[STAMPS_PER_OP * op + (int)which];
}

/* Whether the compute stream is stamped around the host's posting of this op: where that stream is
 * the host. On a GPU a post takes nothing of the compute stream, and stamps would. */
static inline bool stamps_posts(const struct execute *execute, const struct op *op)
{
    return op->kind == OP_COLLECTIVE && execute->device.type->runs_host_tasks;
}

/* A variant is a mask: compute-only leaves out the collectives, comm-only everything else. */
static inline bool op_takes_part(const struct op *op, enum variant variant)
{
    return variant == VARIANT_FULL || (op->kind == OP_COLLECTIVE) == (variant == VARIANT_COMM);
}

/* Whether run_op makes this stamp (BEGIN or END) of an op at a level in a variant. */
bool stamp_is_made(const struct op *op, enum variant variant, int level, enum stamp which);

/* Of the stamps that are made, whether this END only orders: nobody reads its time. */
bool stamp_only_orders(const struct op *op, int level);

/* After sync: rows of the block's steps, with local times and step indices from 0. */
void stamps_to_samples(struct execute *execute, const struct execute_fence *fence);

#endif
