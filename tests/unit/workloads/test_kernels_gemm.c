/* OP_GEMM is op(A) op(B) + beta C + bias for every transpose, and counts what it executed. */
#include "kernel_rig.h"

static double element(const float *x, int64_t rows, int64_t columns, bool trans, int64_t i,
                      int64_t j)
{
    return (double)(trans ? x[j * rows + i] : x[i * columns + j]);
}

/* Error of C over the bound of fp32 sums: (k + 2) eps sum |a b|. */
static double share_of_bound(const struct shape_gemm *g, const float *a, const float *b,
                             const float *bias, const double *before, const float *c)
{
    double most = 0;
    for (int64_t i = 0; i < g->m; i++)
        for (int64_t j = 0; j < g->n; j++) {
            double want = bias != NULL ? (double)bias[j] : 0;
            if (g->beta != 0)
                want += before[i * g->n + j];
            double size = fabs(want);
            for (int64_t p = 0; p < g->k; p++) {
                double term = element(a, g->m, g->k, g->trans_a, i, p) *
                              element(b, g->k, g->n, g->trans_b, p, j);
                want += term;
                size += fabs(term);
            }
            double error = fabs((double)c[i * g->n + j] - want);
            double share = error / (((double)g->k + 2) * 0x1p-24 * size);
            if (!(share <= most))
                most = isnan(share) ? INFINITY : share;
        }
    return most;
}

static void check_gemm(const struct shape_gemm *g, bool with_bias)
{
    struct rig rig = {.op.shape.gemm = *g};
    const float *a = rig_random(&rig, 0, g->m * g->k), *b = rig_random(&rig, 1, g->k * g->n);
    float *c = g->beta != 0 ? rig_random(&rig, 2, g->m * g->n) : rig_poisoned(&rig, 2, g->m * g->n);
    const float *bias = with_bias ? rig_random(&rig, 3, g->n) : NULL;
    double *before = rig_double(c, g->m * g->n);

    rig_run(&rig, OP_GEMM);
    CHECK(share_of_bound(g, a, b, bias, before, c) <= 1);
    CHECK(rig.context.work.gemm_flops == 2.0 * (double)(g->m * g->n * g->k));
    CHECK(rig.context.work.model_flops == 2.0 * (double)(g->m_valid * g->n_valid * g->k_valid));
    CHECK_EQ(rig.context.work.tokens, 0);
    free(before);
    rig_release(&rig);
}

static void test_all_forms(void)
{
    static const int64_t sizes[] = {1, 3, 7, 65, 127};
    for (size_t i = 0; i < RIG_COUNT(sizes) * RIG_COUNT(sizes) * RIG_COUNT(sizes); i++)
        for (int form = 0; form < 16; form++) {
            struct shape_gemm g = {
                .m = sizes[i % 5],
                .n = sizes[i / 5 % 5],
                .k = sizes[i / 25],
                .trans_a = form & 1,
                .trans_b = form & 2,
                .beta = form & 4 ? 1.0f : 0.0f,
            };
            g.m_valid = g.m;
            g.n_valid = g.n;
            g.k_valid = g.k;
            check_gemm(&g, form & 8);
        }
}

/* Padded vocabulary as logits, their weight gradient and their input gradient see it. */
static void test_padding_is_no_model_work(void)
{
    struct shape_gemm logits = {.m = 6, .n = 16, .k = 4, .m_valid = 6, .n_valid = 13, .k_valid = 4};
    struct shape_gemm weight = {.m = 16, .n = 4, .k = 6, .m_valid = 13, .n_valid = 4, .k_valid = 6};
    struct shape_gemm input = {.m = 6, .n = 4, .k = 16, .m_valid = 6, .n_valid = 4, .k_valid = 13};
    struct shape_gemm outside = {.m = 2, .n = 3, .k = 4};
    check_gemm(&logits, false);
    check_gemm(&weight, false);
    check_gemm(&input, false);
    check_gemm(&outside, true);
}

/* Work adds up over ops. */
static void test_work_adds_up(void)
{
    struct rig rig = {.op.shape.gemm = {2, 3, 4, .m_valid = 2, .n_valid = 2, .k_valid = 4}};
    rig_random(&rig, 0, 8);
    rig_random(&rig, 1, 12);
    rig_poisoned(&rig, 2, 6);
    for (int i = 0; i < 3; i++)
        rig_run(&rig, OP_GEMM);
    CHECK(rig.context.work.gemm_flops == 3 * 48.0);
    CHECK(rig.context.work.model_flops == 3 * 32.0);
    rig_release(&rig);
}

/* sum of r C after moving the rig's tensor t by `by` along d. */
static double projection(struct rig *rig, const double *r, int t, const double *from,
                         const double *d, double by)
{
    const struct shape_gemm *g = &rig->op.shape.gemm;
    int64_t n = t == 0 ? g->m * g->k : g->k * g->n;
    float *x = tensor_at(&rig->context, rig->op.t[t]);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(from[i] + by * d[i]);
    rig_run(rig, OP_GEMM);
    return rig_inner(tensor_at(&rig->context, rig->op.t[2]), r, g->m * g->n);
}

/* The product `backward` of r and a factor of y = x W^T is the derivative of r y by the other
 * factor, t (y is linear in it, so a large step is exact). */
static void check_gradient(struct rig *forward, const double *r, int t, struct shape_gemm backward)
{
    int64_t n = backward.m * backward.n, n_r = backward.m * backward.k;
    int64_t n_other = backward.k * backward.n;
    struct rig rig = {.op.shape.gemm = backward};
    float *dy = rig_random(&rig, 0, n_r), *other = rig_random(&rig, 1, n_other);
    float *dx = rig_poisoned(&rig, 2, n);
    for (int64_t i = 0; i < n_r; i++)
        dy[i] = (float)r[i];
    memcpy(other, tensor_at(&forward->context, forward->op.t[1 - t]),
           (size_t)n_other * sizeof *other);
    rig_run(&rig, OP_GEMM);

    double *d = rig_direction(n);
    double *from = rig_double(tensor_at(&forward->context, forward->op.t[t]), n);
    double above = projection(forward, r, t, from, d, 1);
    double below = projection(forward, r, t, from, d, -1);
    projection(forward, r, t, from, d, 0);
    CHECK_NEAR(rig_inner(dx, d, n), (above - below) / 2, 1e-3);
    free(d);
    free(from);
    rig_release(&rig);
}

static void test_gradients(void)
{
    enum { M = 33, N = 17, K = 21 };
    struct rig forward = {.op.shape.gemm = {M, N, K, .trans_b = true}};
    rig_random(&forward, 0, M * K);
    rig_random(&forward, 1, N * K);
    rig_poisoned(&forward, 2, M * N);
    rig_random(&forward, 3, N);

    double *r = rig_direction(M * N);
    check_gradient(&forward, r, 0, (struct shape_gemm){.m = M, .n = K, .k = N});
    check_gradient(&forward, r, 1, (struct shape_gemm){.m = N, .n = K, .k = M, .trans_a = true});
    free(r);
    rig_release(&forward);
}

static void test_blas_is_named(void)
{
    CHECK(strlen(kernels_blas_version()) > 0);
    kernels_blas_threads(2);
    test_work_adds_up();
    kernels_blas_threads(1);
}

int main(void)
{
    test_all_forms();
    test_padding_is_no_model_work();
    test_work_adds_up();
    test_gradients();
    test_blas_is_named();
    return test_end();
}
