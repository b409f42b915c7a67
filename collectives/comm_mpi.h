/*
 * comm_mpi: what the "mpi" communicator does with counts that MPI 3.1 cannot say in an int.
 *
 * One MPI call takes at most `limit` elements (2^31 - 1), summed over the group where its buffer
 * holds a share of every rank. Larger all-reduces, reduces, broadcasts, sends and receives go out
 * as pieces, at most COMM_MPI_PIECES at a time; larger all-gathers and all-to-alls as elements of
 * one derived type per share, which MPI_Type_contiguous makes when the call starts. A larger
 * reduce-scatter has neither way out (its shares are strided, and sums want built-in types), nor has a
 * larger all-to-all-v (parts and their places are int): takes() refuses them, and post() dies.
 */
#ifndef COLLECTIVES_COMM_MPI_H
#define COLLECTIVES_COMM_MPI_H

#include "collectives/comm.h"

enum { COMM_MPI_PIECES = 16 };

/* Pieces of at most `limit` elements that hold `count` of them: 0 for 0. */
int64_t comm_mpi_pieces(int64_t count, int64_t limit);

/* Lower the limit of an open "mpi" communicator, before its first post: so that a test of a few
 * elements goes the ways of a large call. Every member of the group does the same. */
void comm_mpi_limit(struct comm *comm, int64_t limit);

#endif
