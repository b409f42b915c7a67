#include "workloads/plan_check_packed.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "workloads/plan_check_share.h"

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

/* What a rank puts where a gather will put it too: another place in the same bytes on each rank. */
static bool is_own_part(const struct op *op, int tensor)
{
    return (op->kind == OP_COLLECTIVE && tensor == 0) || (op->kind == OP_CAST && tensor == 1);
}

static uint64_t hash_plan(const struct plan *plan)
{
    uint64_t hash = mix(1, (uint64_t)plan->n_ops);
    for (int b = 0; b < PLAN_BUFFERS; b++)
        hash = mix(hash, (uint64_t)plan->bytes[b]);
    for (int i = 0; i < plan->n_ops; i++) {
        const struct op *op = &plan->ops[i];
        hash = mix(hash, (uint64_t)op->kind | (uint64_t)op->stream << 8 |
                             (uint64_t)op->n_waits << 16 | (uint64_t)op->with_next << 24);
        for (int w = 0; w < op->n_waits; w++)
            hash = mix(hash, (uint64_t)op->wait[w]);
        for (int t = 0; t < OP_TENSORS; t++)
            if (op->t[t].buffer != BUFFER_NONE && !is_own_part(op, t))
                hash =
                    mix(hash, (uint64_t)op->t[t].offset << 8 | (uint64_t)(op->t[t].buffer * 8 + t));
    }
    return hash;
}

static int add_kind(struct packed *packed, const struct plan *plan, uint64_t hash)
{
    struct plan copy = *plan;
    copy.ops = must_alloc((size_t)plan->n_ops, sizeof *copy.ops);
    memcpy(copy.ops, plan->ops, (size_t)plan->n_ops * sizeof *copy.ops);
    packed->kind = must_grow(packed->kind, (size_t)packed->n + 1, sizeof *packed->kind);
    struct packed_kind *kind = &packed->kind[packed->n++];
    *kind = (struct packed_kind){.hash = hash};
    plan_pack(&copy, &kind->found);
    memcpy(kind->bytes, copy.bytes, sizeof kind->bytes);
    int rc = plan_check_share(plan, &copy);
    free(copy.ops);
    return rc;
}

int packed_plan(struct packed *packed, struct plan *plan, const struct pack_found **found)
{
    uint64_t hash = hash_plan(plan);
    int i = 0, rc = 0;
    while (i < packed->n && packed->kind[i].hash != hash)
        i++;
    if (i == packed->n)
        rc = add_kind(packed, plan, hash);
    memcpy(plan->bytes, packed->kind[i].bytes, sizeof plan->bytes);
    *found = &packed->kind[i].found;
    return rc;
}

void packed_release(struct packed *packed)
{
    free(packed->kind);
    *packed = (struct packed){0};
}
