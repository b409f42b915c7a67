/*
 * comm_rig: three communicators of one device for the tests of communicators: the whole point,
 * groups of neighbours, and groups of ranks that lie apart; and the way in and out of MPI.
 */
#ifndef TESTS_MPI_COMM_RIG_H
#define TESTS_MPI_COMM_RIG_H

#include <mpi.h>

#include "collectives/comm.h"
#include "tests/test.h"

enum { AXES = 3, MAX_CALLS = 64 };

static int world, rank;
static MPI_Comm point;

/* Groups of `size` neighbours, or of `size` ranks that are world / size apart. */
static inline struct group make_group(int size, bool neighbours)
{
    int groups = world / size;

    if (neighbours)
        return (struct group){rank / size * size, 1, size, rank % size};
    return (struct group){rank % groups, groups, size, rank / groups};
}

/* The whole point, neighbours, strided; on streams 1, 2 and 3. */
struct comms {
    struct device device;
    struct comm comm[AXES];
};

static inline void open_comms(struct comms *c, const struct comm_type *type, int size)
{
    static const enum axis axis[AXES] = {AXIS_WORLD, AXIS_TP, AXIS_DP};
    struct group group[AXES] = {make_group(world, true), make_group(size, true),
                                make_group(world / size, false)};

    CHECK_EQ(device_open(&c->device, &device_cpu, 0, 1 + AXES), 0);
    CHECK_EQ(c->device.type->reserve(&c->device, 64, 4 * MAX_CALLS), 0);
    for (int i = 0; i < AXES; i++)
        CHECK_EQ(
            comm_open(&c->comm[i], type, &point, &c->device, 1 + i, axis[i], &group[i], MAX_CALLS),
            0);
}

static inline void close_comms(struct comms *c)
{
    for (int i = 0; i < AXES; i++)
        comm_close(&c->comm[i]);
    device_close(&c->device);
}

static inline int sum_over_world(int mine)
{
    int sum = 0;

    MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, point);
    return sum;
}

/* MPI as the program asks for it, and the largest power of two that divides the world properly. */
static inline int rig_begin(int *argc, char ***argv)
{
    int level, size = 1;

    MPI_Init_thread(argc, argv, MPI_THREAD_SERIALIZED, &level);
    CHECK(level >= MPI_THREAD_SERIALIZED);
    MPI_Comm_dup(MPI_COMM_WORLD, &point);
    MPI_Comm_size(point, &world);
    MPI_Comm_rank(point, &rank);
    while (2 * size < world && world % (2 * size) == 0)
        size *= 2;
    return size;
}

/* The exit code: the same on every rank. */
static inline int rig_end(void)
{
    int failed = sum_over_world(test_end());

    MPI_Comm_free(&point);
    MPI_Finalize();
    return failed != 0;
}

#endif
