#include "workloads/kernels/cpu.h"

#include "workloads/kernels/cpu_math.h"

/* 1 / (1 + e^-x), from e^-|x| so that nothing overflows. */
static inline float logistic(float x)
{
    float e = cpu_exp_minus(fabsf(x));
    return (x < 0 ? e : 1) / (1 + e);
}

void cpu_swiglu(const struct op *op, struct kernel_context *context, void *native)
{
    (void)native;
    int64_t width = op->shape.rows.width;
    const float *restrict x = tensor_at(context, op->t[0]);
    float *restrict y = tensor_at(context, op->t[1]);

    for (int64_t r = 0; r < rows_now(&op->shape.rows); r++, x += 2 * width, y += width)
        for (int64_t j = 0; j < width; j++)
            y[j] = x[j] * logistic(x[j]) * x[width + j];
}

/* silu' = s (1 + g (1 - s)). An element of dx needs only the two of x at its place, so x may be dx. */
void cpu_swiglu_grad(const struct op *op, struct kernel_context *context, void *native)
{
    (void)native;
    int64_t width = op->shape.rows.width;
    const float *restrict dy = tensor_at(context, op->t[0]);
    const float *x = tensor_at(context, op->t[1]);
    float *dx = tensor_at(context, op->t[2]);

    for (int64_t r = 0; r < rows_now(&op->shape.rows);
         r++, dy += width, x += 2 * width, dx += 2 * width)
        for (int64_t j = 0; j < width; j++) {
            float gate = x[j], up = x[width + j], s = logistic(gate);
            dx[j] = dy[j] * up * s * (1 + gate * (1 - s));
            dx[width + j] = dy[j] * gate * s;
        }
}

/* Turn pair i of all heads of a row. Angles in double: at position 10^5 a float would have lost a
 * hundredth of a turn. */
static void turn(float *row, const struct shape_attention *shape, int i, double angle)
{
    int half = shape->head / 2;
    float c = (float)cos(angle), s = (float)sin(angle), *x = row + i;
    for (int h = 0; h < shape->heads + shape->kv_heads; h++, x += shape->head) {
        float a = x[0], b = x[half];
        x[0] = a * c - b * s;
        x[half] = b * c + a * s;
    }
}

void cpu_rotary(const struct op *op, struct kernel_context *context, void *native)
{
    (void)native;
    const struct shape_attention *shape = &op->shape.attention;
    int64_t width = (int64_t)(shape->heads + 2 * shape->kv_heads) * shape->head;
    float *qkv = tensor_at(context, op->t[0]);

    for (int i = 0; i < shape->head / 2; i++) {
        double step = pow((double)shape->theta, -2.0 * i / shape->head);
        for (int64_t r = 0; r < shape->batch * shape->sequence; r++) {
            double angle = (double)cut_position(&shape->cut, r % shape->sequence) * step;
            turn(qkv + r * width, shape, i, shape->inverse ? -angle : angle);
        }
    }
}
