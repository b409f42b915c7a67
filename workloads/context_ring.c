#include "workloads/context.h"

static const struct tensor no_tensor;

void context_ring_arenas(struct build *b)
{
    struct build_context *c = &b->cp;
    int n = c->n > 2 ? 2 : 1;
    c->own = build_take(b, BUFFER_WIRE, context_kv(b));
    c->own_grad = build_take(b, BUFFER_TEMPORARY, context_kv(b));
    for (int i = 0; i < n; i++) {
        c->kv[i] = build_take(b, BUFFER_WIRE, context_kv(b));
        c->grad[i] = build_take(b, BUFFER_WIRE, context_kv(b));
        c->arrived[i] = build_take(b, BUFFER_WIRE, context_kv(b));
    }
    c->part = build_take(b, BUFFER_TEMPORARY, b->rows * b->heads * b->head);
    c->part_lse = build_take_wide(b, BUFFER_TEMPORARY, b->rows * b->heads);
}

/* Queries and keys of step s, when the keys of the rank s before this one are here. */
static struct shape_attention step_shape(const struct build *b, int s)
{
    struct shape_attention shape = context_shape(b, b->cp.sequence);
    int64_t chunk = context_chunk(b);
    shape.causal = s == 0;
    if (s > b->cp.me) { /* of a later rank */
        shape.q_first = chunk;
        shape.q_rows = chunk;
    } else if (s > 0) {
        shape.kv_rows = chunk;
    }
    return shape;
}

/* The keys of step s. */
static struct tensor keys(const struct build *b, int s)
{
    return s == 0 ? b->cp.own : b->cp.kv[(s - 1) & 1];
}

/*
 * Fetch the keys of step s: from where this rank has those of the step before, to the next rank. They
 * take the place of those of step s - 2, which were read by b->last at the latest; in step 2 of
 * those of an earlier round, which fetching in step 1 waited for.
 */
static int fetch(struct build *b, int s)
{
    return context_call(b, COLL_SENDRECV, CONTEXT_FORWARD, context_kv(b), keys(b, s - 1),
                        keys(b, s), s == 2 ? -1 : b->last);
}

/* ---- forward ---- */

static void merge(struct build *b, struct shape_attention shape, const struct layer_activations *a)
{
    struct op op = build_op(b, OP_ATTENTION_MERGE);
    op.t[0] = b->cp.part;
    op.t[1] = b->cp.part_lse;
    op.t[2] = a->attention;
    op.t[3] = a->lse;
    op.shape.attention = shape;
    build_add(b, &op);
}

void context_ring(struct build *b, const struct layer_activations *a)
{
    context_pack(b, a->qkv, b->cp.own);
    for (int s = 0, fetched = -1; s < b->cp.n; s++) {
        struct shape_attention shape = step_shape(b, s);
        build_await(b, fetched);
        if (s + 1 < b->cp.n) /* on the stream that brought what it sends on */
            fetched = fetch(b, s + 1);
        if (s == 0) {
            context_block(b, shape, a->qkv, keys(b, s), a->attention, a->lse);
            continue;
        }
        context_block(b, shape, a->qkv, keys(b, s), b->cp.part, b->cp.part_lse);
        merge(b, shape, a);
    }
}

/* ---- backward ---- */

void context_ring_ahead(struct build *b, const struct layer_activations *a)
{
    context_pack(b, a->qkv, b->cp.own);
    b->cp.ahead = fetch(b, 1);
}

static void add(struct build *b, struct tensor sum, struct tensor more)
{
    build_vector_op(b, OP_ADD, sum, more, sum, context_kv(b));
}

static int64_t words(const struct build *b, int64_t elements)
{
    return (elements * build_element(b) + 3) / 4;
}

/* dk and dv of step s: what this rank adds, and what came along with the keys. Sends them on. */
static int step_grad(struct build *b, const struct layer_activations *a, int s, int came)
{
    struct shape_attention shape = step_shape(b, s);
    struct tensor grad = b->cp.grad[(s - 1) & 1], arrived = b->cp.arrived[(s - 1) & 1];
    shape.add_q = true;
    if (shape.kv_rows < shape.kv_sequence)
        build_vector_op(b, OP_ZERO, grad, no_tensor, no_tensor, words(b, context_kv(b)));
    context_block_grad(b, shape, a, keys(b, s), grad);
    if (came >= 0) {
        build_await(b, came);
        add(b, grad, b->cp.arrived[s & 1]);
    }
    return context_call(b, COLL_SENDRECV, CONTEXT_GRADIENTS, context_kv(b), grad, arrived, b->last);
}

/* The own block comes last, beside the way home of what others made for these keys. */
void context_ring_grad(struct build *b, const struct layer_activations *a)
{
    int fetched = b->cp.ahead, came = -1, n = b->cp.n;
    struct shape_attention own = step_shape(b, 0);
    int64_t qkv = b->rows * (b->heads + 2 * b->kv_heads) * b->head;
    build_vector_op(b, OP_ZERO, b->wide, no_tensor, no_tensor, words(b, qkv));
    for (int s = 1; s < n; s++) {
        build_await(b, fetched);
        if (s + 1 < n)
            fetched = fetch(b, s + 1);
        came = step_grad(b, a, s, came);
    }
    own.add_q = true;
    context_block_grad(b, own, a, b->cp.own, b->cp.own_grad);
    build_await(b, came);
    add(b, b->cp.own_grad, b->cp.arrived[(n - 2) & 1]);
    context_unpack(b, b->cp.own_grad, b->wide);
}
