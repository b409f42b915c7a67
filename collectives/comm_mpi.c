#include "collectives/comm_mpi.h"

#include <limits.h>
#include <stdatomic.h>
#include <string.h>

#include <mpi.h>

#include "base/err.h"
#include "collectives/comm_mpi_issue.h"

static struct slot *slot_of(const struct post *post, int i)
{
    return &post->mpi->slots[(post->first + i) % post->mpi->max_calls];
}

static void post_start(void *arg)
{
    struct post *post = arg;

    for (int i = 0; i < post->n_calls; i++)
        comm_mpi_issue(post->mpi, slot_of(post, i));
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
    MPI_Status status[REQUESTS];
    int complete = 1, error;

    if (slot->n_requests == 0)
        return true;
    error = MPI_Testall(slot->n_requests, slot->request, &complete, status);
    if (error == MPI_ERR_IN_STATUS)
        error = first_error(slot->n_requests, status);
    comm_mpi_must(mpi, slot, error);
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

/* What comm_mpi_issue() has no way for. */
static int check_count(const struct mpi *mpi, const struct coll *coll)
{
    const char *name = coll_name((int)coll->kind);
    bool shared = comm_mpi_is_shared_out(coll->kind);

    if (mpi->n_ranks == 1)
        return 0;
    if (coll->kind == COLL_REDUCE_SCATTER && coll->count > mpi->limit / mpi->n_ranks)
        return fail(FAIL_USAGE,
                    "comm: %s %s of %d x %lld elements: MPI takes at most %lld in one call: take a "
                    "smaller bucket, model or micro-batch",
                    mpi->axis, name, mpi->n_ranks, (long long)coll->count, (long long)mpi->limit);
    if (coll->kind == COLL_ALL_TO_ALL_V && coll->count > mpi->limit)
        return fail(
            FAIL_USAGE,
            "comm: %s %s of up to %lld elements: MPI takes at most %lld in one call: take a "
            "smaller micro-batch, or a --capacity",
            mpi->axis, name, (long long)coll->count, (long long)mpi->limit);
    if (!shared && comm_mpi_pieces(coll->count, mpi->limit) > COMM_MPI_PIECES)
        return fail(FAIL_USAGE,
                    "comm: %s %s of %lld elements: MPI takes at most %d pieces of %lld: take a "
                    "smaller bucket, model or micro-batch",
                    mpi->axis, name, (long long)coll->count, COMM_MPI_PIECES,
                    (long long)mpi->limit);
    return 0;
}

static int mpi_takes(const struct comm *comm, const struct coll *coll)
{
    return check_count(comm->state, coll);
}

/* The parts of all-to-all-v are counted here as they are: those of one call may grow past another's. */
static void check_call(const struct mpi *mpi, const struct coll *coll)
{
    struct coll call = *coll;

    if (mpi->n_ranks == 1 && (coll->kind == COLL_SEND || coll->kind == COLL_RECV))
        BUG("%s: a member sends to itself", mpi->axis);
    if (coll->kind == COLL_ALL_TO_ALL_V) {
        int64_t sent = coll_send_count(coll, mpi->n_ranks);
        int64_t received = coll_recv_count(coll, mpi->n_ranks);
        call.count = sent > received ? sent : received;
    }
    if (check_count(mpi, &call) != 0)
        die(FAIL_COMM, "%s", fail_message());
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
    free(mpi->tables);
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
    mpi->tables = must_alloc(4 * (size_t)mpi->max_calls * (size_t)mpi->n_ranks, sizeof(int));
    comm->state = mpi;
    TRY(check_setting(comm));
    if ((rc = MPI_Op_create(comm_mpi_add_bf16, 1, &mpi->sum_bf16)) != MPI_SUCCESS)
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
    .takes = mpi_takes,
    .post = mpi_post,
};
