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
    tensor[LN_2_W] = add_tensor(b, 1 + l, b->h, 1, -1, "h.%d.ln_2.weight", l);
    if (biases) {
        tensor[LN_2_B] = add_tensor(b, 1 + l, b->h, 1, 0, "h.%d.ln_2.bias", l);
        tensor[ATTN_PROJ_B] = add_tensor(b, 1 + l, b->h, 1, 0, "h.%d.attn.proj.bias", l);
    }
    tensor[LN_1_W] = add_tensor(b, 1 + l, b->h, 1, -1, "h.%d.ln_1.weight", l);
    if (biases)
        tensor[LN_1_B] = add_tensor(b, 1 + l, b->h, 1, 0, "h.%d.ln_1.bias", l);
}

static void add_layer(struct build *b, int l)
{
    const struct model *m = b->model;
    bool gated = model_is_gated(m), biases = model_has_biases(m);
    double into_residual = 0.02 / sqrt(2.0 * (double)m->layers);
    const struct rows parts[] = {{0, m->ffn}, {m->ffn, m->ffn}};
    int *tensor = b->layer_tensor[l];
    for (int i = 0; i < LAYER_TENSORS; i++)
        tensor[i] = -1;
    tensor[MLP_PROJ_W] =
        add_tensor(b, 1 + l, b->h, m->ffn, into_residual, "h.%d.mlp.proj.weight", l);
    split_columns(b, tensor[MLP_PROJ_W]);
    tensor[MLP_FC_W] = add_tensor(b, 1 + l, (gated ? 2 : 1) * m->ffn, b->h, 0.02,
                                  gated ? "h.%d.mlp.gate_up.weight" : "h.%d.mlp.fc.weight", l);
    split_rows(b, tensor[MLP_FC_W], parts, gated ? 2 : 1, 1);
    if (biases) {
        tensor[MLP_FC_B] = add_tensor(b, 1 + l, m->ffn, 1, 0, "h.%d.mlp.fc.bias", l);
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

static void place(struct plan *plan)
{
    for (int i = 0; i < plan->n_tensors; i++) {
        plan->tensors[i].offset = plan->n_parameters;
        plan->n_parameters += build_tensor_count(&plan->tensors[i]);
    }
}

void build_parameters(struct build *b)
{
    const struct model *m = b->model;
    int layers = (int)m->layers;
    b->plan->tensors =
        must_alloc((size_t)(OUTSIDE_LAYERS + layers * LAYER_TENSORS), sizeof *b->plan->tensors);
    b->layer_tensor = must_alloc((size_t)layers, sizeof *b->layer_tensor);
    b->head_w = m->tied ? -1 : add_vocabulary(b, 1 + layers, "head.weight");
    b->ln_f_w = add_tensor(b, 1 + layers, b->h, 1, -1, "ln_f.weight");
    b->ln_f_b = model_has_biases(m) ? add_tensor(b, 1 + layers, b->h, 1, 0, "ln_f.bias") : -1;
    for (int l = layers - 1; l >= 0; l--)
        add_layer(b, l);
    b->wpe = model_is_rotary(m)
                 ? -1
                 : add_tensor(b, UNIT_EMBEDDING, m->sequence, b->h, 0.01, "wpe.weight");
    b->wte = add_vocabulary(b, UNIT_EMBEDDING, "wte.weight");
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
