/*
 * model: the description of a network, and what follows from it by formula.
 *
 * One YAML file, one table of options (base/opt), one struct. Two styles of decoder:
 *
 *   gpt2   LayerNorm, GELU, learned positions, biases
 *   llama  RMSNorm, SwiGLU (gate and up), rotary positions, no biases
 *
 * Either may have fewer kv heads than heads, a tied or a separate head, and experts in place of the
 * MLP: `experts` of width expert_ffn of which a token takes top_k, and `shared_experts` more of that
 * width that every token takes, chosen by a router of hidden x experts.
 *
 * The vocabulary is padded once to a multiple of `pad`; padded rows are zero and are outside loss,
 * checksums and model FLOPs.
 */
#ifndef WORKLOADS_MODEL_H
#define WORKLOADS_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum model_style { MODEL_GPT2, MODEL_LLAMA };

struct model {
    char name[64];
    int style;      /* enum model_style */
    char path[512]; /* the file it was read from, for messages */
    int64_t layers, hidden, heads, ffn, vocabulary, sequence;
    int64_t kv_heads;                                   /* of k and v: divides heads */
    int64_t head;                                       /* width of one head */
    double theta;                                       /* base of rotary angles */
    bool tied;                                          /* the head is the embedding */
    int64_t experts, top_k, expert_ffn, shared_experts; /* experts 0: dense */
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

/* Checks sizes alone (what must divide, be positive, come together): FAIL_USAGE with a sentence. */
int model_check(const struct model *model);

bool model_has_biases(const struct model *model);
bool model_has_rms(const struct model *model);   /* RMSNorm in place of LayerNorm */
bool model_is_gated(const struct model *model);  /* SwiGLU in place of GELU */
bool model_is_rotary(const struct model *model); /* in place of learned positions */

int64_t model_padded_vocabulary(const struct model *model);
int64_t model_parameters(const struct model *model);        /* unpadded, tied head counted once */
int64_t model_active_parameters(const struct model *model); /* those that one token meets */

/*
 * Model FLOPs of one sequence, forward and backward: 6 per parameter in a matrix product and token
 * (of the experts those that it takes), logits counted, causal half of attention (3 * 2 s^2 heads *
 * head a layer); no recompute. FORMULAS: the general form of Megatron-LM's counter.
 */
double model_flops_per_sequence(const struct model *model);

/* Resolved description as canonical "key: value" lines: what is hashed and stored. */
void model_text(const struct model *model, char *text, size_t size);

/* What all points of a study divide of their gate model, as least common multiples: tp degrees; rows
 * into which sequences are cut (1: anyhow); layers, parts of pipelines (1: anyhow). */
struct gate_shape {
    int64_t tp, rows, layers;
};

/*
 * The gate model: same style, head width and heads of a kv head, at most 2 layers, 4 heads (fewer
 * when the model has fewer, more where one kv head serves more), hidden width of at most 4 heads,
 * ffn and expert-ffn in proportion, vocabulary <= 512, sequence <= 64: a single-rank reference of it is cheap.
 * model_reduce_for: with as many heads, columns and positions as tensor parallelism of degree `tp`
 * needs (the least common multiple of the degrees of several points), where the model has them.
 */
void model_reduce(const struct model *model, struct model *out);
void model_reduce_for(const struct model *model, int64_t tp, struct model *out);

/* The layers of a reduced model, made a multiple of `layers` as far as the model has so many. */
void model_reduce_layers(const struct model *model, int64_t layers, struct model *reduced);

/* The sequence of a reduced model, made a multiple of `rows` as far as the model has so many
 * positions. */
void model_reduce_rows(const struct model *model, int64_t rows, struct model *reduced);

#endif
