#include "driver/audit.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "driver/agree.h"
#include "driver/audit_calls.h"
#include "driver/full_run.h"
#include "driver/interval.h"
#include "driver/point_row.h"
#include "driver/watchdog.h"

enum audit_kind { AUDIT_UNSTAMPED, AUDIT_BARE, AUDIT_INSTRUMENTED, AUDIT_AUDITED, AUDIT_KINDS };
static const char *const kind_name[AUDIT_KINDS] = {"unstamped", "bare", "instrumented", "audit"};

int audit_check(const struct job *job)
{
    const struct device_type *device = job->backend.device;
    if (job->study.audit && full_run_wanted(&job->study))
        return fail(FAIL_USAGE, "--audit: found a run (--run-steps), wanted timed steps, which it "
                                "follows");
    if (!job->study.audit || device->trace_begin != NULL)
        return 0;
    if (device->probe == NULL)
        return fail(FAIL_ABSENT,
                    "--audit: device \"%s\" has no activity records: CUPTI audits --device cuda",
                    device->name);
    return fail(FAIL_ABSENT, "--audit: this build has no CUPTI: its CUDA toolkit came without it");
}

/* ---- records of steps ---- */

static bool is_communication(const struct plan *plan, const struct device_record *record)
{
    return strstr(record->name, "nccl") != NULL || /* mangled: _Z40ncclDevKernel_... */
           (record->stream > DEVICE_COMPUTE && record->stream <= plan->n_channels);
}

/* Copies of a step bring its input; the others belong to what reads a block. */
static bool is_compute(const struct plan *plan, const struct device_record *record)
{
    return !record->is_copy && !is_communication(plan, record);
}

/* What one step did, from `begin` to the next step's begin. */
static void one_step(const struct plan *plan, const struct device_record *records, int64_t n,
                     int64_t begin, int64_t end, struct interval *work, struct audit_row *row)
{
    struct interval *compute = work, *comm = work + n;
    int n_compute = 0, n_comm = 0;
    row->records = 0;
    for (int64_t i = 0; i < n; i++) {
        const struct device_record *r = &records[i];
        struct interval at = {r->begin_ns, r->end_ns};
        if (r->begin_ns < begin || r->begin_ns >= end)
            continue;
        row->records++;
        if (is_compute(plan, r))
            compute[n_compute++] = at;
        else if (is_communication(plan, r))
            comm[n_comm++] = at;
    }
    n_compute = interval_merge(compute, n_compute);
    n_comm = interval_merge(comm, n_comm);
    row->record_step_ns = end - begin;
    row->record_compute_ns = interval_length(compute, n_compute);
    row->record_comm_ns = interval_length(comm, n_comm);
    row->record_exposed_ns =
        row->record_comm_ns - interval_common(comm, n_comm, compute, n_compute);
}

bool audit_steps(const struct plan *plan, const struct device_record *records, int64_t n,
                 int n_steps, int64_t *first)
{
    int64_t *begin = must_alloc((size_t)n + 1, sizeof *begin), n_compute = 0;
    for (int64_t i = 0; i < n; i++)
        if (is_compute(plan, &records[i]))
            begin[n_compute++] = records[i].begin_ns;
    int64_t each = n_compute / n_steps;
    bool divides = each > 0 && n_compute % n_steps == 0;
    for (int s = 0; s < n_steps && divides; s++)
        first[s] = begin[s * each];
    free(begin);
    return divides;
}

void audit_records(const struct plan *plan, const struct device_record *records, int64_t n,
                   int n_steps, struct audit_row *rows)
{
    int64_t *first = must_alloc((size_t)n_steps + 1, sizeof *first);
    struct interval *work = must_alloc(2 * (size_t)n + 1, sizeof *work);
    bool divides = audit_steps(plan, records, n, n_steps, first);
    for (int s = 0; s + 1 < n_steps; s++) {
        rows[s].records = (i32)n;
        rows[s].record_step_ns = rows[s].record_compute_ns = -1;
        rows[s].record_comm_ns = rows[s].record_exposed_ns = -1;
        if (divides)
            one_step(plan, records, n, first[s], first[s + 1], work, &rows[s]);
    }
    free(first);
    free(work);
}

/* ---- stamps of steps ---- */

/* Unions over the ops of one step that were kept: they know their times since its begin. */
static void add_stamps(const struct plan *plan, const struct execute_samples *samples, int step,
                       struct interval *work, struct audit_row *row)
{
    struct interval *compute = work, *comm = work + plan->n_ops;
    int n_compute = 0, n_comm = 0;
    for (int64_t i = 0; i < samples->rows.ops.n; i++) {
        const struct op_row *op = &samples->rows.ops.rows[i];
        struct interval at = {op->start_ns, op->start_ns + op->duration_ns};
        if (op->step != step)
            continue;
        if (plan->ops[op->op].kind == OP_COLLECTIVE)
            comm[n_comm++] = at;
        else if (plan->ops[op->op].kind != OP_INPUT)
            compute[n_compute++] = at;
    }
    n_compute = interval_merge(compute, n_compute);
    n_comm = interval_merge(comm, n_comm);
    row->compute_ns = interval_length(compute, n_compute);
    row->comm_ns = interval_length(comm, n_comm);
    row->exposed_ns = row->comm_ns - interval_common(comm, n_comm, compute, n_compute);
}

static void add_rows(struct measure *m, const struct execute_samples *samples, enum audit_kind kind,
                     int block, struct audit_row *rows)
{
    const struct plan *plan = m->execute->plan;
    struct interval *work = must_alloc(2 * (size_t)plan->n_ops + 1, sizeof *work);
    for (int s = 0; s + 1 < samples->n; s++) {
        struct audit_row *row = &rows[s];
        point_text(row->kind, sizeof row->kind, kind_name[kind]);
        row->rank = m->layout->rank;
        row->block = block;
        row->turn = block * (samples->n - 1) + s;
        row->step_ns = samples->step[s + 1].start_ns - samples->step[s].start_ns;
        row->compute_ns = row->comm_ns = row->exposed_ns = -1;
        if (kind >= AUDIT_INSTRUMENTED)
            add_stamps(plan, samples, s, work, row);
    }
    free(work);
}

/* ---- calls ---- */

static void add_calls(struct measure *m, const struct execute_samples *samples,
                      const struct device_record *records, int64_t n, int block)
{
    const struct plan *plan = m->execute->plan;
    const struct op_row *ops = samples->rows.ops.rows;
    int64_t *first = must_alloc((size_t)samples->n + 1, sizeof *first);
    if (audit_steps(plan, records, n, samples->n, first))
        audit_calls(plan, ops, samples->rows.ops.n, samples->rows.collectives.rows, records, n,
                    first, samples->n, m->layout->rank, block, &m->local);
    free(first);
}

/* ---- blocks ---- */

static int run_block(struct measure *m, enum audit_kind kind, int block)
{
    struct device *device = &m->execute->device;
    struct device_record *records = NULL;
    struct execute_samples samples;
    int64_t n = 0, lost = 0;
    int steps = (int)m->study->block + 1, rc = 0;
    int level = kind == AUDIT_UNSTAMPED ? 0 : kind == AUDIT_BARE ? (int)m->study->stamps : 2;
    int keep = kind >= AUDIT_INSTRUMENTED ? EXECUTE_KEEP_ALL : -1;
    watchdog_at("audit", block, "all ranks of the point");
    if (kind == AUDIT_AUDITED)
        rc = device->type->trace_begin(device);
    TRY(agree_quietly(rc, m->together));
    execute_block(m->execute, VARIANT_FULL, level, steps, keep, &samples);
    if (kind == AUDIT_AUDITED)
        rc = device->type->trace_end(device, &records, &n, &lost);
    struct audit_row *rows = RECORD_ADD(&m->local.audit, steps - 1);
    add_rows(m, &samples, kind, block, rows);
    for (int s = 0; s + 1 < steps; s++) {
        rows[s].record_step_ns = rows[s].record_compute_ns = -1;
        rows[s].record_comm_ns = rows[s].record_exposed_ns = -1;
        rows[s].lost = (i32)lost;
    }
    if (kind == AUDIT_AUDITED && rc == 0)
        audit_records(m->execute->plan, records, n, steps, rows);
    if (kind == AUDIT_AUDITED && rc == 0)
        add_calls(m, &samples, records, n, block);
    execute_samples_release(&samples);
    free(records);
    rc = agree_quietly(rc, m->together);
out:
    return rc;
}

/* Six rounds of the cheap kinds, whose difference is small, around one of the others. */
int audit_run(struct measure *m)
{
    static const enum audit_kind pairs[] = {AUDIT_UNSTAMPED, AUDIT_BARE, AUDIT_BARE,
                                            AUDIT_UNSTAMPED},
                                 watched[] = {AUDIT_INSTRUMENTED, AUDIT_AUDITED, AUDIT_AUDITED,
                                              AUDIT_INSTRUMENTED};
    enum { FOUR = sizeof pairs / sizeof *pairs, ROUNDS = 7, MIDDLE = 3 };
    int rc = 0;
    for (int i = 0; i < ROUNDS * FOUR && rc == 0; i++)
        rc = run_block(m, i / FOUR == MIDDLE ? watched[i % FOUR] : pairs[i % FOUR], i);
    return rc;
}
