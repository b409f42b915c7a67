/*
 * discover: what this job was really given. The only part of topologies/ that communicates.
 *
 * Hosts are found by splitting MPI_COMM_WORLD by shared memory and confirmed by name, boot and
 * namespaces (host.h), so that two containers of one name stay two and one host is never counted
 * twice. Collective over all ranks.
 */
#ifndef TOPOLOGIES_DISCOVER_H
#define TOPOLOGIES_DISCOVER_H

#include <stdbool.h>

enum { DISCOVER_NAME = 64, DISCOVER_CPUS = 128 };

struct discover_host {
    char name[DISCOVER_NAME];
    int ranks;                 /* of this job on it */
    int cores;                 /* physical cores, hwloc */
    int cpus;                  /* hardware threads online */
    char model[DISCOVER_NAME]; /* processor model, "" unknown */
    long long memory_bytes;
};

struct discover_rank {
    int host;                 /* index into hosts */
    int local;                /* index among the ranks of that host */
    int n_cpus;               /* hardware threads it may run on */
    int n_cores;              /* distinct cores among them */
    int oversubscribed;       /* more ranks share its cores than there are cores */
    char cpus[DISCOVER_CPUS]; /* affinity as a list, "0-3,8" (cut when longer) */
    /* Filled by who chooses a device for the rank; "" and 0 without one. n_cpus and n_cores are
     * then those of cpus_used. */
    char cpus_used[DISCOVER_CPUS]; /* affinity after ranks were spread near their devices */
    char device[DISCOVER_NAME], device_bus[16];
    long long device_bytes;
    long long device_free_bytes; /* when the job began; 0: not known */
    int device_shared;           /* with another rank */
};

struct discover {
    int world, n_hosts;
    struct discover_host *hosts; /* [n_hosts], in order of their first rank */
    struct discover_rank *ranks; /* [world] */
    int launcher_world; /* ranks that the launcher says there are (environment), 0: unknown */
    int launcher_rank;  /* and which of them this process is, -1: unknown */
    char launcher[DISCOVER_NAME]; /* "mpirun (Open MPI)", "srun", ...; "" unknown */
};

/* MPI must be initialised. FAIL_COMM on MPI errors. discover_release is safe on a zeroed struct. */
int discover_job(struct discover *out);
void discover_release(struct discover *found);

/*
 * Refusals, before anything runs (FAIL_USAGE, the same message on every rank): N singletons started
 * instead of one job of N; nodes * ranks_per_node is not the number of ranks (both numbers said);
 * with several hosts, a declared node that is not within one host, be it that a host has too few
 * ranks or that they are dealt out in turn (says which rank is where). *emulated is set when one
 * host carries several declared nodes, which is accepted (and said) on a CPU.
 *
 * Singletons cannot agree, and each would print: let the one with launcher_rank <= 0 speak.
 */
int discover_check(const struct discover *found, int nodes, int ranks_per_node, bool *emulated);

#endif
