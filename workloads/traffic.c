#include "workloads/traffic.h"

static int node_of(const struct group *group, int member, int ranks_per_node)
{
    return group_rank(group, member) / ranks_per_node;
}

/* Members that sit on the node of this rank, itself left out. */
static int neighbours(const struct group *group, int ranks_per_node)
{
    int n = 0, home = node_of(group, group->me, ranks_per_node);
    for (int i = 0; i < group->size; i++)
        n += i != group->me && node_of(group, i, ranks_per_node) == home;
    return n;
}

struct traffic traffic_of_bytes(double bytes, int64_t calls, const struct group *group,
                                int ranks_per_node)
{
    if (group->size < 1) /* no such group in this layout */
        return (struct traffic){calls, 0, 0};
    int next = (group->me + 1) % group->size;
    bool stays = node_of(group, next, ranks_per_node) == node_of(group, group->me, ranks_per_node);
    return (struct traffic){calls, stays ? bytes : 0, stays ? 0 : bytes};
}

struct traffic traffic_of_call(const struct coll *coll, const struct group *group,
                               int ranks_per_node)
{
    double bytes = coll_wire_bytes(coll, group->size);
    if (coll->kind == COLL_SEND || coll->kind == COLL_RECV) {
        int home = node_of(group, group->me, ranks_per_node);
        bool stays = node_of(group, coll->peer, ranks_per_node) == home;
        return (struct traffic){1, stays ? bytes : 0, stays ? 0 : bytes};
    }
    if (coll->kind == COLL_ALL_TO_ALL_V) {
        int home = node_of(group, group->me, ranks_per_node);
        double inside = 0, size = (double)dtype_size((int)coll->dtype);
        for (int i = 0; i < group->size; i++)
            if (i != group->me && node_of(group, i, ranks_per_node) == home)
                inside += size * (double)coll->send[i];
        return (struct traffic){1, inside, bytes - inside};
    }
    if (coll->kind == COLL_ALL_TO_ALL && group->size > 1) {
        double inside = bytes * neighbours(group, ranks_per_node) / (group->size - 1);
        return (struct traffic){1, inside, bytes - inside};
    }
    return traffic_of_bytes(bytes, 1, group, ranks_per_node);
}

void traffic_of_plan(const struct plan *plan, struct traffic *out)
{
    const struct layout *layout = &plan->layout;
    for (int i = 0; i < plan->n_ops; i++) {
        const struct op *op = &plan->ops[i];
        if (op->kind != OP_COLLECTIVE)
            continue;
        enum axis axis = op->shape.coll.axis;
        struct coll call = shape_call(&op->shape.coll, &layout->group[axis]);
        struct traffic one = traffic_of_call(&call, &layout->group[axis], layout->ranks_per_node);
        out[axis].calls += one.calls;
        out[axis].inside += one.inside;
        out[axis].across += one.across;
    }
}
