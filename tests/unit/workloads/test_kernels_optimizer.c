/*
 * OP_SUMSQ, OP_CLIP and OP_ADAMW against AdamW written out in double: 20 steps through warm-up,
 * decay and clipping, with an update skipped where the gradient is not finite.
 */
#include "kernel_rig.h"

static const struct shape_optimizer policy = {
    .lr = 0.01f,
    .lr_min = 0.001f,
    .beta1 = 0.9f,
    .beta2 = 0.95f,
    .epsilon = 1e-6f,
    .weight_decay = 0.1f,
    .clip = 1,
    .warm_up = 4,
    .decay_steps = 16,
};

static void check_sumsq(int64_t n)
{
    struct rig rig = {.op.shape.vector = {n}};
    const float *x = rig_random(&rig, 0, n);
    double *scalars = rig_tensor(&rig, 1, SCALARS * sizeof *scalars), want = 3;
    scalars[SCALAR_SUMSQ] = 3;
    for (int64_t i = 0; i < n; i++)
        want += (double)x[i] * (double)x[i];
    rig_run(&rig, OP_SUMSQ);
    CHECK_NEAR(scalars[SCALAR_SUMSQ], want, 1e-14 * want);
    for (int s = 0; s < SCALARS; s++)
        CHECK(s == SCALAR_SUMSQ || scalars[s] == 0);
    rig_release(&rig);
}

/* One OP_CLIP on a fresh rig; returns its scalars, owned by the rig. */
static double *clip(struct rig *rig, const struct shape_optimizer *shape, double sumsq,
                    double valid, double loss, double step)
{
    rig->op.shape.optimizer = *shape;
    double *scalars = rig_tensor(rig, 0, SCALARS * sizeof *scalars);
    scalars[SCALAR_SUMSQ] = sumsq;
    scalars[SCALAR_VALID] = valid;
    scalars[SCALAR_LOSS_SUM] = loss;
    scalars[SCALAR_STEP] = step;
    rig_run(rig, OP_CLIP);
    return scalars;
}

static void test_schedule(void)
{
    static const struct {
        double step, lr;
    } want[] = {{1, 0.0025}, {2, 0.005},   {3, 0.0075},
                {4, 0.01},   {10, 0.0055}, {7, 0.001 + 0.009 * 0.8535533905932737},
                {16, 0.001}, {17, 0.001},  {1e6, 0.001}};
    for (size_t i = 0; i < RIG_COUNT(want); i++) {
        struct rig rig = {0};
        const double *scalars = clip(&rig, &policy, 1, 1, 1, want[i].step - 1);
        CHECK_NEAR(scalars[SCALAR_LR], want[i].lr, 1e-9);
        CHECK(scalars[SCALAR_STEP] == want[i].step);
        rig_release(&rig);
    }
    struct shape_optimizer plain = policy;
    plain.warm_up = 0;
    struct rig rig = {0};
    CHECK_NEAR(clip(&rig, &plain, 1, 1, 1, 0)[SCALAR_LR],
               0.001 + 0.009 * (1 + cos(3.14159265358979323846 / 16)) / 2, 1e-9);
    rig_release(&rig);
    plain.decay_steps = 0;
    CHECK_NEAR(clip(&rig, &plain, 1, 1, 1, 0)[SCALAR_LR], 0.001, 1e-9);
    rig_release(&rig);
}

static void test_clip(void)
{
    static const struct {
        double sumsq, valid, loss, norm, scale;
    } cases[] = {
        {16 * 25, 10, 1, 2, 1 / (2 + 1e-6) / 10}, /* clipped */
        {0.25 * 64, 8, 1, 0.5, 1.0 / 8},          /* not clipped */
        {0, 4, 1, 0, 0.25},                       /* zero gradient: still an update (decay) */
        {(double)NAN, 4, 1, (double)NAN, 0},      /* skipped */
        {(double)INFINITY, 4, 1, (double)INFINITY, 0},
        {1, 4, (double)NAN, 0.25, 0},
        {1, 4, (double)INFINITY, 0.25, 0},
        {1, 0, 1, (double)INFINITY, 0},
    };
    for (size_t i = 0; i < RIG_COUNT(cases); i++) {
        struct rig rig = {0};
        const double *s = clip(&rig, &policy, cases[i].sumsq, cases[i].valid, cases[i].loss, 5);
        CHECK_NEAR(s[SCALAR_SCALE], cases[i].scale, 1e-15);
        CHECK(s[SCALAR_NORM] == cases[i].norm || isnan(cases[i].norm));
        CHECK(isnan(s[SCALAR_NORM]) == isnan(cases[i].norm));
        CHECK(s[SCALAR_SKIPPED] == (cases[i].scale == 0));
        CHECK(s[SCALAR_STEP] == 6);
        CHECK(s[SCALAR_VALID] == cases[i].valid);
        rig_release(&rig);
    }
}

static void test_log(void)
{
    enum { LOG_ROWS = 3 };
    double log[LOG_ROWS][SCALARS];
    struct rig rig = {0};
    rig.context.log = log[0];
    rig.context.log_rows = LOG_ROWS;
    double *scalars = clip(&rig, &policy, 4, 2, 1, 0);
    for (int step = 2; step <= 5; step++) {
        scalars[SCALAR_LOSS_SUM] = step;
        rig_run(&rig, OP_CLIP);
    }
    CHECK_EQ(rig.context.log_next, 5);
    CHECK(log[0][SCALAR_STEP] == 4 && log[1][SCALAR_STEP] == 5 && log[2][SCALAR_STEP] == 3);
    CHECK(log[0][SCALAR_LOSS_SUM] == 4 && log[2][SCALAR_LOSS_SUM] == 3);
    CHECK(memcmp(log[1], scalars, sizeof log[1]) == 0);
    rig_release(&rig);
}

/* AdamW in double. */
struct reference {
    double *p, *m, *v;
    double step, skipped;
};

static double reference_lr(double step)
{
    double lr = (double)policy.lr, low = (double)policy.lr_min;
    if (step <= 4)
        return lr * step / 4;
    if (step >= 16)
        return low;
    return low + 0.5 * (lr - low) * (1 + cos(3.14159265358979323846 * (step - 4) / 12));
}

static void reference_update(struct reference *r, const float *g, int64_t n, double valid)
{
    double sum = 0, b1 = (double)policy.beta1, b2 = (double)policy.beta2;
    for (int64_t i = 0; i < n; i++)
        sum += (double)g[i] * (double)g[i];
    r->step++;
    if (!isfinite(sum)) {
        r->skipped++;
        return;
    }
    double norm = sqrt(sum) / valid, lr = reference_lr(r->step), t = r->step - r->skipped;
    double scale = (norm + 1e-6 > 1 ? 1 / (norm + 1e-6) : 1) / valid;
    for (int64_t i = 0; i < n; i++) {
        double x = (double)g[i] * scale;
        r->m[i] = b1 * r->m[i] + (1 - b1) * x;
        r->v[i] = b2 * r->v[i] + (1 - b2) * x * x;
        double m = r->m[i] / (1 - pow(b1, t)), v = r->v[i] / (1 - pow(b2, t));
        r->p[i] -=
            lr * (m / (sqrt(v) + (double)policy.epsilon) + (double)policy.weight_decay * r->p[i]);
    }
}

/* The ops of an update on one parameter, as a plan would have them. */
struct update {
    struct rig sumsq, clip, adamw;
};

static void run_update(struct update *u, const float *g, int64_t n, double valid)
{
    double *scalars = tensor_at(&u->clip.context, u->clip.op.t[0]);
    double *sums = tensor_at(&u->sumsq.context, u->sumsq.op.t[1]);
    memcpy(tensor_at(&u->sumsq.context, u->sumsq.op.t[0]), g, (size_t)n * sizeof *g);
    memcpy(tensor_at(&u->adamw.context, u->adamw.op.t[1]), g, (size_t)n * sizeof *g);
    sums[SCALAR_SUMSQ] = 0;
    rig_run(&u->sumsq, OP_SUMSQ);
    scalars[SCALAR_SUMSQ] = sums[SCALAR_SUMSQ];
    scalars[SCALAR_VALID] = valid;
    rig_run(&u->clip, OP_CLIP);
    memcpy(tensor_at(&u->adamw.context, u->adamw.op.t[4]), scalars, SCALARS * sizeof *scalars);
    rig_run(&u->adamw, OP_ADAMW);
}

static void open_update(struct update *u, struct reference *r, int64_t n)
{
    *u = (struct update){.sumsq.op.shape.vector = {n}};
    rig_random(&u->sumsq, 0, n);
    rig_tensor(&u->sumsq, 1, SCALARS * sizeof(double));
    rig_tensor(&u->clip, 0, SCALARS * sizeof(double));
    u->clip.op.shape.optimizer = u->adamw.op.shape.optimizer = policy;
    u->adamw.op.shape.optimizer.n = n;
    r->p = rig_double(rig_random(&u->adamw, 0, n), n);
    rig_random(&u->adamw, 1, n);
    for (int t = 2; t < 4; t++)
        rig_tensor(&u->adamw, t, (size_t)n * sizeof(float));
    rig_tensor(&u->adamw, 4, SCALARS * sizeof(double));
    r->m = must_alloc((size_t)n, sizeof *r->m);
    r->v = must_alloc((size_t)n, sizeof *r->v);
}

static void close_update(struct update *u, struct reference *r)
{
    rig_release(&u->sumsq);
    rig_release(&u->clip);
    rig_release(&u->adamw);
    free(r->p);
    free(r->m);
    free(r->v);
}

/* Gradients large enough to be clipped in every other step; NaN in step 3, infinity in step 9. */
static void check_adamw(int64_t n)
{
    struct reference r = {0};
    struct update u;
    open_update(&u, &r, n);
    const float *p = tensor_at(&u.adamw.context, u.adamw.op.t[0]);
    float *g = must_alloc((size_t)n, sizeof *g), *before = must_alloc((size_t)n, sizeof *before);
    for (int step = 1; step <= 20; step++) {
        rng_fill_normal(g, n, rng_key(3, "gradient"), (uint64_t)(step * n), step % 2 ? 9 : 1e-2f);
        if (step == 3 || step == 9)
            g[n / 2] = step == 3 ? NAN : INFINITY;
        memcpy(before, p, (size_t)n * sizeof *p);
        run_update(&u, g, n, 3);
        reference_update(&r, g, n, 3);
        CHECK((memcmp(before, p, (size_t)n * sizeof *p) == 0) == (step == 3 || step == 9));
        CHECK(rig_error(p, r.p, n) < 1e-6);
    }
    CHECK(rig_error(tensor_at(&u.adamw.context, u.adamw.op.t[2]), r.m, n) < 1e-6);
    CHECK(rig_error(tensor_at(&u.adamw.context, u.adamw.op.t[3]), r.v, n) < 1e-6);
    const double *scalars = tensor_at(&u.clip.context, u.clip.op.t[0]);
    CHECK(scalars[SCALAR_STEP] == 20 && scalars[SCALAR_SKIPPED] == 2);
    free(g);
    free(before);
    close_update(&u, &r);
}

int main(void)
{
    static const int64_t sizes[] = {1, 3, 7, 65, 127, 1000};
    for (size_t i = 0; i < RIG_COUNT(sizes); i++) {
        check_sumsq(sizes[i]);
        check_adamw(sizes[i]);
    }
    test_schedule();
    test_clip();
    test_log();
    return test_end();
}
