/* Records of a profiler become unions of computation and communication of each step, found by their
 * order, and do not become anything where they do not fit. */
#include "driver/audit.h"

#include <string.h>

#include "base/err.h"
#include "driver/audit_calls.h"
#include "driver/interval.h"
#include "tests/test.h"

enum { STEPS = 4, PERIOD = 1000 };

static struct device_record record(int64_t begin, int64_t end, int stream, const char *name)
{
    struct device_record r = {.begin_ns = begin, .end_ns = end, .stream = stream};
    r.is_copy = strcmp(name, "copy") == 0;
    snprintf(r.name, sizeof r.name, "%s", name);
    return r;
}

/* A step: kernels at 0..400 and 450..900, a collective at 300..500 and one at 850..950, an input copy. */
static int64_t make(struct device_record *out)
{
    int64_t n = 0;
    for (int64_t s = 0; s < STEPS; s++) {
        int64_t at = s * PERIOD;
        out[n++] = record(at, at + 400, 0, "gemm");
        out[n++] = record(at + 10, at + 90, 2, "copy");
        out[n++] = record(at + 300, at + 500, 1, "ncclDevKernel_AllReduce");
        out[n++] = record(at + 450, at + 900, 0, "fill");
        out[n++] = record(at + 850, at + 950, -1,
                          "_Z40ncclDevKernel_AllReduce_Sum_bf16_R"); /* inside a graph */
    }
    out[n++] = record(STEPS * PERIOD + 5, STEPS * PERIOD + 9, 0, "copy"); /* the log is fetched */
    return n;
}

static void test_steps(void)
{
    struct plan plan = {.n_channels = 1};
    struct device_record records[5 * STEPS + 1];
    struct audit_row rows[STEPS] = {0};
    int64_t n = make(records);
    audit_records(&plan, records, n, STEPS, rows);
    for (int s = 0; s + 1 < STEPS; s++) {
        CHECK_EQ(rows[s].record_step_ns, PERIOD);
        CHECK_EQ(rows[s].record_compute_ns, 400 + 450);
        CHECK_EQ(rows[s].record_comm_ns, 200 + 100);
        CHECK_EQ(rows[s].record_exposed_ns, 50 + 50);
        CHECK_EQ(rows[s].records, 5);
    }
    CHECK_EQ(rows[STEPS - 1].record_step_ns, 0);           /* has no next step */
    audit_records(&plan, records + 1, n - 1, STEPS, rows); /* one kernel was lost */
    CHECK_EQ(rows[0].record_step_ns, -1);
    CHECK_EQ(rows[0].record_exposed_ns, -1);
    audit_records(&plan, records, 0, STEPS, rows);
    CHECK_EQ(rows[0].record_step_ns, -1);
}

/* ---- single calls ---- */

enum { CALLS = 4 };

/* Two streams: an all-reduce twice a step on 1; on 2 a send and a receive that are posted as one. */
static void make_plan(struct plan *plan, struct op ops[CALLS + 1])
{
    memset(ops, 0, (CALLS + 1) * sizeof *ops);
    for (int i = 0; i < CALLS; i++) {
        ops[i].kind = OP_COLLECTIVE;
        ops[i].stream = i < 2 ? 1 : 2;
        ops[i].shape.coll.axis = i < 2 ? AXIS_DP : AXIS_PP;
        ops[i].shape.coll.coll = (struct coll){.kind = COLL_ALL_REDUCE, .count = 100 << i};
    }
    ops[2].with_next = true;
    ops[CALLS].kind = OP_GEMM;
    *plan = (struct plan){.n_channels = 2, .ops = ops, .n_ops = CALLS + 1};
    plan->layout.group[AXIS_DP].size = plan->layout.group[AXIS_PP].size = 2;
}

/* Stamps begin 5 before a kernel and end 2 behind it. */
static int64_t make_calls(struct op_row *rows, struct device_record *records, int64_t *n)
{
    static const int64_t begin[CALLS] = {100, 300, 500, 520}, end[CALLS] = {180, 420, 600, 600};
    int64_t n_rows = 0;
    *n = 0;
    for (int s = 0; s < STEPS; s++)
        for (int i = 0; i < CALLS; i++) {
            int64_t at = 7000 + s * PERIOD; /* another clock */
            rows[n_rows++] = (struct op_row){
                .step = s, .op = i, .start_ns = begin[i] - 5, .duration_ns = end[i] - begin[i] + 7};
            if (i < 3)
                records[(*n)++] =
                    record(at + begin[i], at + end[i], i < 2 ? 1 : 2, "ncclDevKernel_x");
        }
    return n_rows;
}

/* 1000 (step + 1) bytes in the first call of a step, ten times as much in each that follows. */
static void make_bytes(struct call_row *calls)
{
    for (int s = 0, n = 0; s < STEPS; s++)
        for (int64_t i = 0, bytes = 1000 * (s + 1); i < CALLS; i++, bytes *= 10)
            calls[n++] = (struct call_row){.step = s, .call = (int)i, .bytes = bytes};
}

static void check_row(const struct audit_call_row *row, int op, int64_t start, int64_t duration)
{
    CHECK_EQ(row->op, op);
    CHECK_EQ(row->record_start_ns, start);
    CHECK_EQ(row->record_duration_ns, duration);
    CHECK_EQ(row->start_ns, start - 5);
    CHECK_EQ(row->rank, 3);
    CHECK_EQ(row->block, 2);
}

static void test_calls(void)
{
    struct op ops[CALLS + 1];
    struct plan plan;
    struct op_row rows[CALLS * STEPS];
    struct call_row calls[CALLS * STEPS];
    struct device_record records[CALLS * STEPS];
    struct record_point out = {0};
    int64_t first[STEPS], n, n_rows = make_calls(rows, records, &n);
    make_plan(&plan, ops);
    make_bytes(calls);
    for (int s = 0; s < STEPS; s++)
        first[s] = 7000 + s * PERIOD;
    CHECK_EQ(audit_calls(&plan, rows, n_rows, calls, records, n, first, STEPS, 3, 2, &out), 0);
    CHECK_EQ(out.audit_calls.n, 3 * (STEPS - 1)); /* the last step is left out */
    check_row(&out.audit_calls.rows[0], 0, 100, 80);
    check_row(&out.audit_calls.rows[1], 1, 300, 120);
    check_row(&out.audit_calls.rows[2 * (STEPS - 1)], 2, 500, 100);
    CHECK_EQ(out.audit_calls.rows[1].turn, 2 * (STEPS - 1));
    CHECK_EQ(out.audit_calls.rows[2].turn, 2 * (STEPS - 1) + 1);
    CHECK_EQ(out.audit_calls.rows[0].duration_ns, 87);
    for (int s = 0; s + 1 < STEPS; s++) { /* what was posted as one has the bytes of both */
        CHECK_EQ(out.audit_calls.rows[2 * s].bytes, 1000 * (s + 1));
        CHECK_EQ(out.audit_calls.rows[2 * s + 1].bytes, 10000 * (s + 1));
        CHECK_EQ(out.audit_calls.rows[2 * (STEPS - 1) + s].bytes, 1100000 * (s + 1));
    }
    records[1].stream = 0; /* a record of stream 1 is missing: only stream 2 is matched */
    record_point_release(&out);
    CHECK_EQ(audit_calls(&plan, rows, n_rows, calls, records, n, first, STEPS, 3, 2, &out),
             2 * STEPS);
    CHECK_EQ(out.audit_calls.n, STEPS - 1);
    record_point_release(&out);
}

static void test_intervals(void)
{
    struct interval list[] = {{5, 7}, {0, 2}, {1, 3}, {7, 8}, {10, 10}};
    struct interval other[] = {{2, 6}, {9, 12}};
    int n = interval_merge(list, 5);
    CHECK_EQ(n, 3);
    CHECK_EQ(list[0].begin, 0);
    CHECK_EQ(list[0].end, 3);
    CHECK_EQ(list[1].end, 8);
    CHECK_EQ(interval_length(list, n), 6);
    CHECK_EQ(interval_common(list, n, other, 2), 2);
    CHECK_EQ(interval_merge(list, 0), 0);
}

/* A device without a profiler is refused by name, before anything runs. */
static void test_refusals(void)
{
    static struct job job;
    job.backend.device = &device_cpu;
    CHECK_EQ(audit_check(&job), 0);
    job.study.audit = true;
    CHECK_EQ(audit_check(&job), FAIL_ABSENT);
    CHECK_HAS(fail_message(), "--audit: device \"cpu\" has no activity records");
    fail_clear();
}

int main(void)
{
    test_intervals();
    test_steps();
    test_calls();
    test_refusals();
    return test_end();
}
