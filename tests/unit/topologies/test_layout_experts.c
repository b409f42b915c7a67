/* Expert groups are those of the definition, for every order; what is not evenly spaced is refused. */
#include "topologies/layout.h"

#include <stdlib.h>

#include "base/err.h"
#include "tests/test.h"

enum { MOST_RANKS = 256 };
static struct layout all[MOST_RANKS]; /* the layouts of every rank of one world */

static struct degrees degrees_of(int tp, int cp, int dp, int pp, const char *order)
{
    struct degrees degrees = {.tp = tp, .cp = cp, .dp = dp, .pp = pp};
    snprintf(degrees.order, sizeof degrees.order, "%.31s", order);
    return degrees;
}

static int make_all(int nodes, int ranks_per_node, const struct degrees *degrees)
{
    fail_clear();
    for (int rank = 0; rank < nodes * ranks_per_node; rank++) {
        int rc = layout_init(&all[rank], nodes, ranks_per_node, rank, degrees);
        if (rc != 0)
            return rc;
    }
    return 0;
}

static const char *const five[] = {"tp", "cp", "ep", "dp", "pp"};
static char orders[120][32];
static int n_orders;

static void list_orders(const char *begun, unsigned used, int depth)
{
    if (depth == 5) {
        strcpy(orders[n_orders++], begun);
        return;
    }
    for (unsigned i = 0; i < 5; i++) {
        char text[32];
        if ((used & 1u << i) != 0)
            continue;
        snprintf(text, sizeof text, "%.20s%s%s", begun, depth > 0 ? "-" : "", five[i]);
        list_orders(text, used | 1u << i, depth + 1);
    }
}

/* Place of a rank among those that the experts divide, counted in the order; the rest as one number. */
static void expert_place(int rank, const struct degrees *degrees, const char *order, int *place,
                         int *rest)
{
    const int sizes[] = {degrees->tp, degrees->cp, 1, degrees->dp, degrees->pp};
    int unit = 1, left = rank;
    *place = 0;
    *rest = 0;
    for (const char *word = order; *word != '\0'; word += word[2] == '-' ? 3 : 2) {
        int axis = AXIS_TP;
        while (strncmp(axis_name(axis), word, 2) != 0)
            axis++;
        int at = left % sizes[axis];
        left /= sizes[axis];
        if (axis == AXIS_PP || (axis == AXIS_TP && degrees->etp != 1 && degrees->tp > 1)) {
            *rest = *rest * sizes[axis] + at;
        } else {
            *place += at * unit;
            unit *= sizes[axis];
        }
    }
}

/* Whether the ranks of this key are evenly spaced; the group they are when so. */
static bool evenly_spaced(const int *key, int wanted, int world, struct group *found)
{
    int last = -1;
    *found = (struct group){0};
    for (int rank = 0; rank < world; rank++) {
        if (key[rank] != wanted)
            continue;
        if (found->size == 0)
            found->first = rank;
        else if (found->size == 1)
            found->stride = rank - last;
        else if (rank - last != found->stride)
            return false;
        found->size++;
        last = rank;
    }
    return true;
}

/*
 * By enumeration from the definition: are all expert and expert-data groups evenly spaced, and,
 * where layouts were made, are they these?
 */
static bool experts_by_definition(int world, const struct degrees *degrees, const char *order,
                                  bool made)
{
    int ep_key[MOST_RANKS], edp_key[MOST_RANKS];
    bool ep_inner = strstr(order, "ep") < strstr(order, "dp");
    int per_group = world / degrees->pp / (degrees->etp == 1 ? 1 : degrees->tp) / degrees->ep;
    for (int rank = 0; rank < world; rank++) {
        int place, rest;
        expert_place(rank, degrees, order, &place, &rest);
        int ep = ep_inner ? place % degrees->ep : place / per_group;
        int edp = ep_inner ? place / degrees->ep : place % per_group;
        ep_key[rank] = rest * MOST_RANKS + edp;
        edp_key[rank] = rest * MOST_RANKS + ep;
    }
    for (int rank = 0; rank < world; rank++) {
        struct group ep, edp;
        if (!evenly_spaced(ep_key, ep_key[rank], world, &ep) ||
            !evenly_spaced(edp_key, edp_key[rank], world, &edp))
            return false;
        const struct group *group = all[rank].group;
        if (made && (ep.first != group[AXIS_EP].first || ep.size != group[AXIS_EP].size ||
                     (ep.size > 1 && ep.stride != group[AXIS_EP].stride) ||
                     edp.first != group[AXIS_EDP].first || edp.size != group[AXIS_EDP].size ||
                     (edp.size > 1 && edp.stride != group[AXIS_EDP].stride)))
            return false;
    }
    return true;
}

/* Every ep and etp over all orders: as defined, or refused where the definition is not even. */
static void test_experts(void)
{
    int accepted = 0, refused = 0;
    for (int o = 0; o < n_orders; o++)
        for (int code = 0; code < 81 * 5 * 2; code++) {
            static const int eps[] = {2, 3, 4, 6, 9};
            struct degrees degrees = degrees_of(1 + code % 3, 1 + code / 3 % 3, 1 + code / 9 % 3,
                                                1 + code / 27 % 3, orders[o]);
            degrees.ep = eps[code / 81 % 5];
            degrees.etp = code / 405 == 0 ? 0 : 1;
            degrees.shard = degrees.dp;
            int world = degrees.tp * degrees.cp * degrees.dp * degrees.pp;
            if (degrees.cp * degrees.dp % degrees.ep != 0)
                continue;
            if (make_all(1, world, &degrees) == 0) {
                accepted++;
                CHECK(experts_by_definition(world, &degrees, orders[o], true));
            } else {
                refused++;
                CHECK_HAS(fail_message(), "are not evenly spaced ranks");
                CHECK(!experts_by_definition(world, &degrees, orders[o], false));
            }
        }
    printf("expert layouts: %d accepted, %d refused\n", accepted, refused);
    CHECK(accepted > 1000);
    CHECK(refused > 100);
}

/* Megatron's expert grid: the order without cp, over etp, ep, expert-data and pp. */
static void test_megatron(void)
{
    for (int tp = 1; tp <= 4; tp *= 2)
        for (int cp = 1; cp <= 4; cp *= 2)
            for (int ep = 1; ep <= 4; ep *= 2)
                for (int etp = 1; etp <= tp; etp += tp - 1 + (tp == 1)) {
                    struct degrees degrees = degrees_of(tp, cp, 4, 2, "tp-cp-ep-dp-pp");
                    degrees.ep = ep;
                    degrees.etp = etp;
                    int world = tp * cp * 8, edp = tp * cp * 4 / (ep * etp);
                    CHECK_EQ(make_all(1, world, &degrees), 0);
                    for (int rank = 0; rank < world; rank++) {
                        CHECK_EQ(all[rank].group[AXIS_EP].me, rank / etp % ep);
                        CHECK_EQ(all[rank].group[AXIS_EDP].me, rank / (etp * ep) % edp);
                        CHECK_EQ(all[rank].group[AXIS_PP].me, rank / (etp * ep * edp));
                    }
                }
}

static bool group_is(const struct group *group, int first, int stride, int size, int me)
{
    return group->first == first && group->stride == stride && group->size == size &&
           group->me == me;
}

/* cp and dp apart: no expert-data group as long as nothing is divided. */
static void test_absent_group(void)
{
    struct degrees degrees = degrees_of(2, 2, 2, 2, "cp-tp-ep-dp-pp");
    struct layout layout;
    CHECK_EQ(layout_init(&layout, 2, 8, 5, &degrees), 0);
    CHECK_EQ(layout.group[AXIS_EDP].size, 0);
    CHECK_EQ(group_nodes(&layout.group[AXIS_EDP], 8), 0);
    degrees.ep = 2; /* the expert groups are then the cp groups, expert-data the dp groups */
    CHECK_EQ(layout_init(&layout, 2, 8, 5, &degrees), 0);
    CHECK(group_is(&layout.group[AXIS_EP], 4, 1, 2, 1));
    CHECK(group_is(&layout.group[AXIS_EDP], 1, 4, 2, 1));
}

int main(void)
{
    list_orders("", 0, 0);
    test_experts();
    test_megatron();
    test_absent_group();
    return test_end();
}
