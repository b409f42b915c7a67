#include "collectives/comm_mpi.h"

#include <limits.h>
#include <stdatomic.h>
#include <string.h>

#include <mpi.h>

#include "base/bf16.h"
#include "base/err.h"

/* One call that may be outstanding. */
struct slot {
    struct comm_call call;
    int n_requests;
    MPI_Request request[COMM_MPI_PIECES];
    MPI_Datatype share; /* derived type of a call beyond the limit, else MPI_DATATYPE_NULL */
};

struct mpi;

/* One post: a task of the device's progress thread. */
struct post {
    struct mpi *mpi;
    int64_t first; /* its calls are slots first, first + 1, ... modulo max_calls */
    int n_calls;
    int n_done; /* calls found complete, in order */
};

/* Slots and posts are rings: posts finish in their order, since they share a stream. */
struct mpi {
    MPI_Comm comm; /* MPI_COMM_NULL for a group of one */
    MPI_Op sum_bf16;
    int n_ranks, me;
    const char *axis;
    int64_t limit;
    int max_calls;
    struct slot *slots; /* [max_calls] */
    struct post *posts; /* [max_calls] */
    int64_t n_posted;   /* calls; the host's own */
    int64_t n_posts;
    _Atomic int64_t n_finished; /* calls; written by the progress thread */
};

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

/* MPI knows no bf16: it travels as its bits. Each addition is rounded to nearest, ties to even. */
static void add_bf16(void *in, void *inout, int *count, MPI_Datatype *type)
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

/* MPI's own words for an error, behind ours. */
static void must(const struct mpi *mpi, const struct slot *slot, int error)
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
    must(mpi, slot, error);
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
        issue_piece(mpi, slot, from(call->send, offset), into(call->recv, offset), (int)n);
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

    must(mpi, slot, MPI_Type_contiguous((int)mpi->limit, element, &rows));
    must(mpi, slot, MPI_Type_contiguous((int)n_rows, rows, &part[0]));
    must(mpi, slot, MPI_Type_contiguous((int)rest, element, &part[1]));
    must(mpi, slot, MPI_Type_create_struct(2, length, at, part, &slot->share));
    must(mpi, slot, MPI_Type_commit(&slot->share));
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
    must(mpi, slot, error);
}

/* The root of a broadcast, and a group of one, copy for themselves. */
static void copy_own(const struct slot *slot)
{
    const struct comm_call *call = &slot->call;

    if (call->send != call->recv && call->coll.count > 0)
        memcpy(call->recv, call->send,
               (size_t)call->coll.count * dtype_size((int)call->coll.dtype));
}

/* Whether a buffer of this kind holds a share of every rank. */
static bool is_shared_out(enum coll_kind kind)
{
    return kind == COLL_REDUCE_SCATTER || kind == COLL_ALL_GATHER || kind == COLL_ALL_TO_ALL;
}

static void issue(const struct mpi *mpi, struct slot *slot)
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
    if (is_shared_out(coll->kind))
        issue_shares(mpi, slot);
    else
        issue_pieces(mpi, slot);
}

static struct slot *slot_of(const struct post *post, int i)
{
    return &post->mpi->slots[(post->first + i) % post->mpi->max_calls];
}

static void post_start(void *arg)
{
    struct post *post = arg;

    for (int i = 0; i < post->n_calls; i++)
        issue(post->mpi, slot_of(post, i));
}

/* Of the errors of several requests, the first. */
static int first_error(int n, const MPI_Status *status)
{
    for (int i = 0; i < n; i++)
        if (status[i].MPI_ERROR != MPI_SUCCESS && status[i].MPI_ERROR != MPI_ERR_PENDING)
            return status[i].MPI_ERROR;
    return MPI_ERR_OTHER;
}

static bool slot_is_done(const struct mpi *mpi, struct slot *slot)
{
    MPI_Status status[COMM_MPI_PIECES];
    int complete = 1, error;

    if (slot->n_requests == 0)
        return true;
    error = MPI_Testall(slot->n_requests, slot->request, &complete, status);
    if (error == MPI_ERR_IN_STATUS)
        error = first_error(slot->n_requests, status);
    must(mpi, slot, error);
    if (complete && slot->share != MPI_DATATYPE_NULL)
        MPI_Type_free(&slot->share);
    return complete != 0;
}

/* One test moves all of MPI, so only the first open call is asked about. */
static int post_is_done(void *arg)
{
    struct post *post = arg;

    while (post->n_done < post->n_calls && slot_is_done(post->mpi, slot_of(post, post->n_done)))
        post->n_done++;
    if (post->n_done < post->n_calls)
        return 0;
    atomic_fetch_add(&post->mpi->n_finished, post->n_calls);
    return 1;
}

/* What issue() has no way for is refused when it is posted. */
static void check_call(const struct mpi *mpi, const struct coll *coll)
{
    const char *name = coll_name((int)coll->kind);

    if (mpi->n_ranks == 1 && (coll->kind == COLL_SEND || coll->kind == COLL_RECV))
        BUG("%s: a member sends to itself", mpi->axis);
    if (mpi->n_ranks == 1)
        return;
    if (coll->kind == COLL_REDUCE_SCATTER && coll->count > mpi->limit / mpi->n_ranks)
        die(FAIL_COMM, "comm: %s %s of %d x %lld elements: MPI takes at most %lld in one call",
            mpi->axis, name, mpi->n_ranks, (long long)coll->count, (long long)mpi->limit);
    if (!is_shared_out(coll->kind) && comm_mpi_pieces(coll->count, mpi->limit) > COMM_MPI_PIECES)
        die(FAIL_COMM, "comm: %s %s of %lld elements: MPI takes at most %d pieces of %lld",
            mpi->axis, name, (long long)coll->count, COMM_MPI_PIECES, (long long)mpi->limit);
}

static void mpi_post(struct comm *comm, const struct comm_call *calls, int n_calls)
{
    struct mpi *mpi = comm->state;
    struct post *post;
    struct device_task task = {.start = post_start, .done = post_is_done};

    if (mpi->n_posted + n_calls - atomic_load(&mpi->n_finished) > mpi->max_calls)
        die(FAIL_INTERNAL, "comm: more than %d calls are outstanding on %s: open it for more",
            mpi->max_calls, mpi->axis);
    post = &mpi->posts[mpi->n_posts % mpi->max_calls];
    *post = (struct post){.mpi = mpi, .first = mpi->n_posted, .n_calls = n_calls};
    for (int i = 0; i < n_calls; i++) {
        check_call(mpi, &calls[i].coll);
        slot_of(post, i)->call = calls[i];
    }
    mpi->n_posted += n_calls;
    mpi->n_posts++;
    task.arg = post;
    comm->device->type->enqueue(comm->device, comm->stream, &task);
}

static void mpi_close(struct comm *comm)
{
    struct mpi *mpi = comm->state;

    if (mpi->comm != MPI_COMM_NULL)
        MPI_Comm_free(&mpi->comm);
    if (mpi->sum_bf16 != MPI_OP_NULL)
        MPI_Op_free(&mpi->sum_bf16);
    free(mpi->slots);
    free(mpi->posts);
    free(mpi);
}

/* The split communicator, with the members and the order that the group says. */
static int split(struct mpi *mpi, MPI_Comm parent, const struct group *group)
{
    int size, me;

    if (MPI_Comm_split(parent, group->size > 1 ? group->first : MPI_UNDEFINED, group->me,
                       &mpi->comm) != MPI_SUCCESS)
        return fail(FAIL_COMM, "comm: MPI_Comm_split for %s failed", mpi->axis);
    if (group->size == 1)
        return 0;
    MPI_Comm_set_errhandler(mpi->comm, MPI_ERRORS_RETURN);
    MPI_Comm_size(mpi->comm, &size);
    MPI_Comm_rank(mpi->comm, &me);
    if (size != group->size || me != group->me)
        return fail(FAIL_COMM, "comm: %s has %d members here and %d by its layout", mpi->axis, size,
                    group->size);
    return 0;
}

static int check_setting(const struct comm *comm)
{
    int level = MPI_THREAD_SINGLE;

    if (!comm->device->type->runs_host_tasks)
        return fail(FAIL_USAGE,
                    "comm: \"mpi\" moves host memory, which device \"%s\" does not have",
                    comm->device->type->name);
    MPI_Query_thread(&level);
    if (level < MPI_THREAD_SERIALIZED)
        return fail(FAIL_COMM, "comm: MPI was initialised for one thread, and the progress thread "
                               "calls it too: ask for MPI_THREAD_SERIALIZED");
    return 0;
}

static int mpi_open(struct comm *comm, const void *parent, int max_calls)
{
    struct mpi *mpi = must_alloc(1, sizeof *mpi);
    int rc;

    mpi->comm = MPI_COMM_NULL;
    mpi->sum_bf16 = MPI_OP_NULL;
    mpi->n_ranks = comm->group.size;
    mpi->me = comm->group.me;
    mpi->axis = axis_name((int)comm->axis);
    mpi->limit = INT_MAX;
    mpi->max_calls = max_calls > 0 ? max_calls : 1;
    mpi->slots = must_alloc((size_t)mpi->max_calls, sizeof *mpi->slots);
    mpi->posts = must_alloc((size_t)mpi->max_calls, sizeof *mpi->posts);
    comm->state = mpi;
    TRY(check_setting(comm));
    if ((rc = MPI_Op_create(add_bf16, 1, &mpi->sum_bf16)) != MPI_SUCCESS)
        TRY(fail(FAIL_COMM, "comm: MPI_Op_create failed"));
    TRY(split(mpi, *(const MPI_Comm *)parent, &comm->group));
    return 0;
out:
    mpi_close(comm);
    return rc;
}

void comm_mpi_limit(struct comm *comm, int64_t limit)
{
    struct mpi *mpi = comm->state;

    if (comm->type != &comm_mpi || limit < 1 || limit > INT_MAX)
        BUG("comm_mpi_limit(%lld)", (long long)limit);
    mpi->limit = limit;
}

const struct comm_type comm_mpi = {
    .name = "mpi",
    .host_memory = true,
    .open = mpi_open,
    .close = mpi_close,
    .post = mpi_post,
};
