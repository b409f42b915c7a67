/*
 * proof_traffic: what each axis sends inside nodes and from node to node, by three counts.
 *
 *   formula   bytes of the axis in closed form (workloads/formulas), spread evenly over the steps of
 *             its rings, those that cross nodes counted
 *   plan      call by call (workloads/traffic)
 *   executed  bytes of the calls that were posted, on every rank
 *
 * All say "ring in the order of the members": which bytes a library really sends from node to node
 * depends on the algorithm that it picks.
 */
#ifndef DRIVER_PROOF_TRAFFIC_H
#define DRIVER_PROOF_TRAFFIC_H

#include "driver/proof.h"

/*
 * Collective over the point. Appends to out->traffic on rank 0 of the point, one row per axis and
 * level. Returns 0 whatever the verdict; FAIL_COMM.
 */
int proof_traffic(const struct job *job, const struct point *point, const struct plan *plan,
                  const struct proof_counts *step, const void *parent, struct record_point *out);

/* 0, or FAIL_WRONG with `why` naming the first row that does not agree. */
int proof_traffic_verdict(const struct record_point *out, char *why, size_t size);

/* The share of the ring steps of an axis that cross nodes, over all ranks: the formula's count. */
double proof_crossing(const struct group *group, int world, int ranks_per_node);

#endif
