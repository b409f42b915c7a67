/*
 * launcher: who started this process, and as one of how many, from the environment.
 *
 * A program linked against another MPI than the launcher's sees a world of 1 while the launcher
 * started N: then N separate studies would run, each calling itself the whole.
 */
#ifndef TOPOLOGIES_LAUNCHER_H
#define TOPOLOGIES_LAUNCHER_H

struct launcher {
    const char *name; /* "mpirun (Open MPI)", "srun", ...; "" unknown */
    int world;        /* ranks it started, 0: not said */
    int rank;         /* which of them this is, -1: not said */
};

struct launcher launcher_find(void);

#endif
