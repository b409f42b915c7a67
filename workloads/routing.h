/*
 * routing: which experts a token takes, and which of the takers an expert has room for.
 *
 *   balanced   slot j of token t takes expert (t K + j + shift of the layer) mod E: over any E tokens
 *              in a row every expert is taken equally often
 *   skewed     each layer gives expert e the popularity exp(sigma z_e), z normal: log-normal, as
 *              loads of trained models are reported. Slot j draws an expert by popularity; one that
 *              the token has already is drawn again, at most 8 times, then the next free one counts
 *   learned    the K largest logits of the router, the lower expert first where they are equal
 *
 * t is the index of the token in the global batch of a step, so that balanced and skewed depend on
 * seed, layer and t alone: no way of splitting changes them, and all counts are known in advance.
 *
 * Whatever chose, the gates are p_e / (sum of p over the taken ones), p the softmax of all logits in
 * fp32; with K = 1, p_e itself. Capacity F: of the takers of an expert in one sequence the first
 * ceil(F K S / E), in the order of positions, are kept; what is dropped adds nothing, and the gates
 * of the others stay. The load-balance loss of a sequence is S E sum_e f_e P_e, f_e the share of its
 * slots that took e before dropping, P_e the mean of p_e (Fedus et al. 2021, eq. 4, per sequence); the
 * objective of a step is (token losses + balance * that, over sequences and layers) / valid tokens.
 */
#ifndef WORKLOADS_ROUTING_H
#define WORKLOADS_ROUTING_H

#include "workloads/plan.h"

struct routing {
    enum routing_kind kind;
    double sigma;    /* of skewed */
    double capacity; /* F; 0: none, every taker is kept */
    float balance;   /* coefficient of the load-balance loss */
    uint64_t seed;
};

/* Balanced, no capacity, balance 0.01, seed 0. */
void routing_defaults(struct routing *routing);

/*
 * "balanced", "skewed:SIGMA" or "learned", and "auto", "none" or a capacity factor above 0; auto is
 * 1.25 for learned and none for the others. FAIL_USAGE with a sentence: unknown words, and a factor
 * below 1 with balanced, where no token need be dropped.
 */
int routing_parse(const char *kind, const char *capacity, struct routing *out);

/* Learned without a capacity: what arrives at an expert is counted in every step (counts.h). */
static inline bool routing_is_dropless(const struct routing *routing)
{
    return routing->kind == ROUTING_LEARNED && routing->capacity <= 0;
}

/* Slots that an expert has in a sequence, at most its tokens; 0: no limit. */
int64_t routing_capacity(const struct routing *routing, int64_t sequence, int experts, int top_k);

uint64_t routing_key(const struct routing *routing, int layer);
void routing_thresholds(const struct routing *routing, int layer, int experts, uint32_t *out);

/* The experts of a token, taken[top_k], of balanced and skewed. */
void routing_take(const struct shape_route *route, int64_t token, int32_t *taken);

/* Which rank of cp has a row of all_rows; it becomes the index there. */
static inline int routing_context(const struct shape_route *route, int64_t *row)
{
    if (route->contexts <= 1)
        return 0;
    int64_t own = route->sequence / route->contexts, chunk = own / route->runs;
    int64_t at = *row % route->sequence, n = at / chunk;
    bool late = n >= route->contexts; /* of two runs the second */
    *row = *row / route->sequence * own + (late ? chunk : 0) + at % chunk;
    return (int)(late ? 2 * route->contexts - 1 - n : n);
}

/* Where the logits of a row of all_rows lie; is the row this rank's? Then its index. */
static inline int64_t routing_at(const struct shape_route *route, int64_t row, int64_t *own)
{
    int context = routing_context(route, &row);
    int64_t at = row / route->lead, part = at % route->parts;
    int64_t index = at / route->parts * route->lead + row % route->lead;
    bool mine = part == route->part && context == route->context;
    *own = mine ? index : -1;
    return (context * route->parts + part) * route->rows + index;
}

/* This rank's index of a row of all_rows, -1: another's. */
static inline int64_t routing_own(const struct shape_route *route, int64_t row)
{
    int64_t own;
    routing_at(route, row, &own);
    return own;
}

/* Slots of this rank's tokens that each expert keeps, counts[experts]; of balanced and skewed. */
void routing_counts(const struct shape_route *route, int64_t *counts);

#endif
