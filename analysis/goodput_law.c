#include "analysis/goodput_law.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/quantile.h"
#include "base/err.h"
#include "base/units.h"

static const double level = 0.95;
static const double shortest_s = 1e-3, longest_s = 1e15;
static const char *const names[] = {"node", "device", "job"};
enum { N_NAMES = sizeof names / sizeof *names, WORD = 64 };
#define WANTED "wanted a time (s, m, h, d) and what it is of: 40d/node, 9000h/device or 12h/job"

const char *goodput_law_of_name(enum goodput_law_of of)
{
    return names[of];
}

/* ---- what was typed ---- */

/* A time above 0 that has a unit. */
static int read_time(double *out, const char *option, const char *text)
{
    size_t length = strlen(text);
    if (length == 0 || (!isalpha((unsigned char)text[length - 1]) && text[0] != '-'))
        return fail(FAIL_USAGE, "%s: \"%s\" has no unit of time: " WANTED, option, text);
    if (text[0] == '-')
        return fail(FAIL_USAGE, "%s: \"%s\" is negative: " WANTED, option, text);
    if (units_parse_seconds(text, out) != 0)
        return fail(FAIL_USAGE, "%s: \"%s\" is no time: " WANTED, option, text);
    if (!(*out > 0.0))
        return fail(FAIL_USAGE, "%s: \"%s\" is zero, and must be above: " WANTED, option, text);
    if (*out < shortest_s || *out > longest_s)
        return fail(FAIL_USAGE, "%s: \"%s\" is no time of this world, 1 ms to 1e15 s: " WANTED,
                    option, text);
    return 0;
}

/* Cut "TIME/node" in two: the time into `time`, the rest into *of. */
static int read_of(enum goodput_law_of *of, char time[WORD], const char *option, const char *text)
{
    const char *slash = strchr(text, '/');
    if (slash == NULL || (size_t)(slash - text) >= WORD)
        return fail(FAIL_USAGE, "%s: \"%.100s\" does not say what it is of: " WANTED, option, text);
    snprintf(time, WORD, "%.*s", (int)(slash - text), text);
    for (int i = 0; i < N_NAMES; i++)
        if (strcmp(slash + 1, names[i]) == 0) {
            *of = (enum goodput_law_of)i;
            return 0;
        }
    return fail(FAIL_USAGE, "%s: \"%.100s\" is of no node, device or job: " WANTED, option, text);
}

static int read_mtbf(struct goodput_law *out, const char *text)
{
    char time[WORD], *colon;
    struct stats_interval *m = &out->mtbf_s;
    int rc;
    TRY(read_of(&out->of, time, "--mtbf", text));
    colon = strchr(time, ':');
    out->kind = colon ? LAW_RANGE : LAW_STATED;
    *m = (struct stats_interval){NAN, NAN, NAN, 0};
    if (colon == NULL)
        return read_time(&m->value, "--mtbf", time);
    *colon = '\0';
    TRY(read_time(&m->low, "--mtbf", time));
    TRY(read_time(&m->high, "--mtbf", colon + 1));
    if (m->low > m->high)
        return fail(FAIL_USAGE, "--mtbf: %s is more than %s: wanted a range lo:hi, 20d:60d/node",
                    time, colon + 1);
    m->value = sqrt(m->low * m->high);
out:
    return rc;
}

static int read_count(struct goodput_law *out, const char *text)
{
    int64_t k;
    if (units_parse_int(text, &k) != 0)
        return fail(FAIL_USAGE, "--failures: \"%s\" is no whole number", text);
    if (k < 0)
        return fail(FAIL_USAGE, "--failures: %s is negative: wanted how many there were, 0 or more",
                    text);
    out->failures = k;
    return 0;
}

/* Of a count k in exposure T, the exposure taken as fixed beforehand. */
static void count_interval(struct goodput_law *law)
{
    double k = (double)law->failures, t = law->exposure_s, tail = (1.0 - level) / 2.0;
    struct stats_interval *m = &law->mtbf_s;
    m->n = law->failures;
    if (law->failures == 0) {
        m->low = m->value = 2.0 * t / quantile_chisq(level, 2.0);
        m->high = NAN;
        return;
    }
    m->value = t / k;
    m->low = 2.0 * t / quantile_chisq(1.0 - tail, 2.0 * k + 2.0);
    m->high = 2.0 * t / quantile_chisq(tail, 2.0 * k);
}

int goodput_law_parse(struct goodput_law *out, const char *mtbf, const char *failures,
                      const char *exposure)
{
    char time[WORD];
    int rc;
    *out = (struct goodput_law){.kind = LAW_NONE};
    if (mtbf[0] != '\0' && (failures[0] != '\0' || exposure[0] != '\0'))
        return fail(FAIL_USAGE, "--mtbf and %s both state a failure law: give one of them",
                    failures[0] != '\0' ? "--failures" : "--exposure");
    if ((failures[0] != '\0') != (exposure[0] != '\0'))
        return fail(FAIL_USAGE, "%s was given without %s: a count needs the time it was counted in",
                    failures[0] != '\0' ? "--failures" : "--exposure",
                    failures[0] != '\0' ? "--exposure (4000d/node)" : "--failures");
    if (mtbf[0] != '\0') {
        snprintf(out->said, sizeof out->said, "--mtbf %.120s", mtbf);
        return read_mtbf(out, mtbf);
    }
    if (failures[0] == '\0')
        return 0;
    snprintf(out->said, sizeof out->said, "--failures %.24s --exposure %.80s", failures, exposure);
    out->kind = LAW_COUNTED;
    TRY(read_count(out, failures));
    TRY(read_of(&out->of, time, "--exposure", exposure));
    TRY(read_time(&out->exposure_s, "--exposure", time));
    count_interval(out);
out:
    return rc;
}

/* ---- what it says ---- */

struct stats_interval goodput_law_job(const struct goodput_law *law, double nodes, double devices)
{
    double units = law->of == LAW_OF_NODE ? nodes : law->of == LAW_OF_DEVICE ? devices : 1.0;
    struct stats_interval job = law->mtbf_s;
    job.value /= units;
    job.low /= units;
    job.high /= units;
    return job;
}

void goodput_duration(char *text, size_t size, double seconds)
{
    static const struct {
        const char *name;
        double s;
    } units[] = {{"d", 86400.0}, {"h", 3600.0}, {"m", 60.0}, {"s", 1.0}};
    int i = 0;
    while (i < 3 && !(seconds >= units[i].s))
        i++;
    if (isfinite(seconds))
        snprintf(text, size, "%.4g %s", seconds / units[i].s, units[i].name);
    else
        snprintf(text, size, "-");
}

void goodput_law_text(const struct goodput_law *law, char *text, size_t size)
{
    const char *of = names[law->of];
    const struct stats_interval *m = &law->mtbf_s;
    char value[32], low[32], high[32];
    goodput_duration(value, sizeof value, m->value);
    goodput_duration(low, sizeof low, m->low);
    goodput_duration(high, sizeof high, m->high);
    if (law->kind == LAW_NONE)
        snprintf(text, size, "none was stated");
    else if (law->kind == LAW_STATED)
        snprintf(text, size, "%s a %s, stated: it has no interval", value, of);
    else if (law->kind == LAW_RANGE)
        snprintf(text, size, "%s to %s a %s, stated; planned with the geometric middle, %s", low,
                 high, of, value);
    else if (law->failures == 0)
        snprintf(text, size,
                 "at least %s a %s (one-sided 95 %%, chi-square), n = 0 failures; planned "
                 "with that bound",
                 low, of);
    else
        snprintf(text, size, "%s a %s, 95 %% chi-square interval %s to %s, n = %lld failure%s",
                 value, of, low, high, (long long)law->failures, law->failures == 1 ? "" : "s");
}
