/* Energy of a token is the counters over the tokens of the same blocks, throttled points are named,
 * and an audit says how far stamps and records lie apart. */
#include "analysis/energy.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/audit.h"
#include "analysis/audit_calls.h"
#include "tests/test.h"

enum { RANKS = 2, STEPS = 5 };

/* A block of full steps of 100 tokens each on two ranks, each rank's GPU taking `joules`. */
static void add_block(struct record_point *p, int block, int flags, double joules,
                      int64_t power_limited_ns)
{
    for (int rank = 0; rank < RANKS; rank++) {
        for (int s = 0; s < STEPS; s++) {
            struct step_row *step = RECORD_ADD(&p->steps, 1);
            *step = (struct step_row){.block = block, .step = block * STEPS + s, .rank = rank};
            step->flags = flags;
            step->valid_tokens = 100;
        }
        struct telemetry_row *row = RECORD_ADD(&p->telemetry, 1);
        strcpy(row->kind, "block");
        row->rank = rank;
        row->block = block;
        row->duration_ns = 1000000000;
        row->energy_j = joules;
        row->power_limited_ns = rank == 1 ? power_limited_ns : 0;
        row->thermal_limited_ns = -1;
        row->sm_mhz = NAN;
        row->reasons = -1;
    }
}

static void add_moment(struct record_point *p, double sm_mhz, int64_t reasons)
{
    struct telemetry_row *row = RECORD_ADD(&p->telemetry, 1);
    strcpy(row->kind, "moment");
    row->sm_mhz = sm_mhz;
    row->memory_mhz = 3201;
    row->temperature_c = 50;
    row->reasons = reasons;
    row->energy_j = NAN;
}

static void test_joules(void)
{
    struct record_point p = {.point = {.ranks = RANKS}};
    struct energy e;
    CHECK(!energy_known(&p));
    energy_of_point(&e, &p, 1);
    CHECK(isnan(e.joules_per_token.value) && isnan(e.tokens_per_joule));
    CHECK_EQ(e.nvlink_errors, -1);
    add_block(&p, 0, STEP_WARM_UP, 1e6, 0);      /* not of the steps that count */
    add_block(&p, 1, 0, 40, 0);                  /* 80 J over 500 tokens */
    add_block(&p, 2, STEP_INSTRUMENTED, 1e6, 0); /* nor these */
    energy_of_point(&e, &p, 1);
    CHECK_NEAR(e.joules_per_token.value, 0.16, 1e-12);
    CHECK_EQ(e.joules_per_token.n, 1);
    CHECK(isnan(e.joules_per_token.low)); /* a counter difference */
    CHECK_NEAR(e.power_w, 80, 1e-9);
    add_block(&p, 3, 0, 50, 0);
    add_block(&p, 4, 0, 60, 0);
    energy_of_point(&e, &p, 1);
    CHECK_NEAR(e.joules_per_token.value, 0.2, 1e-12);
    CHECK_NEAR(e.tokens_per_joule, 5, 1e-9);
    CHECK_EQ(e.joules_per_token.n, 3);
    CHECK(e.joules_per_token.low < 0.2 && e.joules_per_token.high > 0.2);
    CHECK(!energy_throttled(&e));
    p.telemetry.rows[p.telemetry.n - 1].energy_j = NAN; /* a rank that does not tell */
    energy_of_point(&e, &p, 1);
    CHECK(isnan(e.joules_per_token.value));
    record_point_release(&p);
}

/* Blocks of a long run that lie end to end are one block of its steps, with several readings. */
static void test_several_readings(void)
{
    struct record_point p = {.point = {.ranks = RANKS}};
    struct energy e;
    add_block(&p, 1, 0, 40, 0);
    add_block(&p, 1, 0, 20, 0); /* the same block: 120 J over 1000 tokens in 2 s */
    energy_of_point(&e, &p, 1);
    CHECK_NEAR(e.joules_per_token.value, 0.12, 1e-12);
    CHECK_EQ(e.joules_per_token.n, 1);
    CHECK_NEAR(e.power_w, 60, 1e-9);
    add_block(&p, 1 << 20, 0, 1e6,
              0); /* an index that no study has: left out, and no memory taken */
    energy_of_point(&e, &p, 1);
    CHECK_NEAR(e.joules_per_token.value, 0.12, 1e-12);
    record_point_release(&p);
}

static void test_throttled(void)
{
    struct record_point p = {.point = {.ranks = RANKS}};
    struct energy e;
    char text[256];
    add_block(&p, 0, 0, 40, 4000000); /* 0.4 %: no point is throttled by that */
    for (int i = 0; i < 3; i++)
        add_moment(&p, 1980, 0x1);
    energy_of_point(&e, &p, 1);
    CHECK(!energy_throttled(&e) && !energy_sentence(text, sizeof text, &e));
    CHECK_EQ(e.moments, 3);
    CHECK_NEAR(e.sm_mhz, 1980, 0);
    CHECK_NEAR(e.temperature_c, 50, 0);
    add_moment(&p, 1200, 0x4 | 0x20);
    p.telemetry.rows[p.telemetry.n - 1].temperature_c = 83;
    energy_of_point(&e, &p, 1);
    CHECK(energy_throttled(&e) && energy_sentence(text, sizeof text, &e));
    CHECK_HAS(text, "throttled: power cap, thermal (software) in 25 % of 4 moments");
    CHECK_NEAR(e.sm_least_mhz, 1200, 0);
    CHECK_NEAR(e.temperature_c, 83, 0); /* the hottest moment */
    record_point_release(&p);
    memset(&p, 0, sizeof p);
    p.point.ranks = RANKS;
    add_block(&p, 0, 0, 40, 250000000); /* no moment saw it, the counter did */
    energy_of_point(&e, &p, 1);
    CHECK(energy_throttled(&e) && energy_sentence(text, sizeof text, &e));
    CHECK_HAS(text, "the power limit held clocks down for 25 % of the time");
    record_point_release(&p);
}

static void test_errors(void)
{
    struct record_point p = {.point = {.ranks = RANKS}};
    struct energy e;
    char text[256];
    for (int rank = 0; rank < RANKS; rank++) {
        struct telemetry_row *row = RECORD_ADD(&p.telemetry, 1);
        strcpy(row->kind, "section");
        row->rank = rank;
        row->ecc_uncorrected = rank;
        row->ecc_corrected = -1;
        row->nvlink_errors = 3;
        row->sm_mhz = 1980;
        row->power_w = 700;
    }
    add_block(&p, 0, 0, 40, 0);
    energy_of_point(&e, &p, 1);
    CHECK_EQ(e.ecc_uncorrected, 1);
    CHECK_EQ(e.ecc_corrected, -1);
    CHECK_EQ(e.nvlink_errors, 6);
    CHECK_NEAR(e.sm_most_mhz, 1980, 0);
    CHECK_NEAR(e.limit_w, 700, 0);
    CHECK(energy_sentence(text, sizeof text, &e));
    CHECK_HAS(text, "1 uncorrected memory errors and 6 NVLink errors");
    record_point_release(&p);
}

/* ---- audit ---- */

static void add_step(struct record_point *p, const char *kind, int rank, int64_t step,
                     int64_t record_exposed)
{
    struct audit_row *row = RECORD_ADD(&p->audit, 1);
    strcpy(row->kind, kind);
    row->rank = rank;
    row->step_ns = step;
    row->compute_ns = 800;
    row->comm_ns = 300;
    row->exposed_ns = 100;
    row->record_step_ns = step;
    row->record_compute_ns = 795;
    row->record_comm_ns = 302;
    row->record_exposed_ns = record_exposed;
    row->lost = 0;
}

static void test_audit(void)
{
    struct record_point p = {.point = {.ranks = RANKS}};
    struct audit a;
    char text[512];
    CHECK(!audit_sentence(text, sizeof text, &p));
    for (int i = 0; i < 4; i++) {
        add_step(&p, "bare", 0, 1000, -1);
        add_step(&p, "unstamped", 0, 800, -1);
        add_step(&p, "instrumented", 1, 1010, -1);
        p.audit.rows[p.audit.n - 1].compute_ns = 790;
        add_step(&p, "audit", 0, 1100, 103);
        add_step(&p, "audit", 1, 1100, 155); /* 5 % of the step */
    }
    audit_of_point(&a, &p, 1);
    CHECK_EQ(a.steps, 4);
    CHECK_EQ(a.rank, 1);
    CHECK_EQ(a.worst, AUDIT_EXPOSED);
    CHECK_NEAR(a.off, 0.05, 1e-12);
    CHECK_NEAR(a.audit_ratio.value, 1.1, 1e-12);
    CHECK_NEAR(a.instrumented_ratio.value, 1.01, 1e-12);
    CHECK_NEAR(a.bare_ratio.value, 1.25, 1e-12);
    CHECK_NEAR(a.quiet_ns[AUDIT_COMPUTE], 790, 1e-12); /* of the worst rank */
    CHECK(a.off > AUDIT_ALLOWED);
    CHECK(audit_sentence(text, sizeof text, &p));
    CHECK_HAS(text, "apart by 5.00 % of the step");
    CHECK_HAS(text, "bare / without stamps 1.2500 (1.2500 to 1.2500)");
    for (int64_t i = 0; i < p.audit.n; i++)
        p.audit.rows[i].record_step_ns = p.audit.rows[i].record_compute_ns =
            p.audit.rows[i].record_comm_ns = p.audit.rows[i].record_exposed_ns = -1;
    audit_of_point(&a, &p, 1);
    CHECK_EQ(a.steps, 0);
    CHECK(audit_sentence(text, sizeof text, &p));
    CHECK_HAS(text, "no records that fit its steps");
    record_point_release(&p);
}

/* ---- single calls ---- */

static void add_call(struct record_point *p, int64_t bytes, int64_t off_start, int64_t off_end)
{
    struct audit_call_row *row = RECORD_ADD(&p->audit_calls, 1);
    strcpy(row->axis, "dp");
    strcpy(row->kind, "all-reduce");
    row->bytes = bytes;
    row->record_start_ns = 10000;
    row->record_duration_ns = bytes;
    row->start_ns = 10000 + off_start;
    row->duration_ns = bytes + off_end - off_start;
}

static void test_calls(void)
{
    struct record_point p = {.point = {.ranks = RANKS}};
    struct audit_group groups[AUDIT_GROUPS];
    int left_out = 0;
    CHECK_EQ(audit_groups(groups, &p, &left_out), 0);
    for (int i = 0; i < 101; i++) {
        add_call(&p, 50000, -10 * i, 2000); /* starts 0 to 1 us early, ends 2 us late */
        add_call(&p, 90000, 0, 0);
    }
    CHECK_EQ(audit_groups(groups, &p, &left_out), 2);
    CHECK_EQ(left_out, 0);
    CHECK_EQ(groups[0].n, 101);
    CHECK_NEAR(groups[0].records_us, 50, 1e-9);
    CHECK_NEAR(groups[0].stamps_us, 52.5, 1e-9);
    CHECK_NEAR(groups[0].ratio, 52.5 / 50, 1e-12);
    CHECK_NEAR(groups[0].middle[AUDIT_START], -0.5, 1e-9);
    CHECK_NEAR(groups[0].low[AUDIT_START], -0.95, 0.011);
    CHECK_NEAR(groups[0].high[AUDIT_START], -0.05, 0.011);
    CHECK_NEAR(groups[0].high[AUDIT_END], 2, 1e-9);
    CHECK_NEAR(groups[0].middle[AUDIT_DURATION], 2.5, 1e-9);
    CHECK_NEAR(groups[1].ratio, 1, 1e-12);
    for (int i = 0; i < AUDIT_GROUPS; i++)
        add_call(&p, 100 + i, 0, 0);
    CHECK_EQ(audit_groups(groups, &p, &left_out), AUDIT_GROUPS);
    CHECK_EQ(left_out, 2);
    record_point_release(&p);
}

int main(void)
{
    test_joules();
    test_several_readings();
    test_throttled();
    test_errors();
    test_audit();
    test_calls();
    return test_end();
}
