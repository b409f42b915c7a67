/* A plan's sums equal the model's formulas on any layout; seal refuses broken plans; a deleted op is
 * noticed; parameters are those of the published model. */
#include "tests/test.h"

#include <stdlib.h>

#include "base/err.h"
#include "workloads/transformer.h"

static void make(struct plan *plan, struct model *model, int replicas, int rank, int64_t batch,
                 int64_t micro, bool overlap)
{
    struct degrees degrees = {0};
    struct layout layout;
    struct policy policy;
    policy_defaults(&policy, model);
    policy.global_batch = batch;
    policy.micro_batch = micro;
    policy.bucket_bytes = 400000;
    policy.overlap_gradients = overlap;
    CHECK_EQ(layout_parse("", &degrees), 0);
    CHECK_EQ(layout_init(&layout, replicas, 1, rank, &degrees), 0);
    CHECK_EQ(transformer_plan(plan, model, &layout, &policy), 0);
}

static void sums_equal_formulas(void)
{
    static const int replicas[] = {1, 2, 3, 4, 7, 16};
    struct model model;
    CHECK_EQ(model_load(&model, "tiny"), 0);
    model.vocabulary = 250; /* padded to 256 */
    for (size_t i = 0; i < sizeof replicas / sizeof replicas[0]; i++) {
        int n = replicas[i];
        int64_t batch = 4 * n;
        double flops = 0, bytes = 0;
        int64_t tokens = 0;
        uint64_t digest = 0;
        for (int rank = 0; rank < n; rank++) {
            struct plan plan;
            make(&plan, &model, n, rank, batch, 2, rank % 2 == 0);
            flops += plan.totals.model_flops;
            tokens += plan.totals.tokens;
            bytes += plan.totals.wire_bytes[AXIS_DP];
            CHECK(plan.n_parameters == model_parameters(&model) + 6 * model.hidden);
            CHECK_EQ(plan.micro_batches, 2);
            if (rank == 0)
                digest = plan_digest(&plan, AXIS_DP);
            CHECK(plan_digest(&plan, AXIS_DP) == digest);
            plan_release(&plan);
        }
        double want = (double)batch * model_flops_per_sequence(&model);
        CHECK_NEAR(flops, want, 1e-12 * want);
        CHECK_EQ(tokens, batch * model.sequence);
        want = n * transformer_dp_bytes(&model, n);
        CHECK_NEAR(bytes, want, 1e-12 * want + 1e-9);
    }
}

static void samples_are_taken_once(void)
{
    struct model model;
    int seen[24] = {0};
    CHECK_EQ(model_load(&model, "tiny"), 0);
    for (int rank = 0; rank < 3; rank++) {
        struct plan plan;
        make(&plan, &model, 3, rank, 24, 4, true);
        for (int i = 0; i < plan.n_ops; i++)
            if (plan.ops[i].kind == OP_INPUT)
                for (int64_t s = 0; s < plan.ops[i].shape.input.samples; s++)
                    seen[plan.ops[i].shape.input.first + s]++;
        plan_release(&plan);
    }
    for (int i = 0; i < 24; i++)
        CHECK_EQ(seen[i], 1);
}

/* Reduced on the last micro-step only, in order, covering the arena once; overlapped calls come early. */
static void buckets_cover_the_gradient(void)
{
    struct model model;
    CHECK_EQ(model_load(&model, "tiny"), 0);
    for (int overlap = 0; overlap < 2; overlap++) {
        struct plan plan;
        int64_t covered = 0;
        int buckets = 0, first = -1, last_backward = 0;
        make(&plan, &model, 2, 1, 16, 4, overlap);
        for (int i = 0; i < plan.n_ops; i++) {
            const struct op *op = &plan.ops[i];
            if (op->phase == PHASE_BACKWARD)
                last_backward = i;
            if (op->kind != OP_COLLECTIVE || op->t[0].buffer != BUFFER_GRADIENT)
                continue;
            CHECK_EQ(op->t[0].offset, covered);
            CHECK_EQ(plan.ops[op->wait[0]].micro, plan.micro_batches - 1);
            covered += op->shape.coll.coll.count * 4;
            first = first < 0 ? i : first;
            buckets++;
        }
        CHECK_EQ(covered, plan.n_parameters * 4);
        CHECK(buckets >= 3);
        CHECK_EQ(first < last_backward, overlap);
        plan_release(&plan);
    }
}

static void deleted_op_is_noticed(void)
{
    struct model model;
    struct plan plan;
    struct plan_totals totals;
    CHECK_EQ(model_load(&model, "tiny"), 0);
    make(&plan, &model, 2, 0, 8, 2, true);
    int noticed = 0, heavy = 0;
    for (int i = 0; i < plan.n_ops; i++) {
        enum op_kind kind = plan.ops[i].kind;
        if (kind != OP_GEMM && kind != OP_ATTENTION && kind != OP_ATTENTION_GRAD &&
            kind != OP_EMBED && kind != OP_COLLECTIVE)
            continue;
        heavy++;
        plan.ops[i].kind = OP_ADD;
        plan_count(&plan, &totals);
        noticed += totals.model_flops != plan.totals.model_flops ||
                   totals.tokens != plan.totals.tokens ||
                   totals.wire_bytes[AXIS_DP] != plan.totals.wire_bytes[AXIS_DP];
        plan.ops[i].kind = kind;
    }
    CHECK(heavy > 100);
    CHECK_EQ(noticed, heavy);
    plan_release(&plan);
}

static void seal_refuses(void)
{
    struct degrees degrees = {0};
    struct layout layout;
    struct plan plan;
    CHECK_EQ(layout_parse("", &degrees), 0);
    CHECK_EQ(layout_init(&layout, 2, 1, 0, &degrees), 0);
    plan_init(&plan, &layout);
    struct op op = {.kind = OP_ADD, .wait = {0}, .n_waits = 1};
    plan_op(&plan, &op); /* waits for itself */
    CHECK_EQ(plan_seal(&plan), FAIL_INTERNAL);
    CHECK_HAS(fail_message(), "waits for");
    fail_clear();
    plan_release(&plan);
    plan_init(&plan, &layout);
    op = (struct op){.kind = OP_ADD, .t = {{BUFFER_ACTIVATION, 64}}};
    plan_op(&plan, &op); /* nothing was taken from that arena */
    CHECK_EQ(plan_seal(&plan), FAIL_INTERNAL);
    CHECK_HAS(fail_message(), "outside its arena");
    fail_clear();
    plan_release(&plan);
}

static void batch_that_does_not_split(void)
{
    struct model model;
    struct policy policy;
    struct degrees degrees = {0};
    struct layout layout;
    struct plan plan;
    CHECK_EQ(model_load(&model, "tiny"), 0);
    policy_defaults(&policy, &model);
    policy.global_batch = 10;
    policy.micro_batch = 1;
    CHECK_EQ(layout_parse("", &degrees), 0);
    CHECK_EQ(layout_init(&layout, 4, 1, 0, &degrees), 0);
    CHECK_EQ(transformer_plan(&plan, &model, &layout, &policy), FAIL_USAGE);
    CHECK_HAS(fail_message(), "10 samples");
    CHECK_HAS(fail_message(), "4 replicas");
    fail_clear();
    CHECK_EQ(layout_parse("tp=2", &degrees), 0);
    CHECK_EQ(layout_init(&layout, 4, 1, 0, &degrees), 0);
    CHECK_EQ(transformer_plan(&plan, &model, &layout, &policy), FAIL_ABSENT);
    CHECK_HAS(fail_message(), "tp=2");
    fail_clear();
}

static void published_sizes(void)
{
    struct model model, gate;
    CHECK_EQ(model_load(&model, "gpt2-124m"), 0);
    CHECK_EQ(model_parameters(&model), 124439808);
    CHECK_EQ(model_padded_vocabulary(&model), 50304);
    /* a token: 6 (12 L h^2 + V h) + 6 L h s, written out */
    CHECK_NEAR(model_flops_per_sequence(&model) / 1024,
               6.0 * (12.0 * 12 * 768 * 768 + 50257.0 * 768) + 6.0 * 12 * 768 * 1024, 1);
    model_reduce(&model, &gate);
    CHECK_EQ(gate.hidden / gate.heads, model.hidden / model.heads);
    CHECK_EQ(model_check(&gate), 0);
    CHECK(model_padded_vocabulary(&gate) > gate.vocabulary);
    CHECK_EQ(model_load(&model, "no-such-model"), FAIL_USAGE);
    CHECK_HAS(fail_message(), "tiny");
    fail_clear();
}

int main(void)
{
    sums_equal_formulas();
    samples_are_taken_once();
    buckets_cover_the_gradient();
    deleted_op_is_noticed();
    seal_refuses();
    batch_that_does_not_split();
    published_sizes();
    return test_end();
}
