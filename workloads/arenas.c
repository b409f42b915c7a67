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
}

/* All of a layer but its input; what selective recomputation shares comes from `shared`. */
static void take_layer(struct build *b, struct layer_activations *a,
                       const struct layer_activations *shared)
{
    bool rms = model_has_rms(b->model);
    int64_t local = b->local_rows * b->h, inner = b->rows * b->f;
    a->ln_1 = build_take(b, BUFFER_ACTIVATION, local);
    if (!rms)
        a->mean_1 = build_take_wide(b, BUFFER_ACTIVATION, b->local_rows);
    a->rstd_1 = build_take_wide(b, BUFFER_ACTIVATION, b->local_rows);
    a->qkv = build_take(b, BUFFER_ACTIVATION, b->rows * (b->heads + 2 * b->kv_heads) * b->head);
    if (shared != NULL) {
        a->attention = shared->attention;
        a->lse = shared->lse;
    } else {
        take_attention(b, a);
    }
    a->x_2 = build_take(b, BUFFER_ACTIVATION, local);
    a->ln_2 = build_take(b, BUFFER_ACTIVATION, local);
    if (!rms)
        a->mean_2 = build_take_wide(b, BUFFER_ACTIVATION, b->local_rows);
    a->rstd_2 = build_take_wide(b, BUFFER_ACTIVATION, b->local_rows);
    a->fc = build_take(b, BUFFER_ACTIVATION, model_is_gated(b->model) ? 2 * inner : inner);
    a->mlp = build_take(b, BUFFER_ACTIVATION, inner);
}

static void take_layers(struct build *b)
{
    bool selective = b->policy->recompute == RECOMPUTE_SELECTIVE;
    struct layer_activations attention = {0}, again = {0};
    int64_t every = b->policy->recompute_every;
    b->act = must_alloc((size_t)b->model->layers, sizeof *b->act);
    if (selective)
        take_attention(b, &attention);
    for (int64_t l = 0; l < b->model->layers; l++) {
        struct layer_activations *a = &b->act[l];
        if (!build_is_recomputed(b, l)) {
            take_layer(b, a, selective && l % every == 0 ? &attention : NULL);
        } else {
            if (again.ln_1.buffer == BUFFER_NONE)
                take_layer(b, &again, NULL);
            *a = again;
        }
        a->x = build_take(b, BUFFER_ACTIVATION, b->local_rows * b->h);
    }
}

static void take_head(struct build *b)
{
    int64_t local = b->local_rows * b->h;
    b->x_out = build_take(b, BUFFER_ACTIVATION, local);
    b->ln_f = build_take(b, BUFFER_ACTIVATION, local);
    if (!model_has_rms(b->model))
        b->mean_f = build_take_wide(b, BUFFER_ACTIVATION, b->local_rows);
    b->rstd_f = build_take_wide(b, BUFFER_ACTIVATION, b->local_rows);
    b->logits = build_take(b, BUFFER_ACTIVATION, b->rows * b->vp);
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
    b->wide = build_take(b, BUFFER_TEMPORARY, larger(b->rows * b->f, qkv));
    b->narrow = build_take(b, BUFFER_TEMPORARY, larger(b->local_rows * b->h, attention));
    b->dx = build_take(b, BUFFER_TEMPORARY, b->local_rows * b->h);
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
    take_head(b);
    take_temporaries(b);
    take_tensor_parallel(b);
    for (int i = 0; i < (b->policy->copy_stream ? 2 : 1); i++) {
        b->tokens[i] = plan_take(b->plan, BUFFER_BATCH, b->rows * (int64_t)sizeof(int32_t));
        b->targets[i] = plan_take(b->plan, BUFFER_BATCH, b->rows * (int64_t)sizeof(int32_t));
        b->mask[i] = plan_take(b->plan, BUFFER_BATCH, b->rows);
    }
}

void build_release(struct build *b)
{
    free(b->act);
    free(b->layer_tensor);
    free(b->finished);
    free(b->reduced);
}
