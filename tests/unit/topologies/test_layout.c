/* A layout is a bijection of ranks and coordinates, and the groups of every axis tile the world. */
#include "topologies/layout.h"

#include <stdlib.h>
#include <time.h>

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

/* Groups of one axis: every member knows the same set and its own place; the sets tile the world. */
static bool axis_tiles(int world, int axis)
{
    int members[MOST_RANKS] = {0};
    for (int rank = 0; rank < world; rank++) {
        const struct group *mine = &all[rank].group[axis];
        if (mine->first < 0 || mine->first > rank || group_rank(mine, mine->me) != rank ||
            mine->me < 0 || mine->me >= mine->size || group_rank(mine, mine->size - 1) >= world)
            return false;
        const struct group *leads = &all[mine->first].group[axis];
        if (leads->first != mine->first || leads->stride != mine->stride ||
            leads->size != mine->size || leads->me != 0)
            return false;
        members[mine->first]++;
    }
    for (int rank = 0; rank < world; rank++)
        if (members[rank] != (all[rank].group[axis].me == 0 ? all[rank].group[axis].size : 0))
            return false;
    return true;
}

/* Count through the coordinates in the order of the text: an odometer, independent of strides. */
static bool coordinates_count(int world, const char *order)
{
    int at[AXIS_COUNT] = {0};
    for (int rank = 0; rank < world; rank++) {
        for (int axis = AXIS_TP; axis <= AXIS_PP; axis++)
            if (axis != AXIS_EP && layout_coordinate(&all[rank], (enum axis)axis) != at[axis])
                return false;
        for (const char *word = order; *word != '\0'; word += word[2] == '-' ? 3 : 2) {
            int axis = AXIS_TP;
            while (strncmp(axis_name(axis), word, 2) != 0)
                axis++;
            if (axis == AXIS_EP)
                continue;
            if (++at[axis] < all[rank].group[axis].size)
                break;
            at[axis] = 0;
        }
    }
    return at[AXIS_TP] + at[AXIS_CP] + at[AXIS_DP] + at[AXIS_PP] == 0; /* all the way round */
}

static bool sizes_multiply(const struct layout *layout)
{
    const struct group *group = layout->group;
    const struct degrees *degrees = &layout->degrees;
    bool dense =
        group[AXIS_TP].size * group[AXIS_CP].size * group[AXIS_DP].size * group[AXIS_PP].size ==
        layout->world;
    bool expert =
        group[AXIS_EDP].size == 0 || group[AXIS_EP].size * group[AXIS_EDP].size * degrees->etp ==
                                         degrees->tp * degrees->cp * degrees->dp;
    return dense && expert && group[AXIS_EP].size == degrees->ep &&
           group[AXIS_SHARD].size == degrees->shard &&
           group[AXIS_SHARD].size * group[AXIS_REPLICATE].size == group[AXIS_DP].size &&
           group[AXIS_NODE].size * group[AXIS_RAIL].size == layout->world &&
           group[AXIS_WORLD].size == layout->world;
}

/* dp with cp: who has the same place in tp and pp; or, where an order keeps the two apart, nobody. */
static bool copies_are_right(const struct layout *layout, const char *order)
{
    const struct group *copies = &layout->group[AXIS_DPCP], *group = layout->group;
    const char *dp = strstr(order, "dp"), *cp = strstr(order, "cp"), *between = NULL;
    for (int axis = AXIS_TP; axis <= AXIS_PP; axis++) {
        const char *at = strstr(order, axis_name(axis));
        if (axis != AXIS_EP && group[axis].size > 1 && (at > dp) != (at > cp) && at != dp &&
            at != cp)
            between = at;
    }
    if (between != NULL && group[AXIS_DP].size > 1 && group[AXIS_CP].size > 1)
        return copies->size == 0;
    bool right = copies->size == group[AXIS_DP].size * group[AXIS_CP].size &&
                 group_rank(copies, copies->me) == layout->rank;
    for (int i = 0; i < copies->size; i++) {
        const struct layout *other = &all[group_rank(copies, i)];
        right = right && other->group[AXIS_TP].me == group[AXIS_TP].me &&
                other->group[AXIS_PP].me == group[AXIS_PP].me;
    }
    return right;
}

static bool world_is_whole(int world, const char *order)
{
    bool whole = coordinates_count(world, order);
    for (int axis = 0; axis < AXIS_COUNT; axis++)
        if ((axis != AXIS_EDP && axis != AXIS_DPCP) || all[0].group[axis].size > 0)
            whole = axis_tiles(world, axis) && whole;
    for (int rank = 0; rank < world; rank++)
        whole = sizes_multiply(&all[rank]) && copies_are_right(&all[rank], order) && whole;
    return whole;
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

/* Every tp, cp, dp, pp in 1..4, and every order. */
static void test_small_extents(void)
{
    for (int o = 0; o < n_orders; o++)
        for (int code = 0; code < 256; code++) {
            int tp = 1 + code % 4, cp = 1 + code / 4 % 4, dp = 1 + code / 16 % 4,
                pp = 1 + code / 64;
            struct degrees degrees = degrees_of(tp, cp, dp, pp, orders[o]);
            int world = tp * cp * dp * pp, nodes = world % 4 == 0 ? 4 : 1;
            if (!CHECK_EQ(make_all(nodes, world / nodes, &degrees), 0) ||
                !CHECK(world_is_whole(world, orders[o]))) {
                printf("  tp=%d cp=%d dp=%d pp=%d %s: %s\n", tp, cp, dp, pp, orders[o],
                       fail_message());
                return;
            }
        }
}

static bool group_is(const struct group *group, int first, int stride, int size, int me)
{
    return group->first == first && group->stride == stride && group->size == size &&
           group->me == me;
}

/* One layout worked out by hand: 2 nodes of 8, tp 2, dp 4 in shards of 2, pp 2, ep 2; rank 13. */
static void test_by_hand(void)
{
    struct degrees degrees = {.tp = 2, .pp = 2, .ep = 2, .shard = 2};
    struct layout layout;
    CHECK_EQ(layout_init(&layout, 2, 8, 13, &degrees), 0);
    CHECK_EQ(layout.degrees.dp, 4);
    CHECK(strcmp(layout.degrees.order, "tp-cp-ep-dp-pp") == 0);
    CHECK(group_is(&layout.group[AXIS_TP], 12, 1, 2, 1));
    CHECK(group_is(&layout.group[AXIS_DP], 9, 2, 4, 2));
    CHECK(group_is(&layout.group[AXIS_PP], 5, 8, 2, 1));
    CHECK(group_is(&layout.group[AXIS_SHARD], 13, 2, 2, 0));
    CHECK(group_is(&layout.group[AXIS_REPLICATE], 9, 4, 2, 1));
    CHECK(group_is(&layout.group[AXIS_EP], 13, 2, 2, 0));
    CHECK(group_is(&layout.group[AXIS_EDP], 9, 4, 2, 1));
    CHECK(group_is(&layout.group[AXIS_NODE], 8, 1, 8, 5));
    CHECK(group_is(&layout.group[AXIS_RAIL], 5, 8, 2, 1));
    CHECK(group_is(&layout.group[AXIS_WORLD], 0, 1, 16, 13));

    snprintf(degrees.order, sizeof degrees.order, "tp-cp-dp-ep-pp"); /* expert-data is now faster */
    CHECK_EQ(layout_init(&layout, 2, 8, 13, &degrees), 0);
    CHECK(group_is(&layout.group[AXIS_EP], 9, 4, 2, 1));
    CHECK(group_is(&layout.group[AXIS_EDP], 13, 2, 2, 0));
    snprintf(degrees.order, sizeof degrees.order, "pp-dp-cp-tp"); /* without ep: before dp */
    CHECK_EQ(layout_init(&layout, 2, 8, 13, &degrees), 0);
    CHECK(strcmp(layout.degrees.order, "pp-ep-dp-cp-tp") == 0);
    CHECK(group_is(&layout.group[AXIS_PP], 12, 1, 2, 1));
    CHECK(group_is(&layout.group[AXIS_TP], 5, 8, 2, 1));
}

static void refused(int nodes, int ranks_per_node, const char *parallel, const char *order,
                    const char *words)
{
    struct degrees degrees = {0};
    struct layout layout;
    fail_clear();
    snprintf(degrees.order, sizeof degrees.order, "%s", order);
    int rc = layout_parse(parallel, &degrees);
    if (rc == 0)
        rc = layout_init(&layout, nodes, ranks_per_node, 0, &degrees);
    CHECK_EQ(rc, FAIL_USAGE);
    CHECK_HAS(fail_message(), words);
    fail_clear();
}

static void test_refusals(void)
{
    refused(2, 4, "tp=2,dp=3", "",
            "tp=2 * cp=1 * dp=3 * pp=1 is 6, but 2x4 has 8 ranks; choose dp=4, or leave dp out");
    refused(2, 4, "tp=3,dp=2", "", "is 3, which does not divide the 8 ranks");
    refused(2, 4, "tp=3", "",
            "tp=3 * cp=1 * pp=1 is 3, which does not divide the 8 ranks of 2x4; choose a product "
            "of 2 or 4");
    refused(2, 4, "tp=16", "",
            "is 16, which does not divide the 8 ranks of 2x4; choose a product of 8");
    refused(2, 4, "tp=2147483647,cp=2147483647,pp=2147483647", "", "the 8 ranks of 2x4");
    refused(1, 8, "ep=3", "",
            "ep=3 does not divide dp=8 * cp=1, which is 8, on 1x8; choose ep=2 or ep=4");
    refused(1, 8, "shard=3", "", "shard=3 does not divide dp=8 on 1x8; choose shard=2 or shard=4");
    refused(1, 8, "shard=16", "", "shard=16 does not divide dp=8 on 1x8; choose shard=8");
    refused(1, 7, "shard=2", "", "shard=2 does not divide dp=7 on 1x7; choose shard=1 or shard=7");
    refused(1, 8, "tp=4,etp=2", "", "etp=2 is neither 1 nor tp=4");
    refused(1, 8, "", "tp-cp-dp", "order \"tp-cp-dp\"");
    refused(1, 8, "", "tp-cp-dp-dp", "order");
    refused(1, 8, "", "tp-cp-dp-pp-", "order");
    refused(1, 8, "", "tp-cp-dp-pp-pp", "order");
    refused(1, 8, "", "tp_cp_dp_pp", "order");
    refused(1, 8, "", "-tp-cp-dp-pp", "order");
    refused(1, 16, "cp=2,ep=4,tp=2", "cp-tp-dp-pp", "ep=4 with order cp-tp-ep-dp-pp");
    refused(1, 8, "tq=2", "", "\"tq=2\" is no degree");
    refused(1, 8, "tpp=2", "", "did you mean tp?");
    refused(1, 8, "Shard=2", "", "did you mean shard?");
    refused(1, 8, "shrad=2", "", "did you mean shard?");
    refused(1, 8, "tp=2,tp=2", "", "tp is said twice");
    refused(1, 8, "tp=0", "", "\"tp=0\": a degree is a whole number from 1");
    refused(1, 8, "tp=-2", "", "whole number");
    refused(1, 8, "tp=2x", "", "whole number");
    refused(1, 8, "tp=", "", "whole number");
    refused(1, 8, "tp=99999999999", "", "whole number");
    refused(1, 8, "tp", "", "\"tp\" is no degree");
    refused(1, 8, "tp=2,", "", "is no degree");
    refused(1, 8, ",", "", "is no degree");
    refused(1, 8, "node=2", "", "is no degree");
    refused(0, 8, "", "", "0x8 is no layout");
    refused(65536, 65536, "", "", "65536x65536 is no layout");
}

static void test_zeroed_on_failure(void)
{
    struct degrees degrees = {.tp = 3};
    struct layout layout, zero = {0};
    memset(&layout, 1, sizeof layout);
    CHECK_EQ(layout_init(&layout, 2, 4, 0, &degrees), FAIL_USAGE);
    CHECK(memcmp(&layout, &zero, sizeof zero) == 0);
    CHECK_EQ(layout_init(&layout, 2, 4, 8, &(struct degrees){0}), FAIL_USAGE);
    CHECK_EQ(layout_init(&layout, 2, 4, -1, &(struct degrees){0}), FAIL_USAGE);
    struct degrees kept = {.tp = 7, .order = "pp-dp-cp-tp"};
    CHECK_EQ(layout_parse("dp=2,bad", &kept), FAIL_USAGE);
    CHECK_EQ(kept.tp, 7);
    fail_clear();
}

/* Text, parse, text; and the resolved degrees give the same layout again. */
static void test_round_trip(void)
{
    static const char *const texts[] = {
        "dp=8",           "tp=2,dp=4",
        "tp=2,dp=2,pp=2", "tp=8",
        "cp=2,dp=4",      "ep=4,dp=8,shard=4",
        "pp=8",           "tp=2,ep=2,etp=1,dp=4",
        "tp=4,pp=2",      "cp=4,ep=2,dp=2,shard=2",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct degrees degrees = {0};
        struct layout layout, again;
        char text[96];
        CHECK_EQ(layout_parse(texts[i], &degrees), 0);
        CHECK_EQ(layout_init(&layout, 2, 4, 5, &degrees), 0);
        layout_text(&layout, text, sizeof text);
        CHECK(strcmp(text, texts[i]) == 0);
        CHECK_EQ(layout_init(&again, 2, 4, 5, &layout.degrees), 0);
        CHECK(memcmp(&again, &layout, sizeof layout) == 0);
    }
    struct layout one;
    char text[96], cut[6];
    CHECK_EQ(layout_init(&one, 1, 1, 0, &(struct degrees){0}), 0);
    layout_text(&one, text, sizeof text);
    CHECK(strcmp(text, "dp=1") == 0);
    struct degrees kept = {.dp = 3, .order = "pp-dp-cp-tp"};
    CHECK_EQ(layout_parse("", &kept), 0);
    CHECK_EQ(kept.dp, 0);
    CHECK(strcmp(kept.order, "pp-dp-cp-tp") == 0);
    CHECK_EQ(layout_init(&one, 2, 4, 0, &(struct degrees){.tp = 2, .pp = 2}), 0);
    layout_text(&one, cut, sizeof cut);
    CHECK(strcmp(cut, "tp=2,") == 0);
}

/* Distinct nodes of a group, against counting them. */
static void test_group_nodes(void)
{
    for (int rpn = 1; rpn <= 9; rpn++)
        for (int code = 0; code < 9 * 9 * 9; code++) {
            struct group group = {code % 9, 1 + code / 9 % 9, 1 + code / 81, 0};
            int nodes = 0, last = -1;
            for (int i = 0; i < group.size; i++) {
                int node = group_rank(&group, i) / rpn;
                nodes += node != last;
                last = node;
            }
            CHECK_EQ(group_nodes(&group, rpn), nodes);
        }
}

/* A layout of 16,384 ranks costs what one of 1 costs. */
static void test_many_ranks(void)
{
    clock_t start = clock(); /* of the processor: others may hold it meanwhile */
    for (int nodes = 512; nodes <= 2048; nodes *= 4)
        for (int rank = 0; rank < nodes * 8; rank++) {
            struct degrees degrees = {.tp = 8, .cp = 2, .ep = 8, .pp = 8, .shard = 2};
            struct layout layout;
            if (!CHECK_EQ(layout_init(&layout, nodes, 8, rank, &degrees), 0))
                return;
            CHECK_EQ(group_rank(&layout.group[AXIS_DP], layout.group[AXIS_DP].me), rank);
            CHECK_EQ(layout.degrees.dp, nodes / 16);
        }
    double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    printf("layouts of 4096 and of 16384 ranks: %.3f s\n", seconds);
    CHECK(seconds < 1.0);
}

int main(void)
{
    list_orders("", 0, 0);
    CHECK_EQ(n_orders, 120);
    CHECK(strcmp(axis_name(AXIS_REPLICATE), "replicate") == 0);
    CHECK(strcmp(axis_name(AXIS_COUNT), "?") == 0);
    test_small_extents();
    test_by_hand();
    test_refusals();
    test_zeroed_on_failure();
    test_round_trip();
    test_group_nodes();
    test_many_ranks();
    return test_end();
}
