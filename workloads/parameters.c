#include "workloads/build.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/err.h"

enum { OUTSIDE_LAYERS = 5 };

/* A run of rows of the whole tensor that ranks of tp share out evenly. */
struct rows {
    int64_t first, count;
};

static int add_tensor(struct build *b, int unit, int64_t rows, int64_t columns, double sigma,
                      const char *format, ...)
{
    struct plan *plan = b->plan;
    struct plan_tensor *t = &plan->tensors[plan->n_tensors];
    va_list args;
    va_start(args, format);
    vsnprintf(t->name, sizeof t->name, format, args);
    va_end(args);
    t->rows = t->whole_rows = t->valid_rows = rows;
    t->columns = t->whole_columns = columns;
    t->n_spans = 1;
    t->span[0].count = rows;
    t->copies = b->tp;
    t->counted = b->tp_me == 0;
    t->unit = unit;
    t->sigma = sigma;
    t->decay = columns > 1;
    return plan->n_tensors++;
}

/* This rank holds its share of the rows of each part, `copies` ranks the same share. */
static void split_rows(struct build *b, int tensor, const struct rows *parts, int n, int copies)
{
    struct plan_tensor *t = &b->plan->tensors[tensor];
    t->rows = 0;
    t->n_spans = n;
    t->copies = copies;
    t->counted = b->tp_me % copies == 0;
    for (int i = 0; i < n; i++) {
        int64_t count = parts[i].count * copies / b->tp;
        t->span[i] = (struct plan_span){parts[i].first + b->tp_me / copies * count, count};
        t->rows += count;
    }
}

static void split_columns(struct build *b, int tensor)
{
    struct plan_tensor *t = &b->plan->tensors[tensor];
    t->columns = t->whole_columns / b->tp;
    t->first_column = b->tp_me * t->columns;
    t->copies = 1;
    t->counted = true;
}

/* q, k, v as one tensor, or the rows of q and the replicated rows of k and v as two. */
static void add_qkv(struct build *b, int l, double sigma)
{
    const struct model *m = b->model;
    int64_t q = m->heads * m->head, kv = m->kv_heads * m->head, rows = q + 2 * kv;
    const struct rows parts[] = {{0, q}, {q, kv}, {q + kv, kv}};
    int *tensor = b->layer_tensor[l];
    bool replicated = b->tp > m->kv_heads;
    tensor[ATTN_QKV_W] = add_tensor(b, 1 + l, rows, b->h, sigma, "h.%d.attn.qkv.weight", l);
    split_rows(b, tensor[ATTN_QKV_W], parts, replicated ? 1 : 3, 1);
    if (replicated) {
        int copies = b->tp / (int)m->kv_heads;
        tensor[ATTN_KV_W] = add_tensor(b, 1 + l, rows, b->h, sigma, "h.%d.attn.qkv.weight", l);
        split_rows(b, tensor[ATTN_KV_W], parts + 1, 2, copies);
    }
    if (!model_has_biases(m))
        return;
    tensor[ATTN_QKV_B] = add_tensor(b, 1 + l, rows, 1, 0, "h.%d.attn.qkv.bias", l);
    split_rows(b, tensor[ATTN_QKV_B], parts, 3, 1);
    struct plan_tensor *bias = &b->plan->tensors[tensor[ATTN_QKV_B]];
    bias->zero_first = bias->span[0].count; /* softmax does not see a constant added to all keys */
    bias->zero_count = bias->span[1].count;
}

static void add_small(struct build *b, int l)
{
    bool biases = model_has_biases(b->model);
    int *tensor = b->layer_tensor[l];
    if (biases)
        tensor[MLP_PROJ_B] = add_tensor(b, 1 + l, b->h, 1, 0, "h.%d.mlp.proj.bias", l);
    if (b->expert != NULL)
        tensor[ROUTER_W] =
            add_tensor(b, 1 + l, b->model->experts, b->h, 0.02, "h.%d.router.weight", l);
    tensor[LN_2_W] = add_tensor(b, 1 + l, b->h, 1, -1, "h.%d.ln_2.weight", l);
    if (biases) {
        tensor[LN_2_B] = add_tensor(b, 1 + l, b->h, 1, 0, "h.%d.ln_2.bias", l);
        tensor[ATTN_PROJ_B] = add_tensor(b, 1 + l, b->h, 1, 0, "h.%d.attn.proj.bias", l);
    }
    tensor[LN_1_W] = add_tensor(b, 1 + l, b->h, 1, -1, "h.%d.ln_1.weight", l);
    if (biases)
        tensor[LN_1_B] = add_tensor(b, 1 + l, b->h, 1, 0, "h.%d.ln_1.bias", l);
}

/* Gate and up, and proj, of this rank's experts: split over tp, or whole where etp is 1. */
static void add_experts(struct build *b, int l, double into_residual)
{
    const struct model *m = b->model;
    const struct rows parts[] = {{0, m->expert_ffn}, {m->expert_ffn, m->expert_ffn}};
    const struct group *ep = &b->plan->layout.group[AXIS_EP];
    int local = (int)m->experts / ep->size, first = ep->me * local;
    bool split = b->plan->layout.degrees.etp == b->tp;
    for (int e = 0; e < 2 * local; e++) {
        bool proj = e < local;
        int t = proj ? add_tensor(b, 1 + l, b->h, m->expert_ffn, into_residual,
                                  "h.%d.experts.%d.proj.weight", l, first + e)
                     : add_tensor(b, 1 + l, 2 * m->expert_ffn, b->h, 0.02,
                                  "h.%d.experts.%d.gate_up.weight", l, first + e - local);
        struct plan_tensor *tensor = &b->plan->tensors[t];
        tensor->expert = true;
        if (e % local == 0)
            b->layer_tensor[l][proj ? EXPERT_PROJ_W : EXPERT_FC_W] = t;
        if (!split) {
            tensor->copies = 1;
            tensor->counted = true;
        } else if (proj) {
            split_columns(b, t);
        } else {
            split_rows(b, t, parts, 2, 1);
        }
    }
}

static void add_layer(struct build *b, int l)
{
    const struct model *m = b->model;
    bool gated = model_is_gated(m), biases = model_has_biases(m);
    double into_residual = 0.02 / sqrt(2.0 * (double)m->layers);
    int64_t ffn = b->expert == NULL ? m->ffn : m->shared_experts * m->expert_ffn;
    const struct rows parts[] = {{0, ffn}, {ffn, ffn}};
    int *tensor = b->layer_tensor[l];
    for (int i = 0; i < LAYER_TENSORS; i++)
        tensor[i] = -1;
    if (b->expert != NULL)
        add_experts(b, l, into_residual);
    if (ffn > 0) {
        tensor[MLP_PROJ_W] =
            add_tensor(b, 1 + l, b->h, ffn, into_residual, "h.%d.mlp.proj.weight", l);
        split_columns(b, tensor[MLP_PROJ_W]);
        tensor[MLP_FC_W] = add_tensor(b, 1 + l, (gated ? 2 : 1) * ffn, b->h, 0.02,
                                      gated ? "h.%d.mlp.gate_up.weight" : "h.%d.mlp.fc.weight", l);
        split_rows(b, tensor[MLP_FC_W], parts, gated ? 2 : 1, 1);
    }
    if (biases) {
        tensor[MLP_FC_B] = add_tensor(b, 1 + l, ffn, 1, 0, "h.%d.mlp.fc.bias", l);
        split_rows(b, tensor[MLP_FC_B], parts, 1, 1);
    }
    tensor[ATTN_PROJ_W] =
        add_tensor(b, 1 + l, b->h, m->heads * m->head, into_residual, "h.%d.attn.proj.weight", l);
    split_columns(b, tensor[ATTN_PROJ_W]);
    add_qkv(b, l, 0.02);
    add_small(b, l);
}

static int add_vocabulary(struct build *b, int unit, const char *name)
{
    const struct rows all = {0, model_padded_vocabulary(b->model)};
    int tensor = add_tensor(b, unit, all.count, b->h, 0.02, "%s", name);
    b->plan->tensors[tensor].valid_rows = b->model->vocabulary;
    split_rows(b, tensor, &all, 1, 1);
    return tensor;
}

/* Experts whose gradient goes another way lie behind all else. */
static void place(struct plan *plan)
{
    bool apart = expert_is_apart(&plan->layout);
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < plan->n_tensors; i++) {
            if ((apart && plan->tensors[i].expert) != (pass == 1))
                continue;
            plan->tensors[i].offset = plan->n_parameters;
            plan->n_parameters += build_tensor_count(&plan->tensors[i]);
        }
}

/* The head: final norm and, untied, its matrix. Elsewhere there is none. */
static void add_head(struct build *b)
{
    const struct model *m = b->model;
    int unit = 1 + (int)m->layers;
    b->head_w = b->ln_f_w = b->ln_f_b = -1;
    if (!b->pipe.last)
        return;
    if (!m->tied)
        b->head_w = add_vocabulary(b, unit, "head.weight");
    b->ln_f_w = add_tensor(b, unit, b->h, 1, -1, "ln_f.weight");
    if (model_has_biases(m))
        b->ln_f_b = add_tensor(b, unit, b->h, 1, 0, "ln_f.bias");
}

/* A tied embedding lies on the first and on the last stage, and is counted on the first. */
static void add_embeddings(struct build *b)
{
    const struct model *m = b->model;
    b->wpe = b->wte = -1;
    if (b->pipe.first && !model_is_rotary(m))
        b->wpe = add_tensor(b, UNIT_EMBEDDING, m->sequence, b->h, 0.01, "wpe.weight");
    if (!b->pipe.first && !(b->pipe.last && m->tied))
        return;
    b->wte = add_vocabulary(b, UNIT_EMBEDDING, "wte.weight");
    if (b->pipe.tied_apart) {
        b->plan->tensors[b->wte].copies *= 2;
        b->plan->tensors[b->wte].counted = b->plan->tensors[b->wte].counted && b->pipe.first;
    }
}

void build_parameters(struct build *b)
{
    const struct model *m = b->model;
    int layers = (int)m->layers;
    b->plan->tensors =
        must_alloc((size_t)(OUTSIDE_LAYERS + layers * (LAYER_TENSORS + 2 * (int)m->experts)),
                   sizeof *b->plan->tensors);
    b->layer_tensor = must_alloc((size_t)layers, sizeof *b->layer_tensor);
    add_head(b);
    for (int l = layers - 1; l >= 0; l--)
        if (pipeline_holds(b, l))
            add_layer(b, l);
    add_embeddings(b);
    place(b->plan);
    b->finished = must_alloc((size_t)b->plan->n_tensors * (1 + PLAN_CHANNELS), sizeof(int));
}

int build_layer_tensor(const struct build *b, int which)
{
    return b->layer_tensor[b->layer][which];
}

int64_t build_tensor_count(const struct plan_tensor *t)
{
    return t->rows * t->columns;
}
