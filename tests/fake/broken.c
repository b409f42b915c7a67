/* An MPI whose sums fail on one rank (FAKE_RANK, from its call FAKE_CALL on), and a launcher whose signal is there
 * before the rank that aborts has gone. */
#include <signal.h>
#include <stdlib.h>

#include <mpi.h>

int MPI_Iallreduce(const void *from, void *to, int count, MPI_Datatype type, MPI_Op op,
                   MPI_Comm comm, MPI_Request *request)
{
    static int calls;
    const char *broken = getenv("FAKE_RANK"), *first = getenv("FAKE_CALL");
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (broken != NULL && first != NULL && rank == atoi(broken) && ++calls >= atoi(first))
        return MPI_ERR_OTHER;
    return PMPI_Iallreduce(from, to, count, type, op, comm, request);
}

int MPI_Abort(MPI_Comm comm, int code)
{
    raise(SIGTERM);
    return PMPI_Abort(comm, code);
}
