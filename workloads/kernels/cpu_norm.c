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

void cpu_norm(const struct op *op, struct kernel_context *context, void *native)
{
    (void)native;
    int64_t rows = op->shape.rows.rows, width = op->shape.rows.width;
    const float *restrict x = tensor_at(context, op->t[0]);
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

/* The means over a row of g = dy w and of g xhat. */
static void row_means(const float *dy, const float *x, const float *w, float center, float scale,
                      int64_t n, float *mean_g, float *mean_gx)
{
    float g_lane[CPU_LANES] = {0}, gx_lane[CPU_LANES] = {0};
    int64_t i = 0;
    for (; i + CPU_LANES <= n; i += CPU_LANES)
        for (int l = 0; l < CPU_LANES; l++) {
            float g = dy[i + l] * w[i + l];
            g_lane[l] += g;
            gx_lane[l] += g * (x[i + l] - center);
        }
    for (; i < n; i++) {
        float g = dy[i] * w[i];
        g_lane[i % CPU_LANES] += g;
        gx_lane[i % CPU_LANES] += g * (x[i] - center);
    }
    *mean_g = (float)((double)cpu_fold(g_lane) / (double)n);
    *mean_gx = (float)((double)cpu_fold(gx_lane) * (double)scale / (double)n);
}

static void row_grad(const float *restrict dy, const float *restrict x, const float *restrict w,
                     float center, float scale, int64_t n, bool add, float *restrict dx)
{
    float mean_g, mean_gx;
    row_means(dy, x, w, center, scale, n, &mean_g, &mean_gx);
    if (add)
        for (int64_t j = 0; j < n; j++)
            dx[j] += scale * (dy[j] * w[j] - mean_g - (x[j] - center) * scale * mean_gx);
    else
        for (int64_t j = 0; j < n; j++)
            dx[j] = scale * (dy[j] * w[j] - mean_g - (x[j] - center) * scale * mean_gx);
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

void cpu_norm_grad(const struct op *op, struct kernel_context *context, void *native)
{
    (void)native;
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
