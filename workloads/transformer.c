#include "workloads/transformer.h"

#include <string.h>

#include "base/err.h"
#include "base/rng.h"
#include "workloads/build.h"

static const struct tensor no_tensor;

void policy_defaults(struct policy *policy, const struct model *model)
{
    *policy = (struct policy){.bucket_bytes = 25 << 20,
                              .overlap_gradients = true,
                              .lr = (float)model->lr,
                              .lr_min = (float)model->lr / 10,
                              .beta1 = 0.9f,
                              .beta2 = 0.95f,
                              .epsilon = 1e-8f,
                              .weight_decay = 0.1f,
                              .clip = 1.0f,
                              .warm_up = 10,
                              .decay_steps = 1000};
}

/* ---- forward ---- */

static void input(struct build *b)
{
    b->phase = PHASE_INPUT;
    struct op op = build_op(b, OP_INPUT);
    int64_t replica = b->plan->layout.group[AXIS_DP].me;
    op.t[0] = b->tokens;
    op.t[1] = b->targets;
    op.t[2] = b->mask;
    op.shape.input.samples = b->policy->micro_batch;
    op.shape.input.sequence = b->model->sequence;
    op.shape.input.first = (replica * b->plan->micro_batches + b->micro) * b->policy->micro_batch;
    plan_op(b->plan, &op);
}

static void embed(struct build *b)
{
    struct op op = build_op(b, OP_EMBED);
    op.t[0] = b->tokens;
    op.t[1] = build_weight(b, build_wte_tensor(b));
    op.t[2] = build_weight(b, build_wpe_tensor(b));
    op.t[3] = b->act[0].x;
    op.shape.rows = (struct shape_rows){
        .rows = b->rows, .width = b->h, .valid = b->v, .sequence = b->model->sequence};
    plan_op(b->plan, &op);
}

static void layer_forward(struct build *b)
{
    struct layer_activations *a = &b->act[b->layer];
    bool last = b->layer == b->model->layers - 1;
    int64_t rh = b->rows * b->h;
    build_norm(b, a->x, build_layer_tensor(b, LN_1_W), a->ln_1, a->mean_1, a->rstd_1);
    build_linear(b, a->ln_1, build_layer_tensor(b, ATTN_QKV_W), build_layer_tensor(b, ATTN_QKV_B),
                 a->qkv);
    struct op op = build_op(b, OP_ATTENTION);
    op.t[0] = a->qkv;
    op.t[1] = a->attention;
    op.t[2] = a->lse;
    op.t[3] = b->workspace;
    op.shape.attention = build_attention_shape(b);
    plan_op(b->plan, &op);
    build_linear(b, a->attention, build_layer_tensor(b, ATTN_PROJ_W),
                 build_layer_tensor(b, ATTN_PROJ_B), b->narrow);
    build_vector_op(b, OP_ADD, a->x, b->narrow, a->x_2, rh);
    build_norm(b, a->x_2, build_layer_tensor(b, LN_2_W), a->ln_2, a->mean_2, a->rstd_2);
    build_linear(b, a->ln_2, build_layer_tensor(b, MLP_FC_W), build_layer_tensor(b, MLP_FC_B),
                 a->fc);
    build_vector_op(b, OP_GELU, a->fc, a->gelu, no_tensor, b->rows * b->f);
    build_linear(b, a->gelu, build_layer_tensor(b, MLP_PROJ_W), build_layer_tensor(b, MLP_PROJ_B),
                 b->narrow);
    build_vector_op(b, OP_ADD, a->x_2, b->narrow, last ? b->x_out : b->act[b->layer + 1].x, rh);
}

static void head_and_loss(struct build *b)
{
    build_norm(b, b->x_out, LN_F_W, b->ln_f, b->mean_f, b->rstd_f);
    struct shape_gemm shape = build_gemm_shape(b->rows, b->vp, b->h, 0);
    shape.n_valid = b->v;
    build_gemm(b, b->ln_f, false, build_weight(b, build_wte_tensor(b)), true, b->logits, shape,
               no_tensor);
    struct op op = build_op(b, OP_CROSS_ENTROPY);
    op.t[0] = b->logits;
    op.t[1] = b->targets;
    op.t[2] = b->mask;
    op.t[3] = build_scalar(SCALAR_LOSS_SUM);
    op.shape.rows = (struct shape_rows){.rows = b->rows, .width = b->vp, .valid = b->v};
    int index = plan_op(b->plan, &op);
    if (b->last_micro)
        data_reduce_scalars(&b->data, index);
}

static void forward(struct build *b)
{
    b->layer = -1;
    input(b);
    b->phase = PHASE_FORWARD;
    embed(b);
    for (b->layer = 0; b->layer < b->model->layers; b->layer++)
        layer_forward(b);
    b->layer = -1;
    head_and_loss(b);
}

/* ---- backward ---- */

static void head_grad(struct build *b)
{
    int wte = build_wte_tensor(b);
    struct shape_gemm shape = build_gemm_shape(b->vp, b->h, b->rows, 1);
    shape.m_valid = b->v;
    build_gemm(b, b->logits, true, b->ln_f, false, build_gradient(b, wte), shape, no_tensor);
    shape = build_gemm_shape(b->rows, b->h, b->vp, 0);
    shape.k_valid = b->v;
    build_gemm(b, b->logits, false, build_weight(b, wte), false, b->narrow, shape, no_tensor);
    build_norm_grad(b, b->narrow, b->x_out, LN_F_W, b->mean_f, b->rstd_f, false);
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
    plan_op(b->plan, &op);
}

static void layer_backward(struct build *b)
{
    const struct layer_activations *a = &b->act[b->layer];
    build_linear_grad(b, b->dx, a->gelu, build_layer_tensor(b, MLP_PROJ_W),
                      build_layer_tensor(b, MLP_PROJ_B), b->wide);
    build_vector_op(b, OP_GELU_GRAD, b->wide, a->fc, b->wide, b->rows * b->f);
    build_linear_grad(b, b->wide, a->ln_2, build_layer_tensor(b, MLP_FC_W),
                      build_layer_tensor(b, MLP_FC_B), b->narrow);
    build_norm_grad(b, b->narrow, a->x_2, build_layer_tensor(b, LN_2_W), a->mean_2, a->rstd_2,
                    true);
    build_linear_grad(b, b->dx, a->attention, build_layer_tensor(b, ATTN_PROJ_W),
                      build_layer_tensor(b, ATTN_PROJ_B), b->narrow);
    attention_grad(b, a);
    build_linear_grad(b, b->wide, a->ln_1, build_layer_tensor(b, ATTN_QKV_W),
                      build_layer_tensor(b, ATTN_QKV_B), b->narrow);
    build_norm_grad(b, b->narrow, a->x, build_layer_tensor(b, LN_1_W), a->mean_1, a->rstd_1, true);
}

static void embed_grad(struct build *b)
{
    struct op op = build_op(b, OP_EMBED_GRAD);
    op.t[0] = b->tokens;
    op.t[1] = b->dx;
    op.t[2] = build_gradient(b, build_wte_tensor(b));
    op.t[3] = build_gradient(b, build_wpe_tensor(b));
    op.shape.rows = (struct shape_rows){
        .rows = b->rows, .width = b->h, .valid = b->v, .sequence = b->model->sequence};
    int index = plan_op(b->plan, &op);
    build_finished(b, build_wpe_tensor(b), index);
    build_finished(b, build_wte_tensor(b), index);
}

static void backward(struct build *b)
{
    b->phase = PHASE_BACKWARD;
    head_grad(b);
    for (b->layer = (int)b->model->layers - 1; b->layer >= 0; b->layer--)
        layer_backward(b);
    b->layer = -1;
    embed_grad(b);
}

/* ---- update ---- */

static void zero(struct build *b)
{
    b->phase = PHASE_FORWARD;
    build_vector_op(b, OP_ZERO, build_state(b, BUFFER_GRADIENT, 0), no_tensor, no_tensor,
                    b->plan->n_parameters);
    int64_t words = (SCALAR_SUMSQ + 1) * (int64_t)(sizeof(double) / sizeof(float));
    build_vector_op(b, OP_ZERO, build_scalar(SCALAR_LOSS_SUM), no_tensor, no_tensor, words);
}

static void sum_of_squares(struct build *b, int64_t from, int64_t to, int bucket)
{
    struct op op = build_op(b, OP_SUMSQ);
    op.t[0] = (struct tensor){BUFFER_GRADIENT, from};
    op.t[1] = build_scalar(SCALAR_LOSS_SUM);
    op.shape.vector.n = (to - from) / (int64_t)sizeof(float);
    int index = plan_op(b->plan, &op);
    if (bucket >= 0)
        plan_wait(b->plan, index, bucket);
}

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

static void update(struct build *b)
{
    struct data_parallel *data = &b->data;
    int64_t from = 0;
    b->phase = PHASE_UPDATE;
    b->micro = -1;
    for (int i = 0; i < data->n_buckets; from = data->end[i++])
        sum_of_squares(b, from, data->end[i], data->bucket[i]);
    if (data->n_buckets == 0)
        sum_of_squares(b, 0, b->plan->n_parameters * (int64_t)sizeof(float), -1);
    struct op clip = optimizer_op(b, OP_CLIP);
    clip.t[0] = build_scalar(SCALAR_LOSS_SUM);
    int index = plan_op(b->plan, &clip);
    if (data->scalars >= 0)
        plan_wait(b->plan, index, data->scalars);
    for (int i = 0; i < b->plan->n_tensors; i++) {
        const struct plan_tensor *t = &b->plan->tensors[i];
        struct op op = optimizer_op(b, OP_ADAMW);
        op.t[0] = build_state(b, BUFFER_PARAMETER, i);
        op.t[1] = build_state(b, BUFFER_GRADIENT, i);
        op.t[2] = build_state(b, BUFFER_MOMENT1, i);
        op.t[3] = build_state(b, BUFFER_MOMENT2, i);
        op.t[4] = build_scalar(SCALAR_LOSS_SUM);
        op.shape.optimizer.n = t->rows * t->columns;
        op.shape.optimizer.weight_decay = t->decay ? b->policy->weight_decay : 0;
        plan_op(b->plan, &op);
    }
}

/* Refuse in words what would exhaust the host while it is only being planned. */
static int check_size(const struct model *model, const struct policy *policy, int64_t micro_batches)
{
    double ops = (double)micro_batches * (26.0 * (double)model->layers + 9);
    double rows = (double)policy->micro_batch * (double)model->sequence;
    double width = (double)model->layers * (9.0 * (double)model->hidden + 2.0 * (double)model->ffn);
    double bytes = 4 * rows * (width + (double)model_padded_vocabulary(model));
    if (ops > 4e6)
        return fail(FAIL_USAGE,
                    "plan: %.3g micro-batches are %.3g operations a step; choose a "
                    "larger micro-batch or a smaller global batch",
                    (double)micro_batches, ops);
    if (bytes > 1e15)
        return fail(FAIL_USAGE,
                    "plan: activations of a micro-batch need %.3g bytes; choose a "
                    "smaller micro-batch, sequence or model",
                    bytes);
    return 0;
}

static int check_layout(const struct model *model, const struct layout *layout,
                        const struct policy *policy)
{
    const struct degrees *d = &layout->degrees;
    if (d->tp != 1 || d->pp != 1 || d->cp != 1 || d->ep != 1 || d->shard != 1)
        return fail(FAIL_ABSENT,
                    "layout: tp=%d pp=%d cp=%d ep=%d shard=%d: this version splits by dp"
                    " alone; ask for dp=N",
                    d->tp, d->pp, d->cp, d->ep, d->shard);
    int64_t unit = (int64_t)d->dp * policy->micro_batch;
    if (policy->micro_batch < 1 || policy->global_batch < 1 || policy->global_batch % unit != 0)
        return fail(FAIL_USAGE,
                    "batch: %lld samples a step do not split over %d replicas in micro-batches of "
                    "%lld; choose a multiple of %lld",
                    (long long)policy->global_batch, d->dp, (long long)policy->micro_batch,
                    (long long)unit);
    return model_check(model);
}

int transformer_plan(struct plan *out, const struct model *model, const struct layout *layout,
                     const struct policy *policy)
{
    memset(out, 0, sizeof *out);
    int rc = 0;
    TRY(check_layout(model, layout, policy));
    int64_t unit = (int64_t)layout->degrees.dp * policy->micro_batch;
    TRY(check_size(model, policy, policy->global_batch / unit));
    plan_init(out, layout);
    out->micro_batches = (int)(policy->global_batch / unit);
    out->samples = out->micro_batches * policy->micro_batch;
    out->global_batch = policy->global_batch;
    out->sequence = model->sequence;
    struct build b = {.plan = out,
                      .model = model,
                      .policy = policy,
                      .rows = policy->micro_batch * model->sequence,
                      .h = model->hidden,
                      .f = model->ffn,
                      .v = model->vocabulary,
                      .vp = model_padded_vocabulary(model),
                      .layer = -1};
    build_tensors(&b);
    build_arenas(&b);
    data_begin(&b.data, out, policy->bucket_bytes, policy->overlap_gradients);
    zero(&b);
    for (b.micro = 0; b.micro < out->micro_batches; b.micro++) {
        b.last_micro = b.micro == out->micro_batches - 1;
        forward(&b);
        backward(&b);
    }
    data_end(&b.data);
    update(&b);
    rc = plan_seal(out);
    data_release(&b.data);
    free(b.act);
out:
    if (rc)
        plan_release(out);
    return rc;
}

void transformer_init_tensor(const struct plan_tensor *tensor, uint64_t seed, float *out)
{
    int64_t n = tensor->rows * tensor->columns, valid = tensor->valid_rows * tensor->columns;
    for (int64_t i = 0; i < n; i++)
        out[i] = tensor->sigma < 0 && i < valid ? 1.0f : 0.0f;
    if (tensor->sigma > 0)
        rng_fill_normal(out, valid, rng_key(seed, tensor->name), 0, (float)tensor->sigma);
}

double transformer_dp_bytes(const struct model *model, int replicas)
{
    double padding = (double)(model_padded_vocabulary(model) - model->vocabulary);
    double parameters = (double)model_parameters(model) + padding * (double)model->hidden;
    double n = (double)replicas;
    return 2.0 * (n - 1) / n * (4.0 * parameters + 3.0 * 8.0);
}

/* Buckets that close as tensors finish: sizes in elements, in the order of backward. */
static int64_t count_buckets(const struct model *model, int64_t bucket_bytes)
{
    int64_t h = model->hidden, f = model->ffn, n = 0, held = 0;
    const int64_t layer[] = {h * f, h, f * h, f, h, h, h * h, h, 3 * h * h, 3 * h, h, h};
    const int64_t ends[] = {h, h, model->sequence * h, model_padded_vocabulary(model) * h};
    int64_t tensors = 4 + 12 * model->layers;
    for (int64_t i = 0; i < tensors; i++) {
        int64_t size = i < 2              ? ends[i]
                       : i >= tensors - 2 ? ends[i - tensors + 4]
                                          : layer[(i - 2) % 12];
        int64_t limit = n == 0 && bucket_bytes > (1 << 20) ? 1 << 20 : bucket_bytes;
        held += 4 * size;
        if (held >= limit || i == tensors - 1) {
            n++;
            held = 0;
        }
    }
    return n;
}

double transformer_ops(const struct model *model, int64_t micro_batches, int replicas,
                       int64_t bucket_bytes)
{
    double layers = (double)model->layers;
    double compute = (double)micro_batches * (26 * layers + 9) + 12 * layers + 4 + 3;
    double buckets = replicas > 1 ? (double)count_buckets(model, bucket_bytes) : 1;
    return compute + buckets + (replicas > 1 ? buckets + 1 : 0);
}
