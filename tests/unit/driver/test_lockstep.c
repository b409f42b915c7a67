/* Lockstep: the same bits whoever waits first; faults planted into right plans exceed the bounds of
 * the gate ten times or are named; ranks that cannot go on are named with what they wait for. */
#include "tests/test.h"

#include "tests/lockstep_gate.h"

enum { STEPS = 3, SEED = 11, RANKS = 4 };

#if defined(__SANITIZE_ADDRESS__)
enum { SPARSE = 4 };
#else
enum { SPARSE = 1 };
#endif

static struct model model;
static struct policy policy;
static struct gate_reference reference;

static void set_up(void)
{
    model = (struct model){.name = "small",
                           .layers = 3,
                           .hidden = 32,
                           .heads = 8,
                           .kv_heads = 8,
                           .head = 4,
                           .ffn = 48,
                           .vocabulary = 61,
                           .sequence = 16,
                           .pad = 64,
                           .tied = true,
                           .lr = 1e-3};
    policy_defaults(&policy, &model);
    policy.global_batch = policy.micro_batch = 16;
    policy.epsilon = 1e-6f;
    policy.warm_up = 2;
    policy.decay_steps = 20;
    policy.bucket_bytes = 16384;
    CHECK_EQ(crew_reference(&reference, &model, &policy, SEED, STEPS), 0);
    policy.micro_batch = 2; /* two micro-batches where dp is 4 */
}

static void crew_of(struct crew *crew, const char *parallel)
{
    struct degrees degrees = {0};
    CHECK_EQ(layout_parse(parallel, &degrees), 0);
    if (!CHECK_EQ(crew_plan(crew, &model, &policy, &degrees, 1, RANKS), 0))
        printf("%s: %s\n", parallel, fail_message());
}

/* ---- the two orders ---- */

static bool same_bits(const struct crew *a, const struct crew *b)
{
    bool same = true;
    for (int r = 0; r < RANKS; r++) {
        size_t n = (size_t)a->plans[r].n_state * sizeof(float);
        same = same && memcmp(a->found[r].gradient, b->found[r].gradient, n) == 0 &&
               memcmp(a->found[r].parameter, b->found[r].parameter, n) == 0;
    }
    return same;
}

static void orders_agree(void)
{
    const char *const layouts[] = {"dp=4", "shard=4", "shard=2", "tp=2,shard=2", "tp=4", "tp=2"};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        struct crew early, late;
        struct gate_row row;
        crew_of(&early, layouts[i]);
        crew_of(&late, layouts[i]);
        CHECK_EQ(crew_run(&early, LOCKSTEP_EARLY, &model, SEED, STEPS), 0);
        CHECK_EQ(crew_run(&late, LOCKSTEP_LATE, &model, SEED, STEPS), 0);
        CHECK(same_bits(&early, &late));
        CHECK(crew_compare(&early, &reference, &row) <= 1);
        CHECK(crew_covers(&early, &reference));
        for (int axis = 0; axis < AXIS_COUNT; axis++) {
            double bytes = 0;
            for (int r = 0; r < RANKS; r++)
                bytes += STEPS * early.plans[r].totals.wire_bytes[axis];
            CHECK_NEAR(early.lockstep.posted_bytes[axis], bytes, 1e-6 * bytes);
        }
        crew_release(&early);
        crew_release(&late);
    }
}

/* ---- planted faults ---- */

/* The i-th collective of a kind on an axis, -1: there is none. */
static int find_call(const struct plan *plan, enum coll_kind kind, enum axis axis, int i)
{
    for (int op = 0; op < plan->n_ops; op++) {
        const struct op *o = &plan->ops[op];
        if (o->kind == OP_COLLECTIVE && o->shape.coll.coll.kind == kind &&
            o->shape.coll.axis == axis && i-- == 0)
            return op;
    }
    CHECK(false);
    return -1;
}

/* Sums over replicas run over the shard group: other parts of the state are added. */
static void wrong_group(struct crew *crew)
{
    for (int r = 0; r < RANKS; r++) {
        struct plan *plan = &crew->plans[r];
        struct op *op = &plan->ops[find_call(plan, COLL_ALL_REDUCE, AXIS_REPLICATE, 1)];
        op->shape.coll.axis = AXIS_SHARD;
        op->shape.coll.direction = 1;
        op->stream = plan_channel(plan, AXIS_SHARD, 1);
        op->n_waits = 0; /* its reduce-scatter lies before it on that stream now */
    }
}

/* One rank reduces layers of equal size in another order than the rest. */
static void swapped_order(struct crew *crew)
{
    struct plan *plan = &crew->plans[1];
    struct op *a = &plan->ops[find_call(plan, COLL_REDUCE_SCATTER, AXIS_SHARD, 1)];
    struct op *b = &plan->ops[find_call(plan, COLL_REDUCE_SCATTER, AXIS_SHARD, 2)];
    CHECK_EQ(a->shape.coll.coll.count, b->shape.coll.coll.count);
    struct tensor send = a->t[0], receive = a->t[1];
    a->t[0] = b->t[0];
    a->t[1] = b->t[1];
    b->t[0] = send;
    b->t[1] = receive;
}

static void missing_reduction(struct crew *crew)
{
    for (int r = 0; r < RANKS; r++) {
        struct plan *plan = &crew->plans[r];
        plan->ops[find_call(plan, COLL_ALL_REDUCE, AXIS_DP, 2)].shape.coll.coll.count = 0;
    }
}

/* Kernels read a layer's weights before they have come: what is there is another layer's. */
static void stale_buffer(struct crew *crew)
{
    for (int r = 0; r < RANKS; r++) {
        struct plan *plan = &crew->plans[r];
        int gather = find_call(plan, COLL_ALL_GATHER, AXIS_SHARD, 3);
        for (int i = gather; i < plan->n_ops; i++)
            for (int w = 0; w < plan->ops[i].n_waits; w++)
                if (plan->ops[i].wait[w] == gather)
                    plan->ops[i].wait[w] = plan->ops[i].wait[--plan->ops[i].n_waits];
    }
}

/* A layer's weights come while the one before is still in use there. */
static void overwritten_buffer(struct crew *crew)
{
    for (int r = 0; r < RANKS; r++)
        crew->plans[r].ops[find_call(&crew->plans[r], COLL_ALL_GATHER, AXIS_SHARD, 3)].n_waits = 0;
}

static void lost_micro_batch(struct crew *crew)
{
    struct plan *plan = &crew->plans[2];
    for (int i = 0; i < plan->n_ops; i++)
        if (plan->ops[i].kind == OP_INPUT && plan->ops[i].micro == 1)
            plan->ops[i].shape.input.first -= plan->ops[i].shape.input.samples;
}

/* Every rank divides the sum of gradients by its own tokens, not by those of all. */
static void sum_for_mean(struct crew *crew)
{
    for (int r = 0; r < RANKS; r++) {
        struct plan *plan = &crew->plans[r];
        for (int i = 0; i < plan->n_ops; i++)
            if (plan->ops[i].kind == OP_COLLECTIVE &&
                plan->ops[i].shape.coll.coll.count == SCALAR_TOKENS + 1)
                plan->ops[i].shape.coll.coll.count = SCALAR_LOSS_SUM + 1;
    }
}

static void faults_are_seen(void)
{
    static const struct {
        const char *name, *parallel;
        void (*plant)(struct crew *crew);
    } faults[] = {
        {"wrong group", "shard=2", wrong_group},
        {"swapped order", "shard=4", swapped_order},
        {"missing reduction", "dp=4", missing_reduction},
        {"stale buffer", "shard=4", stale_buffer},
        {"overwritten buffer", "shard=4", overwritten_buffer},
        {"lost micro-batch", "dp=4", lost_micro_batch},
        {"lost micro-batch, sharded", "shard=4", lost_micro_batch},
        {"sum instead of mean", "dp=4", sum_for_mean},
        {"sum instead of mean, sharded", "shard=4", sum_for_mean},
    };
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        double worst = 0;
        char what[128] = "";
        for (int order = LOCKSTEP_EARLY; order <= LOCKSTEP_LATE; order++) {
            struct crew crew;
            struct gate_row row;
            crew_of(&crew, faults[i].parallel);
            faults[i].plant(&crew);
            CHECK_EQ(crew_run(&crew, (enum lockstep_order)order, &model, SEED, STEPS), 0);
            double severity = crew_compare(&crew, &reference, &row);
            if (severity > worst)
                snprintf(what, sizeof what, "%s of %s", row.check, row.subject);
            worst = severity > worst ? severity : worst;
            crew_release(&crew);
        }
        CHECK(worst >= 10);
        printf("%-28s on %-8s: %9.3g of what is allowed (%s)\n", faults[i].name, faults[i].parallel,
               worst, what);
    }
}

/*
 * A wait that is left out on all ranks: the two orders then give other bits. Not so where it was
 * implied by others, or kept an all-gather from bringing what lies there already (the embeddings
 * have a place of their own): those are few.
 */
static void leave_out_waits(const char *parallel, int stride)
{
    struct crew right, wrong;
    int seen = 0, unseen = 0, n = 0;
    crew_of(&right, parallel);
    CHECK_EQ(crew_run(&right, LOCKSTEP_EARLY, &model, SEED, STEPS), 0);
    for (int op = 0; op < right.plans[0].n_ops; op++)
        for (int w = 0; w < right.plans[0].ops[op].n_waits; w++) {
            bool differs = false;
            if (n++ % stride != 0)
                continue;
            for (int order = LOCKSTEP_EARLY; order <= LOCKSTEP_LATE && !differs; order++) {
                crew_of(&wrong, parallel);
                for (int r = 0; r < RANKS; r++) {
                    struct op *o = &wrong.plans[r].ops[op];
                    o->wait[w] = o->wait[--o->n_waits];
                }
                CHECK_EQ(crew_run(&wrong, (enum lockstep_order)order, &model, SEED, STEPS), 0);
                differs = !same_bits(&right, &wrong);
                crew_release(&wrong);
            }
            *(differs ? &seen : &unseen) += 1;
        }
    crew_release(&right);
    printf("%-12s: of %d waits %d were left out one at a time: %d change the result\n", parallel, n,
           seen + unseen, seen);
    CHECK(seen >= 3 * unseen);
}

/* ---- who cannot go on is named ---- */

static void mismatches_are_named(void)
{
    struct crew crew;
    crew_of(&crew, "shard=4");
    struct plan *plan = &crew.plans[2];
    struct op *gather = &plan->ops[find_call(plan, COLL_ALL_GATHER, AXIS_SHARD, 1)];
    gather->shape.coll.coll.count -= 16;
    CHECK_EQ(crew_run(&crew, LOCKSTEP_EARLY, &model, SEED, STEPS), FAIL_WRONG);
    CHECK_HAS(fail_message(), "all-gather of ");
    CHECK_HAS(fail_message(), "where rank 2, of its group, has op ");
    fail_clear();
    crew_release(&crew);
}

/* Two ranks that each wait in one call for what the other gives out after another. */
static void rings_are_named(void)
{
    struct crew crew;
    crew_of(&crew, "shard=4");
    for (int r = 0; r < 2; r++) {
        struct plan *plan = &crew.plans[r];
        int reduce = find_call(plan, COLL_REDUCE_SCATTER, AXIS_SHARD, 0);
        int gather = find_call(plan, COLL_ALL_GATHER, AXIS_SHARD, 8);
        struct op *waits = &plan->ops[r == 0 ? reduce : gather];
        waits->wait[0] = r == 0 ? gather : reduce;
        waits->n_waits = 1;
    }
    CHECK_EQ(crew_run(&crew, LOCKSTEP_LATE, &model, SEED, STEPS), FAIL_WRONG);
    CHECK_HAS(fail_message(), "no rank can go on: rank ");
    CHECK_HAS(fail_message(), "waits for its own op ");
    fail_clear();
    crew_release(&crew);
}

int main(void)
{
    kernels_blas_threads(1);
    set_up();
    orders_agree();
    faults_are_seen();
    leave_out_waits("dp=4", 1);
    leave_out_waits("shard=4", SPARSE);
    leave_out_waits("shard=2", SPARSE);
    leave_out_waits("tp=2,shard=2", 5 * SPARSE);
    mismatches_are_named();
    rings_are_named();
    plan_release(&reference.plan);
    free(reference.gradient);
    free(reference.parameter);
    return test_end();
}
