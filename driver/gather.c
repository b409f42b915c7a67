/* The gather of agree.h. The rows of a host, its ranks in order, are one stream, which the first
 * rank of the host cuts into pieces: a piece is the only buffer on the way. */
#include "driver/agree.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <mpi.h>

#include "base/err.h"

enum { PIECE_BYTES = 64 << 20, PIECE_TAG = 1001, GO_TAG };

struct share {
    int64_t bytes;
    int64_t host;  /* first rank of the host */
    int64_t start; /* of these rows in the stream of the host */
    int64_t place; /* of these rows in the result */
};

struct gather {
    MPI_Comm comm;
    int rank, size;
    int64_t piece_bytes;
    struct share *shares; /* [size], the same on every rank */
    const char *data;     /* rows of this rank */
    char *piece;          /* one piece, on first ranks of hosts */
    char *all;            /* rank 0: the result */
    int64_t total;
};

static void gather_release(struct gather *gather)
{
    free(gather->shares);
    free(gather->piece);
    free(gather->all);
}

static int64_t host_bytes(const struct gather *gather, int host)
{
    int64_t bytes = 0;
    for (int rank = host; rank < gather->size; rank++)
        if (gather->shares[rank].host == host)
            bytes += gather->shares[rank].bytes;
    return bytes;
}

static int share_all(struct gather *gather, int64_t bytes, int host)
{
    int rc = 0;
    struct share mine = {.bytes = bytes, .host = host};
    MPI_Request request;
    gather->shares = must_alloc((size_t)gather->size, sizeof *gather->shares);
    AGREE_MPI(MPI_Iallgather(&mine, sizeof mine, MPI_BYTE, gather->shares, sizeof mine, MPI_BYTE,
                             gather->comm, &request));
    TRY(agree_wait(&request));
    for (int rank = 0; rank < gather->size; rank++) {
        struct share *share = &gather->shares[rank];
        share->place = gather->total;
        gather->total += share->bytes;
        /* The bytes so far of a host are kept at its first rank, whose own start is 0. */
        share->start = gather->shares[share->host].start;
        gather->shares[share->host].start += share->bytes;
    }
    for (int rank = 0; rank < gather->size; rank++)
        if (gather->shares[rank].host == rank)
            gather->shares[rank].start = 0;
out:
    return rc;
}

/* Room for the result at rank 0, and for a piece where pieces are made. */
static int make_room(struct gather *gather)
{
    int rc = 0;
    int64_t most = 0;
    for (int rank = 0; rank < gather->size; rank++)
        if (gather->shares[rank].host == rank && (gather->rank == 0 || gather->rank == rank)) {
            int64_t bytes = host_bytes(gather, rank);
            most = bytes > most ? bytes : most;
        }
    most = most < gather->piece_bytes ? most : gather->piece_bytes;
    gather->piece = malloc((size_t)most + 1);
    if (gather->rank == 0)
        gather->all = malloc((size_t)gather->total + 1);
    if (gather->piece == NULL || (gather->rank == 0 && gather->all == NULL))
        rc = fail(FAIL_INTERNAL, "gather: no memory for %lld bytes of rows of %d ranks",
                  (long long)gather->total, gather->size);
    return agree_quietly(rc, &gather->comm);
}

/* The part of a piece [from, to) of a host's stream that is the rows of `rank`. */
static bool overlap(const struct share *share, int64_t from, int64_t to, int64_t *at,
                    int64_t *bytes)
{
    int64_t end = share->start + share->bytes;
    *at = share->start > from ? share->start : from;
    *bytes = (end < to ? end : to) - *at;
    return *bytes > 0;
}

/*
 * A sender sleeps until its receiver says go; then both move the bytes without sleeping, since a
 * library that copies in fragments advances only while it is called.
 */
static int send_part(const struct gather *gather, const void *data, int64_t bytes, int to)
{
    int rc = 0;
    MPI_Request go;
    AGREE_MPI(MPI_Irecv(NULL, 0, MPI_BYTE, to, GO_TAG, gather->comm, &go));
    TRY(agree_wait(&go));
    AGREE_MPI(MPI_Send(data, (int)bytes, MPI_BYTE, to, PIECE_TAG, gather->comm));
out:
    return rc;
}

static int receive_part(const struct gather *gather, void *data, int64_t bytes, int from)
{
    AGREE_MPI(MPI_Send(NULL, 0, MPI_BYTE, from, GO_TAG, gather->comm));
    AGREE_MPI(
        MPI_Recv(data, (int)bytes, MPI_BYTE, from, PIECE_TAG, gather->comm, MPI_STATUS_IGNORE));
    return 0;
}

/* First rank of a host: fill the piece from its ranks. */
static int collect(struct gather *gather, int64_t from, int64_t to)
{
    int rc = 0;
    int64_t at, bytes;
    for (int rank = gather->rank; rank < gather->size; rank++) {
        const struct share *share = &gather->shares[rank];
        if (share->host != gather->rank || !overlap(share, from, to, &at, &bytes))
            continue;
        if (rank == gather->rank)
            memcpy(gather->piece + (at - from), gather->data + (at - share->start), (size_t)bytes);
        else
            TRY(receive_part(gather, gather->piece + (at - from), bytes, rank));
    }
out:
    return rc;
}

/* Rank 0: the piece of a host, each rank's part to its place. */
static void spread(struct gather *gather, int host, int64_t from, int64_t to)
{
    int64_t at, bytes;
    for (int rank = host; rank < gather->size; rank++) {
        const struct share *share = &gather->shares[rank];
        if (share->host == host && overlap(share, from, to, &at, &bytes))
            memcpy(gather->all + share->place + (at - share->start), gather->piece + (at - from),
                   (size_t)bytes);
    }
}

/* One host's stream, as seen by a rank with rows in it, its first rank, or rank 0. */
static int move_host(struct gather *gather, int host)
{
    int rc = 0;
    const struct share *mine = &gather->shares[gather->rank];
    int64_t stream = host_bytes(gather, host), at, bytes;
    for (int64_t from = 0, to; from < stream; from = to) {
        to = stream - from < gather->piece_bytes ? stream : from + gather->piece_bytes;
        if (gather->rank == host)
            TRY(collect(gather, from, to));
        else if (mine->host == host && overlap(mine, from, to, &at, &bytes))
            TRY(send_part(gather, gather->data + (at - mine->start), bytes, host));
        if (gather->rank == host && host != 0)
            TRY(send_part(gather, gather->piece, to - from, 0));
        if (gather->rank == 0 && host != 0)
            TRY(receive_part(gather, gather->piece, to - from, host));
        if (gather->rank == 0)
            spread(gather, host, from, to);
    }
out:
    return rc;
}

int agree_gather_by(const void *data, int64_t bytes, void **all, int64_t *total, int64_t *counts,
                    const void *comm, int host, int64_t piece_bytes)
{
    int rc = 0;
    struct gather gather = {
        .comm = *(const MPI_Comm *)comm, .data = data, .piece_bytes = piece_bytes};
    *all = NULL;
    *total = 0;
    AGREE_MPI(MPI_Comm_rank(gather.comm, &gather.rank));
    AGREE_MPI(MPI_Comm_size(gather.comm, &gather.size));
    TRY(share_all(&gather, bytes, host));
    TRY(make_room(&gather));
    for (int first = 0; first < gather.size; first++)
        if (gather.shares[first].host == first && (gather.rank == 0 || host == first))
            TRY(move_host(&gather, first));
    if (gather.rank == 0) {
        for (int rank = 0; rank < gather.size; rank++)
            counts[rank] = gather.shares[rank].bytes;
        *all = gather.all;
        *total = gather.total;
        gather.all = NULL;
    }
out:
    gather_release(&gather);
    return rc;
}

int agree_gather(const void *data, int64_t bytes, void **all, int64_t *total, int64_t *counts,
                 const void *comm)
{
    int host, rc = agree_host(&host, comm);
    *all = NULL;
    *total = 0;
    if (rc == 0)
        rc = agree_gather_by(data, bytes, all, total, counts, comm, host, PIECE_BYTES);
    return rc;
}
