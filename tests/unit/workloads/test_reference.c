/*
 * Five training steps of both styles, and of layers of experts (router, load-balance loss, tokens that
 * find no room, dropless), agree with PyTorch: loss, gradient norm, every gradient tensor at
 * step 1 and every parameter after the last step equal golden/reference_MODEL.txt (made by
 * golden/reference.py in fp64), however the batch is cut into micro-batches, with parts of layers
 * recomputed, with batches on a stream of their own.
 */
#include "workloads/transformer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/rng.h"
#include "tests/test.h"
#include "workloads/kernels/kernels.h"

enum { STEPS = 5, TENSORS = 256, BATCH = 8 };

static struct {
    int n_steps, n_gradients, n_parameters;
    double loss[STEPS], norm[STEPS], lr[STEPS];
    long long valid[STEPS];
    char name[TENSORS][64];
    double gradient[TENSORS];
    char parameter[TENSORS][64];
    double norm_after[TENSORS], dot_after[TENSORS];
} expected;

static void read_reference(const char *model)
{
    char path[512], line[256];
    snprintf(path, sizeof path, "%s/golden/reference_%s.txt", TEST_SOURCE_DIR, model);
    FILE *file = fopen(path, "r");
    memset(&expected, 0, sizeof expected);
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        int i = expected.n_steps, g = expected.n_gradients;
        if (i < STEPS && sscanf(line, "step %*d %lf %lf %lf %lld", &expected.loss[i],
                                &expected.norm[i], &expected.lr[i], &expected.valid[i]) == 4)
            expected.n_steps++;
        if (g < TENSORS &&
            sscanf(line, "gradient %63s %lf", expected.name[g], &expected.gradient[g]) == 2)
            expected.n_gradients++;
        int p = expected.n_parameters;
        if (p < TENSORS && sscanf(line, "parameter %63s %lf %lf", expected.parameter[p],
                                  &expected.norm_after[p], &expected.dot_after[p]) == 3)
            expected.n_parameters++;
    }
    if (file != NULL)
        fclose(file);
}

static void open_memory(struct kernel_context *context, const struct plan *plan)
{
    for (int b = 0; b < PLAN_BUFFERS; b++)
        context->base[b] = must_alloc((size_t)plan->bytes[b] + 1, 1);
    for (int p = 0; p < plan->n_pieces; p++)
        transformer_init_piece(plan, &plan->pieces[p], 1,
                               (float *)(void *)context->base[plan->master] +
                                   plan->pieces[p].offset);
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

static int tensor_called(const struct plan *plan, const char *name)
{
    int t = 0;
    while (t < plan->n_tensors && strcmp(plan->tensors[t].name, name) != 0)
        t++;
    return t;
}

/* Where a true gradient is 0, Adam follows the sign of rounding noise: such a tensor is left out. */
static void check_parameters(const struct plan *plan, const struct kernel_context *context)
{
    CHECK_EQ(plan->n_tensors, expected.n_parameters);
    for (int p = 0; p < expected.n_parameters; p++) {
        int t = tensor_called(plan, expected.parameter[p]);
        if (!CHECK(t < plan->n_tensors) || plan->tensors[t].zero_count > 0)
            continue;
        const struct plan_tensor *tensor = &plan->tensors[t];
        const float *x =
            (const float *)(const void *)context->base[BUFFER_PARAMETER] + tensor->offset;
        uint64_t key = rng_key(rng_key(1, "checksum"), tensor->name);
        double sum = 0, dot = 0, norm = expected.norm_after[p];
        for (int64_t i = 0; i < tensor->rows * tensor->columns; i++) {
            sum += (double)x[i] * (double)x[i];
            dot += (double)rng_sign(key, (uint64_t)i) * (double)x[i];
        }
        CHECK_NEAR(sqrt(sum), norm, 1e-5 * norm);
        CHECK_NEAR(dot, expected.dot_after[p], 2e-4 * norm);
    }
}

/* Where AdamW reads the gradient of a tensor: the update leaves it as it is. */
static const float *gradient_of(const struct plan *plan, const struct kernel_context *context,
                                int tensor)
{
    const struct op *op = plan->ops;
    for (int piece = 0; op->kind != OP_ADAMW || plan->pieces[piece].tensor != tensor; op++)
        piece += op->kind == OP_ADAMW;
    struct tensor at = op->t[1];
    return (const float *)(const void *)((const char *)context->base[at.buffer] + at.offset);
}

/* Sums over tokens are still there after the update. */
static void check_gradients(const struct plan *plan, const struct kernel_context *context,
                            double valid)
{
    CHECK_EQ(plan->n_tensors, expected.n_gradients);
    for (int g = 0; g < expected.n_gradients; g++) {
        int t = tensor_called(plan, expected.name[g]);
        if (!CHECK(t < plan->n_tensors))
            continue;
        const struct plan_tensor *tensor = &plan->tensors[t];
        const float *x = gradient_of(plan, context, t);
        double sum = 0;
        for (int64_t i = 0; i < tensor->rows * tensor->columns; i++)
            sum += (double)x[i] * (double)x[i];
        CHECK_NEAR(sqrt(sum) / valid, expected.gradient[g],
                   1e-5 * fmax(expected.gradient[g], 1e-3 * expected.norm[0]));
    }
}

/* A file of golden/, its model; how tokens come to experts. */
struct training {
    const char *file, *model, *capacity;
};

struct variant {
    int64_t micro_batch;
    enum recompute recompute;
    int every;
    bool copy_stream;
    int head_chunks;
};

static int make_plan(struct plan *plan, struct model *model, const struct training *training,
                     const struct variant *variant)
{
    struct layout layout;
    struct degrees degrees = {0};
    struct policy policy;
    int rc;
    TRY(model_load(model, training->model));
    TRY(layout_init(&layout, 1, 1, 0, &degrees));
    policy_defaults(&policy, model);
    policy.global_batch = BATCH;
    policy.micro_batch = variant->micro_batch;
    policy.recompute = variant->recompute;
    policy.recompute_every = variant->every;
    policy.copy_stream = variant->copy_stream;
    policy.head_chunks = variant->head_chunks;
    policy.lr = 1e-3f;
    policy.lr_min = 1e-4f;
    policy.warm_up = 2;
    policy.decay_steps = 10;
    if (training->capacity != NULL)
        TRY(routing_parse("learned", training->capacity, &policy.routing));
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

/* What is recomputed is executed on top of the model's work, which stays the same. */
static void check_work(const struct plan *plan, const struct kernel_context *context,
                       const struct model *model, const struct variant *variant)
{
    double model_flops = STEPS * BATCH * model_flops_per_sequence(model);
    const struct kernel_work *work = &context->work;
    CHECK_NEAR(work->model_flops, model_flops, 1e-12 * model_flops);
    CHECK_NEAR(plan->totals.model_flops * STEPS, model_flops, 1e-12 * model_flops);
    CHECK_NEAR(plan->totals.hardware_flops * STEPS, work->hardware_flops,
               1e-12 * work->hardware_flops);
    bool products_again =
        variant->recompute == RECOMPUTE_FULL || variant->recompute == RECOMPUTE_SELECTIVE;
    CHECK_EQ(work->hardware_flops > work->model_flops, products_again);
}

static void check_training(const struct training *training, const struct variant *variant)
{
    struct model model;
    struct plan plan = {0};
    struct input input = {0};
    double log[STEPS][SCALARS];
    struct kernel_context context = {.input = &input, .log = log[0], .log_rows = STEPS};

    if (!CHECK_EQ(make_plan(&plan, &model, training, variant), 0) ||
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
    check_parameters(&plan, &context);
    check_work(&plan, &context, &model, variant);
    close_memory(&context);
    input_close(&input);
    plan_release(&plan);
}

int main(void)
{
    static const struct variant variants[] = {{BATCH, RECOMPUTE_NONE, 1, false, 1},
                                              {2, RECOMPUTE_FULL, 3, true, 4},
                                              {1, RECOMPUTE_SELECTIVE, 2, false, 2},
                                              {2, RECOMPUTE_MLP, 1, false, 1}};
    static const struct training trainings[] = {{"tiny", "tiny", NULL},
                                                {"tiny-llama", "tiny-llama", NULL},
                                                {"tiny-moe", "tiny-moe", "1"},
                                                {"tiny-moe-dropless", "tiny-moe", "none"}};
    kernels_blas_threads(1);
    for (size_t t = 0; t < sizeof trainings / sizeof trainings[0]; t++) {
        read_reference(trainings[t].file);
        CHECK_EQ(expected.n_steps, STEPS);
        for (size_t i = 0; i < sizeof variants / sizeof variants[0]; i++)
            if (trainings[t].capacity == NULL || variants[i].recompute != RECOMPUTE_MLP)
                check_training(&trainings[t], &variants[i]);
    }
    return test_end();
}
