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

/* Gradients of the head are complete: to the split. */
static void finish_head(struct build *b)
{
    int last = b->ln_f_b >= 0 ? b->ln_f_b : b->ln_f_w;
    tensor_small(b, b->ln_f_w, last);
    build_report(b, last);
}

/* Product, loss and gradient of some rows after the other: their logits have one place. */
static void head_in_chunks(struct build *b)
{
    int64_t all = b->rows, rows = all / b->policy->head_chunks, size = build_element(b);
    b->rows = b->local_rows = rows;
    for (int64_t first = 0; first < all; first += rows) {
        struct tensor x = build_at(b->ln_f, first * b->h, size);
        b->phase = PHASE_FORWARD;
        build_head_rows(b, x, first);
        b->phase = PHASE_BACKWARD;
        tensor_column_grad(b, b->logits, x, build_head_weight(b), -1,
                           build_at(b->narrow, first * b->h, size), b->v);
    }
    b->rows = b->local_rows = all;
    if (b->last_micro)
        build_reduce_loss(b);
}

/* Its weights' gradient is made at once: logits are too large to be kept for later. */
static void head_grad(struct build *b)
{
    struct tensor x = b->sequence_parallel ? no_tensor : b->ln_f;
    if (b->pipe.schedule.stages > 1) {
        build_use_head(b);
        x = b->ln_f;
    }
    if (b->policy->head_chunks > 1)
        head_in_chunks(b);
    else
        tensor_column_grad(b, b->logits, x, build_head_weight(b), -1, b->narrow, b->v);
    norm_grad(
        b,
        &(struct norm){
            .w = b->ln_f_w, .bias = b->ln_f_b, .x = b->x_out, .mean = b->mean_f, .rstd = b->rstd_f},
        false);
    build_done_head(b);
    if (!b->pipe.delays)
        finish_head(b);
}

static void attention_grad(struct build *b, const struct layer_activations *a)
{
    if (b->cp.n > 1) {
        context_attention_grad(b, a);
        build_rotary(b, b->wide, true);
        return;
    }
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
        struct tensor d = b->later ? a->fc : b->wide;
        build_vector_op(b, OP_GELU_GRAD, b->wide, a->fc, d, b->rows * b->f);
        return d;
    }
    struct op op = build_op(b, OP_SWIGLU_GRAD);
    op.t[0] = b->wide;
    op.t[1] = op.t[2] = a->fc;
    op.shape.rows = (struct shape_rows){.rows = b->rows, .width = b->f};
    build_add(b, &op);
    return a->fc;
}

/* The gradient of ln_2, into `narrow`. */
static void mlp_grad(struct build *b, const struct layer_activations *a)
{
    int proj = build_layer_tensor(b, MLP_PROJ_W), fc = build_layer_tensor(b, MLP_FC_W);
    b->keep = a->d_mlp;
    tensor_row_grad(b, b->dx, a->mlp, proj, build_layer_tensor(b, MLP_PROJ_B), b->wide);
    build_report(b, proj);
    struct tensor d = activation_grad(b, a);
    int bias = build_layer_tensor(b, MLP_FC_B);
    tensor_column_grad(b, d, a->ln_2, fc, bias, b->narrow, b->plan->tensors[fc].rows);
    build_report(b, bias >= 0 ? bias : fc);
}

static void second_norm_grad(struct build *b, const struct layer_activations *a)
{
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
    struct tensor wide = b->wide;
    b->keep = a->d_attention;
    tensor_row_grad(b, b->dx, a->attention, proj, build_layer_tensor(b, ATTN_PROJ_B), b->narrow);
    build_report(b, proj);
    b->wide = b->later ? a->d_qkv : wide;
    attention_grad(b, a);
    int bias = build_layer_tensor(b, ATTN_QKV_B);
    tensor_column_grad(b, b->wide, a->ln_1, qkv, bias, b->narrow, build_qkv_valid(b));
    b->wide = wide;
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
    else if (build_makes_mlp_again(b, b->layer))
        build_activation(b, a);
    b->again = false;
}

/* What the products of a layer left for later: dW of each. */
static void layer_weights(struct build *b)
{
    const struct layer_activations *a = &b->act[b->layer];
    int fc = build_layer_tensor(b, MLP_FC_W);
    if (b->expert != NULL) {
        expert_weights(b);
    } else {
        tensor_row_weight(b, a->d_mlp, a->mlp, build_layer_tensor(b, MLP_PROJ_W));
        tensor_column_weight(b, a->fc, a->ln_2, fc, b->plan->tensors[fc].rows);
    }
    tensor_row_weight(b, a->d_attention, a->attention, build_layer_tensor(b, ATTN_PROJ_W));
    tensor_column_weight(b, a->d_qkv, a->ln_1, build_layer_tensor(b, ATTN_QKV_W),
                         build_qkv_valid(b));
}

/* All gradients of a layer are made: to the split. */
static void finish_layer(struct build *b)
{
    int first = build_layer_tensor(b, MLP_PROJ_B), last = build_layer_tensor(b, LN_1_B);
    first = first >= 0 ? first : build_layer_tensor(b, ROUTER_W);
    first = first >= 0 ? first : build_layer_tensor(b, LN_2_W);
    last = last >= 0 ? last : build_layer_tensor(b, LN_1_W);
    tensor_small(b, first, last);
    tensor_replicated(b);
    expert_router_sum(b);
    build_report(b, last);
}

static void layer_backward(struct build *b)
{
    const struct layer_activations *a = &b->act[b->layer];
    b->split->use(b, 1 + b->layer);
    recompute(b, a);
    context_ahead(b, a);
    b->later = pipeline_delays(b);
    if (b->expert != NULL)
        expert_grad(b, a);
    else
        mlp_grad(b, a);
    second_norm_grad(b, a);
    attention_block_grad(b, a);
    b->later = false;
    b->split->done(b, 1 + b->layer);
    if (!b->pipe.delays)
        finish_layer(b);
}

static void embed_grad(struct build *b)
{
    struct tensor dx = tensor_gather(b, b->dx);
    b->split->embeds(b);
    struct op op = build_op(b, OP_EMBED_GRAD);
    op.t[0] = build_batch(b, b->micro)->tokens;
    op.t[1] = dx;
    op.t[2] = build_gradient(b, b->wte);
    op.t[3] = build_gradient(b, b->wpe);
    op.shape.rows = build_embed_shape(b);
    build_add(b, &op);
    build_finished(b, b->wpe, b->last);
    build_finished(b, b->wte, b->last);
}

/* A tied embedding that another stage has too is summed with that one first. */
static void finish_embedding(struct build *b)
{
    build_report(b, b->pipe.tied_apart ? b->wpe : b->wte);
}

/* The tensors of a chunk, in arena order; its embeddings lie behind all layers. */
static int first_tensor(const struct build *b, int chunk)
{
    int first, end, tensor = b->plan->n_tensors;
    pipeline_layers(b, chunk, &first, &end);
    if (b->pipe.last && chunk == b->pipe.schedule.chunks - 1)
        return 0;
    for (int i = 0; i < LAYER_TENSORS; i++)
        if (b->layer_tensor[end - 1][i] >= 0 && b->layer_tensor[end - 1][i] < tensor)
            tensor = b->layer_tensor[end - 1][i];
    return tensor;
}

static int end_tensor(const struct build *b, int chunk)
{
    if (chunk > 0)
        return first_tensor(b, chunk - 1);
    return b->pipe.tied_apart && b->pipe.last ? b->wte : b->plan->n_tensors;
}

void build_backward(struct build *b)
{
    int first = first_tensor(b, b->pipe.chunk), end = end_tensor(b, b->pipe.chunk);
    b->phase = PHASE_BACKWARD;
    for (int i = first * (1 + PLAN_CHANNELS); i < end * (1 + PLAN_CHANNELS); i++)
        b->finished[i] = -1;
    b->reported = first;
    b->quiet = b->pipe.delays;
    if (pipeline_has_head(b))
        head_grad(b);
    for (b->layer = b->pipe.layer_end - 1; b->layer >= b->pipe.layer_first; b->layer--)
        layer_backward(b);
    b->layer = -1;
    if (pipeline_embeds(b)) {
        embed_grad(b);
        finish_embedding(b);
    }
    b->split->micro_end(b);
}

void build_weights(struct build *b)
{
    b->phase = PHASE_BACKWARD;
    b->reported = first_tensor(b, b->pipe.chunk);
    b->quiet = false;
    if (pipeline_has_head(b))
        finish_head(b);
    for (b->layer = b->pipe.layer_end - 1; b->layer >= b->pipe.layer_first; b->layer--) {
        if (pipeline_delays(b))
            layer_weights(b);
        finish_layer(b);
    }
    b->layer = -1;
    if (pipeline_embeds(b))
        finish_embedding(b);
}
