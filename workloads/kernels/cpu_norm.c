#include "workloads/kernels/cpu.h"

#include "workloads/kernels/cpu_math.h"

static const double EPSILON = 1e-5;

static float deviation_sum(const float *x, float mean, int64_t n)
{
    float lane[CPU_LANES] = {0};
    int64_t i = 0;
    for (; i + CPU_LANES <= n; i += CPU_LANES)
        for (int l = 0; l < CPU_LANES; l++)
            lane[l] += (x[i + l] - mean) * (x[i + l] - mean);
    for (; i < n; i++)
        lane[i % CPU_LANES] += (x[i] - mean) * (x[i] - mean);
    return cpu_fold(lane);
}

static void layer_norm(const struct op *op, struct kernel_context *context, const float *restrict x)
{
    int64_t rows = op->shape.rows.rows, width = op->shape.rows.width;
    const float *restrict w = tensor_at(context, op->t[1]);
    const float *restrict b = tensor_at(context, op->t[2]);
    float *restrict y = tensor_at(context, op->t[3]);
    float *mean = tensor_at(context, op->t[4]), *rstd = tensor_at(context, op->t[5]);

    for (int64_t r = 0; r < rows; r++, x += width, y += width) {
        float center = (float)((double)cpu_row_sum(x, width) / (double)width);
        double variance = (double)deviation_sum(x, center, width) / (double)width;
        float scale = (float)(1 / sqrt(variance + EPSILON));
        for (int64_t j = 0; j < width; j++)
            y[j] = (x[j] - center) * scale * w[j] + b[j];
        mean[r] = center;
        rstd[r] = scale;
    }
}

static void rms_norm(const struct op *op, struct kernel_context *context, const float *restrict x)
{
    int64_t rows = op->shape.rows.rows, width = op->shape.rows.width;
    const float *restrict w = tensor_at(context, op->t[1]);
    float *restrict y = tensor_at(context, op->t[3]), *rstd = tensor_at(context, op->t[5]);

    for (int64_t r = 0; r < rows; r++, x += width, y += width) {
        double square = (double)cpu_row_dot(x, x, width) / (double)width;
        float scale = (float)(1 / sqrt(square + EPSILON));
        for (int64_t j = 0; j < width; j++)
            y[j] = x[j] * scale * w[j];
        rstd[r] = scale;
    }
}

void cpu_norm(const struct op *op, struct kernel_context *context, void *native)
{
    (void)native;
    const float *x = tensor_at(context, op->t[0]);
    if (op->t[6].buffer != BUFFER_NONE) {
        const float *residual = tensor_at(context, op->t[6]);
        float *sum = tensor_at(context, op->t[7]);
        for (int64_t i = 0; i < op->shape.rows.rows * op->shape.rows.width; i++)
            sum[i] = x[i] + residual[i];
        x = sum;
    }
    if (op->shape.rows.rms)
        rms_norm(op, context, x);
    else
        layer_norm(op, context, x);
}

/* The sum over a row of dy w (x - center). */
static float centered_dot(const float *dy, const float *w, const float *x, float center, int64_t n)
{
    float lane[CPU_LANES] = {0};
    int64_t i = 0;
    for (; i + CPU_LANES <= n; i += CPU_LANES)
        for (int l = 0; l < CPU_LANES; l++)
            lane[l] += dy[i + l] * w[i + l] * (x[i + l] - center);
    for (; i < n; i++)
        lane[i % CPU_LANES] += dy[i] * w[i] * (x[i] - center);
    return cpu_fold(lane);
}

/* With xhat = (x - center) scale and g = dy w: dx = scale (g - mean(g) - xhat mean(g xhat)). */
static void row_grad(const float *restrict dy, const float *restrict x, const float *restrict w,
                     float center, float scale, int64_t n, bool add, float *restrict dx)
{
    float mean = cpu_row_dot(dy, w, n) / (float)n;
    float slope = centered_dot(dy, w, x, center, n) * scale * scale / (float)n;
    if (add)
        for (int64_t j = 0; j < n; j++)
            dx[j] += scale * (dy[j] * w[j] - mean - (x[j] - center) * slope);
    else
        for (int64_t j = 0; j < n; j++)
            dx[j] = scale * (dy[j] * w[j] - mean - (x[j] - center) * slope);
}

/* dw and db of four rows at once: a quarter of the passes over them, and shorter chains of sums. */
static void weight_grad_4(const float *restrict dy, const float *restrict x, const float *mean,
                          const float *rstd, int64_t n, float *restrict dw, float *restrict db)
{
    float m0 = mean[0], m1 = mean[1], m2 = mean[2], m3 = mean[3];
    float r0 = rstd[0], r1 = rstd[1], r2 = rstd[2], r3 = rstd[3];
    for (int64_t j = 0; j < n; j++) {
        float g0 = dy[j], g1 = dy[n + j], g2 = dy[2 * n + j], g3 = dy[3 * n + j];
        db[j] += (g0 + g1) + (g2 + g3);
        dw[j] += (g0 * ((x[j] - m0) * r0) + g1 * ((x[n + j] - m1) * r1)) +
                 (g2 * ((x[2 * n + j] - m2) * r2) + g3 * ((x[3 * n + j] - m3) * r3));
    }
}

static void weight_grad(const float *restrict dy, const float *restrict x, float center,
                        float scale, int64_t n, float *restrict dw, float *restrict db)
{
    for (int64_t j = 0; j < n; j++) {
        db[j] += dy[j];
        dw[j] += dy[j] * ((x[j] - center) * scale);
    }
}

static void layer_norm_grad(const struct op *op, struct kernel_context *context)
{
    int64_t rows = op->shape.rows.rows, n = op->shape.rows.width;
    const float *dy = tensor_at(context, op->t[0]), *x = tensor_at(context, op->t[1]);
    const float *w = tensor_at(context, op->t[2]);
    const float *mean = tensor_at(context, op->t[3]), *rstd = tensor_at(context, op->t[4]);
    float *dx = tensor_at(context, op->t[5]);
    float *dw = tensor_at(context, op->t[6]), *db = tensor_at(context, op->t[7]);

    for (int64_t r = 0; r < rows;) {
        int64_t count = rows - r < 4 ? 1 : 4, at = r * n;
        for (int64_t i = r; i < r + count; i++)
            row_grad(dy + i * n, x + i * n, w, mean[i], rstd[i], n, op->shape.rows.accumulate,
                     dx + i * n);
        if (count == 4)
            weight_grad_4(dy + at, x + at, mean + r, rstd + r, n, dw, db);
        else
            weight_grad(dy + at, x + at, mean[r], rstd[r], n, dw, db);
        r += count;
    }
}

/* With g = dy w: dx = scale (g - x scale^2 mean(g x)); dw += dy x scale. */
static void rms_norm_grad(const struct op *op, struct kernel_context *context)
{
    int64_t rows = op->shape.rows.rows, n = op->shape.rows.width;
    const float *restrict dy = tensor_at(context, op->t[0]);
    const float *restrict x = tensor_at(context, op->t[1]);
    const float *restrict w = tensor_at(context, op->t[2]);
    const float *rstd = tensor_at(context, op->t[4]);
    float *restrict dx = tensor_at(context, op->t[5]);
    float *restrict dw = tensor_at(context, op->t[6]);

    for (int64_t r = 0; r < rows; r++, dy += n, x += n, dx += n) {
        float scale = rstd[r];
        float slope = centered_dot(dy, w, x, 0, n) * scale * scale / (float)n;
        if (!op->shape.rows.accumulate) /* what lies there may be no number */
            memset(dx, 0, (size_t)n * sizeof *dx);
        for (int64_t j = 0; j < n; j++) {
            dx[j] += scale * (dy[j] * w[j] - x[j] * slope);
            dw[j] += dy[j] * (x[j] * scale);
        }
    }
}

void cpu_norm_grad(const struct op *op, struct kernel_context *context, void *native)
{
    (void)native;
    if (op->shape.rows.rms)
        rms_norm_grad(op, context);
    else
        layer_norm_grad(op, context);
}
