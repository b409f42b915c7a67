#include "workloads/touch.h"

#include "base/err.h"
#include "workloads/kernels/kernels.h"

struct list {
    const struct op *op;
    struct touch *out;
    int n;
};

enum { READS = 1, WRITES = 2, BOTH = 3 };

static void add(struct list *list, int index, int64_t n, enum dtype dtype, int how)
{
    struct tensor t = list->op->t[index];
    if (t.buffer == BUFFER_NONE || n <= 0)
        return;
    list->out[list->n++] =
        (struct touch){index, t, n, dtype, (how & READS) != 0, (how & WRITES) != 0};
}

/* Doubles [first, last] of the scalars at tensor `index`. */
static void add_scalars(struct list *list, int index, enum scalar first, enum scalar last, int how)
{
    if (list->op->t[index].buffer == BUFFER_NONE)
        return;
    add(list, index, (int64_t)last - (int64_t)first + 1, DTYPE_F64, how);
    list->out[list->n - 1].t.offset += (int64_t)first * (int64_t)sizeof(double);
}

int64_t touch_bytes(const struct touch *touch)
{
    return touch->n * (int64_t)dtype_size((int)touch->dtype);
}

static void input(struct list *list)
{
    const struct shape_input *s = &list->op->shape.input;
    int64_t rows = s->samples * cut_rows(&s->cut, s->sequence);
    add(list, 0, rows, DTYPE_I32, WRITES);
    add(list, 1, rows, DTYPE_I32, WRITES);
    add(list, 2, rows, DTYPE_U8, WRITES);
}

static void embed(struct list *list)
{
    const struct op *op = list->op;
    const struct shape_rows *s = &op->shape.rows;
    int64_t table = s->valid * s->width, positions = s->sequence * s->width;
    add(list, 0, s->rows, DTYPE_I32, READS);
    if (op->kind == OP_EMBED) {
        add(list, 1, table, op->dtype, READS);
        add(list, 2, s->first_column == 0 ? positions : 0, op->dtype, READS);
        add(list, 3, s->rows * s->width, op->dtype, WRITES);
    } else {
        add(list, 1, s->rows * s->width, op->dtype, READS);
        add(list, 2, table, DTYPE_F32, BOTH);
        add(list, 3, positions, DTYPE_F32, BOTH);
    }
}

static void norm(struct list *list)
{
    const struct op *op = list->op;
    int64_t rows = op->shape.rows.rows, width = op->shape.rows.width, matrix = rows * width;
    add(list, 0, matrix, op->dtype, READS);
    add(list, 1, width, op->dtype, READS);
    add(list, 2, width, op->dtype, READS);
    add(list, 3, matrix, op->dtype, WRITES);
    add(list, 4, rows, DTYPE_F32, WRITES);
    add(list, 5, rows, DTYPE_F32, WRITES);
    add(list, 6, matrix, op->dtype, READS);
    add(list, 7, op->t[6].buffer == BUFFER_NONE ? 0 : matrix, op->dtype, WRITES);
}

static void norm_grad(struct list *list)
{
    const struct op *op = list->op;
    int64_t rows = op->shape.rows.rows, width = op->shape.rows.width, matrix = rows * width;
    add(list, 0, matrix, op->dtype, READS);
    add(list, 1, matrix, op->dtype, READS);
    add(list, 2, width, op->dtype, READS);
    add(list, 3, rows, DTYPE_F32, READS);
    add(list, 4, rows, DTYPE_F32, READS);
    add(list, 5, matrix, op->dtype, op->shape.rows.accumulate ? BOTH : WRITES);
    add(list, 6, width, DTYPE_F32, BOTH);
    add(list, 7, width, DTYPE_F32, BOTH);
}

static void gemm(struct list *list)
{
    const struct shape_gemm *s = &list->op->shape.gemm;
    enum dtype dtype = list->op->dtype;
    add(list, 0, s->m * s->k, dtype, READS);
    add(list, 1, s->k * s->n, dtype, READS);
    add(list, 2, s->m * s->n, s->wide ? DTYPE_F32 : dtype, s->beta != 0 ? BOTH : WRITES);
    add(list, 3, s->n, dtype, READS);
}

static void attention(struct list *list)
{
    const struct op *op = list->op;
    const struct shape_attention *s = &op->shape.attention;
    int64_t rows = s->batch * s->sequence, lse = rows * s->heads, out = lse * s->head;
    int64_t qkv = rows * (s->heads + 2 * s->kv_heads) * s->head;
    int64_t workspace = kernels_attention_workspace(s) / (int64_t)sizeof(float);
    if (op->kind == OP_ROTARY) {
        add(list, 0, qkv, op->dtype, BOTH);
    } else if (op->kind == OP_ATTENTION) {
        add(list, 0, qkv, op->dtype, READS);
        add(list, 1, out, op->dtype, WRITES);
        add(list, 2, lse, DTYPE_F32, WRITES);
        add(list, 3, workspace, DTYPE_F32, BOTH);
    } else {
        add(list, 0, out, op->dtype, READS);
        add(list, 1, qkv, op->dtype, READS);
        add(list, 2, out, op->dtype, READS);
        add(list, 3, lse, DTYPE_F32, READS);
        add(list, 4, qkv, op->dtype, WRITES);
        add(list, 5, workspace, DTYPE_F32, BOTH);
    }
}

/* Whole rows of samples, and of q those that hold k and v too: what lies between is not told apart. */
static void attention_block(struct list *list)
{
    const struct op *op = list->op;
    const struct shape_attention *s = &op->shape.attention;
    int64_t rows = s->batch * s->sequence, lse = rows * s->heads, out = lse * s->head;
    int64_t qkv = rows * (s->heads + 2 * s->kv_heads) * s->head;
    int64_t kv = s->batch * s->kv_sequence * 2 * s->kv_heads * s->head;
    int64_t workspace = kernels_attention_workspace(s) / (int64_t)sizeof(float);
    if (op->kind == OP_ATTENTION_BLOCK) {
        add(list, 0, qkv, op->dtype, READS);
        add(list, 1, kv, op->dtype, READS);
        add(list, 2, out, op->dtype, BOTH);
        add(list, 3, lse, DTYPE_F32, BOTH);
        add(list, 4, workspace, DTYPE_F32, BOTH);
    } else if (op->kind == OP_ATTENTION_MERGE) {
        add(list, 0, out, op->dtype, READS);
        add(list, 1, lse, DTYPE_F32, READS);
        add(list, 2, out, op->dtype, BOTH);
        add(list, 3, lse, DTYPE_F32, BOTH);
    } else {
        add(list, 0, out, op->dtype, READS);
        add(list, 1, qkv, op->dtype, READS);
        add(list, 2, kv, op->dtype, READS);
        add(list, 3, out, op->dtype, READS);
        add(list, 4, lse, DTYPE_F32, READS);
        add(list, 5, qkv, op->dtype, BOTH);
        add(list, 6, kv, op->dtype, BOTH);
        add(list, 7, workspace, DTYPE_F32, BOTH);
    }
}

/* From the first run to the end of the last. */
static void move(struct list *list)
{
    const struct shape_move *s = &list->op->shape.move;
    int64_t from = s->width, to = s->width;
    for (int i = 0; i < 2; i++) {
        from += (s->n[i] - 1) * s->from[i];
        to += (s->n[i] - 1) * s->to[i];
    }
    add(list, 0, from, list->op->dtype, READS);
    add(list, 1, to, list->op->dtype, to == s->n[0] * s->n[1] * s->width ? WRITES : BOTH);
}

static void route(struct list *list)
{
    const struct op *op = list->op;
    const struct shape_route *s = &op->shape.route;
    int64_t slots = s->rows * s->top_k;
    add(list, 0, s->all_rows * s->experts, DTYPE_F32, READS);
    if (op->kind == OP_ROUTE) {
        add(list, 1, slots, DTYPE_I32, WRITES);
        add(list, 2, slots, DTYPE_I32, WRITES);
        add(list, 3, slots, DTYPE_F32, WRITES);
        add(list, 4, s->sent, DTYPE_I32, WRITES);
        add(list, 5, op->again ? 0 : s->experts + 3, DTYPE_F64, BOTH);
        add(list, 6, s->all_rows / s->sequence * s->experts, DTYPE_F32, WRITES);
        add(list, 7, s->experts, DTYPE_I32, WRITES);
    } else {
        add(list, 1, slots, DTYPE_I32, READS);
        add(list, 2, slots, DTYPE_F32, READS);
        add(list, 3, s->all_rows / s->sequence * s->experts, DTYPE_F32, READS);
        add(list, 4, s->rows * s->experts, DTYPE_F32, WRITES);
    }
}

static void permute(struct list *list)
{
    const struct op *op = list->op;
    const struct shape_permute *s = &op->shape.permute;
    int64_t tokens = s->rows * s->width, sent = s->sent * s->width, slots = s->rows * s->top_k;
    if (op->kind == OP_PERMUTE) {
        add(list, 0, tokens, op->dtype, READS);
        add(list, 1, s->sent, DTYPE_I32, READS);
        add(list, 2, sent, op->dtype, WRITES);
    } else if (op->kind == OP_COMBINE) {
        add(list, 0, sent, op->dtype, READS);
        add(list, 1, slots, DTYPE_I32, READS);
        add(list, 2, slots, DTYPE_F32, READS);
        add(list, 3, tokens, op->dtype, s->accumulate ? BOTH : WRITES);
    } else {
        add(list, 0, tokens, op->dtype, READS);
        add(list, 1, sent, op->dtype, READS);
        add(list, 2, slots, DTYPE_F32, READS);
        add(list, 3, slots, DTYPE_I32, READS);
        add(list, 4, s->sent, DTYPE_I32, READS);
        add(list, 5, sent, op->dtype, WRITES);
        add(list, 6, slots, DTYPE_F32, WRITES);
    }
}

static void grouped(struct list *list)
{
    const struct op *op = list->op;
    const struct shape_grouped *s = &op->shape.grouped;
    int64_t in = s->all_rows * s->k, out = s->all_rows * s->n, w = s->matrices * s->n * s->k;
    if (s->form == GROUPED_WEIGHT) {
        add(list, 0, out, op->dtype, READS);
        add(list, 1, in, op->dtype, READS);
        add(list, 2, w, DTYPE_F32, BOTH);
        return;
    }
    bool forward = s->form == GROUPED_FORWARD;
    add(list, 0, forward ? in : out, op->dtype, READS);
    add(list, 1, w, op->dtype, READS);
    add(list, 2, forward ? out : in, op->dtype, WRITES);
}

/* Elementwise: the last tensor is written. */
static void elementwise(struct list *list, int n_tensors)
{
    for (int i = 0; i < n_tensors; i++)
        add(list, i, list->op->shape.vector.n, list->op->dtype,
            i == n_tensors - 1 ? WRITES : READS);
}

static void swiglu(struct list *list)
{
    const struct op *op = list->op;
    int64_t n = op->shape.rows.rows * op->shape.rows.width;
    bool grad = op->kind == OP_SWIGLU_GRAD;
    add(list, 0, grad ? n : 2 * n, op->dtype, READS);
    add(list, 1, grad ? 2 * n : n, op->dtype, grad ? READS : WRITES);
    add(list, 2, grad ? 2 * n : 0, op->dtype, WRITES);
}

static void loss(struct list *list)
{
    const struct op *op = list->op;
    const struct shape_rows *s = &op->shape.rows;
    add(list, 0, s->rows * s->width, op->dtype, op->kind == OP_CLASS_STATS ? READS : BOTH);
    add(list, 1, s->rows, DTYPE_I32, READS);
    if (op->kind == OP_CLASS_STATS) {
        add(list, 2, 3 * s->rows, DTYPE_F32, WRITES);
        return;
    }
    add(list, 2, s->rows, DTYPE_U8, READS);
    if (s->first_column == 0)
        add_scalars(list, 3, SCALAR_LOSS_SUM, SCALAR_TOKENS, BOTH);
    add(list, 4, 3 * s->rows * s->parts, DTYPE_F32, READS);
}

static void adamw(struct list *list)
{
    const struct op *op = list->op;
    int64_t n = op->shape.optimizer.n;
    add(list, 0, n, DTYPE_F32, BOTH);
    add(list, 1, n, op->shape.optimizer.gradient, READS);
    add(list, 2, n, DTYPE_F32, BOTH);
    add(list, 3, n, DTYPE_F32, BOTH);
    add_scalars(list, 4, SCALAR_SCALE, SCALAR_SKIPPED, READS);
    add(list, 5, n, op->dtype, WRITES);
}

static void collective(struct list *list, const struct plan *plan)
{
    const struct coll *coll = &list->op->shape.coll.coll;
    const struct shape_coll *shape = &list->op->shape.coll;
    int n = plan->layout.group[shape->axis].size;
    add(list, 0, shape->counted ? shape->most[0] : coll_send_count(coll, n), coll->dtype, READS);
    add(list, 1, shape->counted ? shape->most[1] : coll_recv_count(coll, n), coll->dtype, WRITES);
}

static void scalars(struct list *list)
{
    const struct op *op = list->op;
    if (op->kind == OP_SUMSQ) {
        add(list, 0, op->shape.vector.n, op->dtype, READS);
        add_scalars(list, 1, SCALAR_SUMSQ, SCALAR_SUMSQ, BOTH);
    } else {
        add_scalars(list, 0, SCALAR_LOSS_SUM, SCALAR_EXPERT_SUMSQ, READS);
        add_scalars(list, 0, SCALAR_NORM, SCALAR_SKIPPED, BOTH);
    }
}

/* What is of a fixed shape and needs no function of its own. */
static void plain(struct list *list)
{
    const struct op *op = list->op;
    switch ((int)op->kind) {
    case OP_ZERO:
        add(list, 0, op->shape.vector.n, DTYPE_F32, WRITES);
        break;
    case OP_BIAS_GRAD:
        add(list, 0, op->shape.rows.rows * op->shape.rows.width, op->dtype, READS);
        add(list, 1, op->shape.rows.width, DTYPE_F32, BOTH);
        break;
    case OP_CAST:
        add(list, 0, op->shape.cast.n, op->shape.cast.from, READS);
        add(list, 1, op->shape.cast.n, op->shape.cast.to, WRITES);
        break;
    case OP_COUNTS:
        add(list, 0, op->shape.counts.experts, DTYPE_I32, READS);
        add(list, 1, op->shape.counts.experts, DTYPE_I32, READS);
        break;
    case OP_GELU:
        elementwise(list, 2);
        break;
    case OP_GELU_GRAD:
    case OP_ADD:
        elementwise(list, 3);
        break;
    default:
        BUG("nobody says what %s touches", op_name((int)op->kind));
    }
}

int touch_op(const struct plan *plan, const struct op *op, struct touch *out)
{
    static void (*const by_kind[OP_KINDS])(struct list *) = {
        [OP_INPUT] = input,
        [OP_EMBED] = embed,
        [OP_EMBED_GRAD] = embed,
        [OP_NORM] = norm,
        [OP_NORM_GRAD] = norm_grad,
        [OP_GEMM] = gemm,
        [OP_ROTARY] = attention,
        [OP_ATTENTION] = attention,
        [OP_ATTENTION_GRAD] = attention,
        [OP_SWIGLU] = swiglu,
        [OP_SWIGLU_GRAD] = swiglu,
        [OP_CLASS_STATS] = loss,
        [OP_CROSS_ENTROPY] = loss,
        [OP_SUMSQ] = scalars,
        [OP_CLIP] = scalars,
        [OP_ADAMW] = adamw,
        [OP_MOVE] = move,
        [OP_ATTENTION_BLOCK] = attention_block,
        [OP_ATTENTION_MERGE] = attention_block,
        [OP_ATTENTION_BLOCK_GRAD] = attention_block,
        [OP_ROUTE] = route,
        [OP_ROUTE_GRAD] = route,
        [OP_PERMUTE] = permute,
        [OP_COMBINE] = permute,
        [OP_COMBINE_GRAD] = permute,
        [OP_GROUPED_GEMM] = grouped,
    };
    struct list list = {op, out, 0};
    if (op->kind == OP_COLLECTIVE)
        collective(&list, plan);
    else if (by_kind[op->kind] != NULL)
        by_kind[op->kind](&list);
    else
        plain(&list);
    return list.n;
}
