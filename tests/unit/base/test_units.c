/* What people type as numbers is read whole or refused, and what we print is read back exactly. */
#include "base/units.h"

#include <errno.h>
#include <float.h>
#include <signal.h>
#include <sys/time.h>

#include "base/rng.h"
#include "tests/test.h"

static void test_int(void)
{
    static const struct {
        const char *text;
        int64_t value;
    } good[] = {{"0", 0},
                {"-1", -1},
                {"+7", 7},
                {"007", 7},
                {"9223372036854775807", INT64_MAX},
                {"-9223372036854775808", INT64_MIN}};
    static const char *const bad[] = {
        "", "-", "+", " 1", "1 ", "1.0", "0x10", "1e3", "--1", "1k", "9223372036854775808", "nan"};
    int64_t value;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        value = 77;
        CHECK_EQ(units_parse_int(good[i].text, &value), 0);
        CHECK_EQ(value, good[i].value);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (!CHECK(units_parse_int(bad[i], &value) == -1))
            printf("  \"%s\"\n", bad[i]);
}

static void test_bytes(void)
{
    static const struct {
        const char *text;
        int64_t value;
        const char *again;
    } good[] = {{"0", 0, "0"},
                {"0.0", 0, "0"},
                {"25M", 26214400, "25M"},
                {"25MB", 26214400, "25M"},
                {"25MiB", 26214400, "25M"},
                {"25mib", 26214400, "25M"},
                {"100B", 100, "100"},
                {"1k", 1024, "1K"},
                {"1.5K", 1536, "1536"},
                {".5K", 512, "512"},
                {"1025", 1025, "1025"},
                {"1024K", 1048576, "1M"},
                {"4T", INT64_C(4) << 40, "4T"},
                {"7E", INT64_C(7) << 60, "7E"},
                {"9223372036854775807", INT64_MAX, "9223372036854775807"}};
    static const char *const bad[] = {"",
                                      "K",
                                      "-1",
                                      "+1",
                                      " 1",
                                      "1 K",
                                      "1KK",
                                      "1iB",
                                      "1Kib2",
                                      "8E",
                                      "9223372036854775808",
                                      "0.3K",
                                      "1.K.",
                                      "1e3",
                                      "nan",
                                      "1,5K",
                                      "9007199254740993P",
                                      "18446744073709551616",
                                      "."};
    int64_t value;
    char text[32];
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        CHECK_EQ(units_parse_bytes(good[i].text, &value), 0);
        CHECK_EQ(value, good[i].value);
        units_format_bytes(text, sizeof text, value);
        CHECK(strcmp(text, good[i].again) == 0);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (!CHECK(units_parse_bytes(bad[i], &value) == -1))
            printf("  \"%s\"\n", bad[i]);
    for (uint64_t i = 0; i < 2000; i++) {
        int64_t wanted = (int64_t)(rng_bits(5, i) >> 1 >> rng_below(6, i, 63));
        wanted = rng_below(7, i, 2) ? wanted : wanted >> 10 << 10;
        units_format_bytes(text, sizeof text, wanted);
        CHECK(units_parse_bytes(text, &value) == 0 && value == wanted);
    }
}

static void test_seconds(void)
{
    static const struct {
        const char *text;
        double value;
    } good[] = {{"90", 90},    {"90s", 90},    {"0", 0},       {"1.5m", 90},
                {"2h", 7200},  {"1d", 86400},  {"5ms", 0.005}, {"300us", 3e-4},
                {"7ns", 7e-9}, {"1e3s", 1000}, {".25s", 0.25}};
    static const char *const bad[] = {"",    "s",     "-1s",   "1 s", "1S",  "1min",  "inf",
                                      "nan", "1e999", "0x1p3", " 1",  "1s ", "1e308d"};
    double value;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        CHECK_EQ(units_parse_seconds(good[i].text, &value), 0);
        CHECK(value == good[i].value);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (!CHECK(units_parse_seconds(bad[i], &value) == -1))
            printf("  \"%s\"\n", bad[i]);
}

static void test_real_and_share(void)
{
    double value;
    CHECK(units_parse_real("6e-4", &value) == 0 && value == 6e-4);
    CHECK(units_parse_real("-2.5", &value) == 0 && value == -2.5);
    static const char *const bad[] = {"",     ".",     "-",    "1x", "inf",
                                      "-nan", "1e999", "0x10", " 1", "1 "};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        CHECK_EQ(units_parse_real(bad[i], &value), -1);
        CHECK_EQ(units_parse_share(bad[i], &value), -1);
    }
    CHECK(units_parse_share("1%", &value) == 0 && value == 0.01);
    CHECK(units_parse_share("0.25", &value) == 0 && value == 0.25);
    CHECK(units_parse_share("-3%", &value) == 0 && value == -0.03);
    CHECK_EQ(units_parse_share("1%%", &value), -1);
    CHECK_EQ(units_parse_share("%", &value), -1);

    char text[32];
    units_format_share(text, sizeof text, 0.01);
    CHECK(strcmp(text, "1%") == 0);
    units_format_seconds(text, sizeof text, 90);
    CHECK(strcmp(text, "90s") == 0);
    units_format_seconds(text, sizeof text, 1e6);
    CHECK(strcmp(text, "1000000s") == 0);
}

static void round_trip(double wanted)
{
    char text[32];
    double value = -1;
    units_format_real(text, sizeof text, wanted);
    CHECK(units_parse_real(text, &value) == 0 && value == wanted);
    units_format_share(text, sizeof text, wanted);
    CHECK(units_parse_share(text, &value) == 0 && value == wanted);
    units_format_seconds(text, sizeof text, fabs(wanted));
    CHECK(units_parse_seconds(text, &value) == 0 && value == fabs(wanted));
}

static void test_round_trip(void)
{
    static const double extremes[] = {0,   DBL_MIN, DBL_MAX, -DBL_MAX, DBL_EPSILON, 5e-324,
                                      0.1, 1e22,    0.07,    0.29,     1.0 / 3};
    for (size_t i = 0; i < sizeof extremes / sizeof extremes[0]; i++)
        round_trip(extremes[i]);
    for (uint64_t i = 0; i < 3000; i++) {
        uint64_t bits = rng_bits(9, i);
        double value;
        memcpy(&value, &bits, sizeof value);
        if (isfinite(value))
            round_trip(value);
        round_trip(rng_uniform(10, i));
    }
}

static void wake(int signal_number)
{
    (void)signal_number;
}

static void test_sleep_is_never_early(void)
{
    struct sigaction action = {.sa_handler = wake};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval timer = {.it_value = {.tv_usec = 2000}, .it_interval = {.tv_usec = 2000}};
    setitimer(ITIMER_REAL, &timer, NULL);
    int64_t start = units_now_ns();
    units_sleep_ns(20000000);
    CHECK(units_now_ns() - start >= 20000000);
    memset(&timer, 0, sizeof timer);
    setitimer(ITIMER_REAL, &timer, NULL);
    start = units_now_ns();
    units_sleep_ns(-5);
    CHECK(units_now_ns() >= start);
}

static void test_decimal(void)
{
    static const struct {
        double bytes, unit;
        const char *name;
    } of[] = {{0, 1, "B"},         {999, 1, "B"},      {1000, 1e3, "kB"},
              {999999, 1e3, "kB"}, {1e6, 1e6, "MB"},   {999e6, 1e6, "MB"},
              {1e9, 1e9, "GB"},    {141e9, 1e9, "GB"}, {4e15, 1e9, "GB"}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        double unit = 0;
        CHECK(strcmp(units_decimal(of[i].bytes, &unit), of[i].name) == 0);
        CHECK(unit == of[i].unit);
    }
}

static void test_plural(void)
{
    CHECK(strcmp(units_s(1), "") == 0);
    CHECK(strcmp(units_s(0), "s") == 0 && strcmp(units_s(2), "s") == 0);
    CHECK(strcmp(units_s(NAN), "s") == 0);
}

int main(void)
{
    test_int();
    test_bytes();
    test_seconds();
    test_real_and_share();
    test_round_trip();
    test_sleep_is_never_early();
    test_decimal();
    test_plural();
    return test_end();
}
