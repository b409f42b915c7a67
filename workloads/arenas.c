#include "workloads/build.h"

#include <stdlib.h>

#include "base/err.h"
#include "workloads/kernels/kernels.h"

int64_t build_element(const struct build *b)
{
    return (int64_t)dtype_size((int)b->plan->dtype);
}

struct tensor build_take(struct build *b, enum plan_buffer buffer, int64_t n)
{
    return plan_take(b->plan, buffer, n * build_element(b));
}

struct tensor build_take_wide(struct build *b, enum plan_buffer buffer, int64_t n)
{
    return plan_take(b->plan, buffer, n * (int64_t)sizeof(float));
}

bool build_is_recomputed(const struct build *b, int64_t layer)
{
    return b->policy->recompute == RECOMPUTE_FULL && layer % b->policy->recompute_every == 0;
}

static void take_attention(struct build *b, struct layer_activations *a)
{
    a->attention = build_take(b, BUFFER_ACTIVATION, b->rows * b->heads * b->head);
    a->lse = build_take_wide(b, BUFFER_ACTIVATION, b->rows * b->heads);
    if (b->cp.n > 1 && b->policy->cp_kind == CP_ULYSSES)
        a->turned = build_take(b, BUFFER_ACTIVATION, b->rows * b->heads * b->head);
}

bool build_makes_mlp_again(const struct build *b, int64_t layer)
{
    return b->policy->recompute == RECOMPUTE_MLP && layer % b->policy->recompute_every == 0;
}

/* All of a layer but its input; what recomputation of a part shares comes from `shared`. */
static void take_layer(struct build *b, struct layer_activations *a,
                       const struct layer_activations *shared)
{
    bool rms = model_has_rms(b->model);
    int64_t local = b->local_rows * b->h, inner = b->rows * b->f; /* experts: the shared ones */
    a->ln_1 = build_take(b, BUFFER_ACTIVATION, local);
    if (!rms)
        a->mean_1 = build_take_wide(b, BUFFER_ACTIVATION, b->local_rows);
    a->rstd_1 = build_take_wide(b, BUFFER_ACTIVATION, b->local_rows);
    a->qkv = build_take(b, BUFFER_ACTIVATION, context_qkv(b));
    if (shared != NULL && shared->attention.buffer != BUFFER_NONE) {
        a->attention = shared->attention;
        a->lse = shared->lse;
        a->turned = shared->turned;
    } else {
        take_attention(b, a);
    }
    a->x_2 = build_take(b, BUFFER_ACTIVATION, local);
    a->ln_2 = build_take(b, BUFFER_ACTIVATION, local);
    if (!rms)
        a->mean_2 = build_take_wide(b, BUFFER_ACTIVATION, b->local_rows);
    a->rstd_2 = build_take_wide(b, BUFFER_ACTIVATION, b->local_rows);
    a->fc = build_take(b, BUFFER_ACTIVATION, model_is_gated(b->model) ? 2 * inner : inner);
    bool has_mlp = shared != NULL && shared->mlp.buffer != BUFFER_NONE;
    a->mlp = has_mlp ? shared->mlp : build_take(b, BUFFER_ACTIVATION, inner);
}

/* Of the i-th layer of a chunk: is it that in every chunk? Chunks share their places. */
static bool in_all_chunks(const struct build *b, int i, bool (*is)(const struct build *, int64_t))
{
    bool all = true;
    for (int chunk = 0; chunk < b->pipe.schedule.chunks; chunk++) {
        int first, end;
        pipeline_layers(b, chunk, &first, &end);
        all = all && is(b, first + i);
    }
    return all;
}

static bool is_first_of_every(const struct build *b, int64_t layer)
{
    return layer % b->policy->recompute_every == 0;
}

/* What recomputed layers, or recomputed parts of layers, have in common. */
struct common {
    struct layer_activations part, again;
    int expert; /* layer whose places recomputed experts share, -1 */
};

/* The layer `l`, i-th of its chunk, at a place; its first has its input elsewhere. */
static void take_layer_at(struct build *b, struct common *common, int l, int i,
                          struct layer_activations *a)
{
    bool is_shared = in_all_chunks(b, i, build_is_recomputed);
    bool shares = in_all_chunks(b, i, is_first_of_every);
    if (!is_shared) {
        take_layer(b, a, shares ? &common->part : NULL);
    } else {
        if (common->again.ln_1.buffer == BUFFER_NONE)
            take_layer(b, &common->again, NULL);
        *a = common->again;
    }
    if (is_shared && common->expert >= 0)
        expert_share_layer(b, l, common->expert);
    else
        expert_take_layer(b, l);
    common->expert = is_shared ? l : common->expert;
    if (i > 0)
        a->x = build_take(b, BUFFER_ACTIVATION, b->local_rows * b->h);
    if (b->pipe.delays && !is_shared) {
        if (b->expert != NULL)
            expert_take_delayed(b, l);
        else
            a->d_mlp = build_take(b, BUFFER_ACTIVATION, b->rows * b->h);
        a->d_attention = build_take(b, BUFFER_ACTIVATION, b->rows * b->h);
        a->d_qkv =
            build_take(b, BUFFER_ACTIVATION, b->rows * (b->heads + 2 * b->kv_heads) * b->head);
    }
}

static void take_layers(struct build *b)
{
    struct common common = {.expert = -1};
    struct build_pipeline *p = &b->pipe;
    int first, end;
    b->act = must_alloc((size_t)b->model->layers, sizeof *b->act);
    if (b->policy->recompute == RECOMPUTE_SELECTIVE)
        take_attention(b, &common.part);
    if (b->policy->recompute == RECOMPUTE_MLP)
        common.part.mlp = build_take(b, BUFFER_ACTIVATION, b->rows * b->f);
    for (int at = 0; at < p->n[PLACE_LAYERS]; at++)
        for (int i = 0; i < p->most_layers; i++) {
            pipeline_layers(b, 0, &first, &end);
            int taken = first + i;
            take_layer_at(b, &common, taken, i, &p->layers[at * p->most_layers + i]);
            for (int chunk = 0; chunk < p->schedule.chunks; chunk++) {
                pipeline_layers(b, chunk, &first, &end);
                if (chunk > 0)
                    expert_share_layer(b, first + i, taken);
                expert_keep_layer(b, first + i, at);
            }
        }
    for (int at = 0; at < p->n[PLACE_INPUT]; at++)
        p->input[at] = build_take(b, BUFFER_ACTIVATION, b->local_rows * b->h);
}

static void take_head(struct build *b, struct head_activations *head)
{
    int64_t local = b->local_rows * b->h;
    head->x_out = build_take(b, BUFFER_ACTIVATION, local);
    head->ln_f = build_take(b, BUFFER_ACTIVATION, local);
    if (!model_has_rms(b->model))
        head->mean_f = build_take_wide(b, BUFFER_ACTIVATION, b->local_rows);
    head->rstd_f = build_take_wide(b, BUFFER_ACTIVATION, b->local_rows);
    head->logits = build_take(b, BUFFER_ACTIVATION, b->rows / b->policy->head_chunks * b->vp);
}

/* What stages exchange: gradients on their way up, outputs on their way down. */
static void take_exchanged(struct build *b)
{
    struct build_pipeline *p = &b->pipe;
    enum plan_buffer buffer = p->schedule.stages > 1 ? BUFFER_WIRE : BUFFER_TEMPORARY;
    for (int at = 0; at < p->n[PLACE_GRADIENTS]; at++)
        p->gradients[at] = build_take(b, buffer, b->local_rows * b->h);
    bool sends = !p->last || p->schedule.chunks > 1;
    for (int i = 0; i < (sends ? PIPELINE_OUTPUTS : 0); i++)
        p->output[i] = build_take(b, BUFFER_WIRE, b->local_rows * b->h);
}

static void take_batches(struct build *b)
{
    for (int at = 0; at < b->pipe.n[PLACE_BATCH]; at++) {
        struct batch *batch = &b->pipe.batch[at];
        batch->tokens = plan_take(b->plan, BUFFER_BATCH, b->rows * (int64_t)sizeof(int32_t));
        batch->targets = plan_take(b->plan, BUFFER_BATCH, b->rows * (int64_t)sizeof(int32_t));
        batch->mask = plan_take(b->plan, BUFFER_BATCH, b->rows);
        batch->op = -1;
    }
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static void take_temporaries(struct build *b)
{
    int64_t attention = b->rows * b->heads * b->head;
    int64_t qkv = b->rows * (b->heads + 2 * b->kv_heads) * b->head;
    struct shape_attention shape = build_attention_shape(b);
    if (b->policy->cp_kind != CP_RING)
        shape.kv_rows = b->model->sequence;
    b->wide = build_take(b, BUFFER_TEMPORARY, larger(b->rows * b->f, qkv));
    b->narrow = build_take(b, BUFFER_TEMPORARY, larger(b->local_rows * b->h, attention));
    b->workspace = plan_take(b->plan, BUFFER_TEMPORARY, kernels_attention_workspace(&shape));
}

static void take_tensor_parallel(struct build *b)
{
    const struct model *m = b->model;
    if (b->tp == 1)
        return;
    b->stats = build_take_wide(b, BUFFER_WIRE, 3 * b->rows);
    b->all_stats = build_take_wide(b, BUFFER_WIRE, 3 * b->rows * b->tp);
    if (b->sequence_parallel) {
        b->part = build_take(b, BUFFER_WIRE, b->rows * b->h);
        b->gathered = build_take(b, BUFFER_WIRE, b->rows * b->h);
    }
    if (b->tp > m->kv_heads)
        b->kv_sum = build_take_wide(b, BUFFER_WIRE, 2 * m->kv_heads * m->head * b->h);
}

void build_arenas(struct build *b)
{
    take_layers(b);
    for (int at = 0; at < b->pipe.n[PLACE_HEAD]; at++)
        take_head(b, &b->pipe.head[at]);
    take_temporaries(b);
    take_exchanged(b);
    take_tensor_parallel(b);
    expert_arenas(b);
    context_arenas(b);
    take_batches(b);
}

void build_release(struct build *b)
{
    expert_release(b);
    pipeline_close(b);
    free(b->act);
    free(b->layer_tensor);
    free(b->finished);
    free(b->reduced);
}
