/*
 * host: which ranks are on one host.
 *
 * An MPI library says which ranks share memory; that alone splits one host in two where a library
 * is told to, and joins what shares memory under two names. So each rank leaves a mark of where it
 * is, and two ranks are on one host when they share memory and a name, or when their names, boot
 * and namespaces are the same. Arithmetic over marks; discover.c carries them.
 */
#ifndef TOPOLOGIES_HOST_H
#define TOPOLOGIES_HOST_H

#include "topologies/discover.h"

struct host_mark {
    int first; /* lowest rank that shares memory with this one, says the MPI library */
    char name[DISCOVER_NAME];
    char identity[160]; /* boot and namespaces; "" where the system does not tell */
};

/* The name and identity of the host this process is on; first stays as it is. */
void host_find(struct host_mark *mark);

/* hosts[rank]: the lowest rank on the same host, from the marks of all ranks in order. */
void host_group(const struct host_mark *marks, int n_ranks, int *hosts);

#endif
