/*
 * Five training steps agree with PyTorch: loss, gradient norm and, at step 1, every gradient tensor
 * equal golden/reference_tiny.txt (made by golden/reference.py in fp64), however the batch is cut
 * into micro-batches.
 */
#include "workloads/transformer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "tests/test.h"
#include "workloads/kernels/kernels.h"

enum { STEPS = 5, TENSORS = 256, BATCH = 8 };

static struct {
    int n_steps, n_gradients;
    double loss[STEPS], norm[STEPS], lr[STEPS];
    long long valid[STEPS];
    char name[TENSORS][64];
    double gradient[TENSORS];
} expected;

static void read_reference(void)
{
    FILE *file = fopen(TEST_SOURCE_DIR "/golden/reference_tiny.txt", "r");
    char line[256];
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        int i = expected.n_steps, g = expected.n_gradients;
        if (i < STEPS && sscanf(line, "step %*d %lf %lf %lf %lld", &expected.loss[i],
                                &expected.norm[i], &expected.lr[i], &expected.valid[i]) == 4)
            expected.n_steps++;
        if (g < TENSORS &&
            sscanf(line, "gradient %63s %lf", expected.name[g], &expected.gradient[g]) == 2)
            expected.n_gradients++;
    }
    if (file != NULL)
        fclose(file);
}

static void open_memory(struct kernel_context *context, const struct plan *plan)
{
    for (int b = 0; b < PLAN_BUFFERS; b++)
        context->base[b] = must_alloc((size_t)plan->bytes[b] + 1, 1);
    for (int t = 0; t < plan->n_tensors; t++)
        transformer_init_tensor(&plan->tensors[t], 1,
                                (float *)(void *)context->base[BUFFER_PARAMETER] +
                                    plan->tensors[t].offset);
}

static void close_memory(struct kernel_context *context)
{
    for (int b = 0; b < PLAN_BUFFERS; b++)
        free(context->base[b]);
}

/* A rank alone: no op of its plan communicates, so the kernels in order are the step. */
static void run_step(const struct plan *plan, struct kernel_context *context)
{
    for (int i = 0; i < plan->n_ops; i++) {
        kernel_run *run = kernels_cpu.run[plan->ops[i].kind];
        if (run == NULL)
            BUG("op %d of a single rank has no kernel", i);
        run(&plan->ops[i], context, NULL);
    }
}

/* The gradient arena still holds sums over tokens after the update. */
static void check_gradients(const struct plan *plan, const struct kernel_context *context,
                            double valid)
{
    CHECK_EQ(plan->n_tensors, expected.n_gradients);
    for (int g = 0; g < expected.n_gradients; g++) {
        int t = 0;
        while (t < plan->n_tensors && strcmp(plan->tensors[t].name, expected.name[g]) != 0)
            t++;
        if (!CHECK(t < plan->n_tensors))
            continue;
        const struct plan_tensor *tensor = &plan->tensors[t];
        const float *x = (const float *)(const void *)context->base[BUFFER_GRADIENT];
        double sum = 0;
        for (int64_t i = 0; i < tensor->rows * tensor->columns; i++)
            sum += (double)x[tensor->offset + i] * (double)x[tensor->offset + i];
        CHECK_NEAR(sqrt(sum) / valid, expected.gradient[g],
                   1e-5 * fmax(expected.gradient[g], 1e-3 * expected.norm[0]));
    }
}

static int make_plan(struct plan *plan, struct model *model, int64_t micro_batch)
{
    struct layout layout;
    struct degrees degrees = {0};
    struct policy policy;
    int rc;
    TRY(model_load(model, "tiny"));
    TRY(layout_init(&layout, 1, 1, 0, &degrees));
    policy_defaults(&policy, model);
    policy.global_batch = BATCH;
    policy.micro_batch = micro_batch;
    policy.lr = 1e-3f;
    policy.lr_min = 1e-4f;
    policy.warm_up = 2;
    policy.decay_steps = 10;
    TRY(transformer_plan(plan, model, &layout, &policy));
out:
    return rc;
}

static void check_step(int k, const double *scalars)
{
    double valid = scalars[SCALAR_VALID];
    CHECK_EQ(valid, expected.valid[k]);
    CHECK_EQ(scalars[SCALAR_SKIPPED], 0);
    CHECK_NEAR(scalars[SCALAR_LR], expected.lr[k], 1e-6 * expected.lr[k]);
    CHECK_NEAR(scalars[SCALAR_LOSS_SUM] / valid, expected.loss[k], 1e-6 * expected.loss[k]);
    CHECK_NEAR(scalars[SCALAR_NORM], expected.norm[k], 1e-5 * expected.norm[k]);
}

static void check_training(int64_t micro_batch)
{
    struct model model;
    struct plan plan = {0};
    struct input input = {0};
    double log[STEPS][SCALARS];
    struct kernel_context context = {.input = &input, .log = log[0], .log_rows = STEPS};

    if (!CHECK_EQ(make_plan(&plan, &model, micro_batch), 0) ||
        !CHECK_EQ(input_open(&input, "synthetic", 1, model.vocabulary, model.sequence, 0.25, 0), 0))
        return;
    open_memory(&context, &plan);
    for (int k = 0; k < STEPS; k++) {
        context.first_sample = (int64_t)k * BATCH;
        run_step(&plan, &context);
        check_step(k, log[k]);
        if (k == 0)
            check_gradients(&plan, &context, log[k][SCALAR_VALID]);
    }
    close_memory(&context);
    input_close(&input);
    plan_release(&plan);
}

int main(void)
{
    read_reference();
    CHECK_EQ(expected.n_steps, STEPS);
    check_training(BATCH);
    check_training(2);
    check_training(1);
    return test_end();
}
