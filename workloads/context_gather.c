#include "workloads/context.h"

static const struct tensor no_tensor;

static int64_t all_kv(const struct build *b)
{
    return b->cp.n * context_kv(b);
}

void context_gather_arenas(struct build *b)
{
    struct build_context *c = &b->cp;
    c->own = build_take(b, BUFFER_WIRE, context_kv(b));
    c->own_grad = build_take(b, BUFFER_WIRE, context_kv(b));
    c->gathered = build_take(b, BUFFER_WIRE, all_kv(b));
    c->all = build_take(b, BUFFER_TEMPORARY, all_kv(b));
    c->all_grad = build_take(b, BUFFER_TEMPORARY, all_kv(b));
}

/*
 * The chunks of `half` (0: early, 1: late) of all ranks, from the order in which ranks send them,
 * [rank][sample][half], to that of positions, [sample][2 cp], or back. Late ones lie in reverse.
 */
static void reorder(struct build *b, int half, bool back)
{
    int64_t chunk = context_chunk(b) * context_kv_row(b), samples = b->policy->micro_batch;
    int64_t by_rank[2] = {2 * samples * chunk, 2 * chunk}, n = b->cp.n, size = build_element(b);
    int64_t by_position[2] = {chunk, 2 * n * chunk};
    struct tensor ranks = build_at(b->cp.gathered, half * chunk, size);
    struct tensor positions = build_at(back ? b->cp.all_grad : b->cp.all, half * n * chunk, size);
    struct shape_move shape = {.n = {n, samples}, .width = chunk, .reversed = half == 1};
    for (int i = 0; i < 2; i++) {
        shape.from[i] = back ? by_position[i] : by_rank[i];
        shape.to[i] = back ? by_rank[i] : by_position[i];
    }
    context_move(b, back ? positions : ranks, back ? ranks : positions, shape);
}

static int fetch(struct build *b, const struct layer_activations *a)
{
    context_pack(b, a->qkv, b->cp.own);
    return context_call(b, COLL_ALL_GATHER, CONTEXT_FORWARD, context_kv(b), b->cp.own,
                        b->cp.gathered, b->last);
}

static void arrange(struct build *b, int fetched)
{
    build_await(b, fetched);
    reorder(b, 0, false);
    reorder(b, 1, false);
}

/* Queries of the early or the late chunk of this rank, and all keys up to the last of them. */
static struct shape_attention half_shape(const struct build *b, int half)
{
    struct shape_attention shape = context_shape(b, b->model->sequence);
    shape.q_first = half * context_chunk(b);
    shape.q_rows = context_chunk(b);
    shape.kv_rows = b->cp.cut.first[half] + context_chunk(b);
    shape.causal = true;
    return shape;
}

void context_gather(struct build *b, const struct layer_activations *a)
{
    arrange(b, fetch(b, a));
    for (int half = 0; half < 2; half++)
        context_block(b, half_shape(b, half), a->qkv, b->cp.all, a->attention, a->lse);
}

void context_gather_ahead(struct build *b, const struct layer_activations *a)
{
    b->cp.ahead = fetch(b, a);
}

void context_gather_grad(struct build *b, const struct layer_activations *a)
{
    arrange(b, b->cp.ahead);
    build_vector_op(b, OP_ZERO, b->cp.all_grad, no_tensor, no_tensor,
                    (all_kv(b) * build_element(b) + 3) / 4);
    for (int half = 0; half < 2; half++) {
        struct shape_attention shape = half_shape(b, half);
        shape.add_kv = true;
        context_block_grad(b, shape, a, b->cp.all, b->cp.all_grad);
    }
    reorder(b, 0, true);
    reorder(b, 1, true);
    build_await(b, context_call(b, COLL_REDUCE_SCATTER, CONTEXT_GRADIENTS, context_kv(b),
                                b->cp.gathered, b->cp.own_grad, b->last));
    context_unpack(b, b->cp.own_grad, b->wide);
}
