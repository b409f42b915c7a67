/* Which ops of a step can run inside a product: all of a layer's GELU and sums of biases, in every
 * way of splitting; nothing whose bytes, waits or waiters lie between; and a pair has one partner. */
#include "tests/test.h"

#include <string.h>

#include "base/err.h"
#include "workloads/fuse.h"
#include "workloads/touch.h"
#include "workloads/transformer.h"

struct asked {
    const char *model, *parallel;
    int ranks;
    bool fp32;
    enum recompute recompute;
    int chunks;
};

static void make(struct plan *plan, const struct asked *a)
{
    struct model model;
    struct degrees degrees = {0};
    struct layout layout;
    struct policy policy;
    CHECK_EQ(model_load(&model, a->model), 0);
    policy_defaults(&policy, &model);
    CHECK_EQ(layout_parse(a->parallel, &degrees), 0);
    CHECK_EQ(layout_init(&layout, 1, a->ranks, 0, &degrees), 0);
    policy.micro_batch = 2;
    policy.global_batch = 2 * layout.degrees.dp * policy.micro_batch;
    policy.dtype = a->fp32 ? DTYPE_F32 : DTYPE_BF16;
    policy.recompute = a->recompute;
    policy.head_chunks = layout.degrees.tp * layout.degrees.pp == 1 && a->ranks % 2 == 0 ? 2 : 1;
    policy.tp_chunks = a->chunks > 0 ? a->chunks : 1;
    CHECK_EQ(transformer_plan(plan, &model, &layout, &policy), 0);
}

static int count(const struct fusion *f, enum op_kind kind, bool paired)
{
    int n = 0;
    for (int i = 0; i < f->plan->n_ops; i++)
        n += f->plan->ops[i].kind == kind && (!paired || f->with[i] >= 0);
    return n;
}

/* Both know each other, the product is one, and what lies between leaves the partner's bytes alone. */
static void check_pair(const struct fusion *f, int partner)
{
    const struct plan *plan = f->plan;
    int product = f->with[partner], first = product < partner ? product : partner;
    int last = product < partner ? partner : product;
    struct touch a[TOUCHES], b[TOUCHES];
    CHECK_EQ(f->with[product], partner);
    CHECK_EQ(plan->ops[product].kind, OP_GEMM);
    CHECK(fuse_partner(f, &plan->ops[product]) == &plan->ops[partner]);
    int n = touch_op(plan, &plan->ops[partner], a);
    int reads = touch_op(plan, &plan->ops[product], b);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < reads; j++)
            CHECK(!(a[i].writes && b[j].reads && a[i].t.buffer == b[j].t.buffer &&
                    a[i].t.offset < b[j].t.offset + touch_bytes(&b[j]) &&
                    b[j].t.offset < a[i].t.offset + touch_bytes(&a[i])));
    for (int k = first + 1; k < last; k++) {
        int m = touch_op(plan, &plan->ops[k], b);
        for (int i = 0; i < n; i++)
            for (int j = 0; j < m; j++)
                CHECK(!((a[i].writes || b[j].writes) && a[i].t.buffer == b[j].t.buffer &&
                        a[i].t.offset < b[j].t.offset + touch_bytes(&b[j]) &&
                        b[j].t.offset < a[i].t.offset + touch_bytes(&a[i])));
    }
}

static void check_pairs(const struct fusion *f)
{
    for (int i = 0; i < f->plan->n_ops; i++) {
        CHECK(!fuse_is_used(f, &f->plan->ops[i]));
        if (f->with[i] >= 0 && f->plan->ops[i].kind != OP_GEMM)
            check_pair(f, i);
    }
}

/* tiny has 2 micro-batches of 2 layers here; a product that is made again has its partner again. */
static void layers_pair(void)
{
    static const struct {
        struct asked asked;
        bool gelu, gelu_grad;
        int sums; /* of the four biases of a layer */
    } cases[] = {
        {{"tiny", "", 1, .recompute = RECOMPUTE_NONE}, true, true, 4},
        {{"tiny", "", 2, .recompute = RECOMPUTE_NONE}, true, true, 4},
        {{"tiny", "shard=2", 2, .recompute = RECOMPUTE_NONE}, true, true, 4},
        {{"tiny", "shard=2", 2, .recompute = RECOMPUTE_FULL}, true, true, 4},
        {{"tiny", "", 1, .recompute = RECOMPUTE_FULL}, true, true, 4},
        {{"tiny", "pp=2", 2, .recompute = RECOMPUTE_FULL}, true, true, 4},
        {{"tiny", "cp=2", 2, .recompute = RECOMPUTE_FULL}, true, true, 4},
        {{"tiny", "tp=2", 2, .recompute = RECOMPUTE_FULL}, true, true, 2},
        {{"tiny", "tp=2", 2, .recompute = RECOMPUTE_NONE}, true, true, 2},
        {{"tiny", "tp=2", 2, .chunks = 2}, false, false, 2},
        {{"tiny", "", 1, .fp32 = true}, false, false, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct plan plan;
        struct fusion f = {0};
        make(&plan, &cases[i].asked);
        fuse_pairs(&f, &plan);
        check_pairs(&f);
        int sums = count(&f, OP_BIAS_GRAD, false);
        CHECK_EQ(count(&f, OP_GELU, true), cases[i].gelu ? count(&f, OP_GELU, false) : 0);
        CHECK_EQ(count(&f, OP_GELU_GRAD, true),
                 cases[i].gelu_grad ? count(&f, OP_GELU_GRAD, false) : 0);
        if (!CHECK_EQ(count(&f, OP_BIAS_GRAD, true), sums * cases[i].sums / 4))
            printf("case %zu\n", i);
        fuse_release(&f);
        plan_release(&plan);
    }
}

/* The activation that backward makes again has no product of its own; its gradient still has. */
static void again_alone(void)
{
    struct plan plan;
    struct fusion f = {0};
    make(&plan, &(struct asked){"tiny", "", 1, .recompute = RECOMPUTE_MLP});
    fuse_pairs(&f, &plan);
    check_pairs(&f);
    CHECK_EQ(2 * count(&f, OP_GELU, true), count(&f, OP_GELU, false));
    CHECK_EQ(count(&f, OP_GELU_GRAD, true), count(&f, OP_GELU_GRAD, false));
    fuse_release(&f);
    plan_release(&plan);
}

/* Using a pair marks both; an op of another plan belongs to none. */
static void used(void)
{
    struct plan plan;
    struct fusion f = {0};
    make(&plan, &(struct asked){"tiny", "", 1, .recompute = RECOMPUTE_NONE});
    fuse_pairs(&f, &plan);
    int gelu = 0;
    while (plan.ops[gelu].kind != OP_GELU)
        gelu++;
    struct op other = plan.ops[gelu];
    fuse_use(&f, &plan.ops[f.with[gelu]]);
    CHECK(fuse_is_used(&f, &plan.ops[gelu]));
    CHECK(fuse_is_used(&f, &plan.ops[f.with[gelu]]));
    CHECK(!fuse_is_used(&f, &other));
    CHECK(fuse_partner(&f, &other) == NULL);
    fuse_release(&f);
    plan_release(&plan);
}

/* ---- what must not be paired: a product and GELU of what it made, with something between ---- */

enum between {
    NOTHING,
    READS_RESULT,
    WRITES_RESULT,
    WRITES_INPUT,
    TOUCHES_NEITHER,
    WAITS,
    BETWEEN
};

static void put_between(struct plan *plan, enum between what, const struct tensor *t, int64_t n)
{
    struct op op = {.kind = OP_ADD, .dtype = DTYPE_BF16, .layer = -1, .micro = -1};
    op.shape.vector.n = n;
    op.t[0] = op.t[1] = t[3];
    op.t[2] = t[3];
    if (what == READS_RESULT)
        op.t[0] = t[2];
    else if (what == WRITES_RESULT)
        op.t[2] = t[2];
    else if (what == WRITES_INPUT)
        op.t[2] = t[1];
    if (what == WAITS) {
        struct op copy = {.kind = OP_INPUT, .stream = 1, .layer = -1, .micro = -1};
        op.n_waits = 1;
        op.wait[0] = plan_op(plan, &copy);
    }
    plan_op(plan, &op);
}

static void between_counts(void)
{
    for (int what = NOTHING; what < BETWEEN; what++) {
        struct layout layout;
        struct degrees degrees = {0};
        struct plan plan;
        struct fusion f = {0};
        struct tensor t[4]; /* A and B, C, GELU of it, something else */
        struct op gemm = {.kind = OP_GEMM, .dtype = DTYPE_BF16, .layer = -1, .micro = -1};
        struct op gelu = {.kind = OP_GELU, .dtype = DTYPE_BF16, .layer = -1, .micro = -1};
        CHECK_EQ(layout_parse("", &degrees), 0);
        CHECK_EQ(layout_init(&layout, 1, 1, 0, &degrees), 0);
        plan_init(&plan, &layout);
        for (int i = 0; i < 4; i++)
            t[i] = plan_take(&plan, BUFFER_ACTIVATION, 64 * 64 * 2);
        gemm.t[0] = gemm.t[1] = t[0], gemm.t[2] = t[1];
        gemm.shape.gemm = (struct shape_gemm){.m = 64, .n = 64, .k = 64};
        gelu.t[0] = t[1], gelu.t[1] = t[2];
        gelu.shape.vector.n = 64 * 64;
        plan_op(&plan, &gemm);
        if (what != NOTHING)
            put_between(&plan, (enum between)what, t, 64);
        plan_op(&plan, &gelu);
        fuse_pairs(&f, &plan);
        if (!CHECK_EQ(f.with[0] == plan.n_ops - 1, what == NOTHING || what == TOUCHES_NEITHER))
            printf("between: %d\n", what);
        fuse_release(&f);
        plan_release(&plan);
    }
}

int main(void)
{
    layers_pair();
    again_alone();
    used();
    between_counts();
    return test_end();
}
