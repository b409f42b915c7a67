/* Matrix products of every form that a step has, in fp32, tf32 and bf16, against fp64. */
#include "tests/gpu/gpu_rig.h"

/* Written before the first run. A product of k terms in fp32 is off by about sqrt(k) 2^-24 of a
 * value of size sqrt(k); tf32 rounds its inputs to 2^-11, bf16 its result to 2^-8. */
enum form { FORM_F32, FORM_TF32, FORM_BF16, FORM_WIDE, FORMS };
static const char *const form_names[FORMS] = {"fp32", "tf32", "bf16", "bf16 to fp32"};
static const struct gpu_bound bounds[FORMS] = {
    {1e-6, 5e-7}, {2e-3, 6e-4}, {4e-3, 2.5e-3}, {1e-6, 5e-7}};

struct gemm_case {
    int64_t m, n, k;
    bool trans_a, trans_b, add, bias;
};

static double element(const double *x, bool trans, int64_t i, int64_t j, int64_t rows,
                      int64_t columns)
{
    return trans ? x[j * rows + i] : x[i * columns + j];
}

/* The elements that are compared: all of a small product, a sample of a large one. */
static void reference(const struct gpu_rig *rig, const struct gemm_case *c, double *want,
                      int64_t stride)
{
    const double *a = rig->t[0].value, *b = rig->t[1].value, *old = rig->t[2].value;
    const double *bias = rig->t[3].value;
    for (int64_t at = 0; at < c->m * c->n; at += stride) {
        int64_t i = at / c->n, j = at % c->n;
        double sum = (c->add ? old[at] : 0) + (bias ? bias[j] : 0);
        for (int64_t l = 0; l < c->k; l++)
            sum +=
                element(a, c->trans_a, i, l, c->m, c->k) * element(b, c->trans_b, l, j, c->k, c->n);
        want[at / stride] = sum;
    }
}

static void compare(struct gpu_rig *rig, const double *want, int64_t stride, struct gpu_bound bound,
                    const char *what)
{
    double *got = gpu_fetch(rig, 2);
    int64_t n = 0;
    for (int64_t at = 0; at < rig->t[2].n; at += stride)
        got[n++] = got[at];
    struct gpu_bound e = gpu_error(got, want, n);
    bool ok = gpu_within(e, bound, want, n);
    printf("%-52s max %8.2e of %7.1e  rms %8.2e of %7.1e%s\n", what, e.most, bound.most, e.rms,
           bound.rms, ok ? "" : "  FAILED");
    CHECK(ok);
    free(got);
}

static void test_gemm(struct gpu_rig *rig, enum form form, const struct gemm_case *c)
{
    char what[96];
    bool half = form == FORM_BF16 || form == FORM_WIDE;
    enum dtype in = half ? DTYPE_BF16 : DTYPE_F32, out = form == FORM_BF16 ? DTYPE_BF16 : DTYPE_F32;
    int64_t stride = c->m * c->n * c->k > 1 << 24 ? 997 : 1;
    double *want = gpu_doubles(c->m * c->n / stride + 1);
    rig->context.tf32 = form == FORM_TF32;
    rig->op.dtype = in;
    rig->op.shape.gemm = (struct shape_gemm){.m = c->m,
                                             .n = c->n,
                                             .k = c->k,
                                             .trans_a = c->trans_a,
                                             .trans_b = c->trans_b,
                                             .wide = form == FORM_WIDE,
                                             .beta = c->add ? 1 : 0,
                                             .m_valid = c->m,
                                             .n_valid = c->n,
                                             .k_valid = c->k};
    gpu_random(rig, 0, in, c->m * c->k, 1);
    gpu_random(rig, 1, in, c->k * c->n, 1);
    if (c->add)
        gpu_random(rig, 2, out, c->m * c->n, 1);
    else
        gpu_poison(rig, 2, out, c->m * c->n);
    if (c->bias)
        gpu_random(rig, 3, in, c->n, 1);
    reference(rig, c, want, stride);
    gpu_run(rig, OP_GEMM);
    snprintf(what, sizeof what, "gemm %s %lld x %lld x %lld %c%c%s%s", form_names[form],
             (long long)c->m, (long long)c->n, (long long)c->k, c->trans_a ? 't' : 'n',
             c->trans_b ? 't' : 'n', c->add ? " adding" : "", c->bias ? " bias" : "");
    compare(rig, want, stride, bounds[form], what);
    CHECK(rig->context.work.gemm_flops == 2.0 * (double)c->m * (double)c->n * (double)c->k);
    CHECK(rig->context.work.model_flops == rig->context.work.gemm_flops);
    gpu_check_same(rig, OP_GEMM, (const int[]){2, -1}, what);
    rig->context.tf32 = false;
    gpu_clear(rig);
    free(want);
}

/* What was recomputed and what was padded count in their own way. */
static void test_counts(struct gpu_rig *rig)
{
    rig->op.dtype = DTYPE_F32;
    rig->op.again = true;
    rig->op.shape.gemm =
        (struct shape_gemm){.m = 16, .n = 32, .k = 8, .m_valid = 16, .n_valid = 20, .k_valid = 8};
    gpu_random(rig, 0, DTYPE_F32, 16 * 8, 1);
    gpu_random(rig, 1, DTYPE_F32, 8 * 32, 1);
    gpu_zeros(rig, 2, DTYPE_F32, 16 * 32);
    gpu_run(rig, OP_GEMM);
    CHECK(rig->context.work.gemm_flops == 2.0 * 16 * 32 * 8);
    CHECK(rig->context.work.hardware_flops == 2.0 * 16 * 20 * 8);
    CHECK(rig->context.work.model_flops == 0);
    gpu_clear(rig);
}

int main(int argc, char **argv)
{
    /* The last are those of a layer of gpt2-124m with 2048 rows. */
    static const struct gemm_case small[] = {
        {1, 1, 1, false, false, false, false},    {17, 33, 65, false, true, false, true},
        {17, 33, 65, true, false, true, false},   {64, 64, 64, false, false, false, false},
        {64, 96, 32, false, true, false, true},   {40, 72, 104, true, true, false, false},
        {128, 56, 200, true, false, true, false}, {31, 7, 129, false, false, true, true},
    };
    static const struct gemm_case full[] = {
        {2048, 2304, 768, false, true, false, true},   {2048, 768, 768, false, false, false, false},
        {3072, 768, 2048, true, false, true, false},   {2048, 768, 3072, false, true, false, true},
        {2048, 50304, 768, false, true, false, false}, {50304, 768, 2048, true, false, true, false},
    };
    struct gpu_rig rig;
    if (gpu_rig_open(&rig) != 0)
        return 77;
    for (int form = 0; form < FORMS; form++) {
        for (size_t i = 0; i < GPU_COUNT(small); i++)
            if (form != FORM_WIDE || !small[i].bias)
                test_gemm(&rig, (enum form)form, &small[i]);
        for (size_t i = 0; i < GPU_COUNT(full) && !gpu_small(argc, argv); i++)
            if (form != FORM_WIDE || full[i].trans_a)
                test_gemm(&rig, (enum form)form, &full[i]);
    }
    test_counts(&rig);
    gpu_rig_close(&rig);
    return test_end();
}
