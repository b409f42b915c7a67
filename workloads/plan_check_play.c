#include "workloads/plan_check_play.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"

enum { DIRECTIONS = 3, CHANNELS = AXIS_COUNT * DIRECTIONS };

/* Those of one group that have come to their next call. */
struct gathering {
    int n, rank; /* how many; the first of them */
};

static const struct play_call *next_call(const struct play *play, int rank)
{
    const struct play_rank *r = &play->ranks[rank];
    const struct play_class *class = &play->classes[r->class];
    return r->done < class->n ? &play->calls[class->first + r->done] : NULL;
}

/* "its op 17, all-gather of 64 bf16 on shard". */
static void name_call(const struct play *play, int rank, char *text, size_t size)
{
    const struct play_call *call = next_call(play, rank);
    if (!call) {
        snprintf(text, size, "the end of its plan");
        return;
    }
    const struct coll *coll = &call->shape.coll;
    snprintf(text, size, "its op %d, %s of %lld %s on %s", call->op, coll_name((int)coll->kind),
             (long long)coll->count, dtype_name((int)coll->dtype),
             axis_name((int)call->shape.axis));
}

/* ---- groups ---- */

static bool is_used(const struct play *play, int axis)
{
    for (int64_t i = 0; i < play->n_calls; i++)
        if ((int)play->calls[i].shape.axis == axis)
            return true;
    return false;
}

static int check_group(const struct play *play, int rank, int axis)
{
    const struct group *mine = &play->ranks[rank].group[axis];
    for (int i = 0; i < mine->size; i++) {
        int member = group_rank(mine, i);
        const struct group *theirs =
            member >= 0 && member < play->n_ranks ? &play->ranks[member].group[axis] : NULL;
        if (!theirs || theirs->first != mine->first || theirs->stride != mine->stride ||
            theirs->size != mine->size || theirs->me != i)
            return fail(FAIL_WRONG,
                        "check: rank %d takes rank %d for member %d of its %s group of %d from "
                        "rank %d, and that rank does not",
                        rank, member, i, axis_name(axis), mine->size, mine->first);
    }
    return 0;
}

int play_groups(const struct play *play)
{
    int rc = 0;
    for (int axis = 0; axis < AXIS_COUNT; axis++) {
        if (!is_used(play, axis))
            continue;
        for (int r = 0; r < play->n_ranks; r++) {
            const struct group *group = &play->ranks[r].group[axis];
            if (group->me == 0 || group_rank(group, group->me) != r)
                TRY(check_group(play, r, axis));
        }
    }
out:
    return rc;
}

/* ---- calls ---- */

static bool is_transfer(const struct play_call *call)
{
    return call->shape.coll.kind == COLL_SEND || call->shape.coll.kind == COLL_RECV;
}

static int peer_of(const struct play *play, int rank, const struct play_call *call)
{
    return group_rank(&play->ranks[rank].group[call->shape.axis], call->shape.coll.peer);
}

static bool same_data(const struct play_call *a, const struct play_call *b)
{
    return a->shape.coll.dtype == b->shape.coll.dtype && a->shape.coll.count == b->shape.coll.count;
}

static int mismatch(const struct play *play, int a, int b)
{
    char here[128], there[128];
    name_call(play, a, here, sizeof here);
    name_call(play, b, there, sizeof there);
    return fail(FAIL_WRONG, "check: rank %d comes with %s, where rank %d of its group has %s", a,
                here, b, there);
}

/* Ranks to look at: each is in the list at most once. */
struct queue {
    int *rank;
    int n;
};

static void advance(struct play *play, struct queue *queue, int rank)
{
    play->ranks[rank].done++;
    play->ranks[rank].has_come = false;
    queue->rank[queue->n++] = rank;
}

static int come_to_transfer(struct play *play, struct queue *queue, int rank)
{
    const struct play_call *mine = next_call(play, rank);
    int peer = peer_of(play, rank, mine);
    const struct play_call *theirs = next_call(play, peer);
    if (!play->ranks[peer].has_come || !theirs || !is_transfer(theirs) ||
        theirs->shape.axis != mine->shape.axis ||
        theirs->shape.direction != mine->shape.direction || peer_of(play, peer, theirs) != rank)
        return 0;
    if (theirs->shape.coll.kind == mine->shape.coll.kind || !same_data(mine, theirs))
        return mismatch(play, rank, peer);
    advance(play, queue, rank);
    advance(play, queue, peer);
    return 0;
}

static int come_to_collective(struct play *play, struct queue *queue, struct gathering *gatherings,
                              int rank)
{
    const struct play_call *mine = next_call(play, rank);
    const struct group *group = &play->ranks[rank].group[mine->shape.axis];
    size_t channel = (size_t)mine->shape.axis * DIRECTIONS + (size_t)mine->shape.direction;
    struct gathering *here = &gatherings[(size_t)group->first * CHANNELS + channel];
    if (here->n++ == 0) {
        here->rank = rank;
    } else {
        const struct play_call *theirs = next_call(play, here->rank);
        if (theirs->shape.coll.kind != mine->shape.coll.kind || !same_data(mine, theirs) ||
            theirs->shape.coll.peer != mine->shape.coll.peer)
            return mismatch(play, rank, here->rank);
    }
    if (here->n < group->size)
        return 0;
    here->n = 0;
    for (int i = 0; i < group->size; i++)
        advance(play, queue, group_rank(group, i));
    return 0;
}

/* A member of the group of a waiting rank's call that has not come to it. */
static int missing(const struct play *play, int rank)
{
    const struct play_call *mine = next_call(play, rank);
    const struct group *group = &play->ranks[rank].group[mine->shape.axis];
    if (is_transfer(mine))
        return peer_of(play, rank, mine);
    for (int i = 0; i < group->size; i++) {
        int other = group_rank(group, i);
        const struct play_call *theirs = next_call(play, other);
        if (!theirs || theirs->shape.axis != mine->shape.axis ||
            theirs->shape.direction != mine->shape.direction)
            return other;
    }
    return rank;
}

static int stuck(const struct play *play)
{
    char here[128], there[128];
    int rank = 0, other;
    while (!next_call(play, rank))
        rank++;
    for (int i = 0; i < play->n_ranks && next_call(play, rank);
         i++) /* into the ring, if it is one */
        rank = next_call(play, missing(play, rank)) ? missing(play, rank) : rank;
    other = missing(play, rank);
    name_call(play, rank, here, sizeof here);
    name_call(play, other, there, sizeof there);
    return fail(FAIL_WRONG,
                "check: the job would hang where calls run one at a time: rank %d waits in %s for "
                "rank %d, which is at %s",
                rank, here, other, there);
}

int play_calls(struct play *play)
{
    struct queue queue = {.n = play->n_ranks};
    size_t slots = (size_t)play->n_ranks * CHANNELS;
    struct gathering *gatherings = must_alloc(slots, sizeof *gatherings);
    int rc = 0;
    queue.rank = must_alloc((size_t)play->n_ranks, sizeof *queue.rank);
    for (int r = 0; r < play->n_ranks; r++)
        queue.rank[r] = play->n_ranks - 1 - r;
    while (queue.n > 0) {
        int rank = queue.rank[--queue.n];
        const struct play_call *call = next_call(play, rank);
        if (!call)
            continue;
        play->ranks[rank].has_come = true;
        TRY(is_transfer(call) ? come_to_transfer(play, &queue, rank)
                              : come_to_collective(play, &queue, gatherings, rank));
    }
    for (int r = 0; r < play->n_ranks; r++)
        if (next_call(play, r))
            TRY(stuck(play));
out:
    free(queue.rank);
    free(gatherings);
    return rc;
}
