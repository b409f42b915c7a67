#include "workloads/build.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/err.h"
#include "workloads/kernels/kernels.h"

static const struct tensor no_tensor;

/* ---- tensors ---- */

static struct plan_tensor *add_tensor(struct build *b, int64_t rows, int64_t columns, double sigma,
                                      const char *format, ...)
{
    struct plan *plan = b->plan;
    struct plan_tensor *t = &plan->tensors[plan->n_tensors++];
    va_list args;
    va_start(args, format);
    vsnprintf(t->name, sizeof t->name, format, args);
    va_end(args);
    t->rows = t->whole_rows = t->valid_rows = rows;
    t->columns = t->whole_columns = columns;
    t->n_spans = 1;
    t->span[0].count = rows;
    t->copies = 1;
    t->counted = true;
    t->offset = plan->n_parameters;
    t->sigma = sigma;
    t->decay = columns > 1;
    plan->n_parameters += rows * columns;
    return t;
}

static void add_layer_tensors(struct build *b, int64_t l)
{
    int64_t h = b->h, f = b->f;
    double into_residual = 0.02 / sqrt(2.0 * (double)b->model->layers);
    long long n = (long long)l;
    add_tensor(b, h, f, into_residual, "h.%lld.mlp.proj.weight", n);
    add_tensor(b, h, 1, 0, "h.%lld.mlp.proj.bias", n);
    add_tensor(b, f, h, 0.02, "h.%lld.mlp.fc.weight", n);
    add_tensor(b, f, 1, 0, "h.%lld.mlp.fc.bias", n);
    add_tensor(b, h, 1, -1, "h.%lld.ln_2.weight", n);
    add_tensor(b, h, 1, 0, "h.%lld.ln_2.bias", n);
    add_tensor(b, h, h, into_residual, "h.%lld.attn.proj.weight", n);
    add_tensor(b, h, 1, 0, "h.%lld.attn.proj.bias", n);
    add_tensor(b, 3 * h, h, 0.02, "h.%lld.attn.qkv.weight", n);
    struct plan_tensor *bias = add_tensor(b, 3 * h, 1, 0, "h.%lld.attn.qkv.bias", n);
    bias->zero_first = h; /* softmax does not see a constant added to all keys */
    bias->zero_count = h;
    add_tensor(b, h, 1, -1, "h.%lld.ln_1.weight", n);
    add_tensor(b, h, 1, 0, "h.%lld.ln_1.bias", n);
}

/* Unsharded state: every tensor is one piece, whole. */
static void add_pieces(struct plan *plan)
{
    plan->pieces = must_alloc((size_t)plan->n_tensors, sizeof *plan->pieces);
    plan->n_pieces = plan->n_tensors;
    for (int i = 0; i < plan->n_tensors; i++) {
        const struct plan_tensor *t = &plan->tensors[i];
        plan->pieces[i] =
            (struct plan_piece){.tensor = i, .count = t->rows * t->columns, .offset = t->offset};
    }
}

void build_tensors(struct build *b)
{
    int64_t n = FIRST_LAYER + b->model->layers * LAYER_TENSORS + 2;
    b->plan->tensors = must_alloc((size_t)n, sizeof *b->plan->tensors);
    add_tensor(b, b->h, 1, -1, "ln_f.weight");
    add_tensor(b, b->h, 1, 0, "ln_f.bias");
    for (int64_t l = b->model->layers - 1; l >= 0; l--)
        add_layer_tensors(b, l);
    add_tensor(b, b->model->sequence, b->h, 0.01, "wpe.weight");
    struct plan_tensor *wte = add_tensor(b, b->vp, b->h, 0.02, "wte.weight");
    wte->valid_rows = b->v;
    int64_t bytes = b->plan->n_parameters * (int64_t)sizeof(float);
    plan_take(b->plan, BUFFER_PARAMETER, bytes);
    plan_take(b->plan, BUFFER_GRADIENT, bytes);
    plan_take(b->plan, BUFFER_MOMENT1, bytes);
    plan_take(b->plan, BUFFER_MOMENT2, bytes);
    b->plan->master = BUFFER_PARAMETER;
    b->plan->n_state = b->plan->n_parameters;
    add_pieces(b->plan);
}

int build_layer_tensor(const struct build *b, int which)
{
    return FIRST_LAYER + (int)(b->model->layers - 1 - b->layer) * LAYER_TENSORS + which;
}

int build_wpe_tensor(const struct build *b)
{
    return b->plan->n_tensors - 2;
}

int build_wte_tensor(const struct build *b)
{
    return b->plan->n_tensors - 1;
}

struct tensor build_state(const struct build *b, enum plan_buffer buffer, int tensor)
{
    int64_t bytes = b->plan->tensors[tensor].offset * (int64_t)sizeof(float);
    return (struct tensor){(int)buffer, bytes};
}

struct tensor build_weight(const struct build *b, int tensor)
{
    return build_state(b, BUFFER_PARAMETER, tensor);
}

struct tensor build_gradient(const struct build *b, int tensor)
{
    return build_state(b, BUFFER_GRADIENT, tensor);
}

static struct tensor floats(struct build *b, enum plan_buffer buffer, int64_t n)
{
    return plan_take(b->plan, buffer, n * (int64_t)sizeof(float));
}

struct shape_attention build_attention_shape(const struct build *b)
{
    int heads = (int)b->model->heads;
    return (struct shape_attention){.batch = b->policy->micro_batch,
                                    .sequence = b->model->sequence,
                                    .heads = heads,
                                    .kv_heads = heads,
                                    .head = (int)(b->h / heads)};
}

static void take_layer(struct build *b, struct layer_activations *a)
{
    int64_t rh = b->rows * b->h;
    a->x = floats(b, BUFFER_ACTIVATION, rh);
    a->ln_1 = floats(b, BUFFER_ACTIVATION, rh);
    a->mean_1 = floats(b, BUFFER_ACTIVATION, b->rows);
    a->rstd_1 = floats(b, BUFFER_ACTIVATION, b->rows);
    a->qkv = floats(b, BUFFER_ACTIVATION, 3 * rh);
    a->attention = floats(b, BUFFER_ACTIVATION, rh);
    a->lse = floats(b, BUFFER_ACTIVATION, b->rows * b->model->heads);
    a->x_2 = floats(b, BUFFER_ACTIVATION, rh);
    a->ln_2 = floats(b, BUFFER_ACTIVATION, rh);
    a->mean_2 = floats(b, BUFFER_ACTIVATION, b->rows);
    a->rstd_2 = floats(b, BUFFER_ACTIVATION, b->rows);
    a->fc = floats(b, BUFFER_ACTIVATION, b->rows * b->f);
    a->gelu = floats(b, BUFFER_ACTIVATION, b->rows * b->f);
}

void build_arenas(struct build *b)
{
    b->act = must_alloc((size_t)b->model->layers, sizeof *b->act);
    for (int64_t l = 0; l < b->model->layers; l++)
        take_layer(b, &b->act[l]);
    b->x_out = floats(b, BUFFER_ACTIVATION, b->rows * b->h);
    b->ln_f = floats(b, BUFFER_ACTIVATION, b->rows * b->h);
    b->mean_f = floats(b, BUFFER_ACTIVATION, b->rows);
    b->rstd_f = floats(b, BUFFER_ACTIVATION, b->rows);
    b->logits = floats(b, BUFFER_ACTIVATION, b->rows * b->vp);
    int64_t wide = b->f > 3 * b->h ? b->f : 3 * b->h;
    b->wide = floats(b, BUFFER_TEMPORARY, b->rows * wide);
    b->narrow = floats(b, BUFFER_TEMPORARY, b->rows * b->h);
    b->dx = floats(b, BUFFER_TEMPORARY, b->rows * b->h);
    struct shape_attention shape = build_attention_shape(b);
    b->workspace = plan_take(b->plan, BUFFER_TEMPORARY, kernels_attention_workspace(&shape));
    b->tokens = plan_take(b->plan, BUFFER_BATCH, b->rows * (int64_t)sizeof(int32_t));
    b->targets = plan_take(b->plan, BUFFER_BATCH, b->rows * (int64_t)sizeof(int32_t));
    b->mask = plan_take(b->plan, BUFFER_BATCH, b->rows);
}

/* ---- ops ---- */

struct op build_op(const struct build *b, enum op_kind kind)
{
    return (struct op){.kind = kind, .phase = b->phase, .layer = b->layer, .micro = b->micro};
}

int build_gemm(struct build *b, struct tensor a, bool trans_a, struct tensor w, bool trans_b,
               struct tensor c, struct shape_gemm shape, struct tensor bias)
{
    struct op op = build_op(b, OP_GEMM);
    op.t[0] = a;
    op.t[1] = w;
    op.t[2] = c;
    op.t[3] = bias;
    op.shape.gemm = shape;
    op.shape.gemm.trans_a = trans_a;
    op.shape.gemm.trans_b = trans_b;
    return plan_op(b->plan, &op);
}

struct shape_gemm build_gemm_shape(int64_t m, int64_t n, int64_t k, float beta)
{
    return (struct shape_gemm){
        .m = m, .n = n, .k = k, .beta = beta, .m_valid = m, .n_valid = n, .k_valid = k};
}

/* y [R][n] = x [R][k] W^T + bias, W stored [n][k]. */
void build_linear(struct build *b, struct tensor x, int w, int bias, struct tensor y)
{
    const struct plan_tensor *t = &b->plan->tensors[w];
    build_gemm(b, x, false, build_weight(b, w), true, y,
               build_gemm_shape(b->rows, t->rows, t->columns, 0), build_weight(b, bias));
}

void build_finished(struct build *b, int tensor, int op)
{
    if (b->last_micro)
        data_gradient_ready(&b->data, tensor, op);
}

/* dW += dy^T x, db += column sums of dy, and dx [R][k] = dy W. */
void build_linear_grad(struct build *b, struct tensor dy, struct tensor x, int w, int bias,
                       struct tensor dx)
{
    const struct plan_tensor *t = &b->plan->tensors[w];
    int op = build_gemm(b, dy, true, x, false, build_gradient(b, w),
                        build_gemm_shape(t->rows, t->columns, b->rows, 1), no_tensor);
    build_finished(b, w, op);
    struct op sum = build_op(b, OP_BIAS_GRAD);
    sum.t[0] = dy;
    sum.t[1] = build_gradient(b, bias);
    sum.shape.rows.rows = b->rows;
    sum.shape.rows.width = t->rows;
    build_finished(b, bias, plan_op(b->plan, &sum));
    build_gemm(b, dy, false, build_weight(b, w), false, dx,
               build_gemm_shape(b->rows, t->columns, t->rows, 0), no_tensor);
}

void build_norm(struct build *b, struct tensor x, int w, struct tensor y, struct tensor mean,
                struct tensor rstd)
{
    struct op op = build_op(b, OP_NORM);
    op.t[0] = x;
    op.t[1] = build_weight(b, w);
    op.t[2] = build_weight(b, w + 1);
    op.t[3] = y;
    op.t[4] = mean;
    op.t[5] = rstd;
    op.shape.rows.rows = b->rows;
    op.shape.rows.width = b->h;
    plan_op(b->plan, &op);
}

void build_norm_grad(struct build *b, struct tensor dy, struct tensor x, int w, struct tensor mean,
                     struct tensor rstd, bool accumulate)
{
    struct op op = build_op(b, OP_NORM_GRAD);
    op.t[0] = dy;
    op.t[1] = x;
    op.t[2] = build_weight(b, w);
    op.t[3] = mean;
    op.t[4] = rstd;
    op.t[5] = b->dx;
    op.t[6] = build_gradient(b, w);
    op.t[7] = build_gradient(b, w + 1);
    op.shape.rows.rows = b->rows;
    op.shape.rows.width = b->h;
    op.shape.rows.accumulate = accumulate;
    int index = plan_op(b->plan, &op);
    build_finished(b, w, index);
    build_finished(b, w + 1, index);
}

void build_vector_op(struct build *b, enum op_kind kind, struct tensor t0, struct tensor t1,
                     struct tensor t2, int64_t n)
{
    struct op op = build_op(b, kind);
    op.t[0] = t0;
    op.t[1] = t1;
    op.t[2] = t2;
    op.shape.vector.n = n;
    plan_op(b->plan, &op);
}

struct tensor build_scalar(enum scalar which)
{
    return (struct tensor){BUFFER_SCALAR, (int64_t)which * (int64_t)sizeof(double)};
}
