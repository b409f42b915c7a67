/* What ops of a plan leave to each other: zeros that a product writes over, and updates of several
 * tensors in the launch of the last of them; against fp64, from memory full of NaN. */
#include "tests/gpu/gpu_rig.h"

enum { MOST_OPS = 8 };

/* All of them in order, in one set. */
static void run_all(struct gpu_rig *rig, struct op *ops, int n)
{
    rig->plan.ops = ops;
    rig->plan.n_ops = n;
    rig->plan.sealed = true;
    gpu_must(kernels_cuda.open(&rig->context, &rig->plan, &rig->device));
    for (int i = 0; i < n; i++)
        kernels_cuda.run[ops[i].kind](&ops[i], &rig->context,
                                      rig->device.type->native(&rig->device, 0));
    rig->device.type->sync(&rig->device);
    kernels_cuda.close(&rig->context);
}

static struct tensor further(struct tensor t, int64_t bytes)
{
    t.offset += bytes;
    return t;
}

/* ---- zeros ---- */

enum { M = 48, N = 64, K = 80, BEFORE = 24, AFTER = 1000 };

static struct op product(const struct gpu_rig *rig, enum dtype type)
{
    struct op op = {.kind = OP_GEMM, .dtype = type};
    op.t[0] = rig->op.t[0], op.t[1] = rig->op.t[1];
    op.t[2] = further(rig->op.t[2], BEFORE * 4);
    op.shape.gemm = (struct shape_gemm){.m = M,
                                        .n = N,
                                        .k = K,
                                        .trans_a = true,
                                        .wide = type == DTYPE_BF16,
                                        .beta = 1,
                                        .m_valid = M,
                                        .n_valid = N,
                                        .k_valid = K};
    return op;
}

/* A run of zeros, in it the C of a product that comes `times` times: the first writes, others add. */
static void test_zero(struct gpu_rig *rig, enum dtype type, int times, int64_t after)
{
    int64_t n = BEFORE + M * N + after;
    struct op ops[MOST_OPS] = {{.kind = OP_ZERO, .dtype = DTYPE_F32}};
    double *want = gpu_doubles(n);
    char what[64];
    const double *a = gpu_random(rig, 0, type, K * M, 1), *b = gpu_random(rig, 1, type, K * N, 1);
    gpu_poison(rig, 2, DTYPE_F32, n);
    for (int64_t i = 0; i < M * N; i++)
        for (int64_t l = 0; l < K; l++)
            want[BEFORE + i] += times * a[l * M + i / N] * b[l * N + i % N];
    ops[0].t[0] = rig->op.t[2];
    ops[0].shape.vector.n = n;
    for (int i = 0; i < times; i++)
        ops[1 + i] = product(rig, type);
    run_all(rig, ops, 1 + times);
    snprintf(what, sizeof what, "zero, then %d products in %s, %lld left", times,
             dtype_name((int)type), (long long)after);
    gpu_check(rig, 2, want, (struct gpu_bound){1e-5, 1e-5}, what);
    gpu_clear(rig);
    free(want);
}

/* ---- updates ---- */

static const struct shape_optimizer policy = {.beta1 = 0.9f, .beta2 = 0.95f, .epsilon = 1e-8f};
static const double lr = 3e-4, updates = 5, scale = 0.25;

static double updated(double p, double g, double m, double v, double decay)
{
    m = 0.9 * m + 0.1 * g * scale;
    v = 0.95 * v + 0.05 * g * g * scale * scale;
    return p - lr * decay * p -
           lr * m / (1 - pow(0.9, updates)) / (sqrt(v / (1 - pow(0.95, updates))) + 1e-8);
}

static void take_state(struct gpu_rig *rig, int64_t n)
{
    gpu_random(rig, 0, DTYPE_F32, n, 0.02);
    gpu_random(rig, 1, DTYPE_F32, n, 1);
    gpu_random(rig, 2, DTYPE_F32, n, 0.1);
    double *v = gpu_take(rig, 3, DTYPE_F32, n);
    for (int64_t i = 0; i < n; i++)
        v[i] = 0.01 + rig->t[2].value[i] * rig->t[2].value[i];
    gpu_upload(rig, 3);
    double *s = gpu_take(rig, 4, DTYPE_F64, SCALARS);
    s[SCALAR_SCALE] = scale, s[SCALAR_LR] = lr, s[SCALAR_STEP] = 7, s[SCALAR_SKIPPED] = 2;
    gpu_upload(rig, 4);
    gpu_poison(rig, 5, DTYPE_BF16, n);
}

/* Tensors one behind the other, of odd sizes, with and without decay; the set has one launch. */
static void test_updates(struct gpu_rig *rig)
{
    static const int64_t sizes[] = {4096, 1, 5003, 16384, 7, 1600, 40000};
    enum { TENSORS = sizeof sizes / sizeof sizes[0] };
    struct op ops[MOST_OPS] = {{0}};
    int64_t n = 0, at = 0;
    for (int i = 0; i < TENSORS; i++)
        n += sizes[i];
    double *want = gpu_doubles(n);
    take_state(rig, n);
    for (int i = 0; i < TENSORS; at += sizes[i++]) {
        struct op *op = &ops[i];
        *op = (struct op){.kind = OP_ADAMW, .dtype = DTYPE_BF16};
        for (int t = 0; t < 6; t++)
            op->t[t] = further(rig->op.t[t], t == 4 ? 0 : at * (t == 5 ? 2 : 4));
        op->shape.optimizer = policy;
        op->shape.optimizer.n = sizes[i];
        op->shape.optimizer.gradient = DTYPE_F32;
        op->shape.optimizer.weight_decay = i % 2 ? 0.1f : 0;
        for (int64_t k = at; k < at + sizes[i]; k++)
            want[k] = updated(rig->t[0].value[k], rig->t[1].value[k], rig->t[2].value[k],
                              rig->t[3].value[k], i % 2 ? 0.1 : 0);
    }
    run_all(rig, ops, TENSORS);
    gpu_check(rig, 0, want, (struct gpu_bound){2e-7, 1e-7}, "updates of 7 tensors");
    double *master = gpu_fetch(rig, 0);
    for (int64_t i = 0; i < n; i++)
        master[i] = gpu_from_bf16(gpu_to_bf16(master[i]));
    gpu_check(rig, 5, master, (struct gpu_bound){0, 0}, "    copies");
    gpu_clear(rig);
    free(master);
    free(want);
}

int main(void)
{
    struct gpu_rig rig;
    if (gpu_rig_open(&rig) != 0)
        return 77;
    for (int times = 1; times <= 3; times++) {
        test_zero(&rig, DTYPE_F32, times, AFTER);
        test_zero(&rig, DTYPE_BF16, times, AFTER);
        test_zero(&rig, DTYPE_BF16, times, 0);
        test_zero(&rig, DTYPE_BF16, times, 1 << 20); /* a memset of its own */
    }
    for (rig.shift = 0; rig.shift < 2; rig.shift++)
        test_updates(&rig);
    gpu_rig_close(&rig);
    return test_end();
}
