/* Ops on different streams that touch the same bytes, one of them writing, are ordered by waits and
 * streams, within a step and from one step to the next; without any one wait they would not be. */
#include "tests/test.h"

#include <stdlib.h>

#include "base/err.h"
#include "workloads/kernels/kernels.h"
#include "workloads/transformer.h"

enum { MOST_TOUCHES = OP_TENSORS, STREAMS = 1 + PLAN_CHANNELS };

/* ---- what an op touches, as plan.h says ---- */

struct touch {
    int buffer;
    int64_t from, to; /* bytes */
    bool writes;
};

struct touches {
    int n;
    struct touch touch[MOST_TOUCHES];
};

static void touch(struct touches *list, struct tensor t, int64_t bytes, bool writes)
{
    if (t.buffer != BUFFER_NONE && bytes > 0)
        list->touch[list->n++] = (struct touch){t.buffer, t.offset, t.offset + bytes, writes};
}

/* Doubles [first, last] of the scalars. */
static void touch_scalars(struct touches *list, struct tensor scalars, int first, int last,
                          bool writes)
{
    scalars.offset += first * (int64_t)sizeof(double);
    touch(list, scalars, (last - first + 1) * (int64_t)sizeof(double), writes);
}

static void touch_embed(struct touches *list, const struct op *op)
{
    const struct shape_rows *s = &op->shape.rows;
    bool grad = op->kind == OP_EMBED_GRAD;
    touch(list, op->t[0], 4 * s->rows, false);
    touch(list, op->t[grad ? 2 : 1], 4 * s->valid * s->width, grad);
    touch(list, op->t[grad ? 3 : 2], 4 * s->sequence * s->width, grad);
    touch(list, op->t[grad ? 1 : 3], 4 * s->rows * s->width, !grad);
}

static void touch_norm(struct touches *list, const struct op *op)
{
    int64_t rows = op->shape.rows.rows, width = op->shape.rows.width;
    bool grad = op->kind == OP_NORM_GRAD;
    int64_t matrix = 4 * rows * width, column = 4 * rows, row = 4 * width;
    const int64_t forth[] = {matrix, row, row, matrix, column, column};
    const int64_t back[] = {matrix, matrix, row, column, column, matrix, row, row};
    for (int i = 0; i < (grad ? 8 : 6); i++)
        touch(list, op->t[i], grad ? back[i] : forth[i], i >= (grad ? 5 : 3));
}

static void touch_attention(struct touches *list, const struct op *op)
{
    const struct shape_attention *s = &op->shape.attention;
    int64_t rows = s->batch * s->sequence, lse = 4 * rows * s->heads;
    int64_t out = 4 * rows * s->heads * s->head;
    int64_t qkv = 4 * rows * (s->heads + 2 * s->kv_heads) * s->head;
    bool grad = op->kind == OP_ATTENTION_GRAD;
    const int64_t forth[] = {qkv, out, lse}, back[] = {out, qkv, out, lse, qkv};
    int n = grad ? 5 : 3;
    for (int i = 0; i < n; i++)
        touch(list, op->t[i], grad ? back[i] : forth[i], grad ? i == 4 : i > 0);
    touch(list, op->t[n], kernels_attention_workspace(s), true);
}

static void touch_gemm(struct touches *list, const struct op *op)
{
    const struct shape_gemm *s = &op->shape.gemm;
    touch(list, op->t[0], 4 * s->m * s->k, false);
    touch(list, op->t[1], 4 * s->k * s->n, false);
    touch(list, op->t[2], 4 * s->m * s->n, true);
    touch(list, op->t[3], 4 * s->n, false);
}

static void touch_vectors(struct touches *list, const struct op *op)
{
    for (int i = 0; i < 3; i++) /* what is not there is BUFFER_NONE */
        touch(list, op->t[i], 4 * op->shape.vector.n,
              i == (op->kind == OP_ZERO   ? 0
                    : op->kind == OP_GELU ? 1
                                          : 2));
}

static void touch_loss(struct touches *list, const struct op *op)
{
    const struct shape_rows *s = &op->shape.rows;
    touch(list, op->t[0], 4 * s->rows * s->width, true);
    touch(list, op->t[1], 4 * s->rows, false);
    touch(list, op->t[2], s->rows, false);
    touch_scalars(list, op->t[3], SCALAR_LOSS_SUM, SCALAR_TOKENS, true);
}

static void touch_update(struct touches *list, const struct op *op)
{
    if (op->kind == OP_SUMSQ) {
        touch(list, op->t[0], 4 * op->shape.vector.n, false);
        touch_scalars(list, op->t[1], SCALAR_SUMSQ, SCALAR_SUMSQ, true);
    } else if (op->kind == OP_CLIP) {
        touch_scalars(list, op->t[0], SCALAR_LOSS_SUM, SCALAR_SUMSQ, false);
        touch_scalars(list, op->t[0], SCALAR_NORM, SCALAR_SKIPPED, true);
    } else {
        for (int i = 0; i < 4; i++)
            touch(list, op->t[i], 4 * op->shape.optimizer.n, i != 1);
        touch_scalars(list, op->t[4], SCALAR_SCALE, SCALAR_SKIPPED, false);
    }
}

static void touch_coll(struct touches *list, const struct op *op, const struct plan *plan)
{
    const struct coll *coll = &op->shape.coll.coll;
    int n = plan->layout.group[op->shape.coll.axis].size;
    int64_t size = (int64_t)dtype_size((int)coll->dtype);
    touch(list, op->t[0], size * coll_send_count(coll, n), false);
    touch(list, op->t[1], size * coll_recv_count(coll, n), true);
}

static void touch_op(struct touches *list, const struct op *op, const struct plan *plan)
{
    static void (*const by_kind[OP_KINDS])(struct touches *, const struct op *) = {
        [OP_ZERO] = touch_vectors,        [OP_EMBED] = touch_embed,
        [OP_EMBED_GRAD] = touch_embed,    [OP_NORM] = touch_norm,
        [OP_NORM_GRAD] = touch_norm,      [OP_GEMM] = touch_gemm,
        [OP_ATTENTION] = touch_attention, [OP_ATTENTION_GRAD] = touch_attention,
        [OP_GELU] = touch_vectors,        [OP_GELU_GRAD] = touch_vectors,
        [OP_ADD] = touch_vectors,         [OP_CROSS_ENTROPY] = touch_loss,
        [OP_SUMSQ] = touch_update,        [OP_CLIP] = touch_update,
        [OP_ADAMW] = touch_update,
    };
    list->n = 0;
    if (op->kind == OP_COLLECTIVE) {
        touch_coll(list, op, plan);
    } else if (op->kind == OP_BIAS_GRAD) {
        touch(list, op->t[0], 4 * op->shape.rows.rows * op->shape.rows.width, false);
        touch(list, op->t[1], 4 * op->shape.rows.width, true);
    } else if (op->kind == OP_INPUT) {
        int64_t rows = op->shape.input.samples * op->shape.input.sequence;
        for (int i = 0; i < 3; i++)
            touch(list, op->t[i], i < 2 ? 4 * rows : rows, true);
    } else {
        by_kind[op->kind](list, op);
    }
}

/* ---- order ---- */

/* Two steps of a plan in a row. Op i of step s is s n_ops + i. */
struct order {
    const struct plan *plan;
    struct touches *touches; /* [n_ops] */
    int (*known)[STREAMS]; /* [2 n_ops] the latest op of each stream that has finished before; -1 */
};

static void order_open(struct order *o, const struct plan *plan)
{
    size_t n = (size_t)plan->n_ops;
    *o = (struct order){plan, must_alloc(n, sizeof *o->touches),
                        must_alloc(2 * n, sizeof *o->known)};
    for (int i = 0; i < plan->n_ops; i++)
        touch_op(&o->touches[i], &plan->ops[i], plan);
}

static void order_release(struct order *o)
{
    free(o->touches);
    free(o->known);
}

static void learn(int *known, const int *other)
{
    for (int s = 0; s < STREAMS; s++)
        known[s] = other[s] > known[s] ? other[s] : known[s];
}

/* Follow streams and waits, leaving out wait `without_wait` of op `without_op` (-1: none). */
static void order_follow(struct order *o, int without_op, int without_wait)
{
    int n = o->plan->n_ops, last[STREAMS];
    for (int s = 0; s < STREAMS; s++)
        last[s] = -1;
    for (int i = 0; i < 2 * n; i++) {
        const struct op *op = &o->plan->ops[i % n];
        int *known = o->known[i], before = last[op->stream];
        for (int s = 0; s < STREAMS; s++)
            known[s] = before < 0 ? -1 : o->known[before][s];
        for (int w = 0; w < op->n_waits; w++)
            if (i % n != without_op || w != without_wait)
                learn(known, o->known[i / n * n + op->wait[w]]);
        known[op->stream] = i;
        last[op->stream] = i;
    }
}

static bool ordered(const struct order *o, int earlier, int later)
{
    return o->known[later][o->plan->ops[earlier % o->plan->n_ops].stream] >= earlier;
}

static bool conflict(const struct touches *a, const struct touches *b)
{
    for (int i = 0; i < a->n; i++)
        for (int j = 0; j < b->n; j++) {
            const struct touch *x = &a->touch[i], *y = &b->touch[j];
            if (x->buffer == y->buffer && x->from < y->to && y->from < x->to &&
                (x->writes || y->writes))
                return true;
        }
    return false;
}

/* Pairs on different streams that touch the same bytes, at least one writing. */
struct pairs {
    int64_t conflicts, unordered;
    int earlier, later; /* the first unordered pair */
};

static void look_at(const struct order *o, int earlier, int later, struct pairs *out)
{
    int n = o->plan->n_ops;
    if (o->plan->ops[earlier % n].stream == o->plan->ops[later % n].stream ||
        !conflict(&o->touches[earlier % n], &o->touches[later % n]))
        return;
    out->conflicts++;
    if (ordered(o, earlier, later))
        return;
    if (out->unordered++ == 0) {
        out->earlier = earlier;
        out->later = later;
    }
}

/* A pair of compute ops shares a stream: one of the two is a collective. */
static struct pairs order_check(const struct order *o)
{
    int n = o->plan->n_ops;
    struct pairs pairs = {0};
    for (int i = 0; i < 2 * n; i++) {
        if (o->plan->ops[i % n].stream == 0)
            continue;
        for (int j = 0; j < 2 * n; j++)
            if (j < i && o->plan->ops[j % n].stream < o->plan->ops[i % n].stream)
                look_at(o, j, i, &pairs);
            else if (j > i && o->plan->ops[j % n].stream < o->plan->ops[i % n].stream)
                look_at(o, i, j, &pairs);
    }
    return pairs;
}

/* ---- plans ---- */

struct which {
    int replicas;
    int64_t micro_batches, bucket_bytes;
    bool overlap;
};

static void make(struct plan *plan, struct model *model, const struct which *which)
{
    struct degrees degrees = {0};
    struct layout layout;
    struct policy policy;
    CHECK_EQ(model_load(model, "tiny"), 0);
    model->layers = 3;
    model->vocabulary = 250; /* padded to 256 */
    model->sequence = 16;
    policy_defaults(&policy, model);
    policy.micro_batch = 2;
    policy.global_batch = which->replicas * which->micro_batches * policy.micro_batch;
    policy.bucket_bytes = which->bucket_bytes;
    policy.overlap_gradients = which->overlap;
    CHECK_EQ(layout_parse("", &degrees), 0);
    CHECK_EQ(layout_init(&layout, which->replicas, 1, which->replicas - 1, &degrees), 0);
    CHECK_EQ(transformer_plan(plan, model, &layout, &policy), 0);
}

static int count(const struct plan *plan, enum op_kind kind)
{
    int n = 0;
    for (int i = 0; i < plan->n_ops; i++)
        n += plan->ops[i].kind == kind;
    return n;
}

/* Backward writes each gradient once a micro-batch, wte's twice (its padded rows once): so the
 * extents above are those of whole tensors. Parameters are written once, by AdamW. */
static void check_extents(const struct order *o, const struct model *model)
{
    int64_t gradients = 0, parameters = 0;
    for (int i = 0; i < o->plan->n_ops; i++)
        for (int j = 0; j < o->touches[i].n; j++) {
            const struct touch *t = &o->touches[i].touch[j];
            CHECK(t->from >= 0 && t->to <= o->plan->bytes[t->buffer]);
            if (t->writes && t->buffer == BUFFER_GRADIENT &&
                o->plan->ops[i].phase == PHASE_BACKWARD)
                gradients += t->to - t->from;
            if (t->writes && t->buffer == BUFFER_PARAMETER)
                parameters += t->to - t->from;
        }
    CHECK_EQ(parameters, 4 * o->plan->n_parameters);
    CHECK_EQ(gradients, 4 * o->plan->micro_batches *
                            (o->plan->n_parameters + model->vocabulary * model->hidden));
}

/* A wait that the other waits imply protects nothing; without any other, bytes are raced for. */
static int check_without(struct order *o)
{
    int needed = 0;
    for (int i = 0; i < o->plan->n_ops; i++)
        for (int w = 0; w < o->plan->ops[i].n_waits; w++) {
            order_follow(o, i, w);
            if (ordered(o, o->plan->ops[i].wait[w], i))
                continue;
            needed++;
            CHECK(order_check(o).unordered > 0);
        }
    return needed;
}

static void check_plan(const struct which *which)
{
    struct model model;
    struct plan plan;
    struct order order;
    make(&plan, &model, which);
    order_open(&order, &plan);
    check_extents(&order, &model);
    order_follow(&order, -1, -1);
    struct pairs pairs = order_check(&order);
    if (!CHECK_EQ(pairs.unordered, 0)) {
        int a = pairs.earlier % plan.n_ops, b = pairs.later % plan.n_ops;
        printf("%d replicas, overlap %d, buckets of %lld: %s %d and %s %d touch the same bytes\n",
               which->replicas, which->overlap, (long long)which->bucket_bytes,
               op_name((int)plan.ops[a].kind), pairs.earlier, op_name((int)plan.ops[b].kind),
               pairs.later);
    }
    int calls = count(&plan, OP_COLLECTIVE);
    CHECK_EQ(calls > 0, which->replicas > 1);
    /* A call meets at least the op that wrote its bytes and the one that reads them, twice. */
    CHECK(pairs.conflicts >= 4 * calls);
    int needed = check_without(&order);
    /* Each bucket holds up its sum of squares; the sums and one bucket at least await a writer. */
    CHECK(calls == 0 ? needed == 0 : needed >= calls - 1 + 2);
    if (calls > 0 && which->overlap && which->bucket_bytes > 1)
        CHECK_EQ(needed, calls - 1 + calls); /* each bucket has a writer of its own */
    order_release(&order);
    plan_release(&plan);
}

/* Of several ops of one stream the latest is waited for; an op's own stream needs no wait. */
static void waits_are_the_latest(void)
{
    static const int orders[][2] = {{0, 1}, {1, 0}};
    for (size_t i = 0; i < 2; i++) {
        struct degrees degrees = {0};
        struct layout layout;
        struct plan plan;
        CHECK_EQ(layout_init(&layout, 2, 1, 0, &degrees), 0);
        plan_init(&plan, &layout);
        struct op compute = {.kind = OP_ADD};
        struct op call = {.kind = OP_COLLECTIVE, .stream = plan_channel(&plan, AXIS_DP, 0)};
        struct op other = {.kind = OP_COLLECTIVE, .stream = plan_channel(&plan, AXIS_DP, 1)};
        const struct op *ops[] = {&compute, &compute, &other, &call};
        for (size_t j = 0; j < sizeof ops / sizeof ops[0]; j++)
            plan_op(&plan, ops[j]);
        plan_wait(&plan, 3, orders[i][0]);
        plan_wait(&plan, 3, orders[i][1]);
        CHECK_EQ(plan.ops[3].n_waits, 1);
        CHECK_EQ(plan.ops[3].wait[0], 1);
        plan_wait(&plan, 3, 2);
        CHECK_EQ(plan.ops[3].n_waits, 2);
        CHECK_EQ(plan.ops[3].wait[1], 2);
        plan_wait(&plan, 1, 0);
        CHECK_EQ(plan.ops[1].n_waits, 0);
        plan_release(&plan);
    }
}

int main(void)
{
    waits_are_the_latest();
    static const int replicas[] = {1, 2, 4};
    static const int64_t buckets[] = {1, 20000, 25 << 20};
    for (size_t i = 0; i < 3; i++)
        for (size_t j = 0; j < 3; j++)
            for (int64_t micro_batches = 1; micro_batches <= 3; micro_batches += 2)
                for (int overlap = 0; overlap < 2; overlap++)
                    check_plan(&(struct which){replicas[i], micro_batches, buckets[j], overlap});
    return test_end();
}
