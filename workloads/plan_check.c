#include "workloads/plan_check.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "workloads/plan_check_packed.h"
#include "workloads/plan_check_pairs.h"
#include "workloads/plan_check_play.h"

int64_t plan_check_bytes(const struct plan *plan)
{
    int64_t bytes = 0;
    for (int b = 1; b < PLAN_BUFFERS; b++)
        bytes += plan->bytes[b];
    return bytes;
}

/* ---- classes ---- */

/* The calls of a plan, into play->calls behind those that classes keep; their hash. */
static uint64_t list_calls(struct play *play, const struct plan *plan, int64_t *n)
{
    uint64_t hash = 1;
    *n = 0;
    for (int i = 0; i < plan->n_ops; i++) {
        const struct op *op = &plan->ops[i];
        if (op->kind != OP_COLLECTIVE)
            continue;
        if (play->n_calls + *n == play->calls_capacity) {
            play->calls_capacity = play->calls_capacity ? 2 * play->calls_capacity : 4096;
            play->calls = must_grow(play->calls, (size_t)play->calls_capacity, sizeof *play->calls);
        }
        play->calls[play->n_calls + (*n)++] = (struct play_call){op->shape.coll, i};
        const struct coll *coll = &op->shape.coll.coll;
        uint64_t small = (uint64_t)coll->kind | (uint64_t)coll->dtype << 8 |
                         (uint64_t)op->shape.coll.axis << 16 |
                         (uint64_t)op->shape.coll.direction << 24 |
                         (uint64_t)(uint32_t)coll->peer << 32;
        hash = play_mix(play_mix(play_mix(hash, small), (uint64_t)coll->count), (uint64_t)i);
    }
    return hash;
}

static int class_of(struct play *play, const struct plan *plan)
{
    int64_t n;
    uint64_t hash = list_calls(play, plan, &n);
    for (int c = 0; c < play->n_classes; c++)
        if (play->classes[c].hash == hash && play->classes[c].n == n)
            return c;
    play->classes = must_grow(play->classes, (size_t)play->n_classes + 1, sizeof *play->classes);
    play->classes[play->n_classes] = (struct play_class){hash, play->n_calls, n};
    play->n_calls += n;
    return play->n_classes++;
}

/* ---- all-to-all-v: tables live no longer than their plan ---- */

/* Of call `n` of its axis: what this rank sends to each member counts up, what it receives down, under
 * a number of its own; so a group whose members agree comes to 0. */
static void add_parts(uint64_t *sums, const struct shape_coll *call, const struct group *group,
                      uint64_t n)
{
    uint64_t *sum = &sums[(size_t)group->first * AXIS_COUNT + (size_t)call->axis];
    uint64_t me = (uint64_t)group->me;
    for (int i = 0; i < group->size; i++) {
        uint64_t other = (uint64_t)i;
        *sum +=
            play_mix(play_mix(play_mix(play_mix(1, n), me), other), (uint64_t)call->coll.send[i]);
        *sum -=
            play_mix(play_mix(play_mix(play_mix(1, n), other), me), (uint64_t)call->coll.recv[i]);
    }
}

static void add_plan_parts(uint64_t *sums, const struct plan *plan)
{
    uint64_t n[AXIS_COUNT] = {0};
    for (int i = 0; i < plan->n_ops; i++) {
        const struct shape_coll *call = &plan->ops[i].shape.coll;
        if (plan->ops[i].kind == OP_COLLECTIVE && call->coll.kind == COLL_ALL_TO_ALL_V)
            add_parts(sums, call, &plan->layout.group[call->axis], n[call->axis]++);
    }
}

static int check_parts(const struct play *play, const uint64_t *sums)
{
    for (int r = 0; r < play->n_ranks; r++)
        for (int axis = 0; axis < AXIS_COUNT; axis++)
            if (sums[(size_t)r * AXIS_COUNT + (size_t)axis] != 0)
                return fail(FAIL_WRONG,
                            "check: members of the %s group from rank %d send each other other "
                            "parts in an all-to-all-v than they expect",
                            axis_name(axis), r);
    return 0;
}

/* ---- sums ---- */

static void add_plan(struct plan_check *out, const struct plan *plan, int rank,
                     const struct pack_found *found)
{
    int64_t bytes = plan_check_bytes(plan);
    if (rank == 0 || bytes > out->most_bytes) {
        out->most_rank = rank;
        out->most_bytes = bytes;
        memcpy(out->bytes, plan->bytes, sizeof out->bytes);
        out->pack = found != NULL ? *found : (struct pack_found){.op = -1};
    }
    if (rank == 0 || bytes < out->least_bytes) {
        out->least_rank = rank;
        out->least_bytes = bytes;
    }
    out->ops += plan->n_ops;
    out->model_flops += plan->totals.model_flops;
    out->hardware_flops += plan->totals.hardware_flops;
    traffic_of_plan(plan, out->traffic);
}

static int read_plans(struct play *play, struct plan_check *out, plan_check_make *make, void *arg,
                      uint64_t *parts, uint64_t *pairs)
{
    struct packed packed = {0};
    int rc = 0;
    for (int r = 0; r < play->n_ranks; r++) {
        struct plan plan;
        rc = make(arg, r, &plan);
        if (rc)
            break;
        struct play_rank *rank = &play->ranks[r];
        rank->class = class_of(play, &plan);
        memcpy(rank->group, plan.layout.group, sizeof rank->group);
        int64_t n = play->classes[rank->class].n;
        out->calls += n;
        out->longest = n > out->longest ? n : out->longest;
        const struct pack_found *found = NULL;
        if (plan.pack_later)
            rc = packed_plan(&packed, &plan, &found);
        add_plan(out, &plan, r, found);
        add_plan_parts(parts, &plan);
        pairs_add(pairs, &plan);
        plan_release(&plan);
        if (rc)
            break;
    }
    packed_release(&packed);
    return rc;
}

int plan_check_all(struct plan_check *out, int n_ranks, plan_check_make *make, void *arg)
{
    struct play play = {.n_ranks = n_ranks};
    uint64_t *parts = NULL, *pairs = NULL;
    int rc = 0;
    memset(out, 0, sizeof *out);
    play.ranks = must_alloc((size_t)n_ranks, sizeof *play.ranks);
    parts = must_alloc((size_t)n_ranks * AXIS_COUNT, sizeof *parts);
    pairs = must_alloc((size_t)n_ranks * AXIS_COUNT, sizeof *pairs);
    TRY(read_plans(&play, out, make, arg, parts, pairs));
    out->n_ranks = n_ranks;
    out->n_classes = play.n_classes;
    TRY(play_groups(&play));
    TRY(play_calls(&play));
    TRY(check_parts(&play, parts));
    TRY(pairs_check(pairs, n_ranks, make, arg));
out:
    free(parts);
    free(pairs);
    free(play.ranks);
    free(play.classes);
    free(play.calls);
    if (rc)
        memset(out, 0, sizeof *out);
    return rc;
}
