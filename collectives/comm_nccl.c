#include "collectives/comm_nccl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include "base/err.h"

struct nccl {
    ncclComm_t comm; /* NULL for a group of one */
    cudaStream_t stream;
    int n_ranks, me;
    const char *axis;
    char name[32]; /* of this communicator, for what NCCL tells */
};

/* NCCL before 2.26, or told not to order launches by itself, wants one order of all groups of a GPU:
 * each waits for the last one. Inside a capture that is the last one of the same capture. */
static struct {
    bool chained;
    cudaEvent_t last, captured; /* NULL: no communicator is open */
    int64_t capture;            /* in which `captured` was recorded; 0: in none */
    int users;
} order;

/* ---- versions and environment ---- */

static int runtime_version(void)
{
    int version = 0;

    ncclGetVersion(&version);
    return version;
}

const char *comm_nccl_version(void)
{
    static char text[32];
    int version = runtime_version();

    snprintf(text, sizeof text, "%d.%d.%d", version / 10000, version / 100 % 100, version % 100);
    return text;
}

int comm_nccl_check_version(int version)
{
    if (version >= NCCL_OLDEST)
        return 0;
    return fail(
        FAIL_ABSENT,
        "comm: NCCL %d.%d.%d is loaded and 2.18 or later is wanted: put a newer libnccl.so.2 "
        "before it (LD_LIBRARY_PATH)",
        version / 10000, version / 100 % 100, version % 100);
}

void comm_nccl_environment(int version, const char *host)
{
    if (version >= NCCL_ORDERED)
        setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0);
    if (version >= NCCL_TELLS)
        setenv("NCCL_PROFILER_PLUGIN", "STATIC_PLUGIN", 0);
    if (host == NULL)
        return;
    /* A node of one rank would make PAT eligible, which real nodes of several GPUs never see. */
    setenv("NCCL_HOSTID", host, 1);
    setenv("NCCL_PAT_ENABLE", "0", 0);
    setenv("NCCL_ALGO", "Ring,Tree", 0);
}

static int nccl_prepare(const char *host)
{
    int version = runtime_version();
    int rc = comm_nccl_check_version(version);

    if (rc == 0)
        comm_nccl_environment(version, host);
    order.chained = version < NCCL_ORDERED || !comm_nccl_orders_itself();
    return rc;
}

/* ---- posting ---- */

static void must(const struct nccl *nccl, const struct coll *coll, ncclResult_t result)
{
    if (result == ncclSuccess)
        return;
    die(FAIL_COMM, "comm: %s %s of %lld %s failed on member %d of %d: NCCL: %s (%s)", nccl->axis,
        coll_name((int)coll->kind), (long long)coll->count, dtype_name((int)coll->dtype), nccl->me,
        nccl->n_ranks, ncclGetErrorString(result), ncclGetLastError(nccl->comm));
}

static void must_cuda(const struct nccl *nccl, cudaError_t error, const char *call)
{
    if (error != cudaSuccess)
        die(FAIL_CUDA, "comm: %s: %s: %s", nccl->axis, call, cudaGetErrorString(error));
}

static ncclDataType_t datatype(enum dtype dtype)
{
    switch (dtype) {
    case DTYPE_F32:
        return ncclFloat32;
    case DTYPE_F64:
        return ncclFloat64;
    case DTYPE_I32:
        return ncclInt32;
    case DTYPE_U8:
        return ncclUint8;
    case DTYPE_BF16:
        return ncclBfloat16;
    case DTYPES:
        break;
    }
    BUG("dtype %d", (int)dtype);
}

static ncclResult_t all_to_all(const struct nccl *nccl, const struct comm_call *call)
{
    size_t count = (size_t)call->coll.count;
    size_t part = count * dtype_size((int)call->coll.dtype);
    ncclDataType_t type = datatype(call->coll.dtype);
    ncclResult_t result = ncclSuccess;

    for (int peer = 0; peer < nccl->n_ranks && result == ncclSuccess; peer++) {
        size_t offset = (size_t)peer * part;
        result = ncclSend((const char *)call->send + offset, count, type, peer, nccl->comm,
                          nccl->stream);
        if (result == ncclSuccess)
            result =
                ncclRecv((char *)call->recv + offset, count, type, peer, nccl->comm, nccl->stream);
    }
    return result;
}

static ncclResult_t ring(const struct nccl *nccl, const struct comm_call *call)
{
    size_t count = (size_t)call->coll.count;
    ncclDataType_t type = datatype(call->coll.dtype);
    int next = (nccl->me + 1) % nccl->n_ranks,
        before = (nccl->me + nccl->n_ranks - 1) % nccl->n_ranks;
    ncclResult_t result = ncclSend(call->send, count, type, next, nccl->comm, nccl->stream);

    if (result != ncclSuccess)
        return result;
    return ncclRecv(call->recv, count, type, before, nccl->comm, nccl->stream);
}

static ncclResult_t all_to_all_v(const struct nccl *nccl, const struct comm_call *call)
{
    size_t size = dtype_size((int)call->coll.dtype);
    const char *send = call->send;
    char *recv = call->recv;
    ncclDataType_t type = datatype(call->coll.dtype);
    ncclResult_t result = ncclSuccess;

    for (int peer = 0; peer < nccl->n_ranks && result == ncclSuccess; peer++) {
        size_t out = (size_t)call->coll.send[peer], in = (size_t)call->coll.recv[peer];
        if (out > 0)
            result = ncclSend(send, out, type, peer, nccl->comm, nccl->stream);
        if (in > 0 && result == ncclSuccess)
            result = ncclRecv(recv, in, type, peer, nccl->comm, nccl->stream);
        send += out * size;
        recv += in * size;
    }
    return result;
}

static ncclResult_t issue(const struct nccl *nccl, const struct comm_call *call)
{
    const void *send = call->send;
    void *recv = call->recv;
    size_t count = (size_t)call->coll.count;
    ncclDataType_t type = datatype(call->coll.dtype);
    int peer = call->coll.peer;

    switch (call->coll.kind) {
    case COLL_ALL_REDUCE:
        return ncclAllReduce(send, recv, count, type, ncclSum, nccl->comm, nccl->stream);
    case COLL_REDUCE_SCATTER:
        return ncclReduceScatter(send, recv, count, type, ncclSum, nccl->comm, nccl->stream);
    case COLL_ALL_GATHER:
        return ncclAllGather(send, recv, count, type, nccl->comm, nccl->stream);
    case COLL_ALL_TO_ALL:
        return all_to_all(nccl, call);
    case COLL_ALL_TO_ALL_V:
        return all_to_all_v(nccl, call);
    case COLL_BROADCAST:
        return ncclBroadcast(send, recv, count, type, peer, nccl->comm, nccl->stream);
    case COLL_REDUCE:
        return ncclReduce(send, recv, count, type, ncclSum, peer, nccl->comm, nccl->stream);
    case COLL_SENDRECV:
        return ring(nccl, call);
    case COLL_SEND:
        return ncclSend(send, count, type, peer, nccl->comm, nccl->stream);
    case COLL_RECV:
        return ncclRecv(recv, count, type, peer, nccl->comm, nccl->stream);
    case COLL_KINDS:
        break;
    }
    BUG("collective %d", (int)call->coll.kind);
}

/* A group of one has its result when it has copied its input. */
static void copy_own(const struct nccl *nccl, const struct comm_call *call)
{
    size_t bytes = (size_t)call->coll.count * dtype_size((int)call->coll.dtype);

    if (call->coll.kind == COLL_SEND || call->coll.kind == COLL_RECV)
        BUG("%s: a member sends to itself", nccl->axis);
    if (call->send != call->recv)
        must_cuda(
            nccl,
            cudaMemcpyAsync(call->recv, call->send, bytes, cudaMemcpyDeviceToDevice, nccl->stream),
            "cudaMemcpyAsync");
}

static void chain_before(const struct nccl *nccl, int64_t capture)
{
    cudaEvent_t last = capture > 0 ? order.captured : order.last;

    if (order.chained && (capture == 0 || capture == order.capture))
        must_cuda(nccl, cudaStreamWaitEvent(nccl->stream, last, 0), "cudaStreamWaitEvent");
}

static void chain_after(const struct nccl *nccl, int64_t capture)
{
    cudaEvent_t last = capture > 0 ? order.captured : order.last;

    if (!order.chained)
        return;
    must_cuda(nccl, cudaEventRecord(last, nccl->stream), "cudaEventRecord");
    order.capture = capture > 0 ? capture : order.capture;
}

static void drop_order(void)
{
    if (order.last != NULL) {
        cudaEventDestroy(order.last);
        cudaEventDestroy(order.captured);
    }
    order.last = order.captured = NULL;
    order.capture = 0;
}

static void make_order(const struct nccl *nccl)
{
    if (!order.chained || order.last != NULL)
        return;
    must_cuda(nccl, cudaEventCreateWithFlags(&order.last, cudaEventDisableTiming),
              "cudaEventCreate");
    must_cuda(nccl, cudaEventCreateWithFlags(&order.captured, cudaEventDisableTiming),
              "cudaEventCreate");
}

static void nccl_post(struct comm *comm, const struct comm_call *calls, int n_calls)
{
    const struct nccl *nccl = comm->state;

    if (nccl->n_ranks > 1) {
        chain_before(nccl, comm->device->capture);
        must(nccl, &calls[0].coll, ncclGroupStart());
    }
    for (int i = 0; i < n_calls; i++) {
        if (calls[i].coll.count == 0)
            continue;
        if (nccl->n_ranks == 1)
            copy_own(nccl, &calls[i]);
        else
            must(nccl, &calls[i].coll, issue(nccl, &calls[i]));
    }
    if (nccl->n_ranks > 1) {
        must(nccl, &calls[0].coll, ncclGroupEnd());
        chain_after(nccl, comm->device->capture);
    }
}

static int nccl_alive(struct comm *comm)
{
    const struct nccl *nccl = comm->state;
    ncclResult_t state = ncclSuccess, result;

    if (nccl->comm == NULL)
        return 0;
    result = ncclCommGetAsyncError(nccl->comm, &state);
    if (result == ncclSuccess)
        result = state;
    if (result == ncclSuccess || result == ncclInProgress)
        return 0;
    return fail(FAIL_COMM, "comm: %s failed on member %d of %d while it ran: NCCL: %s (%s)",
                nccl->axis, nccl->me, nccl->n_ranks, ncclGetErrorString(result),
                ncclGetLastError(nccl->comm));
}

/* ---- opening ---- */

static void nccl_close(struct comm *comm)
{
    struct nccl *nccl = comm->state;

    if (nccl->comm != NULL) {
        if (nccl_alive(comm) == 0)
            ncclCommDestroy(nccl->comm);
        else
            ncclCommAbort(nccl->comm);
    }
    nccl_told_close(nccl->name);
    if (--order.users == 0)
        drop_order();
    free(nccl);
}

static int nccl_open(struct comm *comm, const void *parent, int max_calls)
{
    static int n_opened;
    struct nccl *nccl = must_alloc(1, sizeof *nccl);
    int gpu = 0, rc = 0;

    (void)max_calls; /* the queue is the stream's */
    *nccl = (struct nccl){
        .n_ranks = comm->group.size, .me = comm->group.me, .axis = axis_name((int)comm->axis)};
    snprintf(nccl->name, sizeof nccl->name, "%s.%d", nccl->axis, ++n_opened);
    comm->state = nccl;
    order.users++;
    nccl->stream = comm->device->type->native(comm->device, comm->stream);
    if (nccl->stream == NULL)
        rc = fail(FAIL_USAGE, "comm: \"nccl\" moves GPU memory, which device \"%s\" does not have",
                  comm->device->type->name);
    TRY(rc);
    make_order(nccl);
    must_cuda(nccl, cudaGetDevice(&gpu), "cudaGetDevice");
    nccl_told_open(nccl->name);
    TRY(comm_nccl_open(&nccl->comm, parent, comm, nccl->name, gpu));
    return 0;
out:
    nccl_close(comm);
    return rc;
}

static int nccl_enrol(struct comm *comm, void *memory, size_t bytes, enum comm_enrolment how)
{
    const struct nccl *nccl = comm->state;

    return nccl->comm == NULL ? 0 : comm_nccl_enrol(nccl->comm, nccl->axis, memory, bytes, how);
}

/* ---- what it chose ---- */

static void nccl_watch(struct comm *comm, bool on)
{
    (void)comm;
    nccl_told_watch(on);
}

static void nccl_describe(const struct comm *comm, char *text, size_t size)
{
    const struct nccl *nccl = comm->state;

    nccl_told_write(nccl->name, text, size);
}

const struct comm_type comm_nccl = {
    .name = "nccl",
    .prepare = nccl_prepare,
    .expect = comm_nccl_expect,
    .open = nccl_open,
    .close = nccl_close,
    .set_up = comm_nccl_set_up,
    .enrol = nccl_enrol,
    .post = nccl_post,
    .alive = nccl_alive,
    .watch = nccl_watch,
    .describe = nccl_describe,
};
