/* The calls of a layer of experts, and what they wait for. */
#include "workloads/expert.h"

/* The parts of a call are counted in every step. */
static int counted(struct build *b, int call, const struct expert_exchange *e, bool back)
{
    struct shape_coll *shape = &b->plan->ops[call].shape.coll;
    shape->counted = true;
    shape->most[0] = (back ? e->received : e->sent) * b->h;
    shape->most[1] = (back ? e->sent : e->received) * b->h;
    return call;
}

int expert_send(struct build *b, struct tensor from, struct tensor to, bool back)
{
    const struct expert_exchange *e = expert_exchange_of(b);
    struct build_call call = {.kind = e->even ? COLL_ALL_TO_ALL : COLL_ALL_TO_ALL_V,
                              .axis = AXIS_EP,
                              .dtype = b->plan->dtype,
                              .count = e->count,
                              .phase = b->phase,
                              .send = from,
                              .receive = to,
                              .send_parts = back ? e->receive : e->send,
                              .receive_parts = back ? e->send : e->receive};
    if (b->expert->ep == 1)
        return -1;
    int index = build_collective(b, &call, b->last);
    index = e->now == NULL ? index : counted(b, index, e, back);
    if (!b->policy->overlap_expert)
        build_await(b, index);
    return index;
}

int expert_send_counts(struct build *b)
{
    const struct expert_exchange *e = expert_exchange_of(b);
    struct build_call call = {.kind = COLL_ALL_TO_ALL,
                              .axis = AXIS_EP,
                              .dtype = DTYPE_I32,
                              .count = b->expert->local,
                              .phase = b->phase,
                              .send = e->counts,
                              .receive = e->arrived};
    return e->now != NULL && b->expert->ep > 1 ? build_collective(b, &call, b->last) : -1;
}

void expert_await_counts(struct build *b, int sent)
{
    struct expert *x = b->expert;
    const struct expert_exchange *e = expert_exchange_of(b);
    struct op op = build_op(b, OP_COUNTS);
    if (e->now == NULL)
        return;
    op.t[0] = e->counts;
    op.t[1] = e->arrived;
    op.shape.counts = (struct shape_counts){.ranks = x->ep,
                                            .me = x->ep_me,
                                            .experts = x->n,
                                            .width = b->h,
                                            .most = e->received,
                                            .send = e->send,
                                            .receive = e->receive,
                                            .rows = e->rows,
                                            .now = e->now};
    build_await(b, sent);
    build_add(b, &op);
}
