/*
 * Sequences cut over cp: every kind at 2, 4 and 8 ranks, with dp, shard and tp beside it, gives the
 * loss, gradients and parameters of one rank; bytes and operations are those of the closed forms; all
 * ranks of cp have the same share of attention, which adds up to the model's; and planted faults are
 * far outside what is allowed.
 */
#include "tests/test.h"

#include "tests/crew_check.h"

#include "workloads/cost.h"
#include "workloads/formulas.h"

enum { SEED = 11, STEPS = 2 };

static struct model small_model(int style)
{
    struct model m = {.layers = 2,
                      .hidden = 32,
                      .heads = 8,
                      .kv_heads = style == MODEL_LLAMA ? 4 : 8,
                      .head = 4,
                      .ffn = 32,
                      .vocabulary = 61,
                      .sequence = 32,
                      .pad = 64,
                      .tied = style == MODEL_GPT2,
                      .style = style,
                      .theta = 10000,
                      .lr = 1e-3};
    snprintf(m.name, sizeof m.name, "%s", style == MODEL_GPT2 ? "small" : "small-llama");
    return m;
}

static struct policy small_policy(const struct model *model)
{
    struct policy p;
    policy_defaults(&p, model);
    p.global_batch = 8;
    p.micro_batch = 2;
    p.epsilon = 1e-6f;
    p.warm_up = 2;
    p.decay_steps = 20;
    p.bucket_bytes = 16384;
    return p;
}

struct way {
    const char *parallel, *order;
    int ranks, nodes;
};

static const struct way ways[] = {
    {"cp=2", "", 2, 1},
    {"cp=4", "", 4, 2},
    {"cp=3", "", 3, 1},
    {"cp=2,dp=2", "", 4, 2},
    {"cp=2,dp=2", "dp-cp-tp-pp", 4, 1},
    {"cp=2,tp=2", "", 4, 1},
    {"cp=2,tp=2", "cp-tp-dp-pp", 4, 2},
    {"cp=2,dp=2,shard=2", "", 4, 1},
    {"cp=8", "", 8, 2},
    {"cp=4,dp=2", "", 8, 2},
    {"cp=2,tp=2,dp=2", "", 8, 2},
    {"cp=2,tp=2,dp=2,shard=2", "", 8, 1},
    {"cp=2,dp=4,shard=2", "", 8, 2},
    {"cp=4,tp=2", "", 8, 1},
};
enum { WAYS = sizeof ways / sizeof *ways };

/* The variants that each way is run in, by turns. */
static void vary(struct policy *p, int64_t turn)
{
    p->recompute = (enum recompute)(turn % 3);
    p->recompute_every = 1 + (int)(turn / 3 % 2);
    p->micro_batch = turn % 2 ? 1 : 2;
    p->overlap_context = turn / 2 % 2 == 0;
    p->overlap_gradients = turn / 4 % 2 == 0;
    p->copy_stream = turn / 3 % 2 != 0;
    p->sequence_parallel = turn % 5 != 0;
    p->shard_stage = 1 + (int)(turn % 3);
}

static double worst_of[2]; /* by narrow */
static char worst_at[2][160];
static int64_t n_run;

static void counts_agree(const struct crew *crew, const struct plan_check *check,
                         const struct model *model, const struct policy *policy)
{
    const struct degrees *d = &crew->plans[0].layout.degrees;
    double flops = (double)policy->global_batch * model_flops_per_sequence(model);
    double hardware = (double)policy->global_batch * formula_hardware_flops(model, policy);
    double ops = formula_ops(model, d, policy);
    for (int axis = 0; axis < AXIS_COUNT; axis++) {
        double formula = crew->n * formula_bytes(model, d, policy, (enum axis)axis);
        double plan = check->traffic[axis].inside + check->traffic[axis].across;
        if (!CHECK_NEAR(plan, formula, 1e-12 * formula))
            printf("%s\n", axis_name(axis));
        CHECK_NEAR(crew->lockstep.posted_bytes[axis] / STEPS, formula, 1e-12 * formula);
    }
    CHECK_NEAR(check->model_flops, flops, 1e-12 * flops);
    CHECK_NEAR(check->hardware_flops, hardware, 1e-12 * hardware);
    if (ops >= 0)
        CHECK_NEAR((double)check->ops, ops, 1e-9);
    for (int r = 1; r < crew->n; r++)
        CHECK_NEAR(crew->plans[r].totals.model_flops, crew->plans[0].totals.model_flops,
                   d->tp > 1 ? flops : 1e-12 * flops);
}

static bool is_possible(const struct way *way, const struct model *model, enum cp_kind kind,
                        const struct degrees *d)
{
    int64_t kv = model->kv_heads / d->tp;
    (void)way;
    if (model->sequence % (kind == CP_ULYSSES ? d->cp : 2 * d->cp) != 0)
        return false;
    return kind != CP_ULYSSES ||
           ((kv % d->cp == 0 || d->cp % kv == 0) && model->heads / d->tp % d->cp == 0);
}

static void run_way(const struct way *way, const struct model *model, struct policy *policy,
                    const struct gate_reference *reference, int64_t turn)
{
    struct degrees degrees = {0};
    struct crew crew;
    struct plan_check check;
    struct gate_row row;
    int narrow = policy->dtype == DTYPE_BF16;
    vary(policy, turn);
    snprintf(degrees.order, sizeof degrees.order, "%s", way->order);
    CHECK_EQ(layout_parse(way->parallel, &degrees), 0);
    degrees.dp = degrees.dp ? degrees.dp : 1;
    degrees.tp = degrees.tp ? degrees.tp : 1;
    if (!is_possible(way, model, policy->cp_kind, &degrees))
        return;
    int rc = crew_plan(&crew, model, policy, &degrees, way->nodes, way->ranks / way->nodes);
    if (rc == 0)
        rc = plan_check_all(&check, crew.n, crew_lend, &crew);
    if (rc == 0)
        rc = crew_run(&crew, turn % 2 ? LOCKSTEP_LATE : LOCKSTEP_EARLY, model, SEED, STEPS);
    if (!CHECK_EQ(rc, 0)) {
        printf("%s %s kind %d turn %lld: %s\n", way->parallel, way->order, policy->cp_kind,
               (long long)turn, fail_message());
        fail_clear();
        crew_release(&crew);
        return;
    }
    double severity = crew_compare(&crew, reference, &row);
    if (!CHECK(severity <= 1 && crew_covers(&crew, reference)))
        printf("%s %s kind %d turn %lld %s: %.3g of what is allowed: %s of %s on rank %d\n",
               way->parallel, way->order, policy->cp_kind, (long long)turn, model->name, severity,
               row.check, row.subject, row.rank);
    counts_agree(&crew, &check, model, policy);
    if (severity > worst_of[narrow]) {
        worst_of[narrow] = severity;
        snprintf(worst_at[narrow], sizeof worst_at[narrow], "%s of %.40s, %s kind %d turn %lld",
                 row.check, row.subject, way->parallel, policy->cp_kind, (long long)turn);
    }
    n_run++;
    crew_release(&crew);
}

static void all_ways(int style, enum dtype dtype)
{
    struct model model = small_model(style);
    struct policy policy = small_policy(&model);
    struct gate_reference reference;
    CHECK_EQ(crew_reference(&reference, &model, &policy, SEED, STEPS), 0);
    if (dtype == DTYPE_BF16)
        reference.bounds = gate_bounds(GATE_BF16);
    policy.dtype = dtype;
    for (int w = 0; w < WAYS; w++)
        for (int kind = CP_RING; kind <= CP_ULYSSES; kind++)
            for (int64_t turn = 0; turn < 6; turn += dtype == DTYPE_F32 ? 2 : 3) {
                policy.cp_kind = (enum cp_kind)kind;
                run_way(&ways[w], &model, &policy, &reference, turn + w + kind);
            }
    plan_release(&reference.plan);
    free(reference.gradient);
    free(reference.parameter);
}

/* ---- planted faults ---- */

/* The n-th op of a kind in backward (or forward) of a plan; NULL: there is none. */
static struct op *find(struct plan *plan, enum op_kind kind, enum phase phase, int n)
{
    for (int i = 0; i < plan->n_ops; i++)
        if (plan->ops[i].kind == kind && plan->ops[i].phase == phase && n-- == 0)
            return &plan->ops[i];
    return NULL;
}

/* The ring turns the other way round: keys come from the wrong neighbour. */
static void wrong_peer(struct plan *plan)
{
    struct group *cp = &plan->layout.group[AXIS_CP];
    *cp = (struct group){cp->first + (cp->size - 1) * cp->stride, -cp->stride, cp->size,
                         cp->size - 1 - cp->me};
}

/* A block reads where the keys of the step before were. */
static void stale_keys(struct plan *plan)
{
    struct op *before = find(plan, OP_ATTENTION_BLOCK, PHASE_FORWARD, 1);
    struct op *op = find(plan, OP_ATTENTION_BLOCK, PHASE_FORWARD, 2);
    op->t[1] = before->t[1];
}

/* What other ranks found for the own keys is not added. */
static void missing_gradient(struct plan *plan)
{
    for (int n = 0; find(plan, OP_ADD, PHASE_BACKWARD, n) != NULL; n++)
        find(plan, OP_ADD, PHASE_BACKWARD, n)->shape.vector.n = 0;
}

/* Two blocks are taken for one: the sum of the second is forgotten. */
static void missing_merge(struct plan *plan)
{
    find(plan, OP_ATTENTION_MERGE, PHASE_FORWARD, 1)->shape.attention.q_rows = 0;
}

/* Late chunks are taken for those of the positions before them. */
static void wrong_positions(struct plan *plan)
{
    for (int n = 0; find(plan, OP_EMBED, PHASE_FORWARD, n) != NULL; n++) {
        struct shape_cut *cut = &find(plan, OP_EMBED, PHASE_FORWARD, n)->shape.rows.cut;
        cut->first[1] = cut->first[0] + cut->rows;
    }
}

/* Blocks do not wait for their keys: wrong where calls come as late as they may. */
static void no_wait(struct plan *plan)
{
    for (int i = 0; i < plan->n_ops; i++)
        if (plan->ops[i].kind == OP_ATTENTION_BLOCK)
            plan->ops[i].n_waits = 0;
}

/* One rank's queries read the kv head of the rank before: the copy went to the wrong one. */
static void wrong_copy(struct plan *plan)
{
    if (plan->layout.group[AXIS_CP].me % 2 == 0)
        return;
    for (int n = 0; find(plan, OP_MOVE, PHASE_FORWARD, n) != NULL; n++) {
        struct shape_move *move = &find(plan, OP_MOVE, PHASE_FORWARD, n)->shape.move;
        if (move->n[0] == 4 && move->width == 4) /* k or v of 4 heads, to every other rank */
            move->to[0] /= 2;
    }
}

static void faults_are_seen(int style)
{
    static const struct {
        const char *name;
        void (*plant)(struct plan *plan);
        enum cp_kind kind;
        int style, cp;
    } faults[] = {
        {"keys of the wrong neighbour", wrong_peer, CP_RING, MODEL_GPT2, 4},
        {"stale keys", stale_keys, CP_RING, MODEL_GPT2, 4},
        {"missing gradient of keys", missing_gradient, CP_RING, MODEL_GPT2, 4},
        {"missing merge", missing_merge, CP_RING, MODEL_GPT2, 4},
        {"wrong positions", wrong_positions, CP_ALL_GATHER, MODEL_GPT2, 4},
        {"no wait for keys", no_wait, CP_RING, MODEL_GPT2, 4},
        {"copies of a kv head not summed", missing_gradient, CP_ULYSSES, MODEL_LLAMA, 8},
        {"copies of kv heads at the wrong ranks", wrong_copy, CP_ULYSSES, MODEL_LLAMA, 8},
    };
    struct model model = small_model(style);
    struct policy policy = small_policy(&model);
    struct gate_reference reference;
    CHECK_EQ(crew_reference(&reference, &model, &policy, SEED, STEPS), 0);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        struct degrees degrees = {.cp = faults[i].cp, .dp = 1};
        struct crew crew;
        struct gate_row row;
        if (faults[i].style != style)
            continue;
        policy.cp_kind = faults[i].kind;
        CHECK_EQ(crew_plan(&crew, &model, &policy, &degrees, 1, faults[i].cp), 0);
        for (int r = 0; r < crew.n; r++)
            faults[i].plant(&crew.plans[r]);
        CHECK_EQ(crew_run(&crew, LOCKSTEP_LATE, &model, SEED, STEPS), 0);
        double severity = crew_compare(&crew, &reference, &row);
        CHECK(severity >= 10);
        printf("%s: %.3g times what is allowed (%s of %s)\n", faults[i].name, severity, row.check,
               row.subject);
        crew_release(&crew);
    }
    plan_release(&reference.plan);
    free(reference.gradient);
    free(reference.parameter);
}

/* ---- what is hidden, by the cost model ---- */

/* Share of what cp communicates that the compute stream waits for, on two GPUs of a node. */
static double exposed_share(enum cp_kind kind, bool overlap, int64_t sequence)
{
    struct topology topology;
    struct model model;
    struct policy policy;
    struct degrees degrees = {.cp = 2, .dp = 1};
    struct layout layout;
    struct plan plan;
    struct cost_step step;
    CHECK_EQ(topology_load(&topology, "h200-8x400g"), 0);
    CHECK_EQ(model_load(&model, "llama-1b"), 0);
    model.sequence = sequence;
    policy_defaults(&policy, &model);
    policy.global_batch = policy.micro_batch = 1;
    policy.dtype = DTYPE_BF16;
    policy.cp_kind = kind;
    policy.overlap_context = overlap;
    CHECK_EQ(layout_init(&layout, 1, 2, 0, &degrees), 0);
    CHECK_EQ(transformer_plan(&plan, &model, &layout, &policy), 0);
    struct cost cost = {.topology = &topology, .ranks_per_node = 2};
    cost_plan(&cost, &plan, NULL, &step);
    plan_release(&plan);
    return step.exposed_s[AXIS_CP] / step.comm_s[AXIS_CP];
}

static void ring_is_hidden(void)
{
    CHECK(exposed_share(CP_RING, true, 32768) < 0.01);
    CHECK_NEAR(exposed_share(CP_RING, false, 32768), 1, 1e-9);
    CHECK_NEAR(exposed_share(CP_ULYSSES, true, 32768), 1, 1e-9);
    double gather =
        exposed_share(CP_ALL_GATHER, true, 32768); /* backward's gather is fetched ahead */
    CHECK(gather > 0.6 && gather < 0.7);
    printf("exposed at 32768 positions, two H200 by their data sheet: ring %.2g, all-gather %.2g\n",
           exposed_share(CP_RING, true, 32768), gather);
}

/* ---- refusals ---- */

static void refused(const char *parallel, int ranks, enum cp_kind kind, int64_t sequence,
                    const char *order, const char *words)
{
    struct model model = small_model(MODEL_LLAMA);
    struct policy policy = small_policy(&model);
    struct degrees degrees = {0};
    struct layout layout;
    model.sequence = sequence;
    policy.cp_kind = kind;
    snprintf(degrees.order, sizeof degrees.order, "%s", order);
    CHECK_EQ(layout_parse(parallel, &degrees), 0);
    CHECK_EQ(layout_init(&layout, 1, ranks, 0, &degrees), 0);
    CHECK_EQ(transformer_check(&model, &layout, &policy), FAIL_USAGE);
    CHECK_HAS(fail_message(), words);
    CHECK(strchr(fail_message(), '\n') == NULL);
    fail_clear();
}

static void refusals(void)
{
    refused("cp=4", 4, CP_RING, 36, "", "the sequence 36 does not divide by 8");
    refused("cp=4", 4, CP_RING, 36, "", "choose 32 or 40");
    refused("cp=4", 4, CP_ALL_GATHER, 6, "", "choose 8");
    refused("cp=4", 4, CP_ULYSSES, 30, "", "choose 28 or 32");
    refused("cp=8,tp=2", 16, CP_ULYSSES, 32, "",
            "does not divide the 4 heads and 2 kv heads that a rank of tp=2 has of model "
            "small-llama; choose cp=4");
    refused("cp=2,dp=2,tp=2", 8, CP_RING, 32, "cp-tp-dp-pp", "keeps cp=2 and dp=2 apart");
}

int main(void)
{
    kernels_blas_threads(1);
    all_ways(MODEL_GPT2, DTYPE_F32);
    all_ways(MODEL_LLAMA, DTYPE_F32);
    all_ways(MODEL_GPT2, DTYPE_BF16);
    faults_are_seen(MODEL_GPT2);
    faults_are_seen(MODEL_LLAMA);
    ring_is_hidden();
    refusals();
    printf("%lld layouts and policies; worst %.2g of what is allowed in fp32 (%s), %.2g in bf16 "
           "(%s)\n",
           (long long)n_run, worst_of[0], worst_at[0], worst_of[1], worst_at[1]);
    return test_end();
}
