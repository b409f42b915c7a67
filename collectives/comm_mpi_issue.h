/*
 * comm_mpi_issue: one call as non-blocking calls of MPI. Shared by comm_mpi*.c alone, which include
 * mpi.h before it.
 */
#ifndef COLLECTIVES_COMM_MPI_ISSUE_H
#define COLLECTIVES_COMM_MPI_ISSUE_H

#include "collectives/comm_mpi.h"

enum { REQUESTS = 2 * COMM_MPI_PIECES }; /* a ring has two of each piece */

/* One call that may be outstanding. */
struct slot {
    struct comm_call call;
    int n_requests;
    MPI_Request request[REQUESTS];
    MPI_Datatype share; /* derived type of a call beyond the limit, else MPI_DATATYPE_NULL */
};

struct mpi;

/* One post: a task of the device's progress thread. */
struct post {
    struct mpi *mpi;
    int64_t first; /* its calls are slots first, first + 1, ... modulo max_calls */
    int n_calls;
    int n_done; /* calls found complete, in order */
};

/* Slots and posts are rings: posts finish in their order, since they share a stream. */
struct mpi {
    MPI_Comm comm; /* MPI_COMM_NULL for a group of one */
    MPI_Op sum_bf16;
    int n_ranks, me;
    const char *axis;
    int64_t limit;
    int max_calls;
    struct slot *slots; /* [max_calls] */
    struct post *posts; /* [max_calls] */
    int *tables;        /* [max_calls][4 n_ranks]: counts and places of all-to-all-v, both sides */
    int64_t n_posted;   /* calls; the host's own */
    int64_t n_posts;
    _Atomic int64_t n_finished; /* calls; written by the progress thread */
};

/* Start the call of a slot: its requests, on the progress thread. */
void comm_mpi_issue(const struct mpi *mpi, struct slot *slot);

/* die() with MPI's own words for an error of a slot's call. */
void comm_mpi_must(const struct mpi *mpi, const struct slot *slot, int error);

/* Whether a buffer of this kind holds a share of every rank. */
bool comm_mpi_is_shared_out(enum coll_kind kind);

/* MPI knows no bf16: it travels as its bits. Each addition is rounded to nearest, ties to even. */
void comm_mpi_add_bf16(void *in, void *inout, int *count, MPI_Datatype *type);

#endif
