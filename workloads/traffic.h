/*
 * traffic: bytes that a plan sends, by axis and by level: inside a node, and from node to node.
 *
 * A rank sends what coll_wire_bytes says. Where to is the library's choice; assumed is a ring in the
 * order of the members: each member sends to the next one, the last to the first. So what a rank
 * sends in a collective crosses nodes when its next member sits on another node; a transfer when
 * its peer does; of an all-to-all the share of the members that do. Tree and hierarchical algorithms
 * cross nodes with other (mostly fewer) bytes: the file says "ring".
 */
#ifndef WORKLOADS_TRAFFIC_H
#define WORKLOADS_TRAFFIC_H

#include "workloads/plan.h"

struct traffic {
    int64_t calls;
    double inside, across; /* bytes a rank sends to members on its own node, on other nodes */
};

/* One call of a rank whose group is `group`, with `ranks_per_node` world ranks on each node. */
struct traffic traffic_of_call(const struct coll *coll, const struct group *group,
                               int ranks_per_node);

/* Bytes of calls that are no all-to-all or transfer, given as a sum. */
struct traffic traffic_of_bytes(double bytes, int64_t calls, const struct group *group,
                                int ranks_per_node);

/* out[AXIS_COUNT] += all calls of a plan: a step of its rank. */
void traffic_of_plan(const struct plan *plan, struct traffic *out);

#endif
