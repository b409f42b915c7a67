/*
 * expert_gate.h: the gate in one process for layers of experts: a point of layout and policy is run in
 * lockstep and compared with one rank, its calls are checked to fit together, what it communicates is
 * counted three ways, and its ranks save every element.
 */
#ifndef TESTS_EXPERT_GATE_H
#define TESTS_EXPERT_GATE_H

#include "tests/test.h"

#include "tests/crew_check.h"

#include "workloads/checkpoint.h"
#include "workloads/formulas.h"

enum { STEPS = 2, SEED = 7 };

static inline struct model small_model(int shared, int top_k)
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

static inline struct policy small_policy(const struct model *model, const char *routing,
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
    int64_t seen, run, stride; /* points offered; every so many is run */
    int steps;
    double worst;
    struct gate_row worst_row;
    char worst_at[160];
};

static inline void describe(const struct policy *p, const struct degrees *d, int nodes, char *text,
                            size_t size)
{
    snprintf(text, size,
             "%d nodes pp=%d cp=%d tp=%d etp=%d ep=%d dp=%d shard=%d stage %d order %s routing %d "
             "capacity %g "
             "micro %lld "
             "recompute %d rows %d chunks %d",
             nodes, d->pp, d->cp, d->tp, d->etp, d->ep, d->dp, d->shard, p->shard_stage, d->order,
             (int)p->routing.kind, p->routing.capacity, (long long)p->micro_batch,
             (int)p->recompute, p->sequence_parallel, p->tp_chunks);
}

static inline void saved_run(void *arg, int64_t whole_first, int64_t image_first, int64_t count)
{
    unsigned char *saved = arg;
    (void)image_first;
    memset(saved + whole_first, 1, (size_t)count);
}

/* Do the images of all ranks hold every element of every tensor? */
static inline bool saves_all(const struct crew *crew, const struct gate_reference *reference)
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

/* All-to-alls of rows of a layer and micro-batch. */
static inline double calls_of(const struct plan *plan, int layer)
{
    double calls = 0;
    for (int i = 0; i < plan->n_ops; i++)
        calls += plan->ops[i].kind == OP_COLLECTIVE && plan->ops[i].shape.coll.counted &&
                 plan->ops[i].layer == layer;
    return calls / plan->micro_batches;
}

/*
 * Dropless, of one step: what went over ep is, beyond what does not depend on the router, four times
 * (six where recomputed) the rows that tokens of a rank send to experts of others, which the load of
 * that rank says.
 */
static inline bool sent_as_counted(const struct crew *crew, const struct plan_check *check,
                                   const struct gate *gate)
{
    const struct model *m = gate->model;
    double rows = 0, even = 0, posted = crew->lockstep.posted_bytes[AXIS_EP];
    double planned = check->traffic[AXIS_EP].inside + check->traffic[AXIS_EP].across;
    for (int r = 0; r < crew->n; r++) {
        const struct plan *plan = &crew->plans[r];
        const struct group *ep = &plan->layout.group[AXIS_EP];
        const unsigned char *load =
            lockstep_memory(&crew->lockstep, r, (enum plan_buffer)plan->load.buffer);
        for (int i = 0; i < plan->n_ops; i++) {
            const struct op *op = &plan->ops[i];
            if (op->kind != OP_COLLECTIVE || !op->shape.coll.counted)
                continue;
            even += (double)op->shape.coll.coll.away;
        }
        for (int64_t l = 0; l < m->layers; l++)
            for (int64_t e = 0; e < m->experts; e++) {
                double tokens;
                memcpy(&tokens,
                       load + plan->load.offset +
                           (size_t)(l * (m->experts + 3) + e) * sizeof tokens,
                       sizeof tokens);
                rows += e / (m->experts / ep->size) == ep->me ? 0 : tokens * calls_of(plan, (int)l);
            }
    }
    double expected = planned + 4 * ((double)m->hidden * rows - even);
    if (fabs(posted - expected) > 1e-9 * expected)
        printf("ep: posted %.17g, %.17g by the load of ranks\n", posted, expected);
    return fabs(posted - expected) <= 1e-9 * expected;
}

/* Bytes by three counts, operations by closed form and plans. */
static inline bool work_agrees(const struct crew *crew, const struct plan_check *check,
                               const struct gate *gate, const struct policy *policy)
{
    bool agree = crew_volumes_agree(crew, check, gate->model, policy, gate->steps);
    double ops = formula_ops(gate->model, &crew->plans[0].layout.degrees, policy);
    double state = 0, of_all = crew->n * formula_state(gate->model, &crew->plans[0].layout.degrees);
    for (int r = 0; r < crew->n; r++)
        state += (double)crew->plans[r].n_state;
    if (fabs(state - of_all) > 1e-9 * of_all) {
        printf("formula %.17g, plans %.17g elements of state\n", of_all, state);
        agree = false;
    }
    if (ops >= 0 && ops != (double)check->ops) {
        printf("formula %.17g, plans %lld operations\n", ops, (long long)check->ops);
        agree = false;
    }
    if (routing_is_dropless(&policy->routing) && crew->plans[0].layout.degrees.tp == 1)
        agree = agree && sent_as_counted(crew, check, gate);
    return agree;
}

static inline void visit(struct gate *gate, const struct degrees *degrees, int nodes, int per_node,
                         const struct policy *policy)
{
    struct crew crew;
    struct gate_row row;
    struct plan_check check;
    char at[256];
    enum lockstep_order order = gate->seen % 2 ? LOCKSTEP_LATE : LOCKSTEP_EARLY;
    if (gate->seen++ % gate->stride != 0)
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

#endif
