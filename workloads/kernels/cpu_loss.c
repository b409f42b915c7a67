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

/* Statistics of one row of this rank's columns: STATS floats. */
enum { LARGEST, SUM, TARGET, STATS };

void cpu_class_stats(const struct op *op, struct kernel_context *context, void *native)
{
    (void)native;
    const struct shape_rows *shape = &op->shape.rows;
    const float *logits = tensor_at(context, op->t[0]);
    const int32_t *targets = tensor_at(context, op->t[1]);
    float *stats = tensor_at(context, op->t[2]);

    for (int64_t r = 0; r < shape->rows; r++, logits += shape->width, stats += STATS) {
        int64_t target = targets[r] - shape->first_column;
        double sum = 0;
        stats[LARGEST] = shape->valid > 0 ? cpu_row_max(logits, shape->valid) : -INFINITY;
        for (int64_t j = 0; j < shape->valid; j++)
            sum += (double)cpu_exp_minus(stats[LARGEST] - logits[j]);
        stats[SUM] = (float)sum;
        stats[TARGET] = target >= 0 && target < shape->valid ? logits[target] : 0;
    }
}

/* From the statistics of all parts: log of the sum of exponentials minus the target's logit; the
 * largest logit and 1 / (sum relative to it). */
static double joined_loss(const float *stats, int parts, int64_t rows, float *largest,
                          float *inverse)
{
    double sum = 0, target = 0;
    *largest = -INFINITY;
    for (int p = 0; p < parts; p++)
        *largest = fmaxf(*largest, stats[p * rows * STATS + LARGEST]);
    for (int p = 0; p < parts; p++) {
        const float *part = stats + p * rows * STATS;
        if (part[SUM] != 0) /* 0: no column there; NaN stays */
            sum += (double)part[SUM] * exp((double)part[LARGEST] - (double)*largest);
        target += (double)part[TARGET];
    }
    *inverse = (float)(1 / sum);
    return log(sum) + (double)*largest - target;
}

/* The same for columns that are one part of the vocabulary. */
static double part_loss(float *logits, const struct shape_rows *shape, int32_t target,
                        const float *stats)
{
    float largest, inverse;
    double loss = joined_loss(stats, shape->parts, shape->rows, &largest, &inverse);
    int64_t column = target - shape->first_column;
    for (int64_t j = 0; j < shape->valid; j++)
        logits[j] = cpu_exp_minus(largest - logits[j]) * inverse;
    if (column >= 0 && column < shape->valid)
        logits[column] -= 1;
    memset(logits + shape->valid, 0, (size_t)(shape->width - shape->valid) * sizeof *logits);
    return loss;
}

void cpu_cross_entropy(const struct op *op, struct kernel_context *context, void *native)
{
    (void)native;
    const struct shape_rows *shape = &op->shape.rows;
    float *logits = tensor_at(context, op->t[0]);
    const int32_t *targets = tensor_at(context, op->t[1]);
    const uint8_t *mask = tensor_at(context, op->t[2]);
    double *scalars = tensor_at(context, op->t[3]);
    const float *stats = tensor_at(context, op->t[4]);
    double loss = 0;
    int64_t counted = 0;

    for (int64_t r = 0; r < shape->rows; r++) {
        float *row = logits + r * shape->width;
        if (mask[r] == 0) {
            memset(row, 0, (size_t)shape->width * sizeof *row);
            continue;
        }
        if (stats == NULL)
            loss += token_loss(row, shape->width, shape->valid, targets[r]);
        else
            loss += part_loss(row, shape, targets[r], stats + r * STATS);
        counted++;
    }
    if (shape->first_column > 0)
        return;
    scalars[SCALAR_LOSS_SUM] += loss;
    scalars[SCALAR_VALID] += (double)counted;
    scalars[SCALAR_TOKENS] += (double)shape->rows;
}
