/* Collectives on the levels of a topology: cost.h has the formulas. */
#include <math.h>

#include "workloads/cost.h"

/* Devices, or domains of the level inside, that one domain of level l is made of: in all. */
static int parts(const struct topology_span *span, int level)
{
    return level > 0 ? span->domains[level - 1] : span->devices;
}

/* Steps of a ring that stay inside a domain of `level` and leave one of the level inside it. */
static int crossings(const struct topology_span *span, int level)
{
    return parts(span, level) - span->domains[level];
}

static double ring_rate(const struct topology *t, const struct topology_span *span)
{
    double rate = INFINITY;
    for (int l = 0; l < t->n_levels; l++)
        if (crossings(span, l) > 0) {
            double members = (double)span->devices / parts(span, l);
            rate = fmin(rate, members * t->level[l].bandwidth.value);
        }
    return rate;
}

static double ring_latency(const struct topology *t, const struct topology_span *span)
{
    double sum = 0;
    for (int l = 0; l < t->n_levels; l++)
        sum += crossings(span, l) * t->level[l].latency.value;
    return sum;
}

/* A chain inside a node, a binary tree over nodes, as NCCL builds it (src/graph/tuning.cc). */
static double tree_latency(const struct topology *t, const struct topology_span *span)
{
    double sum = 0;
    int node = topology_node_ranks(t);
    for (int l = 0; l < t->n_levels; l++) {
        double fan = (double)parts(span, l) / (double)span->domains[l];
        double steps = t->level[l].ranks <= node ? fan - 1 : ceil(log2(fan));
        sum += steps * t->level[l].latency.value;
    }
    return sum;
}

/* Peers of a rank that are in its domain of `level`, but not in that of the level inside. */
static double peers(const struct topology_span *span, int level)
{
    double inner = (double)span->devices / parts(span, level);
    return (double)span->devices / span->domains[level] - inner;
}

static double all_to_all_s(const struct topology *t, const struct topology_span *span, double bytes)
{
    double latency = 0, longest = 0;
    for (int l = 0; l < t->n_levels; l++) {
        latency += peers(span, l) * t->level[l].latency.value;
        longest =
            fmax(longest, peers(span, l) / span->devices * bytes / t->level[l].bandwidth.value);
    }
    return latency + longest;
}

static double pair_s(const struct cost *cost, const struct group *group, int peer, double bytes)
{
    const struct topology *t = cost->topology;
    int l = topology_level_of(t, cost->ranks_per_node, group_rank(group, group->me),
                              group_rank(group, peer));
    return t->level[l].latency.value + bytes / t->level[l].bandwidth.value;
}

double cost_coll_s(const struct cost *cost, const struct coll *coll, const struct group *group)
{
    const struct topology *t = cost->topology;
    struct topology_span span;
    double bytes = (double)coll_bytes(coll, group->size), n = group->size;
    if (group->size < 2 || coll->count == 0)
        return 0;
    if (coll->kind == COLL_SEND || coll->kind == COLL_RECV)
        return pair_s(cost, group, coll->peer, bytes);
    if (coll->kind == COLL_SENDRECV)
        return fmax(pair_s(cost, group, (group->me + 1) % group->size, bytes),
                    pair_s(cost, group, (group->me + group->size - 1) % group->size, bytes));
    topology_span(t, cost->ranks_per_node, group, &span);
    double once = ring_latency(t, &span) + (n - 1) / n * bytes / ring_rate(t, &span);
    double tree = tree_latency(t, &span) + bytes / ring_rate(t, &span);
    switch (coll->kind) {
    case COLL_ALL_REDUCE:
        return 2 * fmin(once, tree);
    case COLL_ALL_TO_ALL:
    case COLL_ALL_TO_ALL_V: /* S is what the member with most has */
        return all_to_all_s(t, &span, bytes);
    case COLL_BROADCAST:
    case COLL_REDUCE:
        return tree;
    default:
        return once;
    }
}
