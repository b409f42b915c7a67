#include "workloads/build.h"

#include <string.h>

#include "base/err.h"

struct tensor build_at(struct tensor t, int64_t n, int64_t size)
{
    return (struct tensor){t.buffer, t.offset + n * size};
}

struct tensor build_weight(const struct build *b, int tensor)
{
    return tensor < 0 ? (struct tensor){0} : b->split->weight(b, tensor);
}

struct tensor build_gradient(const struct build *b, int tensor)
{
    return tensor < 0 ? (struct tensor){0} : b->split->gradient(b, tensor);
}

struct tensor build_scalar(enum scalar which)
{
    return (struct tensor){BUFFER_SCALAR, (int64_t)which * (int64_t)sizeof(double)};
}

struct shape_attention build_attention_shape(const struct build *b)
{
    return (struct shape_attention){.batch = b->policy->micro_batch,
                                    .sequence = b->cp.sequence,
                                    .cut = b->cp.cut,
                                    .heads = b->heads,
                                    .kv_heads = b->kv_heads,
                                    .head = b->head,
                                    .theta = (float)b->model->theta};
}

struct shape_gemm build_gemm_shape(int64_t m, int64_t n, int64_t k, float beta)
{
    return (struct shape_gemm){
        .m = m, .n = n, .k = k, .beta = beta, .m_valid = m, .n_valid = n, .k_valid = k};
}

/* ---- ops ---- */

struct op build_op(const struct build *b, enum op_kind kind)
{
    return (struct op){.kind = kind,
                       .phase = b->phase,
                       .dtype = b->plan->dtype,
                       .layer = b->layer,
                       .micro = b->micro,
                       .slot = b->slot,
                       .again = b->again};
}

int build_add(struct build *b, const struct op *op)
{
    int index = plan_op(b->plan, op);
    for (int i = 0; i < b->n_pending; i++) {
        plan_wait(b->plan, index, b->pending[i]);
        b->waited[b->plan->ops[b->pending[i]].stream] = b->pending[i];
    }
    b->n_pending = 0;
    b->last = index;
    return index;
}

/* Of several ops of one stream the latest is enough. */
void build_await(struct build *b, int earlier)
{
    int stream = earlier < 0 ? 0 : b->plan->ops[earlier].stream;
    if (stream == 0 || b->waited[stream] >= earlier)
        return;
    for (int i = 0; i < b->n_pending; i++) {
        if (b->plan->ops[b->pending[i]].stream != stream)
            continue;
        if (b->pending[i] < earlier)
            b->pending[i] = earlier;
        return;
    }
    if (b->n_pending == OP_WAITS)
        BUG("an op would wait for more than %d streams", OP_WAITS);
    b->pending[b->n_pending++] = earlier;
}

int build_collective(struct build *b, const struct build_call *call, int after)
{
    bool has_peer = call->kind == COLL_SEND || call->kind == COLL_RECV;
    struct op op = build_op(b, OP_COLLECTIVE);
    op.phase = call->phase;
    op.dtype = call->dtype;
    op.stream = plan_channel(b->plan, call->axis, call->direction);
    op.t[0] = call->send;
    op.t[1] = call->receive;
    op.shape.coll.coll = (struct coll){.kind = call->kind,
                                       .dtype = call->dtype,
                                       .count = call->count,
                                       .peer = has_peer ? call->peer : -1};
    if (call->kind == COLL_ALL_TO_ALL_V) {
        const struct group *group = &b->plan->layout.group[call->axis];
        op.shape.coll.coll = coll_all_to_all_v(call->dtype, call->count, group->size, group->me,
                                               call->send_parts, call->receive_parts);
    }
    op.shape.coll.axis = call->axis;
    op.shape.coll.direction = call->direction;
    int index = plan_op(b->plan, &op);
    if (after >= 0)
        plan_wait(b->plan, index, after);
    return index;
}

int build_gemm(struct build *b, struct tensor a, bool trans_a, struct tensor w, bool trans_b,
               struct tensor c, struct shape_gemm shape, struct tensor bias)
{
    struct op op = build_op(b, OP_GEMM);
    op.t[0] = a;
    op.t[1] = w;
    op.t[2] = c;
    op.t[3] = bias;
    op.shape.gemm = shape;
    op.shape.gemm.trans_a = trans_a;
    op.shape.gemm.trans_b = trans_b;
    return build_add(b, &op);
}

int build_bias_grad(struct build *b, struct tensor dy, int bias, int64_t rows, int64_t width)
{
    struct op op = build_op(b, OP_BIAS_GRAD);
    op.t[0] = dy;
    op.t[1] = build_gradient(b, bias);
    op.shape.rows.rows = rows;
    op.shape.rows.width = width;
    return build_add(b, &op);
}

int build_vector_op(struct build *b, enum op_kind kind, struct tensor t0, struct tensor t1,
                    struct tensor t2, int64_t n)
{
    struct op op = build_op(b, kind);
    op.t[0] = t0;
    op.t[1] = t1;
    op.t[2] = t2;
    op.shape.vector.n = n;
    return build_add(b, &op);
}

int build_cast(struct build *b, struct tensor x, enum dtype from, struct tensor y, enum dtype to,
               int64_t n)
{
    struct op op = build_op(b, OP_CAST);
    op.t[0] = x;
    op.t[1] = y;
    op.shape.cast = (struct shape_cast){n, from, to};
    return build_add(b, &op);
}

/* ---- gradients on their way to the split ---- */

static int *finished_of(const struct build *b, int tensor)
{
    return b->finished + (ptrdiff_t)tensor * (1 + PLAN_CHANNELS);
}

void build_finished(struct build *b, int tensor, int op)
{
    if (tensor < 0)
        return;
    int stream = b->plan->ops[op].stream, *after = finished_of(b, tensor);
    if (after[stream] < op)
        after[stream] = op;
}

void build_after(const struct build *b, int tensor, int *after)
{
    memcpy(after, finished_of(b, tensor), (1 + PLAN_CHANNELS) * sizeof *after);
}

void build_report(struct build *b, int tensor)
{
    for (; !b->quiet && b->reported <= tensor; b->reported++) {
        const int *after = finished_of(b, b->reported);
        if (after[0] < 0)
            BUG("gradient of %s is reported before it is complete",
                b->plan->tensors[b->reported].name);
        if (b->hand_over)
            b->split->finished(b, b->reported, after);
    }
}
