/*
 * Layers of experts on every layout: the gate in one process, over ep, etp, tp, dp, accumulation,
 * recomputation and the three kinds of routing, against one rank that does all the work.
 */
#include "tests/expert_gate.h"

/* All of them take half a minute: every fifth, and with sanitizers a few. Prime to 2 and 3, by which
 * choices rotate: each of them meets all points. */
#if defined(__SANITIZE_ADDRESS__)
enum { STRIDE = 83 };
#else
enum { STRIDE = 5 };
#endif

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
                p.head_chunks = d->tp * d->pp == 1 ? 1 + i % 2 : 1;
                p.tp_chunks = d->tp > 1 ? 1 + i % 2 : 1;
                p.overlap_gradients = i % 3 != 0;
                p.overlap_expert = i % 2 == 0;
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
    struct gate gate = {
        .model = &model, .policy = small_policy(&model, routing, capacity), .stride = STRIDE};
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
                op->t[1] = op->t[0] = (struct tensor){BUFFER_MOMENT1, 0};
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
    gate_of("learned", "none", 1, 2);
    return test_end();
}
