/*
 * layout_space.h: every layout and policy that a handful of ranks can be given, one after another.
 *
 * Degrees run over all tuples up to the number of ranks; what is legal is what layout_init and
 * transformer_check let pass, and nothing else decides it. What a layout cannot tell apart (a shard
 * stage without shards, chunks without tp, ...) is taken once. Choices that stand beside all others
 * (where the ranks are, the order of axes, a stream for batches, who waits first) rotate.
 */
#ifndef TESTS_LAYOUT_SPACE_H
#define TESTS_LAYOUT_SPACE_H

#include "workloads/transformer.h"

struct space_point {
    struct degrees degrees;
    struct policy policy;
    int nodes, ranks_per_node;
};

typedef void space_visit(void *arg, const struct space_point *point);

struct space {
    int ranks;
    const struct model *model;
    struct policy base;    /* what does not vary */
    int64_t micro_batches; /* the most */
    space_visit *visit;
    void *arg;
    int64_t tuples, legal_tuples, offered, points; /* counted */
};

static inline bool space_is_legal(const struct space *space, const struct space_point *point)
{
    struct layout layout;
    bool legal =
        layout_init(&layout, point->nodes, point->ranks_per_node, 0, &point->degrees) == 0 &&
        transformer_check(space->model, &layout, &point->policy) == 0;
    fail_clear();
    return legal;
}

static inline void space_give(struct space *space, struct space_point *point)
{
    static const char *const orders[] = {"", "dp-tp-cp-ep-pp", "cp-tp-pp-ep-dp"};
    int64_t i = space->offered++; /* also what is not legal with its turn of the other choices */
    bool splits = space->ranks % 2 == 0 && i / 2 % 2 == 0;
    point->nodes = splits ? 2 : 1;
    point->ranks_per_node = space->ranks / point->nodes;
    snprintf(point->degrees.order, sizeof point->degrees.order, "%s", orders[i % 3]);
    point->policy.copy_stream = i / 4 % 2 != 0;
    point->policy.overlap_context = i / 3 % 2 == 0;
    point->policy.overlap_pipeline = i / 5 % 2 == 0;
    if (point->degrees.cp > 1 && point->degrees.shard > 1)
        point->policy.cp_kind = (enum cp_kind)(i % 3);
    static const enum schedule_kind kinds[] = {SCHEDULE_GPIPE, SCHEDULE_1F1B, SCHEDULE_ZB_H1};
    point->policy.schedule = kinds[i / 2 % 3];
    if (!space_is_legal(space, point))
        return;
    space->points++;
    space->visit(space->arg, point);
}

/* Accumulation, recomputation, overlap of gradients: for every way of splitting. */
static inline void space_common(struct space *space, struct space_point *point)
{
    int64_t batch = space->base.global_batch / point->degrees.dp;
    for (int64_t a = 1; a <= space->micro_batches; a++)
        for (int recompute = RECOMPUTE_NONE; recompute <= RECOMPUTE_FULL; recompute++)
            for (int overlap = 0; overlap < 2; overlap++) {
                point->policy.micro_batch = batch / a;
                point->policy.recompute = (enum recompute)recompute;
                point->policy.recompute_every = 1 + recompute % 2;
                point->policy.overlap_gradients = overlap;
                space_give(space, point);
            }
}

static inline void space_tensor(struct space *space, struct space_point *point)
{
    struct policy *p = &point->policy;
    bool splits = point->degrees.tp > 1;
    for (int rows = 0; rows < (splits ? 2 : 1); rows++)
        for (int overlap = 0; overlap < (splits ? 2 : 1); overlap++)
            for (p->tp_chunks = 1; p->tp_chunks <= (splits ? 2 : 1); p->tp_chunks++) {
                p->sequence_parallel = rows;
                p->overlap_tensor = overlap;
                space_common(space, point);
            }
}

static inline void space_shard(struct space *space, struct space_point *point)
{
    struct policy *p = &point->policy;
    if (point->degrees.shard == 1) {
        space_tensor(space, point);
        return;
    }
    for (p->shard_stage = 1; p->shard_stage <= 3; p->shard_stage++)
        for (int every = p->shard_stage == 1; every < 2; every++)
            for (int reshard = p->shard_stage < 3; reshard < 2; reshard++)
                for (p->fsdp_prefetch = 0; p->fsdp_prefetch <= 2; p->fsdp_prefetch++) {
                    p->reduce_every = every;
                    p->fsdp_reshard = reshard;
                    p->overlap_parameters = p->fsdp_prefetch > 0;
                    space_tensor(space, point);
                }
}

/* How keys are reached; where state is sharded that rotates. */
static inline void space_context(struct space *space, struct space_point *point)
{
    bool all = point->degrees.cp > 1 && point->degrees.shard == 1;
    for (int kind = CP_RING; kind <= (all ? CP_ULYSSES : CP_RING); kind++) {
        point->policy.cp_kind = (enum cp_kind)kind;
        space_shard(space, point);
    }
}

static inline void space_walk(struct space *space)
{
    int n = space->ranks;
    struct space_point point = {.policy = space->base, .nodes = 1, .ranks_per_node = n};
    struct degrees *d = &point.degrees;
    for (d->tp = 1; d->tp <= n; d->tp++)
        for (d->dp = 1; d->dp <= n; d->dp++)
            for (d->shard = 1; d->shard <= n; d->shard++)
                for (d->pp = 1; d->pp <= n; d->pp++)
                    for (d->cp = 1; d->cp <= n; d->cp++)
                        for (d->ep = 1; d->ep <= n; d->ep++) {
                            point.policy = space->base;
                            space->tuples++;
                            point.policy.micro_batch = 1;
                            d->order[0] = '\0';
                            point.nodes = 1;
                            point.ranks_per_node = n;
                            if (!space_is_legal(space, &point))
                                continue;
                            space->legal_tuples++;
                            space_context(space, &point);
                        }
}

#endif
