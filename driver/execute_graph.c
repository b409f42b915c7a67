#include "driver/execute_graph.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/units.h"
#include "driver/execute_fence.h"
#include "driver/execute_stamps.h"
#include "driver/watchdog.h"

/* ---- open and close ---- */

int execute_graph_check(const struct execute *e)
{
    if (e->device.type->capture_begin == NULL || e->kernels->capture == NULL)
        return fail(FAIL_USAGE, "--graph: device \"%s\" has no graphs: leave it out",
                    e->device.type->name);
    for (int i = 0; i < e->plan->n_ops; i++)
        if (e->plan->ops[i].kind == OP_COUNTS)
            return fail(FAIL_USAGE, "--graph: dropless routing has the host wait for counts of "
                                    "rows, which no graph holds: choose a --capacity");
    if (e->fault.delay_ns > 0)
        return fail(FAIL_USAGE, "--graph: a planted delay is a task of the host, which no graph "
                                "holds: leave --test-delay out");
    return 0;
}

int execute_graph_open(struct execute *e, const struct execute_config *config)
{
    int rc = 0;
    e->graphs = must_alloc(1, sizeof *e->graphs);
    e->graphs->graph = must_alloc((size_t)e->max_steps, sizeof(struct device_graph *));
    TRY(execute_open_comms(e, config, e->graphs->comm, &e->graphs->n_comms));
out:
    return rc;
}

void execute_graph_close(struct execute *e)
{
    struct execute_graphs *graphs = e->graphs;
    if (graphs == NULL)
        return;
    for (int i = 0; i < graphs->n_graphs; i++)
        e->device.type->free_graph(&e->device, graphs->graph[i]);
    for (int i = 0; i < graphs->n_comms; i++)
        comm_close(&graphs->comm[i]);
    free(graphs->graph);
    free(graphs);
    e->graphs = NULL;
}

int execute_n_comms(const struct execute *e)
{
    return e->n_comms + (e->graphs != NULL ? e->graphs->n_comms : 0);
}

struct comm *execute_comm(struct execute *e, int index)
{
    return index < e->n_comms ? &e->comm[index] : &e->graphs->comm[index - e->n_comms];
}

/* ---- what a step counts ---- */

static void read_counts(const struct execute *e, struct execute_counts *out)
{
    *out = (struct execute_counts){
        .work = e->context.work, .ops = e->ops_given_out, .micro_steps = e->micro_steps};
    for (int i = 0; i < e->n_comms; i++) {
        out->calls[i] = e->graphs->comm[i].posted_calls;
        out->bytes[i] = e->graphs->comm[i].posted_bytes;
    }
}

static void subtract(struct execute_counts *from, const struct execute_counts *what)
{
    from->work.model_flops -= what->work.model_flops;
    from->work.hardware_flops -= what->work.hardware_flops;
    from->work.gemm_flops -= what->work.gemm_flops;
    from->work.tokens -= what->work.tokens;
    from->ops -= what->ops;
    from->micro_steps -= what->micro_steps;
    for (int i = 0; i < PLAN_CHANNELS; i++) {
        from->calls[i] -= what->calls[i];
        from->bytes[i] -= what->bytes[i];
    }
}

/* A capture does none of what it counted. */
static void forget(struct execute *e, const struct execute_counts *before)
{
    e->context.work = before->work;
    e->ops_given_out = before->ops;
    e->micro_steps = before->micro_steps;
}

/* Calls count on the communicators of eager steps, where traffic is read. */
static void add_counts(struct execute *e)
{
    const struct execute_counts *one = &e->graphs->counts;
    e->context.work.model_flops += one->work.model_flops;
    e->context.work.hardware_flops += one->work.hardware_flops;
    e->context.work.gemm_flops += one->work.gemm_flops;
    e->context.work.tokens += one->work.tokens;
    e->ops_given_out += one->ops;
    e->micro_steps += one->micro_steps;
    for (int i = 0; i < e->n_comms; i++) {
        e->comm[i].posted_calls += one->calls[i];
        e->comm[i].posted_bytes += one->bytes[i];
    }
}

/* ---- capture ---- */

static int capture_step(struct execute *e, int step)
{
    struct execute_graphs *graphs = e->graphs;
    struct execute_counts before;
    int rc = 0;
    read_counts(e, &before);
    e->context.log_next = step;
    e->context.captured = 1 + step;
    TRY(e->device.type->capture_begin(&e->device));
    execute_step(e, VARIANT_FULL, graphs->level, step * stamps_per_step(e));
    TRY(e->device.type->capture_end(&e->device, &graphs->graph[step]));
    graphs->n_graphs = step + 1;
    read_counts(e, &graphs->counts);
    subtract(&graphs->counts, &before);
out:
    forget(e, &before);
    e->context.captured = 0;
    return rc;
}

int execute_capture(struct execute *e, int level)
{
    struct execute_hook hook = e->hook;
    int rc = 0;
    if (e->graphs == NULL || e->graphs->n_graphs > 0)
        BUG("a capture by an executor that was opened without graphs, or has them already");
    e->graphs->level = level;
    TRY(e->kernels->capture(&e->context, e->max_steps));
    execute_bind(e, VARIANT_FULL);
    e->posts = e->graphs->comm;
    e->hook = (struct execute_hook){0};
    for (int step = 0; step < e->max_steps && rc == 0; step++) {
        watchdog_at("capture", step, "step as a graph");
        rc = capture_step(e, step);
    }
    e->hook = hook;
    e->posts = e->comm;
out:
    return rc;
}

/* ---- replay ---- */

void execute_replay(struct execute *e, int n_steps, int keep, struct execute_samples *samples)
{
    struct execute_fence fence = {.variant = VARIANT_FULL,
                                  .level = e->graphs->level,
                                  .n_steps = n_steps,
                                  .keep = keep,
                                  .graph = true,
                                  .samples = samples};
    if (n_steps > e->graphs->n_graphs)
        BUG("a block of %d graphs of %d", n_steps, e->graphs->n_graphs);
    execute_fence_begin(e, &fence);
    for (int step = 0; step < n_steps; step++) {
        execute_step_begin(e, &fence, step);
        e->kernels->refill(&e->context, step);
        fence.begun_ns = units_now_ns(); /* batches have a meter of their own */
        e->device.type->launch_graph(&e->device, e->graphs->graph[step]);
        add_counts(e);
        execute_step_end(e, &fence, step);
    }
    execute_fence_end(e, &fence);
}
