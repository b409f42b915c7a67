/*
 * plan_check_packed: of the plans of all ranks, one of each kind is packed and proved (pack.h,
 * plan_check_share.h); the others are of that many bytes. Plans are of a kind when all that packing looks
 * at is the same: where ops run, what they wait for, which bytes they touch; but for the own part of what is
 * gathered, which lies in the bytes of the whole. Shared by plan_check*.c alone.
 */
#ifndef WORKLOADS_PLAN_CHECK_PACKED_H
#define WORKLOADS_PLAN_CHECK_PACKED_H

#include "workloads/plan_check.h"

struct packed_kind {
    uint64_t hash;
    int64_t bytes[PLAN_BUFFERS];
    struct pack_found found;
};
struct packed {
    int n;
    struct packed_kind *kind;
};

/* Make plan.bytes those of the packed plan; *found is of `packed`, until another plan comes. FAIL_WRONG
 * when the proof fails. */
int packed_plan(struct packed *packed, struct plan *plan, const struct pack_found **found);
void packed_release(struct packed *packed);

#endif
