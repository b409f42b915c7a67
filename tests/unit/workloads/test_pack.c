/* A packed plan does what the plan does, in fewer bytes, for every way of splitting; values that only
 * the order of the plan keeps apart do not share; and the proof finds each way in which bytes could be
 * shared wrongly. */
#include "tests/test.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "workloads/fuse.h"
#include "workloads/overwrite.h"
#include "workloads/pack.h"
#include "workloads/plan_check.h"
#include "workloads/plan_check_share.h"
#include "workloads/touch.h"
#include "workloads/transformer.h"

static const struct tensor none;

/* A copy whose ops are its own. */
static void copy_plan(struct plan *to, const struct plan *from)
{
    *to = *from;
    to->ops = must_alloc((size_t)from->n_ops, sizeof *to->ops);
    memcpy(to->ops, from->ops, (size_t)from->n_ops * sizeof *to->ops);
}

static int64_t bytes_of(const struct plan *plan)
{
    int64_t bytes = 0;
    for (int b = 1; b < PLAN_BUFFERS; b++)
        bytes += plan->bytes[b];
    return bytes;
}

/* ---- plans of models ---- */

struct which {
    const char *model, *parallel;
    int ranks;
    int64_t micro_batches;
    enum recompute recompute;
    bool narrow, no_overlap, copy_stream;
    int stage;
    enum schedule_kind schedule;
    enum cp_kind cp_kind;
    int tp_chunks;
};

static int make(struct plan *plan, const struct which *w, int rank)
{
    struct degrees degrees = {0};
    struct layout layout;
    struct policy policy;
    struct model model;
    CHECK_EQ(model_load(&model, w->model), 0);
    model.layers = 4;
    model.sequence = 16;
    policy_defaults(&policy, &model);
    CHECK_EQ(layout_parse(w->parallel, &degrees), 0);
    CHECK_EQ(layout_init(&layout, w->ranks, 1, rank, &degrees), 0);
    policy.pack = CHOICE_OFF;
    policy.micro_batch = 2;
    policy.global_batch = layout.degrees.dp * w->micro_batches * policy.micro_batch;
    policy.dtype = policy.grad_dtype = w->narrow ? DTYPE_BF16 : DTYPE_F32;
    policy.recompute = w->recompute;
    policy.copy_stream = w->copy_stream;
    policy.shard_stage = w->stage ? w->stage : 3;
    policy.schedule = w->schedule;
    policy.virtual_stages = w->schedule == SCHEDULE_INTERLEAVED ? 2 : 1;
    policy.cp_kind = w->cp_kind;
    policy.head_chunks =
        layout.degrees.tp * layout.degrees.pp == 1 && w->ranks % 2 == 0 ? w->ranks : 1;
    policy.tp_chunks = w->tp_chunks > 0 ? w->tp_chunks : 1;
    policy.overlap_gradients = policy.overlap_parameters = !w->no_overlap;
    policy.overlap_tensor = policy.overlap_context = !w->no_overlap;
    return transformer_plan(plan, &model, &layout, &policy);
}

static int make_for_check(void *arg, int rank, struct plan *out)
{
    int rc = make(out, arg, rank);
    out->pack_later = true;
    return rc;
}

/* One plan of each kind is packed by the check; the others hold as much as if they had been. */
static void check_kinds(const struct which *w)
{
    struct which copy = *w;
    struct plan_check check;
    int64_t most = 0, least = INT64_MAX;
    if (!CHECK_EQ(plan_check_all(&check, w->ranks, make_for_check, &copy), 0))
        printf("%s %s: %s\n", w->model, w->parallel, fail_message());
    fail_clear();
    for (int rank = 0; rank < w->ranks; rank++) {
        struct plan plan;
        CHECK_EQ(make(&plan, w, rank), 0);
        plan_pack(&plan, NULL);
        most = bytes_of(&plan) > most ? bytes_of(&plan) : most;
        least = bytes_of(&plan) < least ? bytes_of(&plan) : least;
        plan_release(&plan);
    }
    CHECK_EQ(check.most_bytes, most);
    CHECK_EQ(check.least_bytes, least);
}

/* What is registered for calls holds all that they touch, and of the arena no more than is there. */
static void check_called(const struct plan *packed)
{
    for (int i = 0; i < packed->n_ops; i++) {
        const struct op *op = &packed->ops[i];
        struct touch touch[TOUCHES];
        int n = op->kind == OP_COLLECTIVE ? touch_op(packed, op, touch) : 0;
        for (int j = 0; j < n; j++) {
            int64_t bytes = pack_called_bytes(packed, op->stream, touch[j].t.buffer);
            CHECK(touch[j].t.offset + touch_bytes(&touch[j]) <= bytes);
            CHECK(bytes <= packed->bytes[touch[j].t.buffer]);
        }
    }
}

static int count_pairs(const struct plan *plan)
{
    struct fusion fusion;
    int n = 0;
    fuse_pairs(&fusion, plan);
    for (int i = 0; i < plan->n_ops; i++)
        n += fusion.with[i] >= 0;
    fuse_release(&fusion);
    return n;
}

static int count_first(const struct plan *plan)
{
    struct overwrite overwrite = {0};
    int n = 0;
    overwrite_find(&overwrite, plan);
    for (int i = 0; i < plan->n_ops; i++)
        n += overwrite.first[i];
    overwrite_release(&overwrite);
    return n;
}

/* What lives at the fullest op is told by arena; the loads of experts stay where the plan says they are. */
static void check_found(const struct plan *plan, const struct plan *packed,
                        const struct pack_found *found)
{
    int64_t sum = 0;
    for (int b = 0; b < PLAN_BUFFERS; b++)
        sum += found->at_op[b];
    CHECK_EQ(sum, found->live);
    CHECK(found->live == 0 ? found->op == -1 : found->op >= 0 && found->op < plan->n_ops);
    CHECK(packed->packed && !plan->packed);
    for (int i = 0; i < plan->n_ops; i++) {
        const struct tensor *before = &plan->ops[i].t[5], *after = &packed->ops[i].t[5];
        if (plan->ops[i].kind != OP_ROUTE || plan->ops[i].again) /* which adds to no load */
            continue;
        CHECK_EQ(after->buffer, packed->load.buffer);
        CHECK_EQ(after->offset - packed->load.offset, before->offset - plan->load.offset);
    }
}

static void check_packed(const struct which *w, int rank)
{
    struct plan plan, packed, again;
    struct pack_found found;
    if (!CHECK_EQ(make(&plan, w, rank), 0)) {
        printf("%s %s: %s\n", w->model, w->parallel, fail_message());
        return;
    }
    copy_plan(&packed, &plan);
    copy_plan(&again, &plan);
    plan_pack(&packed, &found);
    plan_pack(&again, NULL);
    packed.sealed = false;
    CHECK_EQ(plan_seal(&packed), 0);
    if (!CHECK_EQ(plan_check_share(&plan, &packed), 0))
        printf("%s %s, rank %d: %s\n", w->model, w->parallel, rank, fail_message());
    fail_clear();
    CHECK(bytes_of(&packed) <= bytes_of(&plan));
    CHECK_EQ(bytes_of(&plan) - bytes_of(&packed), found.before - found.after);
    CHECK(found.live <= found.after);
    check_found(&plan, &packed, &found);
    for (int i = 0; i < plan.n_ops; i++) /* a function of the plan */
        CHECK(memcmp(packed.ops[i].t, again.ops[i].t, sizeof packed.ops[i].t) == 0);
    if (rank == 0)
        check_called(&packed);
    CHECK_EQ(count_pairs(&packed), count_pairs(&plan));
    CHECK_EQ(count_first(&packed), count_first(&plan));
    free(packed.ops);
    free(again.ops);
    plan_release(&plan);
}

static void packs_every_way(void)
{
    static const struct which ways[] = {
        {.model = "tiny", .parallel = "", .ranks = 1, .micro_batches = 1},
        {.model = "tiny", .parallel = "", .ranks = 2, .micro_batches = 3, .narrow = true},
        {.model = "tiny", .parallel = "shard=2", .ranks = 2, .micro_batches = 1, .narrow = true},
        {.model = "tiny-llama",
         .parallel = "shard=4",
         .ranks = 4,
         .micro_batches = 1,
         .recompute = RECOMPUTE_FULL,
         .copy_stream = true},
        {.model = "tiny-llama",
         .parallel = "shard=2",
         .ranks = 2,
         .micro_batches = 3,
         .narrow = true,
         .recompute = RECOMPUTE_SELECTIVE},
        {.model = "tiny",
         .parallel = "shard=2",
         .ranks = 4,
         .micro_batches = 2,
         .no_overlap = true},
        {.model = "tiny", .parallel = "shard=2", .ranks = 2, .micro_batches = 2, .stage = 1},
        {.model = "tiny", .parallel = "shard=2", .ranks = 2, .micro_batches = 2, .stage = 2},
        {.model = "tiny",
         .parallel = "tp=2,shard=2",
         .ranks = 4,
         .micro_batches = 2,
         .tp_chunks = 2,
         .recompute = RECOMPUTE_MLP},
        {.model = "tiny-llama",
         .parallel = "cp=2,shard=2",
         .ranks = 4,
         .micro_batches = 2,
         .recompute = RECOMPUTE_FULL,
         .cp_kind = CP_RING},
        {.model = "tiny",
         .parallel = "cp=2",
         .ranks = 2,
         .micro_batches = 1,
         .cp_kind = CP_ALL_GATHER},
        {.model = "tiny",
         .parallel = "cp=2",
         .ranks = 2,
         .micro_batches = 1,
         .cp_kind = CP_ULYSSES},
        {.model = "tiny", .parallel = "pp=2", .ranks = 2, .micro_batches = 4, .copy_stream = true},
        {.model = "tiny",
         .parallel = "pp=2,shard=2",
         .ranks = 4,
         .micro_batches = 4,
         .schedule = SCHEDULE_INTERLEAVED},
        {.model = "tiny",
         .parallel = "pp=4",
         .ranks = 4,
         .micro_batches = 4,
         .schedule = SCHEDULE_ZB_H1},
        {.model = "tiny-moe",
         .parallel = "ep=2",
         .ranks = 2,
         .micro_batches = 2,
         .recompute = RECOMPUTE_FULL},
        {.model = "tiny-moe", .parallel = "pp=2,ep=2", .ranks = 4, .micro_batches = 2},
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        for (int rank = 0; rank < ways[i].ranks; rank++)
            check_packed(&ways[i], rank);
        check_kinds(&ways[i]);
    }
}

/* ---- plans by hand: values of N floats ---- */

enum { N = 64, BYTES = 4 * N };

struct hand {
    struct plan plan;
    int stream;                         /* of communication */
    struct tensor state, moment, other; /* not packed */
};

static void open_hand(struct hand *h)
{
    struct degrees degrees = {0};
    struct layout layout;
    CHECK_EQ(layout_init(&layout, 2, 1, 0, &degrees), 0);
    plan_init(&h->plan, &layout);
    h->plan.micro_batches = 1;
    h->stream = plan_channel(&h->plan, AXIS_DP, 0);
    h->state = plan_take(&h->plan, BUFFER_MASTER, BYTES);
    h->moment = plan_take(&h->plan, BUFFER_MOMENT1, BYTES);
    h->other = plan_take(&h->plan, BUFFER_MOMENT2, BYTES);
}

static struct tensor take(struct hand *h)
{
    return plan_take(&h->plan, BUFFER_ACTIVATION, BYTES);
}

/* to = from in fp32 (a GELU). */
static int turn(struct hand *h, struct tensor from, struct tensor to)
{
    struct op op = {.kind = OP_GELU, .t = {from, to}, .shape.vector.n = N};
    return plan_op(&h->plan, &op);
}

static int sum(struct hand *h, struct tensor send, struct tensor receive, int after)
{
    struct op op = {.kind = OP_COLLECTIVE, .stream = h->stream, .t = {send, receive}};
    op.shape.coll.coll =
        (struct coll){.kind = COLL_ALL_REDUCE, .dtype = DTYPE_F32, .count = N, .peer = -1};
    op.shape.coll.axis = AXIS_DP;
    int index = plan_op(&h->plan, &op);
    if (after >= 0)
        plan_wait(&h->plan, index, after);
    return index;
}

static int64_t packed_bytes(const struct hand *h, struct plan *packed)
{
    copy_plan(packed, &h->plan);
    plan_pack(packed, NULL);
    CHECK_EQ(plan_check_share(&h->plan, packed), 0);
    return packed->bytes[BUFFER_ACTIVATION];
}

/* a is sent; b is written after it in the plan. Only when the host's order is also the device's, by a
 * wait, may b lie where a lay. */
static void order_of_the_plan_is_not_enough(void)
{
    for (int waits = 0; waits < 2; waits++) {
        struct hand h;
        struct plan packed;
        open_hand(&h);
        struct tensor a = take(&h), b = take(&h);
        turn(&h, h.state, a);
        int call = sum(&h, a, h.moment, 0);
        int later = turn(&h, h.state, b);
        plan_wait(&h.plan, turn(&h, b, h.state), call);
        if (waits)
            plan_wait(&h.plan, later, call);
        CHECK_EQ(packed_bytes(&h, &packed), waits ? BYTES : 2 * BYTES);
        free(packed.ops);
        copy_plan(&packed, &h.plan);
        for (int i = 0; i < packed.n_ops; i++) /* planted: b in a's bytes */
            for (int t = 0; t < 2; t++)
                if (packed.ops[i].t[t].buffer == b.buffer)
                    packed.ops[i].t[t].offset = a.offset;
        CHECK_EQ(plan_check_share(&h.plan, &packed), waits ? 0 : FAIL_WRONG);
        if (!waits)
            CHECK_HAS(fail_message(), "nothing makes it wait until the first has read");
        fail_clear();
        free(packed.ops);
        plan_release(&h.plan);
    }
}

/* b is sent at the end of a step, and the next waits for that before it makes another b, not before it
 * makes a: a may not lie there. */
static void next_step_counts(void)
{
    for (int waits = 0; waits < 2; waits++) {
        struct hand h;
        struct plan packed;
        open_hand(&h);
        struct tensor a = take(&h), b = take(&h);
        int call = sum(&h, h.other, h.other, -1); /* behind the last call of the step before */
        int first = turn(&h, h.state, a);
        turn(&h, a, h.moment);
        int last = turn(&h, h.state, b);
        plan_wait(&h.plan, waits ? first : last, call);
        sum(&h, b, h.other, last);
        CHECK_EQ(packed_bytes(&h, &packed), waits ? BYTES : 2 * BYTES);
        free(packed.ops);
        plan_release(&h.plan);
    }
}

static void planted(struct hand *h, struct tensor from, struct tensor to, const char *words)
{
    struct plan packed;
    copy_plan(&packed, &h->plan);
    for (int i = 0; i < packed.n_ops; i++)
        for (int t = 0; t < OP_TENSORS; t++)
            if (packed.ops[i].t[t].buffer == from.buffer &&
                packed.ops[i].t[t].offset == from.offset)
                packed.ops[i].t[t] = to;
    CHECK_EQ(plan_check_share(&h->plan, &packed), FAIL_WRONG);
    CHECK_HAS(fail_message(), words);
    fail_clear();
    free(packed.ops);
    CHECK_EQ(packed_bytes(h, &packed), h->plan.bytes[BUFFER_ACTIVATION]);
    free(packed.ops);
    plan_release(&h->plan);
}

/* Each is a value that must not share, and a plan in which it does. */
static void faults_are_found(void)
{
    struct hand h;
    open_hand(&h); /* both live at once */
    struct tensor a = take(&h), b = take(&h);
    turn(&h, h.state, a);
    turn(&h, h.state, b);
    turn(&h, a, h.moment);
    turn(&h, b, h.moment);
    planted(&h, b, a, "which is not what it is to read");

    open_hand(&h); /* what comes from the step before */
    a = take(&h), b = take(&h);
    turn(&h, h.state, b);
    turn(&h, a, h.moment);
    turn(&h, b, h.moment);
    turn(&h, h.state, a);
    planted(&h, b, a, "which is not what it is to read");

    open_hand(&h); /* what only communication writes: a compute-only variant would find b there */
    a = take(&h), b = take(&h);
    turn(&h, h.state, b);
    int first = turn(&h, b, h.moment);
    int call = sum(&h, h.moment, a, first);
    plan_wait(&h.plan, turn(&h, a, h.state), call);
    planted(&h, b, a, "without communication");

    open_hand(&h); /* calls that are posted as one */
    a = take(&h), b = take(&h);
    turn(&h, h.state, a);
    call = sum(&h, a, none, 0);
    h.plan.ops[call].with_next = true;
    call = sum(&h, h.state, b, 0);
    h.plan.ops[call].t[0] = h.state;
    plan_wait(&h.plan, turn(&h, h.state, h.moment), call);
    planted(&h, b, a, "nothing makes it wait");

    open_hand(&h); /* integers, dead before b is there */
    struct shape_input input = {.samples = 1, .sequence = N};
    a = take(&h), b = take(&h);
    struct op op = {.kind = OP_INPUT, .t = {a}, .shape.input = input};
    plan_op(&h.plan, &op);
    turn(&h, h.state, b);
    turn(&h, b, h.moment);
    planted(&h, b, a, "integers share them");
}

/* Without any wait but those that others imply, bytes are raced for; packed as well, but where what had
 * to wait lies elsewhere now. */
static void every_wait_is_needed(void)
{
    static const struct which which = {
        .model = "tiny", .parallel = "shard=2", .ranks = 2, .micro_batches = 2};
    struct plan plan, packed;
    int needed = 0, packed_needed = 0, waits = 0;
    CHECK_EQ(make(&plan, &which, 0), 0);
    copy_plan(&packed, &plan);
    plan_pack(&packed, NULL);
    for (int i = 0; i < plan.n_ops; i++) {
        if (plan.ops[i].stream != 0 || plan.ops[i].n_waits != 1)
            continue;
        waits++;
        plan.ops[i].n_waits = packed.ops[i].n_waits = 0;
        needed += plan_check_share(&plan, &plan) != 0;
        packed_needed += plan_check_share(&plan, &packed) != 0;
        fail_clear();
        plan.ops[i].n_waits = packed.ops[i].n_waits = 1;
    }
    CHECK(waits > 10);
    CHECK(needed >= waits - 2);
    CHECK(packed_needed > waits * 3 / 4);
    free(packed.ops);
    plan_release(&plan);
}

/* ---- what it buys ---- */

struct buys {
    const char *model, *parallel;
    int ranks;
    int64_t micro_batch, sequence;
    enum recompute recompute;
    double most_gib; /* what PyTorch's FSDP2 and DDP allocate on these, at their peak, less the 0.03
                        that products have to work in on a GPU */
    bool is_tight;   /* the arena is as small as what lives */
};

static void saves_what_it_should(void)
{
    static const struct buys all[] = {
        {"gpt2-1558m", "shard=2", 2, 16, 0, RECOMPUTE_NONE, 48.45, true},
        {"llama-8b", "shard=2", 2, 2, 4096, RECOMPUTE_FULL, 64.76, false},
        {"gpt2-124m", "", 2, 64, 0, RECOMPUTE_NONE, 29.04, true},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct degrees degrees = {0};
        struct layout layout;
        struct policy policy;
        struct model model;
        struct plan plan;
        struct pack_found found;
        CHECK_EQ(model_load(&model, all[i].model), 0);
        model.sequence = all[i].sequence > 0 ? all[i].sequence : model.sequence;
        policy_defaults(&policy, &model);
        CHECK_EQ(layout_parse(all[i].parallel, &degrees), 0);
        CHECK_EQ(layout_init(&layout, all[i].ranks, 1, 0, &degrees), 0);
        policy.pack = CHOICE_OFF;
        policy.dtype = DTYPE_BF16;
        policy.micro_batch = all[i].micro_batch;
        policy.global_batch = layout.degrees.dp * policy.micro_batch;
        policy.recompute = all[i].recompute;
        CHECK_EQ(transformer_plan(&plan, &model, &layout, &policy), 0);
        plan_pack(&plan, &found);
        CHECK((double)bytes_of(&plan) / 1073741824.0 <= all[i].most_gib);
        int64_t weights = plan.passing[BUFFER_PARAMETER] ? plan.bytes[BUFFER_PARAMETER] : 0;
        CHECK_EQ(found.live == found.after - weights, all[i].is_tight);
        plan_release(&plan);
    }
}

int main(void)
{
    order_of_the_plan_is_not_enough();
    next_step_counts();
    faults_are_found();
    every_wait_is_needed();
    packs_every_way();
    saves_what_it_should();
    return test_end();
}
