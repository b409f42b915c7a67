#include "workloads/build.h"

static const struct tensor no_tensor;

/* dx of x, written or added to: d is in `narrow`. */
static void norm_grad(struct build *b, const struct norm *n, bool accumulate)
{
    struct op op = build_op(b, OP_NORM_GRAD);
    op.t[0] = b->narrow;
    op.t[1] = n->x;
    op.t[2] = build_weight(b, n->w);
    op.t[3] = n->mean;
    op.t[4] = n->rstd;
    op.t[5] = b->dx;
    op.t[6] = build_gradient(b, n->w);
    op.t[7] = build_gradient(b, n->bias);
    op.shape.rows = (struct shape_rows){.rows = b->local_rows,
                                        .width = b->h,
                                        .accumulate = accumulate,
                                        .rms = model_has_rms(b->model)};
    build_add(b, &op);
    build_finished(b, n->w, b->last);
    build_finished(b, n->bias, b->last);
}

static void done_head(struct build *b)
{
    if (b->model->tied)
        b->split->done(b, UNIT_EMBEDDING);
    b->split->done(b, 1 + (int)b->model->layers);
}

static void head_grad(struct build *b)
{
    struct tensor x = b->sequence_parallel ? no_tensor : b->ln_f;
    tensor_column_grad(b, b->logits, x, build_head_weight(b), -1, b->narrow, b->v);
    norm_grad(
        b,
        &(struct norm){
            .w = b->ln_f_w, .bias = b->ln_f_b, .x = b->x_out, .mean = b->mean_f, .rstd = b->rstd_f},
        false);
    done_head(b);
    int last = b->ln_f_b >= 0 ? b->ln_f_b : b->ln_f_w;
    tensor_small(b, b->ln_f_w, last);
    build_report(b, last);
}

static void attention_grad(struct build *b, const struct layer_activations *a)
{
    struct op op = build_op(b, OP_ATTENTION_GRAD);
    op.t[0] = b->narrow;
    op.t[1] = a->qkv;
    op.t[2] = a->attention;
    op.t[3] = a->lse;
    op.t[4] = b->wide;
    op.t[5] = b->workspace;
    op.shape.attention = build_attention_shape(b);
    build_add(b, &op);
    build_rotary(b, b->wide, true);
}

/* The gradient of the activation is in `wide`; returns where that of its input is. */
static struct tensor activation_grad(struct build *b, const struct layer_activations *a)
{
    if (!model_is_gated(b->model)) {
        build_vector_op(b, OP_GELU_GRAD, b->wide, a->fc, b->wide, b->rows * b->f);
        return b->wide;
    }
    struct op op = build_op(b, OP_SWIGLU_GRAD);
    op.t[0] = b->wide;
    op.t[1] = op.t[2] = a->fc;
    op.shape.rows = (struct shape_rows){.rows = b->rows, .width = b->f};
    build_add(b, &op);
    return a->fc;
}

static void mlp_grad(struct build *b, const struct layer_activations *a)
{
    int proj = build_layer_tensor(b, MLP_PROJ_W), fc = build_layer_tensor(b, MLP_FC_W);
    tensor_row_grad(b, b->dx, a->mlp, proj, build_layer_tensor(b, MLP_PROJ_B), b->wide);
    build_report(b, proj);
    struct tensor d = activation_grad(b, a);
    int bias = build_layer_tensor(b, MLP_FC_B);
    tensor_column_grad(b, d, a->ln_2, fc, bias, b->narrow, b->plan->tensors[fc].rows);
    build_report(b, bias >= 0 ? bias : fc);
    norm_grad(b,
              &(struct norm){.w = build_layer_tensor(b, LN_2_W),
                             .bias = build_layer_tensor(b, LN_2_B),
                             .x = a->x_2,
                             .mean = a->mean_2,
                             .rstd = a->rstd_2},
              true);
}

static void attention_block_grad(struct build *b, const struct layer_activations *a)
{
    int proj = build_layer_tensor(b, ATTN_PROJ_W), qkv = build_layer_tensor(b, ATTN_QKV_W);
    tensor_row_grad(b, b->dx, a->attention, proj, build_layer_tensor(b, ATTN_PROJ_B), b->narrow);
    build_report(b, proj);
    attention_grad(b, a);
    int bias = build_layer_tensor(b, ATTN_QKV_B);
    tensor_column_grad(b, b->wide, a->ln_1, qkv, bias, b->narrow, build_qkv_valid(b));
    norm_grad(b,
              &(struct norm){.w = build_layer_tensor(b, LN_1_W),
                             .bias = build_layer_tensor(b, LN_1_B),
                             .x = a->x,
                             .mean = a->mean_1,
                             .rstd = a->rstd_1},
              true);
}

/* The layer's activations again, from what was kept. */
static void recompute(struct build *b, const struct layer_activations *a)
{
    const struct policy *p = b->policy;
    b->again = true;
    if (build_is_recomputed(b, b->layer))
        build_layer_inner(b, no_tensor);
    else if (p->recompute == RECOMPUTE_SELECTIVE && b->layer % p->recompute_every == 0)
        build_attention(b, a);
    b->again = false;
}

static void layer_backward(struct build *b)
{
    const struct layer_activations *a = &b->act[b->layer];
    b->split->use(b, 1 + b->layer);
    recompute(b, a);
    mlp_grad(b, a);
    attention_block_grad(b, a);
    b->split->done(b, 1 + b->layer);
    int first = build_layer_tensor(b, MLP_PROJ_B), last = build_layer_tensor(b, LN_1_B);
    first = first >= 0 ? first : build_layer_tensor(b, LN_2_W);
    last = last >= 0 ? last : build_layer_tensor(b, LN_1_W);
    tensor_small(b, first, last);
    tensor_replicated(b);
    build_report(b, last);
}

static void embed_grad(struct build *b)
{
    struct tensor dx = tensor_gather(b, b->dx);
    struct op op = build_op(b, OP_EMBED_GRAD);
    op.t[0] = b->tokens[build_slot(b, b->micro)];
    op.t[1] = dx;
    op.t[2] = build_gradient(b, b->wte);
    op.t[3] = build_gradient(b, b->wpe);
    op.shape.rows = build_embed_shape(b);
    build_add(b, &op);
    build_finished(b, b->wpe, b->last);
    build_finished(b, b->wte, b->last);
    build_report(b, b->wte);
}

void build_backward(struct build *b)
{
    b->phase = PHASE_BACKWARD;
    for (int i = 0; i < b->plan->n_tensors * (1 + PLAN_CHANNELS); i++)
        b->finished[i] = -1;
    b->reported = 0;
    head_grad(b);
    for (b->layer = (int)b->model->layers - 1; b->layer >= 0; b->layer--)
        layer_backward(b);
    b->layer = -1;
    embed_grad(b);
    b->split->micro_end(b);
}
