/* A communicator refuses an MPI that was initialised for one thread, in words and without harm. */
#include "collectives/comm.h"

#include <mpi.h>

#include "base/err.h"
#include "tests/test.h"

int main(int argc, char **argv)
{
    MPI_Comm world = MPI_COMM_WORLD;
    struct device device;
    struct comm comm;
    struct group group = {0, 1, 0, 0};
    int level;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_SINGLE, &level);
    MPI_Comm_size(world, &group.size);
    MPI_Comm_rank(world, &group.me);
    CHECK_EQ(device_open(&device, &device_cpu, 0, 2), 0);
    if (level < MPI_THREAD_SERIALIZED) { /* a library may give more than was asked for */
        CHECK_EQ(comm_open(&comm, &comm_mpi, &world, &device, 1, AXIS_DP, &group, 1), FAIL_COMM);
        CHECK_HAS(fail_message(), "initialised for one thread");
        CHECK(comm.type == NULL);
    }
    device_close(&device);
    MPI_Finalize();
    return test_end();
}
