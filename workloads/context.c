#include "workloads/context.h"

#include <stdio.h>

#include "base/err.h"

/* ---- the cut ---- */

enum axis context_dense_axis(const struct layout *layout)
{
    return layout->group[AXIS_CP].size > 1 ? AXIS_DPCP : AXIS_DP;
}

static struct shape_cut cut_of(const struct build *b, int n, int me)
{
    int64_t s = b->model->sequence, chunk = s / (2 * n);
    if (n == 1)
        return (struct shape_cut){0};
    if (b->policy->cp_kind == CP_ULYSSES)
        return (struct shape_cut){.runs = 1, .rows = s / n, .first = {me * (s / n), 0}};
    return (struct shape_cut){
        .runs = 2, .rows = chunk, .first = {me * chunk, (2 * n - 1 - me) * chunk}};
}

void context_open(struct build *b)
{
    const struct group *cp = &b->plan->layout.group[AXIS_CP];
    b->cp = (struct build_context){.n = cp->size,
                                   .me = cp->me,
                                   .sequence = b->model->sequence / cp->size,
                                   .cut = cut_of(b, cp->size, cp->me),
                                   .ahead = -1};
}

int64_t context_chunk(const struct build *b)
{
    return b->cp.sequence / 2;
}

int64_t context_kv_row(const struct build *b)
{
    return 2 * (int64_t)b->kv_heads * b->head;
}

int64_t context_kv(const struct build *b)
{
    return b->rows * context_kv_row(b);
}

/* ---- refusals ---- */

/* The multiples of `unit` on both sides of n, as far as they are above 0. */
static int uneven(const char *what, int64_t n, int64_t unit, const char *why)
{
    int64_t below = n / unit * unit;
    char nearest[64];
    if (below > 0)
        snprintf(nearest, sizeof nearest, "%lld or %lld", (long long)below,
                 (long long)(below + unit));
    else
        snprintf(nearest, sizeof nearest, "%lld", (long long)unit);
    return fail(FAIL_USAGE, "layout: %s %lld does not divide by %lld, %s; choose %s", what,
                (long long)n, (long long)unit, why, nearest);
}

static int check_heads(const struct model *model, const struct layout *layout)
{
    int tp = layout->group[AXIS_TP].size, cp = layout->group[AXIS_CP].size;
    int64_t heads = model->heads / tp, kv = tp > model->kv_heads ? 1 : model->kv_heads / tp;
    int most = cp;
    while (heads % most != 0 || (kv % most != 0 && most % kv != 0))
        most--;
    if (most == cp)
        return 0;
    return fail(
        FAIL_USAGE,
        "layout: cp=%d with ulysses does not divide the %lld heads and %lld kv heads that a "
        "rank of tp=%d has of model %s; choose cp=%d, or --cp-kind ring or allgather",
        cp, (long long)heads, (long long)kv, tp, model->name, most);
}

int context_check(const struct model *model, const struct layout *layout,
                  const struct policy *policy)
{
    int cp = layout->group[AXIS_CP].size;
    char why[96];
    if (cp == 1)
        return 0;
    if (layout->group[AXIS_DPCP].size == 0)
        return fail(FAIL_USAGE,
                    "layout: order %s keeps cp=%d and dp=%d apart, over which gradients are summed "
                    "together; place these axes side by side in --order",
                    layout->degrees.order, cp, layout->degrees.dp);
    if (policy->cp_kind == CP_ULYSSES) {
        snprintf(why, sizeof why, "which cp=%d with ulysses needs", cp);
        return model->sequence % cp != 0 ? uneven("the sequence", model->sequence, cp, why)
                                         : check_heads(model, layout);
    }
    snprintf(why, sizeof why, "the chunks of cp=%d (two of each rank, zig-zag)", cp);
    return model->sequence % (2 * cp) != 0 ? uneven("the sequence", model->sequence, 2 * cp, why)
                                           : 0;
}

/* ---- ops ---- */

struct shape_attention context_shape(const struct build *b, int64_t kv_sequence)
{
    struct shape_attention shape = build_attention_shape(b);
    shape.q_rows = shape.sequence;
    shape.kv_sequence = shape.kv_rows = kv_sequence;
    return shape;
}

int context_move(struct build *b, struct tensor from, struct tensor to, struct shape_move shape)
{
    struct op op = build_op(b, OP_MOVE);
    op.t[0] = from;
    op.t[1] = to;
    op.shape.move = shape;
    return build_add(b, &op);
}

/* The columns of k and v in a row of qkv. */
static struct tensor kv_columns(const struct build *b, struct tensor qkv)
{
    return build_at(qkv, (int64_t)b->heads * b->head, build_element(b));
}

static int64_t qkv_row(const struct build *b)
{
    return (int64_t)(b->heads + 2 * b->kv_heads) * b->head;
}

void context_pack(struct build *b, struct tensor qkv, struct tensor kv)
{
    context_move(b, kv_columns(b, qkv), kv,
                 (struct shape_move){.n = {1, b->rows},
                                     .from = {0, qkv_row(b)},
                                     .to = {0, context_kv_row(b)},
                                     .width = context_kv_row(b)});
}

void context_unpack(struct build *b, struct tensor kv, struct tensor qkv)
{
    context_move(b, kv, kv_columns(b, qkv),
                 (struct shape_move){.n = {1, b->rows},
                                     .from = {0, context_kv_row(b)},
                                     .to = {0, qkv_row(b)},
                                     .width = context_kv_row(b)});
}

void context_block(struct build *b, struct shape_attention shape, struct tensor qkv,
                   struct tensor kv, struct tensor out, struct tensor lse)
{
    struct op op = build_op(b, OP_ATTENTION_BLOCK);
    op.t[0] = qkv;
    op.t[1] = kv;
    op.t[2] = out;
    op.t[3] = lse;
    op.t[4] = b->workspace;
    op.shape.attention = shape;
    build_add(b, &op);
}

void context_block_grad(struct build *b, struct shape_attention shape,
                        const struct layer_activations *a, struct tensor kv, struct tensor dkv)
{
    struct op op = build_op(b, OP_ATTENTION_BLOCK_GRAD);
    op.t[0] = b->narrow;
    op.t[1] = a->qkv;
    op.t[2] = kv;
    op.t[3] = a->attention;
    op.t[4] = a->lse;
    op.t[5] = b->wide;
    op.t[6] = dkv;
    op.t[7] = b->workspace;
    op.shape.attention = shape;
    build_add(b, &op);
}

int context_call(struct build *b, enum coll_kind kind, int direction, int64_t count,
                 struct tensor send, struct tensor receive, int after)
{
    struct build_call call = {.kind = kind,
                              .axis = AXIS_CP,
                              .direction = direction,
                              .dtype = b->plan->dtype,
                              .count = count,
                              .phase = b->phase,
                              .send = send,
                              .receive = receive};
    int op = build_collective(b, &call, after);
    if (!b->policy->overlap_context)
        build_await(b, op);
    return op;
}

/* ---- the way in ---- */

/* By enum cp_kind. */
static const struct {
    void (*arenas)(struct build *b);
    void (*spread)(struct build *b, const struct layer_activations *a);
    void (*attention)(struct build *b, const struct layer_activations *a);
    void (*ahead)(struct build *b, const struct layer_activations *a);
    void (*grad)(struct build *b, const struct layer_activations *a);
} ways[] = {
    [CP_RING] = {context_ring_arenas, NULL, context_ring, context_ring_ahead, context_ring_grad},
    [CP_ALL_GATHER] = {context_gather_arenas, NULL, context_gather, context_gather_ahead,
                       context_gather_grad},
    [CP_ULYSSES] = {context_ulysses_arenas, context_ulysses_spread, context_ulysses, NULL,
                    context_ulysses_grad},
};

void context_arenas(struct build *b)
{
    if (b->cp.n > 1)
        ways[b->policy->cp_kind].arenas(b);
}

void context_spread(struct build *b, const struct layer_activations *a)
{
    if (b->cp.n > 1 && ways[b->policy->cp_kind].spread != NULL)
        ways[b->policy->cp_kind].spread(b, a);
}

void context_attention(struct build *b, const struct layer_activations *a)
{
    ways[b->policy->cp_kind].attention(b, a);
}

void context_ahead(struct build *b, const struct layer_activations *a)
{
    if (b->cp.n > 1 && ways[b->policy->cp_kind].ahead != NULL)
        ways[b->policy->cp_kind].ahead(b, a);
}

void context_attention_grad(struct build *b, const struct layer_activations *a)
{
    ways[b->policy->cp_kind].grad(b, a);
}
