/* Floors of a step follow from ceilings by hand arithmetic, name their source, and are not known where the
 * calibration did other work. */
#include "analysis/floors.h"

#include <math.h>
#include <string.h>

#include "tests/test.h"

enum { RANKS = 2, STEPS = 3 };

static struct ceiling_row ceiling(const char *kind, const char *shape, int calls, double bytes,
                                  double flops, double least_us)
{
    struct ceiling_row row = {.calls = calls,
                              .group = 1,
                              .n = 5,
                              .bytes = bytes,
                              .flops = flops,
                              .time_us = 1.5 * least_us,
                              .least_us = least_us};
    strcpy(row.kind, kind);
    strcpy(row.shape, shape);
    return row;
}

static struct ceiling_row call(double bytes, int group, double least_us)
{
    struct ceiling_row row = ceiling("all-reduce", "bytes", 0, bytes, 0, least_us);
    row.group = group;
    return row;
}

static void add_op(struct record_point *p, int step, int rank, const char *kind, double flops,
                   int64_t ns)
{
    struct op_row *row = RECORD_ADD(&p->ops, 1);
    *row = (struct op_row){.step = step, .rank = rank, .flops = flops, .duration_ns = ns};
    strcpy(row->kind, kind);
}

static void add_call(struct record_point *p, int step, int rank, int index, int64_t bytes,
                     int64_t ns)
{
    struct call_row *row = RECORD_ADD(&p->collectives, 1);
    *row = (struct call_row){.step = step,
                             .rank = rank,
                             .call = index,
                             .bytes = bytes,
                             .group = RANKS,
                             .duration_ns = ns};
    strcpy(row->axis, "dp");
    strcpy(row->kind, "all-reduce");
}

/* Another group makes a shorter call meanwhile: it is none of rank 0's. */
static void test_other_group(void)
{
    struct record_point p = {0};
    struct floor_row rows[FLOORS_MOST];
    for (int rank = 0; rank < 4; rank++) {
        add_call(&p, 0, rank, 0, 1000, rank < 2 ? 90000 + rank : 20000);
        p.collectives.rows[rank].first = rank / 2 * 2;
    }
    CHECK_EQ(floors_of_point(rows, &p, NULL, 0, 1), 1);
    CHECK_NEAR(rows[0].ms, 0.09, 1e-12);
    record_point_release(&p);
}

/* Two products, an attention and two norms a step; two calls, of which a late rank makes one long. */
static void fill(struct record_point *p)
{
    for (int step = 0; step < STEPS; step++)
        for (int rank = 0; rank < RANKS; rank++) {
            add_op(p, step, rank, "gemm", 4e9, 40000);
            add_op(p, step, rank, "attention", 0, 100000);
            add_op(p, step, rank, "norm", 0, 9000 + 1000 * step);
            add_op(p, step, rank, "gemm", 6e9, 60000);
            add_op(p, step, rank, "norm", 0, 9000 + 1000 * step);
            add_op(p, step, rank, "input", 0, 5);
            add_call(p, step, rank, 0, 1000, rank == 0 ? 90000 : 20000);
            add_call(p, step, rank, 1, 4000, 50000);
        }
}

static const struct floor_row *find(const struct floor_row *rows, int n, const char *kind)
{
    for (int i = 0; i < n; i++)
        if (strcmp(rows[i].kind, kind) == 0)
            return &rows[i];
    return NULL;
}

static void test_floors(const struct record_point *p)
{
    const struct ceiling_row ceilings[] = {
        ceiling("peak", "gemm 8192^3, the fastest", 0, 0, 2e12, 2000), /* 1e15 FLOP/s */
        ceiling("copy", "within the device, read and written", 0, 4e6, 0, 1),
        ceiling("copy", "to pinned host memory", 0, 4e9, 0, 1), /* not that one */
        ceiling("attention", "16 x 1024", 1, 5e6, 1e9, 80),
        ceiling("norm", "a", 1, 8e6, 0, 5),
        ceiling("norm", "b", 1, 12e6, 0, 6),
        call(1000, RANKS, 10),
        call(16000, RANKS, 40),
        call(1000, 4, 1),
    };
    struct floor_row rows[FLOORS_MOST];
    int n = floors_of_point(rows, p, ceilings, sizeof ceilings / sizeof *ceilings, 5e14);
    CHECK_EQ(n, 4); /* input is no work of the device's */
    CHECK_EQ(find(rows, n, "gemm")->n, 2);
    CHECK_NEAR(find(rows, n, "gemm")->ms, 0.1, 1e-12);
    CHECK_NEAR(find(rows, n, "gemm")->floor_ms, 0.01, 1e-12);
    CHECK(isnan(find(rows, n, "gemm")->alone_ms)); /* no product was calibrated */
    CHECK_HAS(find(rows, n, "gemm")->source, "1000 TFLOP/s, calibrated GEMM");
    CHECK_NEAR(find(rows, n, "attention")->floor_ms, 0.08, 1e-12);
    CHECK_HAS(find(rows, n, "attention")->source, "alone");
    CHECK_NEAR(find(rows, n, "norm")->ms, 0.02, 1e-12); /* the median step */
    CHECK_NEAR(find(rows, n, "norm")->alone_ms, 0.011, 1e-12);
    CHECK_NEAR(find(rows, n, "norm")->floor_ms, 20e6 / 4e12 * 1e3, 1e-12);
    CHECK_HAS(find(rows, n, "norm")->source, "bytes at 4000 GB/s, calibrated copy");
    CHECK_NEAR(find(rows, n, "all-reduce")->ms, 0.07, 1e-12); /* 20 and 50 us: no waiting */
    CHECK_NEAR(find(rows, n, "all-reduce")->floor_ms, (10 + 20) / 1e3, 1e-9);
    CHECK_HAS(find(rows, n, "all-reduce")->source, "of 2 ranks");
}

static void test_unknown(const struct record_point *p)
{
    const struct ceiling_row other[] = {ceiling("norm", "a", 7, 8e6, 0, 5), call(1000, 4, 1)};
    struct floor_row rows[FLOORS_MOST];
    int n = floors_of_point(rows, p, other, 2, 5e14);
    CHECK_NEAR(find(rows, n, "gemm")->floor_ms, 0.02, 1e-12); /* the study's own peak */
    CHECK_HAS(find(rows, n, "gemm")->source, "500 TFLOP/s, the study's peak");
    CHECK(isnan(find(rows, n, "norm")->floor_ms));
    CHECK_HAS(find(rows, n, "norm")->source, "7 a step were calibrated");
    CHECK(isnan(find(rows, n, "all-reduce")->floor_ms));
    CHECK_HAS(find(rows, n, "all-reduce")->source, "none of 2 ranks calibrated");
    const struct ceiling_row smaller[] = {ceiling("gemm", "a", 2, 0, 2.5e9, 3),
                                          ceiling("attention", "b", 1, 0, 1e9, 40)};
    n = floors_of_point(rows, p, smaller, 2, 5e14);
    CHECK(isnan(find(rows, n, "attention")->floor_ms)); /* half the FLOPs of products */
    CHECK(isnan(find(rows, n, "gemm")->alone_ms));
    CHECK_HAS(find(rows, n, "attention")->source, "other work was calibrated");
    const struct ceiling_row equal[] = {ceiling("gemm", "a", 2, 0, 5e9, 30),
                                        ceiling("attention", "b", 1, 0, 1e9, 40)};
    n = floors_of_point(rows, p, equal, 2, 5e14);
    CHECK_NEAR(find(rows, n, "attention")->floor_ms, 0.04, 1e-12);
    CHECK_NEAR(find(rows, n, "gemm")->alone_ms, 0.06, 1e-12);
    n = floors_of_point(rows, p, NULL, 0, (double)NAN);
    CHECK(isnan(find(rows, n, "gemm")->floor_ms));
}

/* A product of the step may be faster than the large one, and another type's large one is none of its. */
static void test_fastest(const struct record_point *p)
{
    struct ceiling_row ceilings[] = {ceiling("peak", "gemm 8192^3, the fastest", 0, 0, 2e12, 2000),
                                     ceiling("peak", "gemm 8192^3, the fastest", 0, 0, 2e12, 200),
                                     ceiling("gemm", "a", 1, 0, 4e9, 5),
                                     ceiling("gemm", "b", 1, 0, 6e9, 4)};
    static const char *const dtype[] = {"fp32", "bf16", "fp32", "fp32"};
    struct floor_row rows[FLOORS_MOST];
    for (int i = 0; i < 4; i++)
        strcpy(ceilings[i].dtype, dtype[i]);
    int n = floors_of_point(rows, p, ceilings, 4, 5e14);
    CHECK_NEAR(find(rows, n, "gemm")->floor_ms, 10e9 / 1.5e15 * 1e3, 1e-12);
    CHECK(find(rows, n, "gemm")->floor_ms <= find(rows, n, "gemm")->alone_ms);
    ceilings[3].least_us = 40; /* now the large one of their type */
    n = floors_of_point(rows, p, ceilings, 4, 5e14);
    CHECK_NEAR(find(rows, n, "gemm")->floor_ms, 0.01, 1e-12);
}

/* What another op moved is in no floor of its own: half a norm here, then more than there is. */
static void test_elsewhere(struct record_point *p)
{
    const struct ceiling_row ceilings[] = {ceiling("copy", "within the device", 0, 4e6, 0, 1),
                                           ceiling("norm", "a", 1, 8e6, 0, 5),
                                           ceiling("norm", "b", 1, 12e6, 0, 6)};
    struct floor_row rows[FLOORS_MOST];
    static const double each[] = {5e6, 50e6};
    for (int k = 0; k < 2; k++) {
        for (int64_t i = 0; i < p->ops.n; i++)
            p->ops.rows[i].elsewhere_bytes = strcmp(p->ops.rows[i].kind, "norm") == 0 ? each[k] : 0;
        int n = floors_of_point(rows, p, ceilings, 3, 5e14);
        CHECK_NEAR(find(rows, n, "norm")->floor_ms, k == 0 ? 10e6 / 4e12 * 1e3 : 0, 1e-12);
        CHECK_NEAR(find(rows, n, "norm")->alone_ms, k == 0 ? 0.0055 : 0, 1e-12);
        CHECK_HAS(find(rows, n, "norm")->source,
                  k == 0 ? "bytes at 4000 GB/s, and 0.01 GB by other ops" : "0.1 GB by other ops");
    }
}

/* Beyond the largest size its rate, below the smallest its time. */
static void test_sizes(void)
{
    const struct ceiling_row ceilings[] = {call(1000, RANKS, 10), call(2000, RANKS, 12)};
    struct record_point p = {0};
    struct floor_row rows[FLOORS_MOST];
    add_call(&p, 0, 0, 0, 10, 1);
    CHECK_EQ(floors_of_point(rows, &p, ceilings, 2, 1), 1);
    CHECK_NEAR(rows[0].floor_ms, 0.010, 1e-12);
    p.collectives.rows[0].bytes = 8000;
    floors_of_point(rows, &p, ceilings, 2, 1);
    CHECK_NEAR(rows[0].floor_ms, 0.048, 1e-12);
    p.collectives.rows[0].bytes = 2000;
    floors_of_point(rows, &p, ceilings, 2, 1);
    CHECK_NEAR(rows[0].floor_ms, 0.012, 1e-12);
    record_point_release(&p);
}

int main(void)
{
    struct record_point point = {0};
    fill(&point);
    test_floors(&point);
    test_unknown(&point);
    test_fastest(&point);
    test_elsewhere(&point);
    test_sizes();
    test_other_group();
    record_point_release(&point);
    return test_end();
}
