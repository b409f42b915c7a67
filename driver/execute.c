#include "driver/execute.h"

#include "base/err.h"
#include "base/ranges.h"
#include "base/units.h"
#include "driver/execute_fence.h"
#include "driver/execute_graph.h"
#include "driver/execute_input.h"
#include "driver/execute_stamps.h"
#include "driver/watchdog.h"

/* ---- the fence ---- */

/* Scratch starts each block as a copy of the real state: sums over ranks cannot grow without end. */
static void bind_state(struct execute *e, enum variant variant)
{
    bool scratch = variant != VARIANT_FULL && execute_has_scratch(e);
    for (int b = 1; b < PLAN_BUFFERS; b++) {
        if (!execute_is_state(b) || !e->memory[b])
            continue;
        e->context.base[b] = scratch ? e->scratch[b] : e->memory[b];
        if (scratch)
            e->device.type->upload(&e->device, DEVICE_COMPUTE, e->scratch[b], e->memory[b],
                                   (size_t)e->plan->bytes[b]);
    }
}

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

static bool sums_gradients(const struct op *op)
{
    if (op->kind != OP_COLLECTIVE || op->phase != PHASE_REDUCE)
        return false;
    const struct coll *coll = &op->shape.coll.coll;
    enum axis axis = op->shape.coll.axis;
    return coll->kind == COLL_REDUCE_SCATTER ||
           (coll->kind == COLL_ALL_REDUCE && coll->dtype != DTYPE_F64 &&
            (axis == AXIS_DP || axis == AXIS_DPCP));
}

/* Where gradients come and go in the arena of activations: the first call that sums some. */
static bool is_first_gradient(const struct execute *e, const struct op *op)
{
    if (e->fault.delay_ns <= 0)
        return false;
    if (!e->plan->packed || !e->plan->passing[BUFFER_GRADIENT])
        return op->t[0].buffer == BUFFER_GRADIENT && op->t[0].offset == 0;
    for (const struct op *first = e->plan->ops; first <= op; first++)
        if (sums_gradients(first))
            return op == first;
    return false;
}

static void keep_counted(struct execute *e, const struct op *op, const struct coll *call, int step)
{
    int n = e->plan->layout.group[op->shape.coll.axis].size;
    int64_t sent = coll_send_count(call, n), received = coll_recv_count(call, n);
    e->counted[(int64_t)step * e->plan->n_ops + (op - e->plan->ops)] = (struct execute_counted){
        .bytes = (sent > received ? sent : received) * (int64_t)dtype_size((int)call->dtype),
        .wire_bytes = (int64_t)coll_wire_bytes(call, n)};
}

/* Calls that are one post gather until the last of them. */
static void post(struct execute *e, const struct op *op, int step)
{
    if (is_first_gradient(e, op) && e->device.type->runs_host_tasks) {
        struct device_task task = {.start = delay_start, .arg = &e->fault};
        e->device.type->enqueue(&e->device, op->stream, &task);
    } else if (is_first_gradient(e, op) && e->device.type->notify != NULL) {
        e->device.type->notify(&e->device, op->stream, delay_start, &e->fault);
    }
    const struct shape_coll *shape = &op->shape.coll;
    struct comm_call call = {.coll = shape_call(shape, &e->plan->layout.group[shape->axis]),
                             .send = tensor_at(&e->context, op->t[0]),
                             .recv = tensor_at(&e->context, op->t[1])};
    if (shape->counted)
        keep_counted(e, op, &call.coll, step);
    e->group[e->n_group++] = call;
}

static void post_group(struct execute *e, const struct op *op)
{
    comm_post(&e->posts[op->stream - 1], e->group, e->n_group);
    e->n_group = 0;
}

/* Hold the op's stream until what it waits for has finished. */
static void await_others(struct execute *e, const struct op *op, enum variant variant, int slots)
{
    for (int i = 0; i < op->n_waits; i++)
        if (op_takes_part(&e->plan->ops[op->wait[i]], variant))
            e->device.type->await(&e->device, op->stream,
                                  slots + stamp_of(e, op->wait[i], STAMP_END));
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

static void stamp_end(struct execute *e, int index, enum variant variant, int level, int slots)
{
    const struct op *op = &e->plan->ops[index];
    if (stamp_is_made(op, variant, level, STAMP_END))
        (stamp_only_orders(op, level) ? device_mark : e->device.type->stamp)(
            &e->device, op->stream, slots + stamp_of(e, index, STAMP_END));
}

static void run_op(struct execute *e, int index, enum variant variant, int level, int slots)
{
    const struct op *op = &e->plan->ops[index];
    const struct device_type *type = e->device.type;
    bool runs = op_takes_part(op, variant) && index != e->fault.drop_op;
    bool timed_post = level > 1 && stamps_posts(e, op) && op_takes_part(op, variant);
    if (timed_post)
        type->stamp(&e->device, DEVICE_COMPUTE, slots + stamp_of(e, index, STAMP_WAIT));
    say_where(e, op, index);
    if (op->n_waits > 0 && (runs || op->stream == DEVICE_COMPUTE)) {
        if (level > 0 && op->stream == DEVICE_COMPUTE)
            type->stamp(&e->device, op->stream, slots + stamp_of(e, index, STAMP_WAIT));
        await_others(e, op, variant, slots);
    }
    if (stamp_is_made(op, variant, level, STAMP_BEGIN))
        type->stamp(&e->device, op->stream, slots + stamp_of(e, index, STAMP_BEGIN));
    e->ops_given_out += runs;
    if (runs && op->kind == OP_COLLECTIVE) {
        post(e, op, slots / stamps_per_step(e));
    } else if (runs) {
        struct launch launch = {op, e};
        type->launch(&e->device, op->stream, run_kernel, &launch);
    }
    if (runs && op->kind == OP_ROUTE && variant == VARIANT_FULL && e->routed.take != NULL)
        e->routed.take(e->routed.arg, op);
    if (op->kind == OP_COLLECTIVE && !op->with_next)
        post_group(e, op);
    int first = op->with_next ? index + 1 : index;
    while (first > 0 && first <= index && e->plan->ops[first - 1].with_next)
        first--;
    for (int i = first; i <= index; i++) /* of calls of one post, behind all of it */
        stamp_end(e, i, variant, level, slots);
    if (timed_post)
        type->stamp(&e->device, DEVICE_COMPUTE, slots + stamp_of(e, index, STAMP_POSTED));
}

/* Ops of one phase that follow each other are a range for profilers. */
static int execute_phase(int before, int now)
{
    if (now != before && before >= 0)
        ranges_pop();
    if (now != before && now >= 0)
        ranges_push(phase_name(now));
    return now;
}

void execute_step(struct execute *e, enum variant variant, int level, int slots)
{
    const struct device_type *type = e->device.type;
    bool watched = e->hook.update != NULL && variant == VARIANT_FULL;
    int phase = -1;
    ranges_push("step");
    type->stamp(&e->device, DEVICE_COMPUTE, slots + STAMP_STEP_BEGIN);
    for (int i = 0, piece = 0; i < e->plan->n_ops; i++) {
        phase = execute_phase(phase, (int)e->plan->ops[i].phase);
        if (watched && e->plan->ops[i].kind == OP_ADAMW)
            e->hook.update(e->hook.arg, piece++);
        run_op(e, i, variant, level, slots);
    }
    type->stamp(&e->device, DEVICE_COMPUTE, slots + STAMP_STEP_END);
    e->micro_steps += variant == VARIANT_FULL ? e->plan->micro_batches : 0;
    execute_phase(phase, -1);
    ranges_pop();
}

static void check_alive(struct comm *comms, int n)
{
    for (int i = 0; i < n; i++)
        if (comms[i].type->alive != NULL && comms[i].type->alive(&comms[i]) != 0)
            die(FAIL_COMM, "%s", fail_message());
}

void execute_alive(void *arg)
{
    struct execute *e = arg;
    check_alive(e->comm, e->n_comms);
    if (e->graphs != NULL)
        check_alive(e->graphs->comm, e->graphs->n_comms);
}

/* Until every stream is empty; a communicator that has failed meanwhile ends the job in words. */
static void drain(struct execute *e)
{
    const struct device_type *type = e->device.type;
    e->fence_waits += e->device.host_waits - e->waits_before;
    while (type->idle != NULL && !type->idle(&e->device)) {
        execute_alive(e);
        units_sleep_ns(20000);
    }
    type->sync(&e->device);
}

void execute_bind(struct execute *e, enum variant variant)
{
    bind_state(e, variant);
    e->context.log = variant == VARIANT_FULL ? e->log : NULL;
    e->context.keep_counts = variant != VARIANT_FULL;
    e->context.log_rows = e->max_steps;
    e->context.log_next = 0;
}

void execute_fence_begin(struct execute *e, struct execute_fence *fence)
{
    if (fence->n_steps > e->max_steps)
        BUG("a block of %d steps, room for %d", fence->n_steps, e->max_steps);
    execute_bind(e, fence->variant);
    e->device.type->sync(&e->device);
    fence->taken = execute_input_begin(e, fence->variant, fence->n_steps);
    e->waits_before = e->device.host_waits;
}

void execute_step_begin(struct execute *e, struct execute_fence *fence, int step)
{
    fence->begun_ns = units_now_ns();
    e->waited_before = e->context.waited_ns;
    e->context.first_sample = fence->taken.first + step * fence->taken.stride;
}

void execute_step_end(struct execute *e, struct execute_fence *fence, int step)
{
    e->micro_after[step] = e->micro_steps;
    e->host_ns[step] = units_now_ns() - fence->begun_ns - (e->context.waited_ns - e->waited_before);
}

void execute_fence_end(struct execute *e, struct execute_fence *fence)
{
    watchdog_at("drain", fence->n_steps, "all streams");
    drain(e);
    if (fence->samples)
        stamps_to_samples(e, fence);
    execute_input_end(e, fence->variant, fence->n_steps, fence->samples);
    if (fence->variant != VARIANT_FULL)
        return;
    e->consumed += fence->n_steps * e->plan->global_batch;
    e->global_steps += fence->n_steps;
}

void execute_block(struct execute *e, enum variant variant, int level, int n_steps, int keep,
                   struct execute_samples *samples)
{
    struct execute_fence fence = {
        .variant = variant, .level = level, .n_steps = n_steps, .keep = keep, .samples = samples};
    execute_fence_begin(e, &fence);
    for (int step = 0; step < n_steps; step++) {
        execute_step_begin(e, &fence, step);
        if (e->hook.step != NULL && variant == VARIANT_FULL)
            e->hook.step(e->hook.arg, step);
        execute_step(e, variant, level, step * stamps_per_step(e));
        execute_step_end(e, &fence, step);
    }
    execute_fence_end(e, &fence);
}
