/* The points, batches and order that follow from the options are those that a hand calculation
 * gives. */
#include "tests/unit/driver/study_rig.h"

#include <stdlib.h>

static struct points points;

static int expand(const char *line, const struct model *of)
{
    points_release(&points);
    int rc = parse(line);
    return rc != 0 ? rc : study_points(&study, of, &points);
}

/* "1x1 1x2 4x2": the points in order. */
static void sizes_of(char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < points.n; i++) {
        const struct point *point = &points.point[i];
        CHECK_EQ(point->index, i);
        CHECK_EQ(point->ranks, point->nodes * point->ranks_per_node);
        used += (size_t)snprintf(text + used, size - used, "%s%dx%d", i > 0 ? " " : "",
                                 point->nodes, point->ranks_per_node);
    }
}

static void test_sizes(void)
{
    static const char *const table[][2] = {
        {"--layout 1x1", "1x1"},
        {"--layout 2x1", "1x1 2x1"},
        {"--layout 3x1", "1x1 2x1 3x1"},
        {"--layout 4x1", "1x1 2x1 4x1"},
        {"--layout 6x2", "1x2 2x2 4x2 6x2"},
        {"--layout 7x1", "1x1 2x1 4x1 7x1"},
        {"--layout 8x4", "1x4 2x4 4x4 8x4"},
        {"--layout 12x1", "1x1 2x1 4x1 8x1 12x1"},
        {"--layout 4x8 --nodes 3,1", "3x8 1x8"},
        {"--layout 2x8 --points 1x1,1x2,1x8,2x8,2x4", "1x1 1x2 1x8 2x8 2x4"},
        {"--layout 1x4 --points 1x1,1x2,1x3,1x4", "1x1 1x2 1x3 1x4"},
    };
    char text[256];
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (!CHECK_EQ(expand(table[i][0], &model), 0))
            printf("  %s\n", fail_message());
        sizes_of(text, sizeof text);
        if (!CHECK(strcmp(text, table[i][1]) == 0))
            printf("  %s: %s\n", table[i][0], text);
    }
}

/* "8/2 8/2": global batch and micro-batch of each point, then the gate's batch. */
static void batches_of(char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < points.n; i++)
        used += (size_t)snprintf(text + used, size - used, "%lld/%lld ",
                                 (long long)points.point[i].global_batch,
                                 (long long)points.point[i].micro_batch);
    snprintf(text + used, size - used, "gate %lld", (long long)points.gate_batch);
}

static void test_batches(void)
{
    static const char *const table[][2] = {
        {"--layout 1x1", "2/1 gate 2"},
        {"--layout 4x1", "8/1 8/1 8/1 gate 8"},
        {"--layout 3x1", "6/1 6/1 6/1 gate 6"},
        {"--layout 7x1", "28/1 28/1 28/1 28/1 gate 28"},
        {"--layout 12x1", "24/1 24/1 24/1 24/1 24/1 gate 24"},
        {"--layout 4x2 --micro-batch 3", "48/3 48/3 48/3 gate 16"},
        {"--layout 4x1 --global-batch 4", "4/1 4/1 4/1 gate 8"},
        {"--layout 4x1 --global-batch 4 --check off", "4/1 4/1 4/1 gate 0"},
        {"--layout 2x1 --micro-batch 2,3", "12/2 12/3 12/2 12/3 gate 4"},
        {"--layout 4x1 --scaling weak", "2/1 4/1 8/1 gate 8"},
        {"--layout 3x1 --scaling weak", "2/1 4/1 6/1 gate 6"},
        {"--layout 4x2 --scaling weak --global-batch 6", "6/1 12/1 24/1 gate 16"},
        {"--layout 3x1 --nodes 2,3 --scaling weak", "4/1 6/1 gate 6"},
        {"--layout 3x1 --nodes 3,2 --scaling weak --micro-batch 4", "24/4 16/4 gate 6"},
        {"--layout 1x4 --points 1x4,1x2 --scaling weak", "8/1 4/1 gate 8"},
    };
    char text[256];
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (!CHECK_EQ(expand(table[i][0], &model), 0))
            printf("  %s\n", fail_message());
        batches_of(text, sizeof text);
        if (!CHECK(strcmp(text, table[i][1]) == 0))
            printf("  %s: %s\n", table[i][0], text);
    }
    struct model proposes = model; /* what the model file says comes before the smallest */
    proposes.global_batch = 64;
    proposes.micro_batch = 4;
    CHECK_EQ(expand("--layout 4x1", &proposes), 0);
    CHECK(points.point[0].global_batch == 64 && points.point[2].micro_batch == 4);
    CHECK_EQ(expand("--layout 4x1 --global-batch 32 --micro-batch 8", &proposes), 0);
    CHECK(points.point[0].global_batch == 32 && points.point[2].micro_batch == 8);
}

/* Whatever the sizes, a chosen batch splits over every point, is large enough, and is the smallest. */
static void test_smallest_batch(void)
{
    for (int n = 1; n <= 24; n++)
        for (int weak = 0; weak < 2; weak++) {
            char line[128];
            snprintf(line, sizeof line, "--layout %dx2 --micro-batch 3 --scaling %s", n,
                     weak ? "weak" : "strong");
            CHECK_EQ(expand(line, &model), 0);
            int64_t chosen = points.point[0].global_batch, smallest = 0;
            for (int64_t batch = 1; smallest == 0 && batch <= chosen; batch++) {
                bool works = true;
                for (int i = 0; i < points.n; i++) {
                    int64_t ranks = points.point[i].ranks, here = weak ? batch * ranks / 2 : batch;
                    works = works && (!weak || batch * ranks % 2 == 0) && here % (3 * ranks) == 0 &&
                            here >= 6 * ranks;
                }
                smallest = works ? batch : 0;
            }
            CHECK_EQ(chosen, smallest);
            for (int i = 0; i < points.n; i++)
                CHECK(points.gate_batch % points.point[i].ranks == 0 &&
                      points.gate_batch / points.point[i].ranks >= 2);
        }
}

static void test_lists(void)
{
    CHECK_EQ(
        expand("--layout 2x2 --parallel dp=4 --nodes 2 --sequence 16,32 --input memory,synthetic",
               &model),
        0);
    CHECK_EQ(points.n, 4);
    CHECK(points.point[1].sequence == 16 && points.point[2].sequence == 32);
    CHECK(strcmp(points.point[0].input, "memory") == 0);
    CHECK(strcmp(points.point[3].input, "synthetic") == 0);
    CHECK(strcmp(points.point[0].parallel, "dp=4") == 0 && points.point[0].degrees.dp == 4);
    CHECK(points.point[0].degrees.tp == 1 && points.point[0].degrees.order[0] == 't');
    CHECK_EQ(points.nodes, 2);
    CHECK_EQ(points.ranks_per_node, 2);

    CHECK_EQ(expand("--layout 2x2 --nodes 2 --parallel tp=2 --parallel pp=2,dp=2", &model), 0);
    CHECK_EQ(points.n, 2);
    CHECK(points.point[0].degrees.tp == 2 && points.point[0].degrees.dp == 2);
    CHECK(points.point[1].degrees.pp == 2);
    CHECK_EQ(points.point[1].global_batch, 8); /* 2 pp = 4 micro-batches for each of 2 replicas */
    CHECK_EQ(expand("--layout 1x1", &model), 0);
    CHECK(points.point[0].sequence == 64 && points.point[0].parallel[0] == '\0');
}

static void test_refused_points(void)
{
    static const char *const table[][2] = {
        {"--layout 4x1 --nodes 1,5", "--nodes: 5 is more than the 4 nodes of --layout"},
        {"--layout 4x1 --nodes 1,2,1", "--nodes: 1x1 is said twice"},
        {"--layout 4x1 --nodes 1,,2", "--nodes: found \"1,,2\""},
        {"--layout 4x1 --nodes 0", "--nodes: found \"0\""},
        {"--layout 4x2 --points 1x4", "--points: 1x4 does not fit into the 4x2 of --layout"},
        {"--layout 4x2 --points 8x1", "--points: 8x1 does not fit into the 4x2 of --layout"},
        {"--layout 4x2 --points 1x1,1x1", "--points: 1x1 is said twice"},
        {"--layout 4x2 --points 1x1,2", "--points: found \"2\", wanted nodes x ranks"},
        {"--layout 4x1 --parallel tp=3", "tp=3"},
        {"--layout 4x1 --parallel xp=3", "xp=3"},
        {"--layout 4x1 --order tp-tp", "tp-tp"},
        {"--layout 4x1 --parallel dp=4 --parallel dp=4 --nodes 4", "says a value twice"},
        {"--layout 4x1 --micro-batch 0", "--micro-batch: found \"0\""},
        {"--layout 4x1 --micro-batch 2,2", "--micro-batch: \"2,2\" says a value twice"},
        {"--layout 4x1 --nodes 1,01", "--nodes: 1x1 is said twice"},
        {"--layout 4x2 --points 1x1,01x1", "--points: 1x1 is said twice"},
        {"--layout 4x1 --nodes 4 --parallel tp=2 --parallel tp=02",
         "--parallel: \"tp=2;tp=02\" says a value twice"},
        {"--layout 4x1 --nodes 4 --parallel tp=2 --parallel dp=2,tp=2",
         "--parallel: \"tp=2;dp=2,tp=2\" says a value twice"},
        {"--layout 4x1 --micro-batch 1,2,01", "--micro-batch: \"1,2,01\" says a value twice"},
        {"--layout 4x1 --sequence 32,64,032", "--sequence: \"32,64,032\" says a value twice"},
        {"--layout 4x1 --input memory,synthetic,memory",
         "--input: \"memory,synthetic,memory\" says a value twice"},
        {"--layout 4x1 --micro-batch two", "--micro-batch: found \"two\""},
        {"--layout 4x1 --sequence 128",
         "--sequence: 128 is more than the 64 positions of model six"},
        {"--layout 4x1 --sequence 1", "--sequence: found \"1\""},
        {"--layout 4x1 --global-batch 6",
         "--global-batch: 6 samples do not split over point 4x1: dp=4 * micro-batch 1 is 4"},
        {"--layout 4x1 --scaling weak --global-batch 3 --micro-batch 2",
         "--global-batch: 3 samples do not split over point 1x1: dp=1 * micro-batch 2 is 2"},
        {"--layout 3x1 --nodes 3,2 --scaling weak --global-batch 3",
         "--global-batch: 3 samples at the smallest point do not grow to a whole number"},
        {"--layout 2x1 --micro-batch 1073741824",
         "--global-batch: no batch up to 1073741824 samples"},
        {"--layout 40x1 --nodes 31,37,29,23,19", "--check: no batch up to 65536 samples"},
        {"--layout 40x1 --nodes 31,37,29,23,19,17,13", "--global-batch: no batch up to 1073741824"},
        {"--layout 2000x1 --points 1x1 --micro-batch 1 --sequence 2,3,4 --nodes 1",
         "wanted one of"},
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (!CHECK_EQ(expand(table[i][0], &model), FAIL_USAGE))
            printf("  %s\n", table[i][0]);
        CHECK_HAS(fail_message(), table[i][1]);
        CHECK(points.point == NULL && points.n == 0);
    }
    struct model proposes = model;
    proposes.global_batch = 6;
    CHECK_EQ(expand("--layout 4x1", &proposes), FAIL_USAGE);
    CHECK_HAS(fail_message(), "models/six.yaml: global-batch: 6 samples do not split");

    char line[800] = "--layout 100x10 --points 1x1";
    for (int i = 2; i <= 60; i++) /* 60 points x 17 sequences are more than three digits */
        snprintf(line + strlen(line), sizeof line - strlen(line), ",%dx1", i);
    line[strlen("--layout 100x10 --points ") + 250] = '\0';
    *strrchr(line, ',') = '\0';
    snprintf(line + strlen(line), sizeof line - strlen(line),
             " --check off --sequence 2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22");
    CHECK_EQ(expand(line, &model), FAIL_USAGE);
    CHECK_HAS(fail_message(), "points, more than 999");
}

static void test_order(void)
{
    int first[20], again[20], next[20];
    for (int n = 3; n <= 8; n++) { /* the default study: drift must not look like size */
        bool sorted = true;
        study_order(1, 0, n, first);
        for (int k = 0; k < n; k++)
            sorted &= first[k] == k;
        CHECK(!sorted);
    }
    study_order(1, 0, 20, first);
    study_order(1, 0, 20, again);
    study_order(1, 1, 20, next);
    CHECK(memcmp(first, again, sizeof first) == 0);
    CHECK(memcmp(first, next, sizeof first) != 0);
    int seen[20] = {0}, moved = 0;
    for (int i = 0; i < 20; i++) {
        seen[first[i]]++;
        moved += first[i] != i;
    }
    for (int i = 0; i < 20; i++)
        CHECK_EQ(seen[i], 1);
    CHECK(moved > 10);
    int counts[6] = {0}; /* all orders of three come up alike */
    for (int launch = 0; launch < 6000; launch++) {
        study_order(7, launch, 3, first);
        counts[first[0] * 2 + (first[1] > first[2])]++;
    }
    for (int i = 0; i < 6; i++)
        CHECK_NEAR(counts[i], 1000, 5 * 29); /* 5 binomial standard deviations */
}

/* The second base: full-node points of one node, on all nodes at once. */
static void test_loaded(void)
{
    CHECK_EQ(expand("--layout 4x2 --points 1x1,1x2,4x2 --micro-batch 1,2", &model), 0);
    int n = points.n;
    CHECK_EQ(study_add_loaded(&points, &study, false), 0); /* auto, on hosts of their own */
    CHECK_EQ(points.n, n);
    CHECK_EQ(study_add_loaded(&points, &study, true), 0);
    CHECK_EQ(points.n, n + 2); /* 1x2 at two micro-batches; 1x1 is no full node */
    for (int i = 0; i < points.n; i++) {
        const struct point *p = &points.point[i];
        CHECK_EQ(p->copies, i < n ? 1 : 4);
        CHECK_EQ(p->index, i);
        CHECK(i < n || (p->nodes == 1 && p->ranks == 2 && p->ranks_per_node == 2));
    }
    CHECK_EQ(expand("--layout 4x2 --base loaded", &model), 0);
    CHECK_EQ(study_add_loaded(&points, &study, false), 0);
    CHECK_EQ(points.n, 4);
    CHECK_EQ(expand("--layout 4x2 --base alone", &model), 0);
    CHECK_EQ(study_add_loaded(&points, &study, true), 0);
    CHECK_EQ(points.n, 3);
    CHECK_EQ(expand("--layout 1x2 --base loaded", &model), 0);
    CHECK_EQ(study_add_loaded(&points, &study, true), 0);
    CHECK_EQ(points.n, 1);
}

int main(void)
{
    test_sizes();
    test_batches();
    test_smallest_batch();
    test_lists();
    test_refused_points();
    test_order();
    test_loaded();
    points_release(&points);
    return test_end();
}
