/*
 * audit_calls: single collectives of an audited block, by their stamps and by the profiler's records.
 *
 * The k-th call of a communication stream is the k-th kernel of the library on that stream: on both
 * sides in the order in which they ran, all steps of the block together. Calls that the plan posts as
 * one are one kernel. A stream whose counts differ (a call that is several kernels, or none; records
 * that were lost or belong to a graph, which names no stream) gives no rows.
 */
#ifndef DRIVER_AUDIT_CALLS_H
#define DRIVER_AUDIT_CALLS_H

#include "analysis/record.h"
#include "base/device.h"
#include "workloads/plan.h"

/* One call, or several that are posted as one: as stamps have it, since its step's start. */
struct audit_call {
    int step, op; /* the first of them */
    int64_t start_ns, end_ns;
};

/* Kernels of a communication library on a stream of the plan's. */
bool audit_is_call(const struct plan *plan, const struct device_record *record);

/*
 * Arithmetic alone. `ops` and `calls`: all ops and collectives of a block of n_steps steps, as their
 * rows were kept, in order of step and op;
 * first_ns[n_steps]: begin of each step's first kernel. Appends to out->audit_calls, whose rows get
 * rank and block; the last step is left out. Returns how many calls found no record.
 */
int64_t audit_calls(const struct plan *plan, const struct op_row *ops, int64_t n_ops,
                    const struct call_row *calls, const struct device_record *records, int64_t n,
                    const int64_t *first_ns, int n_steps, int rank, int block,
                    struct record_point *out);

#endif
