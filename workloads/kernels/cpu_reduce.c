#include "workloads/kernels/cpu.h"

#include "workloads/kernels/cpu_math.h"

/* Eight rows at once: an eighth of the passes over db, and shorter chains of sums. */
static void add_rows_8(const float *restrict dy, int64_t n, float *restrict db)
{
    for (int64_t j = 0; j < n; j++) {
        const float *g = dy + j;
        db[j] += ((g[0] + g[n]) + (g[2 * n] + g[3 * n])) +
                 ((g[4 * n] + g[5 * n]) + (g[6 * n] + g[7 * n]));
    }
}

void cpu_bias_grad(const struct op *op, struct kernel_context *context, void *native)
{
    (void)native;
    int64_t rows = op->shape.rows.rows, width = op->shape.rows.width, r = 0;
    const float *dy = tensor_at(context, op->t[0]);
    float *restrict db = tensor_at(context, op->t[1]);

    for (; r + 8 <= rows; r += 8)
        add_rows_8(dy + r * width, width, db);
    for (; r < rows; r++)
        for (int64_t j = 0; j < width; j++)
            db[j] += dy[r * width + j];
}

void cpu_sumsq(const struct op *op, struct kernel_context *context, void *native)
{
    (void)native;
    enum { LANES = 8 };
    int64_t n = op->shape.vector.n, i = 0;
    const float *x = tensor_at(context, op->t[0]);
    double *scalars = tensor_at(context, op->t[1]);
    double lane[LANES] = {0};

    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++)
            lane[l] += (double)x[i + l] * (double)x[i + l];
    for (; i < n; i++)
        lane[i % LANES] += (double)x[i] * (double)x[i];
    for (int l = 1; l < LANES; l++)
        lane[0] += lane[l];
    scalars[SCALAR_SUMSQ] += lane[0];
}
