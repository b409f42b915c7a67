/*
 * build: a plan under construction, and what layers are made of.
 *
 * Shared by the files that write plans of transformers; nobody else includes it. The vocabulary of
 * shapes: R rows (micro-batch * sequence), L rows that this rank holds of them between the
 * tensor-parallel parts (R / tp under sequence parallel, else R), H hidden, F inner width of the
 * MLP and V vocabulary as this rank holds them.
 *
 * Who does what: transformer.c knows the order of forward and backward; parameters.c declares the
 * weights; arenas.c takes memory; tensor.c puts tensor-parallel communication around linear layers;
 * struct split, one table per way (data.c, shard.c), says how state and gradients are divided over
 * replicas; update.c ends the step. Parameters lie in the order in which backward finishes their
 * gradients, so that a bucket of gradients is a run of the arena.
 */
#ifndef WORKLOADS_BUILD_H
#define WORKLOADS_BUILD_H

#include "workloads/transformer.h"

/*
 * Parameters of one layer, in arena order. ATTN_KV_W exists where k and v are replicated over tp
 * and q is not: then it follows the rows of q, and a kernel reads both as one matrix from
 * ATTN_QKV_W. From SMALL on: held whole by every rank of tp.
 */
enum {
    EXPERT_PROJ_W, /* the first of those of this rank's experts, which are neighbours */
    EXPERT_FC_W,
    MLP_PROJ_W,
    MLP_FC_W, /* gpt2: fc [F][H]; llama: gate, then up [2F][H] */
    MLP_FC_B,
    ATTN_PROJ_W,
    ATTN_QKV_W,
    ATTN_KV_W,
    ATTN_QKV_B,
    SMALL,
    MLP_PROJ_B = SMALL,
    ROUTER_W, /* [experts][H] */
    LN_2_W,
    LN_2_B,
    ATTN_PROJ_B,
    LN_1_W,
    LN_1_B,
    LAYER_TENSORS
};

/* Activations of one layer; x, ln_1, x_2, ln_2 [L][H], the rest of R rows. */
struct layer_activations {
    struct tensor x, ln_1, mean_1, rstd_1, qkv, attention, lse;
    struct tensor turned; /* ulysses: attention as it was computed, of all rows of some heads */
    struct tensor x_2, ln_2, mean_2, rstd_2, fc, mlp; /* fc [R][F or 2F], mlp [R][F] */
    /* zb-h1: gradients of the outputs of its products, kept until dW is made ([R][H], that of fc in
       its place, [R][H], as qkv) */
    struct tensor d_mlp, d_fc, d_attention, d_qkv;
};

enum { UNIT_EMBEDDING }; /* 1 + l: layer l; 1 + layers: final norm and head */

/* Where the gradient of a piece lies once it is reduced, and the op that made it so (-1: none). */
struct reduced {
    struct tensor at;
    enum dtype dtype;
    int ready;
};

/* The copy stream while a plan is built; its number is known when all channels are. */
enum { BUILD_COPY_STREAM = 1 + PLAN_CHANNELS, BUILD_STREAMS };

/*
 * cp > 1: what a rank holds of sequences, and memory for the keys of others (context.c). KV rows are
 * those of OP_ATTENTION_BLOCK: all k, then all v.
 */
struct build_context {
    int n, me;
    int64_t sequence;         /* rows of a sample here; cp = 1: all */
    struct shape_cut cut;     /* which of them */
    struct tensor own, kv[2]; /* own keys; ring: those of another rank, in turn; ulysses: the sum of
                                 gradients of copies, and those of one more */
    struct tensor part, part_lse;                /* ring: of one block, before it is merged */
    struct tensor grad[2], arrived[2], own_grad; /* ring: dkv made here, come from before, of own */
    struct tensor gathered, all, all_grad; /* all-gather: as ranks send them; in order; gradients */
    struct tensor sent, received, turned;  /* ulysses: around an all-to-all; samples in order */
    int ahead; /* call that fetches keys for the backward of this layer, -1 */
};

/*
 * What a stage of a pipeline holds and does (pipeline*.c); with pp = 1 one stage that holds all. Of
 * memory that several micro-batches in flight need there are so many places as the schedule
 * occupies at once; held[] says which of them a micro-batch has in a chunk.
 */
enum pipeline_place {
    PLACE_LAYERS,    /* activations of a chunk, from its forward to the last that reads them */
    PLACE_HEAD,      /* those of the final norm and the head */
    PLACE_INPUT,     /* [L][H] what the chunk's first layer reads */
    PLACE_GRADIENTS, /* [L][H] dx, which comes from the next stage and goes to the one before */
    PLACE_BATCH,     /* tokens, targets, mask */
    PLACES
};
enum { PIPELINE_OUTPUTS = 2 }; /* what forward sends, in turn */

struct head_activations {
    struct tensor x_out, ln_f, mean_f, rstd_f, logits;
};

struct batch {
    struct tensor tokens, targets, mask;
    int op; /* OP_INPUT that filled it in this step, -1 */
};

struct build_pipeline {
    struct schedule schedule;
    int me;
    bool first, last; /* holds the embeddings, the head */
    bool tied_apart;  /* a copy of the tied embedding is here, another on the other end */
    bool delays;      /* zb-h1: gradients of weights come in slots of their own */
    struct schedule_item *items;
    int n_items;
    int chunk, layer_first, layer_end; /* at work */
    int most_layers;                   /* of a chunk */
    int n[PLACES], *held[PLACES];      /* [micro_batches * chunks], batches [micro_batches] */
    int *reader[PLACES];               /* [n] last compute op that used an input, a gradient */
    struct layer_activations *layers;  /* [n][most_layers] */
    struct tensor *input, *gradients;  /* [n] */
    struct head_activations *head;     /* [n] */
    struct batch *batch;               /* [n] */
    struct tensor output[PIPELINE_OUTPUTS];
    int sent[PIPELINE_OUTPUTS], next_output; /* ops that sent them last, -1 */
    int *sender, last_up; /* [n] op that sent a gradient last, -1; the latest of them */
    int *received[2];     /* [micro_batches * chunks] by direction: the op, -1 */
    int arrived;          /* the op that received dx of the backward at work, -1 */
};

struct build {
    struct plan *plan;
    const struct model *model;
    const struct policy *policy;
    const struct split *split;
    struct expert *expert;    /* NULL: a dense model */
    void *split_state;        /* of the split, from open to close */
    int64_t rows, local_rows; /* R, L */
    int64_t h, f, v, vp,
        v_first;               /* H; F; rows of wte here that exist, and all; the first's index */
    int heads, kv_heads, head; /* of this rank; width of one */
    int tp, tp_me;
    struct build_context cp;
    struct build_pipeline pipe;
    bool sequence_parallel;
    int micro, layer, slot;
    enum phase phase;
    bool again; /* ops are recomputation */
    bool first_micro, last_micro;
    bool hand_over; /* gradients of this micro-batch go to the split */
    bool later;     /* products leave dW for later (zb-h1), and keep dy at `keep` */
    bool quiet;     /* gradients are reported later (zb-h1) */
    struct tensor keep;

    /* tensors of the plan by role, -1: this model has none */
    int (*layer_tensor)[LAYER_TENSORS]; /* [layers] */
    int head_w, ln_f_w, ln_f_b, wpe, wte;

    struct layer_activations *act; /* [layers]; layers that are recomputed share all but x */
    struct tensor x_out, ln_f, mean_f, rstd_f, logits, stats, all_stats;
    struct tensor wide, narrow, dx; /* temporaries [R][max(F or 2F, qkv)], [R][H], [L][H] */
    struct tensor part, gathered;   /* tp: [R][H] each, before a reduce-scatter, after a gather */
    struct tensor kv_sum;           /* replicated kv: fp32 [2 kv_heads of the model * head][H] */
    struct tensor workspace;

    int last;                         /* latest op on the compute stream, -1 */
    int n_pending, pending[OP_WAITS]; /* what the next compute op waits for */
    int waited[BUILD_STREAMS];        /* latest op of each stream that the compute stream has
                                         waited for, -1 */
    int *finished;                    /* [n_tensors][1 + PLAN_CHANNELS] see build_finished */
    int reported;                     /* tensors of this micro-batch handed to the split */
    int loss_op;                      /* sum of losses and tokens over dp, -1 */
    struct reduced *reduced;          /* [n_pieces] */
};

/*
 * How the training state is divided over replicas, and when gradients travel. One const table per
 * way; transformer_plan picks it (split_replicas when the shard group has one member). All hooks
 * may add ops; ops on the compute stream go through build_add, which makes them wait for what
 * build_await was told.
 *
 * Once:
 *   open      plan.tensors are declared, each with `offset` in elements of this rank's whole
 *             parameters (tensors of a unit are neighbours) and `unit`. Takes PARAMETER, MASTER,
 *             GRADIENT, SHARD, MOMENT1, MOMENT2 and WIRE memory, makes plan.pieces, n_pieces,
 *             n_state, master; may set b->split_state and change offsets.
 *   close     frees split_state. Safe when open failed to come.
 *
 * In a step, in this order:
 *   begin     start of a step: zero what accumulates (after the scalars were zeroed).
 *   hand_over does this micro-batch's backward complete gradients? (last_micro, or every one)
 *   use       the next compute ops read weights of `unit` (b->phase, micro, again tell where): make
 *             build_weight valid. Called before the embedding, each layer (again before its
 *             backward; recomputation comes after that) and the head, whose forward and backward
 *             are one use. With a tied head the head uses UNIT_EMBEDDING as well.
 *   done      no later op before the next use() of `unit` reads its weights; b->last is the last
 *             that did. use and done of a unit alternate.
 *   embeds    the next compute op adds to the gradient of the embeddings; that of a head that shares
 *             them began before.
 *   finished  the gradient of `tensor` is complete in this micro-batch once the ops after[stream]
 *             have run (-1: none on that stream; after[0] is a compute op). Called when
 *             b->hand_over, in arena order, all tensors.
 *   micro_end backward of a micro-batch is over; all its tensors were reported.
 *   reduce    after the last micro-batch: post what is left; fill b->reduced[piece] for all pieces.
 *   norm      SUMSQ of this rank's pieces is complete after b->last: sum it over the ranks that
 *             hold other pieces of the same tensors; returns the op or -1.
 *   updated   AdamW of `piece` is op `op`; called in order of pieces.
 *   step_end  every piece was updated: what must have happened before the next step reads weights.
 *
 * Anywhere: weight, gradient: where kernels read a tensor, where they add its gradient (fp32);
 * rounded: where AdamW of a piece writes the new value in plan.dtype (BUFFER_NONE: nowhere).
 */
struct split {
    const char *name;
    void (*open)(struct build *b);
    void (*close)(struct build *b);
    void (*begin)(struct build *b);
    bool (*hand_over)(const struct build *b);
    void (*use)(struct build *b, int unit);
    void (*done)(struct build *b, int unit);
    void (*embeds)(struct build *b);
    void (*finished)(struct build *b, int tensor, const int *after);
    void (*micro_end)(struct build *b);
    void (*reduce)(struct build *b);
    int (*norm)(struct build *b);
    void (*updated)(struct build *b, int piece, int op);
    void (*step_end)(struct build *b);
    struct tensor (*weight)(const struct build *b, int tensor);
    struct tensor (*gradient)(const struct build *b, int tensor);
    struct tensor (*rounded)(const struct build *b, int piece);
};
extern const struct split split_replicas; /* data.c */

/* ---- parameters.c, arenas.c: call in this order ---- */

/* Declare the parameters: plan.tensors, b->layer_tensor and the other roles. */
void build_parameters(struct build *b);

/* Take activations, temporaries and batches. */
void build_arenas(struct build *b);
void build_release(struct build *b);

/* A parameter of the current layer (b->layer), -1 when this model or rank has none. */
int build_layer_tensor(const struct build *b, int which);

int64_t build_tensor_count(const struct plan_tensor *t); /* elements held here */
int64_t build_element(const struct build *b);            /* bytes of one of plan.dtype */
bool build_is_recomputed(const struct build *b, int64_t layer);
bool build_makes_mlp_again(const struct build *b, int64_t layer);

/* Take n elements of plan.dtype, or of fp32. */
struct tensor build_take(struct build *b, enum plan_buffer buffer, int64_t n);
struct tensor build_take_wide(struct build *b, enum plan_buffer buffer, int64_t n);

/* Where a parameter is read, where its gradient accumulates (the split says), a scalar; BUFFER_NONE
 * for tensor -1. build_at: `n` elements of `size` bytes further. */
struct tensor build_weight(const struct build *b, int tensor);
struct tensor build_gradient(const struct build *b, int tensor);
struct tensor build_scalar(enum scalar which);
struct tensor build_at(struct tensor t, int64_t n, int64_t size);

/* ---- build.c: ops ---- */

/* An op of the current phase, layer, micro-batch and dtype, with nothing else set. */
struct op build_op(const struct build *b, enum op_kind kind);

/* Append an op of the compute stream, behind what build_await was told; returns its index. */
int build_add(struct build *b, const struct op *op);

/* The next compute op waits for op `earlier` (-1: nothing). */
void build_await(struct build *b, int earlier);

/* Append a collective on the stream of an axis and direction; it waits for op `after` (more with
 * plan_wait). Counts are those of collectives/coll.h. */
struct build_call {
    enum coll_kind kind;
    enum axis axis;
    int direction;
    enum dtype dtype;
    int64_t count;
    int peer; /* read for send and recv alone */
    enum phase phase;
    struct tensor send, receive;
    const int64_t *send_parts, *receive_parts; /* of all-to-all-v, kept by the plan */
};
int build_collective(struct build *b, const struct build_call *call, int after);

/* C = op(A) op(W) + beta C + bias; a tensor of BUFFER_NONE is no bias. */
struct shape_attention build_attention_shape(const struct build *b);
struct shape_gemm build_gemm_shape(int64_t m, int64_t n, int64_t k, float beta);
int build_gemm(struct build *b, struct tensor a, bool trans_a, struct tensor w, bool trans_b,
               struct tensor c, struct shape_gemm shape, struct tensor bias);

/* db += column sums of dy [rows][width]; the op. */
int build_bias_grad(struct build *b, struct tensor dy, int bias, int64_t rows, int64_t width);

/* An elementwise op on n elements. */
int build_vector_op(struct build *b, enum op_kind kind, struct tensor t0, struct tensor t1,
                    struct tensor t2, int64_t n);

/* y [n] of type `to` = x [n] of type `from`. */
int build_cast(struct build *b, struct tensor x, enum dtype from, struct tensor y, enum dtype to,
               int64_t n);

/*
 * The gradient of a parameter is complete after `op` (of any stream), in this micro-batch; a second
 * call of another stream adds to that. build_report then hands to the split, in arena order, the
 * tensors up to `tensor`, all of which must have finished.
 */
void build_finished(struct build *b, int tensor, int op);
void build_report(struct build *b, int tensor);

/* Those ops, by stream: after[1 + PLAN_CHANNELS]; -1: none. */
void build_after(const struct build *b, int tensor, int *after);

/* ---- forward.c, backward.c ---- */

struct norm { /* y = norm(x), where x is `narrow` + residual unless that is BUFFER_NONE */
    int w, bias;
    struct tensor x, residual, y, mean, rstd;
};

/* The chunk and micro-batch at work: forward, its batch included; backward; and with zb-h1 the
 * gradients of weights that backward left. */
void build_forward(struct build *b);
void build_backward(struct build *b);
void build_weights(struct build *b);

/* Post the batch of a micro-batch; where it is. */
void build_input(struct build *b, int micro);
struct batch *build_batch(const struct build *b, int micro);

/* What backward does again or needs to know. */
void build_use_head(struct build *b);
void build_done_head(struct build *b);
void build_layer_inner(struct build *b, struct tensor residual);
void build_attention(struct build *b, const struct layer_activations *a);
void build_activation(struct build *b, const struct layer_activations *a); /* fc to mlp */
void build_rotary(struct build *b, struct tensor qkv, bool inverse);
int build_head_weight(const struct build *b);

/* Logits and loss of b->rows rows: x holds them, `first` is the first of them in the micro-batch. */
void build_head_rows(struct build *b, struct tensor x, int64_t first);
int64_t build_qkv_valid(const struct build *b); /* rows of the qkv matrix that this rank counts */
struct shape_rows build_embed_shape(const struct build *b);

/* ---- tensor.c: linear layers, alone or split over tp; `n_valid` of the rows of W exist in the
 * unpadded model and are counted by this rank ---- */

enum { TENSOR_CHUNKS = 16 }; /* most chunks of rows */

/* Rows of the matrix that kernels read at tensor `w`: with the replicated k and v behind it. */
int64_t build_linear_rows(const struct build *b, int w);

/* Column-parallel: y [R][n] = gather(x [L][k]) W^T + bias, W [n][k]. */
void tensor_column(struct build *b, struct tensor x, int w, int bias, struct tensor y,
                   int64_t n_valid);

/* dW, db; dx [L][k] = reduce-scatter(dy [R][n] W). x is gathered again; BUFFER_NONE when it still
 * lies in b->gathered. */
void tensor_column_grad(struct build *b, struct tensor dy, struct tensor x, int w, int bias,
                        struct tensor dx, int64_t n_valid);

/* Row-parallel: y [L][n] = reduce-scatter(x [R][k] W^T) + bias. */
void tensor_row(struct build *b, struct tensor x, int w, int bias, struct tensor y);

/* dW, db; dx [R][k] = gather(dy [L][n]) W. */
void tensor_row_grad(struct build *b, struct tensor dy, struct tensor x, int w, int bias,
                     struct tensor dx);

/* dW alone, of what `later` left: dy as it was kept. */
void tensor_column_weight(struct build *b, struct tensor dy, struct tensor x, int w,
                          int64_t n_valid);
void tensor_row_weight(struct build *b, struct tensor dy, struct tensor x, int w);

/* The embedding: where it writes [R][H] of partial sums that tensor_reduce then makes `to` [L][H];
 * and [R][H] gathered of x [L][H]: where. With tp = 1 that is `to` and x, and nothing happens. */
struct tensor tensor_part(const struct build *b, struct tensor to);
void tensor_reduce(struct build *b, struct tensor to);
struct tensor tensor_gather(struct build *b, struct tensor x);

/* Sum over tp the gradients of tensors first .. last (neighbours), which every rank holds whole and
 * has from its own rows alone. Nothing unless sequence parallel and b->hand_over. */
void tensor_small(struct build *b, int first, int last);

/* Sum over their copies the gradients of replicated k and v of this layer. */
void tensor_replicated(struct build *b);

/* Which refusals a tp degree meets: FAIL_USAGE with the nearest degrees that divide. */
int tensor_check(const struct model *model, const struct layout *layout,
                 const struct policy *policy);

/* ---- pipeline*.c: stages, and the order in which they work ---- */

/* Fill b->pipe: before the parameters. */
void pipeline_open(struct build *b);
void pipeline_close(struct build *b);

/* Layers of a chunk of this stage; is a layer in any of them? */
void pipeline_layers(const struct build *b, int chunk, int *first, int *end);
bool pipeline_holds(const struct build *b, int layer);

/* Does the chunk at work begin with the embeddings, end with the head, need the batch? */
bool pipeline_embeds(const struct build *b);
bool pipeline_has_head(const struct build *b);
bool pipeline_takes_batch(const struct build *b);

/* Are the weights' gradients of b->layer made later? Not where what they read is shared. */
bool pipeline_delays(const struct build *b);

/* Forward and backward of all micro-batches, transfers included; then what a chunk hands on. */
void pipeline_step(struct build *b);
void pipeline_output(struct build *b);

/* When all ops are there: number the channels alike on all stages. */
void pipeline_channels(struct build *b);

/* ---- context*.c: sequences cut over cp ---- */

/* Directions of the cp axis: keys, their gradients, sharded gradients of parameters. */
enum { CONTEXT_FORWARD, CONTEXT_GRADIENTS, CONTEXT_DENSE };

/* Axis over which dense gradients and losses are summed: dp, or dp with cp. */
enum axis context_dense_axis(const struct layout *layout);

/* FAIL_USAGE for a sequence or heads that do not divide, with the nearest that do. */
int context_check(const struct model *model, const struct layout *layout,
                  const struct policy *policy);

/* Fill b->cp; take its memory. context_qkv: elements of the qkv of a layer, as attention reads it. */
void context_open(struct build *b);
void context_arenas(struct build *b);
int64_t context_qkv(const struct build *b);

/* Of a layer whose qkv is there, with cp > 1: hand out heads (ulysses; in place of qkv); attention;
 * fetch keys for backward ahead; its gradient, from `narrow` into `wide`. */
void context_spread(struct build *b, const struct layer_activations *a);
void context_attention(struct build *b, const struct layer_activations *a);
void context_ahead(struct build *b, const struct layer_activations *a);
void context_attention_grad(struct build *b, const struct layer_activations *a);

/* ---- expert*.c: the MLP of a layer of experts ---- */

/* Which refusals experts meet: FAIL_USAGE, what this version does not have by name. */
int expert_check(const struct model *model, const struct layout *layout,
                 const struct policy *policy);

/* Is the gradient of experts summed over AXIS_EDP, apart from that of the rest? */
bool expert_is_apart(const struct layout *layout);

/* Fill b->expert (NULL for a dense model): before the parameters. Then memory of a layer (`again`: of
 * recomputed ones, which share it), and what all layers share; expert_release is safe on NULL. */
void expert_open(struct build *b);
void expert_take_layer(struct build *b, int layer);
void expert_take_delayed(struct build *b, int layer); /* zb-h1: what dW reads later */
void expert_share_layer(struct build *b, int layer, int with);

/* Several micro-batches in flight: what was taken for a layer becomes that of place `at`; which of the
 * places the next ops use. */
void expert_keep_layer(struct build *b, int layer, int at);
void expert_enter_layer(struct build *b, int layer, int at);
void expert_arenas(struct build *b);
void expert_release(struct build *b);

/* Zero what a step counts. */
void expert_begin(struct build *b);

/* From ln_2 to the experts' outputs; these and the shared experts' as `narrow`; d of ln_2 into
 * `narrow` from dx. */
void expert_inner(struct build *b, const struct layer_activations *a);
void expert_output(struct build *b, const struct layer_activations *a);
void expert_grad(struct build *b, const struct layer_activations *a);
void expert_weights(struct build *b); /* dW of experts, of what `later` left */

/* Sum the router's gradient over tp, where tensor_small does not. */
void expert_router_sum(struct build *b);

/* ---- update.c ---- */

/* The losses of this rank are complete after b->last: sum them over replicas. */
void build_reduce_loss(struct build *b);

/* Sum of squares, clip, AdamW of every piece. */
void build_update(struct build *b);

#endif
