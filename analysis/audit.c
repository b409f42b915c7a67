#include "analysis/audit.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

const char *audit_words(int quantity)
{
    static const char *const words[] = {
#define AUDIT_TEXT(name, column, text) text,
        AUDIT_QUANTITIES(AUDIT_TEXT)
#undef AUDIT_TEXT
    };
    return words[quantity];
}

static bool is(const struct audit_row *row, const char *kind)
{
    return strncmp(row->kind, kind, sizeof row->kind) == 0;
}

/* Both sides of a quantity; negative: not known. */
static void sides(const struct audit_row *row, int quantity, int64_t *stamps, int64_t *records)
{
    switch (quantity) {
#define AUDIT_SIDES(name, column, text)                                                            \
    case name:                                                                                     \
        *stamps = row->column##_ns;                                                                \
        *records = row->record_##column##_ns;                                                      \
        break;
        AUDIT_QUANTITIES(AUDIT_SIDES)
#undef AUDIT_SIDES
    }
}

/* Of one rank: medians of both sides, and the quantity that is farthest off. */
static int64_t compare_rank(const struct record_point *point, int rank, struct audit *out)
{
    int64_t all = point->audit.n, n = 0;
    double *stamps = must_alloc((size_t)all + 1, sizeof *stamps);
    double *records = must_alloc((size_t)all + 1, sizeof *records);
    out->off = -1;
    for (int q = 0; q < AUDIT_COUNT; q++) {
        n = 0;
        for (int64_t i = 0; i < all; i++) {
            const struct audit_row *row = &point->audit.rows[i];
            int64_t a = -1, b = -1;
            sides(row, q, &a, &b);
            if (row->rank != rank || !is(row, "audit") || a < 0 || b < 0)
                continue;
            stamps[n] = (double)a;
            records[n++] = (double)b;
        }
        out->stamps_ns[q] = stats_median(stamps, n);
        out->records_ns[q] = stats_median(records, n);
        double off = fabs(out->records_ns[q] - out->stamps_ns[q]) / out->stamps_ns[AUDIT_STEP];
        if (n > 0 && off > out->off) {
            out->off = off;
            out->worst = (enum audit_quantity)q;
        }
    }
    free(stamps);
    free(records);
    out->rank = rank;
    return n;
}

/* What the stamps of a rank say of steps without the profiler. */
static void quiet_rank(const struct record_point *point, struct audit *out)
{
    double *stamps = must_alloc((size_t)point->audit.n + 1, sizeof *stamps);
    for (int q = 0; q < AUDIT_COUNT; q++) {
        int64_t n = 0;
        for (int64_t i = 0; i < point->audit.n; i++) {
            const struct audit_row *row = &point->audit.rows[i];
            int64_t a = -1, b = -1;
            sides(row, q, &a, &b);
            if (row->rank == out->rank && is(row, "instrumented") && a >= 0)
                stamps[n++] = (double)a;
        }
        out->quiet_ns[q] = n > 0 ? stats_median(stamps, n) : (double)NAN;
    }
    free(stamps);
}

static int64_t steps_of(const struct record_point *point, const char *kind, double *out)
{
    int64_t n = 0;
    for (int64_t i = 0; i < point->audit.n; i++)
        if (is(&point->audit.rows[i], kind) && point->audit.rows[i].step_ns > 0)
            out[n++] = (double)point->audit.rows[i].step_ns;
    return n;
}

/* The next block of either kind in which rank 0 has steps, from row *at on: its median step. */
static bool next_block(const struct record_point *point, int64_t *at, bool *bare, double *median)
{
    const struct audit_row *rows = point->audit.rows;
    int64_t n = 0, first = *at;
    double *steps;
    while (first < point->audit.n &&
           (rows[first].rank != 0 || rows[first].step_ns <= 0 ||
            (!is(&rows[first], "bare") && !is(&rows[first], "unstamped"))))
        first++;
    if (first == point->audit.n)
        return false;
    steps = must_alloc((size_t)(point->audit.n - first), sizeof *steps);
    for (*at = first; *at < point->audit.n; ++*at) {
        const struct audit_row *row = &rows[*at];
        if (row->rank != 0)
            continue;
        if (row->block != rows[first].block)
            break;
        if (row->step_ns > 0)
            steps[n++] = (double)row->step_ns;
    }
    *bare = is(&rows[first], "bare");
    *median = stats_median(steps, n);
    free(steps);
    return true;
}

/* Neighbouring blocks, one bare and one unstamped, are a pair: drift is in both. How many. */
static int64_t bare_pairs(const struct record_point *point, double *ratios)
{
    int64_t at = 0, n = 0;
    bool bare, other_bare;
    double median, other;
    bool first = next_block(point, &at, &bare, &median);
    while (first && next_block(point, &at, &other_bare, &other)) {
        if (bare != other_bare) {
            ratios[n++] = bare ? median / other : other / median;
            first = next_block(point, &at, &bare, &median);
        } else { /* one is missing between the two */
            bare = other_bare;
            median = other;
        }
    }
    return n;
}

/* Of three pairs and more; else of all steps of the one kind over all of the other. */
static void compare_bare(struct audit *out, const struct record_point *point, uint64_t seed)
{
    enum { LEAST = 3 };
    size_t room = (size_t)point->audit.n + 1;
    double *ratios = must_alloc(room, sizeof *ratios), *bare = must_alloc(room, sizeof *bare);
    struct stats_series *alone = must_alloc(room, sizeof *alone);
    int64_t pairs = bare_pairs(point, ratios);
    for (int64_t i = 0; i < pairs; i++)
        alone[i] = (struct stats_series){&ratios[i], 1};
    if (pairs >= LEAST) {
        stats_launches_interval(alone, (int)pairs, 0.95, seed, &out->bare_ratio);
    } else {
        int64_t n_bare = steps_of(point, "bare", bare), n = steps_of(point, "unstamped", ratios);
        stats_ratio_interval(bare, n_bare, ratios, n, 0.95, seed, &out->bare_ratio);
    }
    free(ratios);
    free(bare);
    free(alone);
}

static void compare_kinds(struct audit *out, const struct record_point *point, uint64_t seed)
{
    size_t room = (size_t)point->audit.n + 1;
    double *bare = must_alloc(room, sizeof *bare), *other = must_alloc(room, sizeof *other);
    int64_t n_bare = steps_of(point, "bare", bare), n = steps_of(point, "audit", other);
    stats_ratio_interval(other, n, bare, n_bare, 0.95, seed, &out->audit_ratio);
    n = steps_of(point, "instrumented", other);
    stats_ratio_interval(other, n, bare, n_bare, 0.95, seed, &out->instrumented_ratio);
    free(bare);
    free(other);
    compare_bare(out, point, seed);
}

void audit_of_point(struct audit *out, const struct record_point *point, uint64_t seed)
{
    memset(out, 0, sizeof *out);
    out->off = -1;
    for (int rank = 0; rank < point->point.ranks && point->audit.n > 0; rank++) {
        struct audit one = *out;
        int64_t n = compare_rank(point, rank, &one);
        if (n > 0 && one.off > out->off) {
            *out = one;
            out->steps = n;
        }
    }
    for (int64_t i = 0; i < point->audit.n; i++)
        if (point->audit.rows[i].lost > out->lost)
            out->lost = point->audit.rows[i].lost;
    if (point->audit.n > 0) {
        quiet_rank(point, out);
        compare_kinds(out, point, seed);
    }
}

/* Nothing where no step ran without stamps. */
static void say_bare(char *text, size_t size, const struct stats_interval *ratio)
{
    if (isfinite(ratio->low) && isfinite(ratio->high))
        snprintf(text, size, ", bare / without stamps %.4f (%.4f to %.4f)", ratio->value,
                 ratio->low, ratio->high);
    else if (isfinite(ratio->value))
        snprintf(text, size, ", bare / without stamps %.4f, without an interval", ratio->value);
}

bool audit_sentence(char *text, size_t size, const struct record_point *point)
{
    struct audit a;
    size_t used;
    if (point->audit.n == 0)
        return false;
    audit_of_point(&a, point, 1);
    used = (size_t)snprintf(text, size, "audit: ");
    if (a.steps == 0)
        used += (size_t)snprintf(text + used, size - used, "no records that fit its steps; ");
    for (int q = 0; q < AUDIT_COUNT && a.steps > 0 && used < size; q++)
        used +=
            (size_t)snprintf(text + used, size - used, "%s %.3f ms by stamps, %.3f by records; ",
                             audit_words(q), a.stamps_ns[q] / 1e6, a.records_ns[q] / 1e6);
    if (a.steps > 0 && used < size)
        used += (size_t)snprintf(text + used, size - used,
                                 "rank %d, medians of %" PRId64
                                 " steps, apart by %.2f %% of the step at most; ",
                                 a.rank, a.steps, 100.0 * a.off);
    if (a.lost > 0 && used < size)
        used += (size_t)snprintf(text + used, size - used, "%" PRId64 " records lost; ", a.lost);
    if (isfinite(a.quiet_ns[AUDIT_COMPUTE]) && used < size)
        used += (size_t)snprintf(text + used, size - used,
                                 "compute busy %.3f ms by stamps without the profiler; ",
                                 a.quiet_ns[AUDIT_COMPUTE] / 1e6);
    if (used < size)
        used += (size_t)snprintf(text + used, size - used,
                                 "audited / bare %.4f, every op stamped / bare %.4f",
                                 a.audit_ratio.value, a.instrumented_ratio.value);
    if (used < size)
        say_bare(text + used, size - used, &a.bare_ratio);
    return true;
}
