#include "driver/gate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/rng.h"
#include "driver/agree.h"
#include "driver/gate_choices.h"
#include "driver/state.h"

static const double gate_padding = 0.25;

/* What the reference runs on, whatever the study does. */
static const struct backend on_cpu = {
    .device = &device_cpu, .comm = &comm_mpi, .kernels = &kernels_cpu};

static struct policy gate_policy(const struct gate_reference *reference, const struct policy *point,
                                 int64_t micro_batch)
{
    struct policy policy;
    policy_defaults(&policy, &reference->model);
    policy.routing = reference->routing;
    if (point)
        policy = *point;
    policy.global_batch = reference->batch;
    policy.micro_batch = micro_batch;
    policy.epsilon = 1e-6f;
    policy.lr = (float)reference->model.lr;
    policy.lr_min = policy.lr / 10;
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

static bool is_learned(const struct gate_reference *reference)
{
    return reference->model.experts > 0 && reference->routing.kind == ROUTING_LEARNED;
}

/* ---- running the gate model ---- */

struct gate_run {
    struct plan plan;
    struct execute execute;
    struct input input;
    struct gate_found found;
    struct gate_choices choices; /* learned routing */
};

static void gate_run_release(struct gate_run *run)
{
    execute_close(&run->execute);
    input_close(&run->input);
    plan_release(&run->plan);
    gate_choices_release(&run->choices);
    free(run->found.gradient);
    free(run->found.parameter);
    memset(run, 0, sizeof *run);
}

static void gate_run_steps(struct gate_run *run, int first, int n)
{
    struct execute_samples samples;
    execute_block(&run->execute, VARIANT_FULL, 0, n, -1, &samples);
    for (int i = 0; i < n; i++) {
        run->found.loss[first + i] = samples.step[i].loss;
        run->found.norm[first + i] = samples.step[i].grad_norm;
    }
    execute_samples_release(&samples);
}

/* Gradients of the pieces, from wherever the plan left them. */
static void download_gradients(struct gate_run *run)
{
    const struct plan *plan = &run->plan;
    struct tensor *at = must_alloc((size_t)plan->n_pieces, sizeof *at);
    enum dtype dtype = state_gradients(plan, at);
    for (int i = 0; i < plan->n_pieces; i++)
        execute_download_tensor(&run->execute, at[i], dtype, plan->pieces[i].count,
                                run->found.gradient + plan->pieces[i].offset);
    free(at);
}

/* Of the layers of this rank, as OP_ROUTE counted them; its words come as floats do. */
static double tied_tokens(struct gate_run *run, const struct model *model)
{
    int64_t each = model->experts + 3, n = model->layers * each;
    double sum = 0, *load = must_alloc((size_t)n + 1, sizeof *load);
    if (model->experts > 0)
        execute_download_tensor(&run->execute, run->plan.load, DTYPE_F32, 2 * n,
                                (float *)(void *)load);
    for (int64_t l = 0; l < model->layers; l++)
        sum += load[l * each + model->experts + 2];
    free(load);
    return sum;
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
                                    .max_steps = GATE_STEPS_MOST,
                                    .fault = fault};
    TRY(execute_open(&run->execute, &config));
    int64_t n = run->plan.n_state;
    run->found.plan = &run->plan;
    run->found.gradient = must_alloc((size_t)n, sizeof(float));
    run->found.parameter = must_alloc((size_t)n, sizeof(float));
    execute_reset(&run->execute, reference->seed);
    run->execute.context.told = reference->told;
    if (is_learned(reference))
        gate_choices_keep(&run->choices, &run->execute);
    gate_run_steps(run, 0, 1);
    download_gradients(run);
    run->found.tied = tied_tokens(run, model);
    if (reference->steps > 1)
        gate_run_steps(run, 1, reference->steps - 1);
    execute_download(&run->execute, (enum plan_buffer)run->plan.master, 0, n, run->found.parameter);
out:
    return rc;
}

/* ---- the reference ---- */

static int reference_compute(struct gate_reference *reference)
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
    TRY(gate_run(&run, reference, &alone, &policy, &on_cpu, NULL, none));
    size_t bytes = (size_t)run.plan.n_state * sizeof(float);
    memcpy(reference->gradient, run.found.gradient, bytes);
    memcpy(reference->parameter, run.found.parameter, bytes);
    memcpy(reference->loss, run.found.loss, sizeof run.found.loss);
    memcpy(reference->norm, run.found.norm, sizeof run.found.norm);
out:
    gate_run_release(&run);
    return rc;
}

/* What rank 0 has found, to all. */
static int reference_share(struct gate_reference *reference, const void *comm)
{
    int64_t bytes = reference->plan.n_parameters * (int64_t)sizeof(float);
    int rc = 0;
    TRY(agree_broadcast(reference->gradient, bytes, 0, comm));
    TRY(agree_broadcast(reference->parameter, bytes, 0, comm));
    TRY(agree_broadcast(reference->loss, sizeof reference->loss, 0, comm));
    TRY(agree_broadcast(reference->norm, sizeof reference->norm, 0, comm));
    TRY(agree_broadcast(&reference->routed, sizeof reference->routed, 0, comm));
out:
    return rc;
}

int gate_reference_make(struct gate_reference *reference, const struct model *model, int64_t tp,
                        int64_t batch, uint64_t seed, enum gate_numbers numbers, int rank,
                        const void *world)
{
    struct routing routing;
    struct gate_shape shape = {tp, 1, 1};
    routing_defaults(&routing);
    return gate_reference_routed(reference, model, &routing, &shape, batch, seed, numbers, rank,
                                 world);
}

int gate_reference_routed(struct gate_reference *reference, const struct model *model,
                          const struct routing *routing, const struct gate_shape *shape,
                          int64_t batch, uint64_t seed, enum gate_numbers numbers, int rank,
                          const void *world)
{
    struct layout alone;
    struct degrees degrees = {0};
    int rc = 0;
    memset(reference, 0, sizeof *reference);
    model_reduce_for(model, shape->tp, &reference->model);
    model_reduce_rows(model, shape->rows, &reference->model);
    model_reduce_layers(model, shape->layers, &reference->model);
    reference->bounds = gate_bounds(numbers);
    if (reference->bounds->lr > 0 && reference->model.lr > reference->bounds->lr)
        reference->model.lr = reference->bounds->lr;
    reference->batch = batch;
    reference->seed = rng_key(seed, "gate");
    reference->steps = reference->bounds->steps;
    reference->routing = *routing;
    if (is_learned(reference))
        reference->steps = 1;
    struct policy policy = gate_policy(reference, NULL, divisor(batch, 16));
    TRY(layout_parse("", &degrees));
    TRY(layout_init(&alone, 1, 1, 0, &degrees));
    TRY(transformer_plan(&reference->plan, &reference->model, &alone, &policy));
    size_t n = (size_t)reference->plan.n_parameters;
    reference->gradient = must_alloc(n, sizeof(float));
    reference->parameter = must_alloc(n, sizeof(float));
    rc = rank == 0 ? reference_compute(reference) : 0;
    TRY(agree(rc, world));
    TRY(reference_share(reference, world));
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

/*
 * `own` becomes the reference of a point: made again on its rank 0, with what the point chose, and known
 * to all of its ranks. Collective over the point.
 */
static int reference_follow(struct gate_reference *own, const struct gate_choices *choices,
                            const struct layout *layout, const void *parent)
{
    struct gate_routing *r = &own->routed;
    const struct model *model = &own->model;
    struct kernel_told told = {.tokens = own->batch * model->sequence,
                               .within = (own->bounds ? own->bounds : gate_bounds(GATE_FP32))->tie};
    int32_t *table = NULL;
    size_t n = (size_t)own->plan.n_parameters;
    int rc = 0;
    own->gradient = must_alloc(n, sizeof(float));
    own->parameter = must_alloc(n, sizeof(float));
    TRY(gate_choices_gather(choices, model->layers, told.tokens, model->top_k, parent, &table,
                            &r->known));
    if (layout->rank == 0) {
        told.experts = table;
        own->told = &told;
        rc = reference_compute(own);
        own->told = NULL;
        *r = (struct gate_routing){model->layers * told.tokens, r->known, told.followed,
                                   told.refused};
    }
    TRY(agree_quietly(rc, parent));
    TRY(reference_share(own, parent));
out:
    free(table);
    return rc;
}

/* ---- the verdict of all ranks ---- */

/* The row of the same check and subject, looked for from where it would be; else a new one. */
static struct gate_row *row_like(struct record_point *out, int64_t first, int64_t *hint,
                                 const struct gate_row *row)
{
    int64_t n = out->gate.n - first;
    for (int64_t i = 0; i < n; i++) {
        struct gate_row *to = &out->gate.rows[first + (*hint + i) % n];
        if (strcmp(to->check, row->check) != 0 || strcmp(to->subject, row->subject) != 0)
            continue;
        *hint = (*hint + i + 1) % n;
        return to;
    }
    struct gate_row *to = RECORD_ADD(&out->gate, 1);
    *to = *row;
    to->rank = -1;
    return to;
}

/* Ranks compare what they hold: other tensors on other stages of a pipeline. */
int gate_collect(const struct gate_row *rows, int64_t n, const struct layout *layout,
                 const void *parent, struct record_point *out)
{
    int size = layout->world;
    void *all = NULL;
    int64_t total = 0, *counts = must_alloc((size_t)size, sizeof *counts), first = out->gate.n;
    int rc = agree_gather(rows, n * (int64_t)sizeof *rows, &all, &total, counts, parent);
    if (rc == 0 && layout->rank == 0) {
        const struct gate_row *from = all;
        for (int r = 0; r < size; r++) {
            int64_t hint = 0, of_rank = counts[r] / (int64_t)sizeof *rows;
            for (int64_t i = 0; i < of_rank; i++, from++) {
                struct gate_row *to = row_like(out, first, &hint, from);
                if (to->rank >= 0 && gate_severity(from) <= gate_severity(to))
                    continue;
                *to = *from;
                to->rank = r;
            }
        }
    }
    free(all);
    free(counts);
    return rc;
}

struct policy gate_point_policy(const struct gate_reference *reference, const struct layout *layout,
                                const struct policy *policy, bool accumulate)
{
    int64_t local = reference->batch / layout->degrees.dp;
    int64_t most = accumulate ? 16 : 128; /* with one micro-batch gradients lie elsewhere */
    int64_t micro = divisor(local, accumulate && local / 2 < most ? local / 2 : most);
    int pp = layout->degrees.pp;
    if (pp > 1) /* once or twice as many micro-batches as stages, or a multiple of that */
        micro = divisor(local / (local % (2 * pp) == 0 ? 2 * pp : pp), 16);
    struct policy gate = gate_policy(reference, policy, micro);
    gate.head_chunks =
        (int)divisor(micro * (reference->model.sequence / layout->degrees.cp), policy->head_chunks);
    return gate;
}

int gate_point(const struct gate_reference *reference, const struct layout *layout,
               const struct policy *policy, bool accumulate, const struct backend *backend,
               const void *parent, struct execute_fault fault, struct record_point *rows)
{
    struct gate_run run;
    memset(&run, 0, sizeof run);
    struct policy gate = gate_point_policy(reference, layout, policy, accumulate);
    int rc = gate_run(&run, reference, layout, &gate, backend, parent, fault);
    rc = agree_quietly(rc, parent);
    struct gate_reference own = *reference;
    if (rc == 0 && is_learned(reference))
        rc = reference_follow(&own, &run.choices, layout, parent);
    if (rc == 0) {
        size_t most = 4 * (size_t)reference->plan.n_tensors + 2 * GATE_STEPS_MOST;
        struct gate_row *list = must_alloc(most, sizeof *list);
        rc = gate_collect(list, gate_compare(&own, &run.found, list), layout, parent, rows);
        free(list);
    }
    if (own.gradient != reference->gradient) {
        free(own.gradient);
        free(own.parameter);
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
        if (!worst || gate_severity(row) > gate_severity(worst))
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
