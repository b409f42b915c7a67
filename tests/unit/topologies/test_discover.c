/* Jobs that are not what was asked for are refused in words; crowding is what Hall's theorem says. */
#include "topologies/discover.h"

#include <stdlib.h>

#include "base/err.h"
#include "base/rng.h"
#include "tests/test.h"
#include "topologies/affinity.h"
#include "topologies/host.h"
#include "topologies/launcher.h"

/* A job with these ranks on these hosts: "aabb" is two on host a, then two on host b. */
static void make_job(struct discover *job, const char *hosts)
{
    memset(job, 0, sizeof *job);
    job->world = (int)strlen(hosts);
    job->ranks = must_alloc((size_t)job->world, sizeof *job->ranks);
    job->hosts = must_alloc((size_t)job->world, sizeof *job->hosts);
    for (int rank = 0; rank < job->world; rank++) {
        int host = 0;
        while (host < job->n_hosts && job->hosts[host].name[0] != hosts[rank])
            host++;
        if (host == job->n_hosts)
            job->hosts[job->n_hosts++].name[0] = hosts[rank];
        job->ranks[rank].host = host;
        job->ranks[rank].local = job->hosts[host].ranks++;
    }
}

struct asked {
    const char *hosts;
    int nodes, ranks_per_node;
    bool emulated;
    const char *words; /* NULL: accepted */
};

static const struct asked cases[] = {
    {"a", 1, 1, false, NULL},
    {"aaaa", 1, 4, false, NULL},
    {"aaaa", 2, 2, true, NULL},
    {"aaaa", 4, 1, true, NULL},
    {"aabb", 2, 2, false, NULL},
    {"aabbcc", 3, 2, false, NULL},
    {"aabb", 4, 1, true, NULL},
    {"aaab", 4, 1, true, NULL},
    {"abab", 4, 1, true, NULL}, /* nodes of one rank are within a host wherever they are */
    {"aaaa", 2, 8, false,
     "layout: 2x8 asks for 16 ranks but this job has 4: start it with 16 ranks, or say --layout "
     "1x4"},
    {"aaaa", 1, 2, false, "1x2 asks for 2 ranks but this job has 4"},
    {"aabb", 2, 4, false, "or say --layout 2x2"},
    {"aaab", 2, 4, false, "2x4 asks for 8 ranks but this job has 4: start it with 8 ranks"},
    {"aaaa", 50000, 50000, false, "50000x50000 asks for 2500000000 ranks but this job has 4"},
    {"abab", 2, 2, false,
     "layout: 2x2 puts ranks 0 to 1 on node 0, but rank 0 is on host a and rank 1 on host b: let "
     "the "
     "launcher fill one host after the other (mpirun --map-by ppr:2:node"},
    {"aabcbc", 3, 2, false, "ranks 2 to 3 on node 1, but rank 2 is on host b and rank 3 on host c"},
    {"aaab", 2, 2, false,
     "layout: 2x2 wants 2 ranks on every node, but host a has 3 and host b has 1: start as many on "
     "each, for example with --map-by ppr:2:node"},
    {"aaabbb", 1, 6, false,
     "layout: 1x6 wants 6 ranks on every node, but each of the 2 hosts has 3: say --layout 2x3, or "
     "start the job on 1 hosts"},
    {"aaaabb", 3, 2, true, NULL},
};

static void test_check(void)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct asked *asked = &cases[i];
        struct discover job;
        bool emulated;
        fail_clear();
        make_job(&job, asked->hosts);
        CHECK_EQ(discover_check(&job, asked->nodes, asked->ranks_per_node, &emulated),
                 asked->words == NULL ? 0 : FAIL_USAGE);
        CHECK_EQ(emulated, asked->emulated);
        CHECK_HAS(fail_message(), asked->words == NULL ? "" : asked->words);
        discover_release(&job);
    }
}

static void test_singletons(void)
{
    struct discover job;
    bool emulated;
    fail_clear();
    make_job(&job, "a");
    snprintf(job.launcher, sizeof job.launcher, "srun");
    job.launcher_world = 1;
    CHECK_EQ(discover_check(&job, 1, 1, &emulated), 0);
    job.launcher_world = 8;
    CHECK_EQ(discover_check(&job, 1, 1, &emulated), FAIL_USAGE);
    CHECK_HAS(fail_message(),
              "launch: srun started 8 ranks, but each sees an MPI job of 1, so these "
              "are 8 separate runs");
    discover_release(&job);
    fail_clear();
}

/* Ranks by (shares memory with, name, identity), and the hosts they are on. */
static void test_hosts(void)
{
    static const struct host_mark marks[] =
        {
            {0, "a", "boot1 ns1"}, {0, "a", "boot1 ns1"},
            {2, "b", "boot2 ns1"}, {0, "a", "boot1 ns1"},
            {4, "a", "boot1 ns2"}, /* a container of the same name on the same machine */
            {5, "a", "boot3 ns1"}, /* and on another */
            {6, "b", "boot2 ns1"}, /* a host that the library splits */
            {6, "b", "boot2 ns1"}, {0, "c", "boot1 ns3"}, /* shares memory, under another name */
            {0, "c", "boot1 ns3"}, {10, "d", ""},
            {11, "d", ""}, /* the system does not tell: the library is believed */
            {10, "d", ""},
        };
    static const int wanted[] = {0, 0, 2, 0, 4, 5, 2, 2, 8, 8, 10, 11, 10};
    enum { RANKS = sizeof wanted / sizeof *wanted };
    int hosts[RANKS];
    host_group(marks, RANKS, hosts);
    for (int rank = 0; rank < RANKS; rank++)
        CHECK_EQ(hosts[rank], wanted[rank]);

    struct host_mark here = {.first = 3}, again = {.first = 3};
    host_find(&here);
    host_find(&again);
    CHECK_EQ(here.first, 3);
    CHECK(here.name[0] != '\0' && strcmp(here.identity, again.identity) == 0);
}

static void forget_environment(void)
{
    static const char *const names[] = {
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_RANK",
        "MV2_COMM_WORLD_SIZE",
        "MV2_COMM_WORLD_RANK",
        "FLUX_JOB_SIZE",
        "FLUX_TASK_RANK",
        "JSM_NAMESPACE_SIZE",
        "JSM_NAMESPACE_RANK",
        "SLURM_STEP_NUM_TASKS",
        "SLURM_NTASKS",
        "SLURM_PROCID",
        "PMI_SIZE",
        "PMI_RANK",
        "PMIX_RANK",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
}

static void launcher_is(const char *name, int world, int rank)
{
    struct launcher launcher = launcher_find();
    CHECK(strcmp(launcher.name, name) == 0);
    CHECK_EQ(launcher.world, world);
    CHECK_EQ(launcher.rank, rank);
}

static void test_launcher(void)
{
    forget_environment();
    launcher_is("", 0, -1);
    setenv("SLURM_PROCID", "0", 1);
    setenv("SLURM_NTASKS", "8", 1);
    launcher_is("", 0, -1); /* a batch script: one process of a job of 8 tasks */
    setenv("SLURM_STEP_NUM_TASKS", "8", 1);
    setenv("SLURM_PROCID", "3", 1);
    launcher_is("srun", 8, 3);
    setenv("OMPI_COMM_WORLD_SIZE", "4", 1);
    setenv("OMPI_COMM_WORLD_RANK", "2", 1);
    launcher_is("mpirun (Open MPI)", 4, 2); /* mpirun whose daemons srun started */

    forget_environment();
    setenv("PMI_SIZE", "16", 1);
    launcher_is("", 0, -1); /* no rank: left over from elsewhere */
    setenv("PMI_RANK", "15", 1);
    launcher_is("mpiexec (PMI)", 16, 15);
    setenv("PMI_SIZE", "15", 1);
    launcher_is("", 0, -1);
    setenv("PMI_SIZE", "many", 1);
    launcher_is("", 0, -1);
    setenv("PMIX_RANK", "1", 1);
    launcher_is("PMIx", 0, 1);
    forget_environment();
}

/* The most of these ranks that can have a core each, by Hall's theorem over all sets of them. */
static int most_placed(const char *may_use, unsigned ranks, int n_ranks, int n_cores)
{
    int most = n_ranks, all = 0;
    for (int rank = 0; rank < n_ranks; rank++)
        all += (ranks >> rank & 1) != 0;
    for (unsigned set = ranks;; set = (set - 1) & ranks) {
        int members = 0, cores = 0;
        for (int rank = 0; rank < n_ranks; rank++)
            members += (set >> rank & 1) != 0;
        for (int core = 0; core < n_cores; core++) {
            bool used = false;
            for (int rank = 0; rank < n_ranks; rank++)
                used = used || ((set >> rank & 1) != 0 && may_use[rank * n_cores + core]);
            cores += used;
        }
        most = all - members + cores < most ? all - members + cores : most;
        if (set == 0)
            return most;
    }
}

static void test_crowded(void)
{
    static const struct {
        const char *may_use, *crowded; /* rows of 4 cores */
        int n_ranks;
    } table[] = {
        {"1111"
         "1111"
         "1111"
         "1111",
         "0000", 4}, /* unbound, as many as cores */
        {"1111"
         "1111"
         "1111"
         "1111"
         "1111",
         "11111", 5}, /* unbound, one more */
        {"1000"
         "0100"
         "0010"
         "0001",
         "0000", 4}, /* bound to a core each */
        {"1000"
         "1000"
         "0010",
         "110", 3}, /* two on one core */
        {"1111"
         "1000"
         "1000",
         "011", 3}, /* the free one has room */
        {"1100"
         "1100"
         "1100"
         "0011",
         "1110", 4}, /* three on a pair */
        {"1100"
         "0110"
         "0011"
         "1001",
         "0000", 4}, /* overlapping, but enough */
        {"1100"
         "0110"
         "1100"
         "0110"
         "0001",
         "11110", 5}, /* four on three */
        {"0000"
         "1000",
         "00", 2}, /* nothing known of the first */
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        char may_use[32];
        int crowded[8];
        for (int j = 0; j < table[i].n_ranks * 4; j++)
            may_use[j] = (char)(table[i].may_use[j] == '1');
        affinity_crowded(may_use, table[i].n_ranks, 4, crowded);
        for (int rank = 0; rank < table[i].n_ranks; rank++)
            CHECK_EQ(crowded[rank], table[i].crowded[rank] == '1');
    }
}

/* Random small hosts: crowded is who can be left out without more ranks getting a core. */
static void test_crowded_random(void)
{
    enum { RANKS = 6, CORES = 5, EVERY = (1 << RANKS) - 1 };
    int some = 0;
    for (uint64_t draw = 0; draw < 2000; draw++) {
        char may_use[RANKS * CORES];
        int crowded[RANKS];
        for (uint64_t j = 0; j < RANKS * CORES; j++)
            may_use[j] = (char)(rng_below(draw, j, 3) == 0);
        affinity_crowded(may_use, RANKS, CORES, crowded);
        int most = most_placed(may_use, EVERY, RANKS, CORES);
        for (int rank = 0; rank < RANKS; rank++) {
            bool known = memchr(may_use + rank * CORES, 1, CORES) != NULL;
            bool spare = most_placed(may_use, EVERY & ~(1u << rank), RANKS, CORES) == most;
            CHECK_EQ(crowded[rank], known && spare);
            some += crowded[rank];
        }
    }
    CHECK(some > 1000 && some < 11000);
}

static void test_affinity(void)
{
    struct affinity affinity;
    affinity_find(&affinity);
    CHECK(affinity.n_cpus >= 1 && affinity.n_cpus <= affinity.host_cpus);
    CHECK(affinity.n_cores >= 1 && affinity.n_cores <= affinity.host_cores);
    CHECK(affinity.memory_bytes > 1 << 20);
    int cores = 0;
    for (int i = 0; i < affinity.host_cores; i++)
        cores += affinity.may_use[i];
    CHECK_EQ(cores, affinity.n_cores);
    affinity_release(&affinity);
    CHECK(affinity.may_use == NULL);
}

int main(void)
{
    test_check();
    test_singletons();
    test_hosts();
    test_launcher();
    test_crowded();
    test_crowded_random();
    test_affinity();
    return test_end();
}
