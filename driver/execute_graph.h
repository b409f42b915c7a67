/*
 * execute_graph: the steps of a block as graphs. Private to the executor.
 *
 * A graph for each step of a block, since an event that a graph records holds one time: the stamps of
 * a block are read together when it has ended. Captures see the executor as an eager step does: the
 * same ops in the same order on the same streams, with the graphs' communicators in place of the
 * others, and inputs that copy from the graph's own host memory.
 */
#ifndef DRIVER_EXECUTE_GRAPH_H
#define DRIVER_EXECUTE_GRAPH_H

#include "driver/execute.h"

/* What the launch of a step adds to the counters that a step given out op by op adds to. */
struct execute_counts {
    struct kernel_work work;
    int64_t ops, micro_steps;
    int64_t calls[PLAN_CHANNELS];
    double bytes[PLAN_CHANNELS];
};

struct execute_graphs {
    struct comm comm[PLAN_CHANNELS];
    int n_comms;
    struct device_graph **graph;  /* [n_graphs], one per step of a block */
    int n_graphs;                 /* 0: nothing is captured yet */
    int level;                    /* of their stamps */
    struct execute_counts counts; /* of one step */
};

/* FAIL_USAGE where device, kernels or plan have no graphs. */
int execute_graph_check(const struct execute *execute);

/* Collective: memory and communicators. close() is safe on an executor without graphs, and goes
 * before kernels and device are closed. */
int execute_graph_open(struct execute *execute, const struct execute_config *config);
void execute_graph_close(struct execute *execute);

#endif
