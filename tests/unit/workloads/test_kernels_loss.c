/*
 * OP_CROSS_ENTROPY: loss, counts and gradient, with masks and padded columns, of a whole vocabulary
 * and of parts whose statistics come from OP_CLASS_STATS. A target that does not exist ends the job.
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

/* ---- a vocabulary that ranks share ---- */

enum { PARTS = 3 };

/* Columns first, first + width of which `valid` exist; what this part holds of whole rows. */
static void cut(struct rig *part, const struct rig *whole, int64_t first, int64_t width)
{
    const struct shape_rows *s = &whole->op.shape.rows;
    const float *logits = tensor_at(&whole->context, whole->op.t[0]);
    float *own = rig_tensor(part, 0, (size_t)(s->rows * width) * sizeof *own);
    int64_t valid = s->valid - first;
    for (int64_t i = 0; i < s->rows; i++)
        memcpy(own + i * width, logits + i * s->width + first, (size_t)width * sizeof *own);
    memcpy(rig_tensor(part, 1, (size_t)s->rows * 4), tensor_at(&whole->context, whole->op.t[1]),
           (size_t)s->rows * 4);
    part->op.shape.rows = (struct shape_rows){.rows = s->rows,
                                              .width = width,
                                              .valid = valid < 0       ? 0
                                                       : valid < width ? valid
                                                                       : width,
                                              .first_column = first,
                                              .parts = PARTS};
}

/* Statistics of all parts, then the loss of one from them: against the whole, a part without any
 * column that exists included. */
static void check_parts(const struct loss_case *c)
{
    struct rig whole = {0}, part[PARTS];
    int64_t width = c->width / PARTS, rows = c->rows;
    float *all = must_alloc((size_t)(PARTS * rows * 3), sizeof *all);
    double loss = 0, valid = 0, tokens = 0;
    memset(part, 0, sizeof part);
    fill(&whole, c);
    for (int p = 0; p < PARTS; p++) {
        cut(&part[p], &whole, p * width, width);
        float *stats = rig_poisoned(&part[p], 2, rows * 3);
        rig_run(&part[p], OP_CLASS_STATS);
        memcpy(all + p * rows * 3, stats, (size_t)(rows * 3) * sizeof *all);
    }
    double *scalars = rig_tensor(&whole, 3, SCALARS * sizeof *scalars);
    rig_run(&whole, OP_CROSS_ENTROPY);
    const float *want = tensor_at(&whole.context, whole.op.t[0]);
    double worst = 0;
    for (int p = 0; p < PARTS; p++) {
        struct rig *r = &part[p];
        memcpy(tensor_at(&r->context, r->op.t[2]), tensor_at(&whole.context, whole.op.t[2]),
               (size_t)rows); /* the statistics went to `all` */
        double *own = rig_tensor(r, 3, SCALARS * sizeof *own);
        memcpy(rig_tensor(r, 4, (size_t)(PARTS * rows * 3) * sizeof *all), all,
               (size_t)(PARTS * rows * 3) * sizeof *all);
        rig_run(r, OP_CROSS_ENTROPY);
        const float *found = tensor_at(&r->context, r->op.t[0]);
        for (int64_t i = 0; i < rows * width; i++)
            worst = fmax(worst, fabs((double)found[i] -
                                     (double)want[i / width * c->width + p * width + i % width]));
        loss += own[SCALAR_LOSS_SUM];
        valid += own[SCALAR_VALID];
        tokens += own[SCALAR_TOKENS];
    }
    CHECK(worst < 5e-7);
    CHECK_NEAR(loss, scalars[SCALAR_LOSS_SUM], 3e-7 * fabs(loss));
    CHECK_EQ(valid, scalars[SCALAR_VALID]);
    CHECK_EQ(tokens, scalars[SCALAR_TOKENS]);
    for (int p = 0; p < PARTS; p++)
        rig_release(&part[p]);
    rig_release(&whole);
    free(all);
}

/* What is not finite in one part reaches the loss through the statistics. */
static void test_parts_not_finite(void)
{
    static const float bad[] = {NAN, INFINITY};
    for (int i = 0; i < 2; i++) {
        struct loss_case c = {1, 12, 12};
        struct rig whole = {0}, part = {0};
        fill(&whole, &c);
        ((float *)tensor_at(&whole.context, whole.op.t[0]))[10] = bad[i];
        float *stats = must_alloc(3 * PARTS, sizeof *stats);
        for (int p = 0; p < PARTS; p++) {
            struct rig r = {0};
            cut(&r, &whole, 4 * p, 4);
            rig_poisoned(&r, 2, 3);
            rig_run(&r, OP_CLASS_STATS);
            memcpy(stats + 3 * p, tensor_at(&r.context, r.op.t[2]), 3 * sizeof *stats);
            rig_release(&r);
        }
        cut(&part, &whole, 0, 4);
        *(uint8_t *)rig_tensor(&part, 2, 1) = 1;
        double *scalars = rig_tensor(&part, 3, SCALARS * sizeof *scalars);
        memcpy(rig_tensor(&part, 4, 3 * PARTS * sizeof *stats), stats, 3 * PARTS * sizeof *stats);
        rig_run(&part, OP_CROSS_ENTROPY);
        CHECK(!isfinite(scalars[SCALAR_LOSS_SUM]));
        free(stats);
        rig_release(&whole);
        rig_release(&part);
    }
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

static void test_target_that_does_not_exist(void)
{
    enum { VALID = 11 };
    static const int32_t bad[] = {-1, VALID};
    for (int i = 0; i < 2; i++) {
        struct rig rig = {0};
        struct loss_case c = {1, 16, VALID};
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
    static const struct loss_case shared[] = {
        {1, 3, 3}, {5, 30, 21}, {4, 63, 40}, {3, 384, 383}, {7, 33, 11}};
    die_handler(jump);
    for (size_t i = 0; i < RIG_COUNT(cases); i++)
        check_loss(&cases[i]);
    for (size_t i = 0; i < RIG_COUNT(shared); i++)
        check_parts(&shared[i]);
    test_loss_slope();
    test_loss_not_finite();
    test_parts_not_finite();
    test_target_that_does_not_exist();
    return test_end();
}
