/* Energy of a token is the counters over the tokens of the same blocks, throttled points are named,
 * and an audit says how far stamps and records lie apart. */
#include "analysis/energy.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/audit.h"
#include "analysis/audit_calls.h"
#include "analysis/energy_steps.h"
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
    CHECK_NEAR(energy_unread(300, 3, 2), 1.96 * 300 * 0.1 / 6, 1e-9);
    CHECK(!energy_throttled(&e));
    p.telemetry.rows[p.telemetry.n - 1].energy_j = NAN; /* a rank that does not tell */
    energy_of_point(&e, &p, 1);
    CHECK(isnan(e.joules_per_token.value));
    record_point_release(&p);
}

/* Blocks that agree are no better known than their readings are old. */
static void test_joules_read(void)
{
    struct record_point p = {.point = {.ranks = RANKS}};
    struct energy e;
    for (int block = 0; block < 3; block++)
        add_block(&p, block, 0, 50, 0); /* 100 J over 500 tokens in 1 s */
    energy_of_point(&e, &p, 1);
    double half = 1.96 * 50 * 0.1 / 6 * 2 / 500;
    CHECK_NEAR(e.joules_per_token.low, 0.2 - half, 1e-12);
    CHECK_NEAR(e.joules_per_token.high, 0.2 + half, 1e-12);
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

/* ---- joules of a step, by kind ---- */

/* A block of STEPS + 1 steps of 0.1 s, the first a lead-in; rank r's GPU takes joules[r] a step. */
static void add_kind(struct record_point *p, int block, int variant, int flags,
                     const double joules[RANKS])
{
    for (int rank = 0; rank < RANKS; rank++) {
        for (int s = 0; s <= STEPS; s++) {
            struct step_row *step = RECORD_ADD(&p->steps, 1);
            *step = (struct step_row){.variant = variant, .block = block, .rank = rank};
            step->flags = flags | (s == 0 ? STEP_LEAD_IN : 0);
            step->valid_tokens = variant == VARIANT_FULL ? 100 : 0;
        }
        struct telemetry_row *row = RECORD_ADD(&p->telemetry, 1);
        strcpy(row->kind, "block");
        row->rank = rank;
        row->block = block;
        row->duration_ns = (STEPS + 1) * INT64_C(100000000) * (1 + rank);
        row->energy_j = (STEPS + 1) * joules[rank];
        row->power_limited_ns = rank == 1 ? row->duration_ns * 3 / 4 : 0;
        row->thermal_limited_ns = -1;
        row->sm_mhz = NAN;
    }
}

static void add_limits(struct record_point *p, double first, double second)
{
    const double limits[RANKS] = {first, second};
    for (int rank = 0; rank < RANKS; rank++) {
        struct telemetry_row *row = RECORD_ADD(&p->telemetry, 1);
        strcpy(row->kind, "section");
        row->rank = rank;
        row->energy_j = NAN;
        row->power_w = limits[rank];
        row->sm_mhz = NAN;
    }
}

/* Three cycles: full 40 and 60 J, instrumented 44 and 64, compute-only 30 and 52, communication alone 2
 * and 4, graphs 38 and 58; the machine drifts by 10 J a cycle. Rank 1 is slower by half. */
static void plant(struct record_point *p, bool drift)
{
    static const struct {
        int variant, flags;
        double joules[RANKS];
    } kinds[] = {{VARIANT_FULL, 0, {40, 60}},
                 {VARIANT_FULL, STEP_GRAPH | STEP_INSTRUMENTED, {38, 58}},
                 {VARIANT_COMPUTE, STEP_INSTRUMENTED | STEP_SCRATCH, {30, 52}},
                 {VARIANT_COMM, STEP_SCRATCH, {2, 4}},
                 {VARIANT_FULL, STEP_INSTRUMENTED, {44, 64}}};
    const double far_off[RANKS] = {1e6, 1e6};
    int block = 0;
    *p = (struct record_point){.point = {.ranks = RANKS}};
    add_kind(p, block++, VARIANT_FULL, STEP_WARM_UP, far_off);
    for (int cycle = 0; cycle < 3; cycle++)
        for (int k = 0; k < 5; k++) {
            double joules[RANKS];
            for (int r = 0; r < RANKS; r++)
                joules[r] = kinds[k].joules[r] + (drift ? 10.0 * (cycle - 1) : 0);
            add_kind(p, block++, kinds[k].variant, kinds[k].flags, joules);
        }
}

static void check_kind(const struct energy_steps *e, enum energy_kind kind, double mean,
                       double most)
{
    const struct energy_step *step = &e->kind[kind];
    CHECK_EQ(step->joules.n, 3);
    CHECK_NEAR(step->joules.value, mean, 1e-9);
    CHECK_NEAR(step->most_joules, most, 1e-9);
    CHECK_EQ(step->most_rank, 1);
    CHECK_NEAR(step->step_ns, 1e8, 1e-3);
    CHECK_NEAR(step->block_ns, 6e8, 1e-3);
    CHECK_NEAR(step->held_share, 0.75, 1e-12);
    CHECK_NEAR(step->power_w, mean / 0.15, 1e-6);                  /* 2 x mean in 0.1 + 0.2 s */
    double age = 1.96 * mean / 0.15 * 0.1 / sqrt(6) / 6 / sqrt(6); /* 6 steps; 3 blocks of 2 GPUs */
    CHECK_NEAR(step->joules.low, mean - age, 1e-9);
    CHECK_NEAR(step->joules.high, mean + age, 1e-9);
}

static void test_steps(void)
{
    struct record_point p;
    struct energy e;
    plant(&p, false);
    add_limits(&p, 500, 250);
    energy_of_point(&e, &p, 1);
    const struct energy_steps *s = &e.steps;
    check_kind(s, ENERGY_FULL, 50, 60);
    check_kind(s, ENERGY_INSTRUMENTED, 54, 64);
    check_kind(s, ENERGY_COMPUTE, 41, 52);
    check_kind(s, ENERGY_COMM, 3, 4);
    check_kind(s, ENERGY_GRAPH, 48, 58);
    CHECK_EQ(s->full, ENERGY_FULL);
    CHECK_NEAR(s->limit_w, 375, 1e-9);
    CHECK_NEAR(s->bound_ns, 240e6, 1e-3); /* 60 J at 250 W, 40 J at 500 W are 80 ms */
    CHECK_EQ(s->bound_rank, 1);
    CHECK_NEAR(s->bound_share, 1.2, 1e-9); /* of its 200 ms */
    CHECK_NEAR(s->comm_joules.value, 13, 1e-9);
    CHECK_EQ(s->comm_joules.n, 3);
    CHECK_NEAR(s->comm_ns, 13.0 / 375 * 1e9, 1);
    double width = 1.96 * 0.1 / 0.15 / 36 * sqrt(54 * 54 + 41 * 41);
    CHECK_NEAR(s->comm_joules.low, 13 - width, 1e-9);
    CHECK_NEAR(s->comm_joules.high, 13 + width, 1e-9);
    record_point_release(&p);
}

/* Blocks that differ more than readings are old: a t interval on logarithms, by hand; but pairs of
 * neighbours do not differ, nor does what communication takes. */
static void test_steps_drift(void)
{
    struct record_point p;
    struct energy e;
    plant(&p, true);
    add_limits(&p, 700, 700);
    energy_of_point(&e, &p, 1);
    const struct energy_step *full = &e.steps.kind[ENERGY_FULL];
    double x[3] = {log(40), log(50), log(60)}, mean = (x[0] + x[1] + x[2]) / 3, squares = 0;
    for (int i = 0; i < 3; i++)
        squares += (x[i] - mean) * (x[i] - mean);
    double half = 4.302653 * sqrt(squares / 2 / 3);
    CHECK_NEAR(full->joules.value, 50, 1e-9);
    CHECK(full->joules.low <= exp(mean - half) + 1 && full->joules.low > 0);
    CHECK(full->joules.high >= exp(mean + half) - 1);
    CHECK_NEAR(e.steps.comm_joules.value, 13, 1e-9);
    CHECK(e.steps.comm_joules.low > 9 && e.steps.comm_joules.high < 17);
    record_point_release(&p);
}

/* Rows of a kind, as a variant that nobody measured would leave them: none. */
static void drop(struct record_point *p, int variant, int flags)
{
    for (int64_t i = 0; i < p->steps.n; i++) {
        struct step_row *step = &p->steps.rows[i];
        if (step->variant == variant && (step->flags & ~STEP_LEAD_IN) == flags)
            step->rank = -1;
    }
}

static void test_steps_missing(void)
{
    struct record_point p;
    struct energy e;
    const int elided = STEP_INSTRUMENTED | STEP_SCRATCH;
    plant(&p, false);
    add_limits(&p, 500, NAN);
    energy_of_point(&e, &p, 1);
    CHECK(isnan(e.steps.bound_ns) && isnan(e.steps.bound_share) && isnan(e.steps.comm_ns));
    CHECK_EQ(e.steps.bound_rank, -1);
    CHECK_NEAR(e.steps.comm_joules.value, 13, 1e-9); /* joules need no limit */
    drop(&p, VARIANT_FULL, 0);
    energy_of_point(&e, &p, 1);
    CHECK_EQ(e.steps.full, ENERGY_INSTRUMENTED);
    CHECK_EQ(e.steps.kind[ENERGY_FULL].joules.n, 0);
    CHECK(isnan(e.steps.kind[ENERGY_FULL].joules.value));
    drop(&p, VARIANT_COMPUTE, elided);
    energy_of_point(&e, &p, 1);
    CHECK(isnan(e.steps.comm_joules.value) && isnan(e.steps.comm_joules.low));
    CHECK_EQ(e.steps.kind[ENERGY_COMPUTE].joules.n, 0);
    record_point_release(&p);
    plant(&p, false);
    drop(&p, VARIANT_FULL, STEP_INSTRUMENTED);
    energy_of_point(&e, &p, 1);
    CHECK(isnan(e.steps.comm_joules.value)); /* plain full steps have other stamps */
    record_point_release(&p);
}

/* Who does not tell is not left out of a mean in silence, and two blocks make no interval. */
static void test_steps_untold(void)
{
    struct record_point p = {.point = {.ranks = RANKS}};
    const double joules[RANKS] = {40, 60};
    struct energy e;
    energy_of_point(&e, &p, 1);
    CHECK(isnan(e.steps.kind[ENERGY_FULL].joules.value) && isnan(e.steps.bound_ns));
    add_kind(&p, 0, VARIANT_FULL, 0, joules);
    add_kind(&p, 1, VARIANT_FULL, 0, joules);
    add_limits(&p, 700, 700);
    energy_of_point(&e, &p, 1);
    CHECK_NEAR(e.steps.kind[ENERGY_FULL].joules.value, 50, 1e-9);
    CHECK(isnan(e.steps.kind[ENERGY_FULL].joules.low));
    p.telemetry.n -= RANKS + 1; /* rank 1 has no counters in the second block */
    energy_of_point(&e, &p, 1);
    CHECK_EQ(e.steps.kind[ENERGY_FULL].joules.n, 1);
    CHECK_NEAR(e.steps.kind[ENERGY_FULL].joules.value, 50, 1e-9);
    p.telemetry.rows[1].energy_j = NAN; /* and none of energy in the first */
    energy_of_point(&e, &p, 1);
    CHECK(isnan(e.steps.kind[ENERGY_FULL].joules.value));
    CHECK(isnan(e.steps.kind[ENERGY_FULL].most_joules) && isnan(e.steps.bound_ns));
    CHECK_EQ(e.steps.kind[ENERGY_FULL].most_rank, -1);
    p.telemetry.rows[0].block = -1; /* what no study has is nobody's */
    p.telemetry.rows[1].rank = RANKS;
    energy_of_point(&e, &p, 1);
    CHECK_EQ(e.steps.kind[ENERGY_FULL].joules.n, 0);
    record_point_release(&p);
}

/* One rank talks to nobody. */
static void test_steps_alone(void)
{
    struct record_point p;
    struct energy e;
    plant(&p, false);
    for (int64_t i = 0; i < p.telemetry.n; i++)
        p.telemetry.rows[i].rank = p.telemetry.rows[i].rank == 0 ? 0 : -1;
    p.point.ranks = 1;
    energy_of_point(&e, &p, 1);
    CHECK_NEAR(e.steps.kind[ENERGY_FULL].joules.value, 40, 1e-9);
    CHECK(isnan(e.steps.comm_joules.value) && isnan(e.steps.comm_ns));
    record_point_release(&p);
}

static void test_steps_words(void)
{
    struct energy_steps e = {.limit_w = 700,
                             .bound_ns = 321.4e6,
                             .bound_share = 321.4 / 323.0,
                             .bound_rank = 1,
                             .comm_joules = {12, 9, 15, 4},
                             .comm_ns = 17.14e6};
    char text[512];
    e.kind[ENERGY_FULL].held_share = 0.5; /* not for more than half of the time */
    CHECK(!energy_steps_sentence(text, sizeof text, &e));
    e.kind[ENERGY_FULL].held_share = 0.98;
    CHECK(energy_steps_sentence(text, sizeof text, &e));
    CHECK_HAS(text,
              "held by the power limit for 98 % of the time of full steps: 225 J a step (rank "
              "1) at 700 W are 321.4 of its 323 ms; communication takes 12 J a GPU (9 to 15), "
              "17.1 ms");
    e.comm_joules.low = -1;
    CHECK(energy_steps_sentence(text, sizeof text, &e));
    CHECK_HAS(text, "what communication takes is not told from 0: -1 to 15 J a GPU");
    e.comm_joules.low = e.comm_joules.high = NAN;
    CHECK(energy_steps_sentence(text, sizeof text, &e));
    CHECK_HAS(text, "communication takes 12 J a GPU, 17.1 ms, without an interval");
    e.comm_joules.value = NAN;
    e.bound_share = 321.4 / 320.0; /* the counter is no better than that */
    CHECK(energy_steps_sentence(text, sizeof text, &e));
    CHECK_HAS(text, "at 700 W are all of its 320 ms (321.4)");
    CHECK(strstr(text, "communication") == NULL);
    CHECK(energy_steps_sentence(text, 20, &e) && strlen(text) == 19);
    e.bound_rank = -1; /* of several launches */
    CHECK(energy_steps_sentence(text, sizeof text, &e));
    CHECK_HAS(text, " J a step at 700 W");
    /* What a file may say, and what energy does not decide. */
    static const double none[][3] = {/* held, bound_ns, bound_share */
                                     {0.98, NAN, 1},      {0.98, INFINITY, 1}, {0.98, 1e8, NAN},
                                     {0.98, 1e8, 0.8999}, {INFINITY, 1e8, 1},  {NAN, 1e8, 1},
                                     {0.98, 0, 0.95},     {0.98, -1e8, 1}};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        e.kind[ENERGY_FULL].held_share = none[i][0];
        e.bound_ns = none[i][1];
        e.bound_share = none[i][2];
        CHECK(!energy_steps_sentence(text, sizeof text, &e));
    }
}

static void test_steps_join(void)
{
    struct record_point p;
    struct energy one, two;
    struct energy_steps sum;
    plant(&p, false);
    add_limits(&p, 500, 500);
    energy_of_point(&one, &p, 1);
    for (int64_t i = 0; i < p.telemetry.n; i++)
        p.telemetry.rows[i].energy_j *= p.telemetry.rows[i].rank == 0 ? 3 : 1;
    energy_of_point(&two, &p, 1);
    const struct energy_steps *launches[] = {&one.steps, &two.steps};
    energy_steps_join(&sum, launches, 2);
    CHECK_NEAR(sum.kind[ENERGY_FULL].joules.value, (50 + 90) / 2.0, 1e-9);
    const struct stats_interval *a = &one.steps.kind[ENERGY_FULL].joules;
    const struct stats_interval *b = &two.steps.kind[ENERGY_FULL].joules;
    CHECK_NEAR(sum.kind[ENERGY_FULL].joules.low, /* of two: within a launch */
               70 - hypot(a->value - a->low, b->value - b->low) / 2, 1e-9);
    CHECK_EQ(sum.kind[ENERGY_FULL].joules.n, 6);
    CHECK_NEAR(sum.kind[ENERGY_FULL].most_joules, 120, 1e-9);
    CHECK_EQ(sum.kind[ENERGY_FULL].most_rank, 0);
    CHECK_NEAR(sum.kind[ENERGY_FULL].step_ns, 1e8, 1e-3);
    CHECK_NEAR(sum.bound_ns, (120e6 + 240e6) / 2, 1e-3);
    CHECK_EQ(sum.bound_rank, -1);                             /* one launch's rank and another's */
    CHECK_NEAR(sum.comm_joules.value, (13 + 27) / 2.0, 1e-9); /* two: (132 - 90 + 64 - 52) / 2 */
    two.steps.kind[ENERGY_FULL].joules.value = NAN;
    energy_steps_join(&sum, launches, 2);
    CHECK(isnan(sum.kind[ENERGY_FULL].joules.value));
    energy_steps_join(&sum, launches, 1);
    CHECK_NEAR(sum.kind[ENERGY_FULL].joules.value, 50, 1e-9);
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
    for (int64_t i = 0, seen = 0; i < p.audit.n;
         i++) /* one step of them bounds nothing; none, no ratio */
        if (strcmp(p.audit.rows[i].kind, "unstamped") == 0 && seen++ > 0)
            strcpy(p.audit.rows[i].kind, "other");
    CHECK(audit_sentence(text, sizeof text, &p));
    CHECK_HAS(text, "bare / without stamps 1.2500, without an interval");
    for (int64_t i = 0; i < p.audit.n; i++)
        if (strcmp(p.audit.rows[i].kind, "unstamped") == 0)
            strcpy(p.audit.rows[i].kind, "other");
    CHECK(audit_sentence(text, sizeof text, &p));
    CHECK(strstr(text, "nan") == NULL && strstr(text, "without stamps") == NULL);
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
    test_joules_read();
    test_several_readings();
    test_throttled();
    test_errors();
    test_steps();
    test_steps_drift();
    test_steps_missing();
    test_steps_untold();
    test_steps_alone();
    test_steps_words();
    test_steps_join();
    test_audit();
    test_calls();
    return test_end();
}
