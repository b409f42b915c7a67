/* Matrix products of every form that a step has, in fp32, tf32 and bf16, against fp64. */
#include "tests/gpu/gpu_rig.h"

enum form { FORM_F32, FORM_TF32, FORM_BF16, FORM_WIDE, FORMS };
static const char *const form_names[FORMS] = {"fp32", "tf32", "bf16", "bf16 to fp32"};

struct gemm_case {
    int64_t m, n, k;
    bool trans_a, trans_b, add, bias;
};

/*
 * Root mean square of the error of a sum of k products over that of the sum, sqrt(k).
 *
 * In fp32 each of k additions rounds a partial sum of size sqrt(l) by 0.42 u of it: 0.42 u k /
 * sqrt(2) together, so 0.3 sqrt(k) u of the sum.
 *
 * Tensor cores multiply exactly and add in fp32, but cut off where a core would round (Fasi, Higham,
 * Mikaitis, Pranesh: Numerical behavior of NVIDIA tensor cores, PeerJ CS 7, 2021), after every 16
 * products in bf16 and 8 in tf32 on sm_90. A cut takes 0.72 u of a partial sum on average, always
 * towards 0: so the error is 0.72 u times the sum of all J partial sums. Those are a random walk;
 * their sum is about J sqrt(J / 3) steps of it, where the walk ends sqrt(J) from 0: 0.42 J u. Half
 * as many products to a cut, as on sm_80, is within twice that.
 *
 * tf32 rounds both factors of each product, which does not average out either way.
 */
static double sum_noise(enum form form, int64_t k)
{
    double n = (double)k;
    if (form == FORM_F32)
        return 0.3 * sqrt(n) * GPU_U_F32;
    if (form == FORM_TF32)
        return hypot(sqrt(2) * GPU_RMS * GPU_U_TF32, 0.42 * n / 8 * GPU_U_F32);
    return 0.42 * n / 16 * GPU_U_F32;
}

/* What is added is a rounding more in the type of the result, and so is every part of a sum that
 * the algorithm keeps in that type. */
static struct gpu_bound bound_of(enum form form, const struct gemm_case *c, int parts,
                                 const double *want, int64_t n)
{
    struct gpu_bound noise = gpu_noise(sum_noise(form, c->k), want, n);
    double u = form == FORM_BF16 ? GPU_U_BF16 : GPU_U_F32;
    return gpu_both(noise, gpu_rounded(u, parts + (c->add ? 1 : 0) + (c->bias ? 1 : 0)));
}

static double element(const double *x, bool trans, int64_t i, int64_t j, int64_t rows,
                      int64_t columns)
{
    return trans ? x[j * rows + i] : x[i * columns + j];
}

struct reference {
    const struct gpu_rig *rig;
    const struct gemm_case *c;
    double *want;
    int64_t stride;
};

static void reference_piece(void *arg, int64_t first, int64_t end)
{
    const struct reference *r = arg;
    const struct gemm_case *c = r->c;
    const double *a = r->rig->t[0].value, *b = r->rig->t[1].value, *old = r->rig->t[2].value;
    const double *bias = r->rig->t[3].value;
    for (int64_t n = first; n < end; n++) {
        int64_t at = n * r->stride, i = at / c->n, j = at % c->n;
        double sum = (c->add ? old[at] : 0) + (bias ? bias[j] : 0);
        for (int64_t l = 0; l < c->k; l++)
            sum +=
                element(a, c->trans_a, i, l, c->m, c->k) * element(b, c->trans_b, l, j, c->k, c->n);
        r->want[n] = sum;
    }
}

/* The elements that are compared: all of a small product, a sample of a large one. */
static int64_t reference(const struct gpu_rig *rig, const struct gemm_case *c, double *want,
                         int64_t stride)
{
    struct reference r = {rig, c, want, stride};
    int64_t n = (c->m * c->n + stride - 1) / stride;
    gpu_parallel(n, 64, reference_piece, &r);
    return n;
}

/* Runs; how many parts of a sum the algorithm rounds to the type of the result. */
static int run(struct gpu_rig *rig, char *algorithm, size_t size)
{
    char text[512];
    int id, splits = 1;
    char rounds = 0;
    rig->op.kind = OP_GEMM;
    gpu_must(gpu_open_op(rig));
    kernels_cuda.describe(&rig->context, text, sizeof text);
    const char *named = strstr(text, "algorithms ");
    CHECK(named != NULL);
    snprintf(algorithm, size, "%.*s", (int)strcspn(named, ";"), named);
    CHECK(sscanf(algorithm, "algorithms %d/%d%c", &id, &splits, &rounds) >= 1);
    kernels_cuda.run[OP_GEMM](&rig->op, &rig->context, rig->device.type->native(&rig->device, 0));
    rig->device.type->sync(&rig->device);
    kernels_cuda.close(&rig->context);
    return rounds == 'r' ? splits : 1;
}

static void compare(struct gpu_rig *rig, const double *want, int64_t n, int64_t stride,
                    struct gpu_bound bound, const char *what)
{
    double *got = gpu_fetch(rig, 2);
    for (int64_t i = 0; i < n; i++)
        got[i] = got[i * stride];
    struct gpu_bound e = gpu_error(got, want, n);
    bool ok = gpu_within(e, bound, want, n);
    printf("%-58s max %8.2e of %7.1e  rms %8.2e of %7.1e%s\n", what, e.most, bound.most, e.rms,
           bound.rms, ok ? "" : "  FAILED");
    CHECK(ok);
    free(got);
}

static void test_gemm(struct gpu_rig *rig, enum form form, const struct gemm_case *c)
{
    char what[128], algorithm[64];
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
    int64_t n = reference(rig, c, want, stride);
    int parts = run(rig, algorithm, sizeof algorithm);
    snprintf(what, sizeof what, "%s %lld x %lld x %lld %c%c%s%s, %s", form_names[form],
             (long long)c->m, (long long)c->n, (long long)c->k, c->trans_a ? 't' : 'n',
             c->trans_b ? 't' : 'n', c->add ? " adding" : "", c->bias ? " bias" : "", algorithm);
    compare(rig, want, n, stride, bound_of(form, c, parts, want, n), what);
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
    /* The last are those of layers of gpt2-124m: 2048 rows; a head with fewer rows, since its sums
     * are as long; and a gradient of weights from many rows. */
    static const struct gemm_case small[] = {
        {1, 1, 1, false, false, false, false},    {17, 33, 65, false, true, false, true},
        {17, 33, 65, true, false, true, false},   {64, 64, 64, false, false, false, false},
        {64, 96, 32, false, true, false, true},   {40, 72, 104, true, true, false, false},
        {128, 56, 200, true, false, true, false}, {31, 7, 129, false, false, true, true},
    };
    static const struct gemm_case full[] = {
        {2048, 2304, 768, false, true, false, true},  {2048, 768, 768, false, false, false, false},
        {3072, 768, 2048, true, false, true, false},  {2048, 768, 3072, false, true, false, true},
        {256, 50304, 768, false, true, false, false}, {50304, 768, 512, true, false, true, false},
        {768, 768, 16384, true, false, true, false},
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
