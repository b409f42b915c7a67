/*
 * execute_stamps: which stamp means what, and how stamps become rows.
 *
 * Each step of a block has its own slots: two for the step, four for each op. Private to the
 * executor.
 */
#ifndef DRIVER_EXECUTE_STAMPS_H
#define DRIVER_EXECUTE_STAMPS_H

#include "driver/execute.h"

enum { STAMP_STEP_BEGIN, STAMP_STEP_END, STAMP_FIRST_OP };
enum stamp {
    STAMP_WAIT, /* compute stream: before it waits for others, or before the host posts a collective */
    STAMP_BEGIN, /* the op's stream */
    STAMP_END,
    STAMP_POSTED, /* compute stream: after the host has posted a collective */
    STAMPS_PER_OP
};

static inline int stamps_per_step(const struct plan *plan)
{
    return STAMP_FIRST_OP + STAMPS_PER_OP * plan->n_ops;
}

static inline int stamp_of(int op, enum stamp which)
{
    return STAMP_FIRST_OP + STAMPS_PER_OP * op + (int)which;
}

/* A variant is a mask: compute-only leaves out the collectives, comm-only everything else. */
static inline bool op_takes_part(const struct op *op, enum variant variant)
{
    return variant == VARIANT_FULL || (op->kind == OP_COLLECTIVE) == (variant == VARIANT_COMM);
}

/* Whether run_op makes this stamp (BEGIN or END) of an op at a level in a variant. */
bool stamp_is_made(const struct op *op, enum variant variant, int level, enum stamp which);

/* After sync: rows of the block's steps, with local times and step indices from 0. */
void stamps_to_samples(struct execute *execute, enum variant variant, int level, int n_steps,
                       int keep, struct execute_samples *samples);

#endif
