#include "workloads/kernels/cpu.h"

#include <math.h>
#include <string.h>

static double learning_rate(const struct shape_optimizer *shape, double step)
{
    const double pi = 3.14159265358979323846;
    double lr = (double)shape->lr, lr_min = (double)shape->lr_min;
    double warm_up = (double)shape->warm_up, end = (double)shape->decay_steps;

    if (step <= warm_up)
        return lr * step / warm_up;
    if (step >= end)
        return lr_min;
    return lr_min + (lr - lr_min) * (1 + cos(pi * (step - warm_up) / (end - warm_up))) / 2;
}

void cpu_clip(const struct op *op, struct kernel_context *context, void *native)
{
    (void)native;
    const struct shape_optimizer *shape = &op->shape.optimizer;
    double *scalars = tensor_at(context, op->t[0]);
    double valid = scalars[SCALAR_VALID];
    double norm = sqrt(scalars[SCALAR_SUMSQ] + scalars[SCALAR_EXPERT_SUMSQ]) / valid;

    scalars[SCALAR_STEP] += 1;
    scalars[SCALAR_NORM] = norm;
    scalars[SCALAR_LR] = learning_rate(shape, scalars[SCALAR_STEP]);
    if (isfinite(norm) && isfinite(scalars[SCALAR_LOSS_SUM]) && valid > 0) {
        scalars[SCALAR_SCALE] = fmin(1, (double)shape->clip / (norm + 1e-6)) / valid;
    } else {
        scalars[SCALAR_SCALE] = 0;
        scalars[SCALAR_SKIPPED] += 1;
    }
    if (context->log != NULL) {
        double *row = context->log + context->log_next % context->log_rows * SCALARS;
        memcpy(row, scalars, SCALARS * sizeof *row);
        context->log_next++;
    }
}

void cpu_adamw(const struct op *op, struct kernel_context *context, void *native)
{
    (void)native;
    const struct shape_optimizer *shape = &op->shape.optimizer;
    float *restrict p = tensor_at(context, op->t[0]);
    const float *restrict gradient = tensor_at(context, op->t[1]);
    float *restrict m = tensor_at(context, op->t[2]), *restrict v = tensor_at(context, op->t[3]);
    const double *scalars = tensor_at(context, op->t[4]);
    if (scalars[SCALAR_SCALE] == 0)
        return;

    double lr = scalars[SCALAR_LR], updates = scalars[SCALAR_STEP] - scalars[SCALAR_SKIPPED];
    float scale = (float)scalars[SCALAR_SCALE], epsilon = shape->epsilon;
    float beta1 = shape->beta1, rest1 = (float)(1 - (double)beta1);
    float beta2 = shape->beta2, rest2 = (float)(1 - (double)beta2);
    float rate = (float)(lr / (1 - pow((double)beta1, updates)));
    float correction2 = (float)(1 / (1 - pow((double)beta2, updates)));
    float decay = (float)(lr * (double)shape->weight_decay);

    /* Vector code where sqrtf need not set errno (-fno-math-errno). */
    for (int64_t i = 0; i < shape->n; i++) {
        float g = gradient[i] * scale;
        m[i] = beta1 * m[i] + rest1 * g;
        v[i] = beta2 * v[i] + rest2 * g * g;
        p[i] -= p[i] * decay + rate * m[i] / (sqrtf(v[i] * correction2) + epsilon);
    }
    if (op->t[5].buffer != BUFFER_NONE) /* rounded by who runs this for a narrower type */
        memcpy(tensor_at(context, op->t[5]), p, (size_t)shape->n * sizeof *p);
}
