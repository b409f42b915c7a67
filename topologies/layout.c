#include "topologies/layout.h"

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/opt.h"
#include "base/units.h"

static const char default_order[] = "tp-cp-ep-dp-pp";
enum { ORDER_AXES = 5 }; /* AXIS_TP to AXIS_PP are the first of enum axis */

static const struct {
    const char *name;
    size_t offset;
} degree_rows[] = {
    {"tp", offsetof(struct degrees, tp)},       {"cp", offsetof(struct degrees, cp)},
    {"ep", offsetof(struct degrees, ep)},       {"etp", offsetof(struct degrees, etp)},
    {"dp", offsetof(struct degrees, dp)},       {"pp", offsetof(struct degrees, pp)},
    {"shard", offsetof(struct degrees, shard)},
};
enum { N_DEGREES = sizeof degree_rows / sizeof *degree_rows };

static int *degree_at(struct degrees *degrees, size_t row)
{
    return (int *)(void *)((char *)degrees + degree_rows[row].offset);
}

const char *axis_name(int axis)
{
    static const char *const names[] = {
#define AXIS_TEXT(name, text) text,
        AXIS_LIST(AXIS_TEXT)
#undef AXIS_TEXT
    };
    return axis >= 0 && axis < AXIS_COUNT ? names[axis] : "?";
}

/* The name that was meant may be told by its letters. */
static int no_degree(const char *item, size_t length, size_t name_length)
{
    struct opt names[N_DEGREES] = {{0}};
    char name[16] = "";
    const char *meant = NULL;
    for (size_t i = 0; i < N_DEGREES; i++)
        names[i].name = degree_rows[i].name;
    memcpy(name, item, name_length < sizeof name ? name_length : sizeof name - 1);
    meant = opt_nearest(names, N_DEGREES, name);
    return fail(FAIL_USAGE,
                "layout: \"%.*s\" is no degree: wanted name=number, names tp, cp, ep, etp, dp, "
                "pp, shard%s%s%s",
                (int)length, item, meant ? "; did you mean " : "", meant ? meant : "",
                meant ? "?" : "");
}

/* One "tp=2" of a list. */
static int parse_item(struct degrees *degrees, const char *item, size_t length)
{
    char name[32] = "";
    const char *equals = memchr(item, '=', length);
    size_t name_length = equals != NULL ? (size_t)(equals - item) : length;
    int *degree = NULL;
    for (size_t i = 0; i < N_DEGREES; i++)
        if (strlen(degree_rows[i].name) == name_length &&
            memcmp(degree_rows[i].name, item, name_length) == 0)
            degree = degree_at(degrees, i);
    if (equals == NULL || degree == NULL)
        return no_degree(item, length, name_length);
    if (*degree != 0)
        return fail(FAIL_USAGE, "layout: %.*s is said twice", (int)name_length, item);

    int64_t value = 0;
    size_t digits = length - name_length - 1;
    if (digits < sizeof name)
        memcpy(name, equals + 1, digits);
    if (digits >= sizeof name || units_parse_int(name, &value) != 0 || value < 1 || value > INT_MAX)
        return fail(FAIL_USAGE, "layout: \"%.*s\": a degree is a whole number from 1", (int)length,
                    item);
    *degree = (int)value;
    return 0;
}

int layout_parse(const char *text, struct degrees *degrees)
{
    struct degrees parsed = {0};
    memcpy(parsed.order, degrees->order, sizeof parsed.order);
    for (const char *at = text; *text != '\0';) {
        size_t length = strcspn(at, ",");
        int rc = parse_item(&parsed, at, length);
        if (rc != 0)
            return rc;
        if (at[length] == '\0')
            break;
        at += length + 1;
    }
    *degrees = parsed;
    return 0;
}

static int order_refused(const char *order)
{
    return fail(FAIL_USAGE,
                "layout: order \"%s\" is no order of the axes: wanted tp, cp, dp and pp once each "
                "(ep may be placed too), joined by '-', like %s",
                order, default_order);
}

/* "tp-cp-dp-pp" to axes[], fastest first. Where ep is not placed it stands before dp. */
static int parse_order(const char *order, int *axes)
{
    bool seen[ORDER_AXES] = {false};
    int found[ORDER_AXES], n_found = 0, n = 0;
    for (const char *at = order;; at++) {
        size_t length = strcspn(at, "-");
        int axis = 0;
        while (axis < ORDER_AXES && (length != 2 || strncmp(axis_name(axis), at, length) != 0))
            axis++;
        if (axis == ORDER_AXES || seen[axis])
            return order_refused(order);
        seen[axis] = true;
        found[n_found++] = axis;
        at += length;
        if (*at == '\0')
            break;
    }
    if (n_found - (seen[AXIS_EP] ? 1 : 0) != ORDER_AXES - 1)
        return order_refused(order);
    for (int i = 0; i < n_found; i++) {
        if (found[i] == AXIS_DP && !seen[AXIS_EP])
            axes[n++] = AXIS_EP;
        axes[n++] = found[i];
    }
    return 0;
}

/* "NAME2 or NAME4": what divides n and is nearest to `wanted`, below and above. */
static void nearest_that_divide(int n, double wanted, const char *name, char *text, size_t size)
{
    int below = wanted > n ? n : (int)wanted, above = below;
    while (n % below != 0)
        below--;
    while (above < n && (n % above != 0 || above <= below))
        above++;
    if (wanted > n || above == below)
        snprintf(text, size, "%s%d", name, below);
    else
        snprintf(text, size, "%s%d or %s%d", name, below, name, above);
}

/* dp is what remains where it is not said; the product has to be the ranks there are. */
static int resolve_dense(struct degrees *degrees, int nodes, int ranks_per_node)
{
    int world = nodes * ranks_per_node;
    char nearest[64];
    double others = (double)degrees->tp * degrees->cp * degrees->pp; /* no overflow; exact enough */
    if (others > world || world % (int)others != 0) {
        nearest_that_divide(world, others, "", nearest, sizeof nearest);
        return fail(FAIL_USAGE,
                    "layout: tp=%d * cp=%d * pp=%d is %.0f, which does not divide the %d ranks of "
                    "%dx%d; choose a product of %s",
                    degrees->tp, degrees->cp, degrees->pp, others, world, nodes, ranks_per_node,
                    nearest);
    }
    if (degrees->dp == 0)
        degrees->dp = world / (int)others;
    if (others * degrees->dp != world)
        return fail(FAIL_USAGE,
                    "layout: tp=%d * cp=%d * dp=%d * pp=%d is %.0f, but %dx%d has %d ranks; choose "
                    "dp=%d, or leave dp out",
                    degrees->tp, degrees->cp, degrees->dp, degrees->pp, others * degrees->dp, nodes,
                    ranks_per_node, world, world / (int)others);
    return 0;
}

static int resolve(struct degrees *degrees, int nodes, int ranks_per_node)
{
    for (size_t i = 0; i < N_DEGREES; i++) {
        int *degree = degree_at(degrees, i);
        if (*degree < 0)
            return fail(FAIL_USAGE, "layout: %s=%d: a degree is a whole number from 1",
                        degree_rows[i].name, *degree);
        if (*degree == 0 && degree != &degrees->dp)
            *degree = degree == &degrees->etp ? degrees->tp : 1;
    }
    int rc = resolve_dense(degrees, nodes, ranks_per_node);
    if (rc != 0)
        return rc;
    int replicas = degrees->dp * degrees->cp;
    char nearest[64];
    if (replicas % degrees->ep != 0) {
        nearest_that_divide(replicas, degrees->ep, "ep=", nearest, sizeof nearest);
        return fail(FAIL_USAGE,
                    "layout: ep=%d does not divide dp=%d * cp=%d, which is %d, on %dx%d; choose %s",
                    degrees->ep, degrees->dp, degrees->cp, replicas, nodes, ranks_per_node,
                    nearest);
    }
    if (degrees->etp != 1 && degrees->etp != degrees->tp)
        return fail(FAIL_USAGE, "layout: etp=%d is neither 1 nor tp=%d", degrees->etp, degrees->tp);
    if (degrees->dp % degrees->shard != 0) {
        nearest_that_divide(degrees->dp, degrees->shard, "shard=", nearest, sizeof nearest);
        return fail(FAIL_USAGE, "layout: shard=%d does not divide dp=%d on %dx%d; choose %s",
                    degrees->shard, degrees->dp, nodes, ranks_per_node, nearest);
    }
    return 0;
}

static struct group group_at(int rank, int stride, int size)
{
    int me = rank / stride % size;
    return (struct group){.first = rank - me * stride, .stride = stride, .size = size, .me = me};
}

static void place_dense(struct layout *layout, const int *axes)
{
    const int sizes[ORDER_AXES] = {[AXIS_TP] = layout->degrees.tp,
                                   [AXIS_CP] = layout->degrees.cp,
                                   [AXIS_EP] = 1,
                                   [AXIS_DP] = layout->degrees.dp,
                                   [AXIS_PP] = layout->degrees.pp};
    int stride = 1;
    for (int i = 0; i < ORDER_AXES; i++) {
        layout->group[axes[i]] = group_at(layout->rank, stride, sizes[axes[i]]);
        stride *= sizes[axes[i]];
    }
}

/*
 * The ranks that experts divide lie along cp and dp, and along tp too where experts are not
 * tensor-split. Neighbouring axes join into one evenly spaced run. Returns the number of runs.
 */
static int expert_runs(const struct layout *layout, const int *axes, struct group *runs)
{
    int n = 0;
    for (int i = 0; i < ORDER_AXES; i++) {
        const struct group *group = &layout->group[axes[i]];
        bool divided = axes[i] == AXIS_CP || axes[i] == AXIS_DP ||
                       (axes[i] == AXIS_TP && layout->degrees.etp == 1);
        if (!divided || group->size == 1)
            continue;
        if (n > 0 && runs[n - 1].stride * runs[n - 1].size == group->stride)
            runs[n - 1].size *= group->size;
        else
            runs[n++] = *group;
    }
    if (n == 0)
        runs[n++] = (struct group){.stride = 1, .size = 1};
    return n;
}

/* Where ep comes before dp in the order it varies faster than expert-data, as in Megatron. */
static int place_experts(struct layout *layout, const int *axes)
{
    const struct degrees *degrees = &layout->degrees;
    struct group runs[ORDER_AXES];
    int n = expert_runs(layout, axes, runs), total = 1, i = 0;
    for (int r = 0; r < n; r++)
        total *= runs[r].size;
    while (axes[i] != AXIS_EP && axes[i] != AXIS_DP)
        i++;
    bool ep_inner = axes[i] == AXIS_EP;
    int inner = ep_inner ? degrees->ep : total / degrees->ep;
    struct group *inner_group = &layout->group[ep_inner ? AXIS_EP : AXIS_EDP];
    struct group *outer_group = &layout->group[ep_inner ? AXIS_EDP : AXIS_EP];

    if (n == 1 || (n == 2 && inner == runs[0].size)) {
        *inner_group = group_at(layout->rank, runs[0].stride, inner);
        *outer_group = n == 1 ? group_at(layout->rank, runs[0].stride * inner, total / inner)
                              : group_at(layout->rank, runs[1].stride, runs[1].size);
        return 0;
    }
    if (degrees->ep == 1) { /* nothing is divided, and layout.h says that EDP is then absent */
        layout->group[AXIS_EP] = group_at(layout->rank, 1, 1);
        return 0;
    }
    return fail(FAIL_USAGE,
                "layout: ep=%d with order %s: the expert groups over %scp=%d and dp=%d are not "
                "evenly spaced ranks; place these axes side by side in --order",
                degrees->ep, degrees->order, degrees->etp == degrees->tp ? "" : "tp, ", degrees->cp,
                degrees->dp);
}

/* dp and cp as one evenly spaced run, where they are neighbours in the order. */
static void place_dense_copies(struct layout *layout)
{
    const struct group *dp = &layout->group[AXIS_DP], *cp = &layout->group[AXIS_CP];
    const struct group *inner = dp->stride < cp->stride ? dp : cp, *outer = inner == dp ? cp : dp;
    int size = dp->size * cp->size;
    bool apart = dp->size > 1 && cp->size > 1 && inner->stride * inner->size != outer->stride;
    if (dp->size == 1 || cp->size == 1)
        layout->group[AXIS_DPCP] = cp->size > 1 ? *cp : *dp;
    else if (!apart)
        layout->group[AXIS_DPCP] = group_at(layout->rank, inner->stride, size);
}

/* First and last stage; others are alone. */
static void place_embedding(struct layout *layout)
{
    const struct group *pp = &layout->group[AXIS_PP];
    int ends = (pp->size - 1) * pp->stride, last = pp->me == pp->size - 1;
    struct group alone = {.first = layout->rank, .stride = 1, .size = 1};
    struct group both = {.first = pp->first, .stride = ends, .size = 2, .me = last};
    layout->group[AXIS_EMBED] = pp->size > 1 && (pp->me == 0 || last) ? both : alone;
}

static void place_derived(struct layout *layout)
{
    const struct group *dp = &layout->group[AXIS_DP];
    int rank = layout->rank, shard = layout->degrees.shard;
    layout->group[AXIS_SHARD] = group_at(rank, dp->stride, shard);
    layout->group[AXIS_REPLICATE] = group_at(rank, dp->stride * shard, dp->size / shard);
    place_dense_copies(layout);
    place_embedding(layout);
    layout->group[AXIS_NODE] = group_at(rank, 1, layout->ranks_per_node);
    layout->group[AXIS_RAIL] = group_at(rank, layout->ranks_per_node, layout->nodes);
    layout->group[AXIS_WORLD] = group_at(rank, 1, layout->world);
}

static void write_order(char *text, size_t size, const int *axes)
{
    size_t used = 0;
    for (int i = 0; i < ORDER_AXES; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", i > 0 ? "-" : "",
                                 axis_name(axes[i]));
}

int layout_init(struct layout *out, int nodes, int ranks_per_node, int rank,
                const struct degrees *degrees)
{
    struct layout layout = {.nodes = nodes, .ranks_per_node = ranks_per_node, .rank = rank};
    int rc = 0, axes[ORDER_AXES];
    memset(out, 0, sizeof *out);
    if (nodes < 1 || ranks_per_node < 1 || (int64_t)nodes * ranks_per_node > INT_MAX)
        return fail(FAIL_USAGE,
                    "layout: %dx%d is no layout: wanted nodes x ranks per node, both "
                    "from 1, and at most %d ranks",
                    nodes, ranks_per_node, INT_MAX);
    layout.world = nodes * ranks_per_node;
    if (rank < 0 || rank >= layout.world)
        return fail(FAIL_USAGE, "layout: rank %d is not one of the %d ranks of %dx%d", rank,
                    layout.world, nodes, ranks_per_node);
    layout.degrees = *degrees;
    TRY(parse_order(degrees->order[0] != '\0' ? degrees->order : default_order, axes));
    write_order(layout.degrees.order, sizeof layout.degrees.order, axes);
    TRY(resolve(&layout.degrees, nodes, ranks_per_node));
    place_dense(&layout, axes);
    TRY(place_experts(&layout, axes));
    place_derived(&layout);
    *out = layout;
out:
    return rc;
}

int group_rank(const struct group *group, int i)
{
    return group->first + i * group->stride;
}

int layout_coordinate(const struct layout *layout, enum axis axis)
{
    return layout->group[axis].me;
}

void layout_text(const struct layout *layout, char *text, size_t size)
{
    struct degrees degrees = layout->degrees;
    size_t used = 0;
    for (size_t i = 0; i < N_DEGREES; i++) {
        int *degree = degree_at(&degrees, i);
        bool said = degree == &degrees.etp ? degrees.etp != degrees.tp : *degree != 1;
        if (said && used < size)
            used += (size_t)snprintf(text + used, size - used, "%s%s=%d", used > 0 ? "," : "",
                                     degree_rows[i].name, *degree);
    }
    if (used == 0)
        snprintf(text, size, "dp=1");
}

int group_nodes(const struct group *group, int ranks_per_node)
{
    if (group->size == 0)
        return 0;
    if (group->stride >= ranks_per_node)
        return group->size;
    /* Steps shorter than a node pass over none. */
    int last = group_rank(group, group->size - 1);
    return last / ranks_per_node - group->first / ranks_per_node + 1;
}
