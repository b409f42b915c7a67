#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

#include <mpi.h>

#include "base/bf16.h"
#include "base/err.h"
#include "collectives/comm_mpi_issue.h"

static MPI_Datatype datatype(enum dtype dtype)
{
    switch (dtype) {
    case DTYPE_F32:
        return MPI_FLOAT;
    case DTYPE_F64:
        return MPI_DOUBLE;
    case DTYPE_I32:
        return MPI_INT32_T;
    case DTYPE_U8:
        return MPI_UINT8_T;
    case DTYPE_BF16:
        return MPI_UINT16_T;
    case DTYPES:
        break;
    }
    BUG("dtype %d", (int)dtype);
}

void comm_mpi_add_bf16(void *in, void *inout, int *count, MPI_Datatype *type)
{
    const uint16_t *a = in;
    uint16_t *b = inout;
    (void)type;
    for (int i = 0; i < *count; i++)
        b[i] = bf16_of(bf16_to_float(a[i]) + bf16_to_float(b[i]));
}

static MPI_Op sum_of(const struct mpi *mpi, enum dtype dtype)
{
    return dtype == DTYPE_BF16 ? mpi->sum_bf16 : MPI_SUM;
}

void comm_mpi_must(const struct mpi *mpi, const struct slot *slot, int error)
{
    char words[MPI_MAX_ERROR_STRING] = "";
    int length;
    const struct coll *coll = &slot->call.coll;

    if (error == MPI_SUCCESS)
        return;
    MPI_Error_string(error, words, &length);
    die(FAIL_COMM, "comm: %s %s of %lld %s failed on member %d of %d: %s", mpi->axis,
        coll_name((int)coll->kind), (long long)coll->count, dtype_name((int)coll->dtype), mpi->me,
        mpi->n_ranks, words);
}

int64_t comm_mpi_pieces(int64_t count, int64_t limit)
{
    return count / limit + (count % limit != 0);
}

/* To the next member and from the one before. */
static void issue_ring_piece(const struct mpi *mpi, struct slot *slot, const void *send, void *recv,
                             int count)
{
    MPI_Datatype type = datatype(slot->call.coll.dtype);
    MPI_Request *request = &slot->request[slot->n_requests];
    int next = (mpi->me + 1) % mpi->n_ranks, before = (mpi->me + mpi->n_ranks - 1) % mpi->n_ranks;

    comm_mpi_must(mpi, slot, MPI_Irecv(recv, count, type, before, 0, mpi->comm, &request[0]));
    comm_mpi_must(mpi, slot, MPI_Isend(send, count, type, next, 0, mpi->comm, &request[1]));
    slot->n_requests += 2;
}

static void issue_piece(const struct mpi *mpi, struct slot *slot, const void *send, void *recv,
                        int count)
{
    const struct coll *coll = &slot->call.coll;
    MPI_Datatype type = datatype(coll->dtype);
    MPI_Request *request = &slot->request[slot->n_requests++];
    bool is_root = mpi->me == coll->peer;
    int error;

    if (coll->kind == COLL_ALL_REDUCE)
        error = MPI_Iallreduce(send == recv ? MPI_IN_PLACE : send, recv, count, type,
                               sum_of(mpi, coll->dtype), mpi->comm, request);
    else if (coll->kind == COLL_REDUCE)
        error = MPI_Ireduce(is_root && send == recv ? MPI_IN_PLACE : send, is_root ? recv : NULL,
                            count, type, sum_of(mpi, coll->dtype), coll->peer, mpi->comm, request);
    else if (coll->kind == COLL_BROADCAST)
        error = MPI_Ibcast(recv, count, type, coll->peer, mpi->comm, request);
    else if (coll->kind == COLL_SEND)
        error = MPI_Isend(send, count, type, coll->peer, 0, mpi->comm, request);
    else
        error = MPI_Irecv(recv, count, type, coll->peer, 0, mpi->comm, request);
    comm_mpi_must(mpi, slot, error);
}

static const void *from(const void *memory, size_t bytes)
{
    return memory == NULL ? NULL : (const char *)memory + bytes;
}

static void *into(void *memory, size_t bytes)
{
    return memory == NULL ? NULL : (char *)memory + bytes;
}

static void issue_pieces(const struct mpi *mpi, struct slot *slot)
{
    const struct comm_call *call = &slot->call;
    int64_t count = call->coll.count;

    for (int64_t done = 0, n; done < count; done += n) {
        size_t offset = (size_t)done * dtype_size((int)call->coll.dtype);
        n = count - done < mpi->limit ? count - done : mpi->limit;
        (call->coll.kind == COLL_SENDRECV ? issue_ring_piece : issue_piece)(
            mpi, slot, from(call->send, offset), into(call->recv, offset), (int)n);
    }
}

/* slot->share: `count` elements as one, count / limit rows of `limit` and a rest. */
static void make_share(const struct mpi *mpi, struct slot *slot)
{
    MPI_Datatype element = datatype(slot->call.coll.dtype), rows, part[2];
    int64_t n_rows = slot->call.coll.count / mpi->limit, rest = slot->call.coll.count % mpi->limit;
    int length[2] = {1, 1};
    MPI_Aint at[2] = {0, (MPI_Aint)(n_rows * mpi->limit) *
                             (MPI_Aint)dtype_size((int)slot->call.coll.dtype)};

    comm_mpi_must(mpi, slot, MPI_Type_contiguous((int)mpi->limit, element, &rows));
    comm_mpi_must(mpi, slot, MPI_Type_contiguous((int)n_rows, rows, &part[0]));
    comm_mpi_must(mpi, slot, MPI_Type_contiguous((int)rest, element, &part[1]));
    comm_mpi_must(mpi, slot, MPI_Type_create_struct(2, length, at, part, &slot->share));
    comm_mpi_must(mpi, slot, MPI_Type_commit(&slot->share));
    MPI_Type_free(&rows);
    MPI_Type_free(&part[0]);
    MPI_Type_free(&part[1]);
}

static void issue_shares(const struct mpi *mpi, struct slot *slot)
{
    const struct comm_call *call = &slot->call;
    const struct coll *coll = &call->coll;
    MPI_Request *request = &slot->request[0];
    MPI_Datatype type = datatype(coll->dtype);
    int count = (int)coll->count, error;
    size_t own = (size_t)mpi->me * (size_t)coll->count * dtype_size((int)coll->dtype);

    if (coll->count > mpi->limit / mpi->n_ranks) {
        make_share(mpi, slot);
        type = slot->share;
        count = 1;
    }
    slot->n_requests = 1;
    if (coll->kind == COLL_REDUCE_SCATTER)
        error = MPI_Ireduce_scatter_block(call->send, call->recv, count, type,
                                          sum_of(mpi, coll->dtype), mpi->comm, request);
    else if (coll->kind == COLL_ALL_GATHER)
        error = MPI_Iallgather(call->send == into(call->recv, own) ? MPI_IN_PLACE : call->send,
                               count, type, call->recv, count, type, mpi->comm, request);
    else
        error = MPI_Ialltoall(call->send, count, type, call->recv, count, type, mpi->comm, request);
    comm_mpi_must(mpi, slot, error);
}

/* Counts of one side and where its parts begin. */
static void fill_table(int *table, const int64_t *counts, int n)
{
    for (int i = 0, at = 0; i < n; at += (int)counts[i++]) {
        table[i] = (int)counts[i];
        table[n + i] = at;
    }
}

static void issue_parts(const struct mpi *mpi, struct slot *slot)
{
    const struct comm_call *call = &slot->call;
    int n = mpi->n_ranks, *sent = mpi->tables + (slot - mpi->slots) * 4 * n,
        *received = sent + 2 * n;
    MPI_Datatype type = datatype(call->coll.dtype);

    fill_table(sent, call->coll.send, n);
    fill_table(received, call->coll.recv, n);
    slot->n_requests = 1;
    comm_mpi_must(mpi, slot,
                  MPI_Ialltoallv(call->send, sent, sent + n, type, call->recv, received,
                                 received + n, type, mpi->comm, &slot->request[0]));
}

/* The root of a broadcast, and a group of one, copy for themselves. */
static void copy_own(const struct slot *slot)
{
    const struct comm_call *call = &slot->call;

    if (call->send != call->recv && call->coll.count > 0)
        memcpy(call->recv, call->send,
               (size_t)call->coll.count * dtype_size((int)call->coll.dtype));
}

bool comm_mpi_is_shared_out(enum coll_kind kind)
{
    return kind == COLL_REDUCE_SCATTER || kind == COLL_ALL_GATHER || kind == COLL_ALL_TO_ALL;
}

void comm_mpi_issue(const struct mpi *mpi, struct slot *slot)
{
    const struct coll *coll = &slot->call.coll;

    slot->n_requests = 0;
    slot->share = MPI_DATATYPE_NULL;
    if (coll->count == 0)
        return;
    if (mpi->n_ranks == 1 || (coll->kind == COLL_BROADCAST && mpi->me == coll->peer))
        copy_own(slot);
    if (mpi->n_ranks == 1)
        return;
    if (coll->kind == COLL_ALL_TO_ALL_V)
        issue_parts(mpi, slot);
    else if (comm_mpi_is_shared_out(coll->kind))
        issue_shares(mpi, slot);
    else
        issue_pieces(mpi, slot);
}
