/* Ops on different streams that touch the same bytes, one of them writing, are ordered by waits and
 * streams, within a step and from one step to the next; without any one wait they would not be. */
#include "tests/test.h"

#include <stdlib.h>

#include "base/err.h"
#include "workloads/touch.h"
#include "workloads/transformer.h"

enum { STREAMS = 2 + PLAN_CHANNELS };

struct touches {
    int n;
    struct touch touch[TOUCHES];
};

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
        o->touches[i].n = touch_op(plan, &plan->ops[i], o->touches[i].touch);
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

static int64_t end_of(const struct touch *touch)
{
    return touch->t.offset + touch_bytes(touch);
}

static bool conflict(const struct touches *a, const struct touches *b)
{
    for (int i = 0; i < a->n; i++)
        for (int j = 0; j < b->n; j++) {
            const struct touch *x = &a->touch[i], *y = &b->touch[j];
            if (x->t.buffer == y->t.buffer && x->t.offset < end_of(y) && y->t.offset < end_of(x) &&
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
    const char *model, *parallel;
    int ranks;
    int64_t micro_batches, bucket_bytes;
    bool overlap, narrow; /* narrow: bf16 parameters and gradients on their way */
    int chunks;
    enum recompute recompute;
    bool copy_stream;
    enum cp_kind cp_kind;
};

static void make(struct plan *plan, struct model *model, const struct which *which)
{
    struct degrees degrees = {0};
    struct layout layout;
    struct policy policy;
    CHECK_EQ(model_load(model, which->model), 0);
    model->layers = which->ranks > 4 ? 1 : 2;
    model->vocabulary = 250; /* padded to 256 */
    model->sequence = 16;
    policy_defaults(&policy, model);
    CHECK_EQ(layout_parse(which->parallel, &degrees), 0);
    CHECK_EQ(layout_init(&layout, which->ranks, 1, which->ranks - 1, &degrees), 0);
    policy.micro_batch = 2;
    policy.global_batch = layout.degrees.dp * which->micro_batches * policy.micro_batch;
    policy.bucket_bytes = which->bucket_bytes;
    policy.overlap_gradients = policy.overlap_tensor = which->overlap;
    policy.overlap_context = which->overlap;
    policy.cp_kind = which->cp_kind;
    policy.dtype = policy.grad_dtype = which->narrow ? DTYPE_BF16 : DTYPE_F32;
    policy.tp_chunks = which->chunks;
    policy.recompute = which->recompute;
    policy.copy_stream = which->copy_stream;
    CHECK_EQ(transformer_plan(plan, model, &layout, &policy), 0);
}

static int count(const struct plan *plan, enum op_kind kind)
{
    int n = 0;
    for (int i = 0; i < plan->n_ops; i++)
        n += plan->ops[i].kind == kind;
    return n;
}

/* Backward writes each gradient once a micro-batch, a tied wte's twice (its padded rows once), so the
 * extents are those of whole tensors. Parameters are written once, by AdamW. */
static void check_extents(const struct order *o, const struct model *model)
{
    int64_t gradients = 0, parameters = 0, size = (int64_t)dtype_size((int)o->plan->dtype);
    for (int i = 0; i < o->plan->n_ops; i++)
        for (int j = 0; j < o->touches[i].n; j++) {
            const struct touch *t = &o->touches[i].touch[j];
            CHECK(t->t.offset >= 0 && end_of(t) <= o->plan->bytes[t->t.buffer]);
            if (t->writes && t->t.buffer == BUFFER_GRADIENT && o->plan->ops[i].kind != OP_ZERO &&
                o->plan->ops[i].phase == PHASE_BACKWARD)
                gradients += touch_bytes(t);
            if (t->writes && t->t.buffer == BUFFER_PARAMETER)
                parameters += touch_bytes(t);
        }
    CHECK_EQ(parameters, size * o->plan->n_parameters);
    if (o->plan->layout.degrees.tp == 1 &&
        !(o->plan->packed && o->plan->passing[BUFFER_GRADIENT])) {
        int64_t padded = model_padded_vocabulary(model) - model->vocabulary;
        int64_t twice = model->tied ? model->vocabulary : -padded;
        CHECK_EQ(gradients,
                 4 * o->plan->micro_batches * (o->plan->n_parameters + twice * model->hidden));
    }
}

/* A wait that the other waits imply protects nothing; without any other, bytes are raced for, but
 * where tensor or context parallelism was told to wait for each call. */
static int check_without(struct order *o, bool overlap)
{
    int needed = 0;
    for (int i = 0; i < o->plan->n_ops; i++) {
        const struct op *op = &o->plan->ops[i];
        for (int w = 0; w < op->n_waits; w++) {
            order_follow(o, i, w);
            if (ordered(o, op->wait[w], i))
                continue;
            needed++;
            const struct degrees *d = &o->plan->layout.degrees;
            bool is_told = !overlap && (d->tp > 1 || d->cp > 1) && op->stream == 0;
            if (!CHECK(order_check(o).unordered > 0 || is_told))
                printf("%s %d of layer %d needs not wait for %s %d\n", op_name((int)op->kind), i,
                       op->layer, op_name((int)o->plan->ops[op->wait[w]].kind), op->wait[w]);
        }
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
        printf("%s %s, overlap %d, buckets of %lld, %d chunks, recompute %d: %s %d and %s %d touch "
               "the same bytes\n",
               which->model, which->parallel, which->overlap, (long long)which->bucket_bytes,
               which->chunks, (int)which->recompute, op_name((int)plan.ops[a].kind), pairs.earlier,
               op_name((int)plan.ops[b].kind), pairs.later);
    }
    int calls = count(&plan, OP_COLLECTIVE);
    bool split = plan.layout.degrees.tp > 1 || plan.layout.degrees.cp > 1;
    CHECK_EQ(calls > 0, which->ranks > 1);
    /* A call meets at least the op that wrote its bytes and the one that reads them, twice. */
    CHECK(pairs.conflicts >= 4 * calls);
    int needed = check_without(&order, which->overlap);
    if (split || which->copy_stream)
        CHECK(needed >= calls);
    /* Each bucket holds up its sum of squares; the sums and one bucket at least await a writer. */
    else
        CHECK(calls == 0 ? needed == 0 : needed >= calls - 1 + 2);
    if (calls > 0 && which->overlap && which->bucket_bytes > 1 && !split && !which->copy_stream)
        CHECK_EQ(needed, calls - 1 + calls); /* each bucket has a writer of its own */
    order_release(&order);
    plan_release(&plan);
}

/* ---- pipelines ---- */

struct stage {
    const char *model, *parallel;
    int ranks;
    enum schedule_kind schedule;
    int chunks, rank;
    enum recompute recompute;
    bool copy_stream, tied;
};

/* All that touch the same bytes are ordered, over two steps; and each receive and send needs a wait. */
static void check_stage(const struct stage *stage)
{
    struct degrees degrees = {0};
    struct model model;
    struct layout layout;
    struct policy policy;
    struct plan plan;
    struct order order;
    CHECK_EQ(model_load(&model, stage->model), 0);
    model.layers = 4;
    model.sequence = 16;
    model.tied = stage->tied;
    policy_defaults(&policy, &model);
    CHECK_EQ(layout_parse(stage->parallel, &degrees), 0);
    CHECK_EQ(layout_init(&layout, stage->ranks, 1, stage->rank, &degrees), 0);
    policy.micro_batch = 1;
    policy.global_batch = layout.degrees.dp * 4;
    policy.schedule = stage->schedule;
    policy.virtual_stages = stage->chunks;
    policy.recompute = stage->recompute;
    policy.copy_stream = stage->copy_stream;
    policy.overlap_pipeline = policy.overlap_expert = stage->rank % 2 == 0;
    if (stage->rank / 2 % 2 == 0) /* of dense models nothing */
        CHECK_EQ(routing_parse("learned", "none", &policy.routing), 0);
    CHECK_EQ(transformer_plan(&plan, &model, &layout, &policy), 0);
    order_open(&order, &plan);
    order_follow(&order, -1, -1);
    struct pairs pairs = order_check(&order);
    if (!CHECK_EQ(pairs.unordered, 0)) {
        const struct op *a = &plan.ops[pairs.earlier % plan.n_ops];
        const struct op *b = &plan.ops[pairs.later % plan.n_ops];
        printf("%s %s of %s, rank %d: %s %d (micro %d) and %s %d (micro %d) touch the same bytes\n",
               stage->model, schedule_name((int)stage->schedule), stage->parallel, stage->rank,
               op_name((int)a->kind), pairs.earlier, a->micro, op_name((int)b->kind), pairs.later,
               b->micro);
    }
    for (int i = 0, w; i < plan.n_ops; i++) { /* planted: what a send waits for is left out */
        const struct op *op = &plan.ops[i];
        if (op->kind != OP_COLLECTIVE || op->shape.coll.coll.kind != COLL_SEND)
            continue;
        for (w = 0; w < op->n_waits && plan.ops[op->wait[w]].stream != 0;)
            w++;
        order_follow(&order, i, w);
        CHECK(w < op->n_waits && order_check(&order).unordered > 0);
        break;
    }
    order_release(&order);
    plan_release(&plan);
}

static void all_stages(void)
{
    static const struct stage stages[] = {
        {"tiny", "pp=2", 2, SCHEDULE_GPIPE, 1, 0, RECOMPUTE_NONE, false, true},
        {"tiny", "pp=4", 4, SCHEDULE_1F1B, 1, 0, RECOMPUTE_NONE, true, true},
        {"tiny-llama", "pp=2,tp=2", 4, SCHEDULE_1F1B, 1, 0, RECOMPUTE_FULL, false, false},
        {"tiny", "pp=2", 2, SCHEDULE_INTERLEAVED, 2, 0, RECOMPUTE_SELECTIVE, true, false},
        {"tiny", "pp=2,dp=2,shard=2", 4, SCHEDULE_INTERLEAVED, 2, 0, RECOMPUTE_NONE, true, true},
        {"tiny", "pp=4", 4, SCHEDULE_ZB_H1, 1, 0, RECOMPUTE_NONE, false, true},
        {"tiny-llama", "pp=2,tp=2", 4, SCHEDULE_ZB_H1, 1, 0, RECOMPUTE_SELECTIVE, true, true},
        {"tiny", "pp=2,cp=2", 4, SCHEDULE_1F1B, 1, 0, RECOMPUTE_NONE, false, true},
        {"tiny-moe", "ep=4", 4, SCHEDULE_1F1B, 1, 0, RECOMPUTE_NONE, true, false},
        {"tiny-moe", "tp=2,ep=2", 4, SCHEDULE_1F1B, 1, 0, RECOMPUTE_FULL, false, false},
        {"tiny-moe", "tp=2,ep=2,etp=1", 4, SCHEDULE_1F1B, 1, 0, RECOMPUTE_NONE, true, false},
        {"tiny-moe", "pp=2,ep=2", 4, SCHEDULE_1F1B, 1, 0, RECOMPUTE_FULL, true, false},
        {"tiny-moe", "cp=2,ep=4", 4, SCHEDULE_1F1B, 1, 0, RECOMPUTE_NONE, false, false},
        {"tiny-moe", "ep=2,shard=2", 4, SCHEDULE_1F1B, 1, 0, RECOMPUTE_FULL, false, false},
        {"tiny-moe", "ep=2,shard=2", 2, SCHEDULE_1F1B, 1, 0, RECOMPUTE_NONE, false, false},
        {"tiny-moe", "ep=2,tp=2,etp=1,shard=2", 4, SCHEDULE_1F1B, 1, 0, RECOMPUTE_NONE, true,
         false},
    };
    for (size_t i = 0; i < sizeof stages / sizeof *stages; i++) {
        struct stage stage = stages[i];
        for (stage.rank = 0; stage.rank < stage.ranks; stage.rank++)
            check_stage(&stage);
    }
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
    static const int replicas[] = {1, 3};
    static const int64_t buckets[] = {1, 20000, 25 << 20};
    for (size_t i = 0; i < 2; i++)
        for (size_t j = 0; j < 3; j++)
            for (int64_t micro_batches = 1; micro_batches <= 3; micro_batches += 2)
                for (int overlap = 0; overlap < 2; overlap++)
                    check_plan(&(struct which){.model = "tiny",
                                               .parallel = "",
                                               .ranks = replicas[i],
                                               .micro_batches = micro_batches,
                                               .bucket_bytes = buckets[j],
                                               .overlap = overlap,
                                               .narrow = j == 1,
                                               .chunks = 1});
    static const struct which others[] = {
        {"tiny", "", 2, 3, 20000, true, true, 1, RECOMPUTE_FULL, true, CP_RING},
        {"tiny-llama", "", 1, 2, 20000, true, false, 1, RECOMPUTE_SELECTIVE, true, CP_RING},
        {"tiny", "tp=2", 2, 2, 20000, true, false, 1, RECOMPUTE_NONE, false, CP_RING},
        {"tiny", "tp=4,dp=2", 8, 1, 20000, true, true, 2, RECOMPUTE_FULL, true, CP_RING},
        {"tiny", "tp=2,dp=2", 4, 2, 20000, false, false, 4, RECOMPUTE_SELECTIVE, false, CP_RING},
        {"tiny-llama", "tp=2,dp=2", 4, 2, 20000, true, true, 2, RECOMPUTE_FULL, false, CP_RING},
        {"tiny-llama", "tp=16", 16, 1, 20000, true, false, 1, RECOMPUTE_NONE, true, CP_RING},
        {"tiny", "cp=2", 2, 2, 20000, true, false, 1, RECOMPUTE_NONE, false, CP_RING},
        {"tiny-llama", "cp=4", 4, 1, 20000, true, true, 1, RECOMPUTE_FULL, true, CP_RING},
        {"tiny", "cp=4,dp=2", 8, 1, 20000, false, false, 1, RECOMPUTE_SELECTIVE, false, CP_RING},
        {"tiny-llama", "cp=2,tp=2", 4, 2, 20000, true, true, 1, RECOMPUTE_NONE, false,
         CP_ALL_GATHER},
        {"tiny", "cp=4", 4, 2, 20000, true, false, 1, RECOMPUTE_SELECTIVE, true, CP_ALL_GATHER},
        {"tiny", "cp=2,dp=2", 4, 2, 20000, true, true, 1, RECOMPUTE_FULL, true, CP_ULYSSES},
        {"tiny-llama", "cp=2", 2, 1, 20000, false, false, 1, RECOMPUTE_SELECTIVE, false,
         CP_ULYSSES},
    };
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        check_plan(&others[i]);
    all_stages();
    return test_end();
}
