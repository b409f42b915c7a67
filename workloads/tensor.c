#include "workloads/build.h"

#include <stdio.h>

#include "base/err.h"
#include "base/units.h"

static const struct tensor no_tensor;

enum { GATHER, REDUCE }; /* directions of the tp axis */

/* ---- calls ---- */

/* Chunk `chunk` of [L][H], gathered to its place in [R][H]. */
static int gather_rows(struct build *b, struct tensor x, struct tensor to, int chunk, int after)
{
    int64_t local = b->local_rows / b->policy->tp_chunks, size = build_element(b);
    struct build_call call = {.kind = COLL_ALL_GATHER,
                              .axis = AXIS_TP,
                              .direction = GATHER,
                              .dtype = b->plan->dtype,
                              .count = local * b->h,
                              .phase = b->phase,
                              .send = build_at(x, chunk * local * b->h, size),
                              .receive = build_at(to, chunk * local * b->tp * b->h, size)};
    int op = build_collective(b, &call, after);
    if (b->pipe.arrived >= 0 && x.buffer == b->dx.buffer && x.offset == b->dx.offset)
        plan_wait(b->plan, op, b->pipe.arrived); /* no compute op may have waited for it yet */
    return op;
}

/* Chunk `chunk` of partial sums [R][H]: to [L][H] under sequence parallel, else summed in place. */
static int reduce_rows(struct build *b, struct tensor part, struct tensor to, int chunk)
{
    int64_t local = b->local_rows / b->policy->tp_chunks, size = build_element(b);
    int64_t rows = b->rows / b->policy->tp_chunks;
    struct build_call call = {.kind = b->sequence_parallel ? COLL_REDUCE_SCATTER : COLL_ALL_REDUCE,
                              .axis = AXIS_TP,
                              .direction = REDUCE,
                              .dtype = b->plan->dtype,
                              .count = local * b->h, /* without sequence parallel L is R */
                              .phase = b->phase,
                              .send = build_at(part, chunk * rows * b->h, size),
                              .receive = build_at(to, chunk * local * b->h, size)};
    return build_collective(b, &call, b->last);
}

struct tensor tensor_part(const struct build *b, struct tensor to)
{
    return b->sequence_parallel ? b->part : to;
}

void tensor_reduce(struct build *b, struct tensor to)
{
    for (int chunk = 0; b->tp > 1 && chunk < b->policy->tp_chunks; chunk++)
        build_await(b, reduce_rows(b, tensor_part(b, to), to, chunk));
}

struct tensor tensor_gather(struct build *b, struct tensor x)
{
    if (!b->sequence_parallel)
        return x;
    int after = b->last;
    for (int chunk = 0; chunk < b->policy->tp_chunks; chunk++)
        build_await(b, gather_rows(b, x, b->gathered, chunk, after));
    return b->gathered;
}

/* Start gathering x; without overlap the compute stream waits here, else at op[chunk]. */
static struct tensor start_gather_to(struct build *b, struct tensor x, struct tensor to, int *op)
{
    int after = b->last;
    for (int chunk = 0; chunk < b->policy->tp_chunks; chunk++) {
        op[chunk] = b->sequence_parallel ? gather_rows(b, x, to, chunk, after) : -1;
        if (!b->policy->overlap_tensor)
            build_await(b, op[chunk]);
    }
    return b->sequence_parallel ? to : x;
}

static struct tensor start_gather(struct build *b, struct tensor x, int *op)
{
    return start_gather_to(b, x, b->gathered, op);
}

/* dy for this product and, `later`, for dW: whole rows are gathered where they are kept. */
static struct tensor start_keeping(struct build *b, struct tensor dy, int *op)
{
    if (!b->later)
        return start_gather(b, dy, op);
    if (!b->sequence_parallel)
        build_cast(b, dy, b->plan->dtype, b->keep, b->plan->dtype, b->local_rows * b->h);
    return start_gather_to(b, dy, b->keep, op);
}

static int last_chunk(const struct build *b)
{
    return b->policy->tp_chunks - 1;
}

/* ---- products ---- */

/* The replicated rows of k and v that lie behind the rows of q, -1: none. */
static int replicated_behind(const struct build *b, int w)
{
    bool is_query = b->layer >= 0 && w == build_layer_tensor(b, ATTN_QKV_W);
    return is_query ? build_layer_tensor(b, ATTN_KV_W) : -1;
}

int64_t build_linear_rows(const struct build *b, int w)
{
    int behind = replicated_behind(b, w);
    return b->plan->tensors[w].rows + (behind < 0 ? 0 : b->plan->tensors[behind].rows);
}

/* y = x W^T (forward) or x W (backward) of one chunk of the R rows. */
static void product_rows(struct build *b, struct tensor x, int w, bool forward, struct tensor y,
                         int64_t width_valid, struct tensor bias, int chunk)
{
    const struct plan_tensor *t = &b->plan->tensors[w];
    int64_t rows = b->rows / b->policy->tp_chunks, size = build_element(b);
    int64_t n = build_linear_rows(b, w);
    struct shape_gemm shape = forward ? build_gemm_shape(rows, n, t->columns, 0)
                                      : build_gemm_shape(rows, t->columns, n, 0);
    if (forward)
        shape.n_valid = width_valid;
    else
        shape.k_valid = width_valid;
    build_gemm(b, build_at(x, chunk * rows * shape.k, size), false, build_weight(b, w), forward,
               build_at(y, chunk * rows * shape.n, size), shape, bias);
}

/* dW += dy^T x over all R rows. */
static void weight_grad(struct build *b, struct tensor dy, struct tensor x, int w,
                        int64_t rows_valid)
{
    struct shape_gemm shape =
        build_gemm_shape(build_linear_rows(b, w), b->plan->tensors[w].columns, b->rows, 1);
    shape.m_valid = rows_valid;
    shape.wide = b->plan->dtype == DTYPE_BF16;
    build_gemm(b, dy, true, x, false, build_gradient(b, w), shape, no_tensor);
    build_finished(b, w, b->last);
    build_finished(b, replicated_behind(b, w), b->last);
}

/* ---- column-parallel ---- */

void tensor_column(struct build *b, struct tensor x, int w, int bias, struct tensor y,
                   int64_t n_valid)
{
    int gathered[TENSOR_CHUNKS];
    x = start_gather(b, x, gathered);
    for (int chunk = 0; chunk < b->policy->tp_chunks; chunk++) {
        build_await(b, gathered[chunk]);
        product_rows(b, x, w, true, y, n_valid, build_weight(b, bias), chunk);
    }
}

static void column_weights_grad(struct build *b, struct tensor dy, struct tensor x, int w, int bias,
                                int64_t n_valid)
{
    if (!b->later)
        weight_grad(b, dy, x, w, n_valid);
    if (bias >= 0)
        build_finished(b, bias, build_bias_grad(b, dy, bias, b->rows, b->plan->tensors[bias].rows));
}

/* Under tp dx first, so that its reduction runs beside the product that makes dW; x is gathered beside
 * the product that makes dx. Else dW first: its reduction begins earlier, and dx may lie where x was. */
void tensor_column_grad(struct build *b, struct tensor dy, struct tensor x, int w, int bias,
                        struct tensor dx, int64_t n_valid)
{
    int gathered[TENSOR_CHUNKS], reduced[TENSOR_CHUNKS];
    bool is_gathered = x.buffer == BUFFER_NONE;
    struct tensor part = tensor_part(b, dx);
    for (int chunk = 0; chunk <= last_chunk(b); chunk++)
        gathered[chunk] = reduced[chunk] = -1;
    if (is_gathered)
        x = b->gathered;
    else if (!b->later)
        x = start_gather(b, x, gathered);
    if (b->tp == 1)
        column_weights_grad(b, dy, x, w, bias, n_valid);
    for (int chunk = 0; chunk <= last_chunk(b); chunk++) {
        product_rows(b, dy, w, false, part, n_valid, no_tensor, chunk);
        reduced[chunk] = b->tp > 1 ? reduce_rows(b, part, dx, chunk) : -1;
        if (!b->policy->overlap_tensor)
            build_await(b, reduced[chunk]);
    }
    build_await(b, gathered[last_chunk(b)]);
    if (b->tp > 1)
        column_weights_grad(b, dy, x, w, bias, n_valid);
    build_await(b, reduced[last_chunk(b)]);
}

/* ---- row-parallel ---- */

/* The bias goes into the partial sum of one rank. */
void tensor_row(struct build *b, struct tensor x, int w, int bias, struct tensor y)
{
    struct tensor part = tensor_part(b, y);
    struct tensor once = b->tp_me == 0 ? build_weight(b, bias) : no_tensor;
    int reduced = -1;
    for (int chunk = 0; chunk < b->policy->tp_chunks; chunk++) {
        product_rows(b, x, w, true, part, b->plan->tensors[w].rows, once, chunk);
        reduced = b->tp > 1 ? reduce_rows(b, part, y, chunk) : -1;
        if (!b->policy->overlap_tensor)
            build_await(b, reduced);
    }
    build_await(b, reduced);
}

void tensor_row_grad(struct build *b, struct tensor dy, struct tensor x, int w, int bias,
                     struct tensor dx)
{
    int gathered[TENSOR_CHUNKS];
    int64_t width = b->plan->tensors[w].rows;
    struct tensor all = start_keeping(b, dy, gathered);
    if (bias >= 0)
        build_finished(b, bias, build_bias_grad(b, dy, bias, b->local_rows, width));
    for (int chunk = 0; chunk < b->policy->tp_chunks; chunk++) {
        build_await(b, gathered[chunk]);
        product_rows(b, all, w, false, dx, width, no_tensor, chunk);
    }
    if (!b->later)
        weight_grad(b, all, x, w, width);
}

/* ---- dW alone ---- */

void tensor_column_weight(struct build *b, struct tensor dy, struct tensor x, int w,
                          int64_t n_valid)
{
    int gathered[TENSOR_CHUNKS];
    x = start_gather(b, x, gathered);
    for (int chunk = 0; chunk < b->policy->tp_chunks; chunk++)
        build_await(b, gathered[chunk]);
    weight_grad(b, dy, x, w, n_valid);
}

void tensor_row_weight(struct build *b, struct tensor dy, struct tensor x, int w)
{
    weight_grad(b, dy, x, w, b->plan->tensors[w].rows);
}

/* ---- gradients of what is held whole ---- */

void tensor_small(struct build *b, int first, int last)
{
    if (!b->sequence_parallel || !b->hand_over)
        return;
    const struct plan_tensor *end = &b->plan->tensors[last];
    int64_t count = end->offset + build_tensor_count(end) - b->plan->tensors[first].offset;
    struct tensor at = build_gradient(b, first);
    struct build_call call = {.kind = COLL_ALL_REDUCE,
                              .axis = AXIS_TP,
                              .direction = REDUCE,
                              .dtype = DTYPE_F32,
                              .count = count,
                              .phase = PHASE_REDUCE,
                              .send = at,
                              .receive = at};
    int op = build_collective(b, &call, b->last);
    for (int t = first; t <= last; t++)
        build_finished(b, t, op);
}

/* Own rows of k and v into, or out of, their place among those of all ranks. */
static void move_own(struct build *b, int kv, bool in)
{
    const struct plan_tensor *t = &b->plan->tensors[kv];
    int64_t part = t->span[0].count * t->columns, q = b->model->heads * b->model->head;
    struct tensor gradient = build_gradient(b, kv);
    for (int i = 0; i < 2; i++) {
        struct tensor own = build_at(gradient, i * part, sizeof(float));
        struct tensor all = build_at(b->kv_sum, (t->span[i].first - q) * t->columns, sizeof(float));
        struct op op = build_op(b, OP_ADD);
        op.dtype = DTYPE_F32;
        op.t[0] = op.t[2] = in ? all : own;
        op.t[1] = in ? own : all;
        op.shape.vector.n = part;
        build_add(b, &op);
    }
}

void tensor_replicated(struct build *b)
{
    int kv = build_layer_tensor(b, ATTN_KV_W);
    if (kv < 0 || !b->hand_over)
        return;
    int64_t all = 2 * b->model->kv_heads * b->model->head * b->h;
    struct build_call call = {.kind = COLL_ALL_REDUCE,
                              .axis = AXIS_TP,
                              .direction = REDUCE,
                              .dtype = DTYPE_F32,
                              .count = all,
                              .phase = PHASE_REDUCE,
                              .send = b->kv_sum,
                              .receive = b->kv_sum};
    build_vector_op(b, OP_ZERO, b->kv_sum, no_tensor, no_tensor, all);
    move_own(b, kv, true);
    build_await(b, build_collective(b, &call, b->last));
    build_vector_op(b, OP_ZERO, build_gradient(b, kv), no_tensor, no_tensor,
                    build_tensor_count(&b->plan->tensors[kv]));
    move_own(b, kv, false);
    build_finished(b, kv, b->last);
}

/* ---- refusals ---- */

/* The degrees nearest to `degree` on both sides that divide n. */
static void nearest_degrees(int64_t n, int degree, char *text, size_t size)
{
    int below = degree, above = degree;
    while (n % below != 0)
        below--;
    while (above <= n && n % above != 0)
        above++;
    if (above <= n)
        snprintf(text, size, "tp=%d or tp=%d", below, above);
    else
        snprintf(text, size, "tp=%d", below);
}

static int check_share(const struct model *model, const char *what, int64_t n, int tp)
{
    char nearest[64];
    if (n % tp == 0)
        return 0;
    nearest_degrees(n, tp, nearest, sizeof nearest);
    return fail(FAIL_USAGE, "layout: tp=%d does not divide %s %lld of model %s; choose %s", tp,
                what, (long long)n, model->name, nearest);
}

int tensor_check(const struct model *model, const struct layout *layout,
                 const struct policy *policy)
{
    int tp = layout->group[AXIS_TP].size, rc = 0;
    int64_t rows = policy->micro_batch * (model->sequence / layout->group[AXIS_CP].size);
    int64_t parts = policy->tp_chunks * (policy->sequence_parallel ? tp : 1);
    if (policy->tp_chunks < 1 || policy->tp_chunks > TENSOR_CHUNKS)
        return fail(FAIL_USAGE, "tp-chunks: found %d, wanted 1 to %d", policy->tp_chunks,
                    TENSOR_CHUNKS);
    if (tp == 1 && policy->tp_chunks > 1)
        return fail(FAIL_USAGE,
                    "tp-chunks: %d chunks without tensor parallelism; choose 1, or "
                    "tp above 1",
                    policy->tp_chunks);
    TRY(check_share(model, "the heads,", model->heads, tp));
    if (model->experts == 0)
        TRY(check_share(model, "the inner width of the MLP,", model->ffn, tp));
    TRY(check_share(model, "the padded vocabulary,", model_padded_vocabulary(model), tp));
    if (model->kv_heads % tp != 0 && tp % model->kv_heads != 0)
        TRY(check_share(model, "the kv heads,", model->kv_heads, tp));
    if (rows % parts != 0)
        return fail(FAIL_USAGE,
                    "layout: %lld rows of a micro-batch do not split over tp=%d in %d chunk%s; "
                    "choose a micro-batch or sequence that divides by %lld, or --sequence-parallel "
                    "off",
                    (long long)rows, tp, policy->tp_chunks, units_s(policy->tp_chunks),
                    (long long)parts);
out:
    return rc;
}
