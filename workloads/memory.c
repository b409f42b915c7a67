#include "workloads/memory.h"

#include <stdio.h>
#include <string.h>

#include "workloads/touch.h"

static const struct {
    const char *name;
    enum device_class class;
    bool state;
} items[MEMORY_ITEMS] = {
    [BUFFER_NONE] = {"nothing", DEVICE_TEMPORARIES, false},
    [BUFFER_PARAMETER] = {"parameters", DEVICE_PARAMETERS, true},
    [BUFFER_MASTER] = {"fp32 masters", DEVICE_OPTIMIZER, true},
    [BUFFER_GRADIENT] = {"gradients", DEVICE_GRADIENTS, true},
    [BUFFER_SHARD] = {"sharded gradients", DEVICE_GRADIENTS, true},
    [BUFFER_MOMENT1] = {"first moments", DEVICE_OPTIMIZER, true},
    [BUFFER_MOMENT2] = {"second moments", DEVICE_OPTIMIZER, true},
    [BUFFER_ACTIVATION] = {"activations", DEVICE_ACTIVATIONS, false},
    [BUFFER_TEMPORARY] = {"temporaries", DEVICE_TEMPORARIES, false},
    [BUFFER_WIRE] = {"wire buffers", DEVICE_COMMUNICATION, false},
    [BUFFER_BATCH] = {"batches", DEVICE_TEMPORARIES, false},
    [BUFFER_SCALAR] = {"scalars", DEVICE_TEMPORARIES, true},
    [MEMORY_SCRATCH] = {"scratch copies", DEVICE_TEMPORARIES, false},
    [MEMORY_LOG] = {"log", DEVICE_TEMPORARIES, false},
    [MEMORY_PROOF] = {"proof of collectives", DEVICE_COMMUNICATION, false},
};

enum device_class memory_class(int item)
{
    return items[item].class;
}

bool memory_is_state(int buffer)
{
    return items[buffer].state;
}

const char *memory_item_name(int item)
{
    return items[item].name;
}

/* ---- the largest part of an item ---- */

static void say_shape(const struct op *op, char *text, size_t size)
{
    const struct shape_gemm *g = &op->shape.gemm;
    const struct shape_attention *a = &op->shape.attention;
    switch ((int)op->kind) {
    case OP_GEMM:
        snprintf(text, size, "%lld x %lld x %lld", (long long)g->m, (long long)g->n,
                 (long long)g->k);
        break;
    case OP_ATTENTION:
    case OP_ATTENTION_GRAD:
    case OP_ROTARY:
        snprintf(text, size, "%lld x %lld, %d and %d heads of %d", (long long)a->batch,
                 (long long)a->sequence, a->heads, a->kv_heads, a->head);
        break;
    case OP_GROUPED_GEMM:
        snprintf(text, size, "%lld x %lld x %lld", (long long)op->shape.grouped.all_rows,
                 (long long)op->shape.grouped.n, (long long)op->shape.grouped.k);
        break;
    case OP_PERMUTE:
    case OP_COMBINE:
    case OP_COMBINE_GRAD:
        snprintf(text, size, "%lld x %lld", (long long)op->shape.permute.sent,
                 (long long)op->shape.permute.width);
        break;
    case OP_ATTENTION_BLOCK:
    case OP_ATTENTION_BLOCK_GRAD:
    case OP_ATTENTION_MERGE:
        snprintf(text, size, "%lld x %lld on %lld, %d and %d heads of %d", (long long)a->batch,
                 (long long)a->q_rows, (long long)a->kv_rows, a->heads, a->kv_heads, a->head);
        break;
    case OP_COLLECTIVE:
        snprintf(text, size, "%s over %s", coll_name((int)op->shape.coll.coll.kind),
                 axis_name((int)op->shape.coll.axis));
        break;
    case OP_INPUT:
        snprintf(text, size, "%lld x %lld", (long long)op->shape.input.samples,
                 (long long)cut_rows(&op->shape.input.cut, op->shape.input.sequence));
        break;
    case OP_EMBED:
    case OP_EMBED_GRAD:
    case OP_NORM:
    case OP_NORM_GRAD:
    case OP_BIAS_GRAD:
    case OP_SWIGLU:
    case OP_SWIGLU_GRAD:
    case OP_CLASS_STATS:
    case OP_CROSS_ENTROPY:
        snprintf(text, size, "%lld x %lld", (long long)op->shape.rows.rows,
                 (long long)op->shape.rows.width);
        break;
    default:
        snprintf(text, size, "of one tensor");
    }
}

/* Name of the op's layer in words. */
static void say_op(const struct op *op, const struct touch *touch, struct memory_part *part)
{
    char shape[64], layer[32] = "";
    say_shape(op, shape, sizeof shape);
    if (op->layer >= 0)
        snprintf(layer, sizeof layer, ", layer %d", op->layer);
    snprintf(part->text, sizeof part->text, "%s %s, %s%s",
             op->kind == OP_COLLECTIVE ? "" : op_name((int)op->kind), shape,
             dtype_name((int)touch->dtype), layer);
    if (op->kind == OP_COLLECTIVE) /* the shape says the kind */
        memmove(part->text, part->text + 1, strlen(part->text));
}

/* Arenas of activations and what passes by: the op that touches most of one. */
static void find_touched(struct memory *m, const struct plan *plan)
{
    for (int i = 0; i < plan->n_ops; i++) {
        const struct op *op = &plan->ops[i];
        struct touch touch[TOUCHES];
        int n = op->kind == OP_ZERO ? 0 : touch_op(plan, op, touch);
        for (int j = 0; j < n; j++) {
            int buffer = touch[j].t.buffer;
            int64_t bytes = touch_bytes(&touch[j]);
            bool kept = memory_is_state(buffer) && buffer != BUFFER_SCALAR;
            if (kept || bytes <= m->largest[buffer].bytes)
                continue;
            m->largest[buffer].bytes = bytes;
            say_op(op, &touch[j], &m->largest[buffer]);
        }
    }
}

static void offer_tensor(struct memory *m, const struct plan *plan, int buffer,
                         const struct plan_tensor *t, int64_t count, enum dtype dtype)
{
    struct memory_part *part = &m->largest[buffer];
    int64_t bytes = count * (int64_t)dtype_size((int)dtype);
    if (plan->bytes[buffer] == 0 || bytes <= part->bytes)
        return;
    part->bytes = bytes;
    snprintf(part->text, sizeof part->text, "%s %lld x %lld, %s", t->name, (long long)t->rows,
             (long long)t->columns, dtype_name((int)dtype));
}

/* Arenas of the state: tensors as kernels see them, or the pieces of them that this rank owns. */
static void find_tensors(struct memory *m, const struct plan *plan)
{
    static const int of_pieces[] = {BUFFER_MASTER, BUFFER_SHARD, BUFFER_MOMENT1, BUFFER_MOMENT2};
    for (int i = 0; i < plan->n_tensors; i++) {
        const struct plan_tensor *t = &plan->tensors[i];
        offer_tensor(m, plan, BUFFER_PARAMETER, t, t->rows * t->columns, plan->dtype);
        offer_tensor(m, plan, BUFFER_GRADIENT, t, t->rows * t->columns, DTYPE_F32);
    }
    for (int i = 0; i < plan->n_pieces; i++)
        for (size_t b = 0; b < sizeof of_pieces / sizeof *of_pieces; b++)
            offer_tensor(m, plan, of_pieces[b], &plan->tensors[plan->pieces[i].tensor],
                         plan->pieces[i].count, DTYPE_F32);
}

/* ---- sums ---- */

static void add_items(struct memory *m, const struct plan *plan, const struct memory_added *added)
{
    for (int b = 1; b < PLAN_BUFFERS; b++) {
        m->item[b] = plan->bytes[b];
        m->item[MEMORY_SCRATCH] += added->scratch && memory_is_state(b) ? plan->bytes[b] : 0;
    }
    m->item[MEMORY_LOG] = added->log_steps * SCALARS * (int64_t)sizeof(double);
    m->item[MEMORY_PROOF] = plan->n_channels > 0 ? 2 * added->proof_bytes : 0;
}

void memory_of_plan(struct memory *out, const struct plan *plan, const struct memory_added *added)
{
    static const struct memory_added nothing;
    memset(out, 0, sizeof *out);
    add_items(out, plan, added != NULL ? added : &nothing);
    find_tensors(out, plan);
    find_touched(out, plan);
    for (int c = 0; c < DEVICE_CLASSES; c++)
        out->top[c] = -1;
    for (int i = 1; i < MEMORY_ITEMS; i++) {
        int class = (int)memory_class(i);
        out->class_bytes[class] += out->item[i];
        out->bytes += out->item[i];
        if (out->item[i] > 0 && (out->top[class] < 0 || out->item[i] > out->item[out->top[class]]))
            out->top[class] = i;
    }
}

int memory_most(const struct memory *memory)
{
    int most = 0;
    for (int c = 1; c < DEVICE_CLASSES; c++)
        if (memory->class_bytes[c] > memory->class_bytes[most])
            most = c;
    return most;
}

/* ---- words ---- */

void memory_say_part(const struct memory *memory, int class, char *text, size_t size)
{
    int top = memory->top[class];
    const char *part = top < 0 ? "" : memory->largest[top].text;
    snprintf(text, size, "%s%s%s", top < 0 ? "nothing" : memory_item_name(top),
             part[0] != '\0' ? ": " : "", part);
}

void memory_say(const struct memory *memory, int class, double by, const char *unit, char *text,
                size_t size)
{
    int top = memory->top[class];
    int n = snprintf(text, size, "%.1f %s of it for %s", (double)memory->class_bytes[class] / by,
                     unit, device_class_name(class));
    if (top < 0 || n < 0 || (size_t)n >= size)
        return;
    const struct memory_part *part = &memory->largest[top];
    bool named = part->text[0] != '\0';
    snprintf(text + n, size - (size_t)n, " (largest: %s, %.2f %s)",
             named ? part->text : memory_item_name(top),
             (double)(named ? part->bytes : memory->item[top]) / by, unit);
}
