/* Which products may run beside calls, by the plan: none of a rank alone, in backward alone where replicas reduce,
 * in forward too where weights are gathered ahead of their use, and none where nothing overlaps. */
#include "workloads/beside.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "tests/test.h"
#include "workloads/transformer.h"

static struct plan plan;
static bool *beside;

static void make(const char *parallel, int ranks, bool overlap)
{
    struct model model;
    struct layout layout;
    struct degrees degrees = {0};
    struct policy policy;
    CHECK_EQ(model_load(&model, "tiny"), 0);
    CHECK_EQ(layout_parse(parallel, &degrees), 0);
    CHECK_EQ(layout_init(&layout, ranks, 1, 0, &degrees), 0);
    policy_defaults(&policy, &model);
    policy.global_batch = 2 * ranks;
    policy.micro_batch = 2;
    policy.bucket_bytes = 65536;
    policy.overlap_gradients = policy.overlap_parameters = overlap;
    CHECK_EQ(transformer_plan(&plan, &model, &layout, &policy), 0);
    beside = must_alloc((size_t)plan.n_ops, sizeof *beside);
    beside_calls(&plan, beside);
}

static void release(void)
{
    free(beside);
    plan_release(&plan);
}

static bool is_call(const struct op *op)
{
    return op->kind == OP_COLLECTIVE && op->shape.coll.coll.count > BESIDE_LEAST / 4; /* of fp32 */
}

static bool is_backward(const struct op *op)
{
    return op->phase == PHASE_BACKWARD;
}

/* Share of products of forward or backward that are beside. */
static double share(bool backward)
{
    int n = 0, of = 0;
    for (int i = 0; i < plan.n_ops; i++) {
        const struct op *op = &plan.ops[i];
        if (op->kind != OP_GEMM || is_backward(op) != backward)
            continue;
        of++;
        n += beside[i];
    }
    CHECK(of > 0);
    return (double)n / of;
}

/* The definition, slowly. */
static void by_definition(void)
{
    for (int i = 0; i < plan.n_ops; i++) {
        bool any = false;
        for (int c = 0; c < i && plan.ops[i].stream == 0; c++) {
            bool over = false;
            for (int j = c + 1; j <= i && is_call(&plan.ops[c]); j++)
                for (int w = 0; w < plan.ops[j].n_waits && plan.ops[j].stream == 0; w++)
                    over |= plan.ops[plan.ops[j].wait[w]].stream == plan.ops[c].stream &&
                            plan.ops[j].wait[w] >= c;
            any |= is_call(&plan.ops[c]) && !over;
        }
        CHECK_EQ(beside[i], any);
    }
}

int main(void)
{
    make("", 1, true);
    CHECK_NEAR(share(false) + share(true), 0, 0);
    release();
    make("", 4, true);
    CHECK_NEAR(share(false), 0, 0);
    CHECK(share(true) > 0.5 && share(true) < 1); /* the first bucket is not full at once */
    by_definition();
    release();
    make("shard=4", 4, true);
    CHECK(share(false) > 0.5);
    CHECK(share(true) > 0.5);
    by_definition();
    release();
    make("shard=4", 4, false);
    CHECK_NEAR(share(false) + share(true), 0, 0);
    by_definition();
    release();
    return test_end();
}
