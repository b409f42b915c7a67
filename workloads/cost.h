/*
 * cost: what a plan costs on a topology, as arithmetic. Nothing here runs or measures.
 *
 * A kernel takes the longer of its arithmetic and its bytes, and a launch (roofline):
 *
 *   t = launch + max(flops / (peak of its type * efficiency), bytes / (memory bandwidth *
 *       efficiency))
 *
 * Bytes are those that a fused kernel has to move: each tensor once, a "+=" twice, from the shapes
 * of the op. Matrix products and fused attention have an efficiency each; attention counts its
 * causal half, and backward five products where forward has two (the scores are made again). The
 * rest is charged its few flops an element at the fp32 peak, which hardly ever binds. OP_INPUT is a
 * copy from the host.
 *
 * A collective takes alpha and beta of the levels that its group touches (FORMULAS 1.10; n ranks, S
 * bytes as in collectives/coll.h, a_l and B_l latency and bandwidth of level l, c_l the steps of a
 * ring that cross domains inside level l, sum of c_l = n - 1, g_l the members of one domain below
 * level l):
 *
 *   B                the narrowest of g_l B_l over the levels that are crossed: as many rings run as
 *                    a domain has members, each with a port of its own
 *   all-gather, reduce-scatter   sum c_l a_l + (n-1)/n S/B
 *   all-reduce       the shorter of the ring, twice that, and a double tree: 2 sum of s_l a_l + 2 S/B
 *   broadcast, reduce   the tree one way: sum of s_l a_l + S/B; s_l is a chain inside a node, domains
 *                    less one, and log2 of the domains outside
 *   all-to-all       sum over levels of (peers behind that level) a_l + the longest over levels of
 *                    their share of S / B_l: every rank has a port of its own
 *   sendrecv         as send to the next member and recv of the one before, the longer of the two
 *   send, recv       a_l + S/B_l of the innermost level that holds both
 *
 * A replay of one rank's plan: streams run their ops in order, each when its waits have ended. The
 * end of the compute stream is the step, the plan's critical path; what it waited, by the axis of
 * the wait that ended last, is exposed communication. Peers are taken to come as early as this rank
 * (the same plan on all of a group), so waiting for a late stage is not in it. With a pipeline the plans
 * of all its stages are replayed together (cost_stages): a transfer begins when both sides have come to
 * it, a sum over stages when all have.
 */
#ifndef WORKLOADS_COST_H
#define WORKLOADS_COST_H

#include <stdbool.h>

#include "topologies/topology.h"
#include "workloads/plan.h"

struct cost {
    const struct topology *topology;
    int ranks_per_node; /* of the point */
    bool tf32;          /* fp32 products run at the tf32 peak */
    const double
        *op_s; /* [n_ops] of the plan: seconds that its kernels take instead, such as measured
                           ones; 0: as reckoned. NULL: all are. Only a replay reads it */
};

/* What an op does: products and attention at their share of the peak of op.dtype, the rest at the
 * fp32 peak; bytes of device memory, or for OP_INPUT of the link from the host. */
struct cost_work {
    double product_flops, attention_flops, other_flops, bytes;
};
void cost_work(const struct op *op, struct cost_work *out);

/* FAIL_USAGE when the plan needs a peak that the topology does not give, by name. */
int cost_check(const struct cost *cost, const struct plan *plan);

/* Seconds of one op that is no collective. */
double cost_op_s(const struct cost *cost, const struct op *op);

/* FLOP/s that a rank's matrix products in `dtype` have as their ceiling: the peak, 0 for none. */
double cost_peak_flops(const struct cost *cost, enum dtype dtype);

/* Seconds of one call over a group of ranks of the point; `me` of the group is who sends. */
double cost_coll_s(const struct cost *cost, const struct coll *coll, const struct group *group);

struct cost_step {
    double step_s;                /* critical path */
    double compute_s;             /* of the compute stream, waits apart */
    double comm_s[AXIS_COUNT];    /* sum of the calls of the axis */
    double exposed_s[AXIS_COUNT]; /* the compute stream waiting for the axis */
};

/*
 * Replay a sealed plan. coll_s, when not NULL, is [n_ops] and says how long the collectives take
 * instead of the topology (such as measured ones); entries of other ops are not read.
 */
void cost_plan(const struct cost *cost, const struct plan *plan, const double *coll_s,
               struct cost_step *out);

/*
 * Replay the sealed plans of the n stages of one pipeline, plans[0] of the first. Out: the step of the
 * stage that ends last; means over stages of the rest. *bubble_s: what stages idle, on average, in the
 * same replay with free communication; NULL: not asked for.
 */
void cost_stages(const struct cost *cost, const struct plan *plans, int n, struct cost_step *out,
                 double *bubble_s);

#endif
