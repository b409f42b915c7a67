/*
 * layout_gate.h: the layout-invariance gate over all layouts of layout_space.h, for one style of
 * model: loss, gradient norm, every gradient and every parameter of every point are compared with
 * one rank under the bounds of driver/gate.h, in fp32, and what the points communicate with each
 * other is checked to fit together. Points alternate between the two orders of lockstep.
 */
#ifndef TESTS_LAYOUT_GATE_H
#define TESTS_LAYOUT_GATE_H

#include "tests/test.h"

#include "tests/crew_check.h"

#include "tests/layout_space.h"

enum { STEPS = 2, SEED = 7 };

/* Sanitizers make it some ten times slower: they get every so many points. */
#if defined(__SANITIZE_ADDRESS__)
enum { STRIDE = 61 };
#else
enum { STRIDE = 1 };
#endif

/* A model that splits eight ways, padded in its vocabulary; and its batch. */
static struct model small_model(int style)
{
    struct model m = {.layers = 2,
                      .hidden = 32,
                      .heads = 8,
                      .kv_heads = 8,
                      .head = 4,
                      .ffn = 32,
                      .vocabulary = 61,
                      .sequence = 16,
                      .pad = 64,
                      .tied = true,
                      .style = style,
                      .theta = 10000,
                      .lr = 1e-3};
    snprintf(m.name, sizeof m.name, "%s", style == MODEL_GPT2 ? "small" : "small-llama");
    if (style == MODEL_LLAMA) {
        m.kv_heads = 2; /* replicated from tp=4 on */
        m.tied = false;
    }
    return m;
}

static struct policy small_policy(const struct model *model)
{
    struct policy p;
    policy_defaults(&p, model);
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
    struct gate_reference reference;
    int64_t seen, run;
    double worst;
    struct gate_row worst_row;
    char worst_at[128];
};

static inline void describe(const struct space_point *point, char *text, size_t size)
{
    const struct policy *p = &point->policy;
    const struct degrees *d = &point->degrees;
    snprintf(text, size,
             "%dx%d pp=%d %s tp=%d cp=%d dp=%d shard=%d order %s cp-kind %d stage %d every %d "
             "reshard %d "
             "prefetch %d rows %d overlap %d%d%d%d%d chunks %d micro %lld recompute %d copy %d",
             point->nodes, point->ranks_per_node, d->pp, schedule_name((int)p->schedule), d->tp,
             d->cp, d->dp, d->shard, d->order, (int)p->cp_kind, p->shard_stage, p->reduce_every,
             p->fsdp_reshard, p->fsdp_prefetch, p->sequence_parallel, p->overlap_gradients,
             p->overlap_parameters, p->overlap_tensor, p->overlap_context, p->overlap_pipeline,
             p->tp_chunks, (long long)p->micro_batch, (int)p->recompute, p->copy_stream);
}

static void visit(void *arg, const struct space_point *point)
{
    struct gate *gate = arg;
    struct crew crew;
    struct gate_row row;
    struct plan_check check;
    char at[256];
    enum lockstep_order order = gate->seen % 2 ? LOCKSTEP_LATE : LOCKSTEP_EARLY;
    if (gate->seen++ % STRIDE != 0)
        return;
    describe(point, at, sizeof at);
    int rc = crew_plan(&crew, gate->model, &point->policy, &point->degrees, point->nodes,
                       point->ranks_per_node);
    if (rc == 0)
        rc = plan_check_all(&check, crew.n, crew_lend, &crew);
    if (rc == 0)
        rc = crew_run(&crew, order, gate->model, SEED, STEPS);
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
    if (!CHECK(crew_volumes_agree(&crew, &check, gate->model, &point->policy, STEPS)))
        printf("%s\n", at);
    if (severity > gate->worst) {
        gate->worst = severity;
        gate->worst_row = row;
        snprintf(gate->worst_at, sizeof gate->worst_at, "%.127s", at);
    }
    gate->run++;
    crew_release(&crew);
}

/* Legal by hand: what this version has, and what divides. */
static int64_t tuples_by_hand(const struct model *m, int n)
{
    int64_t legal = 0;
    for (int tp = 1; tp <= n; tp++)
        for (int code = 0; code < n * n * n; code++) {
            int shard = 1 + code % n, cp = 1 + code / n % n, pp = 1 + code / n / n;
            int64_t vocabulary = (m->vocabulary + m->pad - 1) / m->pad * m->pad;
            bool splits = n % tp == 0 && m->heads % tp == 0 && m->ffn % tp == 0 &&
                          vocabulary % tp == 0 && (m->kv_heads % tp == 0 || tp % m->kv_heads == 0);
            bool cuts = cp == 1 || m->sequence % (2 * cp) == 0;
            bool stages = pp <= m->layers && n / tp % cp == 0 && n / tp / cp % pp == 0;
            legal += splits && cuts && stages && n / tp / cp / pp % shard == 0;
        }
    return legal;
}

static void all_layouts(int style, int ranks, int64_t tuples, int64_t points)
{
    struct model model = small_model(style);
    struct gate gate = {.model = &model};
    struct space space = {.ranks = ranks,
                          .model = &model,
                          .base = small_policy(&model),
                          .micro_batches = 2,
                          .visit = visit,
                          .arg = &gate};
    CHECK_EQ(crew_reference(&gate.reference, &model, &space.base, SEED, STEPS), 0);
    space_walk(&space);
    CHECK_EQ(space.legal_tuples, tuples_by_hand(&model, ranks));
    CHECK_EQ(space.legal_tuples, tuples);
    CHECK_EQ(space.points, points);
    CHECK(gate.run == (points + STRIDE - 1) / STRIDE);
    printf(
        "%s, %d ranks: %lld of %lld tuples of degrees are legal, %lld layouts and policies, %lld "
        "run; worst %.2g of what is allowed: %s of %s, %s\n",
        model.name, ranks, (long long)space.legal_tuples, (long long)space.tuples,
        (long long)space.points, (long long)gate.run, gate.worst, gate.worst_row.check,
        gate.worst_row.subject, gate.worst_at);
    plan_release(&gate.reference.plan);
    free(gate.reference.gradient);
    free(gate.reference.parameter);
}

/* The numbers of legal tuples of degrees, and of layouts and policies, are known beforehand. */
static int layout_gate(int style)
{
    kernels_blas_threads(1);
    all_layouts(style, 1, 1, 12);
    all_layouts(style, 2, 5, 402);
    all_layouts(style, 4, 14, 3462);
    all_layouts(style, 8, 30, 10164);
    return test_end();
}

#endif
