/*
 * agree: ranks leave together, and one rank speaks.
 *
 * agree(rc) is collective over the communicator: it returns the same code on every rank: 0 when all
 * are 0, else the code of the lowest failing rank (by rank), which prints its fail_message() once
 * on stderr as "scalestudy: <message>" (followed by " (host H, rank R)" when not all ranks failed
 * the same way). The message of that rank becomes the fail_message() of all. Waiting is cheap:
 * ranks sleep between tests instead of spinning.
 *
 * `comm` is always the address of an MPI_Comm. A call of MPI that fails within these functions ends the job, by
 * die(FAIL_COMM): a rank that can no longer agree cannot leave with the others either, who would wait for it and never
 * hear why.
 */
#ifndef DRIVER_AGREE_H
#define DRIVER_AGREE_H

#include <stdint.h>

int agree(int rc, const void *comm);

/* The same without printing: for failures that the owner of the story reports elsewhere (a failed
 * gate). */
int agree_quietly(int rc, const void *comm);

/* Quietly, and " (host H, rank R)" becomes part of the message of all: for a sentence that goes on. */
int agree_named(int rc, const void *comm);

/* A barrier, and a broadcast of any size, in which waiting ranks sleep instead of spinning. */
int agree_barrier(const void *comm);
int agree_broadcast(void *data, int64_t bytes, int root, const void *comm);

/*
 * Gather rows of any size at rank 0: ranks -> first rank of each host -> rank 0, in pieces of at
 * most 64 MiB, in rank order. On rank 0 *all is malloc'd with *total bytes and counts[size] the
 * bytes of each rank; elsewhere NULL, 0, and counts may be NULL. FAIL_INTERNAL on all ranks when
 * rank 0 has no memory for the rows.
 */
int agree_gather(const void *data, int64_t bytes, void **all, int64_t *total, int64_t *counts,
                 const void *comm);

/*
 * The same in pieces of at most `piece_bytes` (<= 2^30), `host` being the first rank of this rank's
 * host in `comm`: what agree_gather calls, and what tests turn. counts may be NULL but on rank 0.
 */
int agree_gather_by(const void *data, int64_t bytes, void **all, int64_t *total, int64_t *counts,
                    const void *comm, int host, int64_t piece_bytes);

/*
 * For other waits of the driver: complete the MPI_Request at this address, sleeping 20 us to 1 ms
 * between tests. And the first rank of `comm` on this rank's host, by shared memory: collective in
 * the first call for a communicator, which keeps the answer as an attribute.
 */
int agree_wait(void *request);
int agree_host(int *first, const void *comm);

/* The same end for other calls of MPI that ranks make together between two agreements: AGREE_MPI(MPI_...(...)). */
_Noreturn void agree_failed(int code, const char *call);
#define AGREE_MPI(call)                                                                            \
    do {                                                                                           \
        int agree_code = (call);                                                                   \
        if (agree_code != MPI_SUCCESS)                                                             \
            agree_failed(agree_code, #call);                                                       \
    } while (0)

#endif
