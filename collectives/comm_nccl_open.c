/* Opening a communicator of NCCL: with a deadline, and all members or none. */
#include "collectives/comm_nccl.h"

#include <cuda_runtime_api.h>
#include <mpi.h>
#include <nccl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/units.h"

static const double open_deadline_s = 120, grace_s = 10;
static struct comm_setup chosen; /* for communicators to come */

/* By the library that is loaded: one that is newer than the headers has what they have. */
int comm_nccl_set_up(const struct comm_setup *setup)
{
    static const struct {
        int since; /* as NCCL_VERSION_CODE */
        const char *words;
    } needs[COMM_BLOCKS] = {
        [COMM_FEW_BLOCKS] = {22700, "2.27"}, [COMM_NO_BLOCKS] = {22800, "2.28"}};
    int since = needs[setup->blocks].since, version = 0;
    ncclGetVersion(&version);
    if (version < since || NCCL_VERSION_CODE < since)
        return fail(FAIL_ABSENT,
                    "comm: NCCL %s, with headers of %d.%d, has no such policy of thread blocks: %s "
                    "or later is wanted of both",
                    comm_nccl_version(), NCCL_MAJOR, NCCL_MINOR, needs[setup->blocks].words);
    chosen = *setup;
    return 0;
}

static void configure(ncclConfig_t *config)
{
    if (chosen.max_ctas > 0)
        config->maxCTAs = chosen.max_ctas;
#if NCCL_VERSION_CODE >= 22700
    if (chosen.blocks == COMM_FEW_BLOCKS)
        config->CTAPolicy = NCCL_CTA_POLICY_EFFICIENCY;
#endif
#if NCCL_VERSION_CODE >= 22800
    if (chosen.blocks == COMM_NO_BLOCKS)
        config->CTAPolicy = NCCL_CTA_POLICY_ZERO;
#endif
}

struct members {
    MPI_Comm group; /* MPI_COMM_NULL for a group of one */
    int n_ranks, me;
    const char *axis, *name;
    bool in_pairs;
};

/* What the opening thread is given and leaves. Never freed while the thread may still run. */
struct opening {
    int gpu, n_ranks, me;
    ncclUniqueId id;
    const char *name;
    bool can_be_named; /* by the library that is loaded */
    bool in_pairs;     /* its ranks send to and receive from each other */
    ncclComm_t comm;
    ncclResult_t result;
    _Atomic int finished;
};

/*
 * Two ranks are connected when they first exchange something, in the directions that each of them then
 * asks for: a group that sends and receives does not fit one that only receives ("Message truncated").
 * So every pair exchanges a byte each way before the first call of a plan.
 */
static ncclResult_t connect_pairs(const struct opening *opening)
{
    ncclResult_t result = ncclGroupStart();
    unsigned char *bytes = NULL;
    cudaStream_t stream = NULL;
    size_t n = (size_t)opening->n_ranks;

    if (cudaMalloc((void **)&bytes, 2 * n) != cudaSuccess ||
        cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess)
        result = ncclUnhandledCudaError;
    for (int peer = 0; peer < opening->n_ranks && result == ncclSuccess; peer++) {
        if (peer == opening->me)
            continue;
        result = ncclSend(bytes + peer, 1, ncclUint8, peer, opening->comm, stream);
        if (result == ncclSuccess)
            result = ncclRecv(bytes + n + peer, 1, ncclUint8, peer, opening->comm, stream);
    }
    ncclResult_t ended = ncclGroupEnd();
    if (stream != NULL && cudaStreamSynchronize(stream) != cudaSuccess)
        result = ncclUnhandledCudaError;
    if (stream != NULL)
        cudaStreamDestroy(stream);
    cudaFree(bytes);
    return result != ncclSuccess ? result : ended;
}

static void *open_in_thread(void *arg)
{
    struct opening *opening = arg;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;

    config.blocking = 1;
    configure(&config);
#if NCCL_VERSION_CODE >= 22700
    if (opening->can_be_named)
        config.commName = opening->name;
#endif
    opening->result = ncclUnhandledCudaError;
    if (cudaSetDevice(opening->gpu) == cudaSuccess)
        opening->result = ncclCommInitRankConfig(&opening->comm, opening->n_ranks, opening->id,
                                                 opening->me, &config);
    if (opening->result == ncclSuccess && opening->in_pairs)
        opening->result = connect_pairs(opening);
    atomic_store(&opening->finished, 1);
    return NULL;
}

static double since(int64_t begin_ns)
{
    return (double)(units_now_ns() - begin_ns) / 1e9;
}

/* The thread has ended, or the job does. */
static void await_thread(const struct members *members, const struct opening *opening)
{
    int64_t begin = units_now_ns();

    while (!atomic_load(&opening->finished)) {
        if (since(begin) > open_deadline_s)
            die(FAIL_TIMEOUT,
                "comm: %s: the %d members of the group did not meet within %.0f s, seen from "
                "member "
                "%d: one is missing, or NCCL chose a network that does not reach it "
                "(NCCL_SOCKET_IFNAME; NCCL_DEBUG=INFO tells)",
                members->axis, members->n_ranks, open_deadline_s, members->me);
        units_sleep_ns(200000);
    }
}

/* All members succeeded, or all fail here. One whose partners hang in the library speaks and ends
 * the job. */
static int agree_on(const struct members *members, int mine)
{
    int64_t begin = units_now_ns();
    int worst = 0, done = 0;
    MPI_Request request;

    if (MPI_Iallreduce(&mine, &worst, 1, MPI_INT, MPI_MAX, members->group, &request) != MPI_SUCCESS)
        return fail(FAIL_COMM, "comm: %s: MPI_Iallreduce failed", members->axis);
    while (!done) {
        if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS)
            return fail(FAIL_COMM, "comm: %s: MPI_Test failed", members->axis);
        if (!done && since(begin) > (mine != 0 ? grace_s : open_deadline_s + grace_s))
            die(mine != 0 ? mine : FAIL_TIMEOUT, "%s",
                mine != 0 ? fail_message() : "comm: a member of the group did not open it");
        if (!done)
            units_sleep_ns(200000);
    }
    if (worst != 0 && mine == 0)
        return fail(worst, "comm: %s: another member of the group could not open it",
                    members->axis);
    return mine;
}

static int split(struct members *members, MPI_Comm parent, const struct group *group)
{
    int size, me;

    if (MPI_Comm_split(parent, group->size > 1 ? group->first : MPI_UNDEFINED, group->me,
                       &members->group) != MPI_SUCCESS)
        return fail(FAIL_COMM, "comm: MPI_Comm_split for %s failed", members->axis);
    if (group->size == 1)
        return 0;
    MPI_Comm_set_errhandler(members->group, MPI_ERRORS_RETURN);
    MPI_Comm_size(members->group, &size);
    MPI_Comm_rank(members->group, &me);
    if (size != group->size || me != group->me)
        return fail(FAIL_COMM, "comm: %s has %d members here and %d by its layout", members->axis,
                    size, group->size);
    return 0;
}

static int run_opening(const struct members *members, struct opening *opening)
{
    pthread_t thread;
    int rc = 0;

    if (pthread_create(&thread, NULL, open_in_thread, opening) != 0)
        return fail(FAIL_INTERNAL, "comm: no thread for opening %s", members->axis);
    await_thread(members, opening);
    pthread_join(thread, NULL);
    if (opening->result != ncclSuccess)
        rc = fail(FAIL_COMM, "comm: %s of %d members on member %d, GPU %d: NCCL: %s (%s)",
                  members->axis, members->n_ranks, members->me, opening->gpu,
                  ncclGetErrorString(opening->result), ncclGetLastError(NULL));
    return rc;
}

static int open_library(const struct members *members, int gpu, struct ncclComm **out)
{
    struct opening *opening = must_alloc(1, sizeof *opening);
    int version = 0, rc = 0;

    ncclGetVersion(&version);
    *opening = (struct opening){.gpu = gpu,
                                .n_ranks = members->n_ranks,
                                .me = members->me,
                                .name = members->name,
                                .in_pairs = members->in_pairs,
                                .can_be_named = version >= NCCL_TELLS};
    if (members->me == 0 && ncclGetUniqueId(&opening->id) != ncclSuccess)
        rc =
            fail(FAIL_COMM, "comm: %s: ncclGetUniqueId: %s", members->axis, ncclGetLastError(NULL));
    TRY(agree_on(members, rc));
    if (MPI_Bcast(&opening->id, sizeof opening->id, MPI_BYTE, 0, members->group) != MPI_SUCCESS)
        rc = fail(FAIL_COMM, "comm: %s: MPI_Bcast failed", members->axis);
    TRY(agree_on(members, rc));
    TRY(agree_on(members, run_opening(members, opening)));
    *out = opening->comm;
out:
    free(opening);
    return rc;
}

int comm_nccl_open(struct ncclComm **out, const void *parent, const struct comm *comm,
                   const char *name, int gpu)
{
    struct members members = {
        MPI_COMM_NULL,  comm->group.size,
        comm->group.me, axis_name((int)comm->axis),
        name,           comm->axis == AXIS_PP || comm->axis == AXIS_CP || comm->axis == AXIS_EP};
    int rc = 0;

    *out = NULL;
    TRY(split(&members, *(const MPI_Comm *)parent, &comm->group));
    if (members.n_ranks > 1)
        rc = open_library(&members, gpu, out);
out:
    if (members.group != MPI_COMM_NULL)
        MPI_Comm_free(&members.group);
    return rc;
}
