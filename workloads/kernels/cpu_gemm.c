#include "workloads/kernels/cpu.h"

#include <cblas.h>
#include <limits.h>
#include <string.h>

#include "base/err.h"

/* CBLAS takes int. */
static int dimension(int64_t size)
{
    if (size < 0 || size > INT_MAX)
        die(FAIL_INTERNAL, "gemm: a dimension of %lld does not fit CBLAS", (long long)size);
    return (int)size;
}

/* A product that adds to C is as cheap as one that overwrites it (BLAS clears C first), so the bias
 * goes in before. */
static void put_bias(float *restrict c, const float *restrict bias, int64_t m, int64_t n, bool add)
{
    for (int64_t i = 0; i < m; i++, c += n)
        if (add)
            for (int64_t j = 0; j < n; j++)
                c[j] += bias[j];
        else
            memcpy(c, bias, (size_t)n * sizeof *c);
}

static double least(int64_t valid, int executed)
{
    return (double)(valid < executed ? valid : executed);
}

void cpu_gemm(const struct op *op, struct kernel_context *context, void *native)
{
    (void)native;
    const struct shape_gemm *shape = &op->shape.gemm;
    const float *a = tensor_at(context, op->t[0]), *b = tensor_at(context, op->t[1]);
    float *c = tensor_at(context, op->t[2]);
    const float *bias = tensor_at(context, op->t[3]);
    int m = dimension(shape->m), n = dimension(shape->n), k = dimension(shape->k);

    if (bias != NULL)
        put_bias(c, bias, m, n, shape->beta != 0);
    cblas_sgemm(CblasRowMajor, shape->trans_a ? CblasTrans : CblasNoTrans,
                shape->trans_b ? CblasTrans : CblasNoTrans, m, n, k, 1, a, shape->trans_a ? m : k,
                b, shape->trans_b ? k : n, bias != NULL ? 1 : shape->beta, c, n);
    context->work.gemm_flops += 2.0 * m * n * k;
    kernel_flops(context, op,
                 2.0 * least(shape->m_valid, m) * least(shape->n_valid, n) *
                     least(shape->k_valid, k));
}

/* One block: y = x W^T, dx = dy W, or dW += dy^T x. */
static void block(const struct shape_grouped *s, int rows, const float *a, const float *b, float *c)
{
    int n = dimension(s->n), k = dimension(s->k);
    if (rows == 0)
        return;
    if (s->form == GROUPED_FORWARD)
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, rows, n, k, 1, a, k, b, k, 0, c, n);
    else if (s->form == GROUPED_INPUT)
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, rows, k, n, 1, a, n, b, k, 0, c, k);
    else
        cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, n, k, rows, 1, a, n, b, k, 1, c, k);
}

void cpu_grouped_gemm(const struct op *op, struct kernel_context *context, void *native)
{
    (void)native;
    const struct shape_grouped *s = &op->shape.grouped;
    const float *a = tensor_at(context, op->t[0]), *b = tensor_at(context, op->t[1]);
    float *c = tensor_at(context, op->t[2]);
    int64_t a_width = s->form == GROUPED_FORWARD ? s->k : s->n, row = 0;

    for (int i = 0; i < s->blocks; row += s->rows[i++]) {
        int64_t matrix = s->which[i] * s->n * s->k;
        if (s->form == GROUPED_WEIGHT)
            block(s, dimension(s->rows[i]), a + row * s->n, b + row * s->k, c + matrix);
        else
            block(s, dimension(s->rows[i]), a + row * a_width, b + matrix,
                  c + row * (s->n + s->k - a_width));
        context->work.gemm_flops += 2.0 * (double)s->rows[i] * (double)s->n * (double)s->k;
    }
    kernel_flops(context, op, 2.0 * (double)s->rows_valid * (double)s->n * (double)s->k);
}
