/* Clipping, schedule and log in device memory; AdamW with an fp32 or bf16 copy; the batch. */
#include "tests/gpu/gpu_rig.h"

/* The copy is the rounded master weight, so exact. A moment is two or three roundings in fp32. */
static const struct gpu_bound exact = {0, 0}, scalar_bound = {1e-15, 1e-15}, state = {2e-7, 1e-7};

static const struct shape_optimizer policy = {.lr = 6e-4f,
                                              .lr_min = 6e-5f,
                                              .beta1 = 0.9f,
                                              .beta2 = 0.95f,
                                              .epsilon = 1e-8f,
                                              .weight_decay = 0.1f,
                                              .clip = 1,
                                              .warm_up = 10,
                                              .decay_steps = 100};

static double learning_rate(double step)
{
    const double pi = 3.14159265358979323846, lr = (double)policy.lr, least = (double)policy.lr_min;
    if (step <= 10)
        return lr * step / 10;
    return step >= 100 ? least : least + (lr - least) * (1 + cos(pi * (step - 10) / 90)) / 2;
}

static void test_clip(struct gpu_rig *rig, double sumsq, double valid, double step)
{
    char what[64];
    bool fine = isfinite(sumsq) && valid > 0;
    double want[SCALARS] = {[SCALAR_LOSS_SUM] = 5, [SCALAR_SKIPPED] = 2};
    double *log = NULL, rows[3 * SCALARS];
    double *s = gpu_take(rig, 0, DTYPE_F64, SCALARS);
    want[SCALAR_VALID] = valid, want[SCALAR_SUMSQ] = sumsq, want[SCALAR_STEP] = step;
    memcpy(s, want, sizeof want);
    gpu_upload(rig, 0);
    want[SCALAR_STEP] = step + 1;
    want[SCALAR_LR] = learning_rate(step + 1);
    want[SCALAR_NORM] = sqrt(sumsq) / valid;
    want[SCALAR_SCALE] = fine ? fmin(1, 1 / (want[SCALAR_NORM] + 1e-6)) / valid : 0;
    want[SCALAR_SKIPPED] += fine ? 0 : 1;
    gpu_must(rig->device.type->alloc(&rig->device, DEVICE_TEMPORARIES, sizeof rows, (void **)&log));
    rig->context.log = log, rig->context.log_rows = 3, rig->context.log_next = 4;
    rig->op.shape.optimizer = policy;
    gpu_run(rig, OP_CLIP);
    CHECK_EQ(rig->context.log_next, 5);
    rig->device.type->download(&rig->device, 0, rows, log, sizeof rows);
    rig->device.type->sync(&rig->device);
    snprintf(what, sizeof what, "clip, sum %g, step %g", sumsq, step + 1);
    if (fine)
        gpu_check(rig, 0, want, scalar_bound, what);
    double *got = gpu_fetch(rig, 0);
    CHECK(got[SCALAR_SCALE] == 0 || fine);
    for (int i = 0; i < SCALARS && fine; i++) /* each by itself, however small */
        CHECK_NEAR(got[i], want[i], 1e-14 * fabs(want[i]));
    CHECK(got[SCALAR_SKIPPED] == want[SCALAR_SKIPPED]);
    CHECK(memcmp(rows + SCALARS, got, sizeof want) == 0);
    CHECK(rows[0] == 0 && rows[2 * SCALARS + SCALAR_STEP] == 0);
    free(got);
    rig->device.type->free(&rig->device, DEVICE_TEMPORARIES, log, sizeof rows);
    gpu_clear(rig);
}

struct adamw_case {
    enum dtype gradient, copy;
    int64_t n;
    bool with_copy, skip;
};

static void test_adamw(struct gpu_rig *rig, const struct adamw_case *c)
{
    char what[96];
    double *p = gpu_doubles(c->n), *m = gpu_doubles(c->n), *v = gpu_doubles(c->n);
    double scale = c->skip ? 0 : 0.25, lr = 3e-4, updates = 5;
    rig->op.dtype = c->copy;
    rig->op.shape.optimizer = policy;
    rig->op.shape.optimizer.n = c->n;
    rig->op.shape.optimizer.gradient = c->gradient;
    memcpy(p, gpu_random(rig, 0, DTYPE_F32, c->n, 0.02), (size_t)c->n * sizeof *p);
    const double *g = gpu_random(rig, 1, c->gradient, c->n, 1);
    memcpy(m, gpu_random(rig, 2, DTYPE_F32, c->n, 0.1), (size_t)c->n * sizeof *m);
    double *square = gpu_take(rig, 3, DTYPE_F32, c->n);
    for (int64_t i = 0; i < c->n; i++)
        square[i] = 0.01 + m[i] * m[i];
    gpu_upload(rig, 3);
    memcpy(v, square, (size_t)c->n * sizeof *v);
    double *s = gpu_take(rig, 4, DTYPE_F64, SCALARS);
    s[SCALAR_SCALE] = scale, s[SCALAR_LR] = lr, s[SCALAR_STEP] = 7, s[SCALAR_SKIPPED] = 2;
    gpu_upload(rig, 4);
    if (c->with_copy)
        gpu_zeros(rig, 5, c->copy, c->n);
    double b1 = (double)policy.beta1, b2 = (double)policy.beta2,
           decay = (double)policy.weight_decay;
    for (int64_t i = 0; i < c->n && !c->skip; i++) {
        double x = g[i] * scale;
        m[i] = b1 * m[i] + (1 - b1) * x;
        v[i] = b2 * v[i] + (1 - b2) * x * x;
        p[i] -=
            lr * decay * p[i] + lr * m[i] / (1 - pow(b1, updates)) /
                                    (sqrt(v[i] / (1 - pow(b2, updates))) + (double)policy.epsilon);
    }
    gpu_run(rig, OP_ADAMW);
    snprintf(what, sizeof what, "adamw%s, gradient %s, n %lld", c->skip ? " skipped" : "",
             dtype_name((int)c->gradient), (long long)c->n);
    gpu_check(rig, 0, p, c->skip ? exact : state, what);
    gpu_check(rig, 2, m, c->skip ? exact : state, "    m");
    gpu_check(rig, 3, v, c->skip ? exact : state, "    v");
    if (c->with_copy && !c->skip) {
        double *master = gpu_fetch(rig, 0);
        for (int64_t i = 0; i < c->n && c->copy == DTYPE_BF16; i++)
            master[i] = gpu_from_bf16(gpu_to_bf16(master[i]));
        gpu_check(rig, 5, master, exact, "    copy");
        free(master);
    }
    gpu_clear(rig);
    free(p), free(m), free(v);
}

/* More batches than the ring has slots, each still what the host makes. */
static void test_input(struct gpu_rig *rig, int64_t samples, int64_t sequence, int batches)
{
    struct input input;
    int64_t n = samples * sequence;
    int32_t *tokens = must_alloc((size_t)n, 4), *targets = must_alloc((size_t)n, 4);
    uint8_t *mask = must_alloc((size_t)n, 1);
    bool same = true;
    gpu_must(input_open(&input, "synthetic", 5, 1000, sequence, 0.3, 1));
    gpu_zeros(rig, 0, DTYPE_I32, n);
    gpu_zeros(rig, 1, DTYPE_I32, n);
    gpu_zeros(rig, 2, DTYPE_U8, n);
    rig->op.kind = OP_INPUT;
    rig->op.shape.input =
        (struct shape_input){.first = 3, .samples = samples, .sequence = sequence};
    rig->context.input = &input;
    gpu_must(gpu_open_op(rig));
    for (int i = 0; i < batches; i++) {
        rig->context.first_sample = 100 * i;
        kernels_cuda.run[OP_INPUT](&rig->op, &rig->context,
                                   rig->device.type->native(&rig->device, 0));
    }
    rig->device.type->sync(&rig->device);
    kernels_cuda.close(&rig->context);
    input_fill(&input, 100 * (batches - 1) + 3, samples, tokens, targets, mask);
    double *t = gpu_fetch(rig, 0), *u = gpu_fetch(rig, 1), *k = gpu_fetch(rig, 2);
    for (int64_t i = 0; i < n; i++)
        same = same && t[i] == tokens[i] && u[i] == targets[i] && k[i] == mask[i];
    CHECK(same);
    printf("input %d batches of %lld x %lld\n", batches, (long long)samples, (long long)sequence);
    free(t), free(u), free(k), free(tokens), free(targets), free(mask);
    input_close(&input);
    gpu_clear(rig);
}

int main(int argc, char **argv)
{
    static const struct adamw_case cases[] = {
        {DTYPE_F32, DTYPE_F32, 1, false, false},     {DTYPE_F32, DTYPE_BF16, 1027, true, false},
        {DTYPE_BF16, DTYPE_BF16, 4099, true, false}, {DTYPE_BF16, DTYPE_F32, 515, true, false},
        {DTYPE_F32, DTYPE_BF16, 300, true, true},    {DTYPE_F32, DTYPE_BF16, 1 << 22, true, false},
    };
    struct gpu_rig rig;
    bool small = gpu_small(argc, argv);
    if (gpu_rig_open(&rig) != 0)
        return 77;
    test_clip(&rig, 16, 8, 0);
    test_clip(&rig, 4e6, 100, 9);
    test_clip(&rig, 1e4, 1000, 49);
    test_clip(&rig, 1e4, 1000, 500);
    test_clip(&rig, (double)NAN, 8, 3);
    test_clip(&rig, 4, 0, 3);
    for (size_t i = 0; i < GPU_COUNT(cases) - (small ? 1 : 0); i++)
        for (rig.shift = 0; rig.shift < 2; rig.shift++)
            test_adamw(&rig, &cases[i]);
    rig.shift = 0;
    test_input(&rig, 2, 33, 1);
    test_input(&rig, 2, 33, 1200);
    gpu_rig_close(&rig);
    return test_end();
}
