/*
 * collective_fit: what a table of one collective says in two numbers, and when it does not.
 *
 * Time of one operation over S bytes: t = alpha + f S / B, f the busbw factor of the operation, so
 * that B is the bus bandwidth that large messages approach and alpha the time of a small message,
 * all its hops together (a ring of n makes 2 (n - 1) of them in an all-reduce, a tree 2 log2 n).
 * Fitted with relative residuals: a message of 32 KiB counts as much as one of 16 GiB. busbw is
 * undone to time first.
 *
 *   line     one alpha and B for all sizes
 *   pieces   two or three ranges of sizes (latency, middle, bandwidth), each with its own; the
 *            fewest that come within COLLECTIVE_TOLERANCE at every row
 *   table    neither does: sizes between rows are interpolated (log t over log S), and that is said
 *
 * A model is good for the sizes it was fitted to; beyond the table `collective_time_us` gives NaN.
 */
#ifndef ANALYSIS_COLLECTIVE_FIT_H
#define ANALYSIS_COLLECTIVE_FIT_H

#include <stdbool.h>

#include "analysis/collective_table.h"

#define COLLECTIVE_TOLERANCE 0.15

enum { COLLECTIVE_PIECES = 3, COLLECTIVE_PIECE_ROWS = 3 };

enum collective_model { COLLECTIVE_LINE, COLLECTIVE_PIECEWISE, COLLECTIVE_TABLE };

struct collective_line {
    int first, n;                 /* rows of the fit */
    double alpha_us, alpha_error; /* errors: standard, NaN without degrees of freedom */
    double bus_GBps, bus_error;   /* INFINITY: no bandwidth to be seen in these sizes */
    double squares;               /* sum of squared relative residuals */
    double worst;                 /* largest |t_model / t - 1| */
};

struct collective_fit {
    int n_rows, n_left_out;  /* rows without bytes or without time are left out */
    double *bytes, *time_us; /* [n_rows] by size; owned */
    double factor;           /* f; 1 where the operation has none on these ranks */
    int64_t ranks;
    struct collective_line line;
    int n_pieces;
    struct collective_line pieces[COLLECTIVE_PIECES];
    enum collective_model model;
    double worst; /* of the model that was chosen; 0 for the table */
};

/* FAIL_USAGE for fewer than three sizes, or times that are not positive. */
int collective_fit_init(struct collective_fit *out, const struct collective_table *table);
void collective_fit_release(struct collective_fit *fit);

/* By the chosen model; NaN outside the sizes that were measured. */
double collective_time_us(const struct collective_fit *fit, double bytes);

/* By one line; the whole range. */
double collective_line_us(const struct collective_fit *fit, const struct collective_line *line,
                          double bytes);

/* ---- several nodes ---- */

/*
 * What one network interface carries, in GB/s, from the busbw of `ranks` on `nodes` with an
 * interface each: a flat ring crosses each node once, busbw / g; a hierarchical algorithm
 * (NVLSTree, CollNet, a ring of rings) moves the shards of all g ranks, busbw (k - 1) / (n - 1).
 * Which one ran decides by a third or more; when nobody recorded it, both are printed and neither
 * is a gate.
 */
double collective_nic_flat_GBps(double bus_GBps, int64_t ranks, int64_t nodes);
double collective_nic_hierarchical_GBps(double bus_GBps, int64_t ranks, int64_t nodes);

enum collective_algorithm {
    ALGORITHM_UNKNOWN,
    ALGORITHM_FLAT,        /* ring */
    ALGORITHM_HIERARCHICAL /* tree, nvls-tree, collnet */
};

/*
 * An all-reduce over k nodes of g ranks as phases: reduce-scatter and all-gather within a node,
 * whose time is the measured one of an all-reduce on one node, and an all-reduce of S / g between
 * nodes. The truth lies between full overlap of the phases (max) and none (sum): two fits of alpha
 * and B of the network, which bracket it.
 */
struct collective_hierarchy {
    int64_t ranks, nodes;
    int n_rows;                          /* sizes in both tables */
    double *bytes, *inside_us, *time_us; /* [n_rows] owned, one allocation at `bytes` */
    struct collective_bracket {
        double latency_us, us_per_byte; /* between nodes: all hops; S, not its shard */
        double hop_ring_us, hop_tree_us;
        double nic_ring_GBps, nic_tree_GBps; /* per interface */
        double worst;
    } sum, max;
};

/* `node`: the all-reduce on one node of ranks / nodes. FAIL_USAGE when tables do not belong
 * together or share fewer than three sizes. */
int collective_hierarchy_fit(struct collective_hierarchy *out, const struct collective_fit *node,
                             const struct collective_fit *all, int64_t nodes);
void collective_hierarchy_release(struct collective_hierarchy *hierarchy);

/* What the phases take for row i: one after another, or fully overlapped. */
double collective_hierarchy_us(const struct collective_hierarchy *hierarchy, int i, bool overlaps);

#endif
