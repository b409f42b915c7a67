/* Hosts whose clocks differ by a second and drift by 50 ppm get one time line; one host has offset 0. */
#include "driver/clock.h"

#include <stdlib.h>

#include <mpi.h>

#include "base/err.h"
#include "base/units.h"
#include "driver/agree.h"
#include "tests/test.h"

static const MPI_Comm world = MPI_COMM_WORLD;
static int rank, size, hosts, host;
static int64_t origin_ns; /* true time at which all clocks of the test stood at their offsets */

/* The clock of this rank's host: host k is k seconds ahead and 50 k ppm fast; host 0 tells the truth. */
static int64_t local_of(int64_t true_ns)
{
    return true_ns + host * 1000000000LL + (true_ns - origin_ns) * host / 20000;
}

static int64_t local_now_ns(void)
{
    return local_of(units_now_ns());
}

static void test_one_host(void)
{
    struct clock_fit fit;
    memset(&fit, 1, sizeof fit);
    CHECK_EQ(clock_measure(&fit, 0, &world), 0);
    CHECK_EQ(clock_measure(&fit, 1, &world), 0);
    CHECK_EQ(fit.offset_ns[0], 0);
    CHECK_EQ(fit.offset_ns[1], 0);
    CHECK_EQ(fit.error_ns, 0);
    CHECK(fit.at_ns[0] > 0 && fit.at_ns[1] >= fit.at_ns[0]);
    CHECK_EQ(clock_global_ns(&fit, 123456789), 123456789);
}

/* True minus fitted, at a true time. */
static int64_t wrong_by(const struct clock_fit *fit, int64_t true_ns)
{
    int64_t wrong_ns = clock_global_ns(fit, local_of(true_ns)) - true_ns;
    return wrong_ns < 0 ? -wrong_ns : wrong_ns;
}

/* The ranks dealt out to `hosts` hosts in turn. */
static void test_recovery(void)
{
    struct clock_fit fit;
    host = rank % hosts;
    origin_ns = units_now_ns();
    CHECK_EQ(agree_broadcast(&origin_ns, sizeof origin_ns, 0, &world), 0);
    CHECK_EQ(clock_measure_by(&fit, 0, &world, host, local_now_ns), 0);
    int64_t before_ns = units_now_ns();
    CHECK(wrong_by(&fit, before_ns) <= 50000 + 1000000); /* one offset: a drift of 50 ppm is left */
    units_sleep_ns(100000000);
    CHECK_EQ(clock_measure_by(&fit, 1, &world, host, local_now_ns), 0);
    int64_t after_ns = units_now_ns(), worst_ns = 0;
    for (int i = 0; i <= 10; i++) {
        int64_t at_ns = wrong_by(&fit, before_ns + (after_ns - before_ns) / 10 * i);
        worst_ns = at_ns > worst_ns ? at_ns : worst_ns;
    }
    CHECK(worst_ns <= 50000);
    CHECK(worst_ns <= fit.error_ns + 100); /* the error says how wrong it may be */
    CHECK((fit.error_ns == 0) == (host == 0));
    CHECK((fit.offset_ns[0] == 0) == (host == 0));
    if (host == 0)
        CHECK_EQ(worst_ns, 0);
    if (rank < hosts && host > 0)
        printf("host %d of %d: wrong by %.2f us at most, error said %.2f us\n", host, hosts,
               1e-3 * (double)worst_ns, 1e-3 * (double)fit.error_ns);
}

/* All ranks of a host get the very fit of its first rank. */
static void test_shared_fit(void)
{
    struct clock_fit fit, first;
    host = rank % hosts;
    CHECK_EQ(clock_measure_by(&fit, 0, &world, host, local_now_ns), 0);
    MPI_Comm of_host;
    MPI_Comm_split(world, host, rank, &of_host);
    first = fit;
    CHECK_EQ(agree_broadcast(&first, sizeof first, 0, &of_host), 0);
    CHECK(host == 0 || (first.at_ns[0] == fit.at_ns[0] && first.offset_ns[0] == fit.offset_ns[0] &&
                        first.error_ns == fit.error_ns));
    MPI_Comm_free(&of_host);
}

/* The line between two measurements, and its ends. */
static void test_line(void)
{
    struct clock_fit fit = {.at_ns = {1000, 2000}, .offset_ns = {100, 300}};
    CHECK_EQ(clock_global_ns(&fit, 1000), 1100);
    CHECK_EQ(clock_global_ns(&fit, 1500), 1700);
    CHECK_EQ(clock_global_ns(&fit, 2000), 2300);
    CHECK_EQ(clock_global_ns(&fit, 2500), 2900);
    fit.at_ns[1] = 0;
    CHECK_EQ(clock_global_ns(&fit, 5000), 5100);
    /* An offset of ten years keeps its nanoseconds. */
    fit = (struct clock_fit){.at_ns = {1000, 2001000},
                             .offset_ns = {315360000000000001, 315360000000000101}};
    CHECK_EQ(clock_global_ns(&fit, 1001000), 315360000000000051 + 1001000);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(world, &rank);
    MPI_Comm_size(world, &size);
    test_line();
    test_one_host();
    for (hosts = 1; hosts <= size; hosts += 1 + (size > 4)) {
        test_recovery();
        test_shared_fit();
    }
    MPI_Finalize();
    return test_end();
}
