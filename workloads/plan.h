/*
 * plan: a training step as data.
 *
 * A plan is an array of operations in the order in which the host gives them out. Each op names its
 * stream, its phase, the ops it waits for, the tensors it touches and its shape. Shapes are fixed
 * when the plan is made. The plan has many readers and none of them changes it: the executor runs
 * it, a mask of it gives the compute-only and comm-only variants, a counter proves the work, a
 * memory pass sizes the arenas.
 *
 * Life: plan_init, plan_op (and the ways of splitting that use it), plan_seal, const from then on,
 * plan_release. Order inside a stream is a dependency that needs no entry in `wait`. Out of memory
 * while building: die().
 */
#ifndef WORKLOADS_PLAN_H
#define WORKLOADS_PLAN_H

#include <stdbool.h>
#include <stdint.h>

#include "collectives/coll.h"
#include "topologies/layout.h"
#include "workloads/schedule.h"

/*
 * Kind and, per kind, the tensors t[0..] it takes: "=" written, "+=" added to, others read. All
 * matrices are row-major; R rows = micro-batch * sequence (what this rank holds of them), H =
 * hidden width. Elements are of the type op.dtype (fp32 or bf16) for activations and parameters;
 * what is marked f is fp32 whatever op.dtype says: statistics, and gradients of parameters, which
 * accumulate. A tensor called "scalars" is the whole double[SCALARS]. Arithmetic inside a kernel
 * is fp32 at least.
 *
 * OP_INPUT           t0= tokens i32 [R], t1= targets i32 [R], t2= mask u8 [R]      shape.input
 * OP_ZERO            t0= [n] of 4 bytes                                            shape.vector
 * OP_EMBED           t0 tokens, t1 wte [W][H], t2 wpe [S][H] or NONE, t3= x [R][H]; rows of wte
 *                    are tokens first_column .. + W; a token outside gives 0 (and no wpe is
 *                    added unless first_column is 0)                               shape.rows
 * OP_EMBED_GRAD      t0 tokens, t1 dx [R][H], t2+= dwte f, t3+= dwpe f (or NONE); same bits every
 *                    time; tokens outside the columns add nothing                  shape.rows
 * OP_NORM            LayerNorm: y = (x - mean) rstd w + b, rstd = 1/sqrt(var + 1e-5), biased var;
 *                    rms: y = x rstd w, rstd = 1/sqrt(mean of squares + 1e-5), no t2, no t4
 *                    t0 x, t1 w [H], t2 b [H], t3= y [R][H], t4= mean f [R], t5= rstd f [R]
 *                    t6 residual [R][H] or NONE: then x is t0 + t6, and t7= that sum
 *                                                                                  shape.rows
 * OP_NORM_GRAD       t0 dy, t1 x, t2 w, t3 mean f, t4 rstd f, t5 dx [R][H], t6+= dw f, t7+= db f;
 *                    rms: no t3, no t7
 *                    t5 is "+=" when shape.rows.accumulate, else "="               shape.rows
 * OP_GEMM            C = op(A) op(B) + beta C + bias: t0 A, t1 B, t2 C, t3 bias [n] or NONE
 *                    op(A) is [m][k], op(B) is [k][n]; C is f when shape.gemm.wide  shape.gemm
 * OP_BIAS_GRAD       t0 dy [rows][width], t1+= db f [width]                        shape.rows
 * OP_ROTARY          rotary positions on the q and k heads of t0 qkv, in place, halves of a head
 *                    as pairs (element i with i + head/2), angle position * theta^(-2i/head);
 *                    `inverse` turns back (backward)                               shape.attention
 * OP_ATTENTION       causal softmax(q k^T / sqrt(head)) v per head; q head i reads kv head
 *                    i * kv_heads / heads
 *                    t0 qkv [b][s][(heads + 2 kv_heads) * head]: a row holds all q heads, then
 *                    all k, then all v; t1= out [b][s][heads * head]
 *                    t2= lse f [b][heads][s], log sum exp of the scaled scores, t3 workspace
 *                                                                                  shape.attention
 * OP_ATTENTION_GRAD  t0 dout, t1 qkv, t2 out, t3 lse f, t4= dqkv, t5 workspace     shape.attention
 * OP_ATTENTION_BLOCK softmax(q k^T / sqrt(head)) v of some rows of queries over some rows of keys:
 *                    of each sample rows q_first .. + q_rows of its `sequence`, and kv_first ..
 *                    + kv_rows of kv_sequence. `causal`: the last query sees all these keys, each one
 *                    before it one fewer; else all see all
 *                    t0 qkv as above, of which q is read; t1 kv [b][kv_sequence][2 kv_heads * head]:
 *                    a row holds all k, then all v; t2= out [b][s][heads * head], t3= lse f [b]
 *                    [heads][s], both of these queries alone; t4 workspace     shape.attention
 * OP_ATTENTION_MERGE what two blocks say of the same queries as one: with l = log(e^lse + e^lse2), out
 *                    e^(lse - l) + out2 e^(lse2 - l), and l
 *                    t0 out2 [b][s][heads * head], t1 lse2 f [b][heads][s], t2+= out, t3+= lse f, of
 *                    rows q_first .. + q_rows                                      shape.attention
 * OP_ATTENTION_BLOCK_GRAD  t0 dout, t1 qkv, t2 kv, t3 out, t4 lse f, these two of all keys together,
 *                    t5= dq into the columns of q of dqkv, t6= dkv [b][kv_sequence]..., rows as
 *                    above; "+=" for t5 when add_q, for t6 when add_kv; t7 workspace
 *                                                                                  shape.attention
 * OP_MOVE            t0 x, t1= y: for i < n[0], j < n[1] a run of `width` elements from i from[0] + j
 *                    from[1] to i to[0] + j to[1]; `reversed`: from (n[0] - 1 - i) from[0] instead
 *                                                                                  shape.move
 * OP_GELU            t0 x, t1= y [n]; tanh form                                    shape.vector
 * OP_GELU_GRAD       t0 dy, t1 x, t2= dx [n]; t2 may be t0 or t1                         shape.vector
 * OP_SWIGLU          t0 x [R][2 width]: a row holds gate, then up; t1= silu(gate) up [R][width]
 *                                                                                  shape.rows
 * OP_SWIGLU_GRAD     t0 dy [R][width], t1 x [R][2 width], t2= dx [R][2 width]; t2 may be t1
 *                                                                                  shape.rows
 * OP_ADD             t0 a, t1 b, t2= a + b [n]; t2 may be t0                       shape.vector
 * OP_CAST            t0 x [n] of shape.cast.from, t1= y [n] of shape.cast.to, rounded to nearest
 *                    even                                                          shape.cast
 * OP_CLASS_STATS     split vocabulary: t0 logits [R][W] of this rank's columns, t1 targets, t2= f
 *                    [R][3]: largest logit, sum of exp(logit - largest), the target's logit (0
 *                    when another rank holds it); columns >= valid do not count    shape.rows
 * OP_CROSS_ENTROPY   t0 logits [R][W] read, dlogits written in place: (softmax - onehot) mask;
 *                    columns >= valid count as -inf and get 0; t1 targets, t2 mask
 *                    t3+= scalars LOSS_SUM, VALID, TOKENS
 *                    t4 stats f [parts][R][3] of all ranks (OP_CLASS_STATS, gathered), or NONE when
 *                    this rank holds all columns; then columns are first_column .. + W of the
 *                    vocabulary, and rank-local sums count only when first_column is 0  shape.rows
 * OP_SUMSQ           t0 x [n] of op.dtype, t1+= scalars SUMSQ: sum of squares, fp64; with t1 the
 *                    scalars from the second on: EXPERT_SUMSQ                      shape.vector
 * OP_CLIP            t0 scalars, in place: STEP += 1; NORM = sqrt(SUMSQ + EXPERT_SUMSQ) / VALID; LR of the
 *                    schedule at STEP; SCALE = min(1, clip / (NORM + 1e-6)) / VALID, or 0 and
 *                    SKIPPED += 1 when NORM or LOSS_SUM is not finite or VALID is 0; a copy of
 *                    the scalars goes to the log                                   shape.optimizer
 * OP_ADAMW           t0 master parameter f, t1 gradient of shape.optimizer.gradient, t2 m f, t3 v f
 *                    [n], t4 scalars, t5= the new value rounded to op.dtype [n], or NONE: nothing
 *                    when SCALE is 0 (decoupled decay; bias correction by STEP - SKIPPED)
 *                                                                                  shape.optimizer
 * OP_ROUTE           mixture of experts, N = rows tokens of this rank, K = top_k, E experts:
 *                    t0 logits f of all_rows rows [contexts][parts][..][E], t1= experts i32
 *                    [N][K], t2= place i32 [N][K]: row of the send buffer, -1: dropped; t3= gates f
 *                    [N][K], t4= source i32 [sent]: token * K + slot, -1: padding; t5= load f64
 *                    [E + 3] (not when `again`), t6= share f [sequences][E]: of a sequence's slots,
 *                    before dropping, those of the expert, times E; t7= counts i32 [E], rows of
 *                    each expert in the send buffer, where shape.route.first is NULL: then they
 *                    lie one expert behind the other                          shape.route
 * OP_ROUTE_GRAD      t0 logits as above, t1 experts, t2 dgates f [N][K], t3 share, t4= dlogits f
 *                    [N][E]                                                        shape.route
 * OP_PERMUTE         t0 x [N][H], t1 source, t2= sent rows [sent][H]; padding gives 0
 *                    shape.permute
 * OP_COMBINE         t0 y [sent][H], t1 place, t2 gates f or NONE (1), t3 out [N][H]: the sum over
 *                    slots in their order, dropped ones give 0; "+=" when accumulate
 *                    shape.permute
 * OP_COMBINE_GRAD    t0 dout [N][H], t1 y [sent][H], t2 gates f, t3 place, t4 source, t5= dy
 *                    [sent][H] (padding gives 0), t6= dgates f [N][K]              shape.permute
 * OP_GROUPED_GEMM    blocks of rows, each with the [n][k] matrix W of an expert: y = x W^T
 *                    (GROUPED_FORWARD: t0 x [rows][k], t1 W [..][n][k], t2= y [rows][n]), dx = dy W
 *                    (GROUPED_INPUT: t0 dy, t1 W, t2= dx), dW += dy^T x (GROUPED_WEIGHT: t0 dy, t1 x,
 *                    t2+= dW f [..][n][k])                                         shape.grouped
 * OP_COUNTS          t0 counts i32 [E] that this rank sends, t1 arrived i32 [ranks][E / ranks] of
 *                    those that it gets: the host waits for them and fills tables of the plan that
 *                    later ops point to                                           shape.counts
 * OP_COLLECTIVE      t0 send, t1 receive                                           shape.coll
 */
#define OP_LIST(X)                                                                                 \
    X(OP_INPUT, "input")                                                                           \
    X(OP_ZERO, "zero")                                                                             \
    X(OP_EMBED, "embed")                                                                           \
    X(OP_EMBED_GRAD, "embed-grad")                                                                 \
    X(OP_NORM, "norm")                                                                             \
    X(OP_NORM_GRAD, "norm-grad")                                                                   \
    X(OP_GEMM, "gemm")                                                                             \
    X(OP_BIAS_GRAD, "bias-grad")                                                                   \
    X(OP_ROTARY, "rotary")                                                                         \
    X(OP_ATTENTION, "attention")                                                                   \
    X(OP_ATTENTION_GRAD, "attention-grad")                                                         \
    X(OP_ATTENTION_BLOCK, "attention-block")                                                       \
    X(OP_ATTENTION_MERGE, "attention-merge")                                                       \
    X(OP_ATTENTION_BLOCK_GRAD, "attention-block-grad")                                             \
    X(OP_MOVE, "move")                                                                             \
    X(OP_GELU, "gelu")                                                                             \
    X(OP_GELU_GRAD, "gelu-grad")                                                                   \
    X(OP_SWIGLU, "swiglu")                                                                         \
    X(OP_SWIGLU_GRAD, "swiglu-grad")                                                               \
    X(OP_ADD, "add")                                                                               \
    X(OP_CAST, "cast")                                                                             \
    X(OP_CLASS_STATS, "class-stats")                                                               \
    X(OP_CROSS_ENTROPY, "cross-entropy")                                                           \
    X(OP_SUMSQ, "sumsq")                                                                           \
    X(OP_CLIP, "clip")                                                                             \
    X(OP_ADAMW, "adamw")                                                                           \
    X(OP_ROUTE, "route")                                                                           \
    X(OP_ROUTE_GRAD, "route-grad")                                                                 \
    X(OP_PERMUTE, "permute")                                                                       \
    X(OP_COMBINE, "combine")                                                                       \
    X(OP_COMBINE_GRAD, "combine-grad")                                                             \
    X(OP_GROUPED_GEMM, "grouped-gemm")                                                             \
    X(OP_COUNTS, "counts")                                                                         \
    X(OP_COLLECTIVE, "collective")

enum op_kind {
#define OP_ENUM(name, text) name,
    OP_LIST(OP_ENUM)
#undef OP_ENUM
        OP_KINDS
};
const char *op_name(int kind);

#define PHASE_LIST(X)                                                                              \
    X(PHASE_INPUT, "input")                                                                        \
    X(PHASE_FORWARD, "forward")                                                                    \
    X(PHASE_BACKWARD, "backward")                                                                  \
    X(PHASE_REDUCE, "reduce")                                                                      \
    X(PHASE_UPDATE, "update")

enum phase {
#define PHASE_ENUM(name, text) name,
    PHASE_LIST(PHASE_ENUM)
#undef PHASE_ENUM
        PHASES
};
const char *phase_name(int phase);

/*
 * Arenas. A tensor is (buffer, offset in bytes); the executor maps buffers to memory.
 *
 * The training state is master weights and two moments, fp32, at equal offsets, cut into pieces
 * (struct plan_piece), and the scalars. plan.master says where the masters lie: BUFFER_PARAMETER
 * where kernels read the very fp32 weights that AdamW writes, BUFFER_MASTER where they do not
 * (bf16 parameters, sharded state).
 *
 * In a packed plan (pack.h) whatever lives for a part of a step lies in BUFFER_ACTIVATION, where bytes
 * are shared: activations, temporaries, what collectives send and receive, and of sharded state the
 * gradients.
 */
enum plan_buffer {
    BUFFER_NONE,      /* an optional tensor that is not there */
    BUFFER_PARAMETER, /* weights that kernels read, in the dtype of the plan */
    BUFFER_MASTER,    /* fp32 weights of the pieces, where they are not BUFFER_PARAMETER */
    BUFFER_GRADIENT,  /* fp32 accumulators of whole (tensor-parallel) tensors */
    BUFFER_SHARD,     /* fp32 gradient of the pieces, where it is reduce-scattered */
    BUFFER_MOMENT1,
    BUFFER_MOMENT2,
    BUFFER_ACTIVATION,
    BUFFER_TEMPORARY,
    BUFFER_WIRE,   /* sources and results of collectives that live only around them */
    BUFFER_BATCH,  /* tokens, targets, masks */
    BUFFER_SCALAR, /* double[SCALARS] */
    PLAN_BUFFERS
};

/* The doubles of BUFFER_SCALAR. Zeroed at the start of a step: LOSS_SUM to EXPERT_SUMSQ. */
enum scalar {
    SCALAR_LOSS_SUM,     /* sum of token losses, nats */
    SCALAR_VALID,        /* valid tokens (mask set) */
    SCALAR_TOKENS,       /* all positions */
    SCALAR_SUMSQ,        /* of the unscaled gradient, experts left out */
    SCALAR_EXPERT_SUMSQ, /* of that of the experts, where they are divided by themselves */
    SCALAR_NORM,         /* gradient norm after division by VALID, before clipping */
    SCALAR_SCALE,        /* what AdamW multiplies a gradient with; 0: this update is skipped */
    SCALAR_LR,
    SCALAR_STEP,    /* optimizer steps done, this one included */
    SCALAR_SKIPPED, /* updates skipped so far (norm not finite) */
    SCALARS
};

struct tensor {
    int buffer;     /* enum plan_buffer */
    int64_t offset; /* bytes */
};

/*
 * The positions of a sequence that a rank of cp has rows of: `runs` runs of `rows` positions each,
 * from first[run] on, in this order. runs 0: all.
 */
struct shape_cut {
    int runs; /* 0, 1 or 2 */
    int64_t rows, first[2];
};
static inline int64_t cut_position(const struct shape_cut *cut, int64_t row)
{
    return cut->runs == 0 ? row : cut->first[row / cut->rows] + row % cut->rows;
}
/* Rows of a sequence of `whole` positions. */
static inline int64_t cut_rows(const struct shape_cut *cut, int64_t whole)
{
    return cut->runs == 0 ? whole : cut->runs * cut->rows;
}

struct shape_vector {
    int64_t n;
};
struct shape_rows {
    int64_t rows;
    int64_t width;        /* H; the columns W of logits that this rank holds; F of OP_SWIGLU* */
    int64_t valid;        /* of the W columns those that exist; OP_EMBED*: rows of wte that exist */
    int64_t sequence;     /* OP_EMBED*: positions of a sequence */
    struct shape_cut cut; /* OP_EMBED*: those of them that rows are of */
    int64_t first_column; /* split vocabulary: index of this rank's first column or row of wte */
    int64_t first_row;    /* rows of a longer batch: index of the first in it (OP_EMBED*) */
    int parts;            /* ranks that share the vocabulary; 0 or 1: all is here (OP_EMBED*,
                             OP_CROSS_ENTROPY: those whose statistics are in t4) */
    bool accumulate;      /* OP_NORM_GRAD: dx += */
    bool rms;             /* OP_NORM*: RMSNorm */
    const int64_t
        *now; /* OP_SWIGLU*: so many of the rows are there, as OP_COUNTS says; NULL: all */
};
static inline int64_t rows_now(const struct shape_rows *shape)
{
    return shape->now != NULL ? *shape->now : shape->rows;
}
struct shape_cast {
    int64_t n;
    enum dtype from, to;
};
struct shape_gemm {
    int64_t m, n, k;
    bool trans_a, trans_b; /* stored as [k][m], [n][k] */
    bool wide;             /* C is fp32 where the other two are bf16 */
    float beta;            /* 0 or 1 */
    int64_t m_valid, n_valid,
        k_valid; /* sizes in the unpadded model: model FLOPs 2 m n k of these */
};
struct shape_attention {
    int64_t batch, sequence;
    int heads, kv_heads, head; /* head: width of one */
    float theta;               /* OP_ROTARY: base of the angles */
    bool inverse;              /* OP_ROTARY */
    struct shape_cut cut;      /* OP_ROTARY: positions of the `sequence` rows */
    /* OP_ATTENTION_BLOCK*, OP_ATTENTION_MERGE */
    int64_t q_first, q_rows, kv_sequence, kv_first, kv_rows;
    bool causal, add_q, add_kv;
};
struct shape_move {
    int64_t n[2], from[2], to[2]; /* strides in elements */
    int64_t width;
    bool reversed;
};
struct shape_input {
    int64_t first; /* sample within the global batch of the step */
    int64_t samples;
    int64_t sequence;
    struct shape_cut cut; /* the rows that are delivered of each sample */
};
struct shape_optimizer {
    int64_t n;           /* OP_ADAMW: elements */
    enum dtype gradient; /* OP_ADAMW: of t1 */
    float lr, lr_min, beta1, beta2, epsilon, weight_decay, clip;
    int64_t warm_up,
        decay_steps; /* optimizer steps; lr rises linearly, then follows half a cosine to lr_min */
};
/*
 * How tokens come to experts: ROUTING_BALANCED and ROUTING_SKEWED are functions of seed, layer and
 * the index of the token in the global batch, so that all counts are known when the plan is made;
 * ROUTING_LEARNED takes the largest logits. workloads/routing.h defines all three.
 */
enum routing_kind { ROUTING_BALANCED, ROUTING_SKEWED, ROUTING_LEARNED };
enum { EXPERTS_MOST = 256, TOP_K_MOST = 16 };

/*
 * Of the all_rows of whole sequences a rank of cp has all_rows / contexts, cut in one run of each
 * sequence or in two as context.h says. Of these, row r is row r / (lead * parts) * lead + r % lead
 * of part r / lead % parts. This rank's are those of its context and part.
 */
struct shape_route {
    int64_t rows, all_rows; /* N; rows whose logits are at hand: [contexts][parts][N] */
    int64_t sequence;
    int64_t lead;
    int parts, part;
    int contexts, context, runs; /* contexts 0 or 1: whole sequences are here */
    int experts, top_k;
    enum routing_kind kind;
    int64_t capacity;     /* slots of a sequence that an expert takes, the first in order; 0: all */
    int64_t sent;         /* rows of the send buffer */
    const int32_t *first; /* [E] where the rows of an expert begin in it; of the plan. NULL: known
                             when they are counted */
    const uint32_t *threshold; /* [E] skewed: cumulative, last 2^32 - 1; of the plan */
    uint64_t key;              /* of the layer */
    int64_t first_token;       /* index of row 0 in the global batch */
    float balance;             /* coefficient of the load-balance loss */
    bool counted;              /* this rank's rows: in load, and in the load-balance loss */
};
struct shape_permute {
    int64_t rows, sent, width; /* N; rows of the send buffer; H */
    int top_k;
    bool accumulate;
};
enum grouped_form { GROUPED_FORWARD, GROUPED_INPUT, GROUPED_WEIGHT };
struct shape_grouped {
    enum grouped_form form;
    int blocks;
    const int64_t *rows;  /* [blocks], one behind the other; of the plan */
    const int32_t *which; /* [blocks] matrix of each, from the first here; of the plan */
    int64_t all_rows, matrices;
    int64_t n, k;
    int64_t rows_valid; /* counted as model FLOPs */
    const int64_t
        *now; /* dropless: the sum of rows[], which OP_COUNTS fills, at most all_rows; NULL:
                           all_rows */
};
static inline int64_t grouped_now(const struct shape_grouped *shape)
{
    return shape->now != NULL ? *shape->now : shape->all_rows;
}
/*
 * Dropless routing: tables that OP_COUNTS fills, of the plan. They are the one part of a sealed plan
 * that changes: whoever runs it owns them, so that a plan is run by one at a time. Until the first
 * counts they say what even routing would give. workloads/counts.h has the rest.
 */
struct shape_counts {
    int ranks, me, experts;  /* of the expert group; E */
    int64_t width;           /* H */
    int64_t most;            /* rows that can arrive */
    int64_t *send, *receive; /* [ranks] elements: parts of the calls */
    int64_t *rows;           /* [ranks * E / ranks], with one expert a rank [1]: of the products */
    int64_t *now;            /* rows that arrive */
};
struct shape_coll {
    struct coll coll;
    enum axis axis;
    int direction;   /* 0; pp: 0 down, 1 up; shard: 0 gather, 1 reduce */
    bool counted;    /* an all-to-all-v whose parts OP_COUNTS fills: shape_call() */
    int64_t most[2]; /* of these: elements that can be sent, and received */
};

/* The call as it stands: what is counted has its parts of now. */
static inline struct coll shape_call(const struct shape_coll *shape, const struct group *group)
{
    const struct coll *c = &shape->coll;
    return shape->counted
               ? coll_all_to_all_v(c->dtype, c->count, group->size, group->me, c->send, c->recv)
               : *c;
}

enum { PLAN_GROUP = 2 }; /* most calls of one post: a send, and a receive of its direction */
enum { OP_TENSORS = 8, OP_WAITS = 8 };

struct op {
    enum op_kind kind;
    enum phase phase;
    enum dtype dtype; /* of activations and parameters that the op touches */
    int stream;       /* 0 compute, 1 + index in plan.channel, or plan_copy_stream() */
    int layer;        /* -1: outside the layers; of transfers of pp: the first behind the cut */
    int micro;        /* micro-batch, -1: once a step */
    int slot;         /* 1 + index in the stage's list (schedule.h); 0: outside */
    int n_waits;
    int wait[OP_WAITS]; /* ops on other streams that must have finished; index < own */
    struct tensor t[OP_TENSORS];
    union {
        struct shape_vector vector;
        struct shape_rows rows;
        struct shape_gemm gemm;
        struct shape_attention attention;
        struct shape_input input;
        struct shape_optimizer optimizer;
        struct shape_coll coll;
        struct shape_cast cast;
        struct shape_move move;
        struct shape_route route;
        struct shape_permute permute;
        struct shape_grouped grouped;
        struct shape_counts counts;
    } shape;
    bool again;     /* recomputed in backward: executed, but no model FLOPs */
    bool with_next; /* a call that is posted as one with the next op, of the same stream */
    bool awaited;   /* set by seal: an op on another stream waits for this one */
};

/* A communication stream: one axis in one direction. */
struct plan_channel {
    enum axis axis;
    int direction;
};
enum { PLAN_CHANNELS = 16 };

/*
 * A parameter of the model, as this rank computes with it: the whole tensor, or a tensor-parallel
 * part of it. `name` and `whole_*` are the unsplit tensor; local row r of span k is row first + r
 * of the whole, so a part of the fused q, k, v is three spans and one of gate and up two. Columns
 * are a run. Where k and v are replicated and q is not, the part of q and the part of k and v are
 * two neighbouring tensors of one name.
 */
struct plan_span {
    int64_t first, count; /* rows of the whole tensor */
};
enum { PLAN_SPANS = 3 };
struct plan_tensor {
    char name[64];         /* canonical: "h.3.attn.qkv.weight" */
    int64_t rows, columns; /* held here; columns 1 for vectors */
    int64_t whole_rows, whole_columns;
    int64_t valid_rows;   /* rows of the whole that exist in the unpadded model */
    int64_t first_column; /* of the whole */
    int n_spans;          /* rows = sum of counts */
    struct plan_span span[PLAN_SPANS];
    int copies;     /* ranks of the tp group that hold each element: 1, or more when replicated */
    bool counted;   /* this rank is the one of those copies that counts in sums over ranks */
    bool expert;    /* of one expert: the ranks of AXIS_EDP hold the same, where ep divides them */
    int unit;       /* what is gathered and let go together: 0 the embeddings, 1 + l layer l, then
                       the head */
    int64_t offset; /* elements from the start of BUFFER_PARAMETER and BUFFER_GRADIENT (of the unit
                       when parameters are gathered by unit) */
    bool decay;     /* weight decay applies */
    int64_t zero_first,
        zero_count; /* elements whose gradient is structurally zero (the key third of the qkv bias) */
    double sigma;   /* initial standard deviation; < 0: constant one, 0: zero */
};

/*
 * What this rank owns of the training state: elements first .. first + count of a plan_tensor
 * (row-major as held here), at `offset` elements in master, moments and, where gradients are
 * reduce-scattered, BUFFER_SHARD of a plan that is not packed. Without sharding there is one piece per tensor, whole, and
 * piece i has the offset of tensor i.
 */
struct plan_piece {
    int tensor;
    int64_t first, count;
    int64_t offset;
};

struct plan_totals {
    double model_flops;            /* a step of this rank, forward and backward */
    double hardware_flops;         /* the same and what is recomputed */
    double gemm_flops;             /* executed by GEMMs, padding included */
    int64_t tokens;                /* positions a step of this rank */
    double wire_bytes[AXIS_COUNT]; /* coll_wire_bytes of all posts of this rank */
    int64_t calls[AXIS_COUNT];
};

struct plan {
    struct layout layout;
    int n_ops, capacity;
    struct op *ops;
    int n_channels;
    struct plan_channel channel[PLAN_CHANNELS];
    int n_tensors;
    struct plan_tensor *tensors; /* [n_tensors], in order of their offsets */
    int64_t n_parameters;        /* elements that this rank computes with, padding included */
    int n_pieces;
    struct plan_piece *pieces;   /* [n_pieces], in order of their offsets */
    int64_t n_state;             /* elements of master and of each moment on this rank */
    int master;                  /* enum plan_buffer of the master weights */
    enum dtype dtype;            /* of parameters and activations */
    bool tf32;                   /* fp32 matrix products may round their inputs to tf32 */
    bool copy_stream;            /* batches come on a stream of their own */
    int64_t bytes[PLAN_BUFFERS]; /* size of each arena */
    bool passing[PLAN_BUFFERS];  /* of gathered weights, gradients, sharded gradients: hold nothing
                                    from one step to the next (pack.h) */
    bool packed;                 /* values share bytes where they do not live together */
    bool pack_later;             /* counts as packed: whoever wants to know its bytes packs it */
    int micro_batches;           /* accumulation steps A */
    struct schedule schedule;    /* pp = 1: of one stage */
    int64_t samples;             /* of this rank a step */
    int64_t global_batch;        /* samples a step of the whole point */
    int64_t sequence;
    struct plan_totals totals; /* filled by seal */
    struct tensor load;        /* experts: f64 [layers][experts + 3], see OP_ROUTE; or NONE */
    void **kept;               /* [n_kept] tables that shapes point to, owned */
    int n_kept;
    bool sealed;
};

void plan_init(struct plan *plan, const struct layout *layout);
void plan_release(struct plan *plan); /* safe on a zeroed struct */

/* Append a copy of *op (waits as given); returns its index. */
int plan_op(struct plan *plan, const struct op *op);

/*
 * Make op `later` wait for op `earlier`, unless they share a stream or `later` already waits for an
 * op of that stream that comes no earlier.
 */
void plan_wait(struct plan *plan, int later, int earlier);

/* The stream of an axis and direction; made on first use. */
int plan_channel(struct plan *plan, enum axis axis, int direction);

/* The stream of OP_INPUT: after all channels when plan.copy_stream, else 0. */
int plan_copy_stream(const struct plan *plan);

/*
 * The runs of a piece in the whole tensor, in order: row-major index of the first element there,
 * elements. Calls `run` for each; what checkpoints, gates and initial values share.
 */
void plan_piece_runs(const struct plan *plan, const struct plan_piece *piece,
                     void (*run)(void *arg, int64_t whole_first, int64_t local_first,
                                 int64_t count),
                     void *arg);

/* Zeroed memory of the plan's own for a table of a shape. */
void *plan_keep(struct plan *plan, size_t bytes);

/* Take `bytes` of an arena, aligned to 64; returns the tensor. */
struct tensor plan_take(struct plan *plan, enum plan_buffer buffer, int64_t bytes);

/*
 * Check (waits point backwards and across streams, tensors lie inside their arenas, groups exist),
 * give out stamps to ops that somebody waits for and to collectives, sum the totals. FAIL_INTERNAL
 * on a broken plan.
 */
int plan_seal(struct plan *plan);

/*
 * A digest of the calls on an axis (kind, dtype, count, peer in order): members of a group compare
 * it before they start. Plans that make no call on the axis have the digest of the empty sequence.
 * Transfers are apart, since each member makes others: plan_digest_transfers is the sum over peers of a
 * digest of what the two exchange, negative on the later of them, so that over a group it is 0.
 */
uint64_t plan_digest(const struct plan *plan, enum axis axis);
uint64_t plan_digest_transfers(const struct plan *plan, enum axis axis);

/* Pairs of a query and a key that an OP_ATTENTION_BLOCK* counts of each head: all, or under the mask
 * what lies below it and half of the diagonal square, as OP_ATTENTION counts half of all. */
double plan_block_pairs(const struct shape_attention *shape);

/* Sum over the ops alone, without the model's formula: what seal puts into totals. */
void plan_count(const struct plan *plan, struct plan_totals *out);

#endif
