#include "workloads/build.h"

static const struct tensor no_tensor;

/* ---- input ---- */

struct batch *build_batch(const struct build *b, int micro)
{
    return &b->pipe.batch[b->pipe.held[PLACE_BATCH][micro]];
}

/* On a stream of its own, a batch waits for the last reader of its buffer, some micro-batches ago
 * or in the step before. */
void build_input(struct build *b, int micro)
{
    enum phase phase = b->phase;
    struct op op = build_op(b, OP_INPUT);
    int64_t replica = b->plan->layout.group[AXIS_DP].me;
    struct batch *batch = build_batch(b, micro);
    op.phase = PHASE_INPUT;
    op.micro = micro;
    op.t[0] = batch->tokens;
    op.t[1] = batch->targets;
    op.t[2] = batch->mask;
    op.shape.input.samples = b->policy->micro_batch;
    op.shape.input.sequence = b->model->sequence;
    op.shape.input.cut = b->cp.cut;
    op.shape.input.first = (replica * b->plan->micro_batches + micro) * b->policy->micro_batch;
    if (b->policy->copy_stream) {
        op.stream = BUILD_COPY_STREAM;
        int index = plan_op(b->plan, &op);
        if (micro == 0 || batch->op >= 0) /* others are free since the step began, as the first's */
            plan_wait(b->plan, index, b->last);
        batch->op = index;
    } else {
        batch->op = build_add(b, &op);
    }
    b->phase = phase;
}

static void next_input(struct build *b)
{
    if (!b->policy->copy_stream)
        build_input(b, b->micro);
    else if (b->micro + 1 < b->plan->micro_batches)
        build_input(b, b->micro + 1);
    build_await(b, build_batch(b, b->micro)->op);
}

/* ---- forward ---- */

struct shape_rows build_embed_shape(const struct build *b)
{
    return (struct shape_rows){.rows = b->rows,
                               .width = b->h,
                               .valid = b->v,
                               .sequence = b->model->sequence,
                               .cut = b->cp.cut,
                               .first_column = b->v_first,
                               .parts = b->tp};
}

static void embed(struct build *b)
{
    b->split->use(b, UNIT_EMBEDDING);
    struct op op = build_op(b, OP_EMBED);
    op.t[0] = build_batch(b, b->micro)->tokens;
    op.t[1] = build_weight(b, b->wte);
    op.t[2] = build_weight(b, b->wpe);
    op.t[3] = tensor_part(b, b->act[0].x);
    op.shape.rows = build_embed_shape(b);
    build_add(b, &op);
    b->split->done(b, UNIT_EMBEDDING);
    tensor_reduce(b, b->act[0].x);
}

static void norm(struct build *b, const struct norm *n)
{
    bool adds = n->residual.buffer != BUFFER_NONE;
    struct op op = build_op(b, OP_NORM);
    op.t[0] = adds ? b->narrow : n->x;
    op.t[1] = build_weight(b, n->w);
    op.t[2] = build_weight(b, n->bias);
    op.t[3] = n->y;
    op.t[4] = n->mean;
    op.t[5] = n->rstd;
    op.t[6] = n->residual;
    op.t[7] = adds ? n->x : no_tensor;
    op.shape.rows =
        (struct shape_rows){.rows = b->local_rows, .width = b->h, .rms = model_has_rms(b->model)};
    build_add(b, &op);
}

int64_t build_qkv_valid(const struct build *b)
{
    int kv = build_layer_tensor(b, ATTN_KV_W);
    bool counted = kv < 0 || b->plan->tensors[kv].counted;
    return (b->heads + (counted ? 2 * b->kv_heads : 0)) * (int64_t)b->head;
}

void build_rotary(struct build *b, struct tensor qkv, bool inverse)
{
    if (!model_is_rotary(b->model))
        return;
    struct op op = build_op(b, OP_ROTARY);
    op.t[0] = qkv;
    op.shape.attention = build_attention_shape(b);
    op.shape.attention.inverse = inverse;
    build_add(b, &op);
}

void build_attention(struct build *b, const struct layer_activations *a)
{
    if (b->cp.n > 1) {
        context_attention(b, a);
        return;
    }
    struct op op = build_op(b, OP_ATTENTION);
    op.t[0] = a->qkv;
    op.t[1] = a->attention;
    op.t[2] = a->lse;
    op.t[3] = b->workspace;
    op.shape.attention = build_attention_shape(b);
    build_add(b, &op);
}

void build_activation(struct build *b, const struct layer_activations *a)
{
    if (!model_is_gated(b->model)) {
        build_vector_op(b, OP_GELU, a->fc, a->mlp, no_tensor, b->rows * b->f);
        return;
    }
    struct op op = build_op(b, OP_SWIGLU);
    op.t[0] = a->fc;
    op.t[1] = a->mlp;
    op.shape.rows = (struct shape_rows){.rows = b->rows, .width = b->f};
    build_add(b, &op);
}

/* From the layer's input to the activation of the MLP. */
void build_layer_inner(struct build *b, struct tensor residual)
{
    const struct layer_activations *a = &b->act[b->layer];
    int w = build_layer_tensor(b, LN_1_W), bias = build_layer_tensor(b, LN_1_B);
    norm(b, &(struct norm){w, bias, a->x, residual, a->ln_1, a->mean_1, a->rstd_1});
    tensor_column(b, a->ln_1, build_layer_tensor(b, ATTN_QKV_W), build_layer_tensor(b, ATTN_QKV_B),
                  a->qkv, build_qkv_valid(b));
    build_rotary(b, a->qkv, false);
    context_spread(b, a);
    build_attention(b, a);
    tensor_row(b, a->attention, build_layer_tensor(b, ATTN_PROJ_W),
               build_layer_tensor(b, ATTN_PROJ_B), b->narrow);
    w = build_layer_tensor(b, LN_2_W), bias = build_layer_tensor(b, LN_2_B);
    norm(b, &(struct norm){w, bias, a->x_2, a->x, a->ln_2, a->mean_2, a->rstd_2});
    if (b->expert != NULL) {
        expert_inner(b, a);
        return;
    }
    w = build_layer_tensor(b, MLP_FC_W);
    tensor_column(b, a->ln_2, w, build_layer_tensor(b, MLP_FC_B), a->fc, b->plan->tensors[w].rows);
    build_activation(b, a);
}

static struct tensor residual_before(const struct build *b, int layer)
{
    return layer > b->pipe.layer_first ? b->act[layer - 1].x_2 : no_tensor;
}

static void layer_forward(struct build *b)
{
    b->split->use(b, 1 + b->layer);
    build_layer_inner(b, residual_before(b, b->layer));
    if (b->expert != NULL)
        expert_output(b, &b->act[b->layer]);
    else
        tensor_row(b, b->act[b->layer].mlp, build_layer_tensor(b, MLP_PROJ_W),
                   build_layer_tensor(b, MLP_PROJ_B), b->narrow);
    b->split->done(b, 1 + b->layer);
}

int build_head_weight(const struct build *b)
{
    return b->model->tied ? b->wte : b->head_w;
}

void build_use_head(struct build *b)
{
    b->split->use(b, 1 + (int)b->model->layers);
    if (b->model->tied)
        b->split->use(b, UNIT_EMBEDDING);
}

void build_done_head(struct build *b)
{
    if (b->model->tied)
        b->split->done(b, UNIT_EMBEDDING);
    b->split->done(b, 1 + (int)b->model->layers);
}

/* Statistics of the columns that other ranks of tp hold. */
static void class_stats(struct build *b)
{
    struct op op = build_op(b, OP_CLASS_STATS);
    op.t[0] = b->logits;
    op.t[1] = build_batch(b, b->micro)->targets;
    op.t[2] = b->stats;
    op.shape.rows = (struct shape_rows){
        .rows = b->rows, .width = b->vp, .valid = b->v, .first_column = b->v_first};
    build_add(b, &op);
    struct build_call call = {.kind = COLL_ALL_GATHER,
                              .axis = AXIS_TP,
                              .dtype = DTYPE_F32,
                              .count = 3 * b->rows,
                              .phase = b->phase,
                              .send = b->stats,
                              .receive = b->all_stats};
    build_await(b, build_collective(b, &call, b->last));
}

/* Of b->rows of the micro-batch, from row `first` on. */
static void loss(struct build *b, int64_t first)
{
    if (b->tp > 1)
        class_stats(b);
    struct op op = build_op(b, OP_CROSS_ENTROPY);
    op.t[0] = b->logits;
    op.t[1] = build_at(build_batch(b, b->micro)->targets, first, (int64_t)sizeof(int32_t));
    op.t[2] = build_at(build_batch(b, b->micro)->mask, first, 1);
    op.t[3] = build_scalar(SCALAR_LOSS_SUM);
    op.t[4] = b->all_stats;
    op.shape.rows = (struct shape_rows){.rows = b->rows,
                                        .width = b->vp,
                                        .valid = b->v,
                                        .first_column = b->v_first,
                                        .parts = b->tp > 1 ? b->tp : 0};
    build_add(b, &op);
}

void build_head_rows(struct build *b, struct tensor x, int64_t first)
{
    tensor_column(b, x, build_head_weight(b), -1, b->logits, b->v);
    loss(b, first);
}

static void head_and_loss(struct build *b)
{
    build_use_head(b);
    norm(b,
         &(struct norm){b->ln_f_w, b->ln_f_b, b->x_out, residual_before(b, (int)b->model->layers),
                        b->ln_f, b->mean_f, b->rstd_f});
    if (b->policy->head_chunks == 1) /* else they follow in backward, part by part */
        build_head_rows(b, b->ln_f, 0);
    if (b->last_micro && b->policy->head_chunks == 1)
        build_reduce_loss(b);
    if (b->pipe.schedule.stages > 1)
        build_done_head(b);
}

void build_forward(struct build *b)
{
    b->layer = -1;
    b->phase = PHASE_FORWARD;
    if (pipeline_takes_batch(b))
        next_input(b);
    if (pipeline_embeds(b))
        embed(b);
    for (b->layer = b->pipe.layer_first; b->layer < b->pipe.layer_end; b->layer++)
        layer_forward(b);
    b->layer = -1;
    if (pipeline_has_head(b))
        head_and_loss(b);
    else
        pipeline_output(b);
}
