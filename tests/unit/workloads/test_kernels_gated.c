/*
 * OP_SWIGLU and OP_ROTARY: against their definitions in double, gradients against difference
 * quotients, in place and not; turning back undoes turning, and lengths and relative angles stay.
 */
#include "kernel_rig.h"

static double swiglu(double gate, double up)
{
    return gate / (1 + exp(-gate)) * up;
}

static void check_swiglu(int64_t rows, int64_t width, bool in_place)
{
    int64_t n = rows * width;
    struct rig rig = {.op.shape.rows = {.rows = rows, .width = width}}, grad = rig;
    float *x = rig_random(&rig, 0, 2 * n), *y = rig_poisoned(&rig, 1, n);
    double *want = must_alloc((size_t)(3 * n), sizeof *want), *slope = want + n;
    for (int64_t i = 0; i < 2 * n; i++)
        x[i] *= 4;
    float *dy = rig_random(&grad, 0, n), *dx = rig_tensor(&grad, 1, (size_t)(2 * n) * sizeof *dx);
    memcpy(dx, x, (size_t)(2 * n) * sizeof *dx);
    if (in_place)
        grad.op.t[2] = grad.op.t[1];
    else
        dx = rig_poisoned(&grad, 2, 2 * n);
    for (int64_t i = 0; i < n; i++) {
        const double h = 1e-5;
        int64_t at = i / width * 2 * width + i % width;
        double gate = (double)x[at], up = (double)x[at + width];
        want[i] = swiglu(gate, up);
        slope[at] = (double)dy[i] * (swiglu(gate + h, up) - swiglu(gate - h, up)) / (2 * h);
        slope[at + width] = (double)dy[i] * (swiglu(gate, up + h) - swiglu(gate, up - h)) / (2 * h);
    }
    rig_run(&rig, OP_SWIGLU);
    rig_run(&grad, OP_SWIGLU_GRAD);
    CHECK(rig_error(y, want, n) < 5e-7);
    CHECK(rig_error(dx, slope, 2 * n) < 1e-6);
    free(want);
    rig_release(&rig);
    rig_release(&grad);
}

/* Far from 0 nothing overflows, and the sign of what is left is right. */
static void test_swiglu_far(void)
{
    static const float gates[] = {-1000, -90, 90, 1000};
    for (size_t i = 0; i < RIG_COUNT(gates); i++) {
        struct rig rig = {.op.shape.rows = {.rows = 1, .width = 1}};
        float *x = rig_random(&rig, 0, 2), *y = rig_poisoned(&rig, 1, 1);
        x[0] = gates[i];
        x[1] = 2;
        rig_run(&rig, OP_SWIGLU);
        CHECK_NEAR(y[0], gates[i] > 0 ? 2 * gates[i] : 0, 1e-30);
        rig_release(&rig);
    }
}

static struct shape_attention shape_of(const int size[5])
{
    return (struct shape_attention){.batch = size[0],
                                    .sequence = size[1],
                                    .heads = size[2],
                                    .kv_heads = size[3],
                                    .head = size[4],
                                    .theta = 10000};
}

/* The definition, one element at a time: v is left alone. */
static double turned(const double *row, const struct shape_attention *s, int64_t position,
                     int64_t i)
{
    int64_t head = i / s->head, j = i % s->head, half = s->head / 2;
    if (head >= s->heads + s->kv_heads)
        return row[i];
    double angle = (double)position * pow((double)s->theta, -2.0 * (double)(j % half) / s->head);
    double other = row[j < half ? i + half : i - half];
    return row[i] * cos(angle) + (j < half ? -other : other) * sin(angle);
}

static void check_rotary(const int size[5])
{
    struct shape_attention shape = shape_of(size);
    struct rig rig = {.op.shape.attention = shape};
    int64_t width = (int64_t)(shape.heads + 2 * shape.kv_heads) * shape.head;
    int64_t rows = shape.batch * shape.sequence, n = rows * width;
    float *x = rig_random(&rig, 0, n);
    double *before = rig_double(x, n), *want = must_alloc((size_t)n, sizeof *want);
    for (int64_t i = 0; i < n; i++)
        want[i] = turned(before + i / width * width, &shape, i / width % shape.sequence, i % width);
    rig_run(&rig, OP_ROTARY);
    CHECK(rig_error(x, want, n) < 3e-7);
    /* the derivative of a rotation is its inverse, transposed: turning back undoes it */
    rig.op.shape.attention.inverse = true;
    rig_run(&rig, OP_ROTARY);
    CHECK(rig_error(x, before, n) < 3e-7);
    free(before);
    free(want);
    rig_release(&rig);
}

/* Scores depend on the distance of two positions alone, far out as well. */
static void test_rotary_is_relative(void)
{
    enum { S = 40000, HEAD = 8, ROW = 3 * HEAD };
    const int size[] = {1, S, 1, 1, HEAD};
    struct rig rig = {.op.shape.attention = shape_of(size)};
    float *x = rig_tensor(&rig, 0, (size_t)S * ROW * sizeof *x);
    for (int64_t i = 0; i < (int64_t)S * ROW; i++)
        x[i] = 1 + 0.1f * (float)(i % ROW);
    rig_run(&rig, OP_ROTARY);
    double first = 0, last = 0;
    for (int j = 0; j < HEAD; j++) {
        first += (double)x[5 * ROW + j] * (double)x[2 * ROW + HEAD + j];
        last +=
            (double)x[(int64_t)(S - 1) * ROW + j] * (double)x[(int64_t)(S - 4) * ROW + HEAD + j];
    }
    CHECK_NEAR(first, last, 1e-5 * fabs(first));
    rig_release(&rig);
}

int main(void)
{
    static const int64_t rows[] = {1, 3, 8}, widths[] = {1, 3, 16, 65, 257};
    for (size_t i = 0; i < RIG_COUNT(rows); i++)
        for (size_t j = 0; j < RIG_COUNT(widths); j++)
            for (int in_place = 0; in_place < 2; in_place++)
                check_swiglu(rows[i], widths[j], in_place);
    test_swiglu_far();
    static const int sizes[][5] = {
        {1, 1, 1, 1, 2}, {2, 7, 3, 1, 6}, {1, 33, 4, 2, 16}, {3, 5, 2, 2, 64}, {1, 300, 2, 1, 128}};
    for (size_t i = 0; i < RIG_COUNT(sizes); i++)
        check_rotary(sizes[i]);
    test_rotary_is_relative();
    return test_end();
}
