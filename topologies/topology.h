/*
 * topology: what the machine is; facts, each with where it comes from.
 *
 * Built from the running job (discover.h). Levels go from inside out; a level says how many ranks
 * one unit of it holds. A rate or latency of 0 is unknown: nothing invents it.
 */
#ifndef TOPOLOGIES_TOPOLOGY_H
#define TOPOLOGIES_TOPOLOGY_H

#include <stdbool.h>
#include <stdint.h>

enum { TOPOLOGY_LEVELS = 6, TOPOLOGY_NAME = 64 };

struct topology_level {
    char name[TOPOLOGY_NAME]; /* "node", "fabric" */
    int ranks;                /* held by one unit of this level */
    double latency_s;         /* 0: unknown */
    double bytes_per_s;       /* per rank, one way; 0: unknown */
    char source[TOPOLOGY_NAME];
};

struct topology {
    char name[TOPOLOGY_NAME];
    int n_levels;
    struct topology_level level[TOPOLOGY_LEVELS];
    double peak_flops; /* dense, of one rank's device at the study's dtype; 0: unknown */
    char peak_source[TOPOLOGY_NAME]; /* "measured: sgemm 1024^3", a vendor page, a file */
    int64_t memory_bytes;            /* of one rank's share of a device; 0: unknown */
};

#endif
