#include "base/err.h"
#include "workloads/expert.h"

static const struct tensor no_tensor;

/* ---- pieces of a layer ---- */

static struct op route_op(const struct build *b, enum op_kind kind)
{
    const struct expert *x = b->expert;
    const struct expert_layer *l = &x->layer[b->layer];
    const struct expert_exchange *e = expert_exchange_of(b);
    struct op op = build_op(b, kind);
    op.shape.route = expert_route(b);
    op.shape.route.sent = e->sent;
    op.shape.route.first = e->now == NULL ? e->first : NULL;
    op.t[0] = l->logits;
    op.t[1] = l->experts;
    return op;
}

static struct shape_permute permute_shape(const struct build *b)
{
    return (struct shape_permute){.rows = b->expert->rows,
                                  .sent = expert_exchange_of(b)->sent,
                                  .width = b->h,
                                  .top_k = b->expert->top_k};
}

static int grouped(struct build *b, enum grouped_form form, struct tensor t0, struct tensor t1,
                   struct tensor t2, int64_t n, int64_t k)
{
    const struct expert_exchange *e = expert_exchange_of(b);
    struct op op = build_op(b, OP_GROUPED_GEMM);
    op.t[0] = t0;
    op.t[1] = t1;
    op.t[2] = t2;
    op.shape.grouped = (struct shape_grouped){.form = form,
                                              .blocks = e->blocks,
                                              .rows = e->rows,
                                              .which = e->which,
                                              .all_rows = e->received,
                                              .matrices = b->expert->local,
                                              .n = n,
                                              .k = k,
                                              .rows_valid = e->rows_valid,
                                              .now = e->now};
    return build_add(b, &op);
}

/* Of the experts, or of shared ones. */
static void swiglu(struct build *b, enum op_kind kind, struct tensor dy, struct tensor x,
                   struct tensor y, bool shared)
{
    const struct expert_exchange *e = expert_exchange_of(b);
    struct op op = build_op(b, kind);
    op.t[0] = kind == OP_SWIGLU ? x : dy;
    op.t[1] = kind == OP_SWIGLU ? y : x;
    op.t[2] = kind == OP_SWIGLU ? no_tensor : x;
    op.shape.rows =
        shared ? (struct shape_rows){.rows = b->rows, .width = b->f}
               : (struct shape_rows){.rows = e->received, .width = b->expert->inner, .now = e->now};
    build_add(b, &op);
}

/* The matrix W [n][k] of a tensor: x W^T, or dy W. */
static void product(struct build *b, struct tensor x, int w, bool forward, struct tensor y,
                    float beta)
{
    const struct plan_tensor *t = &b->plan->tensors[w];
    struct shape_gemm shape = forward ? build_gemm_shape(b->rows, t->rows, t->columns, beta)
                                      : build_gemm_shape(b->rows, t->columns, t->rows, beta);
    build_gemm(b, x, false, build_weight(b, w), forward, y, shape, no_tensor);
}

static void product_grad(struct build *b, struct tensor dy, struct tensor x, int w)
{
    const struct plan_tensor *t = &b->plan->tensors[w];
    struct shape_gemm shape = build_gemm_shape(t->rows, t->columns, b->rows, 1);
    shape.wide = b->plan->dtype == DTYPE_BF16;
    build_gemm(b, dy, true, x, false, build_gradient(b, w), shape, no_tensor);
    build_finished(b, w, b->last);
}

static bool has_shared(const struct build *b)
{
    return b->model->shared_experts > 0;
}

/* x of the rows that are routed, and of all R for shared experts. */
static struct tensor gather_rows(struct build *b, struct tensor x)
{
    bool needed = !b->expert->own_rows || has_shared(b);
    return needed ? tensor_gather(b, x) : x;
}

static struct tensor routed_rows(const struct build *b, struct tensor own, struct tensor all)
{
    return b->expert->own_rows ? own : all;
}

/* ---- the router ---- */

/* Where every rank of tp has all rows, one of them counts the product. */
static int64_t router_valid(const struct build *b)
{
    return b->expert->own_rows || b->tp_me == 0 ? b->expert->n : 0;
}

static int gather_logits(struct build *b, enum axis axis, int64_t rows, struct tensor from,
                         struct tensor to, int after)
{
    struct build_call call = {.kind = COLL_ALL_GATHER,
                              .axis = axis,
                              .dtype = DTYPE_F32,
                              .count = rows * b->expert->n,
                              .phase = b->phase,
                              .send = from,
                              .receive = to};
    return build_collective(b, &call, after);
}

static void router(struct build *b, struct tensor x)
{
    struct expert *e = b->expert;
    const struct expert_layer *l = &e->layer[b->layer];
    int w = build_layer_tensor(b, ROUTER_W);
    struct shape_gemm shape = build_gemm_shape(e->rows, e->n, b->h, 0);
    shape.n_valid = router_valid(b);
    shape.wide = b->plan->dtype == DTYPE_BF16;
    build_gemm(b, x, false, build_weight(b, w), true, l->own_logits, shape, no_tensor);
    int after = b->last;
    if (e->own_rows)
        after = gather_logits(b, AXIS_TP, e->rows, l->own_logits, l->part_logits, after);
    if (b->cp.n > 1)
        after = gather_logits(b, AXIS_CP, b->rows, l->part_logits, l->logits, after);
    build_await(b, after);
    struct op op = route_op(b, OP_ROUTE);
    op.t[2] = l->place;
    op.t[3] = l->gates;
    op.t[4] = l->source;
    op.t[5] = build_at(b->plan->load, b->layer * (e->n + 3), sizeof(double));
    op.t[6] = l->share;
    op.t[7] = expert_exchange_of(b)->counts;
    build_add(b, &op);
}

/* dW of the router, and what it adds to dx of the routed rows. */
static void router_grad(struct build *b, struct tensor x)
{
    struct expert *e = b->expert;
    const struct expert_layer *l = &e->layer[b->layer];
    int w = build_layer_tensor(b, ROUTER_W);
    struct op op = route_op(b, OP_ROUTE_GRAD);
    op.t[2] = e->dgates;
    op.t[3] = l->share;
    op.t[4] = e->dlogits;
    build_add(b, &op);
    if (b->plan->dtype != DTYPE_F32)
        build_cast(b, e->dlogits, DTYPE_F32, e->dnarrow, b->plan->dtype, e->rows * e->n);
    struct shape_gemm shape = build_gemm_shape(e->n, b->h, e->rows, 1);
    shape.m_valid = router_valid(b);
    shape.wide = b->plan->dtype == DTYPE_BF16;
    build_gemm(b, e->dnarrow, true, x, false, build_gradient(b, w), shape, no_tensor);
    build_finished(b, w, b->last);
}

static void router_input_grad(struct build *b, struct tensor dx)
{
    struct expert *e = b->expert;
    struct shape_gemm shape = build_gemm_shape(e->rows, b->h, e->n, 1);
    shape.k_valid = router_valid(b);
    build_gemm(b, e->dnarrow, false, build_weight(b, build_layer_tensor(b, ROUTER_W)), false, dx,
               shape, no_tensor);
}

void expert_router_sum(struct build *b)
{
    int w = build_layer_tensor(b, ROUTER_W);
    if (w < 0 || b->tp == 1 || b->sequence_parallel || !b->hand_over)
        return;
    struct tensor at = build_gradient(b, w);
    struct build_call call = {.kind = COLL_ALL_REDUCE,
                              .axis = AXIS_TP,
                              .direction = 1,
                              .dtype = DTYPE_F32,
                              .count = build_tensor_count(&b->plan->tensors[w]),
                              .phase = PHASE_REDUCE,
                              .send = at,
                              .receive = at};
    build_finished(b, w, build_collective(b, &call, b->last));
}

/* ---- forward ---- */

void expert_begin(struct build *b)
{
    if (b->expert != NULL)
        build_vector_op(b, OP_ZERO, b->plan->load, no_tensor, no_tensor,
                        2 * b->model->layers * (b->expert->n + 3));
}

static void permute(struct build *b, struct tensor x, struct tensor to)
{
    struct op op = build_op(b, OP_PERMUTE);
    op.t[0] = x;
    op.t[1] = b->expert->layer[b->layer].source;
    op.t[2] = to;
    op.shape.permute = permute_shape(b);
    build_add(b, &op);
}

static void shared_inner(struct build *b, const struct layer_activations *a, struct tensor all)
{
    if (!has_shared(b))
        return;
    product(b, all, build_layer_tensor(b, MLP_FC_W), true, a->fc, 0);
    swiglu(b, OP_SWIGLU, no_tensor, a->fc, a->mlp, true);
}

void expert_inner(struct build *b, const struct layer_activations *a)
{
    struct expert *e = b->expert;
    const struct expert_layer *l = &e->layer[b->layer];
    struct tensor all = gather_rows(b, a->ln_2), x = routed_rows(b, a->ln_2, all);
    int fc = build_layer_tensor(b, EXPERT_FC_W), proj = build_layer_tensor(b, EXPERT_PROJ_W);
    router(b, x);
    int sent = expert_send_counts(b);
    permute(b, x, e->ep > 1 ? e->a : l->received);
    expert_await_counts(b, sent);
    sent = expert_send(b, e->a, l->received, false);
    shared_inner(b, a, all);
    build_await(b, sent);
    grouped(b, GROUPED_FORWARD, l->received, build_weight(b, fc), l->fc, 2 * e->inner, b->h);
    swiglu(b, OP_SWIGLU, no_tensor, l->fc, l->act, false);
    grouped(b, GROUPED_FORWARD, l->act, build_weight(b, proj), e->ep > 1 ? e->b : l->returned, b->h,
            e->inner);
    build_await(b, expert_send(b, e->b, l->returned, true));
}

static void combine(struct build *b, struct tensor y, struct tensor gates, struct tensor out,
                    bool accumulate)
{
    struct op op = build_op(b, OP_COMBINE);
    op.t[0] = y;
    op.t[1] = b->expert->layer[b->layer].place;
    op.t[2] = gates;
    op.t[3] = out;
    op.shape.permute = permute_shape(b);
    op.shape.permute.accumulate = accumulate;
    build_add(b, &op);
}

void expert_output(struct build *b, const struct layer_activations *a)
{
    struct expert *e = b->expert;
    const struct expert_layer *l = &e->layer[b->layer];
    struct tensor part = tensor_part(b, b->narrow);
    if (has_shared(b))
        product(b, a->mlp, build_layer_tensor(b, MLP_PROJ_W), true, part, 0);
    if (e->own_rows && has_shared(b))
        tensor_reduce(b, b->narrow);
    combine(b, l->returned, l->gates, e->own_rows ? b->narrow : part, has_shared(b));
    if (!e->own_rows)
        tensor_reduce(b, b->narrow);
}

/* ---- backward ---- */

static void combine_grad(struct build *b, struct tensor dout, struct tensor dy)
{
    struct expert *e = b->expert;
    const struct expert_layer *l = &e->layer[b->layer];
    struct op op = build_op(b, OP_COMBINE_GRAD);
    op.t[0] = dout;
    op.t[1] = l->returned;
    op.t[2] = l->gates;
    op.t[3] = l->place;
    op.t[4] = l->source;
    op.t[5] = dy;
    op.t[6] = e->dgates;
    op.shape.permute = permute_shape(b);
    build_add(b, &op);
}

/* d of the shared experts' output, from all rows of it: to that of their inner, in a->fc. */
static void shared_grad(struct build *b, const struct layer_activations *a, struct tensor dall)
{
    int proj = build_layer_tensor(b, MLP_PROJ_W);
    if (!has_shared(b))
        return;
    product(b, dall, proj, false, b->wide, 0);
    product_grad(b, dall, a->mlp, proj);
    swiglu(b, OP_SWIGLU_GRAD, b->wide, a->fc, a->fc, true);
}

static void finish_experts(struct build *b, int which)
{
    int first = build_layer_tensor(b, which);
    for (int e = 0; e < b->expert->local; e++)
        build_finished(b, first + e, b->last);
}

/* dW of the experts' second product, from d of what they made, and of their first. */
static void second_weight(struct build *b, struct tensor dy)
{
    struct expert *e = b->expert;
    int proj = build_layer_tensor(b, EXPERT_PROJ_W);
    grouped(b, GROUPED_WEIGHT, dy, e->layer[b->layer].act, build_gradient(b, proj), b->h, e->inner);
    finish_experts(b, EXPERT_PROJ_W);
    build_report(b, proj + e->local - 1);
}

static void first_weight(struct build *b)
{
    struct expert *e = b->expert;
    const struct expert_layer *l = &e->layer[b->layer];
    int fc = build_layer_tensor(b, EXPERT_FC_W);
    grouped(b, GROUPED_WEIGHT, l->fc, l->received, build_gradient(b, fc), 2 * e->inner, b->h);
    finish_experts(b, EXPERT_FC_W);
    build_report(b, fc + e->local - 1);
}

void expert_weights(struct build *b)
{
    second_weight(b, b->expert->layer[b->layer].d_returned);
    first_weight(b);
}

/* From d of what experts made to d of what came (in a). */
static int experts_grad(struct build *b, struct tensor dy)
{
    struct expert *e = b->expert;
    const struct expert_layer *l = &e->layer[b->layer];
    int fc = build_layer_tensor(b, EXPERT_FC_W), proj = build_layer_tensor(b, EXPERT_PROJ_W);
    grouped(b, GROUPED_INPUT, dy, build_weight(b, proj), e->dact, b->h, e->inner);
    if (!b->later)
        second_weight(b, dy);
    swiglu(b, OP_SWIGLU_GRAD, e->dact, l->fc, l->fc, false);
    grouped(b, GROUPED_INPUT, l->fc, build_weight(b, fc), e->a, 2 * e->inner, b->h);
    int sent = expert_send(b, e->a, e->b, true);
    if (!b->later)
        first_weight(b);
    return sent;
}

void expert_grad(struct build *b, const struct layer_activations *a)
{
    struct expert *e = b->expert;
    struct tensor dy = b->later ? e->layer[b->layer].d_returned : e->b;
    struct tensor dall = gather_rows(b, b->dx);
    combine_grad(b, routed_rows(b, b->dx, dall), e->ep > 1 ? e->a : dy);
    int sent = expert_send(b, e->a, dy, false);
    shared_grad(b, a, dall);
    build_await(b, sent);
    sent = experts_grad(b, dy);
    struct tensor all = gather_rows(b, a->ln_2), part = tensor_part(b, b->narrow);
    router_grad(b, routed_rows(b, a->ln_2, all));
    if (has_shared(b)) {
        product_grad(b, a->fc, all, build_layer_tensor(b, MLP_FC_W));
        build_report(b, build_layer_tensor(b, MLP_FC_W));
        product(b, a->fc, build_layer_tensor(b, MLP_FC_W), false, part, 0);
    }
    if (e->own_rows && has_shared(b))
        tensor_reduce(b, b->narrow);
    build_await(b, sent);
    struct tensor to = e->own_rows ? b->narrow : part;
    combine(b, e->ep > 1 ? e->b : e->a, no_tensor, to, has_shared(b));
    router_input_grad(b, to);
    if (!e->own_rows)
        tensor_reduce(b, b->narrow);
}
