/* The refusals of discover.h: arithmetic over what was found, the same on every rank. */
#include <stdbool.h>
#include <stdio.h>

#include "base/err.h"
#include "topologies/discover.h"

static int refuse_singletons(const struct discover *found)
{
    return fail(FAIL_USAGE,
                "launch: %s started %d ranks, but each sees an MPI job of 1, so these are %d "
                "separate runs: start scalestudy with the launcher of the MPI library that it was "
                "built with (scalestudy --version names it)",
                found->launcher, found->launcher_world, found->launcher_world);
}

static bool hosts_are_equal(const struct discover *found)
{
    for (int host = 1; host < found->n_hosts; host++)
        if (found->hosts[host].ranks != found->hosts[0].ranks)
            return false;
    return true;
}

static int refuse_count(const struct discover *found, int nodes, int ranks_per_node)
{
    char advice[64] = "";
    if (hosts_are_equal(found))
        snprintf(advice, sizeof advice, ", or say --layout %dx%d", found->n_hosts,
                 found->world / found->n_hosts);
    return fail(FAIL_USAGE,
                "layout: %dx%d asks for %lld ranks but this job has %d: start it with %lld ranks%s",
                nodes, ranks_per_node, (long long)nodes * ranks_per_node, found->world,
                (long long)nodes * ranks_per_node, advice);
}

/* Too few hosts' worth: a declared node cannot lie within one host. */
static int refuse_unequal(const struct discover *found, int nodes, int ranks_per_node)
{
    const struct discover_host *low = &found->hosts[0], *high = low;
    for (const struct discover_host *host = low; host < found->hosts + found->n_hosts; host++) {
        low = host->ranks < low->ranks ? host : low;
        high = host->ranks > high->ranks ? host : high;
    }
    if (low->ranks != high->ranks)
        return fail(
            FAIL_USAGE,
            "layout: %dx%d wants %d ranks on every node, but host %s has %d and host %s has "
            "%d: start as many on each, for example with --map-by ppr:%d:node",
            nodes, ranks_per_node, ranks_per_node, high->name, high->ranks, low->name, low->ranks,
            ranks_per_node);
    return fail(FAIL_USAGE,
                "layout: %dx%d wants %d ranks on every node, but each of the %d hosts has %d: say "
                "--layout %dx%d, or start the job on %d hosts",
                nodes, ranks_per_node, ranks_per_node, found->n_hosts, low->ranks, found->n_hosts,
                low->ranks, nodes);
}

static int refuse_spread(const struct discover *found, int nodes, int ranks_per_node, int rank)
{
    int node = rank / ranks_per_node, first = node * ranks_per_node;
    return fail(FAIL_USAGE,
                "layout: %dx%d puts ranks %d to %d on node %d, but rank %d is on host %s and rank "
                "%d on host %s: let the launcher fill one host after the other (mpirun --map-by "
                "ppr:%d:node, srun --distribution=block)",
                nodes, ranks_per_node, first, first + ranks_per_node - 1, node, first,
                found->hosts[found->ranks[first].host].name, rank,
                found->hosts[found->ranks[rank].host].name, ranks_per_node);
}

int discover_check(const struct discover *found, int nodes, int ranks_per_node, bool *emulated)
{
    *emulated = false;
    if (found->launcher_world > 1 && found->world == 1)
        return refuse_singletons(found);
    if ((long long)nodes * ranks_per_node != found->world)
        return refuse_count(found, nodes, ranks_per_node);
    for (int host = 0; host < found->n_hosts; host++)
        if (found->hosts[host].ranks % ranks_per_node != 0)
            return refuse_unequal(found, nodes, ranks_per_node);
    for (int rank = 0; rank < found->world; rank++)
        if (found->ranks[rank].host != found->ranks[rank / ranks_per_node * ranks_per_node].host)
            return refuse_spread(found, nodes, ranks_per_node, rank);
    *emulated = found->n_hosts < nodes;
    return 0;
}
