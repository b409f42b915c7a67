/* Records of a profiler become unions of computation and communication of each step, found by their
 * order, and do not become anything where they do not fit. */
#include "driver/audit.h"

#include <string.h>

#include "base/err.h"
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
    test_refusals();
    return test_end();
}
