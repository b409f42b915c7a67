/*
 * Layers of experts on every layout: the gate in one process, over ep, etp, tp, dp, accumulation,
 * recomputation and the three kinds of routing, against one rank that does all the work.
 */
#include "tests/test.h"

#include "tests/crew_check.h"

#include "workloads/checkpoint.h"
#include "workloads/formulas.h"

enum { STEPS = 2, SEED = 7 };

/* All of them take half a minute: every third, and with sanitizers a few. */
#if defined(__SANITIZE_ADDRESS__)
enum { STRIDE = 83 };
#else
enum { STRIDE = 3 };
#endif

static struct model small_model(int shared, int top_k)
{
    struct model m = {.style = MODEL_LLAMA,
                      .layers = 2,
                      .hidden = 32,
                      .heads = 8,
                      .kv_heads = 8,
                      .head = 4,
                      .ffn = 32,
                      .experts = 8,
                      .top_k = top_k,
                      .expert_ffn = 16,
                      .shared_experts = shared,
                      .vocabulary = 61,
                      .sequence = 16,
                      .pad = 64,
                      .theta = 10000,
                      .lr = 1e-3};
    snprintf(m.name, sizeof m.name, "small-moe");
    return m;
}

static struct policy small_policy(const struct model *model, const char *routing,
                                  const char *capacity)
{
    struct policy p;
    policy_defaults(&p, model);
    CHECK_EQ(routing_parse(routing, capacity, &p.routing), 0);
    p.routing.balance = 0.1f;
    p.routing.seed = 3;
    p.global_batch = 16;
    p.micro_batch = 8;
    p.epsilon = 1e-6f;
    p.warm_up = 2;
    p.decay_steps = 20;
    p.bucket_bytes = 16384;
    return p;
}

struct gate {
    const struct model *model;
    struct policy policy;
    struct gate_reference reference;
    int64_t seen, run;
    int steps;
    double worst;
    struct gate_row worst_row;
    char worst_at[160];
};

static void describe(const struct policy *p, const struct degrees *d, int nodes, char *text,
                     size_t size)
{
    snprintf(
        text, size,
        "%d nodes pp=%d cp=%d tp=%d etp=%d ep=%d dp=%d shard=%d order %s routing %d capacity %g "
        "micro %lld "
        "recompute %d rows %d chunks %d",
        nodes, d->pp, d->cp, d->tp, d->etp, d->ep, d->dp, d->shard, d->order, (int)p->routing.kind,
        p->routing.capacity, (long long)p->micro_batch, (int)p->recompute, p->sequence_parallel,
        p->tp_chunks);
}

static void saved_run(void *arg, int64_t whole_first, int64_t image_first, int64_t count)
{
    unsigned char *saved = arg;
    (void)image_first;
    memset(saved + whole_first, 1, (size_t)count);
}

/* Do the images of all ranks hold every element of every tensor? */
static bool saves_all(const struct crew *crew, const struct gate_reference *reference)
{
    bool whole = true;
    struct checkpoint_shard *shard = must_alloc((size_t)crew->n, sizeof *shard);
    for (int r = 0; r < crew->n; r++)
        checkpoint_shard_make(&crew->plans[r], &shard[r]);
    for (int i = 0; i < reference->plan.n_tensors && whole; i++) {
        const struct plan_tensor *t = &reference->plan.tensors[i];
        size_t n = (size_t)(t->rows * t->columns);
        unsigned char *saved = must_alloc(n, 1);
        for (int r = 0; r < crew->n; r++)
            for (int p = 0; p < shard[r].n_parts; p++)
                if (strcmp(shard[r].tensors[shard[r].parts[p].tensor].name, t->name) == 0)
                    checkpoint_part_runs(&shard[r], &shard[r].parts[p], saved_run, saved);
        for (size_t e = 0; e < n; e++)
            whole = whole && saved[e] == 1;
        free(saved);
    }
    for (int r = 0; r < crew->n; r++)
        checkpoint_shard_release(&shard[r]);
    free(shard);
    return whole;
}

/* Bytes by three counts, operations by closed form and plans. */
static bool work_agrees(const struct crew *crew, const struct plan_check *check,
                        const struct gate *gate, const struct policy *policy)
{
    bool agree = crew_volumes_agree(crew, check, gate->model, policy, gate->steps);
    double ops = formula_ops(gate->model, &crew->plans[0].layout.degrees, policy);
    if (ops >= 0 && ops != (double)check->ops) {
        printf("formula %.17g, plans %lld operations\n", ops, (long long)check->ops);
        agree = false;
    }
    return agree;
}

static void visit(struct gate *gate, const struct degrees *degrees, int nodes, int per_node,
                  const struct policy *policy)
{
    struct crew crew;
    struct gate_row row;
    struct plan_check check;
    char at[256];
    enum lockstep_order order = gate->seen % 2 ? LOCKSTEP_LATE : LOCKSTEP_EARLY;
    if (gate->seen++ % STRIDE != 0)
        return;
    describe(policy, degrees, nodes, at, sizeof at);
    int rc = crew_plan(&crew, gate->model, policy, degrees, nodes, per_node);
    if (rc == 0)
        rc = plan_check_all(&check, crew.n, crew_lend, &crew);
    if (rc == 0)
        rc = crew_run(&crew, order, gate->model, SEED, gate->steps);
    if (!CHECK_EQ(rc, 0)) {
        printf("%s: %s\n", at, fail_message());
        fail_clear();
        crew_release(&crew);
        return;
    }
    double severity = crew_compare(&crew, &gate->reference, &row);
    if (!CHECK(severity <= 1 && crew_covers(&crew, &gate->reference) &&
               saves_all(&crew, &gate->reference)))
        printf("%s: %.3g of what is allowed: %s of %s on rank %d\n", at, severity, row.check,
               row.subject, row.rank);
    if (!CHECK(work_agrees(&crew, &check, gate, policy)))
        printf("%s\n", at);
    if (severity > gate->worst) {
        gate->worst = severity;
        gate->worst_row = row;
        snprintf(gate->worst_at, sizeof gate->worst_at, "%.159s", at);
    }
    gate->run++;
    crew_release(&crew);
}

static void visit_policies(struct gate *gate, struct degrees *d, int ranks)
{
    static const enum schedule_kind schedules[] = {SCHEDULE_1F1B, SCHEDULE_ZB_H1, SCHEDULE_GPIPE};
    static const char *const orders[] = {"", "tp-cp-dp-ep-pp", "dp-tp-cp-ep-pp"};
    struct policy p = gate->policy;
    for (int a = 1; a <= 2; a++)
        for (int recompute = RECOMPUTE_NONE; recompute <= RECOMPUTE_FULL; recompute += 2)
            for (int rows = 0; rows < (d->tp > 1 ? 2 : 1); rows++) {
                struct layout layout;
                int i = (int)gate->seen, nodes = ranks % 2 == 0 && i / 2 % 2 == 0 ? 2 : 1;
                p.micro_batch = gate->policy.global_batch / d->dp / a;
                p.recompute = (enum recompute)recompute;
                p.recompute_every = 1 + a % 2;
                p.sequence_parallel = rows;
                p.tp_chunks = d->tp > 1 ? 1 + i % 2 : 1;
                p.overlap_gradients = i % 3 != 0;
                p.copy_stream = i / 4 % 2 != 0;
                p.cp_kind = (enum cp_kind)(i % 3);
                p.schedule = schedules[i % 3];
                snprintf(d->order, sizeof d->order, "%s", orders[i % 3]);
                if (layout_init(&layout, nodes, ranks / nodes, 0, d) != 0)
                    d->order[0] = '\0';
                fail_clear();
                if (layout_init(&layout, nodes, ranks / nodes, 0, d) == 0 &&
                    transformer_check(gate->model, &layout, &p) == 0)
                    visit(gate, d, nodes, ranks / nodes, &p);
                fail_clear();
            }
}

static int64_t all_layouts(struct gate *gate, int ranks)
{
    int64_t before = gate->run;
    struct degrees d = {0};
    for (d.pp = 1; d.pp <= 2; d.pp++)
        for (d.cp = 1; d.cp <= 2; d.cp++)
            for (d.tp = 1; d.tp * d.pp * d.cp <= ranks; d.tp *= 2)
                for (d.ep = 1; d.ep <= ranks / d.pp; d.ep *= 2)
                    for (int whole = 0; whole < (d.tp > 1 ? 2 : 1); whole++)
                        for (d.shard = 1; d.shard <= (d.ep == 1 ? 2 : 1); d.shard++) {
                            d.etp = whole ? 1 : d.tp;
                            d.dp = ranks / (d.tp * d.pp * d.cp);
                            if (d.dp % d.shard == 0)
                                visit_policies(gate, &d, ranks);
                        }
    return gate->run - before;
}

static void gate_of(const char *routing, const char *capacity, int shared, int top_k)
{
    struct model model = small_model(shared, top_k);
    struct gate gate = {.model = &model, .policy = small_policy(&model, routing, capacity)};
    gate.steps = gate.policy.routing.kind == ROUTING_LEARNED ? 1 : STEPS;
    CHECK_EQ(crew_reference(&gate.reference, &model, &gate.policy, SEED, gate.steps), 0);
    for (int ranks = 1; ranks <= 8; ranks *= 2)
        all_layouts(&gate, ranks);
    CHECK_EQ(gate.seen, 327);
    CHECK_EQ(gate.run, (gate.seen + STRIDE - 1) / STRIDE);
    printf("%s, capacity %s, %d shared, top %d: %lld layouts and policies; worst %.2g of what is "
           "allowed: %s of %s, %s\n",
           routing, capacity, shared, top_k, (long long)gate.run, gate.worst, gate.worst_row.check,
           gate.worst_row.subject, gate.worst_at);
    plan_release(&gate.reference.plan);
    free(gate.reference.gradient);
    free(gate.reference.parameter);
}

/* ---- finite differences ---- */

/* The objective of a step: token losses, and the load-balance losses of its layers. */
static double objective(struct crew *crew, const struct model *model, const struct policy *p)
{
    double log[SCALARS], sum;
    const struct tensor at = crew->plans[0].load;
    CHECK_EQ(lockstep_run(&crew->lockstep, LOCKSTEP_EARLY, 1, log), 0);
    sum = log[SCALAR_LOSS_SUM];
    const unsigned char *load =
        (unsigned char *)lockstep_memory(&crew->lockstep, 0, (enum plan_buffer)at.buffer) +
        at.offset;
    for (int64_t l = 0; l < model->layers; l++) {
        double loss;
        memcpy(&loss, load + (size_t)(l * (model->experts + 3) + model->experts) * sizeof loss,
               sizeof loss);
        sum += (double)p->routing.balance * loss;
    }
    return sum;
}

/* Along its own gradient a tensor's objective must grow by the norm of it. */
static void difference(struct crew *crew, const struct model *model, const struct policy *p,
                       int tensor)
{
    const struct plan_tensor *t = &crew->plans[0].tensors[tensor];
    const float *g = crew->found[0].gradient + t->offset;
    double norm = 0, value[2];
    int64_t n = t->rows * t->columns;
    for (int64_t i = 0; i < n; i++)
        norm += (double)g[i] * (double)g[i];
    norm = sqrt(norm);
    double h = 0.1 / (1 + norm);
    for (int side = 0; side < 2; side++) {
        lockstep_reset(&crew->lockstep, SEED);
        float *x = (float *)lockstep_memory(&crew->lockstep, 0, BUFFER_PARAMETER) + t->offset;
        for (int64_t i = 0; i < n; i++)
            x[i] += (float)((side ? h : -h) * (double)g[i] / norm);
        value[side] = objective(crew, model, p);
    }
    double slope = (value[1] - value[0]) / (2 * h);
    if (!CHECK(fabs(slope - norm) <= 5e-3 * norm + 2e-3))
        printf("%s: slope %.6g, gradient %.6g\n", t->name, slope, norm);
}

static void differences(const char *routing, const char *capacity, int top_k)
{
    struct model model = small_model(1, top_k);
    struct policy p = small_policy(&model, routing, capacity);
    struct degrees alone = {0};
    struct crew crew;
    int64_t n = 0;
    p.routing.balance = 2.0f; /* so that it counts */
    CHECK_EQ(crew_plan(&crew, &model, &p, &alone, 1, 1), 0);
    CHECK_EQ(crew_run(&crew, LOCKSTEP_EARLY, &model, SEED, 1), 0);
    for (int t = 0; t < crew.plans[0].n_tensors; t++)
        if (strstr(crew.plans[0].tensors[t].name, "h.") == crew.plans[0].tensors[t].name) {
            difference(&crew, &model, &p, t);
            n++;
        }
    printf("%s, top %d: %lld gradients are slopes\n", routing, top_k, (long long)n);
    crew_release(&crew);
}

/* ---- planted faults ---- */

enum fault { LOST_GATES, LOST_SUM, SWAPPED_BLOCKS, OTHER_ROWS, TWICE_BALANCED, FAULTS };

/* In all plans of the crew, or on one rank. */
static void plant(struct crew *crew, enum fault fault)
{
    for (int r = 0; r < crew->n; r++)
        for (int i = 0; i < crew->plans[r].n_ops; i++) {
            struct op *op = &crew->plans[r].ops[i];
            bool exchange = op->kind == OP_COLLECTIVE && op->shape.coll.axis == AXIS_EP &&
                            op->phase == PHASE_FORWARD;
            if (fault == LOST_GATES && op->kind == OP_COMBINE)
                op->t[2] = (struct tensor){0};
            if (fault == LOST_SUM && op->kind == OP_COLLECTIVE && op->shape.coll.axis == AXIS_EDP)
                op->t[1] = op->t[0] = (struct tensor){BUFFER_MOMENT1, op->t[0].offset};
            if (fault == SWAPPED_BLOCKS && op->kind == OP_GROUPED_GEMM && r == 0 &&
                op->shape.grouped.form == GROUPED_FORWARD) {
                int32_t *which = (int32_t *)op->shape.grouped.which;
                which[0] = 1;
            }
            if (fault == OTHER_ROWS && exchange && r == 1)
                op->t[0] = (struct tensor){BUFFER_ACTIVATION, 0};
            if (fault == TWICE_BALANCED && op->kind == OP_ROUTE_GRAD)
                op->shape.route.balance *= 2;
        }
}

static void faults(void)
{
    struct model model = small_model(0, 2);
    struct policy p = small_policy(&model, "skewed:1.0", "auto");
    struct degrees d = {.tp = 1, .ep = 2, .dp = 4};
    struct gate_reference reference;
    p.micro_batch = 4;
    CHECK_EQ(crew_reference(&reference, &model, &p, SEED, STEPS), 0);
    for (int fault = 0; fault < FAULTS; fault++) {
        struct crew crew;
        struct gate_row row;
        CHECK_EQ(crew_plan(&crew, &model, &p, &d, 1, 4), 0);
        plant(&crew, (enum fault)fault);
        CHECK_EQ(crew_run(&crew, LOCKSTEP_EARLY, &model, SEED, STEPS), 0);
        double severity = crew_compare(&crew, &reference, &row);
        printf("planted fault %d: %.3g of what is allowed (%s of %s)\n", fault, severity, row.check,
               row.subject);
        CHECK(severity >= 10);
        crew_release(&crew);
    }
    plan_release(&reference.plan);
    free(reference.gradient);
    free(reference.parameter);
}

int main(void)
{
    kernels_blas_threads(1);
    differences("balanced", "auto", 2);
    differences("skewed:1.0", "1", 1);
    faults();
    gate_of("balanced", "auto", 0, 2);
    gate_of("skewed:1.0", "auto", 1, 2);
    gate_of("skewed:1.5", "1", 0, 1);
    gate_of("learned", "1.25", 2, 2);
    gate_of("learned", "0.75", 0, 1);
    return test_end();
}
