#include "driver/execute.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/err.h"
#include "base/units.h"
#include "driver/execute_stamps.h"
#include "driver/watchdog.h"
#include "workloads/transformer.h"

/* Buffers whose contents a variant would ruin: they have scratch copies. */
static bool is_state(int buffer)
{
    return buffer == BUFFER_PARAMETER || buffer == BUFFER_MASTER || buffer == BUFFER_GRADIENT ||
           buffer == BUFFER_SHARD || buffer == BUFFER_MOMENT1 || buffer == BUFFER_MOMENT2 ||
           buffer == BUFFER_SCALAR;
}

static enum device_class class_of(int buffer)
{
    switch (buffer) {
    case BUFFER_PARAMETER:
        return DEVICE_PARAMETERS;
    case BUFFER_GRADIENT:
    case BUFFER_SHARD:
        return DEVICE_GRADIENTS;
    case BUFFER_WIRE:
        return DEVICE_COMMUNICATION;
    case BUFFER_MASTER:
    case BUFFER_MOMENT1:
    case BUFFER_MOMENT2:
        return DEVICE_OPTIMIZER;
    case BUFFER_ACTIVATION:
        return DEVICE_ACTIVATIONS;
    default:
        return DEVICE_TEMPORARIES;
    }
}

/* ---- open and close ---- */

static int take_memory(struct execute *e)
{
    const struct device_type *type = e->device.type;
    int rc = 0;
    for (int b = 1; b < PLAN_BUFFERS; b++) {
        void *memory = NULL;
        if (e->plan->bytes[b] == 0)
            continue;
        TRY(type->alloc(&e->device, class_of(b), (size_t)e->plan->bytes[b], &memory));
        e->memory[b] = e->context.base[b] = memory;
    }
    void *log = NULL;
    size_t row = SCALARS * sizeof(double);
    TRY(type->alloc(&e->device, DEVICE_TEMPORARIES, (size_t)e->max_steps * row, &log));
    e->log = log;
out:
    return rc;
}

static void free_scratch(struct execute *e)
{
    for (int b = 1; b < PLAN_BUFFERS; b++)
        if (e->scratch[b])
            e->device.type->free(&e->device, DEVICE_TEMPORARIES, e->scratch[b],
                                 (size_t)e->plan->bytes[b]);
    memset(e->scratch, 0, sizeof e->scratch);
}

/* A refusal is no failure: the variants then run on the real state. */
static void take_scratch(struct execute *e)
{
    for (int b = 1; b < PLAN_BUFFERS; b++) {
        void *memory = NULL;
        if (!is_state(b) || e->plan->bytes[b] == 0)
            continue;
        if (e->device.type->alloc(&e->device, DEVICE_TEMPORARIES, (size_t)e->plan->bytes[b],
                                  &memory) != 0) {
            fail_clear();
            free_scratch(e);
            return;
        }
        e->scratch[b] = memory;
    }
}

static int open_comms(struct execute *e, const struct execute_config *config)
{
    int rc = 0;
    for (int i = 0; i < e->plan->n_channels; i++) {
        enum axis axis = e->plan->channel[i].axis;
        const struct group *group = &e->plan->layout.group[axis];
        TRY(comm_open(&e->comm[i], config->backend->comm, config->parent, &e->device, 1 + i, axis,
                      group, e->plan->n_ops));
        e->n_comms = i + 1;
    }
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

int execute_open(struct execute *e, const struct execute_config *config)
{
    memset(e, 0, sizeof *e);
    e->plan = config->plan;
    e->kernels = config->backend->kernels;
    e->max_steps = config->max_steps;
    e->fault = config->fault;
    e->context.input = config->input;
    e->micro_after = must_alloc((size_t)config->max_steps, sizeof *e->micro_after);
    int slots = stamps_per_step(e->plan) * config->max_steps;
    int rc = 0;
    TRY(device_open(&e->device, config->backend->device, config->backend->local_rank,
                    1 + e->plan->n_channels));
    TRY(take_memory(e));
    if (config->scratch)
        take_scratch(e);
    TRY(e->device.type->reserve(&e->device, slots, queue_depth(e->plan, config->max_steps)));
    TRY(open_comms(e, config));
    if (e->kernels->open)
        TRY(e->kernels->open(&e->context, e->plan, &e->device));
out:
    return rc;
}

void execute_close(struct execute *e)
{
    if (e->device.type && e->kernels->close)
        e->kernels->close(&e->context);
    for (int i = 0; i < e->n_comms; i++)
        comm_close(&e->comm[i]);
    if (e->device.type) {
        free_scratch(e);
        for (int b = 1; b < PLAN_BUFFERS; b++)
            if (e->memory[b])
                e->device.type->free(&e->device, class_of(b), e->memory[b],
                                     (size_t)e->plan->bytes[b]);
        if (e->log)
            e->device.type->free(&e->device, DEVICE_TEMPORARIES, e->log,
                                 (size_t)e->max_steps * SCALARS * sizeof(double));
        device_close(&e->device);
    }
    free(e->micro_after);
    memset(e, 0, sizeof *e);
}

bool execute_has_scratch(const struct execute *e)
{
    return e->scratch[BUFFER_PARAMETER] != NULL;
}

/* ---- state ---- */

static void clear_buffer(struct execute *e, int buffer, const void *zeros, size_t piece)
{
    size_t bytes = (size_t)e->plan->bytes[buffer];
    for (size_t at = 0; at < bytes; at += piece)
        e->device.type->upload(&e->device, DEVICE_COMPUTE, e->memory[buffer] + at, zeros,
                               bytes - at < piece ? bytes - at : piece);
}

void execute_reset(struct execute *e, uint64_t seed)
{
    size_t piece = 1 << 20;
    for (int i = 0; i < e->plan->n_tensors; i++) {
        size_t bytes = (size_t)(e->plan->tensors[i].rows * e->plan->tensors[i].columns) * 4;
        piece = bytes > piece ? bytes : piece;
    }
    float *host = must_alloc(piece, 1);
    for (int b = 1; b < PLAN_BUFFERS; b++)
        if (is_state(b))
            clear_buffer(e, b, host, piece);
    e->device.type->sync(&e->device);
    for (int i = 0; i < e->plan->n_tensors; i++) {
        const struct plan_tensor *t = &e->plan->tensors[i];
        watchdog_at("initial values", i, "of a tensor");
        transformer_init_tensor(t, seed, host);
        e->device.type->upload(&e->device, DEVICE_COMPUTE,
                               e->memory[BUFFER_PARAMETER] + t->offset * 4, host,
                               (size_t)(t->rows * t->columns) * 4);
        e->device.type->sync(&e->device);
    }
    free(host);
    e->consumed = e->global_steps = e->micro_steps = 0;
}

void execute_download(struct execute *e, enum plan_buffer buffer, int64_t first, int64_t n,
                      float *out)
{
    e->device.type->download(&e->device, DEVICE_COMPUTE, out, e->memory[buffer] + first * 4,
                             (size_t)n * 4);
    e->device.type->sync(&e->device);
}

uint64_t execute_digest(struct execute *e)
{
    enum { PIECE = 1 << 18 }; /* floats */
    float *host = must_alloc(PIECE, sizeof *host);
    XXH3_state_t *state = XXH3_createState();
    XXH3_64bits_reset(state);
    for (int b = 1; b < PLAN_BUFFERS; b++) {
        int64_t n = is_state(b) && b != BUFFER_GRADIENT ? e->plan->bytes[b] / 4 : 0;
        for (int64_t at = 0; at < n; at += PIECE) {
            int64_t take = n - at < PIECE ? n - at : PIECE;
            execute_download(e, (enum plan_buffer)b, at, take, host);
            XXH3_64bits_update(state, host, (size_t)take * 4);
        }
    }
    uint64_t digest = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    free(host);
    return digest;
}

/* Scratch starts each block as a copy of the real state: sums over ranks cannot grow without end. */
static void bind_state(struct execute *e, enum variant variant)
{
    bool scratch = variant != VARIANT_FULL && execute_has_scratch(e);
    for (int b = 1; b < PLAN_BUFFERS; b++) {
        if (!is_state(b) || !e->memory[b])
            continue;
        e->context.base[b] = scratch ? e->scratch[b] : e->memory[b];
        if (scratch)
            e->device.type->upload(&e->device, DEVICE_COMPUTE, e->scratch[b], e->memory[b],
                                   (size_t)e->plan->bytes[b]);
    }
}

/* ---- the fence ---- */

struct launch {
    const struct op *op;
    struct execute *execute;
};

static void run_kernel(void *arg, void *native)
{
    const struct launch *launch = arg;
    launch->execute->kernels->run[launch->op->kind](launch->op, &launch->execute->context, native);
}

static void delay_start(void *arg)
{
    struct execute_fault *fault = arg;
    units_sleep_ns(fault->delay_ns);
}

static bool is_first_gradient(const struct execute *e, const struct op *op)
{
    return e->fault.delay_ns > 0 && op->t[0].buffer == BUFFER_GRADIENT && op->t[0].offset == 0;
}

static void post(struct execute *e, const struct op *op)
{
    if (is_first_gradient(e, op) && e->device.type->runs_host_tasks) {
        struct device_task task = {.start = delay_start, .arg = &e->fault};
        e->device.type->enqueue(&e->device, op->stream, &task);
    }
    struct comm_call call = {.coll = op->shape.coll.coll,
                             .send = tensor_at(&e->context, op->t[0]),
                             .recv = tensor_at(&e->context, op->t[1])};
    comm_post(&e->comm[op->stream - 1], &call, 1);
}

/* Hold the op's stream until what it waits for has finished. */
static void await_others(struct execute *e, const struct op *op, enum variant variant, int slots)
{
    for (int i = 0; i < op->n_waits; i++)
        if (op_takes_part(&e->plan->ops[op->wait[i]], variant))
            e->device.type->await(&e->device, op->stream, slots + stamp_of(op->wait[i], STAMP_END));
}

/* For the watchdog: what this op waits for, else what it is. */
static void say_where(const struct execute *e, const struct op *op, int index)
{
    int at = op->stream == DEVICE_COMPUTE && op->n_waits > 0 ? op->wait[0] : index;
    const struct op *named = &e->plan->ops[at];
    if (named->kind == OP_COLLECTIVE)
        watchdog_at(coll_name((int)named->shape.coll.coll.kind), at,
                    axis_name((int)named->shape.coll.axis));
    else
        watchdog_at(op_name((int)named->kind), at, phase_name((int)named->phase));
}

static void run_op(struct execute *e, int index, enum variant variant, int level, int slots)
{
    const struct op *op = &e->plan->ops[index];
    const struct device_type *type = e->device.type;
    bool runs = op_takes_part(op, variant) && index != e->fault.drop_op;
    bool timed_post = level > 1 && op->kind == OP_COLLECTIVE && op_takes_part(op, variant);
    if (timed_post)
        type->stamp(&e->device, DEVICE_COMPUTE, slots + stamp_of(index, STAMP_WAIT));
    say_where(e, op, index);
    if (op->n_waits > 0 && (runs || op->stream == DEVICE_COMPUTE)) {
        if (level > 0 && op->stream == DEVICE_COMPUTE)
            type->stamp(&e->device, op->stream, slots + stamp_of(index, STAMP_WAIT));
        await_others(e, op, variant, slots);
    }
    if (stamp_is_made(op, variant, level, STAMP_BEGIN))
        type->stamp(&e->device, op->stream, slots + stamp_of(index, STAMP_BEGIN));
    e->ops_given_out += runs;
    if (runs && op->kind == OP_COLLECTIVE) {
        post(e, op);
    } else if (runs) {
        e->micro_steps += op->kind == OP_INPUT && variant == VARIANT_FULL;
        struct launch launch = {op, e};
        type->launch(&e->device, op->stream, run_kernel, &launch);
    }
    if (stamp_is_made(op, variant, level, STAMP_END))
        type->stamp(&e->device, op->stream, slots + stamp_of(index, STAMP_END));
    if (timed_post)
        type->stamp(&e->device, DEVICE_COMPUTE, slots + stamp_of(index, STAMP_POSTED));
}

static void run_step(struct execute *e, enum variant variant, int level, int slots)
{
    const struct device_type *type = e->device.type;
    type->stamp(&e->device, DEVICE_COMPUTE, slots + STAMP_STEP_BEGIN);
    for (int i = 0; i < e->plan->n_ops; i++)
        run_op(e, i, variant, level, slots);
    type->stamp(&e->device, DEVICE_COMPUTE, slots + STAMP_STEP_END);
}

void execute_block(struct execute *e, enum variant variant, int level, int n_steps, int keep,
                   struct execute_samples *samples)
{
    if (n_steps > e->max_steps)
        BUG("a block of %d steps, room for %d", n_steps, e->max_steps);
    bind_state(e, variant);
    e->context.log = variant == VARIANT_FULL ? e->log : NULL;
    e->context.log_rows = e->max_steps;
    e->context.log_next = 0;
    e->device.type->sync(&e->device);
    int64_t consumed = e->consumed;
    int per_step = stamps_per_step(e->plan);

    /* The fence begins: no allocation, printing, barrier or host synchronisation until sync(). */
    for (int step = 0; step < n_steps; step++) {
        e->context.first_sample = consumed;
        run_step(e, variant, level, step * per_step);
        e->micro_after[step] = e->micro_steps;
        if (variant == VARIANT_FULL)
            consumed += e->plan->global_batch;
    }
    watchdog_at("drain", n_steps, "all streams");
    e->device.type->sync(&e->device);
    /* The fence has ended. */

    if (samples)
        stamps_to_samples(e, variant, level, n_steps, keep, samples);
    e->consumed = consumed;
    e->global_steps += variant == VARIANT_FULL ? n_steps : 0;
}

const struct kernel_work *execute_work(const struct execute *e)
{
    return &e->context.work;
}

double execute_wire_bytes(const struct execute *e, enum axis axis)
{
    double bytes = 0;
    for (int i = 0; i < e->n_comms; i++)
        if (e->comm[i].axis == axis)
            bytes += e->comm[i].posted_bytes;
    return bytes;
}
