#include "workloads/expert.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"

bool expert_is_apart(const struct layout *layout)
{
    return layout->degrees.ep > 1 || layout->degrees.etp != layout->degrees.tp;
}

/* ---- refusals ---- */

static int check_degrees(const struct model *m, const struct degrees *d)
{
    int below = d->ep, above = d->ep;
    if (m->experts % d->ep == 0)
        return 0;
    while (m->experts % below != 0)
        below--;
    while (above <= m->experts && m->experts % above != 0)
        above++;
    if (above <= m->experts)
        return fail(FAIL_USAGE,
                    "layout: ep=%d does not divide the %lld experts of model %s; choose ep=%d or "
                    "ep=%d",
                    d->ep, (long long)m->experts, m->name, below, above);
    return fail(FAIL_USAGE,
                "layout: ep=%d does not divide the %lld experts of model %s; choose ep=%d", d->ep,
                (long long)m->experts, m->name, below);
}

static int check_absent(const struct model *m, const struct policy *p)
{
    if (m->style != MODEL_LLAMA)
        return fail(
            FAIL_USAGE,
            "model %s: this version has experts of style llama (gated, without biases) alone",
            m->name);
    if (p->recompute == RECOMPUTE_MLP)
        return fail(FAIL_USAGE, "recompute: mlp with a model of experts is not in this version; "
                                "choose none, selective or full");
    return 0;
}

static int check_widths(const struct model *m, const struct degrees *d, const struct policy *p)
{
    if (m->experts > EXPERTS_MOST || m->top_k > TOP_K_MOST)
        return fail(FAIL_USAGE,
                    "model %s: %lld experts and top-k %lld, at most %d and %d can be routed",
                    m->name, (long long)m->experts, (long long)m->top_k, EXPERTS_MOST, TOP_K_MOST);
    if ((d->etp == d->tp && m->expert_ffn % d->tp != 0) ||
        m->shared_experts * m->expert_ffn % d->tp != 0)
        return fail(FAIL_USAGE,
                    "layout: tp=%d does not divide expert-ffn %lld of model %s; choose a tp that "
                    "does, or etp=1",
                    d->tp, (long long)m->expert_ffn, m->name);
    if (d->etp != d->tp && d->ep == 1)
        return fail(FAIL_USAGE,
                    "layout: etp=%d with tp=%d and ep=1: experts that are not split need ranks "
                    "that share them; choose ep=%d, or etp=%d",
                    d->etp, d->tp, d->tp, d->tp);
    if (d->etp != d->tp && !p->sequence_parallel)
        return fail(FAIL_USAGE,
                    "layout: etp=%d with tp=%d needs rows that are split over tp: choose "
                    "--sequence-parallel on, or etp=%d",
                    d->etp, d->tp, d->tp);
    return 0;
}

int expert_check(const struct model *model, const struct layout *layout,
                 const struct policy *policy)
{
    const struct degrees *d = &layout->degrees;
    int rc = 0;
    if (model->experts == 0 && (d->ep > 1 || d->etp != d->tp))
        return fail(FAIL_USAGE,
                    "layout: ep=%d etp=%d, and model %s has no experts; choose ep=1, or a model "
                    "that has",
                    d->ep, d->etp, model->name);
    if (model->experts == 0)
        return 0;
    TRY(check_absent(model, policy));
    TRY(check_degrees(model, d));
    TRY(check_widths(model, d, policy));
out:
    return rc;
}

/* ---- open ---- */

static void open_layers(struct build *b)
{
    struct expert *x = b->expert;
    const struct routing *routing = &b->policy->routing;
    int layers = (int)b->model->layers, micros = b->plan->micro_batches;
    int64_t *counts = must_alloc((size_t)(x->ep * x->n), sizeof *counts);
    x->layer = must_alloc((size_t)layers, sizeof *x->layer);
    x->exchange = must_alloc((size_t)layers * (size_t)micros, sizeof *x->exchange);
    for (int l = 0; l < layers; l++) {
        x->layer[l].key = routing_key(routing, l);
        if (routing->kind == ROUTING_SKEWED) {
            x->layer[l].threshold = plan_keep(b->plan, (size_t)x->n * sizeof(uint32_t));
            routing_thresholds(routing, l, x->n, x->layer[l].threshold);
        }
        for (int micro = 0; micro < micros; micro++)
            expert_make_exchange(b, l, micro, counts);
    }
    free(counts);
}

void expert_open(struct build *b)
{
    const struct model *m = b->model;
    const struct group *ep = &b->plan->layout.group[AXIS_EP];
    if (m->experts == 0)
        return;
    struct expert *x = b->expert = must_alloc(1, sizeof *x);
    bool split = b->plan->layout.degrees.etp == b->tp;
    x->n = (int)m->experts;
    x->local = x->n / ep->size;
    x->top_k = (int)m->top_k;
    x->ep = ep->size;
    x->ep_me = ep->me;
    x->own_rows = !split;
    x->rows = split ? b->rows : b->local_rows;
    x->inner = m->expert_ffn / (split ? b->tp : 1);
    b->f = m->shared_experts * m->expert_ffn / b->tp;
    open_layers(b);
}

void expert_release(struct build *b)
{
    if (b->expert == NULL)
        return;
    free(b->expert->layer);
    free(b->expert->kept);
    free(b->expert->exchange);
    free(b->expert);
    b->expert = NULL;
}

/* ---- memory ---- */

static struct tensor take_words(struct build *b, int64_t n)
{
    return plan_take(b->plan, BUFFER_ACTIVATION, n * (int64_t)sizeof(int32_t));
}

void expert_take_layer(struct build *b, int layer)
{
    struct expert *x = b->expert;
    if (x == NULL)
        return;
    struct expert_layer *l = &x->layer[layer];
    int64_t slots = x->rows * x->top_k, width = b->h;
    l->logits = build_take_wide(b, BUFFER_ACTIVATION, (int64_t)b->cp.n * b->rows * x->n);
    l->part_logits = l->own_logits = l->logits;
    if (b->cp.n > 1)
        l->part_logits = l->own_logits = build_take_wide(b, BUFFER_ACTIVATION, b->rows * x->n);
    if (x->own_rows)
        l->own_logits = build_take_wide(b, BUFFER_ACTIVATION, x->rows * x->n);
    l->experts = take_words(b, slots);
    l->place = take_words(b, slots);
    l->gates = take_words(b, slots);
    l->source = take_words(b, x->most_sent);
    l->share = take_words(b, b->policy->micro_batch * x->n);
    l->received = build_take(b, BUFFER_ACTIVATION, x->most_received * width);
    l->fc = build_take(b, BUFFER_ACTIVATION, x->most_received * 2 * x->inner);
    l->act = build_take(b, BUFFER_ACTIVATION, x->most_received * x->inner);
    l->returned = build_take(b, BUFFER_ACTIVATION, x->most_sent * width);
}

void expert_take_delayed(struct build *b, int layer)
{
    struct expert *x = b->expert;
    x->layer[layer].d_returned = build_take(b, BUFFER_ACTIVATION, x->most_received * b->h);
}

/* Keys and thresholds stay the layer's own. */
static void use_memory(struct expert_layer *layer, const struct expert_layer *of)
{
    struct expert_layer own = *layer;
    *layer = *of;
    layer->key = own.key;
    layer->threshold = own.threshold;
}

void expert_share_layer(struct build *b, int layer, int with)
{
    if (b->expert != NULL)
        use_memory(&b->expert->layer[layer], &b->expert->layer[with]);
}

void expert_keep_layer(struct build *b, int layer, int at)
{
    struct expert *x = b->expert;
    size_t layers = (size_t)b->model->layers;
    if (x == NULL)
        return;
    if (at >= x->n_kept) {
        x->kept = must_grow(x->kept, ((size_t)at + 1) * layers, sizeof *x->kept);
        x->n_kept = at + 1;
    }
    x->kept[(size_t)at * layers + (size_t)layer] = x->layer[layer];
}

void expert_enter_layer(struct build *b, int layer, int at)
{
    struct expert *x = b->expert;
    if (x != NULL && at < x->n_kept)
        use_memory(&x->layer[layer], &x->kept[at * b->model->layers + layer]);
}

void expert_arenas(struct build *b)
{
    struct expert *x = b->expert;
    if (x == NULL)
        return;
    int64_t most = x->most_sent > x->most_received ? x->most_sent : x->most_received;
    x->a = build_take(b, BUFFER_WIRE, most * b->h);
    x->b = build_take(b, BUFFER_WIRE, most * b->h);
    x->dact = build_take(b, BUFFER_TEMPORARY, x->most_received * x->inner);
    x->dgates = build_take_wide(b, BUFFER_TEMPORARY, x->rows * x->top_k);
    x->dlogits = build_take_wide(b, BUFFER_TEMPORARY, x->rows * x->n);
    x->dnarrow =
        b->plan->dtype == DTYPE_F32 ? x->dlogits : build_take(b, BUFFER_TEMPORARY, x->rows * x->n);
    expert_take_counts(b);
    b->plan->load = plan_take(b->plan, BUFFER_TEMPORARY,
                              b->model->layers * (x->n + 3) * (int64_t)sizeof(double));
}
