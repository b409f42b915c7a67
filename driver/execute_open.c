/* Opening and closing an executor: all ranks of a point, or none. */
#include "driver/execute.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "driver/choices.h"
#include "driver/execute_fence.h"
#include "driver/execute_graph.h"
#include "driver/execute_stamps.h"
#include "workloads/memory.h"

enum device_class execute_class_of(int buffer)
{
    return memory_class(buffer);
}

static int take_memory(struct execute *e)
{
    const struct device_type *type = e->device.type;
    int rc = 0;
    for (int b = 1; b < PLAN_BUFFERS; b++) {
        void *memory = NULL;
        if (e->plan->bytes[b] == 0)
            continue;
        TRY(type->alloc(&e->device, execute_class_of(b), (size_t)e->plan->bytes[b], &memory));
        e->memory[b] = e->context.base[b] = memory;
    }
    void *log = NULL;
    size_t row = SCALARS * sizeof(double);
    TRY(type->alloc(&e->device, DEVICE_TEMPORARIES, (size_t)e->max_steps * row, &log));
    e->log = log;
out:
    return rc;
}

/* A collective puts at most its waits, two stamps, a fault and itself on its queue. */
static int queue_depth(const struct plan *plan, int max_steps)
{
    int64_t calls = 2; /* comm_prove needs two */
    for (int axis = 0; axis < AXIS_COUNT; axis++)
        calls += plan->totals.calls[axis] * max_steps;
    return (int)(calls * (OP_WAITS + 4));
}

/* What libraries ask of the device for their kernels is known only now. */
static int open_kernels(struct execute *e)
{
    struct device_memory before, after;
    int rc = 0;
    if (e->kernels->open == NULL)
        return 0;
    e->device.type->memory(&e->device, &before);
    e->context.share = &e->share;
    TRY(e->kernels->open(&e->context, e->plan, &e->device));
    e->device.type->memory(&e->device, &after);
    e->kernel_bytes = after.peak_bytes[DEVICE_TEMPORARIES] - before.peak_bytes[DEVICE_TEMPORARIES];
out:
    return rc;
}

static void take_config(struct execute *e, const struct execute_config *config)
{
    e->plan = config->plan;
    e->kernels = config->backend->kernels;
    e->max_steps = config->max_steps;
    e->threads = config->backend->threads;
    e->fault = config->fault;
    e->context.input = config->input;
    e->context.tf32 = config->plan->tf32;
    e->context.topology = config->backend->topology;
    e->context.attention = config->backend->attention;
    e->context.search = config->backend->gemm_search;
    e->context.margin = config->backend->gemm_margin;
    e->context.alone = config->alone;
    e->context.deterministic = config->backend->deterministic;
    e->context.alive = execute_alive;
    e->context.alive_arg = e;
    e->posts = e->comm;
}

/* What is kept of each step of a block. */
static void take_rows(struct execute *e)
{
    size_t steps = (size_t)e->max_steps, n_ops = (size_t)e->plan->n_ops;
    bool counted = false;
    e->host_ns = must_alloc(steps, sizeof *e->host_ns);
    e->micro_after = must_alloc(steps, sizeof *e->micro_after);
    for (int i = 0; i < e->plan->n_ops; i++)
        counted = counted ||
                  (e->plan->ops[i].kind == OP_COLLECTIVE && e->plan->ops[i].shape.coll.counted);
    if (counted)
        e->counted = must_alloc(steps * n_ops, sizeof *e->counted);
    stamps_number(e);
}

/* What needs no other rank. */
static int open_own(struct execute *e, const struct execute_config *config)
{
    int slots = stamps_per_step(e) * config->max_steps;
    int streams = 1 + e->plan->n_channels + e->plan->copy_stream + (config->save_stamps > 0);
    int depth = queue_depth(e->plan, config->max_steps);
    int rc = 0;
    e->save_stream = streams - 1;
    e->save_stamp = slots;
    TRY(device_open(&e->device, config->backend->device, config->backend->local_rank, streams));
    e->device.exportable =
        config->exportable || config->backend->comm_setup.enrolment != ENROL_NOTHING;
    TRY(take_memory(e));
    if (config->scratch && !e->kernels->no_numerics)
        execute_scratch_take(e);
    TRY(e->device.type->reserve(&e->device, slots + config->save_stamps,
                                depth > config->save_tasks ? depth : config->save_tasks));
    if (config->graph)
        TRY(execute_graph_check(e));
    TRY(choices_share(&e->share, config->parent));
out:
    return rc;
}

int execute_open(struct execute *e, const struct execute_config *config)
{
    bool refused = false;
    int rc = 0;
    memset(e, 0, sizeof *e);
    take_config(e, config);
    take_rows(e);
    TRY(execute_together(config, open_own(e, config)));
    TRY(execute_make_comms(e, config, &config->backend->comm_setup, &refused));
    TRY(execute_together(config, refused ? FAIL_ABSENT : 0));
    if (config->graph)
        TRY(execute_graph_open(e, config));
    TRY(execute_together(config, open_kernels(e)));
out:
    return rc;
}

void execute_close(struct execute *e)
{
    execute_graph_close(e);
    if (e->device.type && e->kernels->close)
        e->kernels->close(&e->context);
    for (int i = 0; i < e->n_comms; i++)
        comm_close(&e->comm[i]);
    if (e->device.type) {
        execute_scratch_free(e);
        for (int b = 1; b < PLAN_BUFFERS; b++)
            if (e->memory[b])
                e->device.type->free(&e->device, execute_class_of(b), e->memory[b],
                                     (size_t)e->plan->bytes[b]);
        if (e->log)
            e->device.type->free(&e->device, DEVICE_TEMPORARIES, e->log,
                                 (size_t)e->max_steps * SCALARS * sizeof(double));
        device_close(&e->device);
    }
    free(e->micro_after);
    free(e->host_ns);
    free(e->counted);
    free(e->stamp_slot);
    memset(e, 0, sizeof *e);
}

bool execute_has_scratch(const struct execute *e)
{
    return e->scratch[BUFFER_PARAMETER] != NULL;
}
