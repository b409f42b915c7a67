#include "workloads/beside.h"

#include <stdlib.h>

#include "base/err.h"

/* Of each communication stream: the last call that was posted, and the last that was waited for; -1: none. */
struct under_way {
    int posted, awaited;
};

static bool is_long(const struct op *op)
{
    const struct coll *coll = &op->shape.coll.coll;
    return coll->count * (int64_t)dtype_size((int)coll->dtype) > BESIDE_LEAST;
}

static void await(const struct plan *plan, const struct op *op, struct under_way *streams)
{
    for (int w = 0; w < op->n_waits; w++) {
        struct under_way *of = &streams[plan->ops[op->wait[w]].stream];
        if (of->awaited < op->wait[w])
            of->awaited = op->wait[w];
    }
}

void beside_calls(const struct plan *plan, bool *beside)
{
    size_t n_streams = (size_t)plan->n_channels + 2; /* and compute, and copies */
    struct under_way *streams = must_alloc(n_streams, sizeof *streams);
    for (size_t s = 0; s < n_streams; s++)
        streams[s] = (struct under_way){-1, -1};
    for (int i = 0; i < plan->n_ops; i++) {
        const struct op *op = &plan->ops[i];
        beside[i] = false;
        if (op->stream == 0)
            await(plan, op, streams);
        if (op->kind == OP_COLLECTIVE && is_long(op))
            streams[op->stream].posted = i;
        for (int s = 1; s <= plan->n_channels && op->stream == 0; s++)
            beside[i] |= streams[s].posted > streams[s].awaited;
    }
    free(streams);
}
