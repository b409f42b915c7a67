/*
 * model: the description of a network, and what follows from it by formula.
 *
 * One YAML file, one table of options (base/opt), one struct. Backbone style: GPT-2 (LayerNorm,
 * GELU, learned positions, biases, tied head). The vocabulary is padded once to a multiple of
 * `pad`; padded rows are zero and are outside loss, checksums and model FLOPs.
 */
#ifndef WORKLOADS_MODEL_H
#define WORKLOADS_MODEL_H

#include <stddef.h>
#include <stdint.h>

struct model {
    char name[64];
    int style;      /* index into "gpt2" */
    char path[512]; /* the file it was read from, for messages */
    int64_t layers, hidden, heads, ffn, vocabulary, sequence;
    int64_t pad;          /* vocabulary is padded to a multiple of this */
    int64_t global_batch; /* samples a step that the model file proposes, 0: none */
    int64_t micro_batch;  /* 0: none */
    double lr;            /* peak learning rate */
    char source[128];     /* where the sizes come from */
};

/*
 * Load NAME or FILE.yaml: a name with a slash or ending in .yaml is a path, else NAME.yaml is looked
 * for in the source tree's workloads/models, in ../share/scalestudy/models beside the program, and
 * in the share folder that was configured. FAIL_USAGE when there is no such name (those that exist
 * are listed), FAIL_FILE for a path that cannot be read, FAIL_USAGE "FILE:LINE: ..." for unknown
 * keys, wrong types, sizes that do not divide.
 */
int model_load(struct model *out, const char *name_or_path);

/* Checks sizes alone (hidden % heads, positive, limits): FAIL_USAGE with a sentence. */
int model_check(const struct model *model);

int64_t model_padded_vocabulary(const struct model *model);
int64_t model_parameters(const struct model *model); /* unpadded, tied head counted once */

/*
 * Model FLOPs of one sequence, forward and backward: 6 per parameter in a matrix product and token,
 * logits counted, causal half of attention (3 * 2 s^2 h a layer); no recompute. FORMULAS: the
 * general form of Megatron-LM's counter for dense attention and MLP.
 */
double model_flops_per_sequence(const struct model *model);

/* Resolved description as canonical "key: value" lines: what is hashed and stored. */
void model_text(const struct model *model, char *text, size_t size);

/*
 * The gate model: same style, head width and dtype, at most 2 layers, 4 heads (fewer when the model
 * has fewer), ffn in proportion, vocabulary <= 512, sequence <= 64: a single-rank reference of it
 * is cheap.
 */
void model_reduce(const struct model *model, struct model *out);

#endif
