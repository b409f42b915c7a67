/* A forecast says no more than its points: labels, floors, envelopes, and nothing across a node. */
#include "analysis/forecast.h"

#include <stdlib.h>

#include "analysis/curve_fit.h"
#include "base/err.h"
#include "base/rng.h"
#include "tests/test.h"

static const double sizes[] = {2, 4, 8, 16, 32};

static void rates(double *x, int points, double alpha, double noise, uint64_t seed)
{
    const double p[] = {alpha, 100};
    for (int i = 0; i < points; i++)
        x[i] = law_find("amdahl")->rate(p, sizes[i] / 2, 1) *
               exp(noise * (double)rng_normal(rng_key(seed, "rates"), (uint64_t)i));
}

static struct forecast_data data_of(const double *x, int points)
{
    return (struct forecast_data){.fit = {points, sizes, x, FIT_RELATIVE, false},
                                  .floors = forecast_floors,
                                  .level = 0.95,
                                  .replicates = 400,
                                  .seed = 7};
}

static struct forecast at(const struct forecast_data *data, double n)
{
    struct forecaster f;
    struct forecast out = {0};
    CHECK_EQ(forecaster_init(&f, data), 0);
    forecast_at(&f, n, &out);
    forecaster_release(&f);
    return out;
}

static void test_labels(void)
{
    const struct {
        double n;
        enum forecast_label label;
        bool has_value;
        double floor;
    } cases[] = {{1, FORECAST_BELOW, false, 0},       {2, FORECAST_MEASURED, true, 0},
                 {3, FORECAST_INTERPOLATED, true, 0}, {16, FORECAST_MEASURED, true, 0},
                 {17, FORECAST_X2, true, 0.039423},   {32, FORECAST_X2, true, 0.039423},
                 {33, FORECAST_X4, true, 0.065405},   {64, FORECAST_X4, true, 0.065405},
                 {65, FORECAST_FAR, false, 0}};
    double x[5];
    rates(x, 4, 0.03, 0.0, 1);
    struct forecast_data data = data_of(x, 4);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct forecast f = at(&data, cases[i].n);
        CHECK_EQ(f.label, cases[i].label);
        CHECK_EQ(!isnan(f.value), cases[i].has_value);
        CHECK_EQ(f.why == NULL, cases[i].has_value);
        CHECK(f.envelope_low > 0 && f.envelope_low <= f.envelope_high);
        CHECK_NEAR(f.floor, cases[i].floor, 1e-9);
        if (cases[i].has_value) {
            CHECK(f.low <= f.value && f.value <= f.high);
            CHECK(f.high >= f.value * exp(f.floor) * (1 - 1e-12));
            CHECK(f.low <= f.value * exp(-f.floor) * (1 + 1e-12));
        } else {
            CHECK(isnan(f.low) && isnan(f.high));
        }
    }
    CHECK_HAS(at(&data, 65).why, "more than 4 times");
    CHECK_HAS(forecast_label_name(FORECAST_X4), "extrapolated x4");
}

/* Perfect scaling leaves no residual: the interval is the floor and nothing else. */
static void test_floor_alone(void)
{
    double x[5];
    rates(x, 4, 0.0, 0.0, 1);
    struct forecast_data data = data_of(x, 4);
    struct forecast f = at(&data, 32);
    CHECK_NEAR(f.low / f.value, exp(-0.039423), 1e-6);
    CHECK_NEAR(f.high / f.value, exp(0.039423), 1e-6);
    data.level = 0.90;
    f = at(&data, 64);
    CHECK_NEAR(f.low / f.value, exp(-0.056618), 1e-6);
    CHECK_NEAR(f.high / f.value, exp(0.056618), 1e-6);
}

/* The point is the geometric mean of the two laws; the envelope has both and more. */
static void test_ensemble(void)
{
    double x[5];
    rates(x, 5, 0.03, 0.01, 3);
    struct forecast_data data = data_of(x, 5);
    struct forecast f = at(&data, 64);
    struct fit amdahl, log2_law, linear;
    CHECK_EQ(fit_law(&amdahl, law_find("amdahl"), &data.fit), 0);
    CHECK_EQ(fit_law(&log2_law, law_find("log2"), &data.fit), 0);
    CHECK_EQ(fit_law(&linear, law_find("linear"), &data.fit), 0);
    CHECK_NEAR(f.value / sqrt(fit_rate(&amdahl, 64) * fit_rate(&log2_law, 64)), 1, 1e-9);
    CHECK(f.envelope_high >= fit_rate(&linear, 64) * (1 - 1e-9));
    CHECK(f.envelope_low <= fit_rate(&amdahl, 64) * (1 + 1e-9));
    struct forecast again = at(&data, 64);
    CHECK(memcmp(&f.low, &again.low, sizeof f.low) == 0 && f.high == again.high);
}

static void test_few_points(void)
{
    double x[5];
    struct forecaster forecaster;
    rates(x, 2, 0.03, 0, 1);
    struct forecast_data data = data_of(x, 2);
    struct forecast f = at(&data, 8);
    CHECK(isnan(f.value) && f.envelope_low < f.envelope_high);
    CHECK_HAS(f.why, "two points");
    data = data_of(x, 1);
    CHECK_EQ(forecaster_init(&forecaster, &data), FAIL_USAGE);
    CHECK_HAS(fail_message(), "one point is no curve");
    fail_clear();
    /* Of three, no law is judged by residuals that it cannot have but the two of the forecast. */
    rates(x, 3, 0.03, 0.01, 1);
    data = data_of(x, 3);
    CHECK_EQ(forecaster_init(&forecaster, &data), 0);
    for (int i = 0; i < forecaster.n_fits; i++)
        CHECK(forecaster.fits[i].law->n_parameters < 3);
    forecaster_release(&forecaster);
    x[1] = NAN;
    data = data_of(x, 2);
    CHECK_EQ(forecaster_init(&forecaster, &data), FAIL_USAGE);
    fail_clear();
}

/* Where one of the two laws is the truth the interval holds what was not measured; launches that
 * differ widen it. */
static void test_coverage(void)
{
    enum { SEEDS = 60 };
    int covered = 0, narrow = 0, wide = 0;
    struct forecast_spread spread[4];
    for (int i = 0; i < 4; i++)
        spread[i] = (struct forecast_spread){0.05, 0.0866, 2};
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        double x[5];
        rates(x, 5, 0.04, 0.01, seed);
        struct forecast_data data = data_of(x, 4);
        data.replicates = 200;
        struct forecast plain = at(&data, 32);
        covered += plain.low <= x[4] && x[4] <= plain.high;
        data.spread = spread;
        struct forecast spread_out = at(&data, 32);
        wide += spread_out.high / spread_out.low > plain.high / plain.low;
        narrow += plain.high / plain.low < 2.0;
    }
    printf("# amdahl, 1 %% noise, 2 times the largest: covered %.1f %%, narrow %.1f %%, wider with "
           "launches "
           "%.1f %%\n",
           100.0 * covered / SEEDS, 100.0 * narrow / SEEDS, 100.0 * wide / SEEDS);
    CHECK(covered >= 0.93 * SEEDS && wide >= 0.95 * SEEDS && narrow >= 0.8 * SEEDS);
}

/* Without a floor the interval is Student's t of the residuals: as wide as they are, and no wider; launches
 * that differ by more are in it. */
static void test_width(void)
{
    static const double n[] = {2, 3, 4, 6, 8, 12, 16, 24, 32, 48};
    double x[10], squares = 0;
    for (int i = 0; i < 10; i++) {
        double noise = 0.01 * (double)rng_normal(rng_key(5, "width"), (uint64_t)i);
        x[i] = 100 * n[i] * exp(noise);
        squares += noise * noise;
    }
    struct forecast_data data = {
        .fit = {10, n, x, FIT_RELATIVE, false}, .level = 0.95, .replicates = 400, .seed = 7};
    struct forecast f = at(&data, 20);
    double expected = 2 * 2.306 * sqrt(squares / 8); /* t of 8 */
    CHECK(log(f.high / f.low) > 0.7 * expected && log(f.high / f.low) < 1.7 * expected);
    struct forecast_spread spread[10];
    for (int i = 0; i < 10; i++)
        spread[i] = (struct forecast_spread){.launch = 0.2, .freedom = 2};
    data.spread = spread;
    f = at(&data, 20);
    expected = 2 * 1.96 * 0.2;
    CHECK(log(f.high / f.low) > 0.8 * expected && log(f.high / f.low) < 1.3 * expected);
}

/* ---- regimes of a series ---- */

static void add(struct series *s, double devices, int64_t nodes, double rate)
{
    struct series_point p = series_point_unknown();
    p.n = devices;
    p.devices = (int64_t)devices;
    p.nodes = nodes;
    p.rate = (struct stats_interval){rate, NAN, NAN, 1};
    series_add(s, &p);
}

static void open_series(struct series_set *set, int64_t devices_per_node)
{
    *set = (struct series_set){0};
    struct series *s = series_set_add(set, "test", "test.csv");
    s->mode = SERIES_STRONG;
    s->devices_per_node = devices_per_node;
}

static void test_regimes(void)
{
    struct series_set set;
    struct regime r[REGIMES];
    int n;
    open_series(&set, 8);
    struct series *s = &set.series[0];
    for (int i = 1; i <= 8; i *= 2)
        add(s, i, 1, 100 * i);
    for (int i = 2; i <= 16; i *= 2)
        add(s, 8 * i, i, 500 * i);
    CHECK_EQ(regime_find(r, &n, s, REGIME_AS_SERIES), 0);
    CHECK_EQ(n, 2);
    CHECK(r[0].kind == REGIME_NODE && r[0].n_points == 4 && r[0].most == 8);
    CHECK(r[1].kind == REGIME_NODES && r[1].n_points == 4 && r[1].n[0] == 16);
    CHECK(!r[1].takes_one_node && r[1].n_one_node == 4);
    regime_release(&r[0]);
    regime_release(&r[1]);
    CHECK_EQ(regime_find(r, &n, s, REGIME_BY_NODE), 0);
    CHECK(n == 1 && r[0].in_nodes && r[0].n[0] == 2 && r[0].n[3] == 16);
    regime_release(&r[0]);
    s->points[5].oversubscribed = true;
    s->points[6].valid = false;
    CHECK_EQ(regime_find(r, &n, s, REGIME_AS_SERIES), 0);
    CHECK(r[1].n_left_out == 2 && r[1].takes_one_node && r[1].n_points == 3 && r[1].n[0] == 8);
    regime_release(&r[0]);
    regime_release(&r[1]);
    s->points[0].nodes = -1;
    CHECK_EQ(regime_find(r, &n, s, REGIME_AS_SERIES), 0);
    CHECK(n == 1 && r[0].kind == REGIME_DECLARED && r[0].n_points == 6);
    regime_release(&r[0]);
    CHECK_EQ(regime_find(r, &n, s, REGIME_BY_NODE), FAIL_USAGE);
    CHECK_HAS(fail_message(), "--unit nodes");
    fail_clear();
    series_set_release(&set);
}

static bool has_note(const struct curve_fit *f, const char *part)
{
    char text[512];
    for (int i = 0; curve_fit_note(f, i, text, sizeof text); i++)
        if (strstr(text, part) != NULL)
            return true;
    return false;
}

/* A curve inside one node says nothing across nodes. */
static void test_no_crossing(void)
{
    struct series_set set;
    struct regime r[REGIMES];
    struct curve_fit f;
    int n;
    open_series(&set, 8);
    for (int i = 1; i <= 4; i *= 2)
        add(&set.series[0], i, 1, 100 * i / (1 + 0.02 * (i - 1)));
    CHECK_EQ(regime_find(r, &n, &set.series[0], REGIME_AS_SERIES), 0);
    struct curve_fit_options how = {.n_predict = 2, .predict = {8, 16}, .seed = 1};
    CHECK_EQ(curve_fit_init(&f, &set.series[0], &r[0], &how), 0);
    CHECK(f.n_forecasts == 1 && f.forecasts[0].n == 8 && f.n_crossing == 1 && f.crossing[0] == 16);
    CHECK(has_note(&f, "not said: 16 devices: more than a node has"));
    CHECK(has_note(&f, "exact single values"));
    curve_fit_release(&f);
    how.laws = 1u << (law_find("physical") - laws);
    CHECK_EQ(regime_find(r, &n, &set.series[0], REGIME_AS_SERIES), 0);
    CHECK_EQ(curve_fit_init(&f, &set.series[0], &r[0], &how), FAIL_USAGE);
    CHECK_HAS(fail_message(), "law physical has 4 parameters and the curve 3 points");
    fail_clear();
    series_set_release(&set);
}

int main(void)
{
    test_labels();
    test_floor_alone();
    test_ensemble();
    test_few_points();
    test_coverage();
    test_width();
    test_regimes();
    test_no_crossing();
    return test_end();
}
