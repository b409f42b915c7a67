#include "base/units.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

/* A decimal number at the start of `text`; what follows it is at *end. strtod alone would also take
 * blanks, "0x10", "inf" and "nan". */
static int leading_real(const char *text, double *out, const char **end)
{
    const char *digits = text + (*text == '-' || *text == '+');
    if (strspn(digits, ".0123456789") == 0 || strncasecmp(digits, "0x", 2) == 0)
        return -1;
    char *stop;
    *out = strtod(text, &stop);
    *end = stop;
    return stop == text || !isfinite(*out) ? -1 : 0;
}

int units_parse_int(const char *text, int64_t *out)
{
    const char *digits = text + (*text == '-' || *text == '+');
    if (*digits == '\0' || digits[strspn(digits, "0123456789")] != '\0')
        return -1;
    errno = 0;
    long long value = strtoll(text, NULL, 10);
    if (errno != 0)
        return -1;
    *out = value;
    return 0;
}

int units_parse_real(const char *text, double *out)
{
    const char *end;
    double value;
    if (leading_real(text, &value, &end) != 0 || *end != '\0')
        return -1;
    *out = value;
    return 0;
}

static const char SIZE_LETTERS[] = "KMGTPE"; /* 2^10, 2^20, ... */

/* "", "K", "kB", "KiB", "B": the power of two that it stands for, or -1. */
static int size_shift(const char *suffix)
{
    if (*suffix == '\0' || strcasecmp(suffix, "b") == 0)
        return 0;
    int shift = 0;
    for (const char *letter = SIZE_LETTERS; *letter != '\0'; letter++) {
        shift += 10;
        if (strncasecmp(suffix, letter, 1) == 0)
            return suffix[1] == '\0' || strcasecmp(suffix + 1, "b") == 0 ||
                           strcasecmp(suffix + 1, "ib") == 0
                       ? shift
                       : -1;
    }
    return -1;
}

int units_parse_bytes(const char *text, int64_t *out)
{
    size_t n_digits = strspn(text, "0123456789");
    if (n_digits == 0 && *text != '.')
        return -1;
    if (text[n_digits] != '.') {
        char *end;
        unsigned long long whole = strtoull(text, &end, 10); /* ULLONG_MAX when it overflows */
        int shift = size_shift(end);
        if (shift < 0 || whole > (unsigned long long)INT64_MAX >> shift)
            return -1;
        *out = (int64_t)(whole << shift);
        return 0;
    }
    const char *end;
    double value; /* "1.5G" is welcome, "0.3K" is no whole number of bytes */
    if (leading_real(text, &value, &end) != 0)
        return -1;
    int shift = size_shift(end);
    value = shift < 0 ? -1.0 : ldexp(value, shift);
    if (value < 0.0 || value >= 0x1p63 || value != floor(value))
        return -1;
    *out = (int64_t)value;
    return 0;
}

int units_parse_seconds(const char *text, double *out)
{
    static const struct {
        const char *name;
        double times, per; /* one of the two is 1: 90ms is 90 / 1000, correctly rounded */
    } units[] = {{"", 1, 1},     {"s", 1, 1},  {"ns", 1, 1e9}, {"us", 1, 1e6},
                 {"ms", 1, 1e3}, {"m", 60, 1}, {"h", 3600, 1}, {"d", 86400, 1}};
    const char *end;
    double value;
    if (leading_real(text, &value, &end) != 0 || value < 0.0)
        return -1;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (strcmp(end, units[i].name) == 0) {
            value = value * units[i].times / units[i].per;
            *out = value + 0.0; /* "-0" is 0 */
            return isfinite(value) ? 0 : -1;
        }
    return -1;
}

int units_parse_share(const char *text, double *out)
{
    const char *end;
    double value;
    if (leading_real(text, &value, &end) != 0)
        return -1;
    if (strcmp(end, "%") == 0)
        value /= 100.0;
    else if (*end != '\0')
        return -1;
    *out = value;
    return 0;
}

void units_format_bytes(char *text, size_t size, int64_t bytes)
{
    int power = 0;
    while (bytes > 0 && bytes % 1024 == 0 && SIZE_LETTERS[power] != '\0') {
        bytes /= 1024;
        power++;
    }
    snprintf(text, size, "%lld%.*s", (long long)bytes, power > 0,
             power > 0 ? &SIZE_LETTERS[power - 1] : "");
}

const char *units_decimal(double bytes, double *unit)
{
    static const char *const names[] = {"B", "kB", "MB", "GB"};
    int i = 0;
    for (*unit = 1; i < 3 && bytes >= 1000 * *unit; i++)
        *unit *= 1000;
    return names[i];
}

void units_format_real(char *text, size_t size, double value)
{
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, size, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            return;
    }
}

void units_format_seconds(char *text, size_t size, double seconds)
{
    char number[32];
    units_format_real(number, sizeof number, seconds);
    snprintf(text, size, "%ss", number);
}

void units_format_share(char *text, size_t size, double share)
{
    char number[32];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(number, sizeof number, "%.*g", digits, share * 100.0);
        if (strtod(number, NULL) / 100.0 == share) {
            snprintf(text, size, "%s%%", number);
            return;
        }
    }
    /* No number of percents of this length gives the value back: write the share itself. */
    units_format_real(text, size, share);
}

const char *units_s(double n)
{
    return n == 1.0 ? "" : "s";
}

int64_t units_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void units_sleep_ns(int64_t ns)
{
    if (ns <= 0)
        return;
    int64_t end_ns = units_now_ns() + ns;
    struct timespec end = {.tv_sec = (time_t)(end_ns / 1000000000), .tv_nsec = end_ns % 1000000000};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL) == EINTR)
        ;
}
