/* What was planted in the rows of a point is what account finds, to the nanosecond. */
#include "analysis/account.h"

#include "base/err.h"
#include "tests/test.h"
#include "tests/unit/analysis/synthetic.h"

struct made {
    struct record_point point;
    struct account account;
};

static int make(struct made *out, const struct synthetic *s)
{
    synthetic_point(&out->point, s);
    return account_point(&out->account, &out->point, 1);
}

static void made_release(struct made *made)
{
    account_release(&made->account);
    record_point_release(&made->point);
}

/* Four equal ranks: 20 + 1 + 1 + 4 ms a step, closed forms everywhere. */
static void test_closed_forms(void)
{
    struct synthetic s = synthetic_default(4, 1);
    struct made m;
    CHECK_EQ(make(&m, &s), 0);
    const struct account *a = &m.account;
    for (int kind = 0; kind < ACCOUNT_GRAPH; kind++) {
        CHECK_EQ(a->series[kind].n, s.cycles * s.block);
        CHECK_EQ(a->series[kind].n_blocks, s.cycles);
    }
    CHECK_EQ(a->series[ACCOUNT_GRAPH].n, 0);
    CHECK(isnan(a->host_ratio.value) && isnan(a->series[ACCOUNT_GRAPH].term_ns[TERM_STEP]));
    CHECK_NEAR(a->step_ns.value, 26e6, 1e-6);
    CHECK_NEAR(a->step_ns.low, 26e6, 1e-6);
    CHECK_NEAR(a->p50_ns.value, 26e6, 0);
    CHECK_NEAR(a->cv, 0, 1e-12);
    CHECK(isnan(a->p95_ns.high));
    CHECK_NEAR(a->tokens_per_step, 1024, 0);
    CHECK_NEAR(a->stall_ns, 4e6, 1e-6);
    CHECK_NEAR(a->interval_ns, 4e6, 1e-6);
    CHECK_NEAR(a->counterfactual_ns.value, 4e6, 1e-6);
    CHECK_NEAR(a->slowdown_ns.value, 1e6, 1e-6);
    CHECK_NEAR(a->difference_ns.value, 5e6, 1e-6);
    CHECK_NEAR(a->disagreement_ns.value, 0, 1e-6);
    const double *term = a->series[ACCOUNT_INSTRUMENTED].term_ns;
    CHECK_NEAR(term[TERM_STEP], 26e6, 1e-6);
    CHECK_NEAR(term[TERM_COMPUTE], 21e6, 1e-6);
    CHECK_NEAR(term[TERM_INPUT], 1e6, 1e-6);
    CHECK_NEAR(term[TERM_STALL], 4e6, 1e-6);
    CHECK_NEAR(term[TERM_RESIDUAL], 0, 1e-6);
    CHECK_NEAR(term[TERM_EXPOSED], 4e6, 1e-6);
    CHECK(isnan(a->series[ACCOUNT_FULL].term_ns[TERM_EXPOSED])); /* not stamped: not known */
    CHECK_NEAR(a->worst_residual_share, 0, 1e-12);
    CHECK_NEAR(a->series[ACCOUNT_COMPUTE].term_ns[TERM_STEP], 21e6, 1e-6);
    CHECK_NEAR(a->series[ACCOUNT_COMM].term_ns[TERM_STEP], 4e6, 1e-6);
    CHECK_NEAR(a->aa_ratio.value, 1, 1e-12);
    CHECK_NEAR(a->stamps_ratio.value, 1, 1e-12);
    CHECK_EQ(a->n_incomplete, 0);
    CHECK_EQ(a->n_contradicting, 0);
    made_release(&m);
}

static void test_axes(void)
{
    struct synthetic s = synthetic_default(4, 1);
    struct made m;
    s.slow_rank = 2;
    s.slow_factor = 1.1; /* 2 ms that the others wait for */
    CHECK_EQ(make(&m, &s), 0);
    CHECK_EQ(m.account.n_axes, 1);
    const struct account_axis *axis = &m.account.axes[0];
    CHECK(strcmp(axis->name, "dp") == 0);
    CHECK_NEAR(axis->calls, 2, 0);
    CHECK_NEAR(axis->waits, 2, 0);
    CHECK_NEAR(axis->wire_bytes, 3e6, 0);
    CHECK_NEAR(axis->stall_ns, 4e6 + 2e6 * 3 / 4, 1e-3); /* three of four ranks wait */
    CHECK_NEAR(axis->stall_closed_ns, axis->stall_ns, 1e-3);
    CHECK_NEAR(axis->transfer_ns, 4e6, 1); /* the late rank waits for nobody */
    CHECK_NEAR(axis->skew_ns, 2e6 * 3 / 4, 4);
    made_release(&m);
}

static void test_planted_delay_is_in_all_measures(void)
{
    struct synthetic s = synthetic_default(4, 1);
    struct made before, after;
    CHECK_EQ(make(&before, &s), 0);
    s.comm_ns += 3e6;
    CHECK_EQ(make(&after, &s), 0);
    CHECK_NEAR(after.account.stall_ns - before.account.stall_ns, 3e6, 1e-6);
    CHECK_NEAR(after.account.interval_ns - before.account.interval_ns, 3e6, 1e-6);
    CHECK_NEAR(after.account.counterfactual_ns.value - before.account.counterfactual_ns.value, 3e6,
               1e-6);
    CHECK_NEAR(after.account.slowdown_ns.value, before.account.slowdown_ns.value, 1e-6);
    made_release(&before);
    made_release(&after);
}

static void test_planted_residual(void)
{
    struct synthetic s = synthetic_default(2, 2);
    struct made m;
    s.residual_ns = 2e6;
    CHECK_EQ(make(&m, &s), 0);
    CHECK_NEAR(m.account.series[ACCOUNT_INSTRUMENTED].term_ns[TERM_RESIDUAL], 2e6, 1e-6);
    CHECK_NEAR(m.account.worst_residual_share, 2.0 / 28.0, 1e-12);
    made_release(&m);
    /* On one rank only, the first or the last, of both signs: shares do not cancel. */
    s.residual_ns = 0;
    for (int rank = 0; rank < 4; rank += 3) {
        synthetic_point(&m.point, &s);
        for (int64_t i = 0; i < m.point.steps.n; i++) {
            struct step_row *r = &m.point.steps.rows[i];
            if (r->rank == rank && r->flags & STEP_INSTRUMENTED)
                r->compute_ns += r->step % 2 ? 500000 : -500000;
        }
        CHECK_EQ(account_point(&m.account, &m.point, 1), 0);
        CHECK_EQ(m.account.worst_residual_rank, rank);
        CHECK_NEAR(m.account.worst_residual_share, 0.5 / 26, 1e-12);
        CHECK(m.account.n_contradicting > 0); /* the recorded residual still says 0 */
        made_release(&m);
    }
}

/* Half a millisecond of a step without anything to compute is a term of its own, and no residual. */
static void test_planted_idle(void)
{
    struct synthetic s = synthetic_default(2, 2);
    struct made m;
    synthetic_point(&m.point, &s);
    for (int64_t i = 0; i < m.point.steps.n; i++) {
        struct step_row *r = &m.point.steps.rows[i];
        r->idle_ns = 500000;
        r->compute_ns -= 500000;
    }
    CHECK_EQ(account_point(&m.account, &m.point, 1), 0);
    const double *term = m.account.series[ACCOUNT_INSTRUMENTED].term_ns;
    CHECK_NEAR(term[TERM_IDLE], 0.5e6, 1e-6);
    CHECK_NEAR(term[TERM_COMPUTE], 20.5e6, 1e-6);
    CHECK_NEAR(term[TERM_RESIDUAL], 0, 1e-6);
    CHECK_NEAR(m.account.worst_residual_share, 0, 1e-12);
    made_release(&m);
}

static void test_planted_slow_rank(void)
{
    struct synthetic s = synthetic_default(2, 4);
    struct record_head head;
    struct made m;
    s.slow_rank = 5;
    s.slow_factor = 1.2;
    CHECK_EQ(make(&m, &s), 0);
    CHECK_EQ(m.account.slowest, 5);
    CHECK_NEAR(m.account.slowest_share, 2.0 / 11.0, 1e-9); /* of 10 ms and 1 ms slowdown */
    CHECK(isnan(m.account.slowest_mads)); /* the others do not differ: no deviation to count in */
    synthetic_head(&head, 2, 4);
    CHECK(strcmp(account_host(&head, &m.point.point, 5), "host01") == 0);
    CHECK(strcmp(account_host(&head, &m.point.point, 3), "host00") == 0);
    CHECK(strcmp(account_host(&head, &m.point.point, 8), "") == 0);
    /* A 2x2 point of a 2x4 job: its rank 2 is rank 4 of the job, on the second host. */
    m.point.point.ranks_per_node = 2;
    CHECK(strcmp(account_host(&head, &m.point.point, 2), "host01") == 0);
    CHECK(strcmp(account_host(&head, &m.point.point, 1), "host00") == 0);
    m.point.point.launch = 3; /* of which the file has no machine */
    CHECK(strcmp(account_host(&head, &m.point.point, 1), "") == 0);
    record_head_release(&head);
    made_release(&m);
}

/* The slow rank is named by its compute, not by its waiting: others wait longer than it does. */
static void test_waiting_is_no_blame(void)
{
    struct synthetic s = synthetic_default(4, 1);
    struct made m;
    s.slow_rank = 1;
    s.slow_factor = 1.5;
    CHECK_EQ(make(&m, &s), 0);
    CHECK_EQ(m.account.slowest, 1);
    CHECK_NEAR(m.account.disagreement_ns.value, 0, 1);
    made_release(&m);
}

static void test_planted_aa(void)
{
    struct synthetic s = synthetic_default(1, 1);
    struct made m;
    s.odd_factor = 1.05;
    s.cycles = 20;
    s.jitter = 0.001;
    CHECK_EQ(make(&m, &s), 0);
    /* Even blocks stand above; 81 ms and 85 ms. */
    CHECK_NEAR(m.account.aa_ratio.value, 81.0 / 85.0, 1e-3);
    CHECK(m.account.aa_ratio.low <= 81.0 / 85.0 && m.account.aa_ratio.high >= 81.0 / 85.0);
    CHECK(m.account.aa_ratio.high < 1);
    made_release(&m);
    s.odd_factor = 1;
    CHECK_EQ(make(&m, &s), 0);
    CHECK(m.account.aa_ratio.low < 1 && m.account.aa_ratio.high > 1);
    made_release(&m);
}

/* Capacity counts the time between steps, stability does not. */
static void test_gap(void)
{
    struct synthetic s = synthetic_default(4, 1);
    struct made m;
    s.gap_ns = 1e6;
    CHECK_EQ(make(&m, &s), 0);
    CHECK_NEAR(m.account.step_ns.value, 27e6, 1e-6);
    CHECK_NEAR(m.account.p50_ns.value, 26e6, 0);
    made_release(&m);
}

static void test_one_rank(void)
{
    struct synthetic s = synthetic_default(1, 1);
    struct made m;
    CHECK_EQ(make(&m, &s), 0);
    CHECK_EQ(m.account.n_axes, 0);
    CHECK(isnan(m.account.stall_ns) && isnan(m.account.interval_ns));
    CHECK(isnan(m.account.counterfactual_ns.value) && isnan(m.account.slowdown_ns.value));
    CHECK(isnan(m.account.disagreement_ns.value));
    CHECK_NEAR(m.account.difference_ns.value, 0, 1e-6);
    CHECK(isnan(m.account.slowest_mads));
    made_release(&m);
}

static void test_bare_and_instrumented_only(void)
{
    struct synthetic s = synthetic_default(2, 1);
    struct made m;
    s.bare = true;
    CHECK_EQ(make(&m, &s), 0);
    CHECK(isnan(m.account.axes[0].stall_ns));  /* not stamped: unknown */
    CHECK_NEAR(m.account.stall_ns, 4e6, 1e-6); /* from instrumented steps */
    made_release(&m);
    s.bare = false;
    synthetic_point(&m.point, &s);
    for (int64_t i = 0; i < m.point.steps.n; i++)
        m.point.steps.rows[i].flags |= STEP_INSTRUMENTED;
    CHECK_EQ(account_point(&m.account, &m.point, 1), 0);
    CHECK(m.account.only_instrumented);
    CHECK_NEAR(m.account.step_ns.value, 46e6, 1e-6);
    CHECK(isnan(m.account.stamps_ratio.value));
    made_release(&m);
}

/* Rows may come in any order; a step without a row of every rank is left out and counted. */
static void test_order_and_gaps(void)
{
    struct synthetic s = synthetic_default(4, 1);
    struct made m;
    synthetic_point(&m.point, &s);
    struct step_row *rows = m.point.steps.rows;
    for (int64_t i = 0, j = m.point.steps.n - 1; i < j; i++, j--) {
        struct step_row swap = rows[i];
        rows[i] = rows[j];
        rows[j] = swap;
    }
    CHECK_EQ(account_point(&m.account, &m.point, 1), 0);
    CHECK_EQ(m.account.series[ACCOUNT_FULL].n, 20);
    CHECK_NEAR(m.account.step_ns.value, 26e6, 1e-6);
    account_release(&m.account);
    m.point.steps.n--; /* now the first warm-up step lacks a rank */
    CHECK_EQ(account_point(&m.account, &m.point, 1), 0);
    CHECK_EQ(m.account.n_incomplete, 1);
    CHECK_EQ(m.account.series[ACCOUNT_FULL].n, 20);
    made_release(&m);
}

/* Capacity looks at the last rank: one that leaves early changes nothing. */
static void test_last_rank_counts(void)
{
    struct synthetic s = synthetic_default(4, 1);
    struct made m;
    synthetic_point(&m.point, &s);
    for (int64_t i = 0; i < m.point.steps.n; i++)
        if (m.point.steps.rows[i].rank == 3)
            m.point.steps.rows[i].end_ns -= m.point.steps.rows[i].step % 3 * 100000;
    CHECK_EQ(account_point(&m.account, &m.point, 1), 0);
    CHECK_NEAR(m.account.step_ns.value, 26e6, 1e-6);
    CHECK_NEAR(m.account.step_ns.high - m.account.step_ns.low, 0, 1e-6);
    made_release(&m);
}

/* A lost row takes its step and the step that would start at its end. */
static void test_lost_row(void)
{
    struct synthetic s = synthetic_default(4, 1);
    struct made m;
    synthetic_point(&m.point, &s);
    int64_t lost = -1;
    for (int64_t i = 0; i < m.point.steps.n; i++) {
        const struct step_row *r = &m.point.steps.rows[i];
        if (r->variant == VARIANT_FULL && r->flags == 0 && r->rank == 1 && lost < 0)
            lost = i;
    }
    m.point.steps.rows[lost] = m.point.steps.rows[--m.point.steps.n];
    CHECK_EQ(account_point(&m.account, &m.point, 1), 0);
    CHECK_EQ(m.account.series[ACCOUNT_FULL].n, 18);
    /* The last row of the file moved into its place: that step is whole. */
    CHECK_EQ(m.account.n_incomplete, 1);
    CHECK_NEAR(m.account.step_ns.value, 26e6, 1e-6);
    made_release(&m);
}

/* The first step of a block has nothing to start from, flagged as lead-in or not. */
static void test_no_lead_in_flag(void)
{
    struct synthetic s = synthetic_default(4, 1);
    struct made m;
    synthetic_point(&m.point, &s);
    for (int64_t i = 0; i < m.point.steps.n; i++)
        m.point.steps.rows[i].flags &= ~STEP_LEAD_IN;
    CHECK_EQ(account_point(&m.account, &m.point, 1), 0);
    CHECK_EQ(m.account.series[ACCOUNT_FULL].n, 20);
    CHECK_NEAR(m.account.step_ns.value, 26e6, 1e-6);
    made_release(&m);
}

/* Rows do not say which of several groups they belong to: no transfer can be told. */
static void test_groups(void)
{
    struct synthetic s = synthetic_default(4, 1);
    struct made m;
    synthetic_point(&m.point, &s);
    for (int64_t i = 0; i < m.point.collectives.n; i++)
        m.point.collectives.rows[i].group = 2;
    CHECK_EQ(account_point(&m.account, &m.point, 1), 0);
    CHECK(isnan(m.account.axes[0].transfer_ns) && isnan(m.account.axes[0].skew_ns));
    CHECK_NEAR(m.account.axes[0].stall_ns, 4e6, 1e-6);
    made_release(&m);
}

static void test_nothing_measured(void)
{
    struct made m = {0};
    m.point.point.ranks = 2;
    CHECK_EQ(account_point(&m.account, &m.point, 1), 0);
    CHECK(isnan(m.account.step_ns.value) && isnan(m.account.p50_ns.value));
    CHECK(isnan(m.account.aa_ratio.value) && isnan(m.account.disagreement_ns.value));
    CHECK(isnan(m.account.series[ACCOUNT_INSTRUMENTED].term_ns[TERM_COMPUTE]));
    CHECK_EQ(m.account.slowest, -1);
    made_release(&m);
}

static void refuse(int32_t variant, int32_t step, int32_t rank, int32_t ranks)
{
    struct made m = {0};
    struct step_row *r = RECORD_ADD(&m.point.steps, 1);
    m.point.point.ranks = ranks;
    *r = (struct step_row){.variant = variant, .step = step, .rank = rank};
    fail_clear();
    CHECK_EQ(account_point(&m.account, &m.point, 1), FAIL_FILE);
    CHECK_HAS(fail_message(), "damaged");
    made_release(&m);
}

/* 2 ms between steps that are given out one by one, none between graphs; what steps are made of is
 * known from the former alone. */
static void test_graphs(void)
{
    struct synthetic s = synthetic_default(4, 1);
    struct made m, plain;
    s.gap_ns = 2e6;
    CHECK_EQ(make(&plain, &s), 0);
    s.graphs = true;
    CHECK_EQ(make(&m, &s), 0);
    const struct account *a = &m.account;
    CHECK_EQ(a->series[ACCOUNT_GRAPH].n, s.cycles * s.block);
    CHECK_EQ(a->series[ACCOUNT_FULL].n, s.cycles * s.block);
    CHECK_NEAR(a->step_ns.value, 28e6, 1e-6);
    CHECK_NEAR(a->host_ratio.value, 28.0 / 26.0, 1e-9);
    CHECK_NEAR(a->host_ratio.low, 28.0 / 26.0, 1e-9);
    CHECK_NEAR(a->stall_ns, plain.account.stall_ns, 1e-6);
    CHECK_NEAR(a->axes[0].wire_bytes, plain.account.axes[0].wire_bytes, 1e-6);
    CHECK_NEAR(a->axes[0].calls, plain.account.axes[0].calls, 1e-9);
    CHECK_NEAR(a->axes[0].transfer_ns, plain.account.axes[0].transfer_ns, 1e-6);
    CHECK_NEAR(a->tokens_per_step, plain.account.tokens_per_step, 0);
    made_release(&m);
    made_release(&plain);
}

/* What stamps cost is a term: the residual is what is left beside it. */
static void test_stamps_are_a_term(void)
{
    struct synthetic s = synthetic_default(2, 1);
    struct made m;
    s.residual_ns = 3e6;
    synthetic_point(&m.point, &s);
    for (int64_t i = 0; i < m.point.steps.n; i++)
        if (m.point.steps.rows[i].flags & STEP_INSTRUMENTED) {
            m.point.steps.rows[i].stamps_ns = 2000000;
            m.point.steps.rows[i].residual_ns -= 2000000;
            m.point.steps.rows[i].host_ns = 500000;
        }
    CHECK_EQ(account_point(&m.account, &m.point, 1), 0);
    const double *term = m.account.series[ACCOUNT_INSTRUMENTED].term_ns;
    CHECK_NEAR(term[TERM_STAMPS], 2e6, 1e-6);
    CHECK_NEAR(term[TERM_RESIDUAL], 1e6, 1e-6);
    CHECK_NEAR(term[TERM_HOST], 0.5e6, 1e-6);
    CHECK_NEAR(m.account.worst_residual_share, 1e6 / term[TERM_STEP], 1e-6);
    CHECK_EQ(m.account.n_contradicting, 0);
    made_release(&m);
}

static void test_refusals(void)
{
    refuse(0, 0, 2, 2);
    refuse(0, 0, -1, 2);
    refuse(3, 0, 0, 2);
    refuse(-1, 0, 0, 2);
    refuse(0, 1, 0, 2);
    refuse(0, -1, 0, 2);
    refuse(0, 0, 0, 0);
    struct synthetic s = synthetic_default(2, 1);
    struct made m;
    synthetic_point(&m.point, &s);
    m.point.collectives.rows[m.point.collectives.n - 1].call = INT32_MAX;
    fail_clear();
    CHECK_EQ(account_point(&m.account, &m.point, 1), FAIL_FILE);
    CHECK_HAS(fail_message(), "call");
    made_release(&m);
    fail_clear();
}

int main(void)
{
    test_closed_forms();
    test_axes();
    test_planted_delay_is_in_all_measures();
    test_planted_residual();
    test_planted_idle();
    test_planted_slow_rank();
    test_waiting_is_no_blame();
    test_planted_aa();
    test_gap();
    test_one_rank();
    test_bare_and_instrumented_only();
    test_order_and_gaps();
    test_last_rank_counts();
    test_lost_row();
    test_no_lead_in_flag();
    test_groups();
    test_nothing_measured();
    test_graphs();
    test_stamps_are_a_term();
    test_refusals();
    return test_end();
}
