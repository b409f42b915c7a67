#include "driver/devices.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/nvml.h"
#include "base/units.h"
#include "driver/agree.h"
#include "driver/point_memory.h"
#include "topologies/spread.h"

/* ---- choosing: arithmetic ---- */

static bool same_view(const struct devices_view *a, const struct devices_view *b)
{
    if (a->n != b->n)
        return false;
    for (int i = 0; i < a->n; i++)
        if (strcmp(a->uuid[i], b->uuid[i]) != 0)
            return false;
    return true;
}

/* Everybody sees the same GPUs: take them in turn. Else each has been given its own. */
static void choose_each(const struct devices_view *views, int n_ranks, int *index)
{
    bool all_same = true;
    for (int i = 1; i < n_ranks; i++)
        all_same &= same_view(&views[0], &views[i]);
    for (int i = 0; i < n_ranks; i++)
        index[i] = all_same ? i % views[i].n : 0;
}

static const char *chosen(const struct devices_view *views, const int *index, int i)
{
    return views[i].uuid[index[i]];
}

static int count_gpus(const struct devices_view *views, int n_ranks)
{
    int n = 0;
    for (int i = 0; i < n_ranks; i++)
        for (int u = 0; u < views[i].n; u++) {
            bool seen = false;
            for (int j = 0; j <= i && !seen; j++)
                for (int v = 0; v < (j < i ? views[j].n : u) && !seen; v++)
                    seen = strcmp(views[j].uuid[v], views[i].uuid[u]) == 0;
            n += !seen;
        }
    return n;
}

static int refuse_sharing(const struct devices_view *views, int n_ranks, const char *host, int i,
                          int j, const char *uuid)
{
    int gpus = count_gpus(views, n_ranks);
    if (n_ranks > gpus)
        return fail(FAIL_USAGE,
                    "device: host %s has %d ranks and %d GPU%s for them: start one rank for each "
                    "GPU; with --emulate-nodes ranks share GPUs, functional only",
                    host, n_ranks, gpus, gpus == 1 ? "" : "s");
    return fail(
        FAIL_USAGE,
        "device: ranks %d and %d of host %s were both given GPU %.12s: let the launcher give "
        "each rank its own, or leave CUDA_VISIBLE_DEVICES alone",
        views[i].rank, views[j].rank, host, uuid);
}

int devices_choose(const struct devices_view *views, int n_ranks, const char *host, bool may_share,
                   int *index, bool *shared)
{
    *shared = false;
    choose_each(views, n_ranks, index);
    for (int j = 1; j < n_ranks; j++)
        for (int i = 0; i < j; i++) {
            if (strcmp(chosen(views, index, i), chosen(views, index, j)) != 0)
                continue;
            *shared = true;
            if (!may_share)
                return refuse_sharing(views, n_ranks, host, i, j, chosen(views, index, j));
        }
    return 0;
}

/* ---- the ranks of one host ---- */

struct place {
    MPI_Comm host;
    int n_ranks, me; /* on the host */
    struct device_unit units[DEVICES_MOST];
    int index;
    bool shared;
};

static int choose(const struct job *job, struct place *place)
{
    struct devices_view mine, *views = must_alloc((size_t)place->n_ranks, sizeof *views);
    int *index = must_alloc((size_t)place->n_ranks, sizeof *index), n = 0, rc = 0;
    const char *host = job->found.hosts[job->found.ranks[job->rank].host].name;
    memset(&mine, 0, sizeof mine);
    TRY(agree(job->backend.device->probe(place->units, DEVICES_MOST, &n), job->world));
    mine.rank = job->rank;
    mine.n = n < DEVICES_MOST ? n : DEVICES_MOST;
    for (int i = 0; i < mine.n; i++)
        snprintf(mine.uuid[i], sizeof mine.uuid[i], "%s", place->units[i].uuid);
    if (MPI_Allgather(&mine, sizeof mine, MPI_BYTE, views, sizeof mine, MPI_BYTE, place->host) !=
        MPI_SUCCESS)
        rc = fail(FAIL_COMM, "device: MPI_Allgather failed");
    if (rc == 0)
        rc = devices_choose(views, place->n_ranks, host, job->study.emulate_nodes, index,
                            &place->shared);
    place->index = index[place->me];
    rc = agree(rc, job->world);
out:
    free(index);
    free(views);
    return rc;
}

/* Ranks of the host whose device is near the same CPUs share them. */
static int spread(const struct place *place, struct spread *out)
{
    char near[SPREAD_CPUS], *all = must_alloc((size_t)place->n_ranks, sizeof near);
    int n = 0, index = 0, rc = 0;
    spread_near(place->units[place->index].bus, near, sizeof near);
    if (MPI_Allgather(near, sizeof near, MPI_BYTE, all, sizeof near, MPI_BYTE, place->host) !=
        MPI_SUCCESS)
        rc = fail(FAIL_COMM, "device: MPI_Allgather failed");
    for (int i = 0; i < place->n_ranks && rc == 0; i++) {
        bool shares = strcmp(all + (size_t)i * sizeof near, near) == 0;
        index += shares && i < place->me;
        n += shares;
    }
    if (rc == 0)
        spread_process(near, n, index, out);
    free(all);
    return rc;
}

/* ---- the record ---- */

/* What is free of the GPU, 0: not known, as of a part of one (MIG), which the library does not tell apart. */
static int64_t free_now(struct nvml *nvml, int64_t all)
{
    int64_t total, bytes = nvml_free_bytes(nvml, &total);
    bool whole = total > all - all / 10 && total < all + all / 10;
    return whole && bytes > 0 ? bytes : 0;
}

/* Nothing of this job is on a GPU yet: what is taken, others hold; or a launch that was killed, where one goes on,
 * does for a moment. */
static int64_t free_bytes(const struct job *job, const struct device_unit *unit)
{
    enum { SAME = 3, MOST = 60 }; /* readings, a second apart */
    struct nvml *nvml = NULL;
    if (!job->study.telemetry)
        return 0;
    if (nvml_open(&nvml, NULL, unit->bus) != 0) {
        fail_clear(); /* telemetry says it */
        return 0;
    }
    int64_t all = unit->memory_bytes, bytes = free_now(nvml, all);
    for (int same = 0, i = 0; job->study.resume && same < SAME && i < MOST; i++) {
        if (bytes == 0 || all - bytes < POINT_MEMORY_OF_DRIVER)
            break;
        units_sleep_ns(1000000000);
        int64_t later = free_now(nvml, all);
        same = later > bytes ? 0 : same + 1;
        bytes = later;
    }
    nvml_close(nvml);
    return bytes;
}

static void describe(const struct job *job, const struct place *place, const struct spread *spread,
                     struct discover_rank *rank)
{
    const struct device_unit *unit = &place->units[place->index];
    rank->n_cpus = spread->n_cpus;
    rank->n_cores = spread->n_cores;
    rank->oversubscribed = spread->crowded;
    snprintf(rank->cpus_used, sizeof rank->cpus_used, "%.*s", (int)sizeof rank->cpus_used - 1,
             spread->used);
    snprintf(rank->device, sizeof rank->device, "%s", unit->name);
    snprintf(rank->device_bus, sizeof rank->device_bus, "%s", unit->bus);
    rank->device_bytes = unit->memory_bytes;
    rank->device_free_bytes = free_bytes(job, unit);
    rank->device_shared = place->shared;
}

static int share_descriptions(struct job *job)
{
    struct discover_rank mine = job->found.ranks[job->rank];
    if (MPI_Allgather(&mine, sizeof mine, MPI_BYTE, job->found.ranks, sizeof mine, MPI_BYTE,
                      *(const MPI_Comm *)job->world) != MPI_SUCCESS)
        return fail(FAIL_COMM, "device: MPI_Allgather failed");
    for (int r = 0; r < job->size; r++)
        job->shared_device |= job->found.ranks[r].device_shared != 0;
    return 0;
}

/* ---- emulated nodes ---- */

static int check_emulation(const struct job *job)
{
    if (job->study.emulate_nodes && job->found.n_hosts > 1)
        return fail(FAIL_USAGE,
                    "--emulate-nodes: this job has %d hosts, and nodes are emulated on one alone: "
                    "leave it out",
                    job->found.n_hosts);
    if (job->emulated && !job->study.emulate_nodes)
        return fail(FAIL_USAGE,
                    "layout: %d declared nodes share %d host%s, where NVLink would pass for a "
                    "network: say --emulate-nodes, or start the job on %d hosts",
                    job->points.nodes, job->found.n_hosts, job->found.n_hosts == 1 ? "" : "s",
                    job->points.nodes);
    return 0;
}

static int prepare_library(const struct job *job)
{
    char host[64];
    bool pretends = job->study.emulate_nodes && (job->emulated || job->shared_device);
    struct comm_promise promise = {job->study.deterministic, job->study.graph};
    int rc = 0;
    if (job->backend.comm->expect != NULL)
        rc = job->backend.comm->expect(&promise);
    if (rc != 0 || job->backend.comm->prepare == NULL)
        return rc;
    if (job->shared_device)
        snprintf(host, sizeof host, "scalestudy-rank-%d", job->rank);
    else
        snprintf(host, sizeof host, "scalestudy-node-%d", job->rank / job->points.ranks_per_node);
    return job->backend.comm->prepare(pretends ? host : NULL);
}

int devices_place(struct job *job)
{
    struct place place = {.host = MPI_COMM_NULL};
    struct spread used;
    const struct discover_rank *me = &job->found.ranks[job->rank];
    int rc = 0;
    job->backend.local_rank = me->local;
    if (job->backend.device->probe == NULL)
        return 0;
    TRY(agree(check_emulation(job), job->world));
    if (MPI_Comm_split(*(const MPI_Comm *)job->world, me->host, job->rank, &place.host) !=
        MPI_SUCCESS)
        return fail(FAIL_COMM, "device: MPI_Comm_split failed");
    MPI_Comm_size(place.host, &place.n_ranks);
    MPI_Comm_rank(place.host, &place.me);
    TRY(choose(job, &place));
    job->backend.local_rank = place.index;
    TRY(agree(spread(&place, &used), job->world));
    describe(job, &place, &used, &job->found.ranks[job->rank]);
    TRY(agree(share_descriptions(job), job->world));
    rc = agree(prepare_library(job), job->world);
out:
    if (place.host != MPI_COMM_NULL)
        MPI_Comm_free(&place.host);
    return rc;
}
