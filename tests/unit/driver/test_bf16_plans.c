/*
 * A plan in bf16 does the work of the fp32 plan within what bf16 can hold, alone and on layouts, with
 * gradients that travel in fp32 and in bf16: loss and gradient norm of the first step, gradients of
 * every tensor, loss after all steps, masters in fp32. Its memory is half of what is half as wide.
 */
#include "base/bf16.h"
#include "tests/lockstep_gate.h"
#include "tests/test.h"

enum { BATCH = 8, SEED = 5 };

static void make_policy(struct policy *policy, const struct model *model, enum dtype dtype,
                        enum dtype grad_dtype)
{
    policy_defaults(policy, model);
    policy->dtype = dtype;
    policy->grad_dtype = grad_dtype;
    policy->global_batch = BATCH;
    policy->micro_batch = 2;
    policy->bucket_bytes = 40000;
}

/* What kernels read starts as the rounded masters. */
static void round_parameters(const struct crew *crew)
{
    for (int r = 0; r < crew->n; r++) {
        const struct plan *plan = &crew->plans[r];
        const float *master = lockstep_memory(&crew->lockstep, r, (enum plan_buffer)plan->master);
        uint16_t *parameter = lockstep_memory(&crew->lockstep, r, BUFFER_PARAMETER);
        CHECK_EQ(plan->master, BUFFER_MASTER);
        for (int64_t i = 0; i < plan->n_state; i++)
            parameter[i] = bf16_of(master[i]);
    }
}

static double distance(const float *a, const float *b, int64_t n, double *norm)
{
    double sum = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = (double)a[i] - (double)b[i];
        sum += d * d;
        size += (double)b[i] * (double)b[i];
    }
    *norm = sqrt(size);
    return sqrt(sum);
}

/* One rank: gradients stand where the fp32 reference has them. */
static void check_gradients(const struct crew *crew, const struct gate_reference *reference)
{
    double global, norm;
    distance(reference->gradient, reference->gradient, reference->plan.n_parameters, &global);
    const float *found = lockstep_memory(&crew->lockstep, 0, BUFFER_GRADIENT);
    for (int i = 0; i < reference->plan.n_tensors; i++) {
        const struct plan_tensor *t = &reference->plan.tensors[i];
        if (t->zero_count > 0)
            continue;
        double d = distance(found + t->offset, reference->gradient + t->offset,
                            t->rows * t->columns, &norm);
        CHECK(d <= 3e-2 * fmax(norm, 1e-2 * global));
    }
}

static void check_steps(const struct gate_reference *reference, const double (*log)[SCALARS])
{
    for (int k = 0; k < GATE_STEPS; k++) {
        double loss = log[k][SCALAR_LOSS_SUM] / log[k][SCALAR_VALID];
        CHECK_NEAR(loss, reference->loss[k], (k == 0 ? 2e-3 : 1e-2) * reference->loss[k]);
        CHECK_EQ(log[k][SCALAR_SKIPPED], 0);
    }
    CHECK_NEAR(log[0][SCALAR_NORM], reference->norm[0], 1e-2 * reference->norm[0]);
    CHECK(log[GATE_STEPS - 1][SCALAR_LOSS_SUM] / log[GATE_STEPS - 1][SCALAR_VALID] !=
          reference->loss[GATE_STEPS - 1]); /* it was bf16 */
}

/* What kernels read is the rounded master, after updates as before. */
static void check_rounded(const struct crew *crew)
{
    const struct plan *plan = &crew->plans[0];
    const float *master = lockstep_memory(&crew->lockstep, 0, BUFFER_MASTER);
    const uint16_t *parameter = lockstep_memory(&crew->lockstep, 0, BUFFER_PARAMETER);
    int64_t wrong = 0;
    for (int64_t i = 0; i < plan->n_state; i++)
        wrong += parameter[i] != bf16_of(master[i]);
    CHECK_EQ(wrong, 0);
}

static void check_memory(const struct plan *narrow, const struct plan *wide)
{
    CHECK_EQ(narrow->bytes[BUFFER_PARAMETER], 2 * narrow->n_parameters);
    CHECK_EQ(narrow->bytes[BUFFER_MASTER], 4 * narrow->n_parameters);
    CHECK_EQ(narrow->bytes[BUFFER_GRADIENT], wide->bytes[BUFFER_GRADIENT]);
    CHECK_EQ(wide->bytes[BUFFER_MASTER], 0);
    /* statistics stay wide */
    CHECK(narrow->bytes[BUFFER_ACTIVATION] < wide->bytes[BUFFER_ACTIVATION] * 55 / 100);
}

static void check_layout(const struct gate_reference *reference, const char *parallel, int ranks,
                         enum dtype grad_dtype)
{
    const struct model *model = &reference->model;
    struct policy policy;
    struct degrees degrees = {0};
    struct crew crew;
    double log[GATE_STEPS][SCALARS];
    make_policy(&policy, model, DTYPE_BF16, grad_dtype);
    CHECK_EQ(layout_parse(parallel, &degrees), 0);
    if (!CHECK_EQ(crew_plan(&crew, model, &policy, &degrees, 1, ranks), 0))
        return;
    CHECK_EQ(
        input_open(&crew.input, "synthetic", SEED, model->vocabulary, model->sequence, 0.25, 0), 0);
    CHECK_EQ(lockstep_open(&crew.lockstep, crew.plans, ranks, &kernels_cpu, &crew.input, SEED), 0);
    round_parameters(&crew);
    CHECK_EQ(lockstep_run(&crew.lockstep, LOCKSTEP_LATE, 1, log[0]), 0);
    if (ranks == 1) {
        check_gradients(&crew, reference);
        check_memory(&crew.plans[0], &reference->plan);
    }
    CHECK_EQ(lockstep_run(&crew.lockstep, LOCKSTEP_LATE, GATE_STEPS - 1, log[1]), 0);
    check_steps(reference, (const double(*)[SCALARS])log);
    check_rounded(&crew);
    crew_release(&crew);
}

static void check_model(const char *name)
{
    struct model model;
    struct policy policy;
    struct gate_reference reference;
    CHECK_EQ(model_load(&model, name), 0);
    model.layers = 2;
    model.sequence = 16;
    make_policy(&policy, &model, DTYPE_F32, DTYPE_F32);
    CHECK_EQ(crew_reference(&reference, &model, &policy, SEED, GATE_STEPS), 0);
    check_layout(&reference, "", 1, DTYPE_F32);
    check_layout(&reference, "", 2, DTYPE_F32);
    check_layout(&reference, "", 4, DTYPE_BF16);
    check_layout(&reference, "tp=2,dp=2", 4, DTYPE_BF16);
    gate_reference_release(&reference);
}

int main(void)
{
    check_model("tiny");
    check_model("tiny-llama");
    return test_end();
}
