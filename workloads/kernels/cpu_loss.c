#include "workloads/kernels/cpu.h"

#include "base/err.h"
#include "workloads/kernels/cpu_math.h"

/* The logits of a token become their gradient; returns its loss. */
static double token_loss(float *logits, int64_t width, int64_t valid, int32_t target)
{
    if (target < 0 || target >= valid)
        die(FAIL_INTERNAL, "cross-entropy: target %d is not below %lld", (int)target,
            (long long)valid);
    float most = cpu_row_max(logits, valid);
    double below = (double)most - (double)logits[target];
    double sum = cpu_row_exp(logits, valid, most);
    float inverse = (float)(1 / sum);
    for (int64_t j = 0; j < valid; j++)
        logits[j] *= inverse;
    logits[target] -= 1;
    memset(logits + valid, 0, (size_t)(width - valid) * sizeof *logits);
    return log(sum) + below;
}

void cpu_cross_entropy(const struct op *op, struct kernel_context *context, void *native)
{
    (void)native;
    const struct shape_rows *shape = &op->shape.rows;
    float *logits = tensor_at(context, op->t[0]);
    const int32_t *targets = tensor_at(context, op->t[1]);
    const uint8_t *mask = tensor_at(context, op->t[2]);
    double *scalars = tensor_at(context, op->t[3]);
    double loss = 0;
    int64_t counted = 0;

    for (int64_t r = 0; r < shape->rows; r++) {
        float *row = logits + r * shape->width;
        if (mask[r] == 0) {
            memset(row, 0, (size_t)shape->width * sizeof *row);
            continue;
        }
        loss += token_loss(row, shape->width, shape->valid, targets[r]);
        counted++;
    }
    scalars[SCALAR_LOSS_SUM] += loss;
    scalars[SCALAR_VALID] += (double)counted;
    scalars[SCALAR_TOKENS] += (double)shape->rows;
}
