/*
 * OP_CROSS_ENTROPY: loss, counts and gradient, with masks and padded columns. OP_EMBED and
 * OP_EMBED_GRAD: sums by token and position, the same bits every time. A token or target that does
 * not exist ends the job.
 */
#include "kernel_rig.h"

#include <setjmp.h>

struct loss_case {
    int64_t rows, width, valid;
};

/* Loss of one row and its gradient (0 where not valid). */
static double reference_row(const double *logits, int64_t width, int64_t valid, int64_t target,
                            double *gradient)
{
    double sum = 0;
    for (int64_t j = 0; j < valid; j++)
        sum += exp(logits[j]);
    for (int64_t j = 0; j < width; j++)
        gradient[j] = (j < valid ? exp(logits[j]) / sum : 0) - (j == target ? 1 : 0);
    return log(sum) - logits[target];
}

/* logits spread over several units; the padded ones so large that they would win. */
static void fill(struct rig *rig, const struct loss_case *c)
{
    float *logits = rig_random(rig, 0, c->rows * c->width);
    int32_t *targets = rig_tensor(rig, 1, (size_t)c->rows * sizeof *targets);
    uint8_t *mask = rig_tensor(rig, 2, (size_t)c->rows);
    for (int64_t i = 0; i < c->rows * c->width; i++)
        logits[i] = i % c->width < c->valid ? 3 * logits[i] : 1e6f;
    for (int64_t i = 0; i < c->rows; i++) {
        targets[i] = (int32_t)rng_below(7, (uint64_t)i, (uint32_t)c->valid);
        mask[i] = i % 3 != 1;
    }
    rig->op.shape.rows = (struct shape_rows){.rows = c->rows, .width = c->width, .valid = c->valid};
}

static void check_loss(const struct loss_case *c)
{
    struct rig rig = {0};
    fill(&rig, c);
    float *logits = tensor_at(&rig.context, rig.op.t[0]);
    const int32_t *targets = tensor_at(&rig.context, rig.op.t[1]);
    const uint8_t *mask = tensor_at(&rig.context, rig.op.t[2]);
    double *scalars = rig_tensor(&rig, 3, SCALARS * sizeof *scalars), loss = 0, counted = 0;
    double *from = rig_double(logits, c->rows * c->width);
    double *want = must_alloc((size_t)(c->rows * c->width), sizeof *want);
    scalars[SCALAR_LOSS_SUM] = 5;
    scalars[SCALAR_VALID] = 6;
    scalars[SCALAR_TOKENS] = 7;
    for (int64_t i = 0; i < c->rows; i++)
        if (mask[i]) {
            counted++;
            loss += reference_row(from + i * c->width, c->width, c->valid, targets[i],
                                  want + i * c->width);
        }

    rig_run(&rig, OP_CROSS_ENTROPY);
    CHECK_NEAR(scalars[SCALAR_LOSS_SUM], 5 + loss, 2e-7 * (5 + loss));
    CHECK(scalars[SCALAR_VALID] == 6 + counted);
    CHECK(scalars[SCALAR_TOKENS] == 7 + (double)c->rows);
    CHECK(rig_error(logits, want, c->rows * c->width) < 5e-7);
    long left = 0;
    for (int64_t i = 0; i < c->rows * c->width; i++)
        left += logits[i] != 0 && (i % c->width >= c->valid || !mask[i / c->width]);
    CHECK_EQ(left, 0);
    free(from);
    free(want);
    rig_release(&rig);
}

/* The gradient of a row is the slope of its loss, by difference quotients in double. */
static void test_loss_slope(void)
{
    enum { WIDTH = 40, VALID = 37 };
    struct loss_case c = {1, WIDTH, VALID};
    struct rig rig = {0};
    fill(&rig, &c);
    rig_tensor(&rig, 3, SCALARS * sizeof(double));
    float *logits = tensor_at(&rig.context, rig.op.t[0]);
    int64_t target = *(const int32_t *)tensor_at(&rig.context, rig.op.t[1]);
    double *from = rig_double(logits, WIDTH), unused[WIDTH];
    rig_run(&rig, OP_CROSS_ENTROPY);
    for (int j = 0; j < VALID; j++) {
        const double h = 1e-5, x = from[j];
        from[j] = x + h;
        double above = reference_row(from, WIDTH, VALID, target, unused);
        from[j] = x - h;
        double below = reference_row(from, WIDTH, VALID, target, unused);
        from[j] = x;
        CHECK_NEAR(logits[j], (above - below) / (2 * h), 3e-7);
    }
    free(from);
    rig_release(&rig);
}

static void test_loss_not_finite(void)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++) {
        struct loss_case c = {1, 20, 20};
        struct rig rig = {0};
        fill(&rig, &c);
        double *scalars = rig_tensor(&rig, 3, SCALARS * sizeof *scalars);
        ((float *)tensor_at(&rig.context, rig.op.t[0]))[i * 7] = bad[i];
        rig_run(&rig, OP_CROSS_ENTROPY);
        CHECK(!isfinite(scalars[SCALAR_LOSS_SUM]));
        rig_release(&rig);
    }
}

enum { VOCABULARY = 11, SEQUENCE = 5, ROWS = 4 * SEQUENCE };

static void fill_tokens(struct rig *rig, int64_t width)
{
    int32_t *tokens = rig_tensor(rig, 0, ROWS * sizeof *tokens);
    for (int i = 0; i < ROWS; i++)
        tokens[i] = (int32_t)rng_below(9, (uint64_t)i, VOCABULARY);
    tokens[ROWS - 1] = VOCABULARY - 1;
    rig->op.shape.rows = (struct shape_rows){
        .rows = ROWS, .width = width, .valid = VOCABULARY, .sequence = SEQUENCE};
}

static void check_embed(int64_t width)
{
    struct rig rig = {0};
    fill_tokens(&rig, width);
    const int32_t *tokens = tensor_at(&rig.context, rig.op.t[0]);
    float *wte = rig_random(&rig, 1, VOCABULARY * width);
    float *wpe = rig_random(&rig, 2, SEQUENCE * width), *x = rig_poisoned(&rig, 3, ROWS * width);
    long wrong = 0;
    rig_run(&rig, OP_EMBED);
    for (int64_t i = 0; i < ROWS * width; i++) {
        int64_t row = i / width, j = i % width;
        wrong += !(x[i] == wte[tokens[row] * width + j] + wpe[row % SEQUENCE * width + j]);
    }
    CHECK_EQ(wrong, 0);
    CHECK_EQ(rig.context.work.tokens, ROWS);
    rig_run(&rig, OP_EMBED);
    CHECK_EQ(rig.context.work.tokens, 2 * ROWS);
    CHECK(rig.context.work.model_flops == 0);
    rig_release(&rig);
}

static void check_embed_grad(int64_t width, bool positions)
{
    struct rig rig = {0};
    fill_tokens(&rig, width);
    const int32_t *tokens = tensor_at(&rig.context, rig.op.t[0]);
    float *dx = rig_random(&rig, 1, ROWS * width), *dwte = rig_random(&rig, 2, VOCABULARY * width);
    float *dwpe = positions ? rig_random(&rig, 3, SEQUENCE * width) : NULL;
    double *token = rig_double(dwte, VOCABULARY * width);
    double *position = positions ? rig_double(dwpe, SEQUENCE * width) : NULL;
    for (int64_t i = 0; i < ROWS * width; i++) {
        int64_t row = i / width, j = i % width;
        token[tokens[row] * width + j] += (double)dx[i];
        if (positions)
            position[row % SEQUENCE * width + j] += (double)dx[i];
    }
    rig_run(&rig, OP_EMBED_GRAD);
    CHECK(rig_error(dwte, token, VOCABULARY * width) < 5e-7);
    if (positions)
        CHECK(rig_error(dwpe, position, SEQUENCE * width) < 5e-7);
    CHECK_EQ(rig.context.work.tokens, 0);
    free(token);
    free(position);
    rig_release(&rig);
}

/* embed is linear: its slope along a direction w is embed(w), so <r, embed(w)> = <embed_grad(r), w>. */
static void test_embed_slope(void)
{
    enum { WIDTH = 7 };
    struct rig forward = {0}, backward = {0};
    fill_tokens(&forward, WIDTH);
    fill_tokens(&backward, WIDTH);
    const float *wte = rig_random(&forward, 1, VOCABULARY * WIDTH);
    const float *wpe = rig_random(&forward, 2, SEQUENCE * WIDTH);
    const float *x = rig_poisoned(&forward, 3, ROWS * WIDTH),
                *r = rig_random(&backward, 1, ROWS * WIDTH);
    const float *dwte = rig_tensor(&backward, 2, VOCABULARY * WIDTH * sizeof *dwte);
    const float *dwpe = rig_tensor(&backward, 3, SEQUENCE * WIDTH * sizeof *dwpe);
    rig_run(&forward, OP_EMBED);
    rig_run(&backward, OP_EMBED_GRAD);
    double above = 0, slope = 0;
    for (int i = 0; i < ROWS * WIDTH; i++)
        above += (double)r[i] * (double)x[i];
    for (int i = 0; i < VOCABULARY * WIDTH; i++)
        slope += (double)dwte[i] * (double)wte[i];
    for (int i = 0; i < SEQUENCE * WIDTH; i++)
        slope += (double)dwpe[i] * (double)wpe[i];
    CHECK_NEAR(slope, above, 1e-5);
    rig_release(&forward);
    rig_release(&backward);
}

static void test_embed_grad_repeats(void)
{
    enum { WIDTH = 24 };
    struct rig rig = {0};
    fill_tokens(&rig, WIDTH);
    rig_random(&rig, 1, ROWS * WIDTH);
    float *dwte = rig_random(&rig, 2, VOCABULARY * WIDTH), before[VOCABULARY * WIDTH];
    float first[VOCABULARY * WIDTH];
    memcpy(before, dwte, sizeof before);
    rig_run(&rig, OP_EMBED_GRAD);
    memcpy(first, dwte, sizeof first);
    memcpy(dwte, before, sizeof before);
    rig_run(&rig, OP_EMBED_GRAD);
    CHECK(memcmp(first, dwte, sizeof first) == 0);
    CHECK(memcmp(first, before, sizeof first) != 0);
    rig_release(&rig);
}

static jmp_buf ended;

static void jump(int code)
{
    longjmp(ended, code);
}

/* The exit code with which the op ends the job; 0 when it does not. */
static int death(struct rig *rig, enum op_kind kind)
{
    int code = setjmp(ended);
    if (code == 0)
        rig_run(rig, kind);
    return code;
}

static void test_what_does_not_exist(void)
{
    static const int32_t bad[] = {-1, VOCABULARY};
    for (int i = 0; i < 2; i++) {
        struct rig rig = {0};
        fill_tokens(&rig, 2);
        ((int32_t *)tensor_at(&rig.context, rig.op.t[0]))[3] = bad[i];
        for (int t = 1; t < 4; t++)
            rig_random(&rig, t, ROWS * 2);
        CHECK_EQ(death(&rig, OP_EMBED), FAIL_INTERNAL);
        CHECK_EQ(death(&rig, OP_EMBED_GRAD), FAIL_INTERNAL);
        rig_release(&rig);

        struct loss_case c = {1, 16, VOCABULARY};
        fill(&rig, &c);
        rig_tensor(&rig, 3, SCALARS * sizeof(double));
        CHECK_EQ(death(&rig, OP_CROSS_ENTROPY), 0);
        *(int32_t *)tensor_at(&rig.context, rig.op.t[1]) = bad[i];
        CHECK_EQ(death(&rig, OP_CROSS_ENTROPY), FAIL_INTERNAL);
        rig_release(&rig);
    }
}

int main(void)
{
    static const struct loss_case cases[] = {{1, 1, 1},      {3, 3, 2},   {7, 16, 16},
                                             {5, 65, 64},    {4, 127, 1}, {6, 128, 127},
                                             {3, 3001, 2500}};
    static const int64_t widths[] = {1, 3, 7, 65, 127};
    die_handler(jump);
    for (size_t i = 0; i < RIG_COUNT(cases); i++)
        check_loss(&cases[i]);
    test_loss_slope();
    test_loss_not_finite();
    for (size_t i = 0; i < RIG_COUNT(widths); i++) {
        check_embed(widths[i]);
        check_embed_grad(widths[i], true);
        check_embed_grad(widths[i], false);
    }
    test_embed_slope();
    test_embed_grad_repeats();
    test_what_does_not_exist();
    return test_end();
}
