/* The end of a job on a busy machine: every rank that comes to MPI_Finalize gets the signal by which a launcher
 * kills those that are still in it when another one has left with a code. */
#include <signal.h>

#include <mpi.h>

int MPI_Finalize(void)
{
    raise(SIGTERM);
    return PMPI_Finalize();
}
