#include "workloads/model.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/opt.h"

#define AT(field) offsetof(struct model, field)

static const struct opt model_options[] = {
    {"style", 0, OPT_CHOICE, AT(style), 0, "gpt2", 0, 0, "gpt2", "", "architecture"},
    {"layers", 0, OPT_INT, AT(layers), 0, NULL, 1, 4096, NULL, "", "transformer layers"},
    {"hidden", 0, OPT_INT, AT(hidden), 0, NULL, 1, 1 << 20, NULL, "", "hidden width"},
    {"heads", 0, OPT_INT, AT(heads), 0, NULL, 1, 4096, NULL, "", "attention heads"},
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

enum { MODEL_FOLDERS = 3 };

/* The source tree's, the share folder beside the program's bin, the one configured at build time. */
static const char *model_folder(int i, char *text, size_t size)
{
    if (i == 0)
        return SCALESTUDY_SOURCE_DIR "/workloads/models";
    if (i == 2)
        return SCALESTUDY_SHARE_DIR "/models";
    ssize_t length = readlink("/proc/self/exe", text, size - 1);
    text[length > 0 ? length : 0] = 0;
    for (int up = 0; up < 2; up++) {
        char *slash = strrchr(text, '/');
        if (slash)
            *slash = 0;
    }
    size_t used = strlen(text);
    snprintf(text + used, size - used, "/share/scalestudy/models");
    return text;
}

/* "tiny, gpt2-124m": the names in the first folder that exists. */
static void model_names(char *text, size_t size)
{
    text[0] = 0;
    for (int i = 0; i < MODEL_FOLDERS; i++) {
        char place[400];
        DIR *folder = opendir(model_folder(i, place, sizeof place));
        if (!folder)
            continue;
        for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
            const char *dot = strrchr(entry->d_name, '.');
            if (!dot || strcmp(dot, ".yaml") != 0)
                continue;
            size_t used = strlen(text);
            snprintf(text + used, size - used, "%s%.*s", used ? ", " : "",
                     (int)(dot - entry->d_name), entry->d_name);
        }
        closedir(folder);
        return;
    }
}

static int model_find(const char *name, char *path, size_t size)
{
    size_t length = strlen(name);
    if (strchr(name, '/') || (length > 5 && strcmp(name + length - 5, ".yaml") == 0)) {
        snprintf(path, size, "%s", name);
        return 0;
    }
    for (int i = 0; i < MODEL_FOLDERS; i++) {
        char place[400];
        snprintf(path, size, "%.399s/%.100s.yaml", model_folder(i, place, sizeof place), name);
        if (access(path, R_OK) == 0)
            return 0;
    }
    char names[512];
    model_names(names, sizeof names);
    return fail(FAIL_USAGE, "model: there is no model called %s; there are %s, or give a FILE.yaml",
                name, names[0] ? names : "none installed");
}

static void model_set_name(struct model *model, const char *path)
{
    const char *base = strrchr(path, '/');
    base = base ? base + 1 : path;
    const char *dot = strrchr(base, '.');
    int length = dot && dot != base ? (int)(dot - base) : (int)strlen(base);
    snprintf(model->name, sizeof model->name, "%.*s", length, base);
}

int model_load(struct model *out, const char *name_or_path)
{
    memset(out, 0, sizeof *out);
    char path[sizeof out->path];
    int lines[MODEL_OPTIONS];
    int rc = 0;
    TRY(model_find(name_or_path, path, sizeof path));
    TRY(opt_yaml(model_options, MODEL_OPTIONS, out, path, lines));
    model_set_name(out, path);
    memcpy(out->path, path, sizeof path);
    if (out->hidden % out->heads != 0) {
        const struct opt *row = opt_find(model_options, MODEL_OPTIONS, "heads");
        rc = fail(FAIL_USAGE,
                  "%s:%d: heads %lld does not divide hidden %lld; choose heads that divide it",
                  path, lines[row - model_options], (long long)out->heads, (long long)out->hidden);
    }
out:
    if (rc)
        memset(out, 0, sizeof *out);
    return rc;
}

int model_check(const struct model *model)
{
    if (model->heads < 1 || model->hidden % model->heads != 0)
        return fail(FAIL_USAGE, "model %s: heads %lld does not divide hidden %lld", model->name,
                    (long long)model->heads, (long long)model->hidden);
    if (model->layers < 1 || model->ffn < 1 || model->vocabulary < 1 || model->sequence < 1)
        return fail(FAIL_USAGE, "model %s: every size must be at least 1", model->name);
    return 0;
}

int64_t model_padded_vocabulary(const struct model *model)
{
    return (model->vocabulary + model->pad - 1) / model->pad * model->pad;
}

/* Elements of the matrices of one layer that a token passes through. */
static int64_t layer_matrix(const struct model *model)
{
    return 4 * model->hidden * model->hidden + 2 * model->hidden * model->ffn;
}

int64_t model_parameters(const struct model *model)
{
    int64_t h = model->hidden;
    int64_t biases = 3 * h + h + model->ffn + h, norms = 4 * h;
    return model->layers * (layer_matrix(model) + biases + norms) + 2 * h +
           (model->vocabulary + model->sequence) * h;
}

double model_flops_per_sequence(const struct model *model)
{
    double s = (double)model->sequence, h = (double)model->hidden;
    double matrices =
        (double)model->layers * (double)layer_matrix(model) + (double)model->vocabulary * h;
    double attention = (double)model->layers * 2.0 * s * s * h; /* q k^T and p v, causal half */
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

void model_reduce(const struct model *model, struct model *out)
{
    *out = *model;
    int64_t head = model->hidden / model->heads;
    out->layers = at_most(model->layers, 2);
    out->heads = at_most(model->heads, 4);
    out->hidden = out->heads * head;
    out->ffn = model->ffn * out->hidden / model->hidden;
    if (out->ffn < 1)
        out->ffn = 1;
    out->vocabulary = at_most(model->vocabulary, 512) - 3; /* so that padded rows exist */
    out->sequence = at_most(model->sequence, 64);
    snprintf(out->name, sizeof out->name, "gate of %.54s", model->name);
}
