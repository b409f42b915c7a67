/* A plan's sums equal the model's formulas on any layout; seal refuses broken plans; a deleted op is
 * noticed; parameters are those of the published model. */
#include "tests/test.h"

#include <stdlib.h>
#include <string.h>

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
        /* a ring sends each byte of padded gradient and of three sums 2 (n-1)/n times */
        double padded = (double)model_parameters(&model) + 6.0 * (double)model.hidden;
        want = 2 * (n - 1) * (4 * padded + 3 * 8);
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
    plan_init(&plan, &layout);
    op = (struct op){.kind = OP_ADD, .t = {plan_take(&plan, BUFFER_ACTIVATION, 64)}};
    op.shape.vector.n = 17; /* one more than was taken */
    plan_op(&plan, &op);
    CHECK_EQ(plan_seal(&plan), FAIL_INTERNAL);
    CHECK_HAS(fail_message(), "tensor 0 reaches outside its arena");
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
    policy.shard_stage = 2; /* what pipelines cannot have, by name */
    policy.global_batch = 16;
    CHECK_EQ(layout_parse("pp=2,shard=2", &degrees), 0);
    CHECK_EQ(layout_init(&layout, 4, 1, 0, &degrees), 0);
    CHECK_EQ(transformer_plan(&plan, &model, &layout, &policy), FAIL_USAGE);
    CHECK_HAS(fail_message(), "ZeRO-2");
    fail_clear();
    policy.shard_stage = 3;
    policy.reduce_every = CHOICE_ON;
    CHECK_EQ(transformer_plan(&plan, &model, &layout, &policy), FAIL_USAGE);
    CHECK_HAS(fail_message(), "--reduce last");
    fail_clear();
}

struct refusal {
    const char *model, *parallel;
    int ranks, code;
    int64_t micro_batch;
    int chunks;
    const char *words;
};

/* Before anything is allocated, in one sentence that names what would do. */
static void refusals(void)
{
    static const struct refusal list[] = {
        {"gpt2-1558m", "tp=2", 2, FAIL_USAGE, 1, 1,
         "heads, 25 of model gpt2-1558m; choose tp=1 or tp=5"},
        {"tiny", "tp=3", 3, FAIL_USAGE, 1, 1, "heads, 8 of model tiny; choose tp=2 or tp=4"},
        {"tiny", "tp=16", 16, FAIL_USAGE, 1, 1, "choose tp=8"},
        {"gpt2-124m", "tp=12", 12, FAIL_USAGE, 1, 1,
         "rows of a micro-batch do not split over tp=12"},
        {"tiny-llama", "tp=8", 8, FAIL_USAGE, 1, 16,
         "in 16 chunks; choose a micro-batch or sequence"},
        {"tiny", "dp=2", 2, FAIL_USAGE, 1, 2, "2 chunks without tensor parallelism"},
        {"tiny", "tp=2", 2, FAIL_USAGE, 1, 17, "found 17, wanted 1 to 16"},
        {"tiny", "dp=2,ep=2", 2, FAIL_USAGE, 1, 1, "ep=2 etp=1, and model tiny has no experts"},
        {"tiny-moe", "dp=3,ep=3", 3, FAIL_USAGE, 1, 1,
         "ep=3 does not divide the 8 experts of model tiny-moe; choose ep=2 or ep=4"},
        {"tiny-moe", "dp=16,ep=16", 16, FAIL_USAGE, 1, 1, "of model tiny-moe; choose ep=8"},
        {"tiny-moe", "tp=2,etp=1", 2, FAIL_USAGE, 1, 1, "and ep=1: experts that are not split"},
        {"tiny", "pp=16", 16, FAIL_USAGE, 1, 1, "choose pp=8 or fewer"},
        {"tiny", "pp=4", 4, FAIL_USAGE, 1, 1, "2 micro-batches a step for pp=4 stages"},
    };
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        const struct refusal *r = &list[i];
        struct model model;
        struct policy policy;
        struct degrees degrees = {0};
        struct layout layout;
        struct plan plan;
        CHECK_EQ(model_load(&model, r->model), 0);
        policy_defaults(&policy, &model);
        policy.global_batch = 2 * r->micro_batch;
        policy.micro_batch = r->micro_batch;
        policy.tp_chunks = r->chunks;
        CHECK_EQ(layout_parse(r->parallel, &degrees), 0);
        CHECK_EQ(layout_init(&layout, r->ranks, 1, 0, &degrees), 0);
        CHECK_EQ(transformer_plan(&plan, &model, &layout, &policy), r->code);
        CHECK_HAS(fail_message(), r->words);
        CHECK(strchr(fail_message(), '\n') == NULL && plan.ops == NULL);
        fail_clear();
        plan_release(&plan);
    }
}

/* The gate model keeps style, width and ratio of heads, and what tensor parallelism divides. */
static void reduced_models(void)
{
    static const char *const names[] = {"tiny",     "gpt2-124m", "gpt2-1558m", "tiny-llama",
                                        "llama-1b", "llama-8b",  "llama-70b"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        for (int64_t tp = 1; tp <= 8; tp *= 2) {
            struct model model, gate;
            CHECK_EQ(model_load(&model, names[i]), 0);
            model_reduce_for(&model, tp, &gate);
            CHECK_EQ(model_check(&gate), 0);
            CHECK_EQ(gate.head, model.head);
            CHECK_EQ(gate.style, model.style);
            CHECK_EQ(gate.heads / gate.kv_heads, model.heads / model.kv_heads);
            CHECK(gate.hidden <= 4 * gate.head);
            CHECK(model.heads % tp != 0 || gate.heads % tp == 0);
            CHECK(model.kv_heads % tp != 0 || gate.kv_heads % tp == 0);
            CHECK(model.ffn % tp != 0 || gate.ffn % tp == 0);
            CHECK_EQ(model_padded_vocabulary(&gate) % tp, 0);
            CHECK_EQ(gate.sequence % tp, 0);
            CHECK(model_padded_vocabulary(&gate) > gate.vocabulary);
            CHECK(model_parameters(&gate) <= 32 << 20);
        }
}

/* Parameters of released weights, without padding, tied heads once. */
static void published_parameters(void)
{
    static const struct {
        const char *model;
        int64_t parameters;
    } published[] = {
        {"gpt2-124m", 124439808},   {"gpt2-355m", 354823168},      {"gpt2-774m", 774030080},
        {"gpt2-1558m", 1557611200}, {"llama-1b", 1235814400},      {"llama-8b", 8030261248},
        {"llama-70b", 70553706496}, {"mixtral-8x7b", 46702792704},
    };
    struct model model;
    for (size_t i = 0; i < sizeof published / sizeof published[0]; i++) {
        CHECK_EQ(model_load(&model, published[i].model), 0);
        CHECK(model_parameters(&model) == published[i].parameters);
        CHECK(model.source[0] != 0);
        CHECK(model_active_parameters(&model) == model_parameters(&model) || model.experts > 0);
    }
    CHECK(model_active_parameters(&model) == 12879925248); /* mixtral */
}

/* What is splittable in the models for tests divides by 8, the sequence by 16. */
static void tiny_sizes(void)
{
    static const char *const names[] = {"tiny", "tiny-llama", "tiny-moe"};
    for (int i = 0; i < 3; i++) {
        struct model m;
        CHECK_EQ(model_load(&m, names[i]), 0);
        const int64_t sizes[] = {m.layers, m.hidden, m.heads, m.kv_heads, m.ffn, m.vocabulary};
        for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++)
            CHECK_EQ(sizes[k] % 8, 0);
        CHECK_EQ(m.experts % 8 + m.expert_ffn % 8 + m.sequence % 16, 0);
        CHECK(m.source[0] != '\0' && (m.experts == 8) == (i == 2));
    }
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
    published_parameters();
    tiny_sizes();
    refusals();
    reduced_models();
    return test_end();
}
