/*
 * affinity: the cores of this host, which of them a process may use, and whether they are enough.
 *
 * Read with hwloc. What the operating system does not tell is 0 or "": nothing is made up. Cores
 * and threads of the host count those that this job may not use, too.
 */
#ifndef TOPOLOGIES_AFFINITY_H
#define TOPOLOGIES_AFFINITY_H

#include "topologies/discover.h"

struct affinity {
    int n_cpus, n_cores;      /* hardware threads this process may run on, distinct cores of them */
    char cpus[DISCOVER_CPUS]; /* the threads as a list, "0-3,8", "..." at the end when cut */
    int host_cores, host_cpus;
    char model[DISCOVER_NAME];
    long long memory_bytes;
    char *may_use; /* [host_cores] 1: this process may run on a thread of that core; owned */
};

void affinity_find(struct affinity *out);
void affinity_release(struct affinity *affinity);

/*
 * Which ranks of a host have to share. Give as many ranks as possible a core of their own:
 * crowded[r] = 1 when that can be done leaving r without one. So ten unbound ranks on eight cores
 * are all crowded, and so are two bound to one core, but not a third that has room elsewhere.
 * may_use is [n_ranks][n_cores]. A rank without any core is not crowded: nothing is known of it.
 */
void affinity_crowded(const char *may_use, int n_ranks, int n_cores, int *crowded);

#endif
