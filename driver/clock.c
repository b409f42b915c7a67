#include "driver/clock.h"

#include <stdbool.h>
#include <stdlib.h>

#include <mpi.h>

#include "base/err.h"
#include "base/units.h"
#include "driver/agree.h"

enum { EXCHANGES = 64, TURN_TAG = 1011, PING_TAG, FIT_TAG };

struct reading {
    int64_t at_ns, offset_ns, error_ns;
};

/* Rank 0's half: tell a host that it is its turn, then answer with the time. */
static int serve(int host, MPI_Comm comm, int64_t (*now_ns)(void))
{
    AGREE_MPI(MPI_Send(NULL, 0, MPI_BYTE, host, TURN_TAG, comm));
    for (int i = 0; i < EXCHANGES; i++) {
        AGREE_MPI(MPI_Recv(NULL, 0, MPI_BYTE, host, PING_TAG, comm, MPI_STATUS_IGNORE));
        int64_t time_ns = now_ns();
        AGREE_MPI(MPI_Send(&time_ns, 1, MPI_INT64_T, host, PING_TAG, comm));
    }
    return 0;
}

/* The other half. The exchange itself may spin: sleeping would be what it measures. */
static int ask(struct reading *best, MPI_Comm comm, int64_t (*now_ns)(void))
{
    int rc = 0;
    MPI_Request turn;
    AGREE_MPI(MPI_Irecv(NULL, 0, MPI_BYTE, 0, TURN_TAG, comm, &turn));
    TRY(agree_wait(&turn));
    best->error_ns = INT64_MAX;
    for (int i = 0; i < EXCHANGES; i++) {
        int64_t theirs_ns, before_ns = now_ns();
        AGREE_MPI(MPI_Send(NULL, 0, MPI_BYTE, 0, PING_TAG, comm));
        AGREE_MPI(MPI_Recv(&theirs_ns, 1, MPI_INT64_T, 0, PING_TAG, comm, MPI_STATUS_IGNORE));
        int64_t half_ns = (now_ns() - before_ns) / 2;
        if (half_ns < best->error_ns)
            *best = (struct reading){.at_ns = before_ns + half_ns,
                                     .offset_ns = theirs_ns - (before_ns + half_ns),
                                     .error_ns = half_ns};
    }
out:
    return rc;
}

/* Rank 0 serves one host after the other; hosts[] holds the first rank of every rank's host. */
static int serve_all(const int *hosts, int size, MPI_Comm comm, int64_t (*now_ns)(void))
{
    int rc = 0;
    for (int rank = 1; rank < size; rank++)
        if (hosts[rank] == rank)
            TRY(serve(rank, comm, now_ns));
out:
    return rc;
}

/* The first rank of a host tells the others what it found. */
static int tell(struct reading *found, const int *hosts, int rank, int size, MPI_Comm comm)
{
    int rc = 0;
    MPI_Request request;
    if (hosts[rank] != rank) {
        AGREE_MPI(MPI_Irecv(found, sizeof *found, MPI_BYTE, hosts[rank], FIT_TAG, comm, &request));
        TRY(agree_wait(&request));
        return 0;
    }
    for (int other = rank + 1; other < size; other++)
        if (hosts[other] == rank)
            AGREE_MPI(MPI_Send(found, sizeof *found, MPI_BYTE, other, FIT_TAG, comm));
out:
    return rc;
}

int clock_measure_by(struct clock_fit *fit, int which, const void *address, int host,
                     int64_t (*now_ns)(void))
{
    int rc = 0, rank, size, *hosts = NULL;
    MPI_Comm comm = *(const MPI_Comm *)address;
    MPI_Request request;
    struct reading found = {.at_ns = now_ns()};
    AGREE_MPI(MPI_Comm_rank(comm, &rank));
    AGREE_MPI(MPI_Comm_size(comm, &size));
    hosts = must_alloc((size_t)size, sizeof *hosts);
    AGREE_MPI(MPI_Iallgather(&host, 1, MPI_INT, hosts, 1, MPI_INT, comm, &request));
    TRY(agree_wait(&request));
    if (rank == 0)
        TRY(serve_all(hosts, size, comm, now_ns));
    else if (host == rank)
        TRY(ask(&found, comm, now_ns));
    if (host != 0)
        TRY(tell(&found, hosts, rank, size, comm));
    if (which == 0)
        *fit = (struct clock_fit){0};
    fit->at_ns[which] = found.at_ns;
    fit->offset_ns[which] = found.offset_ns;
    fit->error_ns = found.error_ns > fit->error_ns ? found.error_ns : fit->error_ns;
out:
    free(hosts);
    return rc;
}

int clock_measure(struct clock_fit *fit, int which, const void *comm)
{
    int host, rc = agree_host(&host, comm);
    return rc != 0 ? rc : clock_measure_by(fit, which, comm, host, units_now_ns);
}

int64_t clock_global_ns(const struct clock_fit *fit, int64_t local_ns)
{
    int64_t span_ns = fit->at_ns[1] - fit->at_ns[0];
    int64_t offset_ns = fit->offset_ns[0];
    /* Offsets between hosts may be years, their change is microseconds: only that is scaled. */
    if (span_ns > 0 && fit->at_ns[1] != 0)
        offset_ns += (int64_t)((double)(fit->offset_ns[1] - fit->offset_ns[0]) *
                               ((double)(local_ns - fit->at_ns[0]) / (double)span_ns));
    return local_ns + offset_ns;
}
