/* Forecasts of published curves err as little, and their intervals hold as often, as is claimed. */
#include "analysis/backtest.h"

#include <gsl/gsl_cdf.h>

#include "analysis/stats.h"
#include "base/err.h"
#include "tests/test.h"

#define CURVES TEST_SOURCE_DIR "/golden/backtest/curves.csv"

/* Three fitted points and more, then two: 0.97 and 2.69 %, 1.32 and 3.65 %. */
static void test_errors(const struct backtest *b)
{
    const struct {
        enum forecast_label label;
        bool two;
        int n;
        double pct, bound;
    } cases[] = {{FORECAST_X2, false, 31, 0.97, 1.2},
                 {FORECAST_X4, false, 20, 2.69, 3.0},
                 {FORECAST_X2, true, 15, 1.32, 1.5},
                 {FORECAST_X4, true, 11, 3.64, 4.0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int n;
        double pct = backtest_median_pct(b, cases[i].label, cases[i].two, &n);
        printf("# %s, %s: median error %.2f %% of %d hold-outs\n",
               forecast_label_name(cases[i].label), cases[i].two ? "two points" : "three and more",
               pct, n);
        CHECK_EQ(n, cases[i].n);
        CHECK_NEAR(pct, cases[i].pct, 0.01);
        CHECK(pct <= cases[i].bound);
    }
}

/* The table that every forecast uses is the one that the list gives. */
static void test_floors(const struct backtest *b)
{
    struct forecast_floor floors[FORECAST_FLOORS], without[FORECAST_FLOORS];
    int moved = 0;
    backtest_floors(b, -1, floors);
    for (int i = 0; i < FORECAST_FLOORS; i++) {
        CHECK_EQ(floors[i].label, forecast_floors[i].label);
        CHECK_NEAR(floors[i].at_90, forecast_floors[i].at_90, 1e-5);
        CHECK_NEAR(floors[i].at_95, forecast_floors[i].at_95, 1e-5);
        CHECK_EQ(floors[i].n_curves, forecast_floors[i].n_curves);
        CHECK_EQ(floors[i].n_holdouts, forecast_floors[i].n_holdouts);
    }
    for (int c = 0; c < b->n_curves; c++) { /* a curve does not vouch for itself */
        backtest_floors(b, c, without);
        CHECK(without[0].n_curves <= floors[0].n_curves);
        moved += without[0].at_95 != floors[0].at_95 || without[1].at_95 != floors[1].at_95;
    }
    CHECK(moved >= 2);
}

/* Nine small errors of one curve weigh as much as the one large error of another. */
static void test_clusters(void)
{
    struct backtest_holdout holdouts[11];
    struct backtest b = {.n_curves = 2, .n_holdouts = 11, .holdouts = holdouts};
    struct forecast_floor floors[FORECAST_FLOORS];
    for (int i = 0; i < 11; i++)
        holdouts[i] = (struct backtest_holdout){.curve = i >= 9,
                                                .n_fitted = i == 10 ? 2 : 3,
                                                .label = FORECAST_X2,
                                                .error = i < 9 ? 0.001 * i : -0.5};
    backtest_floors(&b, -1, floors);
    CHECK_NEAR(floors[0].at_90, 0.5, 0);
    CHECK(floors[0].n_curves == 2 && floors[0].n_holdouts == 10); /* two points count for nothing */
    backtest_floors(&b, 1, floors);
    CHECK_NEAR(floors[0].at_90, 0.008, 1e-12);
    CHECK(floors[1].n_holdouts == 0 && isnan(floors[1].at_90));
}

/* Clopper and Pearson. */
static double binomial_low(int k, int n)
{
    return k == 0 ? 0.0 : gsl_cdf_beta_Pinv(0.025, k, n - k + 1);
}

static double binomial_high(int k, int n)
{
    return k == n ? 1.0 : gsl_cdf_beta_Pinv(0.975, k + 1, n - k);
}

static void test_coverage(const struct backtest *b)
{
    int covered = 0, n = 0, envelope = 0, curves = 0, whole = 0;
    double half[200] = {0};
    for (int c = 0; c < b->n_curves; c++) {
        int held = 0, of = 0;
        for (int i = 0; i < b->n_holdouts; i++) {
            const struct backtest_holdout *h = &b->holdouts[i];
            if (h->curve != c || isnan(h->low))
                continue;
            CHECK(h->n_fitted >= FORECAST_POINTS && h->factor <= 4.0 + 1e-9);
            CHECK(h->low <= h->value && h->value <= h->high);
            half[n + of++] = log(h->high / h->low) / 2.0;
            held += h->low <= h->truth && h->truth <= h->high;
            envelope += h->envelope_low <= 1.005 * h->truth && h->truth <= 1.005 * h->envelope_high;
        }
        covered += held;
        n += of;
        curves += of > 0;
        whole += of > 0 && held == of;
    }
    printf("# nominal 90 %%: %d of %d hold-outs covered (binomial 95 %%: %.2f to %.2f), all of "
           "them in "
           "%d of %d curves; half width %.1f %% in the median; envelope held %d\n",
           covered, n, binomial_low(covered, n), binomial_high(covered, n), whole, curves,
           100.0 * (exp(stats_median(half, n)) - 1.0), envelope);
    CHECK_EQ(n, 51);
    CHECK(covered >= 0.85 * n);
    CHECK(envelope >= 0.85 * n);
    CHECK(stats_median(half, n) < 0.12); /* covering by being huge is no merit */
}

static void refused(const char *text, int code, const char *says)
{
    struct backtest b;
    FILE *to = fopen("backtest_test.csv", "w");
    fputs("curve,mode,n,quantity,value\n", to);
    fputs(text, to);
    fclose(to);
    CHECK_EQ(backtest_read(&b, "backtest_test.csv"), code);
    CHECK_HAS(fail_message(), says);
    fail_clear();
    remove("backtest_test.csv");
}

static void test_bad_lists(void)
{
    struct backtest b;
    CHECK_EQ(backtest_read(&b, "no-such-list.csv"), FAIL_FILE);
    fail_clear();
    refused("a,weak,1,step_s\n", FAIL_USAGE, ":2: wanted curve,mode,n,quantity,value");
    refused("a,weak,1,step_s,0\n", FAIL_USAGE, "positive numbers");
    refused("a,sideways,1,step_s,1\n", FAIL_USAGE, "strong or weak");
    refused("a,weak,1,furlongs,1\n", FAIL_USAGE, "step_s");
}

int main(void)
{
    struct backtest b;
    CHECK_EQ(backtest_read(&b, CURVES), 0);
    CHECK_EQ(b.n_curves, 15);
    CHECK_EQ(backtest_run(&b, 0.90, 400), 0);
    test_errors(&b);
    test_floors(&b);
    test_coverage(&b);
    backtest_release(&b);
    test_clusters();
    test_bad_lists();
    return test_end();
}
