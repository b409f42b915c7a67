/*
 * counts: dropless routing (learned, without a capacity), where what an expert gets is known only
 * when the router has chosen.
 *
 * A rank sends N K rows, whatever the router says: every slot of its tokens has its row. What
 * arrives is counted: ranks of the expert group tell each other how many rows come (an all-to-all of
 * E / ep numbers each), the host waits for that (OP_COUNTS, once a layer and micro-batch, again
 * where the layer is recomputed) and fills the tables from which the all-to-all-v of rows and the
 * products of blocks are given out. Backward uses them again.
 *
 * Memory has room for the worst that can come, so no choice of the router is ever too much: a token
 * takes K different experts, of which a rank holds E / ep, so each of the ep N tokens sends at most
 * min(K, E / ep) rows here. That is min(ep, E / K) times what even routing would bring.
 */
#ifndef WORKLOADS_COUNTS_H
#define WORKLOADS_COUNTS_H

#include "workloads/plan.h"

/* Rows that can arrive at a rank, of `rows` tokens that each of the group routes. */
int64_t counts_most(int64_t rows, int top_k, int experts, int ranks);

/* Slot by slot even: rows of each expert, counts[experts], of `slots`; what a plan says at first. */
void counts_even(int64_t slots, int experts, int64_t *counts);

/*
 * Fill the tables: own[E] as OP_ROUTE counted, arrived[ranks][E / ranks]. Counts that cannot be (below
 * zero, or more than can arrive) end the job: the exchange was broken.
 */
void counts_put(const struct shape_counts *shape, const int32_t *own, const int32_t *arrived);

#endif
