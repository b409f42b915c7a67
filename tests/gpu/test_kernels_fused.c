/* A product and its partner in one launch, where cuBLASLt has an epilogue for both, against fp64: GELU,
 * its gradient, and sums of a bias gradient, before and after the product. */
#include "tests/gpu/gpu_rig.h"

#include "workloads/fuse.h"

enum { A, B, C, BIAS, OTHER, SUMS }; /* tensors: OTHER is GELU(C), or x of the gradient */

struct fused_case {
    enum fuse_partner partner;
    int64_t m, n, k;
    bool bias, first; /* first: the partner comes before the product */
};

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x)
{
    double t = tanh(0.7978845608028654 * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + 3 * 0.044715 * x * x);
}

struct reference {
    const struct gpu_rig *rig;
    const struct fused_case *c;
    double *product; /* [m][n] with its bias, or added to what was there */
};

/* Forward: A [m][k], B [n][k]. Gradient of x: B [k][n]. Of weights: A [k][m], B [k][n]. */
static void reference_piece(void *arg, int64_t first, int64_t end)
{
    const struct reference *r = arg;
    const struct fused_case *c = r->c;
    const double *a = r->rig->t[A].value, *b = r->rig->t[B].value;
    bool sums = c->partner == PARTNER_BIAS_GRAD, forward = c->partner == PARTNER_GELU;
    for (int64_t at = first; at < end; at++) {
        int64_t i = at / c->n, j = at % c->n;
        double sum = sums ? r->rig->t[C].value[at] : c->bias ? r->rig->t[BIAS].value[j] : 0;
        for (int64_t l = 0; l < c->k; l++)
            sum += (sums ? a[l * c->m + i] : a[i * c->k + l]) *
                   (forward ? b[j * c->k + l] : b[l * c->n + j]);
        r->product[at] = sum;
    }
}

static struct op product_of(const struct gpu_rig *rig, const struct fused_case *c)
{
    bool sums = c->partner == PARTNER_BIAS_GRAD;
    struct op op = {.kind = OP_GEMM, .dtype = DTYPE_BF16};
    op.t[0] = rig->op.t[A], op.t[1] = rig->op.t[B], op.t[2] = rig->op.t[C];
    if (c->bias)
        op.t[3] = rig->op.t[BIAS];
    op.shape.gemm = (struct shape_gemm){.m = c->m,
                                        .n = c->n,
                                        .k = c->k,
                                        .trans_a = sums,
                                        .trans_b = c->partner == PARTNER_GELU,
                                        .wide = sums,
                                        .beta = sums ? 1 : 0,
                                        .m_valid = c->m,
                                        .n_valid = c->n,
                                        .k_valid = c->k};
    return op;
}

static struct op partner_of(const struct gpu_rig *rig, const struct fused_case *c)
{
    static const enum op_kind kinds[] = {
        [PARTNER_GELU] = OP_GELU,
        [PARTNER_GELU_GRAD] = OP_GELU_GRAD,
        [PARTNER_BIAS_GRAD] = OP_BIAS_GRAD,
    };
    struct op op = {.kind = kinds[c->partner], .dtype = DTYPE_BF16};
    if (c->partner == PARTNER_BIAS_GRAD) {
        op.t[0] = rig->op.t[A], op.t[1] = rig->op.t[SUMS];
        op.shape.rows = (struct shape_rows){.rows = c->k, .width = c->m};
        return op;
    }
    op.t[0] = rig->op.t[C], op.t[1] = rig->op.t[OTHER];
    if (c->partner == PARTNER_GELU_GRAD)
        op.t[2] = rig->op.t[C];
    op.shape.vector.n = c->m * c->n;
    return op;
}

static void fill(struct gpu_rig *rig, const struct fused_case *c)
{
    bool sums = c->partner == PARTNER_BIAS_GRAD;
    gpu_random(rig, A, DTYPE_BF16, c->m * c->k, sums ? 1 : 1 / sqrt((double)c->k));
    gpu_random(rig, B, DTYPE_BF16, c->k * c->n, 1);
    if (sums) {
        gpu_random(rig, C, DTYPE_F32, c->m * c->n, 1);
        gpu_random(rig, SUMS, DTYPE_F32, c->m, 10);
        return;
    }
    gpu_poison(rig, C, DTYPE_BF16, c->m * c->n);
    if (c->bias)
        gpu_random(rig, BIAS, DTYPE_BF16, c->n, 1);
    if (c->partner == PARTNER_GELU_GRAD)
        gpu_random(rig, OTHER, DTYPE_BF16, c->m * c->n, 2);
    else
        gpu_poison(rig, OTHER, DTYPE_BF16, c->m * c->n);
}

/* Runs both ops as a step does; whether the product did its partner. */
static bool run(struct gpu_rig *rig, const struct fused_case *c)
{
    struct op ops[2];
    char text[4096];
    ops[c->first] = product_of(rig, c);
    ops[!c->first] = partner_of(rig, c);
    rig->plan.ops = ops;
    rig->plan.n_ops = 2;
    rig->plan.sealed = true;
    rig->context.search = rig->context.fuse_all = true;
    gpu_must(kernels_cuda.open(&rig->context, &rig->plan, &rig->device));
    kernels_cuda.describe(&rig->context, text, sizeof text);
    for (int i = 0; i < 2; i++)
        kernels_cuda.run[ops[i].kind](&ops[i], &rig->context,
                                      rig->device.type->native(&rig->device, 0));
    rig->device.type->sync(&rig->device);
    kernels_cuda.close(&rig->context);
    CHECK(rig->context.work.gemm_flops == 2.0 * (double)c->m * (double)c->n * (double)c->k);
    return strstr(text, "1 with their partner") != NULL;
}

static double sum_noise(int64_t k)
{
    return 0.42 * (double)k / 16 * GPU_U_F32;
}

/* What is stored once is rounded once; GELU reads what its product made before that is rounded, or
 * after: one rounding more. */
static void check(struct gpu_rig *rig, const struct fused_case *c, double *product,
                  const char *what)
{
    int64_t n = c->m * c->n;
    double *want = gpu_doubles(n);
    for (int64_t i = 0; i < n; i++)
        want[i] = c->partner == PARTNER_GELU ? gelu(product[i])
                  : c->partner == PARTNER_GELU_GRAD
                      ? product[i] * gelu_slope(rig->t[OTHER].value[i])
                      : product[i];
    struct gpu_bound noise = gpu_noise(sum_noise(c->k), want, n);
    struct gpu_bound twice = gpu_both(noise, gpu_rounded(GPU_U_BF16, 2.5));
    if (c->partner == PARTNER_BIAS_GRAD) {
        double *sums = gpu_doubles(c->m);
        for (int64_t i = 0; i < c->m; i++) {
            sums[i] = rig->t[SUMS].value[i];
            for (int64_t l = 0; l < c->k; l++)
                sums[i] += rig->t[A].value[l * c->m + i];
        }
        gpu_check(rig, C, want, gpu_both(noise, gpu_rounded(GPU_U_F32, 2)), what);
        gpu_check(rig, SUMS, sums,
                  gpu_both(gpu_noise(sum_noise(c->k), sums, c->m), gpu_rounded(GPU_U_F32, 2)),
                  what);
        free(sums);
    } else if (c->partner == PARTNER_GELU) {
        gpu_check(rig, C, product, gpu_both(noise, gpu_rounded(GPU_U_BF16, 1)), what);
        gpu_check(rig, OTHER, want, twice, what);
    } else {
        gpu_check(rig, C, want, twice, what);
    }
    free(want);
}

static bool test_case(struct gpu_rig *rig, const struct fused_case *c)
{
    static const char *const names[] = {"", "gelu", "gelu-grad", "bias-grad"};
    struct reference r = {rig, c, gpu_doubles(c->m * c->n)};
    char what[96];
    fill(rig, c);
    gpu_parallel(c->m * c->n, 64, reference_piece, &r);
    bool fused = run(rig, c);
    snprintf(what, sizeof what, "%s%s %lld x %lld x %lld, %s", names[c->partner],
             c->bias ? " bias" : "", (long long)c->m, (long long)c->n, (long long)c->k,
             fused ? "fused" : "apart");
    check(rig, c, r.product, what);
    gpu_clear(rig);
    free(r.product);
    return fused;
}

int main(int argc, char **argv)
{
    static const struct fused_case small[] = {
        {PARTNER_GELU, 256, 512, 128, true, false},
        {PARTNER_GELU, 256, 512, 128, false, false},
        {PARTNER_GELU_GRAD, 256, 512, 128, false, false},
        {PARTNER_BIAS_GRAD, 256, 128, 512, false, false},
        {PARTNER_BIAS_GRAD, 256, 128, 512, false, true},
    };
    static const struct fused_case full[] = {
        {PARTNER_GELU, 1024, 3072, 768, true, false},
        {PARTNER_GELU, 1000, 1600, 400, true, false},
        {PARTNER_GELU_GRAD, 1024, 3072, 768, false, false},
        {PARTNER_GELU_GRAD, 1000, 1600, 400, false, false},
        {PARTNER_BIAS_GRAD, 2304, 768, 4096, false, false},
        {PARTNER_BIAS_GRAD, 768, 768, 4096, false, true},
        {PARTNER_BIAS_GRAD, 1600, 400, 2000, false, false},
    };
    struct gpu_rig rig;
    int fused = 0;
    if (gpu_rig_open(&rig) != 0)
        return 77;
    for (size_t i = 0; i < GPU_COUNT(small); i++)
        fused += test_case(&rig, &small[i]);
    for (size_t i = 0; i < GPU_COUNT(full) && !gpu_small(argc, argv); i++)
        fused += test_case(&rig, &full[i]);
    printf("%d with their partner in the epilogue\n", fused);
    gpu_rig_close(&rig);
    return test_end();
}
