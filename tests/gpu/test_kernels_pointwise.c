/* Elementwise kernels, casts, rotary positions, column sums and sums of squares against fp64. */
#include "tests/gpu/gpu_rig.h"

static const enum dtype types[] = {DTYPE_F32, DTYPE_BF16};

/* One rounding in bf16; in fp32 functions like tanh add some units in the last place, most of all
 * where a small slope is the difference of larger terms. */
static const struct gpu_bound pointwise[] = {
    [DTYPE_F32] = {1e-6, 2e-7}, [DTYPE_BF16] = {4e-3, 2.5e-3}};
/* Values are multiples of 2^-16, so that sums below 2^8 are exact and larger ones rounded in the
 * last few additions. */
static const struct gpu_bound sums = {2.4e-7, 1e-7};
/* A thread adds some 16 squares, then 9 levels of a block and some 10 of the grid follow: 2^-53 each
 * if all erred to one side, and twice that for cards with fewer multiprocessors. The reference is a
 * long double: squares of such values are 0 or 1 modulo 4 of their last place, so that a sum in fp64
 * drops that 1 every time, always downwards, and is itself off by 6e-11. */
static const struct gpu_bound squares = {8e-15, 8e-15};

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x)
{
    double t = tanh(0.7978845608028654 * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + 3 * 0.044715 * x * x);
}

static double silu(double x)
{
    return x / (1 + exp(-x));
}

static double silu_slope(double x)
{
    double s = 1 / (1 + exp(-x));
    return s + x * s * (1 - s);
}

static void test_vectors(struct gpu_rig *rig, enum dtype type, int64_t n)
{
    char what[64];
    snprintf(what, sizeof what, "n %lld, shift %lld", (long long)n, (long long)rig->shift);
    double *want = gpu_doubles(n);
    for (int kind = 0; kind < 3; kind++) {
        static const enum op_kind kinds[] = {OP_GELU, OP_GELU_GRAD, OP_ADD};
        char line[96];
        rig->op.dtype = type;
        rig->op.shape.vector.n = n;
        const double *a = gpu_random(rig, 0, type, n, 2);
        if (kind == 0)
            gpu_poison(rig, 1, type, n);
        else
            gpu_random(rig, 1, type, n, 2), gpu_poison(rig, 2, type, n);
        for (int64_t i = 0; i < n; i++) {
            double b = rig->t[1].value[i];
            want[i] = kind == 0 ? gelu(a[i]) : kind == 1 ? a[i] * gelu_slope(b) : a[i] + b;
        }
        gpu_run(rig, kinds[kind]);
        snprintf(line, sizeof line, "%s %s", op_name((int)kinds[kind]), what);
        gpu_check(rig, kind == 0 ? 1 : 2, want, pointwise[type], line);
        gpu_clear(rig);
    }
    free(want);
}

static void test_in_place(struct gpu_rig *rig, enum dtype type, int64_t n)
{
    double *want = gpu_doubles(n);
    rig->op.dtype = type;
    rig->op.shape.vector.n = n;
    gpu_random(rig, 0, type, n, 1);
    gpu_random(rig, 1, type, n, 1);
    for (int64_t i = 0; i < n; i++)
        want[i] = rig->t[0].value[i] + rig->t[1].value[i];
    rig->op.t[2] = rig->op.t[0];
    gpu_run(rig, OP_ADD);
    gpu_check(rig, 0, want, pointwise[type], "add in place");
    gpu_clear(rig);
    free(want);
}

static void test_zero(struct gpu_rig *rig, int64_t n)
{
    double *want = gpu_doubles(n);
    rig->op.shape.vector.n = n;
    gpu_random(rig, 0, DTYPE_F32, n, 1);
    gpu_run(rig, OP_ZERO);
    gpu_check(rig, 0, want, (struct gpu_bound){0, 0}, "zero");
    gpu_clear(rig);
    free(want);
}

static void test_cast(struct gpu_rig *rig, enum dtype from, enum dtype to, int64_t n)
{
    char what[64];
    double *want = gpu_doubles(n);
    rig->op.dtype = DTYPE_F32;
    rig->op.shape.cast = (struct shape_cast){.n = n, .from = from, .to = to};
    gpu_random(rig, 0, from, n, 1);
    gpu_poison(rig, 1, to, n);
    for (int64_t i = 0; i < n; i++)
        want[i] =
            to == DTYPE_BF16 ? gpu_from_bf16(gpu_to_bf16(rig->t[0].value[i])) : rig->t[0].value[i];
    gpu_run(rig, OP_CAST);
    snprintf(what, sizeof what, "cast from %s, n %lld", dtype_name((int)from), (long long)n);
    gpu_check(rig, 1, want, (struct gpu_bound){0, 0}, what);
    gpu_clear(rig);
    free(want);
}

static void test_swiglu(struct gpu_rig *rig, enum dtype type, int64_t rows, int64_t width)
{
    char what[64];
    int64_t n = rows * width;
    double *want = gpu_doubles(n), *slope = gpu_doubles(2 * n);
    rig->op.dtype = type;
    rig->op.shape.rows = (struct shape_rows){.rows = rows, .width = width};
    const double *x = gpu_random(rig, 0, type, 2 * n, 2);
    gpu_poison(rig, 1, type, n);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = i / width * 2 * width + i % width;
        want[i] = silu(x[at]) * x[at + width];
    }
    gpu_run(rig, OP_SWIGLU);
    snprintf(what, sizeof what, "swiglu %lld x %lld", (long long)rows, (long long)width);
    gpu_check(rig, 1, want, pointwise[type], what);
    gpu_clear(rig);

    rig->op.dtype = type;
    rig->op.shape.rows = (struct shape_rows){.rows = rows, .width = width};
    const double *dy = gpu_random(rig, 0, type, n, 1);
    x = gpu_random(rig, 1, type, 2 * n, 2);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = i / width * 2 * width + i % width;
        slope[at] = dy[i] * x[at + width] * silu_slope(x[at]);
        slope[at + width] = dy[i] * silu(x[at]);
    }
    rig->op.t[2] = rig->op.t[1]; /* in place */
    gpu_run(rig, OP_SWIGLU_GRAD);
    snprintf(what, sizeof what, "swiglu-grad in place %lld x %lld", (long long)rows,
             (long long)width);
    gpu_check(rig, 1, slope, pointwise[type], what);
    gpu_clear(rig);
    free(want);
    free(slope);
}

static void turn(const struct shape_attention *s, const double *x, double *y)
{
    int64_t row = (int64_t)(s->heads + 2 * s->kv_heads) * s->head;
    int half = s->head / 2;
    for (int64_t i = 0; i < s->batch * s->sequence * row; i++)
        y[i] = x[i];
    for (int64_t r = 0; r < s->batch * s->sequence; r++)
        for (int h = 0; h < s->heads + s->kv_heads; h++)
            for (int i = 0; i < half; i++) {
                double angle = (double)(r % s->sequence) *
                               pow((double)s->theta, -2.0 * i / s->head) * (s->inverse ? -1 : 1);
                int64_t at = r * row + (int64_t)h * s->head + i;
                y[at] = x[at] * cos(angle) - x[at + half] * sin(angle);
                y[at + half] = x[at + half] * cos(angle) + x[at] * sin(angle);
            }
}

static void test_rotary(struct gpu_rig *rig, enum dtype type, struct shape_attention s)
{
    char what[64];
    int64_t n = s.batch * s.sequence * (s.heads + 2 * s.kv_heads) * s.head;
    double *want = gpu_doubles(n);
    rig->op.dtype = type;
    rig->op.shape.attention = s;
    turn(&s, gpu_random(rig, 0, type, n, 1), want);
    gpu_run(rig, OP_ROTARY);
    snprintf(what, sizeof what, "rotary%s s %lld heads %d/%d x %d", s.inverse ? " back" : "",
             (long long)s.sequence, s.heads, s.kv_heads, s.head);
    gpu_check(rig, 0, want, pointwise[type], what);
    gpu_clear(rig);
    free(want);
}

static void test_bias_grad(struct gpu_rig *rig, enum dtype type, int64_t rows, int64_t width)
{
    char what[64];
    double *want = gpu_doubles(width);
    rig->op.dtype = type;
    rig->op.shape.rows = (struct shape_rows){.rows = rows, .width = width};
    const double *dy = gpu_random(rig, 0, type, rows * width, 1);
    const double *old = gpu_random(rig, 1, DTYPE_F32, width, 1);
    for (int64_t j = 0; j < width; j++)
        want[j] = old[j];
    for (int64_t i = 0; i < rows * width; i++)
        want[i % width] += dy[i];
    gpu_run(rig, OP_BIAS_GRAD);
    snprintf(what, sizeof what, "bias-grad of %s %lld x %lld", dtype_name((int)type),
             (long long)rows, (long long)width);
    gpu_check(rig, 1, want, sums, what);
    gpu_check_same(rig, OP_BIAS_GRAD, (const int[]){1, -1}, what);
    gpu_clear(rig);
    free(want);
}

static void test_sumsq(struct gpu_rig *rig, enum dtype type, int64_t n)
{
    char what[64];
    double want[SCALARS] = {0};
    long double sum = 3;
    rig->op.dtype = type;
    rig->op.shape.vector.n = n;
    const double *x = gpu_random(rig, 0, type, n, 1);
    gpu_take(rig, 1, DTYPE_F64, SCALARS)[SCALAR_SUMSQ] = (double)sum;
    gpu_upload(rig, 1);
    for (int64_t i = 0; i < n; i++)
        sum += (long double)(x[i] * x[i]); /* a square of 24 bits is exact */
    want[SCALAR_SUMSQ] = (double)sum;
    gpu_run(rig, OP_SUMSQ);
    snprintf(what, sizeof what, "sumsq of %s, n %lld", dtype_name((int)type), (long long)n);
    gpu_check(rig, 1, want, squares, what);
    gpu_check_same(rig, OP_SUMSQ, (const int[]){1, -1}, what);
    gpu_clear(rig);
}

int main(int argc, char **argv)
{
    struct gpu_rig rig;
    bool small = gpu_small(argc, argv);
    if (gpu_rig_open(&rig) != 0)
        return 77;
    for (size_t i = 0; i < GPU_COUNT(types); i++)
        for (rig.shift = 0; rig.shift < 2; rig.shift++) {
            /* More than a grid takes at once, of wide and of narrow accesses. */
            int64_t large = small ? 1 << 12 : rig.shift == 0 ? 5 << 20 : 1 << 20;
            test_vectors(&rig, types[i], 1);
            test_vectors(&rig, types[i], 1021);
            test_vectors(&rig, types[i], large + 3);
            test_in_place(&rig, types[i], 777);
            test_swiglu(&rig, types[i], 5, 37);
            test_swiglu(&rig, types[i], small ? 9 : 1000, small ? 64 : 2816);
            test_rotary(&rig, types[i],
                        (struct shape_attention){.batch = 2,
                                                 .sequence = 33,
                                                 .heads = 3,
                                                 .kv_heads = 1,
                                                 .head = 10,
                                                 .theta = 10000});
            test_rotary(&rig, types[i],
                        (struct shape_attention){.batch = 1,
                                                 .sequence = small ? 20 : 2048,
                                                 .heads = 8,
                                                 .kv_heads = 2,
                                                 .head = 64,
                                                 .theta = 10000});
            test_rotary(&rig, types[i],
                        (struct shape_attention){.batch = 2,
                                                 .sequence = 40,
                                                 .heads = 4,
                                                 .kv_heads = 4,
                                                 .head = 128,
                                                 .theta = 500000,
                                                 .inverse = true});
            test_bias_grad(&rig, types[i], 1, 1);
            test_bias_grad(&rig, types[i], 37, 129);
            test_bias_grad(&rig, types[i], small ? 300 : 16384, small ? 96 : 400);
            test_bias_grad(&rig, types[i], 515, small ? 264 : 6400);
            test_sumsq(&rig, types[i], 1);
            test_sumsq(&rig, types[i], large + 5);
        }
    rig.shift = 0;
    test_zero(&rig, 12345);
    for (rig.shift = 0; rig.shift < 2; rig.shift++)
        for (size_t i = 0; i < 2; i++)
            for (size_t j = 0; j < 2; j++)
                test_cast(&rig, types[i], types[j], (small ? 1 << 12 : 1 << 22) + 7);
    gpu_rig_close(&rig);
    return test_end();
}
