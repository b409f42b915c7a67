/*
 * comm_check: prove a communicator before trusting its timings.
 *
 * comm_prove runs every kind of collective on it, with exact values at counts that include 0, 1, a
 * prime and one above a page, outputs poisoned first, and compares bits: sums in fp32, fp64 and bf16 (of
 * uint8 they are not portable: Open MPI 4.1 saturates in its vector code), the rest in all types.
 * comm_check_wrap gives a communicator that behaves like the inner one but poisons receive buffers
 * before each call (not in place ones) and keeps the sequence of calls; comm_check_order compares
 * that over the group.
 */
#ifndef COLLECTIVES_COMM_CHECK_H
#define COLLECTIVES_COMM_CHECK_H

#include "collectives/comm.h"

/*
 * Collective over the group, while nothing else is outstanding on the device; needs room for two
 * calls and for four entries on the stream. 0, or FAIL_WRONG naming kind, dtype, count, element,
 * expected and found, or what alloc() fails with. *n_wrong counts wrong elements of this rank over
 * all calls, those written outside the receive buffer included. max_count bounds the elements of
 * the largest buffer of a call: counts that need more are left out. Counters of the communicator
 * are as before afterwards.
 */
int comm_prove(struct comm *comm, int64_t max_count, int64_t *n_wrong);

/* Bytes of each of the two buffers that it takes on the device meanwhile. */
int64_t comm_prove_bytes(int64_t max_count);

/*
 * Wrap an open communicator: `comm` takes over its type and state and closes both. Collective over
 * `parent`, as comm_open was. Each post needs one more entry on the stream. FAIL_COMM.
 */
int comm_check_wrap(struct comm *comm, const void *parent);

/*
 * Collective over the group, outside any fence: FAIL_WRONG on every member, with the same message
 * that names the first difference, when members made different calls since the last comparison.
 * Sends are compared with the receives of their peer. Also the check() of the wrapped type.
 */
int comm_check_order(struct comm *comm);

#endif
