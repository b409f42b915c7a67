/*
 * pack: one arena for all that lives during a part of a step.
 *
 * A plan is made as if memory were for ever: each value has bytes of its own. plan_pack() then moves the
 * webs of passing arenas (lifetime.h; activations, temporaries, wire buffers, sharded gradients and the
 * places of gradients that are taken in turn) into BUFFER_ACTIVATION, where two may lie in the same
 * bytes if they never live together. Gathered weights that layers take in turn are packed among
 * themselves and stay in BUFFER_PARAMETER. Only offsets change: ops, their order, streams and waits stay
 * as they were, so nothing that overlapped waits now. What order the plan has anyway decides what may
 * be shared.
 *
 * Placing is first fit, in four orders, of which the one that makes the smallest arena is taken: what
 * communication touches before the rest or not (before: it then lies at the low end of the arena, and no
 * more than that need be registered with a library), and among those the larger before the smaller, or by
 * size times the number of webs that it meets. All are functions of the plan: ranks with equal plans have
 * equal offsets. A plan that would not become smaller stays as it is. That packing has not changed a step
 * is proved elsewhere, without any of this (plan_check_share.h).
 */
#ifndef WORKLOADS_PACK_H
#define WORKLOADS_PACK_H

#include "workloads/plan.h"

struct pack_found {
    int64_t before, after; /* bytes of the arenas that were packed */
    int64_t live;          /* most bytes that live at an op, in the order of the plan: no packing
                                    can have fewer */
    int op;                /* that op; -1: nothing was packed */
    int64_t at_op[PLAN_BUFFERS]; /* what lives there, by the arena that it came from */
};

/* A plan that is not sealed yet; `found` may be NULL. */
void plan_pack(struct plan *plan, struct pack_found *found);

/* Bytes of an arena, from its start, that calls of a stream touch; 0: none. */
int64_t pack_called_bytes(const struct plan *plan, int stream, int buffer);

#endif
