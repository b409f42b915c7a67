/* Costs are the closed forms of cost.h, computed here by hand, and lie near what was measured. */
#include "workloads/cost.h"

#include <stdlib.h>

#include "base/err.h"
#include "tests/test.h"
#include "workloads/transformer.h"

/* A machine whose numbers make the arithmetic plain. */
static struct topology round_numbers(void)
{
    struct topology t;
    CHECK_EQ(topology_load(&t, "rail:2 node:4 gpu:8"), 0);
    t.fact[FACT_FP32].value = 1e12;
    t.fact[FACT_BF16].value = 8e12;
    t.fact[FACT_TF32].value = 4e12;
    t.fact[FACT_GEMM_SHARE].value = 0.5;
    t.fact[FACT_ATTENTION_SHARE].value = 0.25;
    t.fact[FACT_MEMORY_RATE].value = 1e11;
    t.fact[FACT_MEMORY_SHARE].value = 0.8;
    t.fact[FACT_LAUNCH].value = 1e-6;
    t.fact[FACT_TO_DEVICE].value = 1e10;
    static const double latency[] = {1e-6, 10e-6, 100e-6}, rate[] = {100e9, 10e9, 1e9};
    for (int l = 0; l < 3; l++) {
        t.level[l].latency.value = latency[l];
        t.level[l].bandwidth.value = rate[l];
    }
    return t;
}

static struct cost cost_of(const struct topology *t)
{
    return (struct cost){.topology = t, .ranks_per_node = 8};
}

/* ---- kernels ---- */

static struct op gemm_of(int64_t m, int64_t n, int64_t k, enum dtype dtype)
{
    struct op op = {.kind = OP_GEMM, .dtype = dtype};
    op.shape.gemm = (struct shape_gemm){.m = m, .n = n, .k = k};
    return op;
}

static void products(void)
{
    struct topology t = round_numbers();
    struct cost cost = cost_of(&t);
    struct cost_work work;
    struct op op = gemm_of(1000, 1000, 1000, DTYPE_F32);
    CHECK_NEAR(cost_op_s(&cost, &op), 1e-6 + 2e9 / 0.5e12, 1e-15);
    cost.tf32 = true;
    CHECK_NEAR(cost_op_s(&cost, &op), 1e-6 + 2e9 / 2e12, 1e-15);
    op.dtype = DTYPE_BF16;
    CHECK_NEAR(cost_op_s(&cost, &op), 1e-6 + 2e9 / 4e12, 1e-15);
    op.t[3].buffer = BUFFER_PARAMETER;
    op.shape.gemm.beta = 1;
    op.shape.gemm.wide = true;
    cost_work(&op, &work);
    CHECK_NEAR(work.bytes, 2e6 * 2 + 1000 * 2 + 1e6 * 4 * 2, 0.5);
    op = gemm_of(1, 1000, 1000, DTYPE_F32); /* thin: memory binds */
    CHECK_NEAR(cost_op_s(&cost, &op), 1e-6 + (1000 + 1e6 + 1000) * 4 / 0.8e11, 1e-15);
}

static void attention(void)
{
    struct topology t = round_numbers();
    struct cost cost = cost_of(&t);
    struct cost_work work;
    struct op op = {.kind = OP_ATTENTION, .dtype = DTYPE_BF16};
    op.shape.attention = (struct shape_attention){
        .batch = 2, .sequence = 1024, .heads = 16, .kv_heads = 4, .head = 64};
    double pairs = 2.0 * 1024 * 1024 / 2, width = 16 * 64;
    cost_work(&op, &work);
    CHECK_NEAR(work.attention_flops, 4 * pairs * width, 0.5);
    CHECK_NEAR(work.bytes, 2.0 * 2048 * (24 + 16) * 64 + 4.0 * 2048 * 16, 0.5);
    CHECK_NEAR(cost_op_s(&cost, &op), 1e-6 + 4 * pairs * width / 2e12, 1e-12);
    op.kind = OP_ATTENTION_GRAD;
    cost_work(&op, &work);
    CHECK_NEAR(work.attention_flops, 10 * pairs * width, 0.5);
}

/* AdamW in mixed precision moves 28 bytes a parameter: 24 of master and moments, gradient, copy. */
static void streams(void)
{
    struct topology t = round_numbers();
    struct cost cost = cost_of(&t);
    struct cost_work work;
    struct op op = {.kind = OP_ADAMW, .dtype = DTYPE_BF16};
    op.shape.optimizer = (struct shape_optimizer){.n = 1000000, .gradient = DTYPE_BF16};
    op.t[5].buffer = BUFFER_PARAMETER;
    cost_work(&op, &work);
    CHECK_NEAR(work.bytes, 28e6, 0.5);
    CHECK_NEAR(cost_op_s(&cost, &op), 1e-6 + 28e6 / 0.8e11, 1e-12);
    op = (struct op){.kind = OP_NORM, .dtype = DTYPE_BF16};
    op.shape.rows = (struct shape_rows){.rows = 512, .width = 768};
    cost_work(&op, &work);
    CHECK_NEAR(work.bytes, 512.0 * 768 * 4 + 512 * 8, 0.5);
    op.t[6].buffer = BUFFER_ACTIVATION;
    op.shape.rows.rms = true;
    cost_work(&op, &work);
    CHECK_NEAR(work.bytes, 512.0 * 768 * 8 + 512 * 4, 0.5);
    op = (struct op){.kind = OP_CAST};
    op.shape.cast = (struct shape_cast){.n = 100, .from = DTYPE_F32, .to = DTYPE_BF16};
    cost_work(&op, &work);
    CHECK_NEAR(work.bytes, 600, 0.5);
    op = (struct op){.kind = OP_INPUT};
    op.shape.input = (struct shape_input){.samples = 4, .sequence = 1000};
    CHECK_NEAR(cost_op_s(&cost, &op), 1e-6 + 36000 / 1e10, 1e-15);
    op = (struct op){.kind = OP_CLIP};
    CHECK_NEAR(cost_op_s(&cost, &op), 1e-6, 1e-15);
}

/* Every op that streams, in bf16: elements, bytes and flops of each, and what comes per row. */
static void streams_of_each_kind(void)
{
    enum { R = 30, H = 7, V = R * H, POSITIONS = 10 };
    static const struct {
        enum op_kind kind;
        bool third, rms, accumulate; /* t[2] is there: positions or a residual, see each kind */
        double bytes, flops;
    } kinds[] = {
        {OP_EMBED, false, false, false, V * 2 * 2 + R * 4, V},
        {OP_EMBED, true, false, false, V * 2 * 3 + R * 4, V},
        {OP_EMBED_GRAD, false, false, false, V * (2 + 8) + R * 4, V},
        {OP_NORM, false, true, false, V * 2 * 2 + R * 4, V * 8},
        {OP_NORM_GRAD, false, false, false, V * 2 * 3 + R * 8, V * 14},
        {OP_NORM_GRAD, false, true, true, V * 2 * 4 + R * 4, V * 14},
        {OP_BIAS_GRAD, false, false, false, V * 2, V * 4},
        {OP_SWIGLU, false, false, false, V * 2 * 3, V * 8},
        {OP_SWIGLU_GRAD, false, false, false, V * 2 * 5, V * 14},
        {OP_CLASS_STATS, false, false, false, V * 2 + R * 16, V * 4},
        {OP_CROSS_ENTROPY, false, false, false, V * 2 * 2 + R * 5, V * 6},
        {OP_ZERO, false, false, false, V * 4, 0},
        {OP_GELU, false, false, false, V * 2 * 2, V * 14},
        {OP_GELU_GRAD, false, false, false, V * 2 * 3, V * 20},
        {OP_ADD, false, false, false, V * 2 * 3, V},
        {OP_SUMSQ, false, false, false, V * 2, V * 4},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct op op = {.kind = kinds[i].kind, .dtype = DTYPE_BF16};
        struct cost_work work;
        op.t[2].buffer = kinds[i].third ? BUFFER_PARAMETER : BUFFER_NONE;
        op.shape.rows = (struct shape_rows){.rows = R, .width = H, .sequence = POSITIONS};
        op.shape.rows.rms = kinds[i].rms;
        op.shape.rows.accumulate = kinds[i].accumulate;
        if (kinds[i].kind == OP_ZERO || kinds[i].kind == OP_GELU || kinds[i].kind == OP_GELU_GRAD ||
            kinds[i].kind == OP_ADD || kinds[i].kind == OP_SUMSQ)
            op.shape.vector.n = V;
        cost_work(&op, &work);
        if (!CHECK(work.bytes == kinds[i].bytes && work.other_flops == kinds[i].flops))
            printf("  %s: %g bytes, %g flops\n", op_name((int)op.kind), work.bytes,
                   work.other_flops);
        CHECK(work.product_flops == 0 && work.attention_flops == 0);
    }
    struct op op = {.kind = OP_EMBED_GRAD, .dtype = DTYPE_BF16};
    struct cost_work work;
    op.shape.rows = (struct shape_rows){.rows = R, .width = H, .sequence = POSITIONS};
    op.t[3].buffer = BUFFER_GRADIENT; /* and of the positions: those of one sequence */
    cost_work(&op, &work);
    CHECK_EQ(work.bytes, V * (2 + 8) + R * 4 + 8 * POSITIONS * H);
    op.shape.rows.sequence = 2 * R; /* of a part of one */
    cost_work(&op, &work);
    CHECK_EQ(work.bytes, V * (2 + 8) + R * 4 + 8 * R * H);
    int64_t there = 11; /* of the rows, as was counted */
    op = (struct op){.kind = OP_SWIGLU, .dtype = DTYPE_BF16};
    op.shape.rows = (struct shape_rows){.rows = R, .width = H, .now = &there};
    cost_work(&op, &work);
    CHECK_EQ(work.bytes, 11 * H * 2 * 3);
}

/* Attention of some queries over some keys, what joins two of them, and rows that are turned or moved. */
static void blocks_of_attention(void)
{
    struct op op = {.kind = OP_ATTENTION_BLOCK, .dtype = DTYPE_BF16};
    struct cost_work work;
    op.shape.attention = (struct shape_attention){.batch = 3,
                                                  .sequence = 64,
                                                  .heads = 6,
                                                  .kv_heads = 2,
                                                  .head = 8,
                                                  .q_rows = 10,
                                                  .kv_sequence = 64,
                                                  .kv_rows = 40};
    const double q = 3 * 10 * 6 * 8, kv = 3 * 40 * 2 * 2 * 8, lse = 3 * 10 * 6;
    cost_work(&op, &work);
    CHECK_EQ(work.attention_flops, 2 * 2 * (3 * 10 * 40) * 48);
    CHECK_EQ(work.bytes, 2 * (q + kv + q) + 4 * lse);
    op.shape.attention.causal = true; /* the last query sees all 40 keys, the one before 39 ... */
    cost_work(&op, &work);
    CHECK_EQ(work.attention_flops, 2 * 2 * (3 * (10 * 40 - 50)) * 48);
    op.kind = OP_ATTENTION_BLOCK_GRAD;
    cost_work(&op, &work);
    CHECK_EQ(work.attention_flops, 5 * 2 * (3 * (10 * 40 - 50)) * 48);
    CHECK_EQ(work.bytes, 2 * (3 * q + kv + q + kv) + 4 * lse);
    op.shape.attention.add_q = true;
    cost_work(&op, &work);
    CHECK_EQ(work.bytes, 2 * (3 * q + kv + 2 * q + kv) + 4 * lse);
    op.shape.attention.add_kv = true;
    cost_work(&op, &work);
    CHECK_EQ(work.bytes, 2 * (3 * q + kv + 2 * q + 2 * kv) + 4 * lse);
    op.kind = OP_ATTENTION_MERGE;
    cost_work(&op, &work);
    CHECK_EQ(work.bytes, 2 * 3 * q);
    CHECK_EQ(work.other_flops, 3 * q);
    op.kind = OP_ROTARY; /* queries and keys, not values */
    cost_work(&op, &work);
    CHECK_EQ(work.bytes, 2 * 2 * (3 * 64 * (6 + 2) * 8));
    CHECK_EQ(work.other_flops, 6 * (3 * 64 * (6 + 2) * 8));
    op.kind = OP_MOVE;
    op.shape.move = (struct shape_move){.n = {3, 5}, .width = 7};
    cost_work(&op, &work);
    CHECK_EQ(work.bytes, 2 * 2 * 3 * 5 * 7);
    op.kind = OP_ATTENTION_GRAD; /* q, k, v, their gradients, out and dout, and lse */
    op.shape.attention =
        (struct shape_attention){.batch = 3, .sequence = 64, .heads = 6, .kv_heads = 2, .head = 8};
    cost_work(&op, &work);
    CHECK_EQ(work.bytes, 2 * (2 * 192 * (6 + 2 * 2) * 8 + 2 * 192 * 48) + 4 * 192 * 6);
}

/* Tokens to their experts and back. */
static void rows_of_experts(void)
{
    struct op op = {.kind = OP_PERMUTE, .dtype = DTYPE_BF16};
    struct cost_work work;
    op.shape.permute = (struct shape_permute){.rows = 10, .sent = 24, .width = 7, .top_k = 2};
    cost_work(&op, &work);
    CHECK_EQ(work.bytes, 2 * (10 + 24) * 7 + 8 * 10 * 2);
    CHECK_EQ(work.other_flops, 0);
    op.kind = OP_COMBINE;
    op.shape.permute.accumulate = true;
    cost_work(&op, &work);
    CHECK_EQ(work.bytes, 2 * (2 * 10 + 24) * 7 + 8 * 10 * 2);
    CHECK_EQ(work.other_flops, 2 * 24 * 7);
    op.kind = OP_COMBINE_GRAD; /* rows and their gradients */
    op.shape.permute.accumulate = false;
    cost_work(&op, &work);
    CHECK_EQ(work.bytes, 2 * (10 + 2 * 24) * 7 + 8 * 10 * 2);
    CHECK_EQ(work.other_flops, 3 * 24 * 7);
    op.kind = OP_ROUTE;
    op.shape.route =
        (struct shape_route){.rows = 10, .all_rows = 20, .sent = 24, .experts = 4, .top_k = 2};
    cost_work(&op, &work);
    CHECK_EQ(work.bytes, 4 * 20 * 4 + 12 * 10 * 2 + 4 * 24);
    CHECK_EQ(work.other_flops, 8 * 20 * 4);
    op.kind = OP_ROUTE_GRAD;
    cost_work(&op, &work);
    CHECK_EQ(work.bytes, 2 * 4 * 20 * 4 + 12 * 10 * 2 + 4 * 24);
}

static struct shape_grouped some_blocks(void)
{
    static const int64_t rows[] = {100, 0, 28};
    static const int32_t which[] = {0, 1, 2};
    return (struct shape_grouped){.blocks = 3, .rows = rows, .which = which, .n = 64, .k = 32};
}

/* Rows of two experts: their matrices are read once each, or read and written as gradients. */
static void blocks_of_experts(void)
{
    struct op op = {.kind = OP_GROUPED_GEMM, .dtype = DTYPE_BF16};
    struct cost_work work;
    op.shape.grouped = some_blocks();
    cost_work(&op, &work);
    CHECK_NEAR(work.product_flops, 2.0 * 128 * 64 * 32, 0);
    CHECK_NEAR(work.bytes, 2.0 * (128 * (64 + 32) + 2 * 64 * 32), 0);
    op.shape.grouped.form = GROUPED_WEIGHT;
    cost_work(&op, &work);
    CHECK_NEAR(work.bytes, 2.0 * 128 * (64 + 32) + 8.0 * 2 * 64 * 32, 0);
}

/* Every kind of op does something, but for the scalar one: a new kind is not forgotten. */
static void every_kind_has_bytes(void)
{
    for (int kind = 0; kind < OP_KINDS; kind++) {
        struct op op = {.kind = (enum op_kind)kind};
        struct cost_work work;
        unsigned char *bytes = (unsigned char *)&op.shape; /* 257 or more everywhere */
        for (size_t i = 0; i < sizeof op.shape; i++)
            bytes[i] = i % 4 < 2;
        op.shape.optimizer.gradient = DTYPE_F32;
        if (kind == OP_CAST)
            op.shape.cast.from = op.shape.cast.to = DTYPE_F32;
        if (kind == OP_GROUPED_GEMM)
            op.shape.grouped = some_blocks();
        if (kind == OP_SWIGLU || kind == OP_SWIGLU_GRAD)
            op.shape.rows.now = NULL;
        cost_work(&op, &work);
        CHECK((work.bytes > 0) == (kind != OP_CLIP && kind != OP_COUNTS && kind != OP_COLLECTIVE));
    }
}

/* ---- collectives ---- */

static double coll_s(const struct topology *t, enum coll_kind kind, int64_t count, int first,
                     int stride, int size)
{
    struct cost cost = cost_of(t);
    struct coll coll = {.kind = kind, .dtype = DTYPE_U8, .count = count, .peer = 1};
    struct group group = {.first = first, .stride = stride, .size = size};
    return cost_coll_s(&cost, &coll, &group);
}

static void one_level(void)
{
    struct topology t = round_numbers();
    double s = 8e6; /* bytes */
    CHECK_NEAR(coll_s(&t, COLL_ALL_REDUCE, 8000000, 0, 1, 8), 2 * (7e-6 + 7.0 / 8 * s / 100e9),
               1e-12);
    CHECK_NEAR(coll_s(&t, COLL_ALL_GATHER, 1000000, 0, 1, 8), 7e-6 + 7.0 / 8 * s / 100e9, 1e-12);
    CHECK_NEAR(coll_s(&t, COLL_REDUCE_SCATTER, 1000000, 0, 1, 8), 7e-6 + 7.0 / 8 * s / 100e9,
               1e-12);
    CHECK_NEAR(coll_s(&t, COLL_ALL_TO_ALL, 1000000, 0, 1, 8), 7e-6 + 7.0 / 8 * s / 100e9, 1e-12);
    CHECK_NEAR(coll_s(&t, COLL_ALL_TO_ALL_V, 8000000, 0, 1, 8), 7e-6 + 7.0 / 8 * s / 100e9, 1e-12);
    CHECK_NEAR(coll_s(&t, COLL_BROADCAST, 8000000, 0, 1, 8), 7e-6 + s / 100e9, 1e-12);
    CHECK_NEAR(coll_s(&t, COLL_REDUCE, 8000000, 0, 1, 8), 7e-6 + s / 100e9, 1e-12);
    CHECK_NEAR(coll_s(&t, COLL_SEND, 8000000, 0, 1, 8), 1e-6 + s / 100e9, 1e-12);
    CHECK_EQ(coll_s(&t, COLL_ALL_REDUCE, 8000000, 0, 1, 1), 0);
    CHECK_EQ(coll_s(&t, COLL_ALL_REDUCE, 0, 0, 1, 8), 0);
}

static void several_levels(void)
{
    struct topology t = round_numbers();
    double s = 32e6;
    /* one device of each of 4 nodes: the port of one */
    CHECK_NEAR(coll_s(&t, COLL_ALL_GATHER, 8000000, 3, 8, 4), 3 * 10e-6 + 0.75 * s / 10e9, 1e-12);
    /* all of 4 nodes: 8 ports of 10 GB/s a node, 28 steps inside nodes and 3 between */
    CHECK_NEAR(coll_s(&t, COLL_ALL_GATHER, 1000000, 0, 1, 32),
               28 * 1e-6 + 3 * 10e-6 + 31.0 / 32 * s / 80e9, 1e-12);
    /* all of both rails: 32 ports of 1 GB/s a rail */
    CHECK_NEAR(coll_s(&t, COLL_ALL_GATHER, 500000, 0, 1, 64),
               56 * 1e-6 + 6 * 10e-6 + 100e-6 + 63.0 / 64 * s / 32e9, 1e-12);
    /* few bytes: a chain of 8, a tree of 4 nodes and one of 2 rails; many: a ring */
    CHECK_NEAR(coll_s(&t, COLL_ALL_REDUCE, 8, 0, 1, 64),
               2 * (7 * 1e-6 + 2 * 10e-6 + 1 * 100e-6 + 8 / 32e9), 1e-12);
    CHECK_NEAR(coll_s(&t, COLL_ALL_REDUCE, 1 << 30, 0, 1, 64),
               2 * (56e-6 + 60e-6 + 100e-6 + 63.0 / 64 * 1073741824.0 / 32e9), 1e-9);
    /* each of 32 sends 7 parts inside its node and 24 over its port */
    CHECK_NEAR(coll_s(&t, COLL_ALL_TO_ALL, 1000000, 0, 1, 32),
               7e-6 + 24 * 10e-6 + 24.0 / 32 * s / 10e9, 1e-12);
    /* to the next node */
    CHECK_NEAR(coll_s(&t, COLL_SEND, 1000000, 0, 8, 4), 10e-6 + 1e6 / 10e9, 1e-12);
    CHECK_NEAR(coll_s(&t, COLL_RECV, 1000000, 0, 32, 2), 100e-6 + 1e6 / 1e9, 1e-12);
}

/* All-reduce over 8 GPUs of one node, time from published bus bandwidths (stas00/ml-engineering,
 * network/README.md; 8 x H200): 1 MiB 40, 16 MiB 220 GB/s, and 366 GB/s by a ring at 16 GiB. */
static void near_what_was_measured(void)
{
    static const struct {
        double mib, busbw, tolerance;
    } points[] = {{1, 40e9, 0.25}, {16, 220e9, 0.10}, {16384, 366e9, 0.03}};
    struct topology t;
    CHECK_EQ(topology_load(&t, "h200-8x400g"), 0);
    for (size_t i = 0; i < sizeof points / sizeof *points; i++) {
        double bytes = points[i].mib * 1048576;
        double want = 1.75 * bytes / points[i].busbw;
        double got = coll_s(&t, COLL_ALL_REDUCE, (int64_t)bytes, 0, 1, 8);
        CHECK_NEAR(got / want, 1, points[i].tolerance);
    }
    double four = 2.0 * 31 / 32 * 4294967296.0 / 364.9e9; /* 4 x 8 H200, 4 GiB */
    CHECK_NEAR(coll_s(&t, COLL_ALL_REDUCE, 4294967296, 0, 1, 32) / four, 1, 0.03);
}

/* ---- plans ---- */

static int add(struct plan *plan, int stream, int wait)
{
    struct op op = {.stream = stream, .layer = -1};
    op.kind = stream == 0 ? OP_ADD : OP_COLLECTIVE;
    op.shape.vector.n = 1;
    if (stream > 0)
        op.shape.coll = (struct shape_coll){
            .coll = {.kind = COLL_ALL_REDUCE, .dtype = DTYPE_F32, .count = 1, .peer = -1},
            .axis = plan->channel[stream - 1].axis};
    if (wait >= 0) {
        op.n_waits = 1;
        op.wait[0] = wait;
    }
    return plan_op(plan, &op);
}

/* Kernels of 1 us each; two calls on dp of 5 and 1 us, one on tp. */
static void replays(void)
{
    struct topology t = round_numbers();
    struct cost cost = cost_of(&t);
    struct cost_step step;
    struct degrees degrees = {0};
    struct layout layout;
    struct plan plan;
    double call_s[8] = {0};
    t.fact[FACT_MEMORY_RATE].value = 1e30;
    t.fact[FACT_FP32].value = 1e30;
    CHECK_EQ(layout_parse("tp=2", &degrees), 0);
    CHECK_EQ(layout_init(&layout, 2, 2, 0, &degrees), 0);
    plan_init(&plan, &layout);
    int dp = plan_channel(&plan, AXIS_DP, 0), tp = plan_channel(&plan, AXIS_TP, 0);
    int a = add(&plan, 0, -1);
    int first = add(&plan, dp, a); /* 1 .. 6 */
    add(&plan, 0, -1);
    int second = add(&plan, dp, -1); /* 6 .. 7 */
    int c = add(&plan, tp, a);       /* 1 .. 3.5 */
    add(&plan, 0, c);                /* waits from 2: 1.5 of tp */
    add(&plan, 0, second);           /* waits from 4.5: 2.5 of dp */
    add(&plan, tp, second);          /* waits too, but no kernel does */
    call_s[first] = 5e-6;
    call_s[second] = 1e-6;
    call_s[c] = 2.5e-6;
    cost_plan(&cost, &plan, call_s, &step);
    CHECK_NEAR(step.step_s, 8e-6, 1e-15);
    CHECK_NEAR(step.compute_s, 4e-6, 1e-15);
    CHECK_NEAR(step.exposed_s[AXIS_TP], 1.5e-6, 1e-15);
    CHECK_NEAR(step.exposed_s[AXIS_DP], 2.5e-6, 1e-15);
    CHECK_NEAR(step.comm_s[AXIS_DP], 6e-6, 1e-15);
    CHECK_NEAR(step.comm_s[AXIS_TP], 2.5e-6, 1e-15);
    plan_release(&plan);
}

static void make(struct plan *plan, const char *model_name, int nodes, int per_node)
{
    struct degrees degrees = {0};
    struct layout layout;
    struct policy policy;
    struct model model;
    CHECK_EQ(model_load(&model, model_name), 0);
    policy_defaults(&policy, &model);
    policy.global_batch = 64;
    policy.micro_batch = 2;
    CHECK_EQ(layout_parse("", &degrees), 0);
    CHECK_EQ(layout_init(&layout, nodes, per_node, 0, &degrees), 0);
    CHECK_EQ(transformer_plan(plan, &model, &layout, &policy), 0);
}

/* Of a real plan: no communication, the sum; with it, compute plus what is exposed; and half the
 * bandwidth adds at most what the calls take longer. */
static void steps_add_up(void)
{
    struct topology t = round_numbers();
    struct cost cost = cost_of(&t);
    struct cost_step alone, wide, narrow;
    struct plan plan;
    double sum = 0;
    make(&plan, "tiny", 1, 1);
    cost_plan(&cost, &plan, NULL, &alone);
    for (int i = 0; i < plan.n_ops; i++)
        sum += cost_op_s(&cost, &plan.ops[i]);
    CHECK_NEAR(alone.step_s, sum, 1e-12);
    CHECK_NEAR(alone.compute_s, sum, 1e-12);
    plan_release(&plan);
    make(&plan, "tiny", 4, 8);
    cost_plan(&cost, &plan, NULL, &wide);
    t.level[1].bandwidth.value /= 2;
    cost_plan(&cost, &plan, NULL, &narrow);
    CHECK_NEAR(wide.step_s, wide.compute_s + wide.exposed_s[AXIS_DP], 1e-12);
    CHECK(wide.exposed_s[AXIS_DP] > 0 && wide.exposed_s[AXIS_DP] <= wide.comm_s[AXIS_DP] + 1e-12);
    double longer = narrow.comm_s[AXIS_DP] - wide.comm_s[AXIS_DP];
    double more = narrow.exposed_s[AXIS_DP] - wide.exposed_s[AXIS_DP];
    CHECK(longer > 0 && more > 0 && more <= longer * (1 + 1e-9));
    plan_release(&plan);
}

static void missing_peaks(void)
{
    struct topology t;
    struct plan plan;
    CHECK_EQ(topology_load(&t, "laptop"), 0);
    struct cost cost = cost_of(&t);
    make(&plan, "tiny", 1, 1);
    CHECK_EQ(cost_check(&cost, &plan), 0);
    cost.tf32 = true;
    CHECK_EQ(cost_check(&cost, &plan), FAIL_USAGE);
    CHECK_HAS(fail_message(), "topology laptop gives no peak-tf32, which gemm needs");
    fail_clear();
    CHECK_EQ(cost_peak_flops(&cost, DTYPE_BF16), 0);
    plan_release(&plan);
}

int main(void)
{
    products();
    attention();
    streams();
    streams_of_each_kind();
    blocks_of_attention();
    rows_of_experts();
    every_kind_has_bytes();
    blocks_of_experts();
    one_level();
    several_levels();
    near_what_was_measured();
    replays();
    steps_add_up();
    missing_peaks();
    return test_end();
}
