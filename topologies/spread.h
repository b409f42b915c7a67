/*
 * spread: the CPUs near a device, shared out among the ranks whose device is near them too.
 *
 * A rank with a GPU has more than one thread to feed it: the one that launches, NCCL's, those of the
 * input and of a checkpoint. A launcher that binds each rank to one core (mpirun's default at two
 * ranks) starves them. So every rank gets whole cores near its GPU: of c cores and n ranks, rank i
 * gets cores i c / n to (i + 1) c / n of the list, or all of them when there are fewer cores than
 * ranks. A binding that somebody chose well is kept: one of at least SPREAD_ENOUGH cores that is not
 * simply every core that this process may have.
 *
 * CPUs are written as hwloc writes lists: "0-15,64-79". "Near" are the CPUs of the NUMA domain that
 * the PCI bus of the device hangs on, as far as the system lets this process have them; all of those
 * where the system does not tell.
 */
#ifndef TOPOLOGIES_SPREAD_H
#define TOPOLOGIES_SPREAD_H

#include <stdbool.h>
#include <stddef.h>

enum { SPREAD_ENOUGH = 4, SPREAD_CPUS = 1024 };

struct spread {
    char found[SPREAD_CPUS]; /* mask of this process before */
    char used[SPREAD_CPUS];  /* and after */
    int n_cpus, n_cores;     /* after: hardware threads, cores of them */
    bool kept;               /* the mask was left as it was */
    bool crowded;            /* fewer cores near the device than ranks that share them */
};

/* CPUs near the PCI address ("0000:1a:00.0"; "" for a device without one); "" when hwloc fails. */
void spread_near(const char *bus, char *cpus, size_t size);

/* The share of rank `index` of `n`: first and one past the last of n_cores cores. */
void spread_share(int n_cores, int n, int index, int *first, int *last);

/* Put all threads of this process on its share of the list `near`. What the system refuses stays as
 * it was, and is said so by `kept`. */
void spread_process(const char *near, int n, int index, struct spread *out);

#endif
