/* What is found of this job agrees with what the system and the launcher say, on every rank. */
#include "topologies/discover.h"

#include <stdlib.h>
#include <unistd.h>

#include <mpi.h>

#include "base/err.h"
#include "base/units.h"
#include "tests/test.h"

static int rank, size;

static long long memory_bytes(void)
{
    long long kib = 0;
    FILE *file = fopen("/proc/meminfo", "r");
    if (file == NULL || fscanf(file, "MemTotal: %lld kB", &kib) != 1)
        die(FAIL_INTERNAL, "no /proc/meminfo");
    fclose(file);
    return kib * 1024;
}

static void test_job(const struct discover *found)
{
    char name[DISCOVER_NAME] = "";
    gethostname(name, sizeof name - 1);
    CHECK_EQ(found->world, size);
    CHECK_EQ(found->n_hosts, 1); /* this test runs on one host */
    CHECK_EQ(found->hosts[0].ranks, size);
    CHECK(strcmp(found->hosts[0].name, name) == 0);
    CHECK_EQ(found->hosts[0].cpus, sysconf(_SC_NPROCESSORS_ONLN));
    CHECK(found->hosts[0].cores >= 1 && found->hosts[0].cores <= found->hosts[0].cpus);
    CHECK_EQ(found->hosts[0].memory_bytes, memory_bytes());
    CHECK_EQ(found->launcher_world, size);
    CHECK_EQ(found->launcher_rank, rank);
    CHECK(found->launcher[0] != '\0');
}

/* Started with --bind-to none: every rank may use every core, so more ranks than cores are crowded. */
static void test_ranks(const struct discover *found)
{
    for (int r = 0; r < size; r++) {
        const struct discover_rank *each = &found->ranks[r];
        CHECK_EQ(each->host, 0);
        CHECK_EQ(each->local, r);
        CHECK(each->n_cpus >= each->n_cores && each->n_cores >= 1);
        CHECK(each->cpus[0] >= '0' && each->cpus[0] <= '9');
        CHECK_EQ(each->oversubscribed, size > each->n_cores);
    }
}

/* Every rank has the same tables, apart from its own place. */
static void test_same_everywhere(const struct discover *found)
{
    size_t bytes = (size_t)size * sizeof *found->ranks;
    struct discover_rank *first = must_alloc(1, bytes);
    memcpy(first, found->ranks, bytes);
    MPI_Bcast(first, (int)bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
    CHECK(memcmp(first, found->ranks, bytes) == 0);
    free(first);
}

static void test_check(const struct discover *found)
{
    bool emulated = true;
    char words[64];
    CHECK_EQ(discover_check(found, 1, size, &emulated), 0);
    CHECK(!emulated);
    CHECK_EQ(discover_check(found, size, 1, &emulated), 0);
    CHECK(emulated == (size > 1));
    fail_clear();
    CHECK_EQ(discover_check(found, 2, 8, &emulated), FAIL_USAGE);
    snprintf(words, sizeof words, "layout: 2x8 asks for 16 ranks but this job has %d:", size);
    CHECK_HAS(fail_message(), words);
    snprintf(words, sizeof words, "--layout 1x%d", size);
    CHECK_HAS(fail_message(), words);
    fail_clear();
}

int main(int argc, char **argv)
{
    struct discover found;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int64_t start_ns = units_now_ns();
    if (CHECK_EQ(discover_job(&found), 0)) {
        if (rank == 0)
            printf("discovered %d ranks, %d cores (%s) in %.1f ms\n", size, found.hosts[0].cores,
                   found.hosts[0].model, 1e-6 * (double)(units_now_ns() - start_ns));
        test_job(&found);
        test_ranks(&found);
        test_same_everywhere(&found);
        test_check(&found);
    }
    discover_release(&found);
    CHECK(found.hosts == NULL && found.ranks == NULL);
    discover_release(&found);
    MPI_Finalize();
    return test_end();
}
