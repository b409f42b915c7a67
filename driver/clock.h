/*
 * clock: one time line for the ranks of a point.
 *
 * Ranks of one host share CLOCK_MONOTONIC: offset exactly 0. The first rank of each other host
 * measures its offset to rank 0 by ping-pong, keeping the exchange with the smallest round trip
 * (SKaMPI's filter); half that round trip is the error. Measured before and after a point, the
 * offset at time t is the line between the two. Hosts take turns, so that nobody disturbs another's
 * exchange, and who waits for its turn sleeps.
 */
#ifndef DRIVER_CLOCK_H
#define DRIVER_CLOCK_H

#include <stdint.h>

struct clock_fit {
    int64_t at_ns[2];     /* local time of the two measurements */
    int64_t offset_ns[2]; /* to add to local time to get rank 0's */
    int64_t error_ns; /* half the smallest round trip, the larger of the two; 0 on rank 0's host */
};

/* Collective; comm is the address of an MPI_Comm. which = 0 before (clears the fit), 1 after. */
int clock_measure(struct clock_fit *fit, int which, const void *comm);

/* Rank 0's time at this host's local time; with one measurement its offset holds throughout. */
int64_t clock_global_ns(const struct clock_fit *fit, int64_t local_ns);

/* The same with other clocks than CLOCK_MONOTONIC, `host` being the first rank of this rank's host
 * in `comm`: what clock_measure calls, and how a test has hosts whose clocks differ. */
int clock_measure_by(struct clock_fit *fit, int which, const void *comm, int host,
                     int64_t (*now_ns)(void));

#endif
