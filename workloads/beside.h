/*
 * beside: which ops may run beside communication.
 *
 * By the order and the waits of a plan alone: a call is under way from where it is posted until the compute
 * stream waits for it, or for a later one of its stream. When it really ends, nobody knows here; calls
 * of a few numbers (BESIDE_LEAST bytes and less) are over too soon to count.
 */
#ifndef WORKLOADS_BESIDE_H
#define WORKLOADS_BESIDE_H

#include "workloads/plan.h"

enum { BESIDE_LEAST = 4096 };

/* beside[i]: op i of the compute stream begins while some call may be under way; false for all others.
 * [n_ops], of a sealed plan. */
void beside_calls(const struct plan *plan, bool *beside);

#endif
