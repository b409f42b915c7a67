/*
 * plan_check_play: the calls of all ranks, played one at a time. Shared by plan_check*.c alone.
 */
#ifndef WORKLOADS_PLAN_CHECK_PLAY_H
#define WORKLOADS_PLAN_CHECK_PLAY_H

#include "workloads/plan.h"

/* One more word into a hash. */
static inline uint64_t play_mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

struct play_call {
    struct shape_coll shape;
    int op; /* index in the plan, for messages */
};

/* Ranks whose plans make the same calls. */
struct play_class {
    uint64_t hash;
    int64_t first, n; /* of play.calls */
};

struct play_rank {
    int class;
    int64_t done;  /* calls that have happened */
    bool has_come; /* stands at its next call, known to its group */
    struct group group[AXIS_COUNT];
};

struct play {
    int n_ranks, n_classes;
    struct play_rank *ranks;    /* [n_ranks] */
    struct play_class *classes; /* [n_classes] */
    int64_t n_calls, calls_capacity;
    struct play_call *calls; /* of all classes */
};

/* Do groups partition the ranks, each member knowing its place? FAIL_WRONG, else 0. */
int play_groups(const struct play *play);

/* Does every call happen? FAIL_WRONG, else 0. */
int play_calls(struct play *play);

#endif
