/*
 * layout: how the ranks of a point are divided, as pure arithmetic.
 *
 * As Megatron users know it: world = tp * cp * dp * pp; dp counts dense replicas; ep divides dp *
 * cp (expert-data-parallel = what remains of tp*cp*dp over ep*etp); shard (FSDP/ZeRO) divides dp,
 * and is hybrid (HSDP) when smaller. An omitted dp is what remains. `order` names the axes from the
 * fastest varying to the slowest, default tp-cp-ep-dp-pp; "ep" stands for the place of the expert
 * axis and is accepted everywhere, since ep subdivides dp and cp and has no factor of its own in
 * the world.
 *
 * ep lies before dp in the order: expert groups vary faster than expert-data groups, as in
 * Megatron; behind it: slower. etp is tp (experts are tensor-split like the rest) or 1 (then the
 * expert groups run over tp too).
 *
 * A group is the arithmetic set { first + i * stride : 0 <= i < size }, and `me` is this rank's i.
 * One set need not be: where an order keeps cp and dp apart and ep = 1, the ranks that hold equal
 * experts are not evenly spaced; AXIS_EDP then has size 0, "no such group". With ep > 1 such an
 * order is refused.
 *
 * dp-cp is dp with cp, as Megatron calls it: the ranks that hold the same dense parameters and see
 * other tokens, samples of their own along dp and parts of one sample along cp. Dense gradients and
 * losses are summed over it where cp > 1. An order that keeps cp and dp apart, both above 1, has no
 * such group either: size 0. `shard` divides dp alone; the ranks of cp hold the same shard.
 *
 * embedding, as Megatron calls it, is the first with the last stage of a pipeline: the two that hold
 * a tied embedding. Between them, and with pp = 1, a rank is alone in it.
 *
 * Nothing here communicates; a layout of 16,384 ranks costs what one of 1 costs.
 */
#ifndef TOPOLOGIES_LAYOUT_H
#define TOPOLOGIES_LAYOUT_H

#include <stddef.h>

/* axis, name. AXIS_WORLD is the whole point; SHARD and REPLICATE split dp; EDP is expert-data; DPCP is
 * dp with cp. */
#define AXIS_LIST(X)                                                                               \
    X(AXIS_TP, "tp")                                                                               \
    X(AXIS_CP, "cp")                                                                               \
    X(AXIS_EP, "ep")                                                                               \
    X(AXIS_DP, "dp")                                                                               \
    X(AXIS_PP, "pp")                                                                               \
    X(AXIS_SHARD, "shard")                                                                         \
    X(AXIS_REPLICATE, "replicate")                                                                 \
    X(AXIS_EDP, "edp")                                                                             \
    X(AXIS_DPCP, "dp-cp")                                                                          \
    X(AXIS_EMBED, "embedding")                                                                     \
    X(AXIS_NODE, "node")                                                                           \
    X(AXIS_RAIL, "rail")                                                                           \
    X(AXIS_WORLD, "world")

enum axis {
#define AXIS_ENUM(name, text) name,
    AXIS_LIST(AXIS_ENUM)
#undef AXIS_ENUM
        AXIS_COUNT
};
const char *axis_name(int axis);

struct group {
    int first;  /* world rank of member 0 */
    int stride; /* between members */
    int size;
    int me; /* this rank's index */
};

/* What was asked for: --parallel, --order. 0 means "not said" (1, or for dp what remains). */
struct degrees {
    int tp, cp, ep, etp, dp, pp, shard;
    char order[32]; /* "tp-cp-ep-dp-pp" */
};

struct layout {
    int nodes, ranks_per_node; /* ranks_per_node is that of the point, which may be below a node */
    int world, rank;
    struct degrees degrees; /* resolved: every degree >= 1, dp filled in */
    struct group group[AXIS_COUNT];
};

/*
 * Parse "tp=2,pp=2,shard=4" into *degrees (zeroed first, order kept). FAIL_USAGE with a sentence on
 * an unknown axis, a degree below 1 or one said twice. "" is the pure data-parallel layout.
 */
int layout_parse(const char *text, struct degrees *degrees);

/*
 * Fill *out for one rank. FAIL_USAGE when the degrees do not multiply to nodes * ranks_per_node, ep
 * does not divide dp * cp, shard does not divide dp, etp is neither 1 nor tp, or order is not a
 * permutation of the axes ("" is the default). *out is zeroed on failure. out->degrees given back
 * to layout_init gives the same layout.
 */
int layout_init(struct layout *out, int nodes, int ranks_per_node, int rank,
                const struct degrees *degrees);

/* World rank of member i of a group; coordinate of a rank on one of the axes tp, cp, dp, pp. */
int group_rank(const struct group *group, int i);
int layout_coordinate(const struct layout *layout, enum axis axis);

/*
 * Canonical text: "dp=4" or "tp=2,pp=2". Degrees of 1 are left out, but for dp when all are 1; etp
 * is told where it is not tp. layout_parse of it, on as many ranks, gives the same degrees.
 */
void layout_text(const struct layout *layout, char *text, size_t size);

/* Distinct nodes the group touches: 1 means that its traffic stays inside a node. */
int group_nodes(const struct group *group, int ranks_per_node);

#endif
