#include <stdio.h>

#include "base/err.h"
#include "driver/lockstep_rank.h"

/* "op 17 (all-gather of 64 bf16 on shard)", "op 12 (norm of layer 1, forward)". */
static void name_op(const struct lockstep_head *head, char *text, size_t size)
{
    const struct op *op = head->op;
    if (!op)
        snprintf(text, size, "the end of its plan");
    else if (op->kind == OP_COLLECTIVE)
        snprintf(text, size, "op %d (%s of %lld %s on %s) of step %lld", head->index,
                 coll_name((int)op->shape.coll.coll.kind), (long long)op->shape.coll.coll.count,
                 dtype_name((int)op->shape.coll.coll.dtype), axis_name((int)op->shape.coll.axis),
                 (long long)head->step);
    else
        snprintf(text, size, "op %d (%s, layer %d, %s) of step %lld", head->index,
                 op_name((int)op->kind), op->layer, phase_name((int)op->phase),
                 (long long)head->step);
}

int lockstep_mismatch(int rank, const struct lockstep_head *mine, int other,
                      const struct lockstep_head *theirs)
{
    char here[128], there[128];
    name_op(mine, here, sizeof here);
    name_op(theirs, there, sizeof there);
    return fail(FAIL_WRONG, "lockstep: rank %d is at %s, where rank %d, of its group, has %s", rank,
                here, other, there);
}

/* A rank that has ops left, and what the head of its first held-up stream waits for. */
int lockstep_stuck(const struct lockstep *lockstep, int64_t n_steps)
{
    for (int r = 0; r < lockstep->n_ranks; r++)
        for (int s = 0; s < lockstep->rank[r].n_streams; s++) {
            const struct lockstep_rank *rank = &lockstep->rank[r];
            struct lockstep_head head = lockstep_head(rank, s, n_steps);
            int awaited, stream = head.op ? lockstep_waits_for(rank, &head, &awaited) : -1;
            if (stream < 0)
                continue;
            char here[128], there[128];
            struct lockstep_head next = {&rank->plan->ops[awaited], awaited, head.step};
            name_op(&head, here, sizeof here);
            name_op(&next, there, sizeof there);
            return fail(FAIL_WRONG,
                        "lockstep: no rank can go on: rank %d at %s waits for its own %s", r, here,
                        there);
        }
    return fail(FAIL_INTERNAL, "lockstep: no rank can go on, and none waits");
}
