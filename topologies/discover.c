#include "topologies/discover.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mpi.h>

#include "base/err.h"
#include "topologies/affinity.h"
#include "topologies/host.h"
#include "topologies/launcher.h"

static int mpi_failed(int code, const char *call)
{
    char words[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    MPI_Error_string(code, words, &length);
    return fail(FAIL_COMM, "discover: %s: %s", call, words);
}

#define MPI_TRY(call)                                                                              \
    do {                                                                                           \
        int mpi_code = (call);                                                                     \
        if (mpi_code != MPI_SUCCESS) {                                                             \
            rc = mpi_failed(mpi_code, #call);                                                      \
            goto out;                                                                              \
        }                                                                                          \
    } while (0)

/* What one rank knows of itself and of its host. */
struct account {
    struct discover_rank rank;
    struct discover_host host;
};

/* hosts[rank]: the lowest rank on the same host. */
static int find_hosts(int *hosts, int rank, int size)
{
    int rc = 0;
    MPI_Comm local = MPI_COMM_NULL;
    struct host_mark mine;
    struct host_mark *all = must_alloc((size_t)size, sizeof *all);
    memset(&mine, 0, sizeof mine);
    mine.first = rank;
    MPI_TRY(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &local));
    MPI_TRY(MPI_Bcast(&mine.first, 1, MPI_INT, 0, local));
    host_find(&mine);
    MPI_TRY(
        MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all, sizeof mine, MPI_BYTE, MPI_COMM_WORLD));
    host_group(all, size, hosts);
out:
    if (local != MPI_COMM_NULL)
        MPI_Comm_free(&local);
    free(all);
    return rc;
}

/* Whether the ranks of a host have cores enough, decided by its first rank. */
static int find_crowding(const struct affinity *affinity, MPI_Comm host, struct account *mine)
{
    int rc = 0, size, n_cores = affinity->host_cores;
    char *row = NULL, *may_use = NULL;
    int *crowded = NULL;
    MPI_TRY(MPI_Comm_size(host, &size));
    MPI_TRY(MPI_Comm_rank(host, &mine->rank.local));
    MPI_TRY(MPI_Allreduce(MPI_IN_PLACE, &n_cores, 1, MPI_INT, MPI_MAX, host));
    row = must_alloc((size_t)n_cores + 1, 1);
    may_use = must_alloc((size_t)size * (size_t)n_cores + 1, 1);
    crowded = must_alloc((size_t)size, sizeof *crowded);
    if (affinity->may_use != NULL)
        memcpy(row, affinity->may_use, (size_t)affinity->host_cores);
    MPI_TRY(MPI_Gather(row, n_cores, MPI_BYTE, may_use, n_cores, MPI_BYTE, 0, host));
    if (mine->rank.local == 0)
        affinity_crowded(may_use, size, n_cores, crowded);
    MPI_TRY(MPI_Scatter(crowded, 1, MPI_INT, &mine->rank.oversubscribed, 1, MPI_INT, 0, host));
    mine->host.ranks = size;
out:
    free(row);
    free(may_use);
    free(crowded);
    return rc;
}

static int fill_account(struct account *mine, int host, int rank)
{
    int rc = 0;
    struct affinity affinity;
    struct host_mark mark;
    MPI_Comm local = MPI_COMM_NULL;
    affinity_find(&affinity);
    mine->rank.host = host;
    mine->rank.n_cpus = affinity.n_cpus;
    mine->rank.n_cores = affinity.n_cores;
    memcpy(mine->rank.cpus, affinity.cpus, sizeof mine->rank.cpus);
    mine->host.cores = affinity.host_cores;
    mine->host.cpus = affinity.host_cpus;
    mine->host.memory_bytes = affinity.memory_bytes;
    memcpy(mine->host.model, affinity.model, sizeof mine->host.model);
    host_find(&mark);
    memcpy(mine->host.name, mark.name, sizeof mine->host.name);
    MPI_TRY(MPI_Comm_split(MPI_COMM_WORLD, host, rank, &local));
    TRY(find_crowding(&affinity, local, mine));
out:
    if (local != MPI_COMM_NULL)
        MPI_Comm_free(&local);
    affinity_release(&affinity);
    return rc;
}

/* Accounts of all ranks, hosts still named by their first rank, to the tables of *out. */
static void tabulate(struct discover *out, const struct account *accounts)
{
    out->ranks = must_alloc((size_t)out->world, sizeof *out->ranks);
    out->hosts = must_alloc((size_t)out->world, sizeof *out->hosts);
    for (int rank = 0; rank < out->world; rank++) {
        int first = accounts[rank].rank.host;
        out->ranks[rank] = accounts[rank].rank;
        if (first == rank) {
            out->ranks[rank].host = out->n_hosts;
            out->hosts[out->n_hosts++] = accounts[rank].host;
        } else {
            out->ranks[rank].host = out->ranks[first].host;
        }
    }
}

int discover_job(struct discover *out)
{
    int rc = 0, rank = 0;
    int *hosts = NULL;
    struct account mine, *accounts = NULL;
    struct launcher launcher = launcher_find();
    memset(out, 0, sizeof *out);
    memset(&mine, 0, sizeof mine);
    MPI_TRY(MPI_Comm_rank(MPI_COMM_WORLD, &rank));
    MPI_TRY(MPI_Comm_size(MPI_COMM_WORLD, &out->world));
    out->launcher_world = launcher.world;
    out->launcher_rank = launcher.rank;
    snprintf(out->launcher, sizeof out->launcher, "%s", launcher.name);
    hosts = must_alloc((size_t)out->world, sizeof *hosts);
    accounts = must_alloc((size_t)out->world, sizeof *accounts);
    TRY(find_hosts(hosts, rank, out->world));
    TRY(fill_account(&mine, hosts[rank], rank));
    MPI_TRY(MPI_Allgather(&mine, sizeof mine, MPI_BYTE, accounts, sizeof mine, MPI_BYTE,
                          MPI_COMM_WORLD));
    tabulate(out, accounts);
out:
    if (rc != 0)
        discover_release(out);
    free(hosts);
    free(accounts);
    return rc;
}

void discover_release(struct discover *found)
{
    free(found->hosts);
    free(found->ranks);
    memset(found, 0, sizeof *found);
}
