/*
 * How much of an all-reduce disappears behind arithmetic: 1 - (t_both - t_compute) / t_pure, not
 * clipped, for three ways to drive it: posted and then waited for ("plain"), with an MPI_Test after
 * every tile of arithmetic ("test"), and through the "cpu" device and its progress thread
 * ("thread"). The arithmetic is dgemm on 96 x 96 tiles, as long as the all-reduce takes alone;
 * t_pure is the same non-blocking operation, waited for at once. All variants alternate within each
 * round of one launch; times are the slowest rank's, medians over rounds; the A/A ratio compares
 * t_both of odd and of even rounds.
 *
 *   mpirun -np 2 bench_overlap [ROUNDS [MiB...]]        default: 15 rounds of 1, 4 and 16 MiB
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cblas.h>
#include <mpi.h>

#include "base/err.h"
#include "base/rng.h"
#include "base/units.h"
#include "collectives/comm.h"

enum { TILE = 96, CALIBRATION_RUNS = 5, MAX_ROUNDS = 200, MIB = 1 << 20 };

#define RUN_LIST(X)                                                                                \
    X(COMPUTE)                                                                                     \
    X(PURE_MPI)                                                                                    \
    X(PURE_COMM)                                                                                   \
    X(PLAIN)                                                                                       \
    X(TEST)                                                                                        \
    X(THREAD)
enum run {
#define RUN_ENUM(name) RUN_##name,
    RUN_LIST(RUN_ENUM)
#undef RUN_ENUM
        RUNS
};

struct bench {
    struct device device;
    struct comm comm;
    MPI_Comm world;
    int n_ranks, rank;
    int count;         /* floats of the all-reduce */
    float *from, *to;  /* [count] */
    double *a, *b, *c; /* [TILE][TILE] */
    long n_tiles;
};

static void tile(struct bench *bench)
{
    cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, TILE, TILE, TILE, 1.0, bench->a, TILE,
                bench->b, TILE, 0.0, bench->c, TILE);
}

static void compute(struct bench *bench)
{
    for (long i = 0; i < bench->n_tiles; i++)
        tile(bench);
}

static void with_mpi(struct bench *bench, bool computes, bool tests)
{
    MPI_Request request;
    int done = 0;

    MPI_Iallreduce(bench->from, bench->to, bench->count, MPI_FLOAT, MPI_SUM, bench->world,
                   &request);
    for (long i = 0; computes && i < bench->n_tiles; i++) {
        tile(bench);
        if (tests && !done)
            MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void with_comm(struct bench *bench, bool computes)
{
    const struct device_type *type = bench->device.type;
    struct comm_call call = {
        .coll = {.kind = COLL_ALL_REDUCE, .dtype = DTYPE_F32, .count = bench->count, .peer = -1},
        .send = bench->from,
        .recv = bench->to};

    comm_post(&bench->comm, &call, 1);
    type->stamp(&bench->device, bench->comm.stream, 0);
    if (computes)
        compute(bench);
    type->await(&bench->device, DEVICE_COMPUTE, 0);
}

static void run(struct bench *bench, enum run which)
{
    if (which == RUN_COMPUTE)
        compute(bench);
    else if (which == RUN_PURE_MPI)
        with_mpi(bench, false, false);
    else if (which == RUN_PLAIN)
        with_mpi(bench, true, false);
    else if (which == RUN_TEST)
        with_mpi(bench, true, true);
    else
        with_comm(bench, which == RUN_THREAD);
}

/* Milliseconds from a barrier to the end on the slowest rank. */
static double time_ms(struct bench *bench, enum run which)
{
    int64_t begin;
    double ms, slowest;

    MPI_Barrier(bench->world);
    begin = units_now_ns();
    run(bench, which);
    ms = (double)(units_now_ns() - begin) / 1e6;
    bench->device.type->sync(&bench->device); /* MPI is this thread's again */
    MPI_Allreduce(&ms, &slowest, 1, MPI_DOUBLE, MPI_MAX, bench->world);
    return slowest;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Median of every step-th value from first on. */
static double median(const double *value, int n, int first, int step)
{
    double sorted[MAX_ROUNDS];
    int m = 0;

    for (int i = first; i < n; i += step)
        sorted[m++] = value[i];
    qsort(sorted, (size_t)m, sizeof *sorted, ascending);
    return m == 0 ? NAN : m % 2 ? sorted[m / 2] : (sorted[m / 2 - 1] + sorted[m / 2]) / 2;
}

static double median_of_runs(struct bench *bench, enum run which)
{
    double ms[CALIBRATION_RUNS];

    for (int i = 0; i < CALIBRATION_RUNS; i++)
        ms[i] = time_ms(bench, which);
    return median(ms, CALIBRATION_RUNS, 0, 1);
}

/* As many tiles as take t_pure; calibrated over their full number, since short loops mislead. */
static void calibrate(struct bench *bench)
{
    double pure_ms = median_of_runs(bench, RUN_PURE_COMM);

    bench->n_tiles = 100;
    for (int i = 0; i < 3; i++)
        bench->n_tiles =
            1 + (long)((double)bench->n_tiles * pure_ms / median_of_runs(bench, RUN_COMPUTE));
}

static void print_row(const struct bench *bench, const char *name, double ms[RUNS][MAX_ROUNDS],
                      enum run both, enum run pure, int rounds)
{
    double t_both = median(ms[both], rounds, 0, 1), t_pure = median(ms[pure], rounds, 0, 1);
    double t_compute = median(ms[RUN_COMPUTE], rounds, 0, 1);

    if (bench->rank == 0)
        printf("%5.0f  %-7s %9.3f %12.3f %10.3f %8.3f %8.3f %8.3f\n", bench->count * 4.0 / MIB,
               name, t_pure, t_compute, t_both, 1 - (t_both - t_compute) / t_pure,
               fmin(1, t_compute / t_pure),
               median(ms[both], rounds, 0, 2) / median(ms[both], rounds, 1, 2));
}

static void measure(struct bench *bench, int rounds)
{
    static double ms[RUNS][MAX_ROUNDS];

    calibrate(bench);
    for (int round = 0; round < rounds; round++)
        for (int i = 0; i < RUNS; i++) { /* each round starts elsewhere */
            int which = (i + round) % RUNS;
            ms[which][round] = time_ms(bench, (enum run)which);
        }
    print_row(bench, "plain", ms, RUN_PLAIN, RUN_PURE_MPI, rounds);
    print_row(bench, "test", ms, RUN_TEST, RUN_PURE_MPI, rounds);
    print_row(bench, "thread", ms, RUN_THREAD, RUN_PURE_COMM, rounds);
    fflush(stdout);
}

static void take_memory(struct bench *bench, int mib)
{
    bench->count = mib * (MIB / (int)sizeof(float));
    bench->from = must_alloc((size_t)bench->count, sizeof(float));
    bench->to = must_alloc((size_t)bench->count, sizeof(float));
    rng_fill_normal(bench->from, bench->count, (uint64_t)bench->rank + 1, 0, 1.0f);
}

static void take_tiles(struct bench *bench)
{
    bench->a = must_alloc(TILE * TILE * 3, sizeof(double));
    bench->b = bench->a + TILE * TILE;
    bench->c = bench->b + TILE * TILE;
    for (int i = 0; i < 2 * TILE * TILE; i++)
        bench->a[i] = rng_uniform(7, (uint64_t)i);
}

static int open_bench(struct bench *bench)
{
    struct group group = {0, 1, 0, 0};
    int rc;

    MPI_Comm_dup(MPI_COMM_WORLD, &bench->world);
    MPI_Comm_size(bench->world, &bench->n_ranks);
    MPI_Comm_rank(bench->world, &bench->rank);
    group.size = bench->n_ranks;
    group.me = bench->rank;
    take_tiles(bench);
    TRY(device_open(&bench->device, &device_cpu, 0, 2));
    TRY(bench->device.type->reserve(&bench->device, 1, 8));
    TRY(comm_open(&bench->comm, &comm_mpi, &bench->world, &bench->device, 1, AXIS_DP, &group, 2));
out:
    return rc;
}

int main(int argc, char **argv)
{
    static const char *const preset[] = {"1", "4", "16"};
    struct bench bench = {0};
    int level, n_sizes = argc > 2 ? argc - 2 : 3;
    int rounds = argc > 1 ? atoi(argv[1]) : 15;

    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level);
    if (rounds < 2 || rounds > MAX_ROUNDS)
        die(FAIL_USAGE, "bench_overlap: 2 to %d rounds", MAX_ROUNDS);
    if (open_bench(&bench) != 0)
        die(FAIL_INTERNAL, "%s", fail_message());
    if (bench.rank == 0)
        printf("# fp32 all-reduce beside dgemm %d^3 tiles, %d ranks, medians of %d rounds\n"
               "# overlap = 1 - (t_both - t_compute) / t_pure; bound = min(1, t_compute / t_pure): "
               "all that "
               "can hide; A/A = t_both of odd / even rounds\n"
               "# MiB  variant t_pure_ms t_compute_ms  t_both_ms  overlap    bound      A/A\n",
               TILE, bench.n_ranks, rounds);
    for (int i = 0; i < n_sizes; i++) {
        take_memory(&bench, atoi(argc > 2 ? argv[2 + i] : preset[i]));
        measure(&bench, rounds);
        free(bench.from);
        free(bench.to);
    }
    comm_close(&bench.comm);
    device_close(&bench.device);
    free(bench.a);
    MPI_Comm_free(&bench.world);
    MPI_Finalize();
    return 0;
}
