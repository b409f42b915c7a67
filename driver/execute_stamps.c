#include "driver/execute_stamps.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "driver/interval.h"

bool stamp_is_made(const struct op *op, enum variant variant, int level, enum stamp which)
{
    bool runs = op_takes_part(op, variant);
    if (op->kind == OP_COLLECTIVE)
        return runs && (level > 0 || (which == STAMP_END && op->awaited));
    if (which == STAMP_END)
        return runs && (level > 1 || op->awaited);
    return (runs && level > 1) || (level > 0 && op->n_waits > 0); /* it ends the stall before it */
}

bool stamp_only_orders(const struct op *op, int level)
{
    return op->kind == OP_COLLECTIVE ? level == 0 : level < 2;
}

/* Level 2 of the full step makes every stamp that any other makes. */
static bool is_ever_made(const struct op *op, enum stamp which)
{
    if (which == STAMP_POSTED)
        return op->kind == OP_COLLECTIVE;
    if (which == STAMP_WAIT)
        return op->kind == OP_COLLECTIVE || (op->stream == DEVICE_COMPUTE && op->n_waits > 0);
    return stamp_is_made(op, VARIANT_FULL, 2, which);
}

void stamps_number(struct execute *e)
{
    int n_ops = e->plan->n_ops, next = STAMP_FIRST_OP;
    e->stamp_slot = must_alloc((size_t)n_ops * STAMPS_PER_OP + 1, sizeof *e->stamp_slot);
    for (int i = 0; i < n_ops; i++)
        for (int which = 0; which < STAMPS_PER_OP; which++)
            e->stamp_slot[STAMPS_PER_OP * i + which] =
                is_ever_made(&e->plan->ops[i], (enum stamp)which) ? next++ : -1;
    e->stamp_slots = next;
}

/* One step of a block while its stamps are read. */
struct reading {
    struct execute *execute;
    enum variant variant;
    int level, step, slots;
    bool graph;
    struct step_row *row;
    struct record_point *rows;
};

static int64_t when(const struct reading *r, int slot)
{
    return r->execute->device.type->when(&r->execute->device, r->slots + slot);
}

static int64_t op_when(const struct reading *r, int op, enum stamp which)
{
    return when(r, stamp_of(r->execute, op, which));
}

/* ---- intervals of one axis ---- */

static int compute_intervals(const struct reading *r, struct interval *list)
{
    int n = 0;
    for (int i = 0; i < r->execute->plan->n_ops; i++) {
        const struct op *op = &r->execute->plan->ops[i];
        if (op->kind != OP_COLLECTIVE && op->kind != OP_INPUT && op_takes_part(op, r->variant))
            list[n++] = (struct interval){op_when(r, i, STAMP_BEGIN), op_when(r, i, STAMP_END)};
    }
    return n; /* one stream: already disjoint and in order */
}

static int comm_intervals(const struct reading *r, enum axis axis, struct interval *list)
{
    int n = 0;
    for (int i = 0; i < r->execute->plan->n_ops; i++) {
        const struct op *op = &r->execute->plan->ops[i];
        if (op->kind == OP_COLLECTIVE && op->shape.coll.axis == axis)
            list[n++] = (struct interval){op_when(r, i, STAMP_BEGIN), op_when(r, i, STAMP_END)};
    }
    return interval_merge(list, n);
}

/* ---- rows ---- */

static void text(char *to, size_t size, const char *from)
{
    snprintf(to, size, "%.*s", (int)size - 1, from);
}

/* The axis of the collective that an op of the compute stream waits for; of several the one that ends
 * last, so that no wait counts twice; -1: it waits for none. */
static int waits_for(const struct reading *r, const struct op *op)
{
    int axis = -1;
    int64_t latest = INT64_MIN;
    for (int i = 0; i < op->n_waits; i++) {
        const struct op *other = &r->execute->plan->ops[op->wait[i]];
        if (other->kind != OP_COLLECTIVE)
            continue;
        int64_t end = op_when(r, op->wait[i], STAMP_END);
        if (axis < 0 || end > latest) {
            axis = (int)other->shape.coll.axis;
            latest = end;
        }
    }
    return axis;
}

/* Whether an op of the compute stream waits for its batch, and for nothing else. */
static bool waits_for_input(const struct plan *plan, const struct op *op)
{
    for (int i = 0; i < op->n_waits; i++)
        if (plan->ops[op->wait[i]].kind != OP_INPUT)
            return false;
    return op->n_waits > 0 && op->stream == DEVICE_COMPUTE;
}

/* Of a call: S, or what it was when routing had decided. */
static int64_t call_bytes(const struct reading *r, int index)
{
    const struct execute *e = r->execute;
    const struct shape_coll *shape = &e->plan->ops[index].shape.coll;
    if (shape->counted)
        return e->counted[(int64_t)r->step * e->plan->n_ops + index].bytes;
    return coll_bytes(&shape->coll, e->plan->layout.group[shape->axis].size);
}

/* What the plan says, but for calls whose parts are counted: of these what was posted. */
static int64_t wire_bytes(const struct reading *r, enum axis axis)
{
    const struct execute *e = r->execute;
    int64_t bytes = (int64_t)e->plan->totals.wire_bytes[axis];
    int size = e->plan->layout.group[axis].size;
    for (int i = 0; i < e->plan->n_ops && e->counted != NULL; i++) {
        const struct op *op = &e->plan->ops[i];
        if (op->kind == OP_COLLECTIVE && op->shape.coll.axis == axis && op->shape.coll.counted)
            bytes += e->counted[(int64_t)r->step * e->plan->n_ops + i].wire_bytes -
                     (int64_t)coll_wire_bytes(&op->shape.coll.coll, size);
    }
    return bytes;
}

static void stall_of_axis(const struct reading *r, enum axis axis, struct stall_row *row)
{
    const struct plan *plan = r->execute->plan;
    row->variant = (i32)r->variant;
    row->step = r->step;
    text(row->axis, sizeof row->axis, axis_name((int)axis));
    row->wire_bytes = wire_bytes(r, axis);
    for (int i = 0; i < plan->n_ops; i++) {
        const struct op *op = &plan->ops[i];
        if (op->stream != DEVICE_COMPUTE || waits_for(r, op) != (int)axis)
            continue;
        row->waits++;
        row->stall_ns += op_when(r, i, STAMP_BEGIN) - op_when(r, i, STAMP_WAIT);
    }
    r->row->stall_ns += row->stall_ns;
}

static void overlap_of_axis(const struct reading *r, enum axis axis, struct interval *work,
                            struct stall_row *row)
{
    int n_ops = r->execute->plan->n_ops;
    struct interval *comm = work, *compute = work + n_ops;
    int n_comm = comm_intervals(r, axis, comm);
    row->comm_ns = interval_length(comm, n_comm);
    row->exposed_ns = -1;
    if (r->level > 1)
        row->exposed_ns =
            row->comm_ns - interval_common(comm, n_comm, compute, compute_intervals(r, compute));
}

static void add_stalls(const struct reading *r, struct interval *work)
{
    const struct plan *plan = r->execute->plan;
    for (int axis = 0; axis < AXIS_COUNT; axis++) {
        if (plan->totals.calls[axis] == 0)
            continue;
        struct stall_row *row = RECORD_ADD(&r->rows->stalls, 1);
        stall_of_axis(r, (enum axis)axis, row);
        overlap_of_axis(r, (enum axis)axis, work, row);
    }
}

static void add_calls(const struct reading *r)
{
    const struct plan *plan = r->execute->plan;
    int call = 0;
    for (int i = 0; i < plan->n_ops; i++) {
        const struct op *op = &plan->ops[i];
        if (op->kind != OP_COLLECTIVE)
            continue;
        const struct coll *coll = &op->shape.coll.coll;
        struct call_row *row = RECORD_ADD(&r->rows->collectives, 1);
        row->variant = (i32)r->variant;
        row->step = r->step;
        row->call = call++;
        text(row->axis, sizeof row->axis, axis_name((int)op->shape.coll.axis));
        text(row->kind, sizeof row->kind, coll_name((int)coll->kind));
        row->group = plan->layout.group[op->shape.coll.axis].size;
        row->first = plan->layout.group[op->shape.coll.axis].first;
        row->bytes = call_bytes(r, i);
        row->start_ns = op_when(r, i, STAMP_BEGIN) - r->row->start_ns;
        row->duration_ns = op_when(r, i, STAMP_END) - op_when(r, i, STAMP_BEGIN);
    }
}

static void add_op(const struct reading *r, int index, const struct op *op, int64_t begin,
                   int64_t duration)
{
    struct op_row *row = RECORD_ADD(&r->rows->ops, 1);
    row->variant = (i32)r->variant;
    row->step = r->step;
    row->op = index;
    text(row->kind, sizeof row->kind, op_name((int)op->kind));
    text(row->phase, sizeof row->phase, phase_name((int)op->phase));
    row->layer = op->layer;
    row->micro = op->micro;
    row->start_ns = begin - r->row->start_ns;
    row->duration_ns = duration;
    if (op->kind == OP_GEMM)
        row->flops =
            2.0 * (double)op->shape.gemm.m * (double)op->shape.gemm.n * (double)op->shape.gemm.k;
    if (r->execute->kernels->elsewhere != NULL)
        row->elsewhere_bytes = r->execute->kernels->elsewhere(&r->execute->context, op);
}

/* When the host gave a stamp; long ago where nobody knows. */
static int64_t given(const struct reading *r, int slot)
{
    const struct device_type *type = r->execute->device.type;
    return type->given ? type->given(&r->execute->device, r->slots + slot) : INT64_MIN;
}

/* Of an op that the stream had reached before the host had given all of it: until then. */
static int64_t held_up(const struct reading *r, int index)
{
    int64_t begin = op_when(r, index, STAMP_BEGIN), end = op_when(r, index, STAMP_END);
    int64_t until = given(r, stamp_of(r->execute, index, STAMP_END));
    until = until < end ? until : end;
    return until > begin ? until - begin : 0;
}

/* What one op that took part adds to the terms of its step. */
static void add_term(const struct reading *r, int index, const struct op *op, int64_t duration)
{
    int64_t late = op->stream == DEVICE_COMPUTE ? held_up(r, index) : 0;
    if (waits_for_input(r->execute->plan, op))
        r->row->input_ns += op_when(r, index, STAMP_BEGIN) - op_when(r, index, STAMP_WAIT);
    if (op->kind == OP_INPUT && op->stream == DEVICE_COMPUTE)
        r->row->input_ns += duration - late;
    else if (stamps_posts(r->execute, op))
        r->row->idle_ns += op_when(r, index, STAMP_POSTED) - op_when(r, index, STAMP_WAIT);
    else if (op->stream == DEVICE_COMPUTE)
        r->row->compute_ns += duration - late;
    r->row->idle_ns += late;
}

/* Between two ops of the compute stream of a GPU: stamps, or a host that was late. */
static void add_gaps(const struct reading *r)
{
    const struct plan *plan = r->execute->plan;
    const struct device *device = &r->execute->device;
    int64_t cost = r->graph ? device->graph_stamp_ns : device->stamp_ns;
    int64_t before = r->row->start_ns;
    for (int i = 0; i <= plan->n_ops; i++) {
        const struct op *op = i < plan->n_ops ? &plan->ops[i] : NULL;
        if (op && (op->stream != DEVICE_COMPUTE || !op_takes_part(op, r->variant)))
            continue;
        enum stamp which = op && op->n_waits > 0 ? STAMP_WAIT : STAMP_BEGIN;
        int first = op ? stamp_of(r->execute, i, which) : STAMP_STEP_END;
        if (given(r, first) > before)
            r->row->idle_ns += when(r, first) - before;
        else
            r->row->stamps_ns += cost;
        before = op ? op_when(r, i, STAMP_END) : before;
    }
}

/* Closure (a): each term from stamps of its own; what no stamp covers is the residual. */
static void add_compute(const struct reading *r, bool keep)
{
    const struct plan *plan = r->execute->plan;
    for (int i = 0; i < plan->n_ops; i++) {
        const struct op *op = &plan->ops[i];
        if (!op_takes_part(op, r->variant))
            continue;
        int64_t begin = op_when(r, i, STAMP_BEGIN);
        int64_t duration = op_when(r, i, STAMP_END) - begin;
        add_term(r, i, op, duration);
        if (keep)
            add_op(r, i, op, begin, duration);
    }
    if (!r->execute->device.type->runs_host_tasks)
        add_gaps(r);
    r->row->residual_ns = r->row->end_ns - r->row->start_ns - r->row->compute_ns -
                          r->row->input_ns - r->row->stall_ns - r->row->idle_ns - r->row->stamps_ns;
}

static void add_training(const struct reading *r, const double *scalars)
{
    struct step_row *row = r->row;
    row->consumed = r->execute->consumed + (r->step + 1) * r->execute->plan->global_batch;
    row->micro_step = (i32)r->execute->micro_after[r->step];
    row->optimizer_step = (i32)(scalars[SCALAR_STEP] - scalars[SCALAR_SKIPPED]);
    row->valid_tokens = (i64)scalars[SCALAR_VALID];
    row->loss = scalars[SCALAR_LOSS_SUM] / scalars[SCALAR_VALID];
    row->grad_norm = scalars[SCALAR_NORM];
    row->lr = scalars[SCALAR_LR];
    row->skipped = (i32)scalars[SCALAR_SKIPPED];
}

static void read_step(const struct reading *r, bool keep, struct interval *work)
{
    r->row->variant = (i32)r->variant;
    r->row->step = r->step;
    r->row->start_ns = when(r, STAMP_STEP_BEGIN);
    r->row->end_ns = when(r, STAMP_STEP_END);
    r->row->flags = (r->level > 1 ? STEP_INSTRUMENTED : 0) | (r->level == 0 ? STEP_BARE : 0);
    if (r->variant != VARIANT_FULL && execute_has_scratch(r->execute))
        r->row->flags |= STEP_SCRATCH;
    r->row->flags |= r->graph ? STEP_GRAPH : 0;
    r->row->host_ns = r->execute->host_ns[r->step];
    if (r->level > 0 && r->variant != VARIANT_COMPUTE) {
        add_stalls(r, work);
        if (keep)
            add_calls(r);
    }
    if (r->level > 1)
        add_compute(r, keep);
}

/* [n_steps][SCALARS], as OP_CLIP left them. */
static double *download_log(struct execute *e, const struct execute_fence *fence)
{
    size_t values = (size_t)fence->n_steps * SCALARS;
    double *log = must_alloc(values, sizeof *log);
    if (fence->variant == VARIANT_FULL) {
        e->device.type->download(&e->device, DEVICE_COMPUTE, log, e->log, values * sizeof *log);
        e->device.type->sync(&e->device);
    }
    return log;
}

void stamps_to_samples(struct execute *e, const struct execute_fence *fence)
{
    struct execute_samples *samples = fence->samples;
    memset(samples, 0, sizeof *samples);
    samples->n = fence->n_steps;
    samples->step = must_alloc((size_t)fence->n_steps, sizeof *samples->step);
    struct interval *work = must_alloc(2 * (size_t)e->plan->n_ops, sizeof *work);
    double *log = download_log(e, fence);
    for (int step = 0; step < fence->n_steps; step++) {
        struct reading r = {.execute = e,
                            .variant = fence->variant,
                            .level = fence->level,
                            .step = step,
                            .slots = step * stamps_per_step(e),
                            .graph = fence->graph,
                            .row = &samples->step[step],
                            .rows = &samples->rows};
        read_step(&r, step == fence->keep || fence->keep == EXECUTE_KEEP_ALL, work);
        if (fence->variant == VARIANT_FULL)
            add_training(&r, log + (size_t)step * SCALARS);
    }
    free(log);
    free(work);
}

void execute_samples_release(struct execute_samples *samples)
{
    free(samples->step);
    record_point_release(&samples->rows);
    memset(samples, 0, sizeof *samples);
}
