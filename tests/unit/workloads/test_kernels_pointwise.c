/* OP_ZERO, OP_ADD, OP_GELU and its gradient, and the exponential under softmax and GELU. */
#include "kernel_rig.h"

#include "workloads/kernels/cpu_math.h"

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
}

/* By differences in double; the error of the quotient is about 1e-10. */
static double gelu_slope(double x)
{
    const double h = 1e-5;
    return (gelu(x + h) - gelu(x - h)) / (2 * h);
}

static void test_exponential(void)
{
    double most = 0;
    for (double y = -88; y < 87; y += 1.0 / 4099) {
        float argument = (float)y;
        double want = exp(-(double)argument);
        double error = fabs((double)cpu_exp_minus(argument) - want) / want;
        most = error > most ? error : most;
    }
    CHECK(most < 1.1e-7);
    printf("exponential: relative error %.3g at most\n", most);
    CHECK(cpu_exp_minus(0) == 1);
    CHECK(cpu_exp_minus(-0.0f) == 1);
    CHECK(cpu_exp_minus(1e30f) == cpu_exp_minus(87));
    CHECK(cpu_exp_minus(1e30f) > 0);
    CHECK(isnan(cpu_exp_minus(NAN)) && isnan(cpu_exp_minus(-NAN)));
    CHECK(isnan(cpu_exp_minus(INFINITY)));
}

static void test_reductions(void)
{
    float x[1100], y[1100];
    for (int64_t n = 1; n <= 1100; n += n < 70 ? 1 : 103) {
        rng_fill_normal(x, n, rng_key(1, "x"), (uint64_t)n, 1);
        rng_fill_normal(y, n, rng_key(2, "y"), (uint64_t)n, 1);
        double sum = 0, product = 0, exponentials = 0, size = 0;
        float most = -INFINITY;
        for (int64_t i = 0; i < n; i++) {
            sum += (double)x[i];
            product += (double)x[i] * (double)y[i];
            size += fabs((double)x[i]) + fabs((double)x[i] * (double)y[i]);
            most = x[i] > most ? x[i] : most;
        }
        for (int64_t i = 0; i < n; i++)
            exponentials += exp((double)(x[i] - most));
        CHECK_NEAR(cpu_row_sum(x, n), sum, 2e-7 * size);
        CHECK_NEAR(cpu_row_dot(x, y, n), product, 2e-7 * size);
        CHECK(cpu_row_max(x, n) == most);
        CHECK_NEAR(cpu_row_exp(x, n, most), exponentials, 3e-7 * exponentials);
    }
}

static void test_gelu(void)
{
    enum { N = 20011 };
    struct rig rig = {.op.shape.vector = {N}};
    float *x = rig_random(&rig, 0, N), *y = rig_poisoned(&rig, 1, N);
    double most = 0;
    for (int i = 0; i < N; i++)
        x[i] = -10 + 20 * (float)i / (N - 1);
    rig_run(&rig, OP_GELU);
    for (int i = 0; i < N; i++) {
        double want = gelu((double)x[i]), error = fabs((double)y[i] - want);
        /* the reference cancels far below 0, where the value itself is below 1e-7 */
        error /= x[i] < -3 ? 1 : fabs(want) + 1e-300;
        if (!(error <= most))
            most = isnan(error) ? INFINITY : error;
    }
    CHECK(most < 2e-6);
    printf("gelu: relative error %.3g at most\n", most);
    x[0] = NAN;
    rig_run(&rig, OP_GELU);
    CHECK(isnan(y[0]));
    rig_release(&rig);
}

static void check_gelu_grad(bool in_place)
{
    enum { N = 4001 };
    struct rig rig = {.op.shape.vector = {N}};
    float *dy = rig_random(&rig, 0, N), *x = rig_random(&rig, 1, N);
    float *dx = in_place ? dy : rig_poisoned(&rig, 2, N);
    if (in_place)
        rig.op.t[2] = rig.op.t[0];
    double *want = rig_double(dy, N), most = 0;
    for (int i = 0; i < N; i++)
        x[i] = -10 + 20 * (float)i / (N - 1);
    rig_run(&rig, OP_GELU_GRAD);
    for (int i = 0; i < N; i++) {
        double error = fabs((double)dx[i] - want[i] * gelu_slope((double)x[i])) / fabs(want[i]);
        if (!(error <= most))
            most = isnan(error) ? INFINITY : error;
    }
    CHECK(most < 5e-7);
    free(want);
    rig_release(&rig);
}

static void check_add(int64_t n, bool in_place)
{
    struct rig rig = {.op.shape.vector = {n}};
    float *a = rig_random(&rig, 0, n), *b = rig_random(&rig, 1, n);
    float *sum = in_place ? a : rig_poisoned(&rig, 2, n);
    double *first = rig_double(a, n);
    long wrong = 0;
    if (in_place)
        rig.op.t[2] = rig.op.t[0];
    rig_run(&rig, OP_ADD);
    for (int64_t i = 0; i < n; i++)
        wrong += !(sum[i] == (float)first[i] + b[i]);
    CHECK_EQ(wrong, 0);
    free(first);
    rig_release(&rig);
}

static void check_zero(int64_t n)
{
    struct rig rig = {.op.shape.vector = {n - 1}};
    float *x = rig_poisoned(&rig, 0, n);
    long wrong = 0;
    rig_run(&rig, OP_ZERO);
    for (int64_t i = 0; i < n - 1; i++)
        wrong += !(x[i] == 0);
    CHECK_EQ(wrong, 0);
    CHECK(isnan(x[n - 1]));
    rig_release(&rig);
}

static void test_set(void)
{
    const struct kernel_set *set = NULL;
    CHECK_EQ(kernels_find("cpu", &set), 0);
    CHECK(set == &kernels_cpu);
    for (int kind = 0; kind < OP_KINDS; kind++)
        CHECK((set->run[kind] == NULL) == (kind == OP_COLLECTIVE));
    CHECK_EQ(kernels_find("abacus", &set), FAIL_ABSENT);
    CHECK_HAS(fail_message(), "\"abacus\"");
    CHECK(set == NULL);
}

int main(void)
{
    static const int64_t sizes[] = {1, 3, 7, 65, 127, 1000};
    test_set();
    test_exponential();
    test_reductions();
    test_gelu();
    check_gelu_grad(false);
    check_gelu_grad(true);
    for (size_t i = 0; i < RIG_COUNT(sizes); i++) {
        check_add(sizes[i], false);
        check_add(sizes[i], true);
        check_zero(sizes[i]);
    }
    return test_end();
}
