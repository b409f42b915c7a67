#include "workloads/cost.h"

#include <math.h>
#include <string.h>

#include "base/err.h"

/* ---- what an op does ---- */

static double size_of(const struct op *op)
{
    return (double)dtype_size((int)op->dtype);
}

static void gemm_work(const struct op *op, struct cost_work *out)
{
    const struct shape_gemm *g = &op->shape.gemm;
    double m = (double)g->m, n = (double)g->n, k = (double)g->k;
    double c = g->wide ? 4.0 : size_of(op);
    double bias = op->t[3].buffer != BUFFER_NONE ? n : 0.0;
    out->product_flops = 2.0 * m * n * k;
    out->bytes = size_of(op) * (m * k + k * n + bias) + c * m * n * (g->beta != 0.0f ? 2.0 : 1.0);
}

/* q and out once forward; backward reads q, k, v, out and dout, and writes dq, dk, dv. */
static void attention_work(const struct op *op, struct cost_work *out)
{
    const struct shape_attention *a = &op->shape.attention;
    bool backward = op->kind == OP_ATTENTION_GRAD;
    double rows = (double)a->batch * (double)a->sequence;
    double heads = (double)a->heads * (double)a->head;
    double qkv = rows * ((double)a->heads + 2.0 * (double)a->kv_heads) * (double)a->head;
    double pairs = rows * (double)a->sequence / 2.0;
    out->attention_flops = (backward ? 5.0 : 2.0) * 2.0 * pairs * heads;
    out->bytes = size_of(op) * (backward ? 2.0 * qkv + 2.0 * rows * heads : qkv + rows * heads) +
                 4.0 * rows * (double)a->heads;
}

/* Each matrix that has rows is read once, its gradient read and written. */
static void grouped_work(const struct op *op, struct cost_work *out)
{
    const struct shape_grouped *g = &op->shape.grouped;
    double rows = 0, matrices = 0, n = (double)g->n, k = (double)g->k;
    for (int i = 0; i < g->blocks; i++) {
        rows += (double)g->rows[i];
        matrices += g->rows[i] > 0;
    }
    double each = g->form == GROUPED_WEIGHT ? 8.0 : size_of(op);
    out->product_flops = 2.0 * rows * n * k;
    out->bytes = size_of(op) * rows * (n + k) + each * matrices * n * k;
}

/* Rows that are moved, and for each slot its place and gate. */
static void permute_work(const struct op *op, struct cost_work *out)
{
    const struct shape_permute *s = &op->shape.permute;
    double tokens = (double)s->rows * (double)s->width, sent = (double)s->sent * (double)s->width;
    double slots = (double)s->rows * s->top_k;
    bool grad = op->kind == OP_COMBINE_GRAD;
    out->other_flops = op->kind == OP_PERMUTE ? 0 : (grad ? 3.0 : 2.0) * sent;
    out->bytes = size_of(op) * (tokens * (s->accumulate ? 2.0 : 1.0) + sent * (grad ? 2.0 : 1.0)) +
                 8.0 * slots;
}

static void route_work(const struct op *op, struct cost_work *out)
{
    const struct shape_route *s = &op->shape.route;
    double logits = (double)s->all_rows * s->experts;
    out->other_flops = 8.0 * logits;
    out->bytes = 4.0 * logits * (op->kind == OP_ROUTE ? 1.0 : 2.0) +
                 12.0 * (double)s->rows * s->top_k + 4.0 * (double)s->sent;
}

/* The same of the queries and keys of a block; what is added to is read too. */
static void block_work(const struct op *op, struct cost_work *out)
{
    const struct shape_attention *a = &op->shape.attention;
    bool backward = op->kind == OP_ATTENTION_BLOCK_GRAD;
    double heads = (double)a->heads * (double)a->head;
    double q = (double)a->batch * (double)a->q_rows * heads;
    double kv = (double)a->batch * (double)a->kv_rows * 2.0 * (double)a->kv_heads * (double)a->head;
    double bytes = kv + 2.0 * q;
    if (backward)
        bytes = 3.0 * q + kv + (a->add_q ? 2.0 : 1.0) * q + (a->add_kv ? 2.0 : 1.0) * kv;
    out->attention_flops = (backward ? 5.0 : 2.0) * 2.0 * plan_block_pairs(a) * heads;
    out->bytes = size_of(op) * bytes + 4.0 * q / (double)a->head;
}

/* Per element: how often it is read or written in the type of the op and in fp32, and its flops. */
struct stream {
    double typed, wide, flops;
};

static struct stream stream_of(const struct op *op)
{
    const bool third = op->t[2].buffer != BUFFER_NONE;
    switch ((int)op->kind) {
    case OP_ZERO:
        return (struct stream){0, 1, 0};
    case OP_EMBED:
        return (struct stream){third ? 3 : 2, 0, 1};
    case OP_EMBED_GRAD:
        return (struct stream){1, 2, 1};
    case OP_NORM:
        return (struct stream){op->t[6].buffer != BUFFER_NONE ? 4 : 2, 0, 8};
    case OP_NORM_GRAD:
        return (struct stream){op->shape.rows.accumulate ? 4 : 3, 0, 14};
    case OP_BIAS_GRAD:
    case OP_SUMSQ:
    case OP_CLASS_STATS:
        return (struct stream){1, 0, 4};
    case OP_ROTARY:
        return (struct stream){2, 0, 6};
    case OP_GELU:
        return (struct stream){2, 0, 14};
    case OP_GELU_GRAD:
        return (struct stream){3, 0, 20};
    case OP_SWIGLU:
        return (struct stream){3, 0, 8};
    case OP_SWIGLU_GRAD:
        return (struct stream){5, 0, 14};
    case OP_ADD:
        return (struct stream){3, 0, 1};
    case OP_MOVE:
        return (struct stream){2, 0, 0};
    case OP_ATTENTION_MERGE:
        return (struct stream){3, 0, 3};
    case OP_CROSS_ENTROPY:
        return (struct stream){2, 0, 6};
    case OP_ADAMW: /* master, m and v are read and written */
        return (struct stream){op->t[5].buffer != BUFFER_NONE ? 1 : 0, 6, 16};
    default:
        return (struct stream){0, 0, 0};
    }
}

static double elements_of(const struct op *op)
{
    const struct shape_attention *a = &op->shape.attention;
    switch ((int)op->kind) {
    case OP_ZERO:
    case OP_GELU:
    case OP_GELU_GRAD:
    case OP_ADD:
    case OP_SUMSQ:
        return (double)op->shape.vector.n;
    case OP_ADAMW:
        return (double)op->shape.optimizer.n;
    case OP_ROTARY:
        return (double)a->batch * (double)a->sequence * (double)(a->heads + a->kv_heads) *
               (double)a->head;
    case OP_ATTENTION_MERGE:
        return (double)a->batch * (double)a->q_rows * (double)a->heads * (double)a->head;
    case OP_MOVE:
        return (double)op->shape.move.n[0] * (double)op->shape.move.n[1] *
               (double)op->shape.move.width;
    case OP_SWIGLU:
    case OP_SWIGLU_GRAD:
        return (double)rows_now(&op->shape.rows) * (double)op->shape.rows.width;
    default:
        return (double)op->shape.rows.rows * (double)op->shape.rows.width;
    }
}

/* What does not come per element: ids, statistics of rows, gradients of positions. */
static double other_bytes(const struct op *op)
{
    const struct shape_rows *r = &op->shape.rows;
    double rows = (double)r->rows;
    switch ((int)op->kind) {
    case OP_EMBED:
        return 4.0 * rows;
    case OP_EMBED_GRAD: {
        double positions = r->sequence < r->rows ? (double)r->sequence : rows;
        return 4.0 * rows +
               (op->t[3].buffer != BUFFER_NONE ? 8.0 * positions * (double)r->width : 0);
    }
    case OP_NORM:
    case OP_NORM_GRAD:
        return (r->rms ? 4.0 : 8.0) * rows;
    case OP_CROSS_ENTROPY:
        return 5.0 * rows; /* target and mask */
    case OP_CLASS_STATS:
        return 16.0 * rows;
    case OP_ADAMW:
        return (double)op->shape.optimizer.n *
               (double)dtype_size((int)op->shape.optimizer.gradient);
    default:
        return 0;
    }
}

void cost_work(const struct op *op, struct cost_work *out)
{
    memset(out, 0, sizeof *out);
    if (op->kind == OP_GEMM) {
        gemm_work(op, out);
    } else if (op->kind == OP_ATTENTION || op->kind == OP_ATTENTION_GRAD) {
        attention_work(op, out);
    } else if (op->kind == OP_ATTENTION_BLOCK || op->kind == OP_ATTENTION_BLOCK_GRAD) {
        block_work(op, out);
    } else if (op->kind == OP_GROUPED_GEMM) {
        grouped_work(op, out);
    } else if (op->kind == OP_PERMUTE || op->kind == OP_COMBINE || op->kind == OP_COMBINE_GRAD) {
        permute_work(op, out);
    } else if (op->kind == OP_ROUTE || op->kind == OP_ROUTE_GRAD) {
        route_work(op, out);
    } else if (op->kind == OP_INPUT) {
        out->bytes = 9.0 * (double)op->shape.input.samples *
                     (double)cut_rows(&op->shape.input.cut, op->shape.input.sequence);
    } else if (op->kind == OP_CAST) {
        out->bytes = (double)op->shape.cast.n * (double)(dtype_size((int)op->shape.cast.from) +
                                                         dtype_size((int)op->shape.cast.to));
    } else if (op->kind != OP_CLIP && op->kind != OP_COUNTS && op->kind != OP_COLLECTIVE) {
        struct stream per = stream_of(op);
        double n = elements_of(op);
        out->other_flops = per.flops * n;
        out->bytes = n * (per.typed * size_of(op) + per.wide * 4.0) + other_bytes(op);
    }
}

/* ---- how long it takes ---- */

static enum fact_kind peak_fact(const struct cost *cost, enum dtype dtype)
{
    if (dtype == DTYPE_BF16)
        return FACT_BF16;
    return cost->tf32 ? FACT_TF32 : FACT_FP32;
}

double cost_peak_flops(const struct cost *cost, enum dtype dtype)
{
    return cost->topology->fact[peak_fact(cost, dtype)].value;
}

int cost_check(const struct cost *cost, const struct plan *plan)
{
    for (int i = 0; i < plan->n_ops; i++) {
        const struct op *op = &plan->ops[i];
        struct cost_work work;
        cost_work(op, &work);
        if (work.product_flops + work.attention_flops > 0 &&
            !(cost_peak_flops(cost, op->dtype) > 0))
            return fail(FAIL_USAGE,
                        "topology %s gives no %s, which %s needs: choose another --dtype, or a "
                        "topology that has it",
                        cost->topology->name, fact_key((int)peak_fact(cost, op->dtype)),
                        op_name((int)op->kind));
    }
    return 0;
}

double cost_op_s(const struct cost *cost, const struct op *op)
{
    const struct fact *fact = cost->topology->fact;
    struct cost_work work;
    cost_work(op, &work);
    double launch = fact[FACT_LAUNCH].value;
    if (op->kind == OP_INPUT)
        return launch + work.bytes / fact[FACT_TO_DEVICE].value;
    double peak = cost_peak_flops(cost, op->dtype);
    double arithmetic = work.other_flops / fact[FACT_FP32].value;
    if (work.product_flops > 0)
        arithmetic += work.product_flops / (peak * fact[FACT_GEMM_SHARE].value);
    if (work.attention_flops > 0)
        arithmetic += work.attention_flops / (peak * fact[FACT_ATTENTION_SHARE].value);
    double memory = work.bytes / (fact[FACT_MEMORY_RATE].value * fact[FACT_MEMORY_SHARE].value);
    return launch + fmax(arithmetic, memory);
}

/* ---- a step ---- */

struct replay {
    const struct cost *cost;
    const struct plan *plan;
    const double *coll_s;
    double *end;                      /* [n_ops] */
    double stream[PLAN_CHANNELS + 2]; /* when it is free */
};

static double duration(const struct replay *r, int index)
{
    const struct op *op = &r->plan->ops[index];
    if (op->kind != OP_COLLECTIVE && r->cost->op_s != NULL && r->cost->op_s[index] > 0)
        return r->cost->op_s[index];
    if (op->kind != OP_COLLECTIVE)
        return cost_op_s(r->cost, op);
    if (r->coll_s != NULL)
        return r->coll_s[index];
    return cost_coll_s(r->cost, &op->shape.coll.coll, &r->plan->layout.group[op->shape.coll.axis]);
}

/* The op that ends the wait, -1: none is later than the stream. */
static int last_wait(const struct replay *r, const struct op *op)
{
    double until = r->stream[op->stream];
    int last = -1;
    for (int i = 0; i < op->n_waits; i++)
        if (r->end[op->wait[i]] > until) {
            until = r->end[op->wait[i]];
            last = op->wait[i];
        }
    return last;
}

static void replay_op(struct replay *r, int index, struct cost_step *out)
{
    const struct op *op = &r->plan->ops[index];
    double begin = r->stream[op->stream], takes = duration(r, index);
    int wait = last_wait(r, op);
    if (wait >= 0) {
        const struct op *awaited = &r->plan->ops[wait];
        if (op->stream == 0 && awaited->kind == OP_COLLECTIVE)
            out->exposed_s[awaited->shape.coll.axis] += r->end[wait] - begin;
        begin = r->end[wait];
    }
    r->end[index] = r->stream[op->stream] = begin + takes;
    if (op->kind == OP_COLLECTIVE)
        out->comm_s[op->shape.coll.axis] += takes;
    else if (op->stream == 0)
        out->compute_s += takes;
}

void cost_plan(const struct cost *cost, const struct plan *plan, const double *coll_s,
               struct cost_step *out)
{
    struct replay r = {.cost = cost, .plan = plan, .coll_s = coll_s};
    memset(out, 0, sizeof *out);
    r.end = must_alloc((size_t)plan->n_ops + 1, sizeof *r.end);
    for (int i = 0; i < plan->n_ops; i++)
        replay_op(&r, i, out);
    out->step_s = r.stream[0];
    free(r.end);
}
