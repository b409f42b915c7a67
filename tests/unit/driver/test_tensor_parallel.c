/*
 * Tensor parallelism computes what one rank does: gradients, updates, losses and norms of every
 * degree, both styles, with and without sequence parallelism, chunks, overlap, recomputation and
 * replicas, with collectives as early and as late as the plan allows. kv heads are split and, beyond
 * their number, replicated.
 */
#include "tests/lockstep_gate.h"
#include "tests/test.h"

enum { BATCH = 8, SEED = 5 };

struct which {
    const char *model;
    const char *parallel;
    int ranks;
    bool sequence_parallel, overlap;
    int chunks;
    enum recompute recompute;
    int64_t micro_batch;
    enum lockstep_order order;
};

static void small_model(struct model *model, const char *name)
{
    CHECK_EQ(model_load(model, name), 0);
    model->layers = 2;
    model->sequence = 16;
    model->vocabulary = 250; /* padded to 256 */
}

static void gate_like_policy(struct policy *policy, const struct model *model, int64_t micro_batch)
{
    policy_defaults(policy, model);
    policy->global_batch = BATCH;
    policy->micro_batch = micro_batch;
    policy->epsilon = 1e-6f;
    policy->warm_up = 2;
    policy->decay_steps = 20;
    policy->bucket_bytes = 40000;
}

static void check_layout(const struct gate_reference *reference, const struct which *w)
{
    struct policy policy;
    struct degrees degrees = {0};
    struct crew crew;
    struct gate_row worst;
    gate_like_policy(&policy, &reference->model, w->micro_batch);
    policy.sequence_parallel = w->sequence_parallel;
    policy.overlap_tensor = w->overlap;
    policy.tp_chunks = w->chunks;
    policy.recompute = w->recompute;
    CHECK_EQ(layout_parse(w->parallel, &degrees), 0);
    if (!CHECK_EQ(crew_plan(&crew, &reference->model, &policy, &degrees, 1, w->ranks), 0) ||
        !CHECK_EQ(crew_run(&crew, w->order, &reference->model, SEED, GATE_STEPS), 0)) {
        printf("%s %s: %s\n", w->model, w->parallel, fail_message());
        fail_clear();
        return;
    }
    double severity = crew_compare(&crew, reference, &worst);
    if (!CHECK(severity <= 1))
        printf("%s %s sp=%d overlap=%d chunks=%d recompute=%d micro=%d: %s of %s on rank %d: %g, "
               "allowed %g\n",
               w->model, w->parallel, w->sequence_parallel, w->overlap, w->chunks,
               (int)w->recompute, (int)w->micro_batch, worst.check, worst.subject, worst.rank,
               worst.difference, worst.allowed);
    double tokens = 0, flops = 0, want = BATCH * model_flops_per_sequence(&reference->model);
    for (int r = 0; r < crew.n; r++) {
        tokens += (double)crew.plans[r].totals.tokens;
        flops += crew.plans[r].totals.model_flops;
    }
    CHECK_EQ(tokens, BATCH * reference->model.sequence);
    CHECK_NEAR(flops, want, 1e-12 * want);
    crew_release(&crew);
}

static void check_model(const char *name, const struct which *cases, size_t n)
{
    struct model model;
    struct policy policy;
    struct gate_reference reference;
    small_model(&model, name);
    gate_like_policy(&policy, &model, BATCH);
    CHECK_EQ(crew_reference(&reference, &model, &policy, SEED, GATE_STEPS), 0);
    for (size_t i = 0; i < n; i++)
        if (strcmp(cases[i].model, name) == 0)
            check_layout(&reference, &cases[i]);
    gate_reference_release(&reference);
}

int main(void)
{
    static const struct which cases[] = {
        {"tiny", "tp=2", 2, true, true, 1, RECOMPUTE_NONE, 4, LOCKSTEP_EARLY},
        {"tiny", "tp=2", 2, false, true, 1, RECOMPUTE_NONE, 8, LOCKSTEP_LATE},
        {"tiny", "tp=4", 4, true, false, 4, RECOMPUTE_FULL, 4, LOCKSTEP_LATE},
        {"tiny", "tp=8", 8, true, true, 2, RECOMPUTE_SELECTIVE, 8, LOCKSTEP_EARLY},
        {"tiny", "tp=8", 8, false, false, 2, RECOMPUTE_FULL, 2, LOCKSTEP_EARLY},
        {"tiny", "tp=2,dp=4", 8, true, true, 2, RECOMPUTE_NONE, 1, LOCKSTEP_LATE},
        {"tiny-llama", "tp=2", 2, true, true, 1, RECOMPUTE_NONE, 8, LOCKSTEP_LATE},
        {"tiny-llama", "tp=4", 4, false, true, 4, RECOMPUTE_FULL, 2, LOCKSTEP_EARLY},
        {"tiny-llama", "tp=8", 8, true, true, 1, RECOMPUTE_FULL, 8, LOCKSTEP_LATE},
        {"tiny-llama", "tp=16", 16, true, true, 1, RECOMPUTE_NONE, 4, LOCKSTEP_EARLY},
        {"tiny-llama", "tp=16", 16, false, false, 1, RECOMPUTE_SELECTIVE, 4, LOCKSTEP_LATE},
        {"tiny-llama", "tp=4,dp=2", 8, true, true, 2, RECOMPUTE_SELECTIVE, 2, LOCKSTEP_LATE},
    };
    check_model("tiny", cases, sizeof cases / sizeof cases[0]);
    check_model("tiny-llama", cases, sizeof cases / sizeof cases[0]);
    return test_end();
}
