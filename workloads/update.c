#include "workloads/build.h"

#include "base/err.h"

/* Sums over ranks of [first .. last] of the scalars, behind the compute stream. */
static int sum_scalars(struct build *b, enum axis axis, enum scalar first, enum scalar last)
{
    struct tensor at = build_scalar(first);
    struct build_call call = {.kind = COLL_ALL_REDUCE,
                              .axis = axis,
                              .dtype = DTYPE_F64,
                              .count = (int)last - (int)first + 1,
                              .peer = -1,
                              .phase = PHASE_REDUCE,
                              .send = at,
                              .receive = at};
    return build_collective(b, &call, b->last);
}

void build_reduce_loss(struct build *b)
{
    enum axis axis = context_dense_axis(&b->plan->layout);
    if (b->plan->layout.group[axis].size > 1)
        b->loss_op = sum_scalars(b, axis, SCALAR_LOSS_SUM, SCALAR_TOKENS);
}

/* ---- norm ---- */

/* Gradients that come and go by unit are read by unit: one op would hold them all together. */
static bool are_together(const struct build *b, int piece)
{
    const struct plan_piece *a = &b->plan->pieces[piece - 1], *c = &b->plan->pieces[piece];
    return !b->plan->passing[BUFFER_GRADIENT] ||
           b->plan->tensors[a->tensor].unit == b->plan->tensors[c->tensor].unit;
}

static bool follows(const struct build *b, int piece)
{
    const struct reduced *a = &b->reduced[piece - 1], *c = &b->reduced[piece];
    int64_t size = (int64_t)dtype_size((int)a->dtype);
    return are_together(b, piece) && a->at.buffer == c->at.buffer && a->dtype == c->dtype &&
           a->ready == c->ready &&
           a->at.offset + b->plan->pieces[piece - 1].count * size == c->at.offset;
}

static bool is_counted(const struct build *b, int piece)
{
    return b->plan->tensors[b->plan->pieces[piece].tensor].counted;
}

static bool is_apart(const struct build *b, int piece)
{
    return b->plan->tensors[b->plan->pieces[piece].tensor].expert &&
           expert_is_apart(&b->plan->layout);
}

/* Pieces [first, end): one run of the arena, reduced by one op. */
static void sum_of_squares(struct build *b, int first, int end)
{
    const struct reduced *r = &b->reduced[first];
    struct op op = build_op(b, OP_SUMSQ);
    op.dtype = r->dtype;
    op.t[0] = r->at;
    op.t[1] = build_scalar(is_apart(b, first) ? SCALAR_LOSS_SUM + 1 : SCALAR_LOSS_SUM);
    for (int i = first; i < end; i++)
        op.shape.vector.n += b->plan->pieces[i].count;
    build_await(b, r->ready);
    build_add(b, &op);
}

/* Each rank of ep has the squares of its experts; sharded, of a part of them. */
static int sum_experts(struct build *b)
{
    const struct layout *layout = &b->plan->layout;
    int parts = -1;
    if (layout->group[AXIS_EP].size < 2)
        return -1;
    if (layout->degrees.shard > 1 && layout->group[AXIS_EDP].size > 1)
        parts = sum_scalars(b, AXIS_EDP, SCALAR_EXPERT_SUMSQ, SCALAR_EXPERT_SUMSQ);
    int sum = sum_scalars(b, AXIS_EP, SCALAR_EXPERT_SUMSQ, SCALAR_EXPERT_SUMSQ);
    if (parts >= 0)
        plan_wait(b->plan, sum, parts);
    return sum;
}

/* Sums of the scalars up to `last` over an axis, behind other ops (-1: none). */
static int sum_behind(struct build *b, enum axis axis, enum scalar last, const int *ops, int n)
{
    int sum = sum_scalars(b, axis, SCALAR_LOSS_SUM, last);
    for (int i = 0; i < n; i++)
        if (ops[i] >= 0)
            plan_wait(b->plan, sum, ops[i]);
    return sum;
}

/* Over those that hold other parts: tp, then the stages, of which one alone has the loss. */
static void sum_over_ranks(struct build *b)
{
    int split = b->split->norm(b), ops[] = {sum_experts(b), split, b->loss_op}, n = 3;
    if (b->tp > 1) {
        bool both = expert_is_apart(&b->plan->layout) && b->plan->layout.degrees.etp == b->tp;
        ops[0] = sum_behind(b, AXIS_TP, both ? SCALAR_EXPERT_SUMSQ : SCALAR_SUMSQ, ops, n);
        n = 1;
    }
    if (b->pipe.schedule.stages > 1) {
        ops[0] = sum_behind(b, AXIS_PP, SCALAR_EXPERT_SUMSQ, ops, n);
        n = 1;
    }
    for (int i = 0; i < n; i++)
        build_await(b, ops[i]);
}

/* What another rank of tp counts is left out; what is copied is counted once. */
static void norm(struct build *b)
{
    int n = b->plan->n_pieces;
    for (int first = 0, end; first < n; first = end) {
        for (end = first + 1; end < n && is_counted(b, end) == is_counted(b, first) &&
                              is_apart(b, end) == is_apart(b, first) && follows(b, end);)
            end++;
        if (is_counted(b, first))
            sum_of_squares(b, first, end);
    }
    sum_over_ranks(b);
}

/* ---- update ---- */

static struct op optimizer_op(const struct build *b, enum op_kind kind)
{
    const struct policy *p = b->policy;
    struct op op = build_op(b, kind);
    op.shape.optimizer = (struct shape_optimizer){.lr = p->lr,
                                                  .lr_min = p->lr_min,
                                                  .beta1 = p->beta1,
                                                  .beta2 = p->beta2,
                                                  .epsilon = p->epsilon,
                                                  .clip = p->clip,
                                                  .warm_up = p->warm_up,
                                                  .decay_steps = p->decay_steps};
    return op;
}

static void update_piece(struct build *b, int piece)
{
    const struct plan_piece *p = &b->plan->pieces[piece];
    const struct reduced *r = &b->reduced[piece];
    int64_t bytes = p->offset * (int64_t)sizeof(float);
    struct op op = optimizer_op(b, OP_ADAMW);
    op.t[0] = (struct tensor){b->plan->master, bytes};
    op.t[1] = r->at;
    op.t[2] = (struct tensor){BUFFER_MOMENT1, bytes};
    op.t[3] = (struct tensor){BUFFER_MOMENT2, bytes};
    op.t[4] = build_scalar(SCALAR_LOSS_SUM);
    op.t[5] = b->split->rounded(b, piece);
    op.shape.optimizer.n = p->count;
    op.shape.optimizer.gradient = r->dtype;
    op.shape.optimizer.weight_decay =
        b->plan->tensors[p->tensor].decay ? b->policy->weight_decay : 0;
    build_await(b, r->ready); /* a piece that this rank does not count in the norm */
    b->split->updated(b, piece, build_add(b, &op));
}

void build_update(struct build *b)
{
    b->phase = PHASE_UPDATE;
    b->micro = -1;
    norm(b);
    struct op clip = optimizer_op(b, OP_CLIP);
    clip.t[0] = build_scalar(SCALAR_LOSS_SUM);
    build_add(b, &clip);
    for (int i = 0; i < b->plan->n_pieces; i++)
        update_piece(b, i);
    b->split->step_end(b);
}
