/*
 * Sharded state: bytes are those of the closed forms in every dtype, arenas those of the design, each
 * element is owned once, gathers are given out ahead of their use, numbers in bf16 are those of one
 * rank in bf16, and what cannot be is refused.
 */
#include "tests/test.h"

#include "tests/lockstep_gate.h"

#include "tests/layout_space.h"
#include "workloads/formulas.h"
#include "workloads/shard.h"

enum { SEED = 3, STEPS = 2 };

static struct model small_model(int style)
{
    struct model m = {.name = "small",
                      .layers = 3,
                      .hidden = 32,
                      .heads = 8,
                      .kv_heads = style == MODEL_LLAMA ? 2 : 8,
                      .head = 4,
                      .ffn = 40,
                      .vocabulary = 61,
                      .sequence = 16,
                      .pad = 64,
                      .tied = style == MODEL_GPT2,
                      .style = style,
                      .theta = 10000,
                      .lr = 1e-3};
    return m;
}

static struct policy small_policy(const struct model *model)
{
    struct policy p;
    policy_defaults(&p, model);
    p.global_batch = 16;
    p.micro_batch = 2;
    p.epsilon = 1e-6f;
    p.warm_up = 2;
    p.decay_steps = 20;
    return p;
}

/* ---- bytes, by formula and plan, for all types ---- */

static const struct model *of_space;
static int64_t compared;

static void compare_bytes(void *arg, const struct space_point *point)
{
    struct plan plan;
    struct layout layout;
    (void)arg;
    if (point->degrees.pp > 1) /* stages differ: unit_pipeline and unit_formulas add them up */
        return;
    CHECK_EQ(layout_init(&layout, point->nodes, point->ranks_per_node, 1, &point->degrees), 0);
    if (!CHECK_EQ(transformer_plan(&plan, of_space, &layout, &point->policy), 0))
        return;
    for (int axis = 0; axis < AXIS_COUNT; axis++) {
        double formula = formula_bytes(of_space, &layout.degrees, &point->policy, (enum axis)axis);
        CHECK_NEAR(plan.totals.wire_bytes[axis], formula, 1e-12 * formula);
    }
    compared++;
    plan_release(&plan);
}

static void bytes_of_all_types(void)
{
    for (int style = MODEL_GPT2; style <= MODEL_LLAMA; style++)
        for (int narrow = 1; narrow < 4; narrow++) { /* 1: parameters, 2: gradients on their way */
            struct model model = small_model(style);
            struct space space = {.ranks = 4,
                                  .model = &model,
                                  .base = small_policy(&model),
                                  .micro_batches = 2,
                                  .visit = compare_bytes};
            space.base.dtype = narrow & 1 ? DTYPE_BF16 : DTYPE_F32;
            space.base.grad_dtype = narrow & 2 ? DTYPE_BF16 : DTYPE_F32;
            of_space = &model;
            space_walk(&space);
        }
    printf("%lld plans: bytes of every axis are those of the closed form\n", (long long)compared);
}

/* ---- memory ---- */

static void plan_of(struct plan *plan, const struct model *model, const struct policy *policy,
                    int ranks, int rank)
{
    struct layout layout;
    struct degrees degrees = {.shard = ranks};
    CHECK_EQ(layout_init(&layout, 1, ranks, rank, &degrees), 0);
    CHECK_EQ(transformer_plan(plan, model, &layout, policy), 0);
}

static int64_t padded(int64_t elements, int n)
{
    return (elements + SHARD_ALIGN * n - 1) / (SHARD_ALIGN * n) * (SHARD_ALIGN * n);
}

/* All units' padded elements; that of a layer, the embeddings, the head. */
struct units {
    int64_t all, layer, embeddings, head;
};

static struct units units_of(const struct model *m, int n)
{
    int64_t h = m->hidden, f = m->ffn;
    struct units u = {.layer = padded(2 * h * f + f + 4 * h * h + 3 * h + 6 * h, n),
                      .embeddings = padded((64 + m->sequence) * h, n),
                      .head = padded(2 * h, n)};
    u.all = m->layers * u.layer + u.embeddings + u.head;
    return u;
}

static void arenas(void)
{
    enum { N = 4 };
    struct model model = small_model(MODEL_GPT2);
    struct units u = units_of(&model, N);
    for (int stage = 1; stage <= 3; stage++)
        for (int prefetch = 0; prefetch <= 1; prefetch++)
            for (int every = 0; every < 2; every++)
                for (int reshard = 0; reshard < 2; reshard++) {
                    struct policy policy = small_policy(&model);
                    struct plan plan;
                    policy.dtype = DTYPE_BF16;
                    policy.pack = CHOICE_OFF;
                    policy.shard_stage = stage;
                    policy.fsdp_prefetch = prefetch;
                    policy.reduce_every = every;
                    policy.fsdp_reshard = reshard;
                    plan_of(&plan, &model, &policy, N, 2);
                    bool few = stage == 3 && reshard, ring = stage > 1 && every;
                    int64_t weights = (prefetch + 1) * u.layer + u.embeddings + u.head;
                    int64_t sums = 2 * u.layer + u.embeddings + u.head;
                    CHECK_EQ(plan.bytes[BUFFER_PARAMETER], 2 * (few ? weights : u.all));
                    CHECK_EQ(plan.bytes[BUFFER_GRADIENT], 4 * (ring ? sums : u.all));
                    CHECK_EQ(plan.bytes[BUFFER_MASTER], 4 * u.all / N);
                    CHECK_EQ(plan.bytes[BUFFER_SHARD], 4 * u.all / N);
                    CHECK_EQ(plan.bytes[BUFFER_MOMENT1], 4 * u.all / N);
                    CHECK_EQ(plan.bytes[BUFFER_MOMENT2], 4 * u.all / N);
                    CHECK_EQ(plan.bytes[BUFFER_WIRE], ring ? 4 * sums / N : 0);
                    CHECK_EQ(plan.n_state, u.all / N);
                    CHECK_EQ(plan.master, BUFFER_MASTER);
                    plan_release(&plan);
                }
}

/* ---- ahead of use ---- */

/* Compute ops given out between a gather and the first op that waits for it: the fewest and the most. */
static void count_ahead(const struct plan *plan, int *least, int *most)
{
    *least = INT32_MAX;
    *most = 0;
    for (int i = 0; i < plan->n_ops; i++) {
        const struct op *op = &plan->ops[i];
        if (op->kind != OP_COLLECTIVE || op->shape.coll.coll.kind != COLL_ALL_GATHER)
            continue;
        int between = 0;
        bool waited = false;
        for (int j = i + 1; j < plan->n_ops && !waited; j++) {
            for (int w = 0; w < plan->ops[j].n_waits; w++)
                waited = waited || (plan->ops[j].stream == 0 && plan->ops[j].wait[w] == i);
            between += plan->ops[j].stream == 0 && !waited;
        }
        CHECK(waited);
        *least = between < *least ? between : *least;
        *most = between > *most ? between : *most;
    }
}

static void prefetching(void)
{
    struct model model = small_model(MODEL_GPT2);
    struct policy policy = small_policy(&model);
    int least[3], most[3];
    for (int ahead = 0; ahead < 3; ahead++) {
        struct plan plan;
        policy.fsdp_prefetch = ahead;
        plan_of(&plan, &model, &policy, 4, 0);
        count_ahead(&plan, &least[ahead], &most[ahead]);
        plan_release(&plan);
    }
    printf("compute ops beside a gather, at most: %d, %d, %d with 0, 1, 2 units of prefetch\n",
           most[0], most[1], most[2]);
    CHECK_EQ(most[0], 0); /* nothing runs beside a gather */
    CHECK(most[1] >= 16); /* a layer's backward does */
    CHECK(most[2] >= most[1] + 16);
    policy.fsdp_prefetch = 2;
    policy.overlap_parameters = false;
    struct plan plan;
    plan_of(&plan, &model, &policy, 4, 0);
    count_ahead(&plan, &least[0], &most[0]);
    CHECK_EQ(most[0], 0);
    plan_release(&plan);
}

/* ---- numbers in bf16 ---- */

static void bf16_numbers(void)
{
    static const char *const layouts[] = {"shard=4", "shard=2", "tp=2,shard=2"};
    struct model model = small_model(MODEL_GPT2);
    struct policy policy = small_policy(&model);
    struct gate_reference reference;
    policy.dtype = DTYPE_BF16;
    CHECK_EQ(crew_reference(&reference, &model, &policy, SEED, STEPS), 0);
    for (int stage = 1; stage <= 3; stage++)
        for (int narrow = 0; narrow < 2; narrow++)
            for (int i = 0; i < 3; i++) {
                struct degrees degrees = {0};
                struct crew crew;
                struct gate_row row;
                policy.shard_stage = stage;
                policy.grad_dtype = narrow ? DTYPE_BF16 : DTYPE_F32;
                CHECK_EQ(layout_parse(layouts[i], &degrees), 0);
                CHECK_EQ(crew_plan(&crew, &model, &policy, &degrees, 1, 4), 0);
                enum lockstep_order order = stage % 2 ? LOCKSTEP_LATE : LOCKSTEP_EARLY;
                CHECK_EQ(crew_run(&crew, order, &model, SEED, STEPS), 0);
                double severity = crew_compare(&crew, &reference, &row);
                /* tp rounds partial sums, and bf16 gradients themselves: 2^-9 of an element */
                double allowed = narrow || i == 2 ? 1500 : 1;
                if (!CHECK(severity <= allowed && crew_covers(&crew, &reference)))
                    printf("%s stage %d, gradients %s: %.3g: %s of %s on rank %d\n", layouts[i],
                           stage, dtype_name((int)policy.grad_dtype), severity, row.check,
                           row.subject, row.rank);
                crew_release(&crew);
            }
    plan_release(&reference.plan);
    free(reference.gradient);
    free(reference.parameter);
}

/* ---- refusals ---- */

static void refuses(struct policy policy, struct degrees degrees, int code, const char *words)
{
    struct model model = small_model(MODEL_GPT2);
    struct layout layout;
    int rc = layout_init(&layout, 1, 4, 0, &degrees);
    if (rc == 0)
        rc = transformer_check(&model, &layout, &policy);
    CHECK_EQ(rc, code);
    CHECK_HAS(fail_message(), words);
    fail_clear();
}

static void refusals(void)
{
    struct model model = small_model(MODEL_GPT2);
    struct policy policy = small_policy(&model);
    refuses(policy, (struct degrees){.shard = 3}, FAIL_USAGE, "shard=3 does not divide dp=4");
    policy.shard_stage = 4;
    refuses(policy, (struct degrees){.shard = 2}, FAIL_USAGE, "stage 4 is none of 1, 2 (ZeRO)");
    policy.shard_stage = 3;
    policy.fsdp_prefetch = -1;
    refuses(policy, (struct degrees){.shard = 2}, FAIL_USAGE, "-1 units of prefetch");
}

int main(void)
{
    kernels_blas_threads(1);
    bytes_of_all_types();
    arenas();
    prefetching();
    bf16_numbers();
    refusals();
    return test_end();
}
