/* What another launch will give, which level an interval is made of, pace, late ranks, claims. */
#include "analysis/launches.h"

#include <math.h>
#include <stdlib.h>

#include "analysis/claim.h"
#include "analysis/shift.h"
#include "analysis/straggler.h"
#include "base/rng.h"
#include "tests/test.h"

enum { SYSTEMS = 14, RUNS = 3, STEPS = 400, SEEDS = 300 };

static double steps[SYSTEMS][RUNS][STEPS];
static int64_t counts[SYSTEMS][RUNS];

/* submitter,system,run,steps in order: three lines a system. */
static int read_steps(void)
{
    static char line[16384];
    int n = 0;
    FILE *from = fopen(TEST_SOURCE_DIR "/golden/mlperf_405b_steps.csv", "r");
    if (!CHECK(from != NULL))
        return 0;
    while (fgets(line, sizeof line, from) != NULL && n < SYSTEMS * RUNS) {
        char *at = line;
        if (line[0] == '#')
            continue;
        for (int comma = 0; comma < 3; comma++)
            at = strchr(at, ',') + 1;
        int64_t *count = &counts[n / RUNS][n % RUNS];
        for (char *end = at; *count < STEPS; at = end) {
            double value = strtod(at, &end);
            if (end == at)
                break;
            steps[n / RUNS][n % RUNS][(*count)++] = value;
        }
        n++;
    }
    fclose(from);
    return n;
}

static void test_next_launch(void)
{
    int covered = 0, naive = 0;
    CHECK_EQ(read_steps(), SYSTEMS * RUNS);
    for (int s = 0; s < SYSTEMS; s++)
        for (int left = 0; left < RUNS; left++) {
            double means[2], third = stats_mean(steps[s][left], counts[s][left]);
            struct stats_series two[2];
            struct stats_interval next, mean;
            for (int r = 0, k = 0; r < RUNS; r++)
                if (r != left) {
                    two[k] = (struct stats_series){steps[s][r], counts[s][r]};
                    means[k++] = stats_mean(steps[s][r], counts[s][r]);
                }
            launches_next(means, 2, 0.95, &next);
            covered += next.low <= third && third <= next.high;
            stats_launches_interval(two, 2, 0.95, 1, &mean);
            naive += mean.low <= third && third <= mean.high;
        }
    printf("# another launch: the third of %d held by two in %d; their own interval holds %d\n",
           SYSTEMS * RUNS, covered, naive);
    CHECK(covered >= 0.9 * SYSTEMS * RUNS);
    CHECK(naive < covered); /* the interval of a mean is another quantity */
}

/* How often the joined interval of k launches holds the truth, and how often the mean of their ends did. */
static double joined_coverage(int k, double truth, double spread, double *of_ends)
{
    enum { CASES = 4000 };
    const double error = 0.3;
    int covered = 0, ends = 0;
    for (uint64_t seed = 0; seed < CASES; seed++) {
        struct stats_interval each[8], all;
        double low = 0.0, high = 0.0;
        for (int i = 0; i < k; i++) {
            uint64_t key = rng_key(seed, "join");
            double value = truth + spread * (double)rng_normal(key, 2 * (uint64_t)i) +
                           error * (double)rng_normal(key, 2 * (uint64_t)i + 1);
            each[i] =
                (struct stats_interval){value, value - 1.96 * error, value + 1.96 * error, 10};
            low += each[i].low / k;
            high += each[i].high / k;
        }
        launches_join(each, k, 0.95, &all);
        covered += all.low <= truth && truth <= all.high;
        ends += low <= truth && truth <= high;
        CHECK_EQ(all.n, 10 * k);
    }
    *of_ends = (double)ends / CASES;
    return (double)covered / CASES;
}

/* From three launches on nominal where launches differ, whatever the sign of the truth; within a launch
 * alone nominal where they do not. */
static void test_join(void)
{
    static const int launches[] = {3, 5, 8};
    double of_ends;
    for (int i = 0; i < 3; i++) {
        double covered = joined_coverage(launches[i], i - 1.0, 1.0, &of_ends);
        printf("# %d launches that differ: joined interval holds the truth in %.1f %%, mean of "
               "their ends in %.1f %%\n",
               launches[i], 100 * covered, 100 * of_ends);
        CHECK(covered > 0.94 && covered < 0.97);
    }
    CHECK(joined_coverage(1, 0.0, 0.0, &of_ends) > 0.94);
    double two = joined_coverage(2, 0.0, 0.0, &of_ends);
    CHECK(two > 0.94 && two < 0.96);
    CHECK(joined_coverage(8, 0.0, 0.0, &of_ends) > 0.94);
}

/* What a launch does not know is left out; an end that one of two does not have, neither has. */
static void test_join_unknown(void)
{
    const struct stats_interval x[] = {
        {1, 0.5, 2, 4}, {NAN, NAN, NAN, 0}, {3, NAN, 4, 6}, {5, 4, 6, 1}};
    struct stats_interval out;
    launches_join(x, 0, 0.95, &out);
    CHECK(isnan(out.value) && isnan(out.low) && isnan(out.high));
    launches_join(x, 2, 0.95, &out);
    CHECK(out.value == 1 && out.low == 0.5 && out.high == 2 && out.n == 4);
    launches_join(x, 3, 0.95, &out);
    CHECK(out.value == 2 && isnan(out.low) && out.n == 10);
    CHECK_NEAR(out.high, 2 + sqrt(2) / 2, 1e-12);
    launches_join(x, 4, 0.95, &out);
    CHECK_NEAR(out.value, 3, 1e-12);
    CHECK_NEAR(out.low, 3 - 4.302652729911275 * 2 / sqrt(3), 1e-9);
}

/* The interval of another launch holds it as often as promised, for few launches too. */
static void test_next_coverage(void)
{
    for (int k = 2; k <= 5; k++) {
        int covered = 0;
        for (uint64_t seed = 0; seed < 2000; seed++) {
            double x[6];
            struct stats_interval next;
            for (uint64_t i = 0; i < 6; i++)
                x[i] = 100 * exp(0.02 * (double)rng_normal(rng_key(seed, "next"), i));
            launches_next(x, k, 0.95, &next);
            covered += next.low <= x[5] && x[5] <= next.high;
        }
        CHECK_NEAR(covered / 2000.0, 0.95, 0.015);
    }
    /* t of one degree of freedom is 12.7062; deviation of two logarithms, sqrt(1 + 1/2). */
    const double one[] = {3}, two[] = {100, 100 * exp(0.02)};
    struct stats_interval of_two;
    launches_next(two, 2, 0.95, &of_two);
    CHECK_NEAR(log(of_two.high / of_two.value), 12.7062 * 0.02 / sqrt(2) * sqrt(1.5), 1e-5);
    CHECK_NEAR(of_two.value, 100 * exp(0.01), 1e-9);
    struct stats_interval next;
    launches_next(one, 1, 0.95, &next);
    CHECK(fabs(next.value - 3) < 1e-12 && isnan(next.low) && isnan(next.high));
    launches_next(one, 0, 0.95, &next);
    CHECK(isnan(next.value));
}

/* Widths by level on the step CSV are printed, and a level is named; no order is asserted. */
static void test_levels(void)
{
    int named = 0;
    for (int s = 0; s < SYSTEMS; s++) {
        struct stats_series series[RUNS];
        struct launches_levels l;
        for (int r = 0; r < RUNS; r++)
            series[r] = (struct stats_series){steps[s][r], counts[s][r]};
        launches_find_levels(series, RUNS, 0.95, &l);
        printf("# system %2d: independent %.2f %%, %s %.2f %%, %s %.2f %%: %s dominate\n", s,
               100 * l.independent, launches_level_name(LEVEL_STEPS), 100 * l.half[LEVEL_STEPS],
               launches_level_name(LEVEL_LAUNCHES), 100 * l.half[LEVEL_LAUNCHES],
               launches_level_name(l.dominant));
        CHECK(l.half[LEVEL_STEPS] > 0 && l.half[LEVEL_LAUNCHES] > 0);
        named += l.dominant ==
                 (l.half[LEVEL_LAUNCHES] > l.half[LEVEL_STEPS] ? LEVEL_LAUNCHES : LEVEL_STEPS);
        launches_find_levels(series, 1, 0.95, &l);
        CHECK(l.dominant == -1 && isnan(l.half[LEVEL_LAUNCHES]) && isnan(l.spread));
    }
    CHECK_EQ(named, SYSTEMS);
}

/* Three launches of ten steps that go up and down by 1 %: no correlation, so 3 * 9 degrees of freedom; and
 * means 100, 102 and 104, with two. */
static void test_levels_by_hand(void)
{
    double x[3][10];
    struct stats_series series[3];
    struct launches_levels l;
    for (int r = 0; r < 3; r++) {
        for (int i = 0; i < 10; i++)
            x[r][i] = 100 + (i % 2 ? 1 : -1);
        series[r] = (struct stats_series){x[r], 10};
    }
    launches_find_levels(series, 3, 0.95, &l);
    double error = stats_deviation(x[0], 10) / 3 / sqrt(3) / 100; /* of the mean of all */
    CHECK_NEAR(l.half[LEVEL_STEPS], 2.0518305 * error, 1e-8);
    CHECK_NEAR(l.independent, 1.9599640 * error, 1e-8);
    CHECK_NEAR(l.half[LEVEL_LAUNCHES], 0, 1e-12);
    CHECK_EQ(l.dominant, LEVEL_STEPS);
    CHECK_EQ(l.n_launches, 3);
    CHECK_EQ(l.n_steps, 30);
    for (int r = 0; r < 3; r++)
        for (int i = 0; i < 10; i++)
            x[r][i] += 2 * r;
    launches_find_levels(series, 3, 0.95, &l);
    CHECK_NEAR(l.half[LEVEL_LAUNCHES], 4.3026527 * 0.02 / sqrt(3), 1e-3); /* t of 2 */
    CHECK_EQ(l.dominant, LEVEL_LAUNCHES);
    CHECK(strcmp(launches_level_name(LEVEL_STEPS), "steps within a launch") == 0);
    CHECK(strcmp(launches_level_name(LEVEL_LAUNCHES), "launches") == 0);
}

static void ar1(double *x, int n, double phi, double mean, double sigma, uint64_t key)
{
    double state = (double)rng_normal(key, 0) / sqrt(1.0 - phi * phi);
    for (int i = 0; i < n; i++) {
        x[i] = mean + sigma * state;
        state = phi * state + (double)rng_normal(key, (uint64_t)i + 1);
    }
}

/* Planted: only one of the two levels varies. */
static void test_dominant_level(void)
{
    double x[RUNS][100];
    struct stats_series series[RUNS];
    int steps_named = 0, launches_named = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++)
        for (int far = 0; far < 2; far++) {
            struct launches_levels l;
            for (int r = 0; r < RUNS; r++) {
                double shift = far ? 1 + 0.05 * (r - 1) : 1 + 0.0001 * (r - 1);
                ar1(x[r], 100, 0.5, 100 * shift, 2, rng_key(seed * RUNS + (uint64_t)r, "level"));
                series[r] = (struct stats_series){x[r], 100};
            }
            launches_find_levels(series, RUNS, 0.95, &l);
            launches_named += far && l.dominant == LEVEL_LAUNCHES;
            steps_named += !far && l.half[LEVEL_STEPS] > l.independent;
        }
    CHECK_EQ(launches_named, SEEDS);
    CHECK(steps_named >= 0.95 * SEEDS); /* autocorrelation is counted */
}

/* The two-level interval over three and more launches of autocorrelated steps. */
static void test_two_level_coverage(void)
{
    for (int k = 3; k <= 5; k++) {
        int covered = 0;
        double x[5][100];
        struct stats_series series[5];
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            struct stats_interval mean;
            for (uint64_t r = 0; r < 5; r++) {
                double shift = 1 + 0.01 * (double)rng_normal(rng_key(seed, "launch"), r);
                ar1(x[r], 100, 0.8, 100 * shift, 0.5, rng_key(seed * 5 + r, "steps"));
                series[r] = (struct stats_series){x[r], 100};
            }
            stats_launches_interval(series, k, 0.95, seed, &mean);
            covered += mean.low <= 100 && 100 <= mean.high;
        }
        printf("# %d launches of AR(1) 0.8: covered %.1f %%\n", k, 100.0 * covered / SEEDS);
        CHECK(covered >= 0.92 * SEEDS);
    }
}

static void test_steady(void)
{
    const double phi[] = {0.0, 0.5, 0.8};
    for (int p = 0; p < 3; p++) {
        int flagged = 0;
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            double x[400];
            struct shift s;
            ar1(x, 400, phi[p], 100, 3, rng_key(seed, "steady"));
            shift_find(x, 400, &s);
            flagged += s.kind != SHIFT_NONE;
        }
        printf("# steady, phi %.1f: flagged %.1f %%\n", phi[p], 100.0 * flagged / SEEDS);
        CHECK(flagged <= 0.06 * SEEDS);
    }
}

static void test_planted_shift(void)
{
    int drifts = 0, changes = 0, placed = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        double x[200], y[200];
        struct shift s;
        ar1(x, 200, 0.3, 100, 1, rng_key(seed, "shift"));
        for (int i = 0; i < 200; i++) {
            y[i] = x[i] + (i >= 120 ? 3 : 0);
            x[i] += 0.02 * i;
        }
        shift_find(x, 200, &s);
        drifts += s.kind == SHIFT_DRIFT && fabs(s.drift - 0.04) < 0.015;
        shift_find(y, 200, &s);
        changes += s.kind == SHIFT_CHANGE && fabs(s.change - 0.03) < 0.01;
        placed += llabs(s.change_at - 120) <= 5;
    }
    printf("# planted: drift named %.1f %%, change named %.1f %%, placed %.1f %%\n",
           100.0 * drifts / SEEDS, 100.0 * changes / SEEDS, 100.0 * placed / SEEDS);
    CHECK(drifts >= 0.85 * SEEDS && changes >= 0.95 * SEEDS && placed >= 0.9 * SEEDS);
}

static void test_shift_edges(void)
{
    double x[40];
    struct shift s;
    for (int i = 0; i < 40; i++)
        x[i] = 5;
    shift_find(x, 40, &s);
    CHECK(s.kind == SHIFT_NONE && s.drift_p == 1.0 && s.change_p == 1.0);
    shift_find(x, SHIFT_SAMPLES - 1, &s);
    CHECK(s.kind == SHIFT_NONE && isnan(s.drift) && s.change_at == -1);
    for (int i = 20; i < 40; i++)
        x[i] = 6;
    shift_find(x, 40, &s);
    CHECK(s.kind == SHIFT_CHANGE && s.change_at == 20);
    CHECK_NEAR(s.change, 0.2, 1e-12);
    ar1(x, 40, 0, 100, 0.01, 3); /* significant and too small to matter */
    for (int i = 20; i < 40; i++)
        x[i] += 0.1;
    shift_find(x, 40, &s);
    CHECK(s.change_p < 0.01 && s.kind == SHIFT_NONE);
}

enum { RANKS = 8, LOOKED_AT = 100 };

/* In a step that ends together what one computes longer the others wait. */
static void test_straggler(void)
{
    const struct {
        int every, rank; /* one late step in `every`, by `rank` or by turns */
        double excess;
        enum straggler_kind kind;
    } cases[] = {{1, 5, 0.10, STRAGGLER_ONE_RANK},
                 {3, 2, 0.08, STRAGGLER_ONE_RANK},
                 {1, -1, 0.10, STRAGGLER_ROTATING},
                 {25, 3, 0.50, STRAGGLER_FEW_STEPS},
                 {1, 0, 0.0, STRAGGLER_NONE}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        double compute[LOOKED_AT][RANKS], wait[LOOKED_AT][RANKS];
        struct straggler s;
        for (int i = 0; i < LOOKED_AT; i++) {
            int late = cases[c].rank < 0 ? (i * 5) % RANKS : cases[c].rank;
            double longest = 0;
            for (int r = 0; r < RANKS; r++) {
                double noise = (double)rng_normal(7, (uint64_t)(i * RANKS + r));
                bool slow = i % cases[c].every == 0 && r == late;
                compute[i][r] = 1e6 * (1 + 0.002 * noise + (slow ? cases[c].excess : 0));
                longest = fmax(longest, compute[i][r]);
            }
            for (int r = 0; r < RANKS; r++)
                wait[i][r] = longest - compute[i][r] + 1e4;
        }
        straggler_find(compute[0], wait[0], LOOKED_AT, RANKS, &s);
        CHECK_EQ(s.kind, cases[c].kind);
        CHECK_EQ(s.steps, LOOKED_AT);
        if (cases[c].excess > 0) {
            CHECK(cases[c].rank < 0 || s.rank == cases[c].rank);
            CHECK_NEAR(s.excess, cases[c].excess, 0.01);
            CHECK(s.wait_ns < s.others_wait_ns / 4); /* the late rank is not the one that waits */
            CHECK_NEAR(s.cost, cases[c].excess / cases[c].every, 0.01);
        }
    }
    double two[] = {1, 2, 1, 2};
    struct straggler s;
    straggler_find(two, NULL, 2, 2, &s);
    CHECK(s.kind == STRAGGLER_UNKNOWN && s.rank == -1 && isnan(s.cost));
}

/* A point of one block has no A/A: beside a quiet one nothing says how noisy it is. */
static void test_widest(void)
{
    const struct stats_interval loss = {0.8, 0.79, 0.81, 50}, none = {NAN, NAN, NAN, 0};
    const struct stats_interval quiet = {1, 0.99, 1.02, 20}, other = {1, 0.97, 1.01, 20};
    struct stats_interval aa = {1, NAN, NAN, 0};
    claim_widen(&aa, &quiet);
    CHECK(aa.low == 0.99 && aa.high == 1.02);
    claim_widen(&aa, &other);
    CHECK(aa.low == 0.97 && aa.high == 1.02 && aa.n == 2);
    CHECK_EQ(claim_differs(&loss, &aa), CLAIM_HOLDS);
    claim_widen(&aa, &none);
    CHECK(isnan(aa.low) && isnan(aa.high));
    CHECK_EQ(claim_differs(&loss, &aa), CLAIM_UNDECIDED);
    claim_widen(&aa, &quiet); /* nor does a later one help */
    CHECK(isnan(aa.low) && isnan(aa.high));
    aa = (struct stats_interval){1, NAN, NAN, 0};
    claim_widen(&aa, &none);
    claim_widen(&aa, &quiet);
    CHECK(isnan(aa.low) && isnan(aa.high));
}

static void test_claim(void)
{
    const struct {
        struct claim claim;
        enum claim_verdict verdict;
        const char *says;
    } cases[] = {
        {{{1.10, 1.08, 1.12, 9}, {1.0, 0.99, 1.01, 9}, 1.05, true}, CLAIM_HOLDS, "holds; A/A 1 ["},
        {{{1.06, 1.04, 1.08, 9}, {1.0, 0.99, 1.01, 9}, 1.05, true}, CLAIM_UNDECIDED, "contains"},
        {{{1.01, 1.00, 1.02, 9}, {1.0, 0.99, 1.01, 9}, 1.05, true}, CLAIM_FAILS, "fails"},
        {{{1.10, 1.08, 1.12, 9}, {1.0, 0.90, 1.10, 9}, 1.05, true}, CLAIM_UNDECIDED, "wider"},
        {{{1.10, 1.08, 1.12, 9}, {NAN, NAN, NAN, 0}, 1.05, true}, CLAIM_UNDECIDED, "no A/A"},
        {{{1.10, NAN, NAN, 1}, {1.0, 0.99, 1.01, 9}, 1.05, true}, CLAIM_UNDECIDED, "no interval"},
        {{{1.01, 1.00, 1.02, 9}, {1.0, 0.99, 1.01, 9}, 1.03, false}, CLAIM_HOLDS, "<= 1.03 holds"},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        char text[200];
        CHECK_EQ(claim_judge(&cases[c].claim), cases[c].verdict);
        claim_text(&cases[c].claim, text, sizeof text);
        CHECK_HAS(text, cases[c].says);
    }
}

/* A loss is one only beyond what A/A does. */
static void test_differs(void)
{
    const struct {
        struct stats_interval ratio, aa;
        enum claim_verdict verdict;
    } cases[] = {{{0.90, 0.88, 0.92, 9}, {1, 0.98, 1.02, 9}, CLAIM_HOLDS},
                 {{1.10, 1.08, 1.12, 9}, {1, 0.98, 1.02, 9}, CLAIM_HOLDS},
                 {{0.99, 0.985, 0.995, 9}, {1, 0.98, 1.02, 9}, CLAIM_UNDECIDED},
                 {{0.90, 0.79, 1.01, 9}, {1, 0.98, 1.02, 9}, CLAIM_UNDECIDED},
                 {{0.90, 0.88, 0.92, 9}, {1, NAN, NAN, 0}, CLAIM_UNDECIDED},
                 {{0.90, NAN, NAN, 1}, {1, 0.98, 1.02, 9}, CLAIM_UNDECIDED}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        CHECK_EQ(claim_differs(&cases[c].ratio, &cases[c].aa), cases[c].verdict);
}

int main(void)
{
    test_next_launch();
    test_join();
    test_join_unknown();
    test_next_coverage();
    test_levels();
    test_levels_by_hand();
    test_dominant_level();
    test_two_level_coverage();
    test_steady();
    test_planted_shift();
    test_shift_edges();
    test_straggler();
    test_claim();
    test_widest();
    test_differs();
    return test_end();
}
