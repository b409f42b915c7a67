#include "driver/audit_calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "driver/point_row.h"

bool audit_is_call(const struct plan *plan, const struct device_record *record)
{
    return !record->is_copy && strstr(record->name, "nccl") != NULL &&
           record->stream > DEVICE_COMPUTE && record->stream <= plan->n_channels;
}

/* Calls of one stream in their order; list has room for n_ops. */
static int64_t calls_of(const struct plan *plan, const struct op_row *ops, int64_t n_ops,
                        int stream, struct audit_call *list)
{
    int64_t n = 0;
    bool goes_on = false;
    for (int64_t i = 0; i < n_ops; i++) {
        const struct op *op = &plan->ops[ops[i].op];
        int64_t end = ops[i].start_ns + ops[i].duration_ns;
        if (op->kind != OP_COLLECTIVE || op->stream != stream)
            continue;
        if (goes_on) {
            struct audit_call *call = &list[n - 1];
            call->start_ns = ops[i].start_ns < call->start_ns ? ops[i].start_ns : call->start_ns;
            call->end_ns = end > call->end_ns ? end : call->end_ns;
        } else {
            list[n++] = (struct audit_call){ops[i].step, ops[i].op, ops[i].start_ns, end};
        }
        goes_on = op->with_next;
    }
    return n;
}

static int64_t records_of(const struct plan *plan, const struct device_record *records, int64_t n,
                          int stream, const struct device_record **list)
{
    int64_t found = 0;
    for (int64_t i = 0; i < n; i++)
        if (records[i].stream == stream && audit_is_call(plan, &records[i]))
            list[found++] = &records[i];
    return found;
}

static int count_collectives(const struct plan *plan, int end)
{
    int n = 0;
    for (int i = 0; i < end; i++)
        n += plan->ops[i].kind == OP_COLLECTIVE;
    return n;
}

/* Of all ops that are posted as one: what their rows say, which know how much was routed. */
static int64_t bytes_of(const struct plan *plan, const struct audit_call *call,
                        const struct call_row *calls)
{
    int64_t bytes = 0;
    int first = call->op, at = count_collectives(plan, first);
    calls += (int64_t)call->step * count_collectives(plan, plan->n_ops);
    for (int i = first; i < plan->n_ops; i++) {
        const struct op *op = &plan->ops[i];
        if (op->kind != OP_COLLECTIVE)
            continue;
        int index = at++;
        if (op->stream != plan->ops[first].stream)
            continue;
        bytes += calls[index].bytes;
        if (!op->with_next)
            break;
    }
    return bytes;
}

static void fill(struct audit_call_row *row, const struct plan *plan, const struct audit_call *call,
                 const struct call_row *calls, const struct device_record *record, int64_t first_ns)
{
    const struct op *op = &plan->ops[call->op];
    row->op = call->op;
    point_text(row->axis, sizeof row->axis, axis_name((int)op->shape.coll.axis));
    point_text(row->kind, sizeof row->kind, coll_name((int)op->shape.coll.coll.kind));
    row->bytes = bytes_of(plan, call, calls);
    row->start_ns = call->start_ns;
    row->duration_ns = call->end_ns - call->start_ns;
    row->record_start_ns = record->begin_ns - first_ns;
    row->record_duration_ns = record->end_ns - record->begin_ns;
}

int64_t audit_calls(const struct plan *plan, const struct op_row *ops, int64_t n_ops,
                    const struct call_row *calls, const struct device_record *records, int64_t n,
                    const int64_t *first_ns, int n_steps, int rank, int block,
                    struct record_point *out)
{
    struct audit_call *call = must_alloc((size_t)n_ops + 1, sizeof *call);
    const struct device_record **record = must_alloc((size_t)n + 1, sizeof *record);
    int64_t alone = 0;
    for (int stream = 1; stream <= plan->n_channels; stream++) {
        int64_t n_calls = calls_of(plan, ops, n_ops, stream, call);
        if (records_of(plan, records, n, stream, record) != n_calls) {
            alone += n_calls;
            continue;
        }
        for (int64_t i = 0; i < n_calls; i++) {
            if (call[i].step + 1 >= n_steps)
                continue;
            struct audit_call_row *row = RECORD_ADD(&out->audit_calls, 1);
            fill(row, plan, &call[i], calls, record[i], first_ns[call[i].step]);
            row->rank = rank;
            row->block = block;
            row->turn = block * (n_steps - 1) + call[i].step;
        }
    }
    free(call);
    free(record);
    return alone;
}
