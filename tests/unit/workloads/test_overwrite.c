/* What a step zeroes and what its products write first, byte by byte, for every way of splitting: a
 * replay in which every byte of an accumulator is known to be zero, written or not valid. */
#include "tests/test.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "workloads/overwrite.h"
#include "workloads/touch.h"
#include "workloads/transformer.h"

struct asked {
    const char *model, *parallel;
    int ranks, stage;
    int64_t micro_batches;
    bool reduce_every, narrow;
};

static void make(struct plan *plan, const struct asked *a)
{
    struct model model;
    struct degrees degrees = {0};
    struct layout layout;
    struct policy policy;
    CHECK_EQ(model_load(&model, a->model), 0);
    model.layers = 2;
    model.sequence = 16;
    policy_defaults(&policy, &model);
    CHECK_EQ(layout_parse(a->parallel, &degrees), 0);
    CHECK_EQ(layout_init(&layout, a->ranks, 1, a->ranks - 1, &degrees), 0);
    policy.micro_batch = 1;
    policy.global_batch = layout.degrees.dp * a->micro_batches;
    policy.dtype = a->narrow ? DTYPE_BF16 : DTYPE_F32;
    policy.grad_dtype = policy.dtype;
    if (a->stage > 0)
        policy.shard_stage = a->stage;
    policy.reduce_every = a->reduce_every;
    policy.pack = CHOICE_OFF; /* gradients have an arena of their own */
    CHECK_EQ(transformer_plan(plan, &model, &layout, &policy), 0);
}

/* Gradients begin a step as rubbish. A zeroing makes valid what it has left; a first product makes
 * its C valid and must find nobody there before; whoever reads must find what is valid. */
static void replay(const struct overwrite *o)
{
    const struct plan *plan = o->plan;
    size_t bytes = (size_t)plan->bytes[BUFFER_GRADIENT];
    bool *valid = must_alloc(bytes + 1, sizeof *valid);
    int64_t saved = 0, wrong = 0;
    for (int i = 0; i < plan->n_ops; i++) {
        const struct op *op = &plan->ops[i];
        struct touch touch[TOUCHES];
        int n = touch_op(plan, op, touch);
        if (op->kind == OP_ZERO && op->t[0].buffer == BUFFER_GRADIENT) {
            int64_t left = 0;
            memset(valid + op->t[0].offset, 0, (size_t)op->shape.vector.n * 4);
            for (int r = 0; r < o->n_left[i]; r++) {
                struct overwrite_run run = o->left[i][r];
                left += run.end - run.begin;
                CHECK(r == 0 || o->left[i][r - 1].end < run.begin);
                memset(valid + run.begin, 1, (size_t)(run.end - run.begin));
            }
            saved += op->shape.vector.n * 4 - left;
            continue;
        }
        for (int j = 0; j < n; j++) {
            if (touch[j].t.buffer != BUFFER_GRADIENT)
                continue;
            bool first = o->first[i] && touch[j].index == 2;
            for (int64_t at = touch[j].t.offset; at < touch[j].t.offset + touch_bytes(&touch[j]);
                 at++) {
                wrong += first ? valid[at] : touch[j].reads && !valid[at];
                valid[at] = true;
            }
        }
    }
    CHECK_EQ(wrong, 0);
    CHECK(saved > 0);
    free(valid);
}

/* Of the weights of a layer all are written first, once a step or once a reduction. */
static void counts(const struct overwrite *o, const struct asked *a)
{
    int first = 0, adding = 0;
    for (int i = 0; i < o->plan->n_ops; i++) {
        const struct op *op = &o->plan->ops[i];
        bool weight = op->kind == OP_GEMM && op->shape.gemm.beta == 1;
        adding += weight;
        first += o->first[i];
        CHECK(!o->first[i] || weight);
    }
    bool each = a->stage > 1 && a->reduce_every;
    CHECK_EQ(first * (each ? 1 : a->micro_batches), adding);
}

/* Zeros; something adds to a part of C, or nobody does; a product adds to C, and another again. */
static void who_is_first(bool disturbed)
{
    enum { N = 64 };
    struct layout layout;
    struct degrees degrees = {0};
    struct plan plan;
    struct overwrite o = {0};
    struct op zero = {.kind = OP_ZERO, .dtype = DTYPE_F32, .layer = -1, .micro = -1};
    struct op add = {.kind = OP_ADD, .dtype = DTYPE_F32, .layer = -1, .micro = -1};
    struct op gemm = {.kind = OP_GEMM, .dtype = DTYPE_F32, .layer = -1, .micro = -1};
    CHECK_EQ(layout_parse("", &degrees), 0);
    CHECK_EQ(layout_init(&layout, 1, 1, 0, &degrees), 0);
    plan_init(&plan, &layout);
    struct tensor sums = plan_take(&plan, BUFFER_GRADIENT, 3 * N * N * 4);
    struct tensor x = plan_take(&plan, BUFFER_ACTIVATION, N * N * 4);
    struct tensor c = sums;
    c.offset += N * N * 4;
    zero.t[0] = sums, zero.shape.vector.n = (int64_t)3 * N * N;
    add.t[0] = add.t[2] = disturbed ? c : sums, add.t[1] = x, add.shape.vector.n = N;
    gemm.t[0] = gemm.t[1] = x, gemm.t[2] = c;
    gemm.shape.gemm = (struct shape_gemm){.m = N, .n = N, .k = N, .beta = 1};
    plan_op(&plan, &zero);
    plan_op(&plan, &add);
    plan_op(&plan, &gemm);
    plan_op(&plan, &gemm);
    overwrite_find(&o, &plan);
    CHECK_EQ(o.first[2], !disturbed);
    CHECK(!o.first[3]);
    CHECK_EQ(o.n_left[0], disturbed ? 1 : 2);
    overwrite_release(&o);
    plan_release(&plan);
}

int main(void)
{
    static const struct asked cases[] = {
        {"tiny", "", 1, 0, 1, false, false},        {"tiny", "", 2, 0, 3, false, true},
        {"tiny-llama", "", 1, 0, 2, false, true},   {"tiny", "shard=2", 2, 1, 2, false, true},
        {"tiny", "shard=2", 2, 3, 2, true, true},   {"tiny-llama", "shard=2", 2, 3, 3, true, false},
        {"tiny", "shard=2", 2, 2, 2, false, false}, {"tiny", "tp=2", 2, 0, 2, false, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct plan plan;
        struct overwrite o = {0};
        make(&plan, &cases[i]);
        overwrite_find(&o, &plan);
        replay(&o);
        counts(&o, &cases[i]);
        overwrite_release(&o);
        plan_release(&plan);
    }
    who_is_first(false);
    who_is_first(true);
    return test_end();
}
