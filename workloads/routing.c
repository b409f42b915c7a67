#include "workloads/routing.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/rng.h"

enum { DRAWS = 8 };

void routing_defaults(struct routing *routing)
{
    *routing = (struct routing){.kind = ROUTING_BALANCED, .balance = 0.01f};
}

/* ---- words ---- */

static int parse_kind(const char *kind, struct routing *out)
{
    char *end;
    out->sigma = 0;
    if (strcmp(kind, "balanced") == 0) {
        out->kind = ROUTING_BALANCED;
        return 0;
    }
    if (strcmp(kind, "learned") == 0) {
        out->kind = ROUTING_LEARNED;
        return 0;
    }
    if (strncmp(kind, "skewed:", 7) != 0)
        return fail(FAIL_USAGE, "--routing: found \"%s\", wanted balanced, skewed:SIGMA or learned",
                    kind);
    out->kind = ROUTING_SKEWED;
    out->sigma = strtod(kind + 7, &end);
    if (end == kind + 7 || *end != '\0' || !(out->sigma >= 0) || out->sigma > 10)
        return fail(FAIL_USAGE,
                    "--routing: found \"%s\", wanted a number from 0 to 10 behind skewed:", kind);
    return 0;
}

int routing_parse(const char *kind, const char *capacity, struct routing *out)
{
    char *end;
    int rc = parse_kind(kind, out);
    if (rc)
        return rc;
    out->capacity = out->kind == ROUTING_LEARNED ? 1.25 : 0;
    if (strcmp(capacity, "auto") == 0)
        return 0;
    out->capacity = 0;
    if (strcmp(capacity, "none") == 0)
        return 0;
    out->capacity = strtod(capacity, &end);
    if (end == capacity || *end != '\0' || !(out->capacity > 0) || out->capacity > 1e6)
        return fail(FAIL_USAGE,
                    "--capacity: found \"%s\", wanted auto, none or a factor above 0, at "
                    "most 1e6",
                    capacity);
    if (out->kind == ROUTING_BALANCED && out->capacity < 1)
        return fail(FAIL_USAGE,
                    "--capacity: found %s with --routing balanced, which has no token to drop: "
                    "choose a factor from 1, none, or another routing",
                    capacity);
    return 0;
}

/* ---- definitions ---- */

int64_t routing_capacity(const struct routing *routing, int64_t sequence, int experts, int top_k)
{
    if (routing->capacity <= 0)
        return 0;
    double slots =
        ceil(routing->capacity * (double)top_k * (double)sequence / (double)experts - 1e-9);
    return slots < (double)sequence ? (int64_t)slots : sequence;
}

uint64_t routing_key(const struct routing *routing, int layer)
{
    return rng_bits(rng_key(routing->seed, "routing"), (uint64_t)layer);
}

void routing_thresholds(const struct routing *routing, int layer, int experts, uint32_t *out)
{
    uint64_t key = rng_bits(rng_key(routing->seed, "popularity"), (uint64_t)layer);
    double sum = 0, until = 0;
    for (int e = 0; e < experts; e++)
        sum += exp(routing->sigma * (double)rng_normal(key, (uint64_t)e));
    for (int e = 0; e < experts; e++) {
        until += exp(routing->sigma * (double)rng_normal(key, (uint64_t)e));
        double share = floor(until / sum * 4294967295.0);
        out[e] = e == experts - 1 || share > 4294967295.0 ? UINT32_MAX : (uint32_t)share;
    }
}

static bool has(const int32_t *taken, int n, int32_t expert)
{
    for (int i = 0; i < n; i++)
        if (taken[i] == expert)
            return true;
    return false;
}

static int32_t draw(const struct shape_route *route, uint64_t index)
{
    uint32_t u = (uint32_t)(rng_bits(route->key, index) >> 32);
    int32_t e = 0;
    while (u > route->threshold[e])
        e++;
    return e;
}

static int32_t take_skewed(const struct shape_route *route, int64_t token, const int32_t *taken,
                           int j)
{
    uint64_t first = ((uint64_t)token * (uint64_t)route->top_k + (uint64_t)j) * DRAWS;
    int32_t e = 0;
    for (int i = 0; i < DRAWS; i++)
        if (!has(taken, j, e = draw(route, first + (uint64_t)i)))
            return e;
    while (has(taken, j, e))
        e = (e + 1) % route->experts;
    return e;
}

void routing_take(const struct shape_route *route, int64_t token, int32_t *taken)
{
    uint64_t experts = (uint64_t)route->experts;
    uint64_t first = (uint64_t)token * (uint64_t)route->top_k + route->key % experts;
    for (int j = 0; j < route->top_k; j++)
        taken[j] = route->kind == ROUTING_BALANCED ? (int32_t)((first + (uint64_t)j) % experts)
                                                   : take_skewed(route, token, taken, j);
}

void routing_counts(const struct shape_route *route, int64_t *counts)
{
    int64_t in_sequence[EXPERTS_MOST] = {0};
    int32_t taken[TOP_K_MOST];
    memset(counts, 0, (size_t)route->experts * sizeof *counts);
    for (int64_t row = 0; row < route->all_rows; row++) {
        bool own = routing_own(route, row) >= 0;
        if (row % route->sequence == 0)
            memset(in_sequence, 0, sizeof in_sequence);
        if (!own && route->capacity == 0)
            continue;
        routing_take(route, route->first_token + row, taken);
        for (int j = 0; j < route->top_k; j++)
            if (route->capacity == 0 || in_sequence[taken[j]]++ < route->capacity)
                counts[taken[j]] += own;
    }
}
