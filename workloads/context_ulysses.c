#include "workloads/context.h"

/*
 * Heads of one rank during attention, and the width of a row of theirs. Where ranks are more than kv
 * heads, `copies` neighbouring ranks have the same one, which their queries read: it goes to each of
 * them, and what comes back is summed.
 */
struct share {
    int64_t q, kv, row;
    int copies;
};

static struct share share_of(const struct build *b)
{
    int copies = b->cp.n > b->kv_heads ? b->cp.n / b->kv_heads : 1;
    int64_t q = (int64_t)b->heads / b->cp.n * b->head,
            kv = (int64_t)b->kv_heads * copies / b->cp.n * b->head;
    return (struct share){q, kv, q + 2 * kv, copies};
}

int64_t context_qkv(const struct build *b)
{
    int64_t own = b->rows * (b->heads + 2 * b->kv_heads) * b->head;
    if (b->cp.n == 1 || b->policy->cp_kind != CP_ULYSSES)
        return own;
    return b->rows * b->cp.n * share_of(b).row;
}

static struct shape_attention all_rows(const struct build *b)
{
    struct shape_attention shape = build_attention_shape(b);
    shape.sequence = b->model->sequence;
    shape.heads = b->heads / b->cp.n;
    shape.kv_heads = (int)(share_of(b).kv / b->head);
    return shape;
}

void context_ulysses_arenas(struct build *b)
{
    int64_t n = context_qkv(b);
    b->cp.sent = build_take(b, BUFFER_WIRE, n);
    b->cp.received = build_take(b, BUFFER_WIRE, n);
    b->cp.turned = build_take(b, BUFFER_TEMPORARY, n);
    if (share_of(b).copies > 1)
        for (int i = 0; i < 2; i++)
            b->cp.kv[i] = build_take(b, BUFFER_TEMPORARY, context_kv(b));
}

/* Columns of rows of this rank, [row][rank's heads], to [rank][row] of `row` elements, or back; of one
 * rank in `copies`, from the first of `parts`. */
static void split(struct build *b, struct tensor rows, int64_t columns, struct tensor parts,
                  int64_t width, int64_t row, int copies, bool back)
{
    int64_t by_row[2] = {width, columns}, by_rank[2] = {copies * b->rows * row, row};
    struct shape_move shape = {.n = {b->cp.n / copies, b->rows}, .width = width};
    for (int i = 0; i < 2; i++) {
        shape.from[i] = back ? by_rank[i] : by_row[i];
        shape.to[i] = back ? by_row[i] : by_rank[i];
    }
    context_move(b, back ? parts : rows, back ? rows : parts, shape);
}

static void split_q(struct build *b, struct tensor qkv, struct tensor parts, bool back)
{
    struct share s = share_of(b);
    int64_t columns = (int64_t)(b->heads + 2 * b->kv_heads) * b->head;
    split(b, qkv, columns, parts, s.q, s.row, 1, back);
}

/* k and v, beginning at `kv` in rows of `columns` elements, and the parts of one copy of them. */
static void split_kv(struct build *b, struct tensor kv, int64_t columns, struct tensor parts,
                     int copy, bool back)
{
    struct share s = share_of(b);
    int64_t size = build_element(b), width = (int64_t)b->kv_heads * b->head;
    int64_t first = copy * b->rows * s.row + s.q; /* of the first rank that has this copy */
    for (int i = 0; i < 2; i++)
        split(b, build_at(kv, i * width, size), columns, build_at(parts, first + i * s.kv, size),
              s.kv, s.row, s.copies, back);
}

/* q, k and v of qkv, each to its place in the parts for all ranks. */
static void spread_qkv(struct build *b, struct tensor qkv, struct tensor parts)
{
    int64_t columns = (int64_t)(b->heads + 2 * b->kv_heads) * b->head;
    struct tensor kv = build_at(qkv, (int64_t)b->heads * b->head, build_element(b));
    split_q(b, qkv, parts, false);
    for (int copy = 0; copy < share_of(b).copies; copy++)
        split_kv(b, kv, columns, parts, copy, false);
}

/* And back, their gradients: of copies the sum. */
static void collect_qkv(struct build *b, struct tensor qkv, struct tensor parts)
{
    struct share s = share_of(b);
    int64_t columns = (int64_t)(b->heads + 2 * b->kv_heads) * b->head;
    split_q(b, qkv, parts, true);
    if (s.copies == 1) {
        struct tensor kv = build_at(qkv, (int64_t)b->heads * b->head, build_element(b));
        split_kv(b, kv, columns, parts, 0, true);
        return;
    }
    for (int copy = 0; copy < s.copies; copy++) {
        split_kv(b, b->cp.kv[copy > 0], context_kv_row(b), parts, copy, true);
        if (copy > 0)
            build_vector_op(b, OP_ADD, b->cp.kv[0], b->cp.kv[1], b->cp.kv[0], context_kv(b));
    }
    context_unpack(b, b->cp.kv[0], qkv);
}

/* [rank][sample][rows of the rank] to [sample][all rows] of `row` elements, or back. With one sample
 * that is the same. */
static void turn(struct build *b, struct tensor parts, struct tensor samples, int64_t row,
                 bool back)
{
    int64_t run = b->cp.sequence * row, n = b->policy->micro_batch;
    int64_t by_rank[2] = {n * run, run}, by_sample[2] = {run, b->cp.n * run};
    struct shape_move shape = {.n = {b->cp.n, n}, .width = run};
    for (int i = 0; i < 2; i++) {
        shape.from[i] = back ? by_sample[i] : by_rank[i];
        shape.to[i] = back ? by_rank[i] : by_sample[i];
    }
    context_move(b, back ? samples : parts, back ? parts : samples, shape);
}

static bool turns(const struct build *b)
{
    return b->policy->micro_batch > 1;
}

/* Parts in `sent`, of b->rows rows of `row` elements for each rank, to all rows in `to`. */
static void to_samples(struct build *b, struct tensor to, int64_t row)
{
    struct tensor received = turns(b) ? b->cp.received : to;
    build_await(b, context_call(b, COLL_ALL_TO_ALL, CONTEXT_FORWARD, b->rows * row, b->cp.sent,
                                received, b->last));
    if (turns(b))
        turn(b, received, to, row, false);
}

/* All rows in `from` to parts in `received`. */
static void to_rows(struct build *b, struct tensor from, int64_t row)
{
    struct tensor sent = turns(b) ? b->cp.sent : from;
    if (turns(b))
        turn(b, sent, from, row, true);
    build_await(b, context_call(b, COLL_ALL_TO_ALL, CONTEXT_FORWARD, b->rows * row, sent,
                                b->cp.received, b->last));
}

void context_ulysses_spread(struct build *b, const struct layer_activations *a)
{
    spread_qkv(b, a->qkv, b->cp.sent);
    to_samples(b, a->qkv, share_of(b).row);
}

void context_ulysses(struct build *b, const struct layer_activations *a)
{
    struct share s = share_of(b);
    struct op op = build_op(b, OP_ATTENTION);
    op.t[0] = a->qkv;
    op.t[1] = a->turned;
    op.t[2] = a->lse;
    op.t[3] = b->workspace;
    op.shape.attention = all_rows(b);
    build_add(b, &op);
    to_rows(b, a->turned, s.q);
    split(b, a->attention, (int64_t)b->heads * b->head, b->cp.received, s.q, s.q, 1, true);
}

void context_ulysses_grad(struct build *b, const struct layer_activations *a)
{
    struct share s = share_of(b);
    split(b, b->narrow, (int64_t)b->heads * b->head, b->cp.sent, s.q, s.q, 1, false);
    to_samples(b, b->narrow, s.q);
    struct op op = build_op(b, OP_ATTENTION_GRAD);
    op.t[0] = b->narrow;
    op.t[1] = a->qkv;
    op.t[2] = a->turned;
    op.t[3] = a->lse;
    op.t[4] = b->cp.turned;
    op.t[5] = b->workspace;
    op.shape.attention = all_rows(b);
    build_add(b, &op);
    to_rows(b, b->cp.turned, s.row);
    collect_qkv(b, b->wide, b->cp.received);
}
