#include "workloads/kernels/cuda.h"

#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "workloads/kernels/cuda_cudnn_set.h"

static bool same_shape(const struct shape_attention *a, const struct shape_attention *b)
{
    return a->batch == b->batch && a->sequence == b->sequence && a->heads == b->heads &&
           a->kv_heads == b->kv_heads && a->head == b->head && a->q_rows == b->q_rows &&
           a->kv_sequence == b->kv_sequence && a->kv_rows == b->kv_rows && a->causal == b->causal &&
           a->add_q == b->add_q;
}

static bool is_block(const struct op *op)
{
    return op->kind == OP_ATTENTION_BLOCK || op->kind == OP_ATTENTION_BLOCK_GRAD;
}

static bool is_backward(const struct op *op)
{
    return op->kind == OP_ATTENTION_GRAD || op->kind == OP_ATTENTION_BLOCK_GRAD;
}

static struct attention_entry *find(const struct cuda_cudnn *c, const struct op *op)
{
    bool backward = is_backward(op);
    if (!backward && op->kind != OP_ATTENTION && !is_block(op))
        return NULL;
    for (int i = 0; i < c->n; i++)
        if (c->entries[i].backward == backward &&
            same_shape(&c->entries[i].shape, &op->shape.attention))
            return &c->entries[i];
    return NULL;
}

/* Blocks that no graph is written for. */
static bool is_strange(const struct op *op)
{
    const struct shape_attention *s = &op->shape.attention;
    bool aligned = s->q_first % 4 == 0; /* lse, to 16 bytes */
    return is_block(op) && ((s->causal && s->q_rows != s->kv_rows) || s->add_kv || !aligned);
}

/* dq of a block, where it is added to another: bytes. */
static int64_t dq_bytes(const struct shape_attention *s)
{
    return s->add_q ? s->batch * s->q_rows * s->heads * s->head * 2 : 0;
}

/* Every op of this shape and direction must do. */
static bool may_own(const struct kernel_context *context, const struct op *op)
{
    const struct plan *plan = cuda_state(context)->plan;
    bool may = context->attention == ATTENTION_AUTO;
    for (int i = 0; may && i < plan->n_ops; i++) {
        const struct op *other = &plan->ops[i];
        if (other->kind == op->kind && same_shape(&other->shape.attention, &op->shape.attention))
            may = cuda_wgmma_runs(other);
    }
    return may;
}

static bool make_plan(const struct cuda_cudnn *c, const struct op *op, struct attention_entry *e,
                      char *why, size_t size)
{
    struct cudnn_graph graph;
    attention_graph(&graph, c->handle, e, e->ordered);
    int status = cudnn_graph_plan(&graph, c->deterministic, &e->plan);
    if (status != CUDNN_STATUS_SUCCESS)
        snprintf(why, size, "%s: %s", op_name((int)op->kind), graph.why);
    cudnn_graph_end(&graph);
    return status == CUDNN_STATUS_SUCCESS;
}

/* Whether cuDNN, or a kernel of ours in its place, runs this op; else `why` says what it said. */
static bool make_entry(const struct kernel_context *context, const struct op *op, char *why,
                       size_t size)
{
    struct cuda_cudnn *c = cuda_state(context)->cudnn;
    struct attention_entry e = {.shape = op->shape.attention, .backward = is_backward(op)};
    e.ordered = c->deterministic;
    e.may_own = may_own(context, op);
    if (is_strange(op)) {
        snprintf(why, size,
                 "%s: a mask that is no square, gradients of keys that are added, or rows from the "
                 "middle of 16 bytes",
                 op_name((int)op->kind));
        return false;
    }
    /* Its sums have an order as it is; of heads of 128 cuDNN's engine with one is faster. */
    e.own = c->deterministic && e.backward && e.may_own && e.shape.head == 64;
    if (!e.own && !make_plan(c, op, &e, why, size))
        return false;
    cudnn_attention_constants(&e.shape, e.constants);
    c->entries = must_grow(c->entries, (size_t)c->n + 1, sizeof *c->entries);
    c->entries[c->n++] = e;
    return true;
}

void cudnn_size_scratch(struct cuda_cudnn *c)
{
    c->sum_bytes = c->dq_bytes = 0;
    for (int i = 0; i < c->n; i++) {
        const struct attention_entry *e = &c->entries[i];
        int64_t sum = attention_sum_bytes(e), dq = e->backward && !e->own ? dq_bytes(&e->shape) : 0;
        c->sum_bytes = sum > c->sum_bytes ? sum : c->sum_bytes;
        c->dq_bytes = dq > c->dq_bytes ? dq : c->dq_bytes;
    }
}

int cuda_cudnn_open(struct kernel_context *context, bool *usable, char *why, size_t size)
{
    struct cuda_state *state = cuda_state(context);
    struct cuda_cudnn *c = state->cudnn = must_alloc(1, sizeof *c);
    c->deterministic = context->deterministic;
    *usable = false;
    cudnnStatus_t status = cudnnCreate(&c->handle);
    if (status != CUDNN_STATUS_SUCCESS) {
        snprintf(why, size, "no handle: %s", cudnnGetErrorString(status));
        return 0;
    }
    for (int i = 0; i < state->plan->n_ops; i++) {
        const struct op *op = &state->plan->ops[i];
        if ((op->kind != OP_ATTENTION && !is_backward(op) && !is_block(op)) || find(c, op))
            continue;
        if (op->dtype != DTYPE_BF16) {
            snprintf(why, size, "its attention takes bf16, not %s", dtype_name((int)op->dtype));
            return 0;
        }
        if (!make_entry(context, op, why, size))
            return 0;
    }
    cudnn_size_scratch(c);
    *usable = true;
    return 0;
}

void cuda_cudnn_close(struct cuda_state *state)
{
    struct cuda_cudnn *c = state->cudnn;
    if (c == NULL)
        return;
    for (int i = 0; i < c->n; i++)
        cudnn_plan_release(&c->entries[i].plan);
    for (int i = 0; i < c->n_ops * BINDINGS; i++)
        cudnn_pack_release(c->bindings[i].pack);
    if (c->handle)
        cudnnDestroy(c->handle);
    free(c->bindings);
    free(c->entries);
    free(c);
    state->cudnn = NULL;
}

void cuda_cudnn_describe(const struct cuda_state *state, char *text, size_t size)
{
    const struct cuda_cudnn *c = state->cudnn;
    size_t at = (size_t)snprintf(text, size, "attention cuDNN %zu%s, engines", cudnnGetVersion(),
                                 c->deterministic ? ", fixed order" : "");
    for (int i = 0; i < c->n && at < size; i++) {
        const struct attention_entry *e = &c->entries[i];
        at += (size_t)snprintf(text + at, size - at, e->backward ? " backward " : " forward ");
        if (at < size && e->own)
            at += (size_t)snprintf(text + at, size - at, "own (wgmma)");
        else if (at < size)
            at += (size_t)snprintf(text + at, size - at, "%d", e->plan.engine.index);
    }
}

int64_t cuda_cudnn_scratch(const struct cuda_state *state)
{
    const struct cuda_cudnn *c = state->cudnn;
    int64_t workspace = 0;
    for (int i = 0; i < c->n; i++) {
        const struct attention_entry *e = &c->entries[i];
        int64_t bytes = !e->own       ? e->plan.workspace_bytes
                        : e->backward ? cuda_wgmma_scratch(&e->shape)
                                      : 0;
        workspace = bytes > workspace ? bytes : workspace;
    }
    return c->sum_bytes + (c->dq_bytes + 255) / 256 * 256 + workspace;
}

/* ---- tensors of a run ---- */

static void add(struct pointers *p, int64_t uid, void *at)
{
    p->uid[p->n] = uid;
    p->at[p->n++] = at;
}

/* q, k, v or their gradients, in one matrix of rows. */
static void add_heads(struct pointers *p, const struct shape_attention *s, unsigned char *qkv,
                      int64_t q, int64_t k, int64_t v)
{
    int64_t element = (int64_t)dtype_size(DTYPE_BF16);
    add(p, q, qkv);
    add(p, k, qkv + s->heads * s->head * element);
    add(p, v, qkv + (s->heads + s->kv_heads) * s->head * element);
}

/* Rows of a block: q_first of q, kv_first of keys that lie apart. */
static struct pointers block_pointers(const struct op *op, const struct kernel_context *context,
                                      struct attention_entry *e, bool with_sum)
{
    const struct shape_attention *s = &op->shape.attention;
    const struct cuda_state *state = cuda_state(context);
    struct pointers p = {0};
    int64_t bf16 = (int64_t)dtype_size(DTYPE_BF16), kv = (int64_t)s->kv_heads * s->head * bf16;
    int64_t out = s->q_first * s->heads * s->head * bf16;
    int64_t q = s->q_first * (s->heads + 2 * s->kv_heads) * s->head * bf16;
    int64_t key = s->kv_first * 2 * kv;
    int first = e->backward ? 1 : 0;
    unsigned char *keys = tensor_at(context, op->t[first + 1]);
    add(&p, ATTENTION_Q, (unsigned char *)tensor_at(context, op->t[first]) + q);
    add(&p, ATTENTION_K, keys + key);
    add(&p, ATTENTION_V, keys + key + kv);
    add(&p, ATTENTION_OUT, (unsigned char *)tensor_at(context, op->t[first + 2]) + out);
    add(&p, ATTENTION_LSE, (float *)tensor_at(context, op->t[first + 3]) + s->q_first);
    if (e->backward) {
        unsigned char *dq = (unsigned char *)tensor_at(context, op->t[5]) + q;
        unsigned char *dkv = (unsigned char *)tensor_at(context, op->t[6]) + key;
        add(&p, ATTENTION_DOUT, (unsigned char *)tensor_at(context, op->t[0]) + out);
        add(&p, ATTENTION_DQ, s->add_q ? state->scratch + state->cudnn->sum_bytes : dq);
        add(&p, ATTENTION_DK, dkv);
        add(&p, ATTENTION_DV, dkv + kv);
        add(&p, ATTENTION_ONE, &e->constants[1]);
        if (with_sum)
            add(&p, ATTENTION_DQ_SUM, state->scratch);
    }
    add(&p, ATTENTION_SCALE, &e->constants[0]);
    if (s->causal)
        add(&p, ATTENTION_LEAST, &e->constants[2]);
    return p;
}

static struct pointers pointers_of(const struct op *op, const struct kernel_context *context,
                                   struct attention_entry *e, bool with_sum)
{
    const struct shape_attention *s = &op->shape.attention;
    struct pointers p = {0};
    bool backward = e->backward;
    add_heads(&p, s, tensor_at(context, op->t[backward ? 1 : 0]), ATTENTION_Q, ATTENTION_K,
              ATTENTION_V);
    add(&p, ATTENTION_OUT, tensor_at(context, op->t[backward ? 2 : 1]));
    add(&p, ATTENTION_LSE, tensor_at(context, op->t[backward ? 3 : 2]));
    if (backward) {
        add(&p, ATTENTION_DOUT, tensor_at(context, op->t[0]));
        add_heads(&p, s, tensor_at(context, op->t[4]), ATTENTION_DQ, ATTENTION_DK, ATTENTION_DV);
        add(&p, ATTENTION_ONE, &e->constants[1]);
        if (with_sum)
            add(&p, ATTENTION_DQ_SUM, cuda_state(context)->scratch);
    }
    add(&p, ATTENTION_SCALE, &e->constants[0]);
    add(&p, ATTENTION_LEAST, &e->constants[2]);
    return p;
}

static bool same_pointers(const struct pointers *a, const struct pointers *b)
{
    return a->n == b->n && memcmp(a->at, b->at, (size_t)a->n * sizeof a->at[0]) == 0;
}

/* The pack of an op for where its tensors are now, made when it is new: a third place takes that of
 * the second. *status is cuDNN's. */
static void *bind(struct cuda_cudnn *c, const struct op *op, const struct kernel_context *context,
                  struct attention_entry *e, int *status)
{
    const struct cuda_state *state = cuda_state(context);
    struct pointers p =
        (is_block(op) ? block_pointers : pointers_of)(op, context, e, e->backward && !e->ordered);
    struct binding *b = &c->bindings[(op - state->plan->ops) * BINDINGS], *end = b + BINDINGS - 1;
    *status = CUDNN_STATUS_SUCCESS;
    while (b->pack != NULL && b < end && !same_pointers(&b->pointers, &p))
        b++;
    if (b->pack != NULL && same_pointers(&b->pointers, &p))
        return b->pack;
    cudnn_pack_release(b->pack);
    *b = (struct binding){.pointers = p};
    *status = cudnn_pack_make(&b->pack, p.n, p.uid, p.at,
                              state->scratch + c->sum_bytes + (c->dq_bytes + 255) / 256 * 256);
    return b->pack;
}

int cuda_cudnn_bind(struct kernel_context *context)
{
    const struct plan *plan = cuda_state(context)->plan;
    struct cuda_cudnn *c = cuda_state(context)->cudnn;
    int status = CUDNN_STATUS_SUCCESS;
    if (c == NULL)
        return 0;
    c->n_ops = plan->n_ops;
    c->bindings = must_alloc((size_t)c->n_ops * BINDINGS, sizeof *c->bindings);
    for (int i = 0; i < plan->n_ops && status == CUDNN_STATUS_SUCCESS; i++) {
        struct attention_entry *e = find(c, &plan->ops[i]);
        if (e != NULL && !e->own)
            bind(c, &plan->ops[i], context, e, &status);
    }
    if (status == CUDNN_STATUS_SUCCESS)
        return 0;
    return fail(FAIL_CUDA, "attention: cuDNN does not take the tensors: %s",
                cudnnGetErrorString((cudnnStatus_t)status));
}

void cuda_cudnn_run(const struct op *op, struct kernel_context *context, void *native)
{
    struct cuda_state *state = cuda_state(context);
    struct cuda_cudnn *c = state->cudnn;
    struct attention_entry *e = find(c, op);
    int status;

    if (e == NULL || op < state->plan->ops || op >= state->plan->ops + c->n_ops)
        BUG("attention that the plan of open() does not have");
    if (e->own) {
        (e->backward ? cuda_wgmma_backward : cuda_wgmma_forward)(op, context, native);
        return;
    }
    if (c->stream != native && cudnnSetStream(c->handle, native) != CUDNN_STATUS_SUCCESS)
        die(FAIL_CUDA, "attention: cuDNN does not take the stream");
    c->stream = native;
    void *pack = bind(c, op, context, e, &status);
    if (attention_sum_bytes(e) > 0)
        cuda_must((int)cudaMemsetAsync(state->scratch, 0, (size_t)attention_sum_bytes(e), native),
                  "attention-grad");
    if (status == CUDNN_STATUS_SUCCESS)
        status = cudnn_plan_run(&e->plan, c->handle, pack);
    if (status != CUDNN_STATUS_SUCCESS)
        die(FAIL_CUDA, "attention: cuDNN: %s", cudnnGetErrorString((cudnnStatus_t)status));
    if (is_block(op) && e->backward && op->shape.attention.add_q)
        cuda_add_queries(op, context, state->scratch + c->sum_bytes, native);
}
