#include "driver/gate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/rng.h"
#include "driver/agree.h"

static const double gate_padding = 0.25;

static struct policy gate_policy(const struct gate_reference *reference, const struct policy *point,
                                 int64_t micro_batch)
{
    struct policy policy;
    policy_defaults(&policy, &reference->model);
    policy.overlap_gradients = point ? point->overlap_gradients : true;
    policy.global_batch = reference->batch;
    policy.micro_batch = micro_batch;
    policy.epsilon = 1e-6f;
    policy.warm_up = 2;
    policy.decay_steps = 20;
    int64_t quarter = model_parameters(&reference->model); /* a fourth of the gradient, bytes */
    policy.bucket_bytes = point && point->bucket_bytes < quarter ? point->bucket_bytes : quarter;
    return policy;
}

/* The largest divisor of n that is at most `limit`. */
static int64_t divisor(int64_t n, int64_t limit)
{
    for (int64_t d = limit < n ? limit : n; d > 1; d--)
        if (n % d == 0)
            return d;
    return 1;
}

/* ---- running the gate model ---- */

struct gate_run {
    struct plan plan;
    struct execute execute;
    struct input input;
    float *gradient, *parameter;
    double loss[GATE_STEPS], norm[GATE_STEPS];
};

static void gate_run_release(struct gate_run *run)
{
    execute_close(&run->execute);
    input_close(&run->input);
    plan_release(&run->plan);
    free(run->gradient);
    free(run->parameter);
    memset(run, 0, sizeof *run);
}

static void gate_run_steps(struct gate_run *run, int first, int n)
{
    struct execute_samples samples;
    execute_block(&run->execute, VARIANT_FULL, 0, n, -1, &samples);
    for (int i = 0; i < n; i++) {
        run->loss[first + i] = samples.step[i].loss;
        run->norm[first + i] = samples.step[i].grad_norm;
    }
    execute_samples_release(&samples);
}

static int gate_run(struct gate_run *run, const struct gate_reference *reference,
                    const struct layout *layout, const struct policy *policy,
                    const struct backend *backend, const void *parent, struct execute_fault fault)
{
    const struct model *model = &reference->model;
    int rc = 0;
    memset(run, 0, sizeof *run);
    TRY(transformer_plan(&run->plan, model, layout, policy));
    TRY(input_open(&run->input, "synthetic", reference->seed, model->vocabulary, model->sequence,
                   gate_padding, 0));
    struct execute_config config = {.plan = &run->plan,
                                    .backend = backend,
                                    .input = &run->input,
                                    .parent = parent,
                                    .max_steps = GATE_STEPS,
                                    .fault = fault};
    TRY(execute_open(&run->execute, &config));
    int64_t n = run->plan.n_parameters;
    run->gradient = must_alloc((size_t)n, sizeof *run->gradient);
    run->parameter = must_alloc((size_t)n, sizeof *run->parameter);
    execute_reset(&run->execute, reference->seed);
    gate_run_steps(run, 0, 1);
    execute_download(&run->execute, BUFFER_GRADIENT, 0, n, run->gradient);
    gate_run_steps(run, 1, GATE_STEPS - 1);
    execute_download(&run->execute, BUFFER_PARAMETER, 0, n, run->parameter);
out:
    return rc;
}

/* ---- the reference ---- */

static int reference_compute(struct gate_reference *reference, const struct backend *backend)
{
    struct gate_run run;
    struct layout alone;
    struct degrees degrees = {0};
    struct execute_fault none = {.drop_op = -1};
    struct policy policy = gate_policy(reference, NULL, divisor(reference->batch, 16));
    int rc = 0;
    memset(&run, 0, sizeof run);
    TRY(layout_parse("", &degrees));
    TRY(layout_init(&alone, 1, 1, 0, &degrees));
    TRY(gate_run(&run, reference, &alone, &policy, backend, NULL, none));
    size_t bytes = (size_t)run.plan.n_parameters * sizeof(float);
    memcpy(reference->gradient, run.gradient, bytes);
    memcpy(reference->parameter, run.parameter, bytes);
    memcpy(reference->loss, run.loss, sizeof run.loss);
    memcpy(reference->norm, run.norm, sizeof run.norm);
out:
    gate_run_release(&run);
    return rc;
}

int gate_reference_make(struct gate_reference *reference, const struct model *model, int64_t batch,
                        uint64_t seed, const struct backend *backend, int rank, const void *world)
{
    struct layout alone;
    struct degrees degrees = {0};
    int rc = 0;
    memset(reference, 0, sizeof *reference);
    model_reduce(model, &reference->model);
    reference->batch = batch;
    reference->seed = rng_key(seed, "gate");
    struct policy policy = gate_policy(reference, NULL, divisor(batch, 16));
    TRY(layout_parse("", &degrees));
    TRY(layout_init(&alone, 1, 1, 0, &degrees));
    TRY(transformer_plan(&reference->plan, &reference->model, &alone, &policy));
    size_t n = (size_t)reference->plan.n_parameters;
    reference->gradient = must_alloc(n, sizeof(float));
    reference->parameter = must_alloc(n, sizeof(float));
    rc = rank == 0 ? reference_compute(reference, backend) : 0;
    TRY(agree(rc, world));
    TRY(agree_broadcast(reference->gradient, (int64_t)(n * sizeof(float)), 0, world));
    TRY(agree_broadcast(reference->parameter, (int64_t)(n * sizeof(float)), 0, world));
    TRY(agree_broadcast(reference->loss, sizeof reference->loss, 0, world));
    TRY(agree_broadcast(reference->norm, sizeof reference->norm, 0, world));
out:
    return rc;
}

void gate_reference_release(struct gate_reference *reference)
{
    plan_release(&reference->plan);
    free(reference->gradient);
    free(reference->parameter);
    memset(reference, 0, sizeof *reference);
}

/* ---- comparing ---- */

static double norm_of(const float *values, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)values[i] * (double)values[i];
    return sqrt(sum);
}

static double distance(const float *a, const float *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = (double)a[i] - (double)b[i];
        sum += d * d;
    }
    return sqrt(sum);
}

struct checksum gate_checksum(const float *values, int64_t n, uint64_t seed, const char *name)
{
    struct checksum sum = {norm_of(values, n), 0};
    uint64_t key = rng_key(rng_key(seed, "checksum"), name);
    for (int64_t i = 0; i < n; i++)
        sum.dot += (double)rng_sign(key, (uint64_t)i) * (double)values[i];
    return sum;
}

struct gate_row gate_row_of(const char *check, const char *subject, double expected, double found,
                            double difference, double allowed)
{
    struct gate_row row = {.expected = expected,
                           .found = found,
                           .difference = difference,
                           .allowed = allowed,
                           .passed = difference <= allowed};
    snprintf(row.check, sizeof row.check, "%s", check);
    snprintf(row.subject, sizeof row.subject, "%s", subject);
    return row;
}

static struct gate_row check_gradient(const struct gate_reference *reference,
                                      const struct plan_tensor *t, const float *found,
                                      double global)
{
    const float *expected = reference->gradient + t->offset;
    int64_t n = t->rows * t->columns;
    double norm = norm_of(expected, n);
    double floor = 1e-3 * global;
    return gate_row_of("gradient", t->name, norm, norm_of(found + t->offset, n),
                       distance(found + t->offset, expected, n),
                       1e-5 * (norm > floor ? norm : floor));
}

static struct gate_row check_update(const struct gate_reference *reference,
                                    const struct plan_tensor *t, const float *found)
{
    const float *expected = reference->parameter + t->offset;
    double largest = 0, worst = 0;
    for (int64_t i = 0; i < t->rows * t->columns; i++) {
        double d = fabs((double)found[t->offset + i] - (double)expected[i]);
        if (!(d <= worst)) /* NaN stays */
            worst = d;
        largest = fmax(largest, fabs((double)expected[i]));
    }
    double lr = reference->model.lr;
    return gate_row_of("update", t->name, largest, worst, worst,
                       1e-5 * largest + 0.02 * GATE_STEPS * lr);
}

/* Finite and not zero outside the part that is structurally zero. */
static struct gate_row check_nonzero(const struct plan_tensor *t, const float *found)
{
    double before = norm_of(found + t->offset, t->zero_first);
    int64_t after = t->zero_first + t->zero_count;
    int64_t n = t->valid_rows * t->columns;
    double rest = norm_of(found + t->offset + after, n - after);
    double norm = hypot(t->zero_count ? before : 0, rest);
    bool good = isfinite(norm) && norm > 0;
    return gate_row_of("nonzero", t->name, 1, norm, good ? 0 : 1, 0);
}

static struct gate_row check_padded(const struct plan_tensor *t, const struct gate_run *run)
{
    int64_t first = t->offset + t->valid_rows * t->columns;
    int64_t n = (t->rows - t->valid_rows) * t->columns;
    double norm = norm_of(run->gradient + first, n) + norm_of(run->parameter + first, n);
    return gate_row_of("padded", t->name, 0, norm, norm, 0);
}

static int64_t compare(const struct gate_reference *reference, const struct gate_run *run,
                       struct gate_row *rows)
{
    double global = norm_of(reference->gradient, reference->plan.n_parameters);
    int64_t n = 0;
    for (int i = 0; i < run->plan.n_tensors; i++) {
        const struct plan_tensor *t = &run->plan.tensors[i];
        rows[n++] = check_gradient(reference, t, run->gradient, global);
        rows[n++] = check_update(reference, t, run->parameter);
        rows[n++] = check_nonzero(t, run->gradient);
        if (t->valid_rows < t->rows)
            rows[n++] = check_padded(t, run);
    }
    for (int step = 0; step < GATE_STEPS; step++) {
        char subject[16];
        snprintf(subject, sizeof subject, "step %d", step + 1);
        double loss = reference->loss[step], norm = reference->norm[step];
        rows[n++] = gate_row_of("loss", subject, loss, run->loss[step],
                                fabs(run->loss[step] - loss), 1e-5 * loss);
        rows[n++] = gate_row_of("norm", subject, norm, run->norm[step],
                                fabs(run->norm[step] - norm), 1e-4 * norm);
    }
    return n;
}

/* How far a row is from passing: above 1 it failed; NaN counts as worst. */
static double severity(const struct gate_row *row)
{
    if (isnan(row->difference))
        return INFINITY;
    if (row->allowed > 0)
        return row->difference / row->allowed;
    return row->passed ? 0 : INFINITY;
}

int gate_collect(const struct gate_row *rows, int64_t n, const struct layout *layout,
                 const void *parent, struct record_point *out)
{
    int size = layout->world;
    void *all = NULL;
    int64_t total = 0, *counts = must_alloc((size_t)size, sizeof *counts);
    int rc = agree_gather(rows, n * (int64_t)sizeof *rows, &all, &total, counts, parent);
    if (rc == 0 && layout->rank == 0) {
        const struct gate_row *from = all;
        struct gate_row *to = RECORD_ADD(&out->gate, n);
        for (int64_t i = 0; i < n; i++)
            for (int r = 0; r < size; r++) {
                const struct gate_row *candidate = &from[r * n + i];
                if (r == 0 || severity(candidate) > severity(&to[i])) {
                    to[i] = *candidate;
                    to[i].rank = r;
                }
            }
    }
    free(all);
    free(counts);
    return rc;
}

int gate_point(const struct gate_reference *reference, const struct layout *layout,
               const struct policy *policy, bool accumulate, const struct backend *backend,
               const void *parent, struct execute_fault fault, struct record_point *rows)
{
    struct gate_run run;
    memset(&run, 0, sizeof run);
    int64_t local = reference->batch / layout->degrees.dp;
    int64_t micro = divisor(local, accumulate && local / 2 < 16 ? local / 2 : 16);
    struct policy gate = gate_policy(reference, policy, micro);
    int rc = gate_run(&run, reference, layout, &gate, backend, parent, fault);
    rc = agree_quietly(rc, parent);
    if (rc == 0) {
        size_t most = 4 * (size_t)run.plan.n_tensors + 2 * GATE_STEPS;
        struct gate_row *list = must_alloc(most, sizeof *list);
        rc = gate_collect(list, compare(reference, &run, list), layout, parent, rows);
        free(list);
    }
    gate_run_release(&run);
    return rc;
}

int gate_verdict(const struct record_point *point, char *why, size_t size)
{
    int64_t failed = 0;
    const struct gate_row *worst = NULL;
    for (int64_t i = 0; i < point->gate.n; i++) {
        const struct gate_row *row = &point->gate.rows[i];
        if (row->passed)
            continue;
        failed++;
        if (!worst || severity(row) > severity(worst))
            worst = row;
    }
    if (!worst)
        return 0;
    snprintf(why, size,
             "gate: %lld of %lld checks failed; worst: %s of %s on rank %d: difference %.3g, "
             "allowed %.3g (expected %.6g, found %.6g)",
             (long long)failed, (long long)point->gate.n, worst->check, worst->subject, worst->rank,
             worst->difference, worst->allowed, worst->expected, worst->found);
    return FAIL_WRONG;
}
