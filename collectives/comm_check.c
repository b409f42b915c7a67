#include "collectives/comm_check.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include <mpi.h>

#include "base/err.h"

enum { LOG_CALLS = 4096, POISON = 0xff };

/* What was called since the last comparison: the first calls as they were, all of them as a digest. */
struct sequence {
    uint64_t digest;
    int64_t n_calls;
};

struct poisoning { /* of one receive buffer: the argument of a launch */
    void *memory;
    size_t bytes;
};

struct check {
    struct comm inner;
    MPI_Comm group; /* for comparisons; MPI_COMM_NULL for a group of one */
    struct sequence collectives;
    struct coll *log;                 /* [LOG_CALLS] */
    struct sequence *sent, *received; /* [group size], by peer */
    struct poisoning *ring;           /* [max_calls] */
    int64_t n_poisoned;
};

/* FNV-1a over the bytes of what members must agree on. */
static void note(struct sequence *sequence, const struct coll *coll, bool with_peer)
{
    int64_t fact[4] = {(int64_t)coll->kind, (int64_t)coll->dtype, coll->count, coll->peer};
    const unsigned char *byte = (const unsigned char *)fact;

    if (!with_peer) /* the two ends of a transfer: other kind, other peer */
        fact[0] = fact[3] = 0;
    for (size_t i = 0; i < sizeof fact; i++)
        sequence->digest = (sequence->digest ^ byte[i]) * UINT64_C(0x100000001b3);
    sequence->n_calls++;
}

static void note_call(struct check *check, const struct coll *coll, int n_ranks)
{
    if (coll->kind == COLL_SEND) {
        note(&check->sent[coll->peer], coll, false);
    } else if (coll->kind == COLL_RECV) {
        note(&check->received[coll->peer], coll, false);
    } else {
        if (check->collectives.n_calls < LOG_CALLS)
            check->log[check->collectives.n_calls] = *coll;
        note(&check->collectives, coll, true);
        for (int i = 0; coll->kind == COLL_ALL_TO_ALL_V && i < n_ranks; i++) {
            struct coll part = *coll;
            part.count = coll->send[i];
            note(&check->sent[i], &part, false);
            part.count = coll->recv[i];
            note(&check->received[i], &part, false);
        }
    }
}

/* The bytes that a call will write here, 0 where it works in place or writes nothing. */
static size_t output_bytes(const struct comm *comm, const struct comm_call *call)
{
    const struct coll *coll = &call->coll;
    size_t bytes = (size_t)coll_recv_count(coll, comm->group.size) * dtype_size((int)coll->dtype);
    const char *send = call->send, *recv = call->recv;

    if (coll->kind == COLL_SEND || (coll->kind == COLL_REDUCE && comm->group.me != coll->peer))
        return 0;
    return send != NULL && send >= recv && send < recv + bytes ? 0 : bytes;
}

static void poison(void *arg, void *native)
{
    const struct poisoning *poisoning = arg;

    (void)native; /* host memory */
    memset(poisoning->memory, POISON, poisoning->bytes);
}

static void check_post(struct comm *comm, const struct comm_call *calls, int n_calls)
{
    struct check *check = comm->state;

    for (int i = 0; i < n_calls; i++) {
        size_t bytes = output_bytes(comm, &calls[i]);
        struct poisoning *poisoning = &check->ring[check->n_poisoned % comm->max_calls];
        note_call(check, &calls[i].coll, comm->group.size);
        if (bytes == 0)
            continue;
        check->n_poisoned++;
        *poisoning = (struct poisoning){calls[i].recv, bytes};
        if (comm->device->type->fill != NULL)
            comm->device->type->fill(comm->device, comm->stream, calls[i].recv, POISON, bytes);
        else
            comm->device->type->launch(comm->device, comm->stream, poison, poisoning);
    }
    check->inner.type->post(&check->inner, calls, n_calls);
}

static void check_close(struct comm *comm)
{
    struct check *check = comm->state;

    check->inner.type->close(&check->inner);
    if (check->group != MPI_COMM_NULL)
        MPI_Comm_free(&check->group);
    free(check->ring);
    free(check->log);
    free(check->sent);
    free(check->received);
    free(check);
}

static const struct comm_type comm_check = {
    .name = "check",
    .close = check_close,
    .post = check_post,
    .check = comm_check_order,
};

int comm_check_wrap(struct comm *comm, const void *parent)
{
    struct check *check;
    MPI_Comm group;

    if (!comm->device->type->runs_host_tasks && comm->device->type->fill == NULL)
        return fail(FAIL_USAGE, "check: device \"%s\" cannot poison its memory",
                    comm->device->type->name);
    if (MPI_Comm_split(*(const MPI_Comm *)parent,
                       comm->group.size > 1 ? comm->group.first : MPI_UNDEFINED, comm->group.me,
                       &group) != MPI_SUCCESS)
        return fail(FAIL_COMM, "check: MPI_Comm_split failed");
    check = must_alloc(1, sizeof *check);
    check->inner = *comm;
    check->group = group;
    check->log = must_alloc(LOG_CALLS, sizeof *check->log);
    check->sent = must_alloc((size_t)comm->group.size, sizeof *check->sent);
    check->received = must_alloc((size_t)comm->group.size, sizeof *check->received);
    check->ring = must_alloc((size_t)comm->max_calls, sizeof *check->ring);
    comm->type = &comm_check;
    comm->state = check;
    return 0;
}

#define MPI_TRY(call)                                                                              \
    do {                                                                                           \
        if ((call) != MPI_SUCCESS)                                                                 \
            return fail(FAIL_COMM, "check: " #call " failed");                                     \
    } while (0)

/* "all-reduce fp32 count 100 peer -1", or "no call". */
static void say(char *text, size_t size, const struct coll *coll)
{
    if (coll->kind == COLL_KINDS)
        snprintf(text, size, "no call");
    else
        snprintf(text, size, "%s %s count %lld peer %d", coll_name((int)coll->kind),
                 dtype_name((int)coll->dtype), (long long)coll->count, coll->peer);
}

static struct coll logged(const struct check *check, int64_t i)
{
    struct coll none = {.kind = COLL_KINDS};

    return i < check->collectives.n_calls && i < LOG_CALLS ? check->log[i] : none;
}

static bool is_same(const struct coll *a, const struct coll *b)
{
    return a->kind == b->kind && a->dtype == b->dtype && a->count == b->count && a->peer == b->peer;
}

/* The member whose value is the lowest; INT_MAX in *value when all values are INT_MAX. */
static int lowest(MPI_Comm group, int me, int mine, int *value, int *member)
{
    struct {
        int value, member;
    } own = {mine, me}, low;

    *value = mine;
    *member = me;
    MPI_TRY(MPI_Allreduce(&own, &low, 1, MPI_2INT, MPI_MINLOC, group));
    *value = low.value;
    *member = low.member;
    return 0;
}

static int broadcast(struct check *check, void *data, size_t bytes, int root)
{
    MPI_TRY(MPI_Bcast(data, (int)bytes, MPI_BYTE, root, check->group));
    return 0;
}

/* Every member's first call that is not member 0's; of these the first, with both sides named. */
static int name_first_difference(struct check *check, const struct comm *comm)
{
    struct coll *theirs = must_alloc(LOG_CALLS, sizeof *theirs), other;
    char here[96], there[96];
    int me = comm->group.me, first = 0, index, member, rc;

    for (int i = 0; i < LOG_CALLS; i++)
        theirs[i] = logged(check, i);
    TRY(broadcast(check, theirs, LOG_CALLS * sizeof *theirs, 0));
    while (first < LOG_CALLS && (other = logged(check, first), is_same(&theirs[first], &other)))
        first++;
    TRY(lowest(check->group, me, first, &index, &member));
    other = logged(check, index);
    TRY(broadcast(check, &other, sizeof other, member));
    if (index < LOG_CALLS) {
        say(here, sizeof here, &theirs[index]);
        say(there, sizeof there, &other);
        rc = fail(FAIL_WRONG, "check: %s: call %d is %s on member 0 and %s on member %d",
                  axis_name((int)comm->axis), index, here, there, member);
    } else {
        rc = fail(FAIL_WRONG, "check: %s: members made different calls after the first %d",
                  axis_name((int)comm->axis), LOG_CALLS);
    }
out:
    free(theirs);
    return rc;
}

static int compare_collectives(struct check *check, const struct comm *comm)
{
    uint64_t mine[4] = {check->collectives.digest, ~check->collectives.digest,
                        (uint64_t)check->collectives.n_calls,
                        ~(uint64_t)check->collectives.n_calls};
    uint64_t low[4];

    MPI_TRY(MPI_Allreduce(mine, low, 4, MPI_UINT64_T, MPI_MIN, check->group));
    if (low[0] == ~low[1] && low[2] == ~low[3]) /* lowest is highest */
        return 0;
    return name_first_difference(check, comm);
}

/* What each member sent to a peer is what that peer received from it. */
static int compare_transfers(struct check *check, const struct comm *comm)
{
    int n = comm->group.size, first = INT_MAX, peer, member, rc = 0;
    struct sequence *theirs = must_alloc((size_t)n, sizeof *theirs);
    int64_t calls[2] = {0, 0};

    rc = MPI_Alltoall(check->sent, (int)sizeof *theirs, MPI_BYTE, theirs, (int)sizeof *theirs,
                      MPI_BYTE, check->group);
    if (rc != MPI_SUCCESS)
        TRY(fail(FAIL_COMM, "check: MPI_Alltoall failed"));
    for (int i = n - 1; i >= 0; i--)
        if (theirs[i].digest != check->received[i].digest ||
            theirs[i].n_calls != check->received[i].n_calls)
            first = i;
    TRY(lowest(check->group, comm->group.me, first, &peer, &member));
    if (peer == INT_MAX)
        goto out;
    if (member == comm->group.me) {
        calls[0] = theirs[peer].n_calls;
        calls[1] = check->received[peer].n_calls;
    }
    TRY(broadcast(check, calls, sizeof calls, member));
    rc = fail(FAIL_WRONG,
              "check: %s: member %d made %lld sends to member %d, which made %lld receives%s",
              axis_name((int)comm->axis), peer, (long long)calls[0], member, (long long)calls[1],
              calls[0] == calls[1] ? " of other counts or types" : "");
out:
    free(theirs);
    return rc;
}

static void forget(struct check *check, int n_ranks)
{
    check->collectives = (struct sequence){0};
    memset(check->sent, 0, (size_t)n_ranks * sizeof *check->sent);
    memset(check->received, 0, (size_t)n_ranks * sizeof *check->received);
}

int comm_check_order(struct comm *comm)
{
    struct check *check = comm->state;
    int rc = 0;

    if (comm->type != &comm_check)
        BUG("comm_check_order of a communicator that is not wrapped");
    if (comm->group.size > 1) {
        TRY(compare_collectives(check, comm));
        TRY(compare_transfers(check, comm));
    }
out:
    forget(check, comm->group.size);
    return rc;
}
