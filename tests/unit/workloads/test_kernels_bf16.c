/*
 * Ops in bf16: what is read is widened, arithmetic is fp32, what is written is rounded once to
 * nearest even; what plan.h marks as fp32 stays so. OP_CAST both ways. A tensor updated in place is
 * one tensor.
 */
#include "base/bf16.h"
#include "kernel_rig.h"

/* Random bf16 values; `wide` gets the same as floats (owned by the caller). */
static uint16_t *narrow_random(struct rig *rig, int t, int64_t n, float **wide)
{
    static uint64_t stream;
    uint16_t *x = rig_tensor(rig, t, (size_t)n * sizeof *x);
    *wide = must_alloc((size_t)n, sizeof **wide);
    rng_fill_normal(*wide, n, rng_key(stream++, "bf16"), 0, 1);
    for (int64_t i = 0; i < n; i++) {
        x[i] = bf16_of((*wide)[i]);
        (*wide)[i] = bf16_to_float(x[i]);
    }
    return x;
}

/* Run through a plan of one op, as kernels are opened with their plan. */
static void run_opened(struct rig *rig, enum op_kind kind)
{
    struct plan plan = {.n_ops = 1, .ops = &rig->op};
    rig->op.kind = kind;
    CHECK_EQ(kernels_cpu.open(&rig->context, &plan, NULL), 0);
    rig_run(rig, kind);
    kernels_cpu.close(&rig->context);
}

static int64_t differences(const uint16_t *x, const float *wide, int64_t n)
{
    int64_t wrong = 0;
    for (int64_t i = 0; i < n; i++)
        wrong += x[i] != bf16_of(wide[i]);
    return wrong;
}

static void check_gemm(bool wide_result, float beta)
{
    enum { M = 7, N = 19, K = 33 };
    struct rig rig = {.op.dtype = DTYPE_BF16}, same = {.op.dtype = DTYPE_F32};
    struct shape_gemm shape = {.m = M, .n = N, .k = K, .beta = beta, .wide = wide_result};
    float *a, *b, *c, *bias;
    rig.op.shape.gemm = same.op.shape.gemm = shape;
    narrow_random(&rig, 0, M * K, &a);
    narrow_random(&rig, 1, K * N, &b);
    uint16_t *narrow = narrow_random(&rig, 2, M * N, &c);
    narrow_random(&rig, 3, N, &bias);
    float *wide = NULL;
    if (wide_result) {
        free(rig.context.base[3]);
        wide = rig_tensor(&rig, 2, M * N * sizeof *wide);
        memcpy(wide, c, M * N * sizeof *wide);
    }
    memcpy(rig_tensor(&same, 0, M * K * sizeof *a), a, M * K * sizeof *a);
    memcpy(rig_tensor(&same, 1, K * N * sizeof *b), b, K * N * sizeof *b);
    float *want = rig_tensor(&same, 2, M * N * sizeof *want);
    memcpy(want, c, M * N * sizeof *want);
    memcpy(rig_tensor(&same, 3, N * sizeof *bias), bias, N * sizeof *bias);
    rig_run(&same, OP_GEMM);
    run_opened(&rig, OP_GEMM);
    if (wide_result)
        CHECK(memcmp(wide, want, M * N * sizeof *want) == 0);
    else
        CHECK_EQ(differences(narrow, want, M * N), 0);
    float *all[] = {a, b, c, bias};
    for (size_t i = 0; i < RIG_COUNT(all); i++)
        free(all[i]);
    rig_release(&rig);
    rig_release(&same);
}

static void check_in_place(enum op_kind kind)
{
    enum { N = 517 };
    struct rig rig = {.op = {.dtype = DTYPE_BF16, .shape.vector = {N}}}, same = rig;
    float *t0, *t1;
    same.op.dtype = DTYPE_F32;
    uint16_t *narrow = narrow_random(&rig, 0, N, &t0);
    narrow_random(&rig, 1, N, &t1);
    rig.op.t[2] = rig.op.t[0];
    float *want = rig_tensor(&same, 0, N * sizeof *want);
    memcpy(want, t0, N * sizeof *want);
    memcpy(rig_tensor(&same, 1, N * sizeof *t1), t1, N * sizeof *t1);
    same.op.t[2] = same.op.t[0];
    rig_run(&same, kind);
    run_opened(&rig, kind);
    CHECK_EQ(differences(narrow, want, N), 0);
    free(t0);
    free(t1);
    rig_release(&rig);
    rig_release(&same);
}

/* Masters and moments move in fp32 by a gradient in bf16; the parameter is the rounded master. */
static void test_adamw(void)
{
    enum { N = 131 };
    struct rig rig = {.op.dtype = DTYPE_BF16}, same = {.op.dtype = DTYPE_F32};
    struct shape_optimizer shape = {.n = N, .beta1 = 0.9f, .beta2 = 0.95f, .epsilon = 1e-8f};
    float *gradient;
    same.op.shape.optimizer = shape;
    shape.gradient = DTYPE_BF16;
    rig.op.shape.optimizer = shape;
    narrow_random(&rig, 1, N, &gradient);
    memcpy(rig_tensor(&same, 1, N * sizeof *gradient), gradient, N * sizeof *gradient);
    for (int t = 0; t < 4; t += t == 0 ? 2 : 1) {
        float *x = rig_random(&rig, t, N);
        for (int i = 0; i < N && t == 3; i++)
            x[i] = fabsf(x[i]);
        memcpy(rig_tensor(&same, t, N * sizeof *x), x, N * sizeof *x);
    }
    double scalars[SCALARS] = {[SCALAR_SCALE] = 0.5, [SCALAR_LR] = 0.1, [SCALAR_STEP] = 3};
    memcpy(rig_tensor(&rig, 4, sizeof scalars), scalars, sizeof scalars);
    memcpy(rig_tensor(&same, 4, sizeof scalars), scalars, sizeof scalars);
    uint16_t *parameter = rig_tensor(&rig, 5, N * sizeof *parameter);
    rig_run(&same, OP_ADAMW);
    run_opened(&rig, OP_ADAMW);
    for (int t = 0; t < 4; t += t == 0 ? 2 : 1)
        CHECK(memcmp(tensor_at(&rig.context, rig.op.t[t]), tensor_at(&same.context, same.op.t[t]),
                     N * sizeof(float)) == 0);
    CHECK_EQ(differences(parameter, tensor_at(&rig.context, rig.op.t[0]), N), 0);

    ((double *)tensor_at(&rig.context, rig.op.t[4]))[SCALAR_SCALE] = 0; /* an update skipped */
    uint16_t before[N];
    memcpy(before, parameter, sizeof before);
    run_opened(&rig, OP_ADAMW);
    CHECK(memcmp(before, parameter, sizeof before) == 0);
    free(gradient);
    rig_release(&rig);
    rig_release(&same);
}

static void test_sumsq(void)
{
    enum { N = 77 };
    struct rig rig = {.op = {.dtype = DTYPE_BF16, .shape.vector = {N}}};
    float *x;
    double sum = 0;
    narrow_random(&rig, 0, N, &x);
    double *scalars = rig_tensor(&rig, 1, SCALARS * sizeof *scalars);
    for (int i = 0; i < N; i++)
        sum += (double)x[i] * (double)x[i];
    run_opened(&rig, OP_SUMSQ);
    CHECK_NEAR(scalars[SCALAR_SUMSQ], sum, 1e-12 * sum);
    free(x);
    rig_release(&rig);
}

/* Halfway goes to the even neighbour; what is too large becomes infinite; NaN stays NaN. */
static void test_cast(void)
{
    const float half = 0x1p-8f; /* half a last place of 1 */
    const float from[] = {1,         1 + half, 1 + 3 * half, 1 + half + 0x1p-20f,
                          -1 - half, 0,        -0.0f,        0x1.fffffep127f,
                          INFINITY,  NAN,      0x1p-140f};
    const uint16_t to[] = {0x3f80, 0x3f80, 0x3f82, 0x3f81, 0xbf80, 0, 0x8000, 0x7f80, 0x7f80, 0, 0};
    enum { N = RIG_COUNT(from) };
    struct rig rig = {.op.shape.cast = {N, DTYPE_F32, DTYPE_BF16}};
    memcpy(rig_tensor(&rig, 0, sizeof from), from, sizeof from);
    uint16_t *y = rig_tensor(&rig, 1, N * sizeof *y);
    rig_run(&rig, OP_CAST);
    for (size_t i = 0; i < N; i++)
        if (isnan(from[i]))
            CHECK((y[i] & 0x7f80) == 0x7f80 && (y[i] & 0x7f) != 0);
        else if (i + 1 < N)
            CHECK_EQ(y[i], to[i]);
    CHECK_NEAR(bf16_to_float(y[N - 1]), from[N - 1], 0x1p-134); /* subnormals are kept */

    struct rig back = {.op.shape.cast = {N, DTYPE_BF16, DTYPE_F32}};
    memcpy(rig_tensor(&back, 0, N * sizeof *y), y, N * sizeof *y);
    float *x = rig_poisoned(&back, 1, N);
    rig_run(&back, OP_CAST);
    CHECK(x[2] == 1 + 4 * half && isnan(x[9]) && isinf(x[7]) && x[4] == -1);
    rig_release(&rig);
    rig_release(&back);
}

int main(void)
{
    for (int wide = 0; wide < 2; wide++)
        for (int beta = 0; beta < 2; beta++)
            check_gemm(wide, (float)beta);
    check_in_place(OP_GELU_GRAD);
    check_in_place(OP_ADD);
    test_adamw();
    test_sumsq();
    test_cast();
    return test_end();
}
