/*
 * build: a plan under construction, and the pieces that layers are made of.
 *
 * Shared by the files that write plans of transformers; nobody else includes it. The vocabulary of
 * shapes: R rows (micro-batch * sequence), H hidden, F inner width of the MLP, V vocabulary.
 * Parameters lie in the order in which backward finishes their gradients, gradients and moments at
 * the same offsets, so that a bucket of gradients is a run of the arena.
 */
#ifndef WORKLOADS_BUILD_H
#define WORKLOADS_BUILD_H

#include "workloads/data.h"
#include "workloads/transformer.h"

/* Parameters of one layer, in the order in which backward finishes their gradients. */
enum {
    MLP_PROJ_W,
    MLP_PROJ_B,
    MLP_FC_W,
    MLP_FC_B,
    LN_2_W,
    LN_2_B,
    ATTN_PROJ_W,
    ATTN_PROJ_B,
    ATTN_QKV_W,
    ATTN_QKV_B,
    LN_1_W,
    LN_1_B,
    LAYER_TENSORS
};
enum { LN_F_W, LN_F_B, FIRST_LAYER };

struct layer_activations {
    struct tensor x, ln_1, mean_1, rstd_1, qkv, attention, lse; /* x: [R][H] into the layer */
    struct tensor x_2, ln_2, mean_2, rstd_2, fc, gelu;          /* fc, gelu: [R][F] */
};

struct build {
    struct plan *plan;
    const struct model *model;
    const struct policy *policy;
    struct data_parallel data;
    int64_t rows, h, f, v, vp; /* R, hidden, ffn, vocabulary, padded vocabulary */
    int micro, layer;
    enum phase phase;
    bool last_micro;
    struct layer_activations *act; /* [layers] */
    struct tensor x_out, ln_f, mean_f, rstd_f, logits;
    struct tensor tokens, targets, mask;
    struct tensor wide, narrow, dx; /* temporaries [R][max(F, 3H)], [R][H], [R][H] */
    struct tensor workspace;
};

/* ---- tensors: call in this order ---- */

/* Declare the parameters and take the arenas of state. */
void build_tensors(struct build *b);

/* Take activations, temporaries and the batch of one micro-batch. b->act is owned by the caller. */
void build_arenas(struct build *b);

/* Index of a parameter: of the current layer (b->layer), of the embeddings. */
int build_layer_tensor(const struct build *b, int which);
int build_wpe_tensor(const struct build *b);
int build_wte_tensor(const struct build *b);

/* Where a parameter, its gradient or a moment of it lies; where a scalar lies. */
struct tensor build_state(const struct build *b, enum plan_buffer buffer, int tensor);
struct tensor build_weight(const struct build *b, int tensor);
struct tensor build_gradient(const struct build *b, int tensor);
struct tensor build_scalar(enum scalar which);

/* ---- ops ---- */

/* An op of the current phase, layer and micro-batch, with nothing else set. */
struct op build_op(const struct build *b, enum op_kind kind);
struct shape_attention build_attention_shape(const struct build *b);
struct shape_gemm build_gemm_shape(int64_t m, int64_t n, int64_t k, float beta);

/* C = op(A) op(W) + beta C + bias; a tensor of BUFFER_NONE is no bias. Returns the op. */
int build_gemm(struct build *b, struct tensor a, bool trans_a, struct tensor w, bool trans_b,
               struct tensor c, struct shape_gemm shape, struct tensor bias);

/* y [R][n] = x [R][k] W^T + bias, with W stored [n][k]. */
void build_linear(struct build *b, struct tensor x, int w, int bias, struct tensor y);

/* dW += dy^T x, db += column sums of dy, dx [R][k] = dy W. */
void build_linear_grad(struct build *b, struct tensor dy, struct tensor x, int w, int bias,
                       struct tensor dx);

/* LayerNorm with weight w and bias w + 1; backward adds to or writes b->dx. */
void build_norm(struct build *b, struct tensor x, int w, struct tensor y, struct tensor mean,
                struct tensor rstd);
void build_norm_grad(struct build *b, struct tensor dy, struct tensor x, int w, struct tensor mean,
                     struct tensor rstd, bool accumulate);

/* An elementwise op on n elements. */
void build_vector_op(struct build *b, enum op_kind kind, struct tensor t0, struct tensor t1,
                     struct tensor t2, int64_t n);

/* The gradient of a parameter is complete after `op`, in this micro-batch. */
void build_finished(struct build *b, int tensor, int op);

#endif
