/* A model learns real text: the loss of the tiny model on bytes falls from chance to well below the
 * entropy of single bytes, and is the same bit by bit for any number of workers. */
#include <stdlib.h>

#include "base/err.h"
#include "driver/execute.h"
#include "tests/test.h"
#include "workloads/input_feed.h"
#include "workloads/input_file.h"
#include "workloads/transformer.h"

enum { STEPS = 128, BLOCK = 8, BATCH = 8, SHORT = 8 };

#define TEXT TEST_SOURCE_DIR "/../LICENSE"

static void train(double *losses, int n_steps, int workers, int prefetch)
{
    struct model model;
    struct policy policy;
    struct layout layout;
    struct degrees degrees = {0};
    struct plan plan;
    struct input input;
    struct execute execute;
    struct backend backend = {.device = &device_cpu, .kernels = &kernels_cpu};
    CHECK_EQ(model_load(&model, "tiny"), 0);
    model.layers = 2;
    model.sequence = 32;
    policy_defaults(&policy, &model);
    policy.global_batch = BATCH;
    policy.micro_batch = BATCH / 2;
    CHECK_EQ(layout_parse("", &degrees), 0);
    CHECK_EQ(layout_init(&layout, 1, 1, 0, &degrees), 0);
    CHECK_EQ(transformer_plan(&plan, &model, &layout, &policy), 0);
    CHECK_EQ(input_open(&input, "file:" TEXT, 1, model.vocabulary, model.sequence, 0, 0), 0);
    CHECK_EQ(input_feed_open(&input, &plan, workers, prefetch, BLOCK), 0);
    struct execute_config config = {.plan = &plan,
                                    .backend = &backend,
                                    .input = &input,
                                    .max_steps = BLOCK,
                                    .scratch = true,
                                    .fault = {.drop_op = -1}};
    CHECK_EQ(execute_open(&execute, &config), 0);
    execute_reset(&execute, 1);
    for (int at = 0; at < n_steps; at += BLOCK) {
        struct execute_samples samples;
        execute_block(&execute, VARIANT_FULL, 0, BLOCK, -1, &samples);
        CHECK_EQ(samples.rows.inputs.n, BLOCK);
        CHECK(samples.rows.inputs.rows[1].read_bytes == BATCH * (model.sequence + 1));
        CHECK(samples.rows.inputs.rows[1].resident_bytes > 0);
        for (int i = 0; i < BLOCK; i++)
            losses[at + i] = samples.step[i].loss;
        execute_samples_release(&samples);
        execute_block(&execute, VARIANT_COMPUTE, 0, 1, -1, &samples); /* takes samples of its own */
        CHECK_EQ(samples.rows.inputs.n, 1);
        execute_samples_release(&samples);
    }
    CHECK_EQ(execute.consumed, n_steps * BATCH);
    execute_close(&execute);
    input_close(&input);
    plan_release(&plan);
}

/* Nats a byte of the text when bytes are drawn one by one. */
static double entropy_of_bytes(void)
{
    double count[256] = {0}, n = 0, sum = 0;
    FILE *file = fopen(TEXT, "rb");
    for (int c; file != NULL && (c = getc(file)) != EOF; n++)
        count[c]++;
    if (file != NULL)
        fclose(file);
    for (int i = 0; i < 256; i++)
        if (count[i] > 0)
            sum -= count[i] / n * log(count[i] / n);
    return sum;
}

static double mean(const double *x, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i];
    return sum / n;
}

int main(void)
{
    static double losses[STEPS], other[SHORT];
    static const int workers[] = {0, 1, 3}, prefetch[] = {1, 2, 16};
    double entropy = entropy_of_bytes();
    train(losses, STEPS, 2, 4);
    double last = mean(losses + STEPS - 32, 32);
    printf("loss on text: first %.3f, last %.3f; ln 256 = %.3f, entropy of bytes %.3f\n", losses[0],
           last, log(256.0), entropy);
    CHECK_NEAR(losses[0], log(256.0), 0.1);
    CHECK(entropy > 2.5 && last < entropy - 0.3);
    for (int i = 0; i < 3; i++) {
        train(other, SHORT, workers[i], prefetch[i]);
        CHECK(memcmp(other, losses, sizeof other) == 0);
    }
    return test_end();
}
