#include "workloads/schedule.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"

const char *schedule_name(int kind)
{
    static const char *const names[] = {"gpipe", "1f1b", "interleaved", "zb-h1"};
    return kind >= 0 && kind <= SCHEDULE_ZB_H1 ? names[kind] : "?";
}

/* ---- refusals ---- */

/* "a or b": the nearest to `wanted` from 1 up of which `unit` times it divides n. */
static void nearest_dividing(int64_t n, int64_t unit, int64_t wanted, char *text, size_t size)
{
    int64_t below = wanted, above = wanted;
    while (below > 0 && n % (unit * below) != 0)
        below--;
    while (unit * above <= n && n % (unit * above) != 0)
        above++;
    if (below > 0 && unit * above <= n)
        snprintf(text, size, "%lld or %lld", (long long)below, (long long)above);
    else
        snprintf(text, size, "%lld", (long long)(below > 0 ? below : above));
}

static int check_interleaved(const struct schedule *s, int64_t layers)
{
    char nearest[64];
    int below = s->micro_batches / s->stages * s->stages;
    if (s->chunks < 2)
        return fail(FAIL_USAGE, "schedule: interleaved with --virtual-stages 1 is 1f1b: choose 2 "
                                "or more, or --schedule 1f1b");
    if (s->micro_batches % s->stages != 0)
        return fail(FAIL_USAGE,
                    "schedule: interleaved takes micro-batches by the stages, and %d is no "
                    "multiple of pp=%d; choose %d or %d of them (batch over dp and micro-batch)",
                    s->micro_batches, s->stages, below, below + s->stages);
    if (layers % ((int64_t)s->stages * s->chunks) == 0)
        return 0;
    if (layers % s->stages != 0)
        return fail(FAIL_USAGE,
                    "schedule: %lld layers do not split into pp=%d times %d chunks: "
                    "interleaved needs equal ones; choose pp and --virtual-stages whose product "
                    "divides %lld, or --schedule 1f1b",
                    (long long)layers, s->stages, s->chunks, (long long)layers);
    nearest_dividing(layers, s->stages, s->chunks, nearest, sizeof nearest);
    return fail(FAIL_USAGE,
                "schedule: %lld layers do not split into pp=%d times %d chunks; choose "
                "--virtual-stages %s",
                (long long)layers, s->stages, s->chunks, nearest);
}

int schedule_check(const struct schedule *s, int64_t layers)
{
    if (s->stages == 1)
        return 0;
    if (s->stages > layers)
        return fail(FAIL_USAGE, "layout: pp=%d stages of %lld layers; choose pp=%lld or fewer",
                    s->stages, (long long)layers, (long long)layers);
    if (s->micro_batches < s->stages)
        return fail(FAIL_USAGE,
                    "schedule: %d micro-batch%s a step for pp=%d stages: a stage would never be "
                    "busy; choose a global batch of %d micro-batches or more, or a smaller "
                    "micro-batch",
                    s->micro_batches, s->micro_batches == 1 ? "" : "es", s->stages, s->stages);
    if (s->chunks < 1)
        return fail(FAIL_USAGE, "virtual-stages: found %d, wanted a number from 1", s->chunks);
    if (s->kind == SCHEDULE_INTERLEAVED)
        return check_interleaved(s, layers);
    if (s->chunks > 1)
        return fail(FAIL_USAGE,
                    "schedule: %s has one chunk a stage, and --virtual-stages is %d; choose 1, or "
                    "--schedule interleaved",
                    schedule_name((int)s->kind), s->chunks);
    return 0;
}

/* ---- layers ---- */

/* Parts with a layer more than others, before part `part`: middle ones come first, then the first. */
static int64_t longer_before(int64_t extra, int64_t parts, int64_t part)
{
    int64_t middle = extra < parts - 2 ? extra : parts - 2;
    int64_t ahead = part - 1 < middle ? part - 1 : middle;
    bool first = extra > middle && parts > 1;
    return part == 0 ? 0 : (ahead > 0 ? ahead : 0) + first;
}

void schedule_layers(const struct schedule *s, int64_t layers, int stage, int chunk, int64_t *first,
                     int64_t *end)
{
    int64_t parts = (int64_t)s->stages * s->chunks, part = (int64_t)chunk * s->stages + stage;
    int64_t each = layers / parts, extra = layers % parts;
    *first = part * each + longer_before(extra, parts, part);
    *end = (part + 1) * each + longer_before(extra, parts, part + 1);
}

/* ---- lists ---- */

static int slots_of_part(const struct schedule *s)
{
    return s->micro_batches * s->chunks;
}

int schedule_slots(const struct schedule *s)
{
    return slots_of_part(s) * (s->kind == SCHEDULE_ZB_H1 ? 3 : 2);
}

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

int schedule_warm_up(const struct schedule *s, int stage)
{
    int all = slots_of_part(s), behind = s->stages - 1 - stage;
    if (s->kind == SCHEDULE_GPIPE)
        return all;
    if (s->kind == SCHEDULE_INTERLEAVED)
        return smaller(all, 2 * behind + (s->chunks - 1) * s->stages);
    return smaller(all, behind);
}

int schedule_in_flight(const struct schedule *s, int stage)
{
    int all = slots_of_part(s);
    if (s->kind == SCHEDULE_ZB_H1)
        return smaller(all, s->stages);
    return smaller(all, schedule_warm_up(s, stage) + 1);
}

double schedule_bubble(const struct schedule *s, const double *seconds)
{
    double idle = s->stages - 1, ideal = (double)s->micro_batches * s->chunks;
    if (s->kind != SCHEDULE_ZB_H1)
        return idle / ideal;
    double f = seconds[PART_FORWARD], b = seconds[PART_BACKWARD], w = seconds[PART_WEIGHTS];
    return idle / ideal * (f + b - w) / (f + b + w);
}

/* The k-th of a part: p micro-batches through a chunk, then through the next. */
static struct schedule_slot slot_at(const struct schedule *s, enum schedule_part part, int k)
{
    int group = s->stages * s->chunks, in = k % group, chunk = in / s->stages;
    if (s->chunks == 1)
        return (struct schedule_slot){part, k, 0};
    return (struct schedule_slot){part, k / group * s->stages + in % s->stages,
                                  part == PART_FORWARD ? chunk : s->chunks - 1 - chunk};
}

void schedule_list(const struct schedule *s, int stage, struct schedule_slot *out)
{
    int all = slots_of_part(s), warm = schedule_warm_up(s, stage), forward = 0, weights = 0;
    for (; forward < warm; forward++)
        *out++ = slot_at(s, PART_FORWARD, forward);
    for (int backward = 0; backward < all; backward++) {
        if (forward < all)
            *out++ = slot_at(s, PART_FORWARD, forward++);
        *out++ = slot_at(s, PART_BACKWARD, backward);
        if (s->kind == SCHEDULE_ZB_H1 && backward >= stage)
            *out++ = slot_at(s, PART_WEIGHTS, weights++);
    }
    while (s->kind == SCHEDULE_ZB_H1 && weights < all)
        *out++ = slot_at(s, PART_WEIGHTS, weights++);
}
