/* The executor: variants run on scratch and leave the training state alone, closure (a) adds up by
 * construction of its terms, work is counted where it is done, and a dropped op is noticed. */
#include "tests/test.h"

#include "base/err.h"
#include "driver/execute.h"
#include "driver/gate.h"
#include "workloads/transformer.h"

struct trainer {
    struct model model;
    struct policy policy;
    struct layout layout;
    struct plan plan;
    struct input input;
    struct backend backend;
    struct execute execute;
};

static void trainer_open(struct trainer *t, int64_t micro_batch, bool scratch)
{
    struct degrees degrees = {0};
    memset(t, 0, sizeof *t);
    CHECK_EQ(model_load(&t->model, "tiny"), 0);
    policy_defaults(&t->policy, &t->model);
    t->policy.global_batch = 8;
    t->policy.micro_batch = micro_batch;
    t->policy.lr = 1e-3f;
    t->policy.lr_min = 1e-4f;
    t->policy.warm_up = 2;
    t->policy.decay_steps = 10;
    CHECK_EQ(layout_parse("", &degrees), 0);
    CHECK_EQ(layout_init(&t->layout, 1, 1, 0, &degrees), 0);
    CHECK_EQ(transformer_plan(&t->plan, &t->model, &t->layout, &t->policy), 0);
    CHECK_EQ(input_open(&t->input, "synthetic", 1, t->model.vocabulary, t->model.sequence, 0.25, 0),
             0);
    t->backend = (struct backend){.device = &device_cpu, .kernels = &kernels_cpu};
    struct execute_config config = {.plan = &t->plan,
                                    .backend = &t->backend,
                                    .input = &t->input,
                                    .max_steps = 6,
                                    .scratch = scratch,
                                    .fault = {.drop_op = -1}};
    CHECK_EQ(execute_open(&t->execute, &config), 0);
    execute_reset(&t->execute, 1);
}

static void trainer_close(struct trainer *t)
{
    execute_close(&t->execute);
    input_close(&t->input);
    plan_release(&t->plan);
}

static void variants_leave_the_state(void)
{
    struct trainer t;
    trainer_open(&t, 4, true);
    CHECK(execute_has_scratch(&t.execute));
    execute_block(&t.execute, VARIANT_FULL, 1, 2, -1, NULL);
    uint64_t before = execute_digest(&t.execute);
    struct execute_samples samples;
    execute_block(&t.execute, VARIANT_COMPUTE, 2, 3, 2, &samples);
    CHECK(samples.step[2].compute_ns > 0);
    CHECK_EQ(samples.rows.ops.n, t.plan.n_ops);
    CHECK(samples.step[1].flags & STEP_SCRATCH);
    int64_t length = samples.step[1].end_ns - samples.step[1].start_ns;
    CHECK_EQ(samples.step[1].compute_ns + samples.step[1].input_ns + samples.step[1].residual_ns,
             length);
    CHECK(samples.step[1].residual_ns >= 0);
    execute_samples_release(&samples);
    CHECK(execute_digest(&t.execute) == before);
    CHECK_EQ(t.execute.consumed, 16);
    execute_block(&t.execute, VARIANT_FULL, 1, 1, -1, NULL);
    CHECK(execute_digest(&t.execute) != before);
    trainer_close(&t);
    trainer_open(&t, 4, false); /* no scratch: the same variant ruins the state */
    before = execute_digest(&t.execute);
    execute_block(&t.execute, VARIANT_COMPUTE, 0, 1, -1, NULL);
    CHECK(execute_digest(&t.execute) != before);
    trainer_close(&t);
}

static void work_is_counted(void)
{
    struct trainer t;
    trainer_open(&t, 2, false);
    execute_block(&t.execute, VARIANT_FULL, 0, 3, -1, NULL);
    const struct kernel_work *work = execute_work(&t.execute);
    CHECK_EQ(work->tokens, 3 * 8 * t.model.sequence);
    CHECK_NEAR(work->model_flops, 3 * 8 * model_flops_per_sequence(&t.model), 1);
    trainer_close(&t);
    trainer_open(&t, 2, false);
    int dropped = 0;
    while (t.plan.ops[dropped].kind != OP_GEMM)
        dropped++;
    t.execute.fault.drop_op = dropped;
    execute_block(&t.execute, VARIANT_FULL, 0, 1, -1, NULL);
    CHECK(execute_work(&t.execute)->model_flops < 8 * model_flops_per_sequence(&t.model) - 1);
    trainer_close(&t);
}

int main(void)
{
    variants_leave_the_state();
    work_is_counted();
    return test_end();
}
