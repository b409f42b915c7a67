/*
 * Hosts whose clocks differ by a second and drift by a hundredth get one time line, wrong by no more than
 * it says; of exchanges the one with the smallest round trip counts; one host has offset 0.
 */
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

/* The clock of this rank's host: host k is k seconds ahead and k hundredths fast; host 0 tells the truth. */
static int64_t local_of(int64_t true_ns)
{
    return true_ns + host * 1000000000LL + (true_ns - origin_ns) * host / 100;
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

/*
 * Each of two readings is wrong by no more than half its round trip, however long that took, and time runs
 * evenly between them: on the line through both, at share x of the way, wrong by (1 - x) of the one and x
 * of the other; behind the second one that grows. Some ns are rounded off.
 */
static double most_wrong(const struct clock_fit *fit, int64_t true_ns)
{
    double x =
        (double)(local_of(true_ns) - fit->at_ns[0]) / (double)(fit->at_ns[1] - fit->at_ns[0]);
    return (x > 1 ? 2 * x - 1 : 1) * ((double)fit->error_ns + 5);
}

/* The ranks dealt out to `hosts` hosts in turn. */
static void test_recovery(void)
{
    struct clock_fit fit;
    host = rank % hosts;
    origin_ns = units_now_ns();
    CHECK_EQ(agree_broadcast(&origin_ns, sizeof origin_ns, 0, &world), 0);
    CHECK_EQ(clock_measure_by(&fit, 0, &world, host, local_now_ns), 0);
    int64_t before_ns = units_now_ns(), since_ns = local_of(before_ns) - fit.at_ns[0];
    /* With one offset the drift since then is left. */
    CHECK(wrong_by(&fit, before_ns) <= fit.error_ns + 5 + since_ns * host / 100);
    units_sleep_ns(20000000);
    CHECK_EQ(clock_measure_by(&fit, 1, &world, host, local_now_ns), 0);
    int64_t after_ns = units_now_ns(), worst_ns = 0;
    for (int i = 0; i <= 10; i++) {
        int64_t at_ns = before_ns + (after_ns - before_ns) / 10 * i, wrong_ns;
        wrong_ns = wrong_by(&fit, at_ns);
        worst_ns = wrong_ns > worst_ns ? wrong_ns : worst_ns;
        CHECK(host == 0 || (double)wrong_ns <= most_wrong(&fit, at_ns));
    }
    CHECK((fit.error_ns == 0) == (host == 0));
    CHECK((fit.offset_ns[0] == 0) == (host == 0));
    if (host == 0)
        CHECK_EQ(worst_ns, 0);
    if (rank < hosts && host > 0)
        printf("host %d of %d: wrong by %.2f us at most, error said %.2f us\n", host, hosts,
               1e-3 * (double)worst_ns, 1e-3 * (double)fit.error_ns);
}

/* ---- clocks that say what the test wants: the i-th exchange is at i ms ---- */

enum { SHORTEST = 17, AHEAD_NS = 123456 };
static int64_t asked; /* how often this rank's clock was */
static int slower;

static int64_t half_ns(int64_t exchange)
{
    return (1000 + 10 * llabs(exchange - SHORTEST)) * slower;
}

/* Rank 0 looks once when it begins and once an exchange, late by half of what it may be. */
static int64_t served_ns(void)
{
    int64_t exchange = asked++ - 1;
    return exchange * 1000000 + half_ns(exchange) / 2;
}

/* The other host is ahead, and looks once when it begins, then before and behind each exchange. */
static int64_t asking_ns(void)
{
    int64_t exchange = (asked - 1) / 2, behind = (asked - 1) % 2;
    asked++;
    return exchange * 1000000 + AHEAD_NS + (behind ? 1 : -1) * half_ns(exchange);
}

/* All ranks but the first are another host. */
static void test_shortest_counts(void)
{
    struct clock_fit fit;
    for (int which = 0; which < 2; which++) {
        asked = 0;
        slower = 2 - which;
        CHECK_EQ(clock_measure_by(&fit, which, &world, rank > 0, rank > 0 ? asking_ns : served_ns),
                 0);
        CHECK(rank > 1 || asked > SHORTEST || size == 1);
        if (rank == 0)
            continue;
        CHECK_EQ(fit.at_ns[which], SHORTEST * 1000000 + AHEAD_NS);
        CHECK_EQ(fit.offset_ns[which], half_ns(SHORTEST) / 2 - AHEAD_NS);
        CHECK_EQ(fit.error_ns, 2000); /* the larger of both */
    }
    CHECK(rank > 0 || (fit.offset_ns[0] == 0 && fit.offset_ns[1] == 0 && fit.error_ns == 0));
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
    test_shortest_counts();
    for (hosts = 1; hosts <= size; hosts += 1 + (size > 4)) {
        test_recovery();
        test_shared_fit();
    }
    MPI_Finalize();
    return test_end();
}
