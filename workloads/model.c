#include "workloads/model.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/opt.h"
#include "base/share.h"

#define AT(field) offsetof(struct model, field)

static const struct opt model_options[] = {
    {"style", 0, OPT_CHOICE, AT(style), 0, "gpt2", 0, 0, "gpt2|llama", "", "architecture"},
    {"layers", 0, OPT_INT, AT(layers), 0, NULL, 1, 4096, NULL, "", "transformer layers"},
    {"hidden", 0, OPT_INT, AT(hidden), 0, NULL, 1, 1 << 20, NULL, "", "hidden width"},
    {"heads", 0, OPT_INT, AT(heads), 0, NULL, 1, 4096, NULL, "", "attention heads"},
    {"kv-heads", 0, OPT_INT, AT(kv_heads), 0, "0", 0, 4096, NULL, "",
     "heads of keys and values; 0: as many as heads"},
    {"head-width", 0, OPT_INT, AT(head), 0, "0", 0, 65536, NULL, "",
     "width of a head; 0: hidden / heads"},
    {"rope-theta", 0, OPT_REAL, AT(theta), 0, "10000", 1, 1e12, NULL, "",
     "base of rotary angles (llama)"},
    {"tied", 0, OPT_BOOL, AT(tied), 0, "on", 0, 0, NULL, "", "the head is the embedding"},
    {"experts", 0, OPT_INT, AT(experts), 0, "0", 0, 65536, NULL, "",
     "experts in place of the MLP of a layer; 0: none"},
    {"top-k", 0, OPT_INT, AT(top_k), 0, "0", 0, 65536, NULL, "", "experts that a token takes"},
    {"expert-ffn", 0, OPT_INT, AT(expert_ffn), 0, "0", 0, 1 << 22, NULL, "",
     "inner width of one expert"},
    {"shared-experts", 0, OPT_INT, AT(shared_experts), 0, "0", 0, 65536, NULL, "",
     "experts that every token takes"},
    {"ffn", 0, OPT_INT, AT(ffn), 0, NULL, 1, 1 << 22, NULL, "", "inner width of the MLP"},
    {"vocabulary", 0, OPT_INT, AT(vocabulary), 0, NULL, 8, 1 << 24, NULL, "", "tokens, unpadded"},
    {"sequence", 0, OPT_INT, AT(sequence), 0, NULL, 2, 1 << 24, NULL, "tokens", "positions"},
    {"pad", 0, OPT_INT, AT(pad), 0, "128", 1, 65536, NULL, "", "vocabulary multiple"},
    {"global-batch", 0, OPT_INT, AT(global_batch), 0, "0", 0, 1 << 30, NULL, "samples", "a step"},
    {"micro-batch", 0, OPT_INT, AT(micro_batch), 0, "0", 0, 1 << 20, NULL, "samples", "of a rank"},
    {"lr", 0, OPT_REAL, AT(lr), 0, "6e-4", 1e-9, 10, NULL, "", "peak learning rate"},
    {"source", 0, OPT_TEXT, AT(source), sizeof(((struct model *)0)->source), "", 0, 0, NULL, "",
     "where the sizes come from"},
};
enum { MODEL_OPTIONS = sizeof model_options / sizeof model_options[0] };

static const struct share models = {"model", "workloads/models", "models"};

static void model_set_name(struct model *model, const char *path)
{
    const char *base = strrchr(path, '/');
    base = base ? base + 1 : path;
    const char *dot = strrchr(base, '.');
    int length = dot && dot != base ? (int)(dot - base) : (int)strlen(base);
    snprintf(model->name, sizeof model->name, "%.*s", length, base);
}

/* `what` must divide `of`; of 0: that is known. Names the line of `what`. */
static int check_divides(const struct model *model, const int *lines, const char *what,
                         int64_t value, const char *of, int64_t of_value)
{
    const struct opt *row = opt_find(model_options, MODEL_OPTIONS, what);
    if (of_value % value == 0)
        return 0;
    return fail(FAIL_USAGE, "%s:%d: %s %lld does not divide %s %lld; choose %s that divide it",
                model->path, lines[row - model_options], what, (long long)value, of,
                (long long)of_value, what);
}

int model_load(struct model *out, const char *name_or_path)
{
    memset(out, 0, sizeof *out);
    char path[SHARE_PATH];
    int lines[MODEL_OPTIONS];
    int rc = 0;
    TRY(share_find(&models, name_or_path, path));
    TRY(opt_yaml(model_options, MODEL_OPTIONS, out, path, lines));
    model_set_name(out, path);
    snprintf(out->path, sizeof out->path, "%s", path);
    if (out->kv_heads == 0)
        out->kv_heads = out->heads;
    if (out->head == 0 && out->hidden % out->heads == 0)
        out->head = out->hidden / out->heads;
    TRY(check_divides(out, lines, "heads", out->heads, "hidden", out->head ? 0 : out->hidden));
    TRY(check_divides(out, lines, "kv-heads", out->kv_heads, "heads", out->heads));
    TRY(model_check(out));
out:
    if (rc)
        memset(out, 0, sizeof *out);
    return rc;
}

int model_check(const struct model *m)
{
    if (m->layers < 1 || m->ffn < 1 || m->vocabulary < 1 || m->sequence < 1 || m->heads < 1 ||
        m->kv_heads < 1 || m->head < 1)
        return fail(FAIL_USAGE, "model %s: every size must be at least 1", m->name);
    if (m->heads % m->kv_heads != 0)
        return fail(FAIL_USAGE, "model %s: kv-heads %lld does not divide heads %lld", m->name,
                    (long long)m->kv_heads, (long long)m->heads);
    if (model_is_rotary(m) && m->head % 2 != 0)
        return fail(FAIL_USAGE, "model %s: head-width %lld is odd, rotary positions need pairs",
                    m->name, (long long)m->head);
    if (m->experts > 0 && (m->top_k < 1 || m->top_k > m->experts || m->expert_ffn < 1))
        return fail(FAIL_USAGE,
                    "model %s: experts %lld with top-k %lld and expert-ffn %lld: wanted top-k from "
                    "1 to the number of experts, expert-ffn from 1",
                    m->name, (long long)m->experts, (long long)m->top_k, (long long)m->expert_ffn);
    if (m->experts == 0 && (m->top_k > 0 || m->expert_ffn > 0 || m->shared_experts > 0))
        return fail(FAIL_USAGE,
                    "model %s: top-k, expert-ffn and shared-experts say nothing without experts",
                    m->name);
    return 0;
}

bool model_has_biases(const struct model *model)
{
    return model->style == MODEL_GPT2;
}

bool model_has_rms(const struct model *model)
{
    return model->style == MODEL_LLAMA;
}

bool model_is_gated(const struct model *model)
{
    return model->style == MODEL_LLAMA;
}

bool model_is_rotary(const struct model *model)
{
    return model->style == MODEL_LLAMA;
}

int64_t model_padded_vocabulary(const struct model *model)
{
    return (model->vocabulary + model->pad - 1) / model->pad * model->pad;
}

/* ---- counts ---- */

/* Elements of the matrices of one layer, with `experts` of the experts. */
static int64_t layer_matrix(const struct model *m, int64_t experts)
{
    int64_t h = m->hidden, products = model_is_gated(m) ? 3 : 2;
    int64_t attention = h * m->head * (2 * m->heads + 2 * m->kv_heads);
    if (m->experts == 0)
        return attention + products * h * m->ffn;
    return attention + products * h * m->expert_ffn * (experts + m->shared_experts) +
           h * m->experts;
}

/* Biases and norm weights of one layer. */
static int64_t layer_vectors(const struct model *m)
{
    int64_t h = m->hidden;
    if (!model_has_biases(m))
        return 2 * h;
    int64_t norms = 4 * h, attention = m->head * (m->heads + 2 * m->kv_heads) + h;
    int64_t inner = m->experts > 0 ? m->expert_ffn * (m->experts + m->shared_experts) : m->ffn;
    int64_t outer = m->experts > 0 ? h * (m->experts + (m->shared_experts > 0)) : h;
    return norms + attention + inner + outer;
}

static int64_t parameters(const struct model *m, int64_t experts)
{
    int64_t h = m->hidden, tables = m->tied ? 1 : 2;
    int64_t positions = model_is_rotary(m) ? 0 : m->sequence * h;
    int64_t final_norm = model_has_biases(m) ? 2 * h : h;
    return m->layers * (layer_matrix(m, experts) + layer_vectors(m)) + final_norm + positions +
           tables * m->vocabulary * h;
}

int64_t model_parameters(const struct model *model)
{
    return parameters(model, model->experts);
}

int64_t model_active_parameters(const struct model *model)
{
    return parameters(model, model->top_k);
}

double model_flops_per_sequence(const struct model *m)
{
    double s = (double)m->sequence, layers = (double)m->layers;
    double matrices =
        layers * (double)layer_matrix(m, m->top_k) + (double)m->vocabulary * (double)m->hidden;
    double width = (double)m->heads * (double)m->head;
    double attention = layers * 2.0 * s * s * width; /* q k^T and p v, causal half */
    return 3.0 * (2.0 * s * matrices + attention);
}

void model_text(const struct model *model, char *text, size_t size)
{
    size_t used = (size_t)snprintf(text, size, "name: %s\n", model->name);
    for (int i = 0; i < MODEL_OPTIONS && used < size; i++) {
        char value[256];
        opt_text(&model_options[i], model, value, sizeof value);
        used +=
            (size_t)snprintf(text + used, size - used, "%s: %s\n", model_options[i].name, value);
    }
}

static int64_t at_most(int64_t value, int64_t limit)
{
    return value < limit ? value : limit;
}

static int64_t up_to_multiple(int64_t value, int64_t of)
{
    return (value + of - 1) / of * of;
}

static int64_t common_multiple(int64_t a, int64_t b)
{
    int64_t x = a, y = b;
    while (y != 0) {
        int64_t rest = x % y;
        x = y;
        y = rest;
    }
    return a / x * b;
}

/* Heads: a multiple of what one kv head serves and, where the model's are, of tp. */
static void reduce_heads(const struct model *model, int64_t tp, struct model *out)
{
    int64_t served = model->heads / model->kv_heads, unit = served;
    if (model->kv_heads % tp == 0)
        unit = served * tp;
    else if (model->heads % tp == 0)
        unit = common_multiple(served, tp);
    out->heads = at_most(model->heads, up_to_multiple(4, unit));
    out->kv_heads = out->heads / served;
}

/* Inner width of an expert: in proportion, and the narrower the more experts there are. */
static int64_t reduce_expert(const struct model *model, int64_t hidden, int64_t tp)
{
    int64_t most = 16384 / model->experts, unit = model->expert_ffn % tp == 0 ? tp : 1;
    int64_t width = 1 + (model->expert_ffn * hidden - 1) / model->hidden;
    if (width > most)
        width = most < 8 ? 8 : most / 8 * 8;
    return at_most(up_to_multiple(width, unit), model->expert_ffn);
}

void model_reduce_for(const struct model *model, int64_t tp, struct model *out)
{
    *out = *model;
    out->layers = at_most(model->layers, 2);
    reduce_heads(model, tp, out);
    out->hidden = at_most(model->hidden * out->heads / model->heads, 4 * model->head);
    out->ffn = model->ffn * out->hidden / model->hidden;
    if (out->ffn < 1)
        out->ffn = 1;
    if (model->ffn % tp == 0)
        out->ffn = up_to_multiple(out->ffn, tp);
    if (model->experts > 0)
        out->expert_ffn = reduce_expert(model, out->hidden, tp);
    if (model_padded_vocabulary(model) % tp == 0)
        out->pad = common_multiple(model->pad, tp);
    out->vocabulary = at_most(model->vocabulary, 512) - 3; /* so that padded rows exist */
    out->sequence =
        at_most(model->sequence, model->sequence % tp == 0 ? up_to_multiple(64, tp) : 64);
    snprintf(out->name, sizeof out->name, "gate of %.54s", model->name);
}

void model_reduce_layers(const struct model *model, int64_t layers, struct model *reduced)
{
    reduced->layers = at_most(model->layers, up_to_multiple(reduced->layers, layers));
}
void model_reduce_rows(const struct model *model, int64_t rows, struct model *reduced)
{
    int64_t above = up_to_multiple(reduced->sequence, rows), below = model->sequence / rows * rows;
    if (below > 0)
        reduced->sequence = at_most(above, below);
}

void model_reduce(const struct model *model, struct model *out)
{
    model_reduce_for(model, 1, out);
}
