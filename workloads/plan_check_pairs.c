#include "workloads/plan_check_pairs.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "workloads/plan_check_play.h"

enum { DIRECTIONS = 3, WAYS = 2 }; /* ways: out, in */

static bool is_transfer(const struct op *op, int axis)
{
    enum coll_kind kind = op->shape.coll.coll.kind;
    return op->kind == OP_COLLECTIVE && (int)op->shape.coll.axis == axis &&
           (kind == COLL_SEND || kind == COLL_RECV);
}

static uint64_t bytes_of(const struct op *op)
{
    const struct coll *coll = &op->shape.coll.coll;
    return (uint64_t)coll->count * dtype_size((int)coll->dtype);
}

/* What a transfer is, for both ends; `n` counts those between the two in its direction. */
static uint64_t word_of(const struct op *op, int from, int to, uint64_t n)
{
    uint64_t ends = (uint64_t)(uint32_t)from << 32 | (uint32_t)to;
    uint64_t what = (uint64_t)(uint32_t)op->micro << 32 | (uint32_t)op->layer;
    uint64_t way = (uint64_t)op->shape.coll.direction << 8 | (uint64_t)op->phase;
    return play_mix(play_mix(play_mix(play_mix(play_mix(1, ends), n), what), way), bytes_of(op));
}

static void add_axis(uint64_t *sum, const struct plan *plan, int axis)
{
    const struct group *group = &plan->layout.group[axis];
    uint64_t *n = must_alloc((size_t)group->size * DIRECTIONS * WAYS, sizeof *n);
    for (int i = 0; i < plan->n_ops; i++) {
        const struct op *op = &plan->ops[i];
        if (!is_transfer(op, axis))
            continue;
        int peer = op->shape.coll.coll.peer;
        bool in = op->shape.coll.coll.kind == COLL_RECV;
        uint64_t *count = &n[(peer * DIRECTIONS + op->shape.coll.direction) * WAYS + in];
        if (in)
            *sum -= word_of(op, peer, group->me, (*count)++);
        else
            *sum += word_of(op, group->me, peer, (*count)++);
    }
    free(n);
}

void pairs_add(uint64_t *sums, const struct plan *plan)
{
    for (int axis = 0; axis < AXIS_COUNT; axis++)
        if (plan->layout.group[axis].size > 1 && plan->totals.calls[axis] > 0)
            add_axis(&sums[(size_t)plan->layout.group[axis].first * AXIS_COUNT + (size_t)axis],
                     plan, axis);
}

/* ---- in words ---- */

/* The next transfer behind *at to (or from) a member in a direction; NULL: there is none. */
static const struct op *next(const struct plan *plan, int axis, int direction, enum coll_kind kind,
                             int peer, int *at)
{
    for (; *at < plan->n_ops; ++*at) {
        const struct op *op = &plan->ops[*at];
        if (is_transfer(op, axis) && op->shape.coll.direction == direction &&
            op->shape.coll.coll.kind == kind && op->shape.coll.coll.peer == peer)
            return &plan->ops[(*at)++];
    }
    return NULL;
}

static void name(const struct op *op, char *text, size_t size)
{
    if (op == NULL)
        snprintf(text, size, "nothing");
    else
        snprintf(text, size, "micro-batch %d before layer %d, %s, %llu B", op->micro, op->layer,
                 phase_name((int)op->phase), (unsigned long long)bytes_of(op));
}

static int compare(const struct plan *from, const struct plan *to, int axis, int direction)
{
    const struct group *out = &from->layout.group[axis], *in = &to->layout.group[axis];
    int at = 0, there = 0;
    for (int n = 1;; n++) {
        const struct op *a = next(from, axis, direction, COLL_SEND, in->me, &at);
        const struct op *b = next(to, axis, direction, COLL_RECV, out->me, &there);
        char sent[128], wanted[128];
        if (a == NULL && b == NULL)
            return 0;
        if (a != NULL && b != NULL &&
            word_of(a, out->me, in->me, 0) == word_of(b, out->me, in->me, 0))
            continue;
        name(a, sent, sizeof sent);
        name(b, wanted, sizeof wanted);
        return fail(FAIL_WRONG,
                    "check: transfer %d from rank %d to rank %d on %s, direction %d, is %s, where "
                    "the receiver's order has %s: they meet by order alone",
                    n, from->layout.rank, to->layout.rank, axis_name(axis), direction, sent,
                    wanted);
    }
}

/* The members of the group that does not agree, each against each. */
static int explain(int first, int axis, plan_check_make *make, void *arg)
{
    struct plan plan = {0};
    int rc = make(arg, first, &plan);
    if (rc)
        return rc;
    struct group group = plan.layout.group[axis];
    plan_release(&plan);
    struct plan *plans = must_alloc((size_t)group.size, sizeof *plans);
    for (int i = 0; rc == 0 && i < group.size; i++)
        rc = make(arg, group_rank(&group, i), &plans[i]);
    for (int i = 0; rc == 0 && i < group.size * group.size * DIRECTIONS; i++)
        rc = compare(&plans[i / DIRECTIONS / group.size], &plans[i / DIRECTIONS % group.size], axis,
                     i % DIRECTIONS);
    for (int i = 0; i < group.size; i++)
        plan_release(&plans[i]);
    free(plans);
    if (rc == 0)
        BUG("transfers of the %s group from rank %d differ nowhere", axis_name(axis), first);
    return rc;
}

int pairs_check(const uint64_t *sums, int n_ranks, plan_check_make *make, void *arg)
{
    for (int r = 0; r < n_ranks; r++)
        for (int axis = 0; axis < AXIS_COUNT; axis++)
            if (sums[(size_t)r * AXIS_COUNT + (size_t)axis] != 0)
                return explain(r, axis, make, arg);
    return 0;
}
