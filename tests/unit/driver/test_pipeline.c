/*
 * Pipelines: every schedule over every number of stages gives what one rank gives, whatever stands
 * beside it, and planted faults are found.
 */
#include "tests/test.h"

#include "tests/crew_check.h"

enum { STEPS = 2, SEED = 11 };

static struct model model_of(int layers, bool tied, int style)
{
    struct model m = {.layers = layers,
                      .hidden = 32,
                      .heads = 8,
                      .kv_heads = 8,
                      .head = 4,
                      .ffn = 48,
                      .vocabulary = 61,
                      .sequence = 16,
                      .pad = 64,
                      .tied = tied,
                      .style = style,
                      .theta = 10000,
                      .lr = 1e-3};
    snprintf(m.name, sizeof m.name, "pipe");
    if (style == MODEL_LLAMA)
        m.kv_heads = 2;
    return m;
}

static struct policy policy_of(const struct model *model)
{
    struct policy p;
    policy_defaults(&p, model);
    p.global_batch = 16;
    p.micro_batch = 2;
    p.epsilon = 1e-6f;
    p.warm_up = 2;
    p.decay_steps = 20;
    p.bucket_bytes = 16384;
    return p;
}

struct gate {
    struct model model;
    struct gate_reference reference;
    int64_t run;
    double worst;
};

static void open_gate(struct gate *gate, struct model model)
{
    struct policy policy = policy_of(&model);
    *gate = (struct gate){.model = model};
    CHECK_EQ(crew_reference(&gate->reference, &gate->model, &policy, SEED, STEPS), 0);
}

static void close_gate(struct gate *gate)
{
    plan_release(&gate->reference.plan);
    free(gate->reference.gradient);
    free(gate->reference.parameter);
}

static void try_point(struct gate *gate, const struct policy *policy, const char *degrees,
                      int ranks)
{
    struct degrees d = {0};
    struct crew crew;
    struct gate_row row;
    struct plan_check check;
    char at[160];
    snprintf(at, sizeof at, "%s of %d: %s v=%d m=%lld recompute %d copy %d reshard %d", degrees,
             ranks, schedule_name((int)policy->schedule), policy->virtual_stages,
             (long long)(policy->global_batch / policy->micro_batch), (int)policy->recompute,
             policy->copy_stream, policy->fsdp_reshard);
    CHECK_EQ(layout_parse(degrees, &d), 0);
    int rc = crew_plan(&crew, &gate->model, policy, &d, 1, ranks);
    if (rc == 0)
        rc = plan_check_all(&check, crew.n, crew_lend, &crew);
    if (rc == 0)
        rc = crew_run(&crew, gate->run % 2 ? LOCKSTEP_LATE : LOCKSTEP_EARLY, &gate->model, SEED,
                      STEPS);
    if (!CHECK_EQ(rc, 0)) {
        printf("%s: %s\n", at, fail_message());
        fail_clear();
        crew_release(&crew);
        return;
    }
    double severity = crew_compare(&crew, &gate->reference, &row);
    if (!CHECK(severity <= 1 && crew_covers(&crew, &gate->reference)))
        printf("%s: %.3g of what is allowed: %s of %s on rank %d\n", at, severity, row.check,
               row.subject, row.rank);
    if (!CHECK(crew_volumes_agree(&crew, &check, &gate->model, policy, STEPS)))
        printf("%s\n", at);
    gate->worst = severity > gate->worst ? severity : gate->worst;
    gate->run++;
    crew_release(&crew);
}

static void schedules(struct gate *gate, struct policy policy, const char *degrees, int ranks)
{
    struct degrees d = {0};
    CHECK_EQ(layout_parse(degrees, &d), 0);
    for (int kind = SCHEDULE_GPIPE; kind <= SCHEDULE_ZB_H1; kind++) {
        policy.schedule = (enum schedule_kind)kind;
        policy.virtual_stages = kind == SCHEDULE_INTERLEAVED ? 2 : 1;
        if (kind == SCHEDULE_INTERLEAVED && gate->model.layers % (2 * d.pp) != 0)
            continue;
        try_point(gate, &policy, degrees, ranks);
    }
}

static void dense(bool tied, int style, bool copy)
{
    struct gate gate;
    open_gate(&gate, model_of(4, tied, style));
    struct policy policy = policy_of(&gate.model);
    policy.copy_stream = copy;
    schedules(&gate, policy, "pp=2", 2);
    policy.recompute = RECOMPUTE_FULL;
    policy.recompute_every = 2;
    schedules(&gate, policy, "pp=2", 2);
    policy.recompute = RECOMPUTE_NONE;
    schedules(&gate, policy, "pp=4", 4);
    schedules(&gate, policy, "pp=2,dp=2", 4);
    schedules(&gate, policy, "pp=2,tp=2", 4);
    schedules(&gate, policy, "pp=2,dp=2,tp=2", 8);
    for (policy.shard_stage = 1; policy.shard_stage <= 3; policy.shard_stage += 2)
        for (policy.fsdp_reshard = 0; policy.fsdp_reshard < 3; policy.fsdp_reshard++)
            schedules(&gate, policy, "pp=2,dp=2,shard=2", 4);
    policy.fsdp_reshard = CHOICE_AUTO;
    policy.shard_stage = 3;
    printf("%s, %s: %lld layouts; worst %.2g of what is allowed\n",
           style == MODEL_GPT2 ? "gpt2" : "llama", tied ? "tied" : "untied", (long long)gate.run,
           gate.worst);
    close_gate(&gate);
}

/* Layers that do not divide, with what else splits, at 2 to 8 ranks. */
static void uneven(void)
{
    struct gate gate;
    open_gate(&gate, model_of(7, true, MODEL_GPT2));
    struct policy policy = policy_of(&gate.model);
    policy.micro_batch = 1;
    schedules(&gate, policy, "pp=2", 2);
    schedules(&gate, policy, "pp=3", 3);
    schedules(&gate, policy, "pp=4,dp=2", 8);
    printf("uneven: %lld layouts; worst %.2g of what is allowed\n", (long long)gate.run,
           gate.worst);
    close_gate(&gate);
}

static void with_others(void)
{
    struct gate gate;
    open_gate(&gate, model_of(8, true, MODEL_GPT2));
    struct policy policy = policy_of(&gate.model);
    policy.micro_batch = 1;
    for (int kind = CP_RING; kind <= CP_ULYSSES; kind++) {
        policy.cp_kind = (enum cp_kind)kind;
        schedules(&gate, policy, "pp=2,cp=2", 4);
    }
    policy.copy_stream = true;
    schedules(&gate, policy, "pp=4,tp=2", 8);
    policy.tp_chunks = 2;
    policy.recompute = RECOMPUTE_FULL;
    policy.recompute_every = 3;
    policy.sequence_parallel = false;
    policy.overlap_tensor = policy.overlap_gradients = false;
    schedules(&gate, policy, "pp=2,tp=2,dp=2", 8);
    policy.tp_chunks = 1;
    policy.recompute = RECOMPUTE_MLP;
    schedules(&gate, policy, "pp=2,dp=4,shard=2", 8);
    printf("with others: %lld layouts; worst %.2g of what is allowed\n", (long long)gate.run,
           gate.worst);
    close_gate(&gate);
}

/* Every way to the keys of others, beside stages, tp and sharded state, with what is recomputed, how
 * micro-batches are cut and what overlaps in turn; layers that do and do not divide; fewer kv heads
 * than ranks that want one. */
static void with_context(int layers)
{
    static const char *const degrees[] = {"pp=2,tp=2,cp=2", "pp=3,cp=2", "pp=2,cp=2,dp=2,shard=2",
                                          "pp=2,cp=4"};
    static const int ranks[] = {8, 6, 8, 8};
    struct gate gate;
    open_gate(&gate, model_of(layers, layers % 2 == 0, MODEL_LLAMA));
    for (int kind = CP_RING; kind <= CP_ULYSSES; kind++)
        for (int i = 0; i < 4; i++) {
            struct policy policy = policy_of(&gate.model);
            int turn = i + 2 * kind + layers;
            if (i > 0 && (i == 1) != (layers % 2 != 0))
                continue;
            policy.cp_kind = (enum cp_kind)kind;
            policy.micro_batch = 1 + turn % 2;
            policy.recompute = (enum recompute)(turn % 4);
            policy.recompute_every = 1 + turn / 2 % 3;
            policy.overlap_context = turn % 3 != 0;
            policy.overlap_pipeline = turn % 4 < 2;
            policy.copy_stream = turn % 5 < 2;
            policy.tp_chunks = i == 0 ? 1 + kind % 2 : 1;
            policy.shard_stage = kind == CP_RING ? 1 : 3;
            schedules(&gate, policy, degrees[i], ranks[i]);
        }
    printf("with context, %d layers: %lld layouts; worst %.2g of what is allowed\n", layers,
           (long long)gate.run, gate.worst);
    close_gate(&gate);
}

static void with_experts(void)
{
    struct gate gate;
    struct model model = model_of(4, false, MODEL_LLAMA);
    model.experts = 4;
    model.top_k = 2;
    model.expert_ffn = 24;
    open_gate(&gate, model);
    struct policy policy = policy_of(&gate.model);
    schedules(&gate, policy, "pp=2", 2);
    schedules(&gate, policy, "pp=2,dp=2,ep=2", 4);
    policy.recompute = RECOMPUTE_FULL;
    policy.recompute_every = 3;
    schedules(&gate, policy, "pp=2,dp=2,ep=2", 4);
    printf("experts: %lld layouts; worst %.2g of what is allowed\n", (long long)gate.run,
           gate.worst);
    close_gate(&gate);
}

/* ---- planted faults ---- */

enum fault { LOST_MICRO_BATCH, SWAPPED_ORDER, NO_EMBEDDING_SUM, FAULTS };

static int find_op(const struct plan *plan, enum coll_kind kind, enum axis axis, int which)
{
    for (int i = 0; i < plan->n_ops; i++) {
        const struct op *op = &plan->ops[i];
        if (op->kind == OP_COLLECTIVE && op->shape.coll.coll.kind == kind &&
            op->shape.coll.axis == axis && which-- == 0)
            return i;
    }
    return -1;
}

static void to_nothing(struct op *op)
{
    op->kind = OP_ZERO;
    op->stream = 0;
    op->n_waits = 0;
    op->with_next = false;
    op->shape.vector.n = 0;
}

static void plant(struct crew *crew, enum fault fault)
{
    for (int r = 0; r < crew->n; r++) {
        struct plan *plan = &crew->plans[r];
        if (fault == NO_EMBEDDING_SUM && (r == 0 || r == crew->n - 1))
            to_nothing(&plan->ops[find_op(plan, COLL_ALL_REDUCE, AXIS_EMBED, 0)]);
        if (fault == SWAPPED_ORDER && r == 0) { /* the second micro-batch goes first */
            struct op *a = &plan->ops[find_op(plan, COLL_SEND, AXIS_PP, 0)];
            struct op *b = &plan->ops[find_op(plan, COLL_SEND, AXIS_PP, 1)];
            struct tensor t = a->t[0];
            a->t[0] = b->t[0];
            b->t[0] = t;
        }
        for (int i = 0; fault == LOST_MICRO_BATCH && r == 1 && i < plan->n_ops; i++)
            if (plan->ops[i].kind == OP_GEMM && plan->ops[i].micro == 2 &&
                plan->ops[i].phase == PHASE_BACKWARD && plan->ops[i].shape.gemm.beta != 0)
                plan->ops[i].shape.gemm.k = 0; /* its gradients of weights are not added */
    }
}

static void planted_faults(void)
{
    static const char *const names[] = {"lost micro-batch", "swapped order", "no embedding sum"};
    struct gate gate;
    open_gate(&gate, model_of(4, true, MODEL_GPT2));
    struct policy policy = policy_of(&gate.model);
    for (int fault = 0; fault < FAULTS; fault++) {
        struct degrees degrees = {.pp = 2};
        struct crew crew;
        struct gate_row row;
        CHECK_EQ(crew_plan(&crew, &gate.model, &policy, &degrees, 1, 2), 0);
        plant(&crew, (enum fault)fault);
        CHECK_EQ(crew_run(&crew, LOCKSTEP_EARLY, &gate.model, SEED, STEPS), 0);
        double severity = crew_compare(&crew, &gate.reference, &row);
        CHECK(severity > 10);
        printf("planted: %-18s %.3g of what is allowed (%s of %s)\n", names[fault], severity,
               row.check, row.subject);
        crew_release(&crew);
    }
    close_gate(&gate);
}

/* A receive that no send meets, and a send of the wrong size, are named before anything runs. */
static void transfers_that_do_not_meet(void)
{
    struct model model = model_of(4, true, MODEL_GPT2);
    struct policy policy = policy_of(&model);
    for (int fault = 0; fault < 2; fault++) {
        struct degrees degrees = {.pp = 2};
        struct crew crew;
        struct plan_check check;
        CHECK_EQ(crew_plan(&crew, &model, &policy, &degrees, 1, 2), 0);
        uint64_t sum = 0;
        for (int r = 0; r < 2; r++)
            sum += plan_digest_transfers(&crew.plans[r], AXIS_PP);
        CHECK(sum == 0);
        struct op *op = &crew.plans[0].ops[find_op(&crew.plans[0], COLL_SEND, AXIS_PP, 3)];
        if (fault == 0)
            to_nothing(op);
        else
            op->shape.coll.coll.count /= 2;
        CHECK_EQ(plan_check_all(&check, 2, crew_lend, &crew), FAIL_WRONG);
        CHECK_HAS(fail_message(), fault == 0 ? "would hang" : "comes with");
        fail_clear();
        sum = 0;
        for (int r = 0; r < 2; r++)
            sum += plan_digest_transfers(&crew.plans[r], AXIS_PP);
        CHECK(sum != 0);
        crew_release(&crew);
    }
}

int main(void)
{
    kernels_blas_threads(1);
    planted_faults();
    transfers_that_do_not_meet();
    uneven();
    with_others();
    with_context(7);
    with_context(8);
    with_experts();
    dense(false, MODEL_GPT2, false);
    dense(true, MODEL_GPT2, true);
    dense(false, MODEL_LLAMA, true);
    return test_end();
}
