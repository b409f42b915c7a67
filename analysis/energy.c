#include "analysis/energy.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/nvml.h"

static bool is(const struct telemetry_row *row, const char *kind)
{
    return strncmp(row->kind, kind, sizeof row->kind) == 0;
}

bool energy_known(const struct record_point *point)
{
    return point->telemetry.n > 0;
}

/* ---- blocks ---- */

/* One block of the point, put together from its steps and its counters. */
struct block {
    double tokens, joules, power_limited, thermal_limited; /* shares of the worst rank */
    int64_t duration_ns;                                   /* by rank 0 */
    int rows;                                              /* of counters: some of each rank */
    bool full, warm_up, instrumented, graph;
};

/* Every block of a study has a row, so no index is above their number but in a file that lies. */
static int block_count(const struct record_point *point)
{
    int n = 0;
    for (int64_t i = 0; i < point->telemetry.n; i++) {
        int block = point->telemetry.rows[i].block;
        n = block >= n && block < point->telemetry.n ? block + 1 : n;
    }
    return n;
}

static void add_steps(const struct record_point *point, struct block *blocks, int n)
{
    for (int64_t i = 0; i < point->steps.n; i++) {
        const struct step_row *step = &point->steps.rows[i];
        if (step->rank != 0 || step->block < 0 || step->block >= n)
            continue;
        struct block *block = &blocks[step->block];
        block->full |= step->variant == VARIANT_FULL;
        block->warm_up |= (step->flags & STEP_WARM_UP) != 0;
        block->instrumented |= (step->flags & STEP_INSTRUMENTED) != 0;
        block->graph |= (step->flags & STEP_GRAPH) != 0;
        block->tokens += (double)step->valid_tokens;
    }
}

static double share(int64_t part_ns, int64_t ns)
{
    return part_ns >= 0 && ns > 0 ? (double)part_ns / (double)ns : (double)NAN;
}

static void add_counters(const struct record_point *point, struct block *blocks, int n)
{
    for (int64_t i = 0; i < point->telemetry.n; i++) {
        const struct telemetry_row *row = &point->telemetry.rows[i];
        if (!is(row, "block") || row->block < 0 || row->block >= n)
            continue;
        struct block *block = &blocks[row->block];
        block->joules += row->energy_j;
        block->rows++;
        block->duration_ns += row->rank == 0 ? row->duration_ns : 0;
        block->power_limited =
            fmax(block->power_limited, share(row->power_limited_ns, row->duration_ns));
        block->thermal_limited =
            fmax(block->thermal_limited, share(row->thermal_limited_ns, row->duration_ns));
    }
}

static bool counts(const struct block *block, int ranks, bool instrumented)
{
    return block->full && !block->warm_up && !block->graph && block->rows > 0 &&
           block->rows % ranks == 0 && block->tokens > 0 && block->instrumented == instrumented;
}

/* Blocks lie apart in time, with others between them, so each is a replicate of its own. */
static void energy_of_blocks(struct energy *out, const struct block *blocks, int n, int ranks,
                             uint64_t seed)
{
    double *each = must_alloc((size_t)n + 1, sizeof *each);
    struct stats_series *alone = must_alloc((size_t)n + 1, sizeof *alone);
    double joules = 0, tokens = 0, ns = 0, power = 0, thermal = 0;
    int64_t used = 0;
    bool instrumented = true;
    for (int b = 0; b < n; b++)
        instrumented = instrumented && !counts(&blocks[b], ranks, false);
    for (int b = 0; b < n; b++) {
        if (!counts(&blocks[b], ranks, instrumented))
            continue;
        each[used] = blocks[b].joules / blocks[b].tokens;
        alone[used] = (struct stats_series){&each[used], 1};
        used++;
        joules += blocks[b].joules;
        tokens += blocks[b].tokens;
        ns += (double)blocks[b].duration_ns;
        power += blocks[b].power_limited * (double)blocks[b].duration_ns;
        thermal += blocks[b].thermal_limited * (double)blocks[b].duration_ns;
    }
    if (used > 0)
        stats_launches_interval(alone, (int)used, 0.95, seed, &out->joules_per_token);
    out->joules_per_token.value = used > 0 ? joules / tokens : (double)NAN;
    if (used < 3)
        out->joules_per_token.low = out->joules_per_token.high = NAN;
    double unread = energy_unread(joules / ranks / (ns / 1e9), used, ranks);
    energy_widen(&out->joules_per_token, unread * ranks / (tokens / (double)used));
    stats_positive(&out->joules_per_token);
    out->joules_per_token.n = used;
    out->tokens_per_joule = joules > 0 ? tokens / joules : (double)NAN;
    out->power_w = joules > 0 ? joules / (ns / 1e9) : (double)NAN;
    out->power_limited_share = used > 0 ? power / ns : (double)NAN;
    out->thermal_limited_share = used > 0 ? thermal / ns : (double)NAN;
    free(each);
    free(alone);
}

/* ---- moments and the section ---- */

static void read_moments(struct energy *out, const struct record_point *point)
{
    size_t room = (size_t)point->telemetry.n + 1;
    double *sm = must_alloc(room, sizeof *sm), *memory = must_alloc(room, sizeof *memory);
    int64_t throttled = 0;
    for (int64_t i = 0; i < point->telemetry.n; i++) {
        const struct telemetry_row *row = &point->telemetry.rows[i];
        if (!is(row, "moment") || isnan(row->sm_mhz))
            continue;
        sm[out->moments] = row->sm_mhz;
        memory[out->moments++] = row->memory_mhz;
        out->temperature_c = fmax(out->temperature_c, row->temperature_c);
        out->reasons |= nvml_throttling(row->reasons);
        throttled += nvml_throttling(row->reasons) != 0;
    }
    out->sm_mhz = stats_median(sm, out->moments);
    out->sm_least_mhz = stats_quantile(sm, out->moments, 0.0);
    out->memory_mhz = stats_median(memory, out->moments);
    out->throttled_share =
        out->moments > 0 ? (double)throttled / (double)out->moments : (double)NAN;
    free(sm);
    free(memory);
}

static void add_count(int64_t *sum, int64_t count)
{
    if (count >= 0)
        *sum = (*sum < 0 ? 0 : *sum) + count;
}

static void read_section(struct energy *out, const struct record_point *point)
{
    for (int64_t i = 0; i < point->telemetry.n; i++) {
        const struct telemetry_row *row = &point->telemetry.rows[i];
        if (!is(row, "section"))
            continue;
        out->sm_most_mhz = row->sm_mhz;
        out->limit_w = row->power_w;
        add_count(&out->ecc_corrected, row->ecc_corrected);
        add_count(&out->ecc_uncorrected, row->ecc_uncorrected);
        add_count(&out->nvlink_errors, row->nvlink_errors);
    }
}

void energy_of_point(struct energy *out, const struct record_point *point, uint64_t seed)
{
    int n = block_count(point);
    struct block *blocks = must_alloc((size_t)n + 1, sizeof *blocks);
    *out = (struct energy){.sm_most_mhz = NAN,
                           .limit_w = NAN,
                           .temperature_c = NAN,
                           .ecc_corrected = -1,
                           .ecc_uncorrected = -1,
                           .nvlink_errors = -1};
    for (int b = 0; b < n; b++)
        blocks[b].power_limited = blocks[b].thermal_limited = NAN;
    add_steps(point, blocks, n);
    add_counters(point, blocks, n);
    energy_of_blocks(out, blocks, n, point->point.ranks, seed);
    read_moments(out, point);
    read_section(out, point);
    energy_steps_of_point(&out->steps, point, seed);
    free(blocks);
}

/* ---- words ---- */

bool energy_throttled(const struct energy *e)
{
    return e->reasons != 0 || e->power_limited_share > ENERGY_HELD ||
           e->thermal_limited_share > ENERGY_HELD;
}

static size_t say_throttled(char *text, size_t size, const struct energy *e)
{
    char reasons[128];
    size_t used = (size_t)snprintf(text, size, "telemetry: throttled");
    nvml_reasons_text(e->reasons, reasons, sizeof reasons);
    if (e->reasons != 0 && used < size)
        used += (size_t)snprintf(text + used, size - used, ": %s in %.0f %% of %" PRId64 " moments",
                                 reasons, 100.0 * e->throttled_share, e->moments);
    if (e->power_limited_share > ENERGY_HELD && used < size)
        used += (size_t)snprintf(text + used, size - used,
                                 "%s the power limit held clocks down for %.0f %% of the time",
                                 e->reasons != 0 ? ";" : ":", 100.0 * e->power_limited_share);
    if (e->thermal_limited_share > ENERGY_HELD && used < size)
        used += (size_t)snprintf(text + used, size - used, "; heat for %.0f %%",
                                 100.0 * e->thermal_limited_share);
    return used;
}

bool energy_sentence(char *text, size_t size, const struct energy *e)
{
    size_t used = 0;
    text[0] = '\0';
    if (energy_throttled(e))
        used = say_throttled(text, size, e);
    if ((e->ecc_uncorrected > 0 || e->nvlink_errors > 0) && used < size)
        used += (size_t)snprintf(
            text + used, size - used,
            "%s%" PRId64 " uncorrected memory errors and %" PRId64
            " NVLink errors within the timed section",
            used > 0 ? "; " : "telemetry: ", e->ecc_uncorrected > 0 ? e->ecc_uncorrected : 0,
            e->nvlink_errors > 0 ? e->nvlink_errors : 0);
    return used > 0;
}
