/* A failure law is taken as stated, with the interval that its kind has, or refused in one sentence; how
 * fast nodes save at once is found again from saves with a known truth, and no limit is seen where none is. */
#include <math.h>

#include <gsl/gsl_cdf.h>
#include <gsl/gsl_errno.h>

#include "analysis/goodput_law.h"
#include "analysis/goodput_storage.h"
#include "base/err.h"
#include "base/rng.h"
#include "tests/test.h"

static struct goodput_law law_of(const char *mtbf, const char *failures, const char *exposure)
{
    struct goodput_law law;
    CHECK_EQ(goodput_law_parse(&law, mtbf, failures, exposure), 0);
    return law;
}

static void laws_are_read(void)
{
    char text[256];
    struct goodput_law law = law_of("40d/node", "", "");
    struct stats_interval m = goodput_law_job(&law, 80, 640);
    CHECK_NEAR(m.value, 43200, 1e-9);
    CHECK(isnan(m.low) && isnan(m.high));
    goodput_law_text(&law, text, sizeof text);
    CHECK_HAS(text, "40 d a node, stated: it has no interval");
    law = law_of("1.5h/job", "", "");
    CHECK_NEAR(goodput_law_job(&law, 80, 640).value, 5400, 1e-9);
    law = law_of("20d:80d/device", "", "");
    m = goodput_law_job(&law, 80, 640);
    CHECK_NEAR(m.low, 20 * 135.0, 1e-9);
    CHECK_NEAR(m.value, 40 * 135.0, 1e-9);
    CHECK_NEAR(m.high, 80 * 135.0, 1e-9);
    law = law_of("90m:90m/node", "", "");
    CHECK_NEAR(law.mtbf_s.low, law.mtbf_s.high, 0);
    law = law_of("", "", "");
    CHECK_EQ(law.kind, LAW_NONE);
}

/* P(Poisson(mean) <= k): what the ends of the interval are made of, term by term. */
static double poisson(double mean, int64_t k)
{
    double term = exp(-mean), sum = term;
    for (int64_t i = 1; i <= k; i++)
        sum += term *= mean / (double)i;
    return sum;
}

static void counts_have_their_interval(void)
{
    char text[256];
    struct goodput_law law = law_of("", "0", "1000d/node");
    CHECK_NEAR(law.mtbf_s.low / 86400, 1000 / 2.9957, 0.01); /* T / 2.996 */
    CHECK(isnan(law.mtbf_s.high));
    goodput_law_text(&law, text, sizeof text);
    CHECK_HAS(text, "at least 333.8 d a node (one-sided 95 %, chi-square), n = 0 failures");
    for (int k = 1; k < 400; k = 3 * k + 1) {
        char count[16];
        snprintf(count, sizeof count, "%d", k);
        law = law_of("", count, "1000d/node");
        double t = law.exposure_s;
        CHECK_NEAR(law.mtbf_s.value, t / k, 1e-6);
        /* So few failures are 2.5 % likely at the lower end of MTBF, so many at the upper. */
        CHECK_NEAR(poisson(t / law.mtbf_s.low, k), 0.025, 1e-9);
        CHECK_NEAR(1 - poisson(t / law.mtbf_s.high, k - 1), 0.025, 1e-9);
        CHECK_EQ(law.mtbf_s.n, k);
    }
}

static void large_counts_too(void)
{
    int seen = 0;
    gsl_error_handler_t *handler = gsl_set_error_handler_off();
    for (int k = 990; k <= 100000; k += k / 10) {
        char count[16];
        snprintf(count, sizeof count, "%d", k);
        struct goodput_law law = law_of("", count, "1000d/node");
        double low = 2 * law.exposure_s / gsl_cdf_chisq_Pinv(0.975, 2.0 * k + 2);
        double high = 2 * law.exposure_s / gsl_cdf_chisq_Pinv(0.025, 2.0 * k);
        if (!isfinite(low) || !isfinite(high))
            continue; /* GSL has no answer */
        CHECK_NEAR(law.mtbf_s.low / low, 1, 1e-6);
        CHECK_NEAR(law.mtbf_s.high / high, 1, 1e-6);
        seen++;
    }
    gsl_set_error_handler(handler);
    CHECK(seen > 10);
    struct goodput_law law = law_of("", "1000000000000", "1e12s/job");
    CHECK_NEAR((law.mtbf_s.high / law.mtbf_s.low - 1) / (2 * 1.959964e-6), 1, 1e-3);
}

static void intervals_cover(void)
{
    /* 10,000 fleets with a true MTBF of 1, watched for 7: the interval holds 1 in 95 % or more. */
    uint64_t key = rng_key(5, "fleets"), draw = 0;
    int held = 0;
    for (int i = 0; i < 10000; i++) {
        int k = 0;
        for (double t = 0; (t -= log1p(-rng_uniform(key, draw++))) < 7;)
            k++;
        char count[16];
        snprintf(count, sizeof count, "%d", k);
        struct goodput_law law;
        goodput_law_parse(&law, "", count, "7s/job");
        held += law.mtbf_s.low <= 1 && !(law.mtbf_s.high < 1);
    }
    CHECK(held >= 9500 && held <= 9900);
}

static void refuses(const char *mtbf, const char *failures, const char *exposure, const char *words)
{
    struct goodput_law law;
    fail_clear();
    CHECK_EQ(goodput_law_parse(&law, mtbf, failures, exposure), FAIL_USAGE);
    CHECK_HAS(fail_message(), words);
    CHECK(strchr(fail_message(), '\n') == NULL);
    fail_clear();
}

static void bad_laws_are_refused(void)
{
    refuses("0d/node", "", "", "--mtbf: \"0d\" is zero");
    refuses("-3d/node", "", "", "--mtbf: \"-3d\" is negative");
    refuses("40/node", "", "", "--mtbf: \"40\" has no unit of time");
    refuses("20:60d/node", "", "", "--mtbf: \"20\" has no unit of time");
    refuses("40d", "", "", "does not say what it is of");
    refuses("40d/rack", "", "", "is of no node, device or job");
    refuses("40x/node", "", "", "\"40x\" is no time");
    refuses("1e999d/node", "", "", "is no time");
    refuses("1e300d/job", "", "", "\"1e300d\" is no time of this world");
    refuses("1us/job", "", "", "is no time of this world");
    refuses("", "3", "1e20d/node", "is no time of this world");
    refuses("/node", "", "", "has no unit of time");
    refuses("60d:20d/node", "", "", "60d is more than 20d");
    refuses("", "-1", "10d/node", "--failures: -1 is negative");
    refuses("", "2.5", "10d/node", "is no whole number");
    refuses("", "3", "0h/node", "--exposure: \"0h\" is zero");
    refuses("", "3", "-4h/node", "--exposure: \"-4h\" is negative");
    refuses("", "3", "4/node", "--exposure: \"4\" has no unit of time");
    refuses("", "3", "", "without --exposure");
    refuses("", "", "4d/node", "without --failures");
    refuses("40d/node", "3", "4d/node", "--mtbf and --failures both state");
    refuses("40d/node", "", "4d/node", "--mtbf and --exposure both state");
}

/* ---- storage ---- */

enum { SIZES = 5, EACH = 8 };
static const double nodes[SIZES] = {1, 2, 4, 8, 16};

static int make_saves(struct goodput_save *saves, int sizes, double node, double shared,
                      double noise, uint64_t seed)
{
    int n = 0;
    for (int i = 0; i < sizes; i++)
        for (int k = 0; k < EACH; k++, n++) {
            double rate = fmin(nodes[i] * node, shared);
            saves[n].nodes = nodes[i];
            saves[n].bytes = 1e9;
            saves[n].seconds =
                1e9 / rate * exp(noise * (double)rng_normal(rng_key(seed, "saves"), (uint64_t)n));
        }
    return n;
}

static bool holds(const struct stats_interval *x, double truth)
{
    return x->low <= truth && truth <= x->high;
}

static void the_limit_is_found_again(void)
{
    struct goodput_save saves[SIZES * EACH];
    struct goodput_storage s;
    int node_held = 0, shared_held = 0, time_held = 0;
    for (uint64_t seed = 0; seed < 200; seed++) {
        int n = make_saves(saves, SIZES, 2e9, 11e9, 0.05, seed);
        CHECK(goodput_storage_fit(&s, saves, n));
        CHECK(s.node_seen && s.shared_seen);
        node_held += holds(&s.node_per_s, 2e9);
        shared_held += holds(&s.shared_per_s, 11e9);
        struct stats_interval t = goodput_storage_seconds(&s, 32, 55e9);
        time_held += holds(&t, 5);
    }
    printf("intervals hold: node %d, shared %d, time %d of 200\n", node_held, shared_held,
           time_held);
    CHECK(node_held >= 180 && shared_held >= 180 && time_held >= 180);
    CHECK_NEAR(goodput_storage_seconds(&s, 2, 4e9).value, 1, 0.06);
}

static void no_limit_is_no_limit(void)
{
    struct goodput_save saves[SIZES * EACH];
    struct goodput_storage s;
    int seen = 0, unseen = 0;
    for (uint64_t seed = 0; seed < 400; seed++) {
        int n = make_saves(saves, 3, 2e9, INFINITY, 0.05, seed);
        goodput_storage_fit(&s, saves, n);
        seen += s.shared_seen;
        n = make_saves(saves, 3, INFINITY, 3e9, 0.05, seed);
        goodput_storage_fit(&s, saves, n);
        unseen += s.node_seen;
    }
    printf("seen by chance: a limit %d, a slope %d of 400\n", seen, unseen);
    CHECK(seen <= 40 && unseen <= 40);
    goodput_storage_fit(&s, saves, make_saves(saves, 3, 2e9, INFINITY, 0, 1));
    CHECK(!s.shared_seen);
    CHECK_NEAR(s.shared_per_s.low, 8e9, 1);
    /* Beyond four nodes: at best in proportion, at worst the limit begins right there. */
    struct stats_interval t = goodput_storage_seconds(&s, 16, 32e9);
    CHECK_NEAR(t.value, 1, 1e-9);
    CHECK_NEAR(t.high, 4, 1e-9);
    CHECK_NEAR(goodput_storage_seconds(&s, 4, 8e9).high, 1, 1e-9);
    goodput_storage_fit(&s, saves, make_saves(saves, 3, INFINITY, 3e9, 0, 1));
    CHECK(!s.node_seen);
    CHECK_NEAR(goodput_storage_seconds(&s, 16, 3e9).value, 1, 1e-9);
    CHECK(isnan(goodput_storage_seconds(&s, 0.5, 3e9).value));
}

/* What fails later is lost in seconds, so it is their arithmetic mean that a rate is made of. */
static void seconds_have_an_arithmetic_mean(void)
{
    struct goodput_save saves[] = {{1, 1e9, 1}, {1, 1e9, 3}, {2, 2e9, 1}, {2, 2e9, 3}};
    struct goodput_storage s;
    CHECK(goodput_storage_fit(&s, saves, 4));
    CHECK(s.node_seen && !s.shared_seen);
    CHECK_NEAR(s.node_per_s.value, 5e8, 1);
    CHECK_NEAR(s.worst, 0, 1e-12);
    CHECK_NEAR(goodput_storage_seconds(&s, 1, 1e9).value, 2, 1e-9);
}

static void two_counts_are_the_least(void)
{
    struct goodput_save saves[SIZES * EACH];
    struct goodput_storage s;
    CHECK(!goodput_storage_fit(&s, saves, make_saves(saves, 1, 2e9, 11e9, 0.01, 1)));
    CHECK(!goodput_storage_fit(&s, saves, 0));
    saves[0] = (struct goodput_save){1, 1e9, 1};
    saves[1] = (struct goodput_save){2, 1e9, 1};
    CHECK(goodput_storage_fit(&s, saves, 2)); /* one save each: nothing to judge a limit by */
    CHECK(!(s.node_seen && s.shared_seen));
    goodput_storage_assume(&s, 2e9, 0);
    CHECK_NEAR(goodput_storage_seconds(&s, 8, 16e9).value, 1, 1e-9);
    goodput_storage_assume(&s, 2e9, 4e9);
    CHECK_NEAR(goodput_storage_seconds(&s, 8, 16e9).value, 4, 1e-9);
    CHECK(isnan(goodput_storage_seconds(&s, 8, 16e9).low) && s.assumed);
}

static void durations_have_their_unit(void)
{
    static const struct {
        double seconds;
        const char *text;
    } cases[] = {{30, "30 s"},    {90, "1.5 m"},     {3600, "1 h"},    {5400, "1.5 h"},
                 {86400, "1 d"},  {216000, "2.5 d"}, {0.25, "0.25 s"}, {0, "0 s"},
                 {INFINITY, "-"}, {NAN, "-"}};
    char text[32];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        goodput_duration(text, sizeof text, cases[i].seconds);
        if (!CHECK(strcmp(text, cases[i].text) == 0))
            printf("  \"%s\"\n", text);
    }
}

static void laws_say_what_was_stated(void)
{
    struct goodput_law law;
    CHECK_EQ(goodput_law_parse(&law, "40d/node", "", ""), 0);
    CHECK(strcmp(law.said, "--mtbf 40d/node") == 0);
    CHECK(strcmp(goodput_law_of_name(law.of), "node") == 0);
    CHECK_EQ(goodput_law_parse(&law, "", "3", "30h/job"), 0);
    CHECK(strcmp(law.said, "--failures 3 --exposure 30h/job") == 0);
    CHECK(strcmp(goodput_law_of_name(law.of), "job") == 0);
}

int main(void)
{
    durations_have_their_unit();
    laws_say_what_was_stated();
    laws_are_read();
    counts_have_their_interval();
    large_counts_too();
    intervals_cover();
    bad_laws_are_refused();
    the_limit_is_found_again();
    no_limit_is_no_limit();
    seconds_have_an_arithmetic_mean();
    two_counts_are_the_least();
    return test_end();
}
