/* Which calls are one. */
#include "driver/lockstep_rank.h"

int lockstep_stream_of(const struct lockstep_rank *rank, enum axis axis, int direction)
{
    for (int i = 0; i < rank->plan->n_channels; i++)
        if (rank->plan->channel[i].axis == axis && rank->plan->channel[i].direction == direction)
            return 1 + i;
    return -1;
}

struct group lockstep_members(const struct lockstep_rank *rank, const struct op *op)
{
    const struct coll *coll = &op->shape.coll.coll;
    struct group group = rank->plan->layout.group[op->shape.coll.axis];
    if (coll->kind != COLL_SEND && coll->kind != COLL_RECV)
        return group;
    int me = group_rank(&group, group.me), peer = group_rank(&group, coll->peer);
    int from = coll->kind == COLL_SEND ? me : peer;
    return (struct group){.first = from, .stride = me + peer - 2 * from, .size = 2};
}

/* What one sends is what the other receives. */
bool lockstep_same_parts(const struct coll *mine, int me, const struct coll *theirs, int other)
{
    return mine->send[other] == theirs->recv[me] && mine->recv[other] == theirs->send[me];
}

bool lockstep_same_call(const struct lockstep_rank *a, const struct op *x,
                        const struct lockstep_rank *b, const struct op *y)
{
    const struct coll *mine = &x->shape.coll.coll, *theirs = &y->shape.coll.coll;
    struct group p = lockstep_members(a, x), q = lockstep_members(b, y);
    bool halves = mine->kind == COLL_SEND || mine->kind == COLL_RECV;
    bool kinds = halves ? mine->kind + theirs->kind == COLL_SEND + COLL_RECV
                        : mine->kind == theirs->kind && mine->peer == theirs->peer;
    if (kinds && mine->kind == COLL_ALL_TO_ALL_V && !x->shape.coll.counted &&
        !lockstep_same_parts(mine, p.me, theirs, q.me))
        return false;
    return kinds && mine->dtype == theirs->dtype && mine->count == theirs->count &&
           p.first == q.first && p.stride == q.stride && p.size == q.size;
}
