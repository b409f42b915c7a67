/* Ranks share out the cores near their devices: every core to one rank, shares as equal as can be, and
 * a process is really put there, unless it has been bound well already. */
#define _GNU_SOURCE /* sched_setaffinity */
#include "topologies/spread.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/test.h"

static void shares(void)
{
    for (int cores = 1; cores <= 20; cores++)
        for (int n = 1; n <= 8; n++) {
            int next = 0, least = cores, most = 0;
            for (int i = 0; i < n; i++) {
                int first, last;
                spread_share(cores, n, i, &first, &last);
                if (cores < n) {
                    CHECK(first == 0 && last == cores);
                    continue;
                }
                CHECK_EQ(first, next);
                next = last;
                least = last - first < least ? last - first : least;
                most = last - first > most ? last - first : most;
            }
            if (cores >= n)
                CHECK(next == cores && most - least <= 1 && least >= 1);
        }
}

static int cpus_now(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : -1;
}

/* In a child, since a mask stays: bound to one CPU, then spread over all that are near nothing. */
static void one_core_is_widened(void)
{
    char near[SPREAD_CPUS];
    spread_near("", near, sizeof near);
    CHECK(near[0] != '\0');
    pid_t child = fork();
    if (child == 0) {
        struct spread spread;
        cpu_set_t set, one;
        int all = cpus_now();
        size_t cpu = 0;
        test_failed = 0;
        CPU_ZERO(&set);
        CPU_ZERO(&one);
        sched_getaffinity(0, sizeof set, &set);
        while (!CPU_ISSET(cpu, &set))
            cpu++;
        CPU_SET(cpu, &one);
        CHECK_EQ(sched_setaffinity(0, sizeof one, &one), 0);
        CHECK_EQ(cpus_now(), 1);
        spread_process(near, 1, 0, &spread);
        CHECK_EQ(cpus_now(), spread.n_cpus);
        CHECK(spread.n_cpus >= all);
        CHECK(!spread.kept && spread.n_cores >= 1 && !spread.crowded);
        CHECK_EQ(atoi(spread.found), cpu);
        CHECK(strcmp(spread.used, near) == 0);
        spread_process(near, spread.n_cores + 1, 0, &spread);
        CHECK(spread.crowded);
        spread_process("nonsense", 1, 0, &spread);
        CHECK(spread.kept);
        _exit(test_failed > 0);
    }
    int status = -1;
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* Two ranks of one device get different cores where there are two. */
static void two_are_apart(void)
{
    char near[SPREAD_CPUS];
    struct spread a, b;
    spread_near("no such device", near, sizeof near);
    spread_process(near, 2, 0, &a);
    spread_process(near, 2, 1, &b);
    if (a.kept || b.kept || a.crowded)
        CHECK(a.crowded || a.n_cores >= SPREAD_ENOUGH || a.n_cores == 0);
    else
        CHECK(strcmp(a.used, b.used) != 0);
}

int main(void)
{
    shares();
    one_core_is_widened();
    two_are_apart();
    return test_end();
}
