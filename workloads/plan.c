#include "workloads/plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "workloads/touch.h"

const char *op_name(int kind)
{
    static const char *const names[] = {
#define OP_TEXT(name, text) text,
        OP_LIST(OP_TEXT)
#undef OP_TEXT
    };
    return kind >= 0 && kind < OP_KINDS ? names[kind] : "?";
}

const char *phase_name(int phase)
{
    static const char *const names[] = {
#define PHASE_TEXT(name, text) text,
        PHASE_LIST(PHASE_TEXT)
#undef PHASE_TEXT
    };
    return phase >= 0 && phase < PHASES ? names[phase] : "?";
}

void plan_init(struct plan *plan, const struct layout *layout)
{
    memset(plan, 0, sizeof *plan);
    plan->layout = *layout;
    plan->bytes[BUFFER_SCALAR] = SCALARS * (int64_t)sizeof(double);
}

void plan_release(struct plan *plan)
{
    for (int i = 0; i < plan->n_kept; i++)
        free(plan->kept[i]);
    free(plan->kept);
    free(plan->ops);
    free(plan->tensors);
    free(plan->pieces);
    memset(plan, 0, sizeof *plan);
}

int plan_op(struct plan *plan, const struct op *op)
{
    if (plan->sealed)
        BUG("plan_op on a sealed plan");
    if (plan->n_ops == plan->capacity) {
        plan->capacity = plan->capacity ? 2 * plan->capacity : 256;
        plan->ops = must_grow(plan->ops, (size_t)plan->capacity, sizeof *plan->ops);
    }
    plan->ops[plan->n_ops] = *op;
    return plan->n_ops++;
}

void plan_wait(struct plan *plan, int later, int earlier)
{
    struct op *op = &plan->ops[later];
    int stream = plan->ops[earlier].stream;
    if (stream == op->stream)
        return;
    for (int i = 0; i < op->n_waits; i++) {
        if (plan->ops[op->wait[i]].stream != stream)
            continue;
        if (op->wait[i] < earlier)
            op->wait[i] = earlier;
        return;
    }
    if (op->n_waits == OP_WAITS)
        BUG("op %d waits for more than %d streams", later, OP_WAITS);
    op->wait[op->n_waits++] = earlier;
}

int plan_channel(struct plan *plan, enum axis axis, int direction)
{
    for (int i = 0; i < plan->n_channels; i++)
        if (plan->channel[i].axis == axis && plan->channel[i].direction == direction)
            return 1 + i;
    if (plan->n_channels == PLAN_CHANNELS)
        BUG("a plan has at most %d communication streams", PLAN_CHANNELS);
    plan->channel[plan->n_channels] = (struct plan_channel){axis, direction};
    return 1 + plan->n_channels++;
}

int plan_copy_stream(const struct plan *plan)
{
    return plan->copy_stream ? 1 + plan->n_channels : 0;
}

/* A row of the tensor as held here, as a row of the whole. */
static int64_t whole_row(const struct plan_tensor *t, int64_t row, int64_t *left)
{
    int k = 0;
    while (row >= t->span[k].count)
        row -= t->span[k++].count;
    *left = t->span[k].count - row;
    return t->span[k].first + row;
}

void plan_piece_runs(const struct plan *plan, const struct plan_piece *piece,
                     void (*run)(void *arg, int64_t whole_first, int64_t local_first,
                                 int64_t count),
                     void *arg)
{
    const struct plan_tensor *t = &plan->tensors[piece->tensor];
    bool whole_columns = t->columns == t->whole_columns;
    for (int64_t at = piece->first, end = piece->first + piece->count; at < end;) {
        int64_t rows, column = at % t->columns;
        int64_t row = whole_row(t, at / t->columns, &rows);
        int64_t n = (whole_columns ? rows * t->columns : t->columns) - column;
        n = n < end - at ? n : end - at;
        run(arg, row * t->whole_columns + t->first_column + column, at, n);
        at += n;
    }
}

void *plan_keep(struct plan *plan, size_t bytes)
{
    plan->kept = must_grow(plan->kept, (size_t)plan->n_kept + 1, sizeof *plan->kept);
    return plan->kept[plan->n_kept++] = must_alloc(1, bytes);
}

struct tensor plan_take(struct plan *plan, enum plan_buffer buffer, int64_t bytes)
{
    struct tensor taken = {(int)buffer, plan->bytes[buffer]};
    plan->bytes[buffer] += (bytes + 63) / 64 * 64;
    return taken;
}

static int seal_extents(const struct plan *plan, int index)
{
    const struct op *op = &plan->ops[index];
    struct touch touch[TOUCHES];
    int n = touch_op(plan, op, touch);
    for (int i = 0; i < n; i++)
        if (touch[i].t.offset + touch_bytes(&touch[i]) > plan->bytes[touch[i].t.buffer])
            return fail(FAIL_INTERNAL, "plan: op %d (%s): tensor %d reaches outside its arena",
                        index, op_name((int)op->kind), touch[i].index);
    return 0;
}

static int seal_op(struct plan *plan, int index)
{
    const struct op *op = &plan->ops[index];
    if ((int)op->kind < 0 || op->kind >= OP_KINDS)
        return fail(FAIL_INTERNAL, "plan: op %d has kind %d", index, (int)op->kind);
    if (op->stream < 0 || op->stream > plan->n_channels + plan->copy_stream)
        return fail(FAIL_INTERNAL, "plan: op %d is on stream %d of %d", index, op->stream,
                    plan->n_channels);
    bool on_channel = op->stream > 0 && op->stream <= plan->n_channels;
    bool on_copy = op->stream > plan->n_channels;
    if ((op->kind == OP_COLLECTIVE) != on_channel || (on_copy && op->kind != OP_INPUT))
        return fail(FAIL_INTERNAL, "plan: op %d (%s) is on stream %d", index,
                    op_name((int)op->kind), op->stream);
    bool grouped = index > 0 && plan->ops[index - 1].with_next;
    if ((op->with_next && (grouped || !on_channel || index + 1 == plan->n_ops)) ||
        (grouped && op->stream != plan->ops[index - 1].stream))
        return fail(FAIL_INTERNAL, "plan: op %d (%s) cannot be one post with the next", index,
                    op_name((int)op->kind));
    for (int i = 0; i < op->n_waits; i++) {
        int earlier = op->wait[i];
        if (earlier < 0 || earlier >= index || plan->ops[earlier].stream == op->stream)
            return fail(FAIL_INTERNAL, "plan: op %d waits for op %d", index, earlier);
        plan->ops[earlier].awaited = true;
    }
    for (int i = 0; i < OP_TENSORS; i++) {
        const struct tensor *t = &op->t[i];
        if (t->buffer < 0 || t->buffer >= PLAN_BUFFERS || t->offset < 0 ||
            (t->buffer != BUFFER_NONE && t->offset >= plan->bytes[t->buffer]))
            return fail(FAIL_INTERNAL, "plan: op %d (%s): tensor %d lies outside its arena", index,
                        op_name((int)op->kind), i);
    }
    return seal_extents(plan, index);
}

int plan_seal(struct plan *plan)
{
    int rc = 0;
    for (int i = 0; i < plan->n_ops; i++)
        TRY(seal_op(plan, i));
    for (int i = 0; i < plan->n_channels; i++)
        if (plan->layout.group[plan->channel[i].axis].size < 2 &&
            plan->channel[i].axis != AXIS_EMBED) /* middle stages open what the ends use */
            return fail(FAIL_INTERNAL, "plan: a channel on axis %s, whose group has one member",
                        axis_name((int)plan->channel[i].axis));
    plan_count(plan, &plan->totals);
    plan->sealed = true;
out:
    return rc;
}

static const uint64_t digest_empty = 14695981039346656037u;

/* FNV-1a over the words that members of a group must agree on. */
static uint64_t digest_word(uint64_t digest, uint64_t word)
{
    for (int i = 0; i < 8; i++)
        digest = (digest ^ (word >> (8 * i) & 255)) * 1099511628211u;
    return digest;
}

static bool is_transfer(const struct op *op, enum axis axis)
{
    enum coll_kind kind = op->shape.coll.coll.kind;
    return op->kind == OP_COLLECTIVE && op->shape.coll.axis == axis &&
           (kind == COLL_SEND || kind == COLL_RECV);
}

uint64_t plan_digest(const struct plan *plan, enum axis axis)
{
    uint64_t digest = digest_empty;
    for (int i = 0; i < plan->n_ops; i++) {
        const struct op *op = &plan->ops[i];
        if (op->kind != OP_COLLECTIVE || op->shape.coll.axis != axis || is_transfer(op, axis))
            continue;
        const struct coll *coll = &op->shape.coll.coll;
        digest = digest_word(digest, (uint64_t)coll->kind);
        digest = digest_word(digest, (uint64_t)coll->dtype);
        digest = digest_word(digest, (uint64_t)coll->count);
        digest = digest_word(digest, (uint64_t)(coll->peer + 1));
        digest = digest_word(digest, (uint64_t)op->shape.coll.direction);
    }
    return digest;
}

uint64_t plan_digest_transfers(const struct plan *plan, enum axis axis)
{
    const struct group *group = &plan->layout.group[axis];
    uint64_t *with = must_alloc((size_t)group->size + 1, sizeof *with), sum = 0;
    for (int i = 0; i < group->size; i++)
        with[i] = digest_empty;
    for (int i = 0; i < plan->n_ops; i++) {
        const struct op *op = &plan->ops[i];
        if (!is_transfer(op, axis))
            continue;
        const struct coll *coll = &op->shape.coll.coll;
        bool sends = coll->kind == COLL_SEND;
        uint64_t *digest = &with[coll->peer];
        *digest = digest_word(*digest, sends == (group->me < coll->peer)); /* to the later one */
        *digest = digest_word(*digest, (uint64_t)coll->dtype);
        *digest = digest_word(*digest, (uint64_t)coll->count);
        *digest = digest_word(*digest, (uint64_t)op->shape.coll.direction);
        *digest = digest_word(*digest, (uint64_t)(uint32_t)op->micro << 32 | (uint32_t)op->layer);
    }
    for (int i = 0; i < group->size; i++)
        sum += i == group->me ? 0 : group->me < i ? with[i] : 0 - with[i];
    free(with);
    return sum;
}

double plan_block_pairs(const struct shape_attention *a)
{
    double q = (double)a->q_rows, all = q * (double)a->kv_rows;
    return (double)a->batch * (a->causal ? all - q * q / 2 : all);
}

static void count_flops(const struct op *op, double flops, struct plan_totals *out)
{
    out->hardware_flops += flops;
    out->model_flops += op->again ? 0 : flops;
}

static void count_op(const struct plan *plan, const struct op *op, struct plan_totals *out)
{
    switch ((int)op->kind) {
    case OP_GEMM: {
        const struct shape_gemm *g = &op->shape.gemm;
        count_flops(op, 2.0 * (double)g->m_valid * (double)g->n_valid * (double)g->k_valid, out);
        out->gemm_flops += 2.0 * (double)g->m * (double)g->n * (double)g->k;
        break;
    }
    case OP_GROUPED_GEMM: {
        const struct shape_grouped *g = &op->shape.grouped;
        count_flops(op, 2.0 * (double)g->rows_valid * (double)g->n * (double)g->k, out);
        out->gemm_flops += 2.0 * (double)grouped_now(g) * (double)g->n * (double)g->k;
        break;
    }
    case OP_ATTENTION:
    case OP_ATTENTION_GRAD: {
        const struct shape_attention *a = &op->shape.attention;
        double pairs = (double)a->batch * (double)a->sequence * (double)a->sequence / 2;
        double products = op->kind == OP_ATTENTION ? 2 : 4;
        count_flops(op, products * 2.0 * pairs * (double)a->heads * (double)a->head, out);
        break;
    }
    case OP_ATTENTION_BLOCK:
    case OP_ATTENTION_BLOCK_GRAD: {
        const struct shape_attention *a = &op->shape.attention;
        double products = op->kind == OP_ATTENTION_BLOCK ? 2 : 4;
        count_flops(op, products * 2.0 * plan_block_pairs(a) * (double)a->heads * (double)a->head,
                    out);
        break;
    }
    case OP_EMBED:
        out->tokens += op->shape.rows.first_column == 0 ? op->shape.rows.rows : 0;
        break;
    case OP_COLLECTIVE: {
        enum axis axis = op->shape.coll.axis;
        out->wire_bytes[axis] +=
            coll_wire_bytes(&op->shape.coll.coll, plan->layout.group[axis].size);
        out->calls[axis]++;
        break;
    }
    default:
        break;
    }
}

void plan_count(const struct plan *plan, struct plan_totals *out)
{
    memset(out, 0, sizeof *out);
    for (int i = 0; i < plan->n_ops; i++)
        count_op(plan, &plan->ops[i], out);
}
