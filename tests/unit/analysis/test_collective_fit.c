/* Tables of collectives give back the alpha and B they were made of, and say when there is none. */
#include "analysis/collective_fit.h"

#include <stdlib.h>

#include "base/err.h"
#include "base/rng.h"
#include "tests/test.h"

enum { SIZES = 20 };

/* All-reduce busbw in GB/s on 8 x B200, one and four nodes, EFA of 8 x 50 GB/s
 * (stas00/ml-engineering, network/README.md at 744d01e). */
static const struct {
    double MiB, one, four;
} b200[SIZES] = {{1.0 / 32, 1.20, 0.01}, {1.0 / 16, 2.17, 0.04}, {1.0 / 8, 4.86, 0.45},
                 {1.0 / 4, 9.54, 1.33},  {1.0 / 2, 18.71, 2.84}, {1, 36.06, 5.37},
                 {2, 63.09, 10.38},      {4, 76.48, 18.90},      {8, 126.49, 35.12},
                 {16, 254.96, 64.43},    {32, 325.97, 91.19},    {64, 400.60, 156.74},
                 {128, 568.38, 197.94},  {256, 646.11, 229.09},  {512, 688.99, 326.90},
                 {1024, 723.34, 361.99}, {2048, 734.97, 372.42}, {4096, 740.64, 377.34},
                 {8192, 839.07, 380.39}, {16384, 845.67, 381.80}};

static struct collective_table table_of(struct collective_row *rows, bool four, int from)
{
    struct collective_table table = {
        .source = "b200", .operation = "all_reduce", .ranks = four ? 32 : 8};
    for (int i = from; i < SIZES; i++)
        rows[i - from] = (struct collective_row){.line = i,
                                                 .bytes = b200[i].MiB * 1048576,
                                                 .time_us = NAN,
                                                 .busbw_GBps = four ? b200[i].four : b200[i].one};
    table.rows = rows;
    table.n_rows = SIZES - from;
    return table;
}

static double ms_at(const struct collective_fit *f, double MiB)
{
    for (int i = 0; i < f->n_rows; i++)
        if (f->bytes[i] == MiB * 1048576)
            return f->time_us[i] * 1e-3;
    return NAN;
}

/* Published derived values: 22.05 and 10.15 ms for 4 GiB; 36.52 GB/s an accelerator, 73.0 % of 50.
 * */
static void test_b200(void)
{
    struct collective_row rows[SIZES], rows4[SIZES];
    struct collective_table one = table_of(rows, false, 0), four = table_of(rows4, true, 4);
    struct collective_fit f, g;
    CHECK_EQ(collective_fit_init(&f, &one), 0);
    CHECK_EQ(collective_fit_init(&g, &four), 0);
    CHECK_NEAR(f.line.alpha_us, 52.8, 0.05);
    CHECK_NEAR(f.line.bus_GBps, 718, 0.5);
    CHECK_NEAR(f.line.worst, 0.37, 0.005);
    CHECK_NEAR(g.line.alpha_us, 402, 0.5);
    CHECK_NEAR(g.line.bus_GBps, 365, 0.5);
    CHECK_NEAR(g.line.worst, 0.20, 0.005);
    CHECK_NEAR(ms_at(&f, 4096), 10.15, 0.005);
    CHECK_NEAR(ms_at(&g, 4096), 22.05, 0.005);
    CHECK_NEAR(collective_nic_hierarchical_GBps(377.34, 32, 4), 36.52, 0.005);
    CHECK_NEAR(collective_nic_hierarchical_GBps(377.34, 32, 4) / 50, 0.730, 0.0005);
    CHECK_NEAR(collective_nic_flat_GBps(377.34, 32, 4), 47.2, 0.05);
    CHECK_NEAR(collective_nic_flat_GBps(377.34, 32, 4) / 50, 0.94, 0.005);
    CHECK(isnan(collective_nic_flat_GBps(377.34, 8, 1)));
    /* Neither is a line; both are pieces, and closer than the line at every size. */
    CHECK(f.model == COLLECTIVE_PIECEWISE && f.n_pieces == 3 && f.worst < 0.1);
    CHECK(g.model == COLLECTIVE_PIECEWISE && g.n_pieces == 2 && g.worst < COLLECTIVE_TOLERANCE);
    for (int i = 0; i < f.n_rows; i++)
        CHECK(fabs(collective_time_us(&f, f.bytes[i]) / f.time_us[i] - 1) <= f.worst + 1e-12);
    /* The network over what a node takes by itself: the two ends of overlap bracket it. */
    struct collective_hierarchy h;
    CHECK_EQ(collective_hierarchy_fit(&h, &f, &g, 4), 0);
    CHECK_EQ(h.n_rows, 16);
    CHECK(h.max.nic_ring_GBps < h.sum.nic_ring_GBps && h.sum.latency_us < h.max.latency_us);
    CHECK_NEAR(h.max.nic_tree_GBps / h.max.nic_ring_GBps, 4.0 / 3.0, 1e-9);
    CHECK_NEAR(h.max.hop_ring_us * 6, h.max.latency_us, 1e-9);
    CHECK_NEAR(h.max.hop_tree_us * 4, h.max.latency_us, 1e-9);
    for (int i = 0; i < h.n_rows; i++) {
        double serial = collective_hierarchy_us(&h, i, false);
        CHECK(fabs(serial / h.time_us[i] - 1) <= h.sum.worst + 1e-12);
        CHECK(serial > h.inside_us[i] && collective_hierarchy_us(&h, i, true) >= h.inside_us[i]);
    }
    collective_hierarchy_release(&h);
    CHECK_EQ(collective_hierarchy_fit(&h, &f, &g, 2), FAIL_USAGE);
    CHECK_HAS(fail_message(), "32 ranks on 2 nodes wanted beside a table of one node");
    fail_clear();
    collective_fit_release(&f);
    collective_fit_release(&g);
}

/* Made of phases one after another, the network comes back. */
static void test_phases_back(void)
{
    enum { ROWS = 10, G = 4, K = 8 };
    struct collective_row inside[ROWS], all[ROWS];
    struct collective_table one = {
        .source = "one", .operation = "all_reduce", .ranks = G, .n_rows = ROWS, .rows = inside};
    struct collective_table many = {
        .source = "many", .operation = "all_reduce", .ranks = G * K, .n_rows = ROWS, .rows = all};
    struct collective_fit f, g;
    struct collective_hierarchy h;
    for (int i = 0; i < ROWS; i++) {
        double bytes = 4096 * pow(4, i), within = 20 + bytes / 200e3;
        inside[i] = (struct collective_row){.bytes = bytes, .time_us = within};
        all[i] = inside[i]; /* 2 (k - 1) hops of 5 us, S / g over 40 GB/s */
        all[i].time_us = within + 2 * (K - 1) * 5 + 2.0 * (K - 1) / K * bytes / G / 40e3;
    }
    CHECK_EQ(collective_fit_init(&f, &one), 0);
    CHECK_EQ(collective_fit_init(&g, &many), 0);
    CHECK_EQ(collective_hierarchy_fit(&h, &f, &g, K), 0);
    CHECK_NEAR(h.sum.hop_ring_us, 5, 1e-6);
    CHECK_NEAR(h.sum.nic_ring_GBps, 40, 1e-6);
    CHECK(h.sum.worst < 1e-9);
    collective_hierarchy_release(&h);
    for (int i = 2; i < ROWS; i++)
        f.bytes[i] *= 1.5;
    CHECK_EQ(collective_hierarchy_fit(&h, &f, &g, K), FAIL_USAGE);
    CHECK_HAS(fail_message(), "share 2 sizes, 3 are needed");
    fail_clear();
    collective_fit_release(&f);
    collective_fit_release(&g);
}

/* Small messages that were rounded away: no model fits, and between rows it is interpolated. */
static void test_no_model(void)
{
    struct collective_row rows[SIZES];
    struct collective_table four = table_of(rows, true, 0);
    struct collective_fit f;
    CHECK_EQ(collective_fit_init(&f, &four), 0);
    CHECK_EQ(f.model, COLLECTIVE_TABLE);
    CHECK(f.line.worst > 0.9);
    for (int i = 0; i < f.n_rows; i++)
        CHECK_NEAR(collective_time_us(&f, f.bytes[i]) / f.time_us[i], 1.0, 1e-12);
    double between = collective_time_us(&f, sqrt(f.bytes[8] * f.bytes[9]));
    CHECK_NEAR(between, sqrt(f.time_us[8] * f.time_us[9]), 1e-9 * between);
    CHECK(isnan(collective_time_us(&f, f.bytes[0] / 2)));
    CHECK(isnan(collective_time_us(&f, f.bytes[f.n_rows - 1] * 2)));
    collective_fit_release(&f);
}

/* Made of one alpha and B per operation: they come back, and the error covers them. */
static void test_line_back(void)
{
    enum { SEEDS = 200 };
    static const char *const operations[] = {"all_reduce", "all_gather", "broadcast", "alltoall"};
    int alpha = 0, bus = 0;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct collective_row rows[12];
        struct collective_table table = {.source = "made", .ranks = 6, .n_rows = 12, .rows = rows};
        struct collective_fit f;
        snprintf(table.operation, sizeof table.operation, "%s", operations[seed % 4]);
        double factor = collective_busbw_factor(table.operation, 6);
        for (int i = 0; i < 12; i++) {
            double bytes = 1024 * pow(4, i);
            double noise = 1 + 0.02 * (double)rng_normal(rng_key(seed, "line"), (uint64_t)i);
            rows[11 - i] = (struct collective_row){
                .bytes = bytes, .time_us = (30 + factor * bytes / 250e3) * noise};
        }
        CHECK_EQ(collective_fit_init(&f, &table), 0);
        CHECK_EQ(f.model, COLLECTIVE_LINE);
        alpha += fabs(f.line.alpha_us - 30) < 2.23 * f.line.alpha_error; /* t of 10 */
        bus += fabs(f.line.bus_GBps - 250) < 2.23 * f.line.bus_error;
        collective_fit_release(&f);
    }
    printf("# alpha covered %.1f %%, B %.1f %%\n", 100.0 * alpha / SEEDS, 100.0 * bus / SEEDS);
    CHECK(alpha >= 0.9 * SEEDS && bus >= 0.9 * SEEDS);
}

static void test_bounds(void)
{
    struct collective_row rows[4];
    struct collective_table table = {
        .source = "made", .operation = "all_reduce", .ranks = 4, .n_rows = 4, .rows = rows};
    struct collective_fit f;
    for (int i = 0; i < 4; i++) /* faster than any line through 0 */
        rows[i] = (struct collective_row){.bytes = 1e6 * (i + 1), .time_us = 10 * pow(i + 1, 1.2)};
    CHECK_EQ(collective_fit_init(&f, &table), 0);
    CHECK(f.line.alpha_us == 0.0 && f.line.bus_GBps > 0);
    collective_fit_release(&f);
    for (int i = 0; i < 4; i++) /* no size in it */
        rows[i].time_us = 10 - 0.1 * i;
    CHECK_EQ(collective_fit_init(&f, &table), 0);
    CHECK(isinf(f.line.bus_GBps) && f.line.alpha_us > 9);
    CHECK_NEAR(collective_time_us(&f, 2e6), f.line.alpha_us, 1e-9);
    collective_fit_release(&f);
    /* A size measured twice counts once, with its mean. */
    rows[1].bytes = rows[0].bytes;
    CHECK_EQ(collective_fit_init(&f, &table), 0);
    CHECK_EQ(f.n_rows, 3);
    CHECK_NEAR(f.time_us[0], 9.95, 1e-9);
    collective_fit_release(&f);
}

static void refused(struct collective_row *rows, int n, const char *says)
{
    struct collective_table table = {
        .source = "bad.txt", .operation = "all_reduce", .ranks = 4, .n_rows = n, .rows = rows};
    struct collective_fit f;
    CHECK_EQ(collective_fit_init(&f, &table), FAIL_USAGE);
    CHECK_HAS(fail_message(), says);
    fail_clear();
}

static void test_refusals(void)
{
    struct collective_row rows[4];
    for (int i = 0; i < 4; i++)
        rows[i] = (struct collective_row){.line = i + 5, .bytes = 1e6 * (i + 1), .time_us = 10};
    refused(rows, 2, "bad.txt: all_reduce has 2 sizes with a time: alpha and B need at least 3");
    rows[2].time_us = -1;
    refused(rows, 4, "bad.txt:7: a collective of 3000000 bytes cannot take -1 us");
    rows[2].time_us = 0;
    refused(rows, 4, "cannot take 0 us");
    rows[2].time_us = INFINITY;
    refused(rows, 4, "cannot take inf us");
}

int main(void)
{
    test_b200();
    test_phases_back();
    test_no_model();
    test_line_back();
    test_bounds();
    test_refusals();
    return test_end();
}
