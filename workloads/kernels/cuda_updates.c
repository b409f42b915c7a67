/* Which updates of parameters go in one launch. */
#include "workloads/kernels/cuda.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"

/*
 * Ops of AdamW that follow each other on the compute stream, of one kind of tensors, with nobody on
 * another stream waiting for one that is not the last: the last of them does them all. So whatever
 * happens before each op (a wait, a save that must copy first) has happened before any is updated.
 */
struct updates {
    int n;                 /* 0: this op is no last one */
    int64_t first, chunks; /* in the table */
};

struct cuda_updates {
    struct updates *of; /* [n_ops of the plan] */
    bool *done;         /* [n_ops] by a later op */
    struct cuda_update *table;
    int64_t n;
};

static bool same_kind(const struct op *a, const struct op *b)
{
    struct shape_optimizer x = a->shape.optimizer, y = b->shape.optimizer;
    if (b->kind != OP_ADAMW || b->stream != a->stream || b->dtype != a->dtype || a->awaited)
        return false;
    for (int i = 0; i < 6; i++)
        if (a->t[i].buffer != b->t[i].buffer)
            return false;
    return x.gradient == y.gradient && x.beta1 == y.beta1 && x.beta2 == y.beta2 &&
           x.epsilon == y.epsilon;
}

/* The op behind `index` that could share its launch, -1; ops of other streams lie between. */
static int next_of(const struct plan *plan, int index)
{
    for (int i = index + 1; i < plan->n_ops; i++)
        if (plan->ops[i].stream == plan->ops[index].stream)
            return same_kind(&plan->ops[index], &plan->ops[i]) ? i : -1;
    return -1;
}

static struct cuda_update update_of(const struct op *op, int64_t first_chunk)
{
    struct cuda_update u = {.n = op->shape.optimizer.n,
                            .first_chunk = first_chunk,
                            .weight_decay = op->shape.optimizer.weight_decay};
    for (int i = 0; i < 6; i++)
        u.offset[i] = op->t[i].offset;
    return u;
}

static void find_groups(struct cuda_updates *u, const struct plan *plan, bool alone,
                        struct cuda_update *table)
{
    int64_t chunks = 0;
    int begun = 0;
    for (int i = 0; i < plan->n_ops; i++) {
        const struct op *op = &plan->ops[i];
        if (op->kind != OP_ADAMW)
            continue;
        table[u->n++] = update_of(op, chunks);
        chunks += (op->shape.optimizer.n + CUDA_UPDATE_CHUNK - 1) / CUDA_UPDATE_CHUNK;
        begun++;
        u->done[i] = !alone && next_of(plan, i) >= 0;
        if (u->done[i])
            continue;
        u->of[i] = (struct updates){begun, u->n - begun, chunks};
        chunks = 0;
        begun = 0;
    }
}

int cuda_updates_open(struct kernel_context *context)
{
    struct cuda_state *state = cuda_state(context);
    const struct plan *plan = state->plan;
    struct cuda_updates *u = state->updates = must_alloc(1, sizeof *u);
    struct cuda_update *table = must_alloc((size_t)plan->n_ops + 1, sizeof *table);
    void *memory = NULL;
    int rc = 0;
    u->of = must_alloc((size_t)plan->n_ops + 1, sizeof *u->of);
    u->done = must_alloc((size_t)plan->n_ops + 1, sizeof *u->done);
    find_groups(u, plan, context->alone, table);
    if (u->n > 0)
        rc = cuda_upload(state, table, u->n * (int64_t)sizeof *table, &memory);
    u->table = memory;
    free(table);
    return rc;
}

void cuda_updates_close(struct cuda_state *state)
{
    struct cuda_updates *u = state->updates;
    if (u == NULL)
        return;
    cuda_drop(state, u->table, u->n * (int64_t)sizeof *u->table);
    free(u->of);
    free(u->done);
    free(u);
    state->updates = NULL;
}

void cuda_adamw(const struct op *op, struct kernel_context *context, void *native)
{
    const struct cuda_state *state = cuda_state(context);
    const struct cuda_updates *u = state->updates;
    int index = fuse_index(state->plan, op);
    if (index < 0)
        BUG("an update that the plan of open() does not have");
    if (!u->done[index])
        cuda_update_all(op, u->table + u->of[index].first, u->of[index].n, u->of[index].chunks,
                        context, native);
}
