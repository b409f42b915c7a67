#include "workloads/kernels/cpu.h"

#include "workloads/kernels/cpu_math.h"

void cpu_zero(const struct op *op, struct kernel_context *context, void *native)
{
    (void)native;
    memset(tensor_at(context, op->t[0]), 0, (size_t)op->shape.vector.n * sizeof(float));
}

/* In place apart from the rest: pointers that may be equal keep a loop from becoming vector code. */
static void add_in_place(float *restrict sum, const float *restrict b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        sum[i] += b[i];
}

static void add(float *restrict sum, const float *restrict a, const float *restrict b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        sum[i] = a[i] + b[i];
}

void cpu_add(const struct op *op, struct kernel_context *context, void *native)
{
    (void)native;
    const float *a = tensor_at(context, op->t[0]), *b = tensor_at(context, op->t[1]);
    float *sum = tensor_at(context, op->t[2]);
    if (sum == a)
        add_in_place(sum, b, op->shape.vector.n);
    else
        add(sum, a, b, op->shape.vector.n);
}

/*
 * GELU, tanh form: x (1 + tanh(u)) / 2 with u = sqrt(2 / pi) (x + 0.044715 x^3). No tanh is needed
 * and nothing cancels for negative x, since (1 + tanh(u)) / 2 = s = 1 / (1 + e^-2u), which with
 * e = e^-|2u| is 1 / (1 + e) for u >= 0 and e / (1 + e) below.
 */
#define TWICE_ROOT 1.5957691216057308f           /* 2 sqrt(2 / pi) */
#define TWICE_CUBE (TWICE_ROOT * 0.044715f)      /* of x^3 in 2u */
#define TWICE_SLOPE (TWICE_ROOT * 3 * 0.044715f) /* of x^2 in d 2u / dx */

/* x s, with x (x < 0 ? e : 1) written as a sum of which one half is 0: gcc makes that choice a
 * branch. */
static void gelu(float *restrict y, const float *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float size = fabsf(x[i]);
        float e = cpu_exp_minus(fabsf(x[i] * (TWICE_ROOT + TWICE_CUBE * (x[i] * x[i]))));
        y[i] = 0.5f * ((x[i] + size) + (x[i] - size) * e) / (1 + e);
    }
}

void cpu_gelu(const struct op *op, struct kernel_context *context, void *native)
{
    (void)native;
    gelu(tensor_at(context, op->t[1]), tensor_at(context, op->t[0]), op->shape.vector.n);
}

/* dy/dx = s + x s (1 - s) d2u/dx, and s (1 - s) = e / (1 + e)^2 on both sides. */
static inline float slope(float x)
{
    float square = x * x;
    float e = cpu_exp_minus(fabsf(x * (TWICE_ROOT + TWICE_CUBE * square)));
    float inverse = 1 / (1 + e);
    float s = (x < 0 ? e : 1) * inverse;
    return s + x * (TWICE_ROOT + TWICE_SLOPE * square) * (e * inverse * inverse);
}

static void gelu_grad_in_place(float *restrict d, const float *restrict x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        d[i] *= slope(x[i]);
}

static void gelu_grad_over_input(float *restrict x, const float *restrict dy, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = dy[i] * slope(x[i]);
}

static void gelu_grad(float *restrict dx, const float *restrict dy, const float *restrict x,
                      int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        dx[i] = dy[i] * slope(x[i]);
}

void cpu_gelu_grad(const struct op *op, struct kernel_context *context, void *native)
{
    (void)native;
    const float *dy = tensor_at(context, op->t[0]), *x = tensor_at(context, op->t[1]);
    float *dx = tensor_at(context, op->t[2]);
    if (dx == dy)
        gelu_grad_in_place(dx, x, op->shape.vector.n);
    else if (dx == x)
        gelu_grad_over_input(dx, dy, op->shape.vector.n);
    else
        gelu_grad(dx, dy, x, op->shape.vector.n);
}
