/*
 * topology: what the machine is, as numbers with their sources.
 *
 * A topology comes from a YAML file (by name or path) or from a machine string; nothing here looks
 * at the machine that runs. It is const once made, and small: copy it freely.
 *
 * Levels go from inside out. A level is named after what it joins: "gpu" joins the GPUs of a node,
 * "node" joins nodes. `ranks` is how many devices one domain of it holds, all levels inside it
 * included: gpu 8, node 128 are 16 nodes of 8. latency and bandwidth are those of one device to
 * another in that domain, one way, as collectives reach them (the bus bandwidth of a ring whose
 * members each have one device's share), not as a data sheet prints them.
 *
 * A machine string is words "LEVEL:COUNT" from outside in, as hwloc writes them: "node:16 gpu:8".
 * Its facts are those of h100-8x400g, or of another topology named first: "a100-8x200g node:4
 * gpu:8". A level takes the link of the level of that name, else of the one in its place. It works
 * wherever a name does, so that a test can have 4,096 GPUs.
 *
 * YAML: a mapping with `levels` (a list of mappings name, ranks, latency, bandwidth) and one key a
 * fact. A fact is "VALUE UNIT" (source: the file and line) or
 *
 *     peak-bf16: {value: 989.4 TFLOP/s, source: vendor, from: "H100 SXM data sheet, dense"}
 *
 * with source measured, vendor, file or assumed. Units are decimal (GB/s, Gbit/s, TFLOP/s, GB) or
 * say that they are not (GiB). Peaks are dense. A peak that is not given does not exist: work in
 * that type is refused by name.
 */
#ifndef TOPOLOGIES_TOPOLOGY_H
#define TOPOLOGIES_TOPOLOGY_H

#include <stdbool.h>
#include <stddef.h>

#include "topologies/layout.h"

/* What a fact measures: the units it is written in; its unit here. */
#define FACT_UNITS(X)                                                                              \
    X(UNIT_FLOPS, "FLOP/s", "989.4 TFLOP/s")                                                       \
    X(UNIT_RATE, "B/s", "50 GB/s")                                                                 \
    X(UNIT_BYTES, "B", "80 GB")                                                                    \
    X(UNIT_TIME, "s", "3.4 us")                                                                    \
    X(UNIT_SHARE, "%", "80 %")

enum fact_unit {
#define UNIT_ENUM(name, text, example) name,
    FACT_UNITS(UNIT_ENUM)
#undef UNIT_ENUM
};

/* Facts of one device, its host and disk; rates of disks are of one node. */
#define FACT_LIST(X)                                                                               \
    X(FACT_FP32, "peak-fp32", UNIT_FLOPS, true, "dense fp32 rate")                                 \
    X(FACT_TF32, "peak-tf32", UNIT_FLOPS, false, "dense tf32 rate of matrix products")             \
    X(FACT_BF16, "peak-bf16", UNIT_FLOPS, false, "dense bf16 rate of matrix products")             \
    X(FACT_FP8, "peak-fp8", UNIT_FLOPS, false, "dense fp8 rate of matrix products")                \
    X(FACT_GEMM_SHARE, "gemm-efficiency", UNIT_SHARE, true, "share of a peak that products reach") \
    X(FACT_ATTENTION_SHARE, "attention-efficiency", UNIT_SHARE, true,                              \
      "share of a peak that fused attention reaches")                                              \
    X(FACT_MEMORY, "memory", UNIT_BYTES, true, "bytes of device memory")                           \
    X(FACT_MEMORY_RATE, "memory-bandwidth", UNIT_RATE, true, "of device memory")                   \
    X(FACT_MEMORY_SHARE, "memory-efficiency", UNIT_SHARE, true,                                    \
      "share of the memory bandwidth that kernels reach")                                          \
    X(FACT_LAUNCH, "launch", UNIT_TIME, true, "time between kernels that do nothing")              \
    X(FACT_TO_DEVICE, "host-to-device", UNIT_RATE, true, "copy rate")                              \
    X(FACT_TO_HOST, "device-to-host", UNIT_RATE, true, "copy rate")                                \
    X(FACT_DISK_WRITE, "disk-write", UNIT_RATE, false, "of a node")                                \
    X(FACT_DISK_READ, "disk-read", UNIT_RATE, false, "of a node")

enum fact_kind {
#define FACT_ENUM(name, key, unit, required, help) name,
    FACT_LIST(FACT_ENUM)
#undef FACT_ENUM
        FACTS
};

#define FACT_SOURCES(X)                                                                            \
    X(SOURCE_NONE, "none")                                                                         \
    X(SOURCE_MEASURED, "measured")                                                                 \
    X(SOURCE_VENDOR, "vendor")                                                                     \
    X(SOURCE_FILE, "file")                                                                         \
    X(SOURCE_ASSUMED, "assumed")

enum fact_source {
#define SOURCE_ENUM(name, text) name,
    FACT_SOURCES(SOURCE_ENUM)
#undef SOURCE_ENUM
        SOURCES
};

enum { TOPOLOGY_NAME = 96, TOPOLOGY_FROM = 128, TOPOLOGY_LEVELS = 6, TOPOLOGY_TEXT = 8192 };

struct fact {
    double value;             /* FLOP/s, B/s, B, s, or the share itself; > 0 unless absent */
    int source;               /* enum fact_source; SOURCE_NONE: there is no such fact */
    char from[TOPOLOGY_FROM]; /* where the number can be looked up; FILE:LINE for SOURCE_FILE */
};

struct topology_level {
    char name[32];
    int ranks; /* devices in one domain of this level; grows from level to level */
    struct fact latency, bandwidth;
};

struct topology {
    char name[TOPOLOGY_NAME]; /* of the file, or the machine string */
    char device[64];
    int n_levels;
    struct topology_level level[TOPOLOGY_LEVELS];
    struct fact fact[FACTS];
};

/*
 * From NAME, FILE.yaml or a machine string. FAIL_USAGE for a name that is none (those that exist are
 * listed), and with FILE:LINE for unknown keys (the nearest is suggested), missing facts, numbers
 * that are not above 0 or lack their unit, levels that do not grow; FAIL_FILE for what cannot be
 * read or is no YAML. *out is zeroed on failure.
 */
int topology_load(struct topology *out, const char *text);

/* The parser of files alone; the name is that of the file. */
int topology_read(struct topology *out, const char *path);

/* As YAML that topology_read() takes back (but for SOURCE_FILE, which is then the new file):
 * what is hashed and stored. `size` should be TOPOLOGY_TEXT. */
void topology_text(const struct topology *topology, char *text, size_t size);

/* "a100-8x200g, h100-8x400g": the names that exist. */
void topology_names(char *text, size_t size);

const char *fact_key(int kind);
const char *fact_source_name(int source);

/* "989.4 TFLOP/s" -> 9.894e14. 0, or -1 when it is no number above 0 with a unit of that kind. */
int fact_parse(const char *text, enum fact_unit unit, double *out);

/* ---- where ranks sit ---- */

int topology_ranks(const struct topology *topology);      /* devices in all */
int topology_node_ranks(const struct topology *topology); /* devices inside the level "node" */

/*
 * A point of nodes x ranks_per_node takes one node of the topology for each of its nodes, and the
 * first devices of it. FAIL_USAGE, both numbers said, when a node or the machine has too few.
 */
int topology_fits(const struct topology *topology, int nodes, int ranks_per_node);

/*
 * How a group lies on the levels: domains[l] is the number of domains of level l that it touches,
 * which falls from level to level, at last to 1. A ring over the group crosses domains of level l - 1
 * inside one of level l exactly domains[l - 1] - domains[l] times (devices, for l = 0).
 */
struct topology_span {
    int devices;
    int domains[TOPOLOGY_LEVELS];
};
void topology_span(const struct topology *topology, int ranks_per_node, const struct group *group,
                   struct topology_span *out);

/* The innermost level with both ranks in one domain. */
int topology_level_of(const struct topology *topology, int ranks_per_node, int rank, int other);

#endif
