#include "driver/lockstep.h"

#include <stdlib.h>
#include <string.h>

#include "base/bf16.h"
#include "base/err.h"
#include "driver/lockstep_rank.h"
#include "driver/state.h"

/* ---- open and close ---- */

static void list_streams(struct lockstep_rank *rank)
{
    const struct plan *plan = rank->plan;
    rank->n_streams = 1 + plan->n_channels + plan->copy_stream;
    rank->place = must_alloc((size_t)plan->n_ops, sizeof *rank->place);
    for (int s = 0; s < rank->n_streams; s++)
        rank->stream[s].op = must_alloc((size_t)plan->n_ops, sizeof *rank->stream[s].op);
    for (int i = 0; i < plan->n_ops; i++) {
        struct lockstep_stream *stream = &rank->stream[plan->ops[i].stream];
        rank->place[i] = stream->n;
        stream->op[stream->n++] = i;
    }
    rank->host = must_alloc((size_t)plan->n_ops + 1, sizeof *rank->host);
    for (int i = 0, host = -1; i <= plan->n_ops; i++) {
        rank->host[i] = host;
        if (i < plan->n_ops && plan->ops[i].kind == OP_COUNTS)
            host = i;
    }
}

static int open_rank(struct lockstep_rank *rank, const struct plan *plan,
                     const struct kernel_set *kernels, const struct input *input)
{
    rank->plan = plan;
    rank->context.input = input;
    list_streams(rank);
    for (int b = 1; b < PLAN_BUFFERS; b++) {
        size_t bytes = ((size_t)plan->bytes[b] + 63) / 64 * 64;
        rank->context.base[b] = bytes > 0 ? aligned_alloc(64, bytes) : NULL;
        if (bytes > 0 && rank->context.base[b] == NULL)
            return fail(FAIL_INTERNAL, "lockstep: no memory for %zu bytes of an arena", bytes);
    }
    for (int i = 0; i < plan->n_ops; i++)
        if (plan->ops[i].kind != OP_COLLECTIVE && !kernels->run[plan->ops[i].kind])
            return fail(FAIL_ABSENT, "lockstep: the %s kernels have no %s", kernels->name,
                        op_name((int)plan->ops[i].kind));
    return kernels->open ? kernels->open(&rank->context, plan, NULL) : 0;
}

int lockstep_open(struct lockstep *lockstep, const struct plan *plans, int n,
                  const struct kernel_set *kernels, const struct input *input, uint64_t seed)
{
    int rc = 0;
    *lockstep = (struct lockstep){.n_ranks = n, .kernels = kernels};
    lockstep->rank = must_alloc((size_t)n, sizeof *lockstep->rank);
    for (int r = 0; r < n; r++)
        TRY(open_rank(&lockstep->rank[r], &plans[r], kernels, input));
    lockstep_reset(lockstep, seed);
out:
    if (rc)
        lockstep_close(lockstep);
    return rc;
}

static void close_rank(struct lockstep_rank *rank, const struct kernel_set *kernels)
{
    if (rank->plan && kernels->close)
        kernels->close(&rank->context);
    for (int b = 1; b < PLAN_BUFFERS; b++)
        free(rank->context.base[b]);
    for (int s = 0; s < rank->n_streams; s++)
        free(rank->stream[s].op);
    free(rank->place);
    free(rank->host);
}

void lockstep_close(struct lockstep *lockstep)
{
    for (int r = 0; r < lockstep->n_ranks; r++)
        close_rank(&lockstep->rank[r], lockstep->kernels);
    free(lockstep->rank);
    free(lockstep->gathered);
    memset(lockstep, 0, sizeof *lockstep);
}

void *lockstep_memory(const struct lockstep *lockstep, int rank, enum plan_buffer buffer)
{
    return lockstep->rank[rank].context.base[buffer];
}

/* ---- state ---- */

/* Masters of the pieces, and their rounded copies where the update writes some. */
static void reset_state(struct lockstep_rank *rank, uint64_t seed)
{
    const struct plan *plan = rank->plan;
    for (int i = 0, piece = 0; i < plan->n_ops; i++) {
        const struct op *op = &plan->ops[i];
        if (op->kind != OP_ADAMW)
            continue;
        const struct plan_piece *p = &plan->pieces[piece++];
        float *master = tensor_at(&rank->context, op->t[0]);
        uint16_t *rounded = tensor_at(&rank->context, op->t[5]);
        state_initial(plan, p, seed, 1, master);
        for (int64_t e = 0; rounded && plan->dtype == DTYPE_BF16 && e < p->count; e++)
            rounded[e] = bf16_of(master[e]);
    }
}

void lockstep_reset(struct lockstep *lockstep, uint64_t seed)
{
    for (int r = 0; r < lockstep->n_ranks; r++) {
        const struct plan *plan = lockstep->rank[r].plan;
        for (int b = 1; b < PLAN_BUFFERS; b++)
            if (plan->bytes[b] > 0)
                memset(lockstep_memory(lockstep, r, (enum plan_buffer)b), 0,
                       (size_t)plan->bytes[b]);
        reset_state(&lockstep->rank[r], seed);
    }
    lockstep->steps_done = 0;
}

/* ---- heads and waits ---- */

struct lockstep_head lockstep_head(const struct lockstep_rank *rank, int stream, int64_t n_steps)
{
    const struct lockstep_stream *s = &rank->stream[stream];
    struct lockstep_head head = {.index = -1};
    if (s->n == 0 || s->done == n_steps * s->n)
        return head;
    head.step = s->done / s->n;
    head.index = s->op[s->done % s->n];
    head.op = &rank->plan->ops[head.index];
    return head;
}

/* Has the compute stream not done op `op` of a step yet? */
static bool is_before(const struct lockstep_rank *rank, int op, int64_t step)
{
    const struct lockstep_stream *s = &rank->stream[0];
    return step >= 0 && op >= 0 && s->done <= step * s->n + rank->place[op];
}

/* A host that waits for counts gives nothing out meanwhile. */
static bool host_waits(const struct lockstep_rank *rank, const struct lockstep_head *head,
                       int *awaited)
{
    int last = rank->host[rank->plan->n_ops], here = rank->host[head->index];
    bool now = is_before(rank, here, head->step);
    *awaited = now ? here : last;
    return now || is_before(rank, last, head->step - 1);
}

int lockstep_waits_for(const struct lockstep_rank *rank, const struct lockstep_head *head,
                       int *awaited)
{
    if (host_waits(rank, head, awaited))
        return 0;
    for (int i = 0; i < head->op->n_waits; i++) {
        int op = head->op->wait[i], stream = rank->plan->ops[op].stream;
        const struct lockstep_stream *s = &rank->stream[stream];
        *awaited = op;
        if (s->done <= head->step * s->n + rank->place[op])
            return stream;
    }
    return -1;
}

/* ---- going on ---- */

static void run_kernel(struct lockstep *lockstep, int r, int stream,
                       const struct lockstep_head *head)
{
    struct lockstep_rank *rank = &lockstep->rank[r];
    rank->context.first_sample = (lockstep->steps_done + head->step) * rank->plan->global_batch;
    lockstep->kernels->run[head->op->kind](head->op, &rank->context, NULL);
    rank->stream[stream].done++;
}

/* What is not communication: compute, and copies of batches. */
static bool try_compute(struct lockstep *lockstep, int r, int stream, int64_t n_steps)
{
    struct lockstep_rank *rank = &lockstep->rank[r];
    struct lockstep_head head = lockstep_head(rank, stream, n_steps);
    int awaited;
    if (!head.op || lockstep_waits_for(rank, &head, &awaited) >= 0)
        return false;
    run_kernel(lockstep, r, stream, &head);
    return true;
}

enum { STREAMS = PLAN_CHANNELS + 2 };

static bool is_transfer(const struct op *op)
{
    enum coll_kind kind = op->shape.coll.coll.kind;
    return kind == COLL_SEND || kind == COLL_RECV;
}

/* Who holds a collective up: a member and, there, the stream it waits for. */
struct holdup {
    int rank, stream; /* rank -1: nobody */
};

/* Whose other member is still busy with a transfer to somebody else, or before a call of all, is
 * early, not wrong. */
static bool is_elsewhere(const struct lockstep_rank *rank, const struct lockstep_head *theirs,
                         const struct lockstep_head *mine, const struct group *members)
{
    if (!theirs->op || !is_transfer(theirs->op))
        return false;
    struct group pair = lockstep_members(rank, theirs->op);
    return !is_transfer(mine->op) || pair.first != members->first || pair.stride != members->stride;
}

/* Does member `other` stand at the same call, and what holds it up? Its stream goes to *stream. */
static int meet(const struct lockstep *lockstep, int r, const struct lockstep_head *head, int other,
                const struct group *members, int64_t n_steps, int *stream, struct holdup *holdup)
{
    const struct lockstep_rank *rank = &lockstep->rank[other];
    const struct shape_coll *call = &head->op->shape.coll;
    struct lockstep_head theirs = {.index = -1};
    int awaited, waits;
    *stream = lockstep_stream_of(rank, call->axis, call->direction);
    if (*stream >= 0)
        theirs = lockstep_head(rank, *stream, n_steps);
    if (is_elsewhere(rank, &theirs, head, members)) {
        *holdup = (struct holdup){other, *stream};
        return 0;
    }
    if (!theirs.op || theirs.step != head->step ||
        (other != r && !lockstep_same_call(&lockstep->rank[r], head->op, rank, theirs.op)))
        return lockstep_mismatch(r, head, other, &theirs);
    waits = lockstep_waits_for(rank, &theirs, &awaited);
    if (waits >= 0 && holdup->rank < 0)
        *holdup = (struct holdup){other, waits};
    return 0;
}

/* When every member is there, counts have come to all: do they agree? */
static int check_counted(const struct lockstep *lockstep, int r, const struct lockstep_head *head,
                         const struct group *members, const int *streams, int64_t n_steps)
{
    for (int i = 0; i < members->size && head->op->shape.coll.counted; i++) {
        int other = group_rank(members, i);
        struct lockstep_head theirs = lockstep_head(&lockstep->rank[other], streams[i], n_steps);
        if (!lockstep_same_parts(&head->op->shape.coll.coll, members->me,
                                 &theirs.op->shape.coll.coll, i))
            return lockstep_mismatch(r, head, other, &theirs);
    }
    return 0;
}

/* Carry the head of a channel out when every member is there. */
static int try_collective(struct lockstep *lockstep, int r, int stream, int64_t n_steps,
                          struct holdup *holdup)
{
    struct lockstep_head head = lockstep_head(&lockstep->rank[r], stream, n_steps);
    struct group members = lockstep_members(&lockstep->rank[r], head.op);
    int *streams = must_alloc((size_t)members.size, sizeof *streams), rc = 0;
    *holdup = (struct holdup){-1, -1};
    for (int i = 0; i < members.size && rc == 0; i++)
        rc = meet(lockstep, r, &head, group_rank(&members, i), &members, n_steps, &streams[i],
                  holdup);
    if (rc == 0 && holdup->rank < 0)
        rc = check_counted(lockstep, r, &head, &members, streams, n_steps);
    if (rc == 0 && holdup->rank < 0)
        lockstep_collect(lockstep, &members, streams, n_steps);
    free(streams);
    return rc;
}

/*
 * Let the head of a stream of a rank happen, and before it whatever it waits for: one collective.
 * False when computing has to go on first, or when `depth` shows a ring.
 */
static int push(struct lockstep *lockstep, int r, int stream, int64_t n_steps, int depth,
                bool *moved)
{
    int channels = lockstep->rank[r].plan->n_channels;
    struct holdup holdup;
    if (stream < 1 || stream > channels || depth > lockstep->n_ranks * STREAMS)
        return 0;
    int rc = try_collective(lockstep, r, stream, n_steps, &holdup);
    if (rc)
        return rc;
    if (holdup.rank < 0) {
        *moved = true;
        return 0;
    }
    return push(lockstep, holdup.rank, holdup.stream, n_steps, depth + 1, moved);
}

/* One op further on compute and copy streams of every rank, or more: all that can go. */
static bool compute(struct lockstep *lockstep, int64_t n_steps, bool all)
{
    bool moved = false;
    for (int r = 0; r < lockstep->n_ranks; r++) {
        int copies = plan_copy_stream(lockstep->rank[r].plan);
        for (bool again = true; again; again = again && all) {
            again = try_compute(lockstep, r, 0, n_steps);
            if (copies > 0)
                again = try_compute(lockstep, r, copies, n_steps) || again;
            moved = moved || again;
        }
    }
    return moved;
}

static int early_collectives(struct lockstep *lockstep, int64_t n_steps, bool *moved)
{
    struct holdup holdup;
    for (int r = 0; r < lockstep->n_ranks; r++)
        for (int s = 1; s <= lockstep->rank[r].plan->n_channels; s++)
            while (lockstep_head(&lockstep->rank[r], s, n_steps).op) {
                int rc = try_collective(lockstep, r, s, n_steps, &holdup);
                if (rc)
                    return rc;
                if (holdup.rank >= 0)
                    break;
                *moved = true;
            }
    return 0;
}

/* The first rank that waits for communication gets it; at the end what is left is done. */
static int late_collective(struct lockstep *lockstep, int64_t n_steps, bool *moved)
{
    bool left = false;
    for (int r = 0; r < lockstep->n_ranks && !*moved; r++) {
        struct lockstep_rank *rank = &lockstep->rank[r];
        int streams[] = {0, plan_copy_stream(rank->plan)}, awaited;
        for (int i = 0; i < 2 && !*moved; i++) {
            struct lockstep_head head = lockstep_head(rank, streams[i], n_steps);
            left = left || head.op;
            int waits = head.op ? lockstep_waits_for(rank, &head, &awaited) : -1;
            int rc = push(lockstep, r, waits, n_steps, 0, moved);
            if (rc)
                return rc;
        }
    }
    return left ? 0 : early_collectives(lockstep, n_steps, moved);
}

static bool finished(const struct lockstep *lockstep, int64_t n_steps)
{
    for (int r = 0; r < lockstep->n_ranks; r++)
        for (int s = 0; s < lockstep->rank[r].n_streams; s++)
            if (lockstep_head(&lockstep->rank[r], s, n_steps).op)
                return false;
    return true;
}

static void begin(struct lockstep *lockstep, int n_steps, double *log)
{
    for (int r = 0; r < lockstep->n_ranks; r++) {
        struct lockstep_rank *rank = &lockstep->rank[r];
        for (int s = 0; s < rank->n_streams; s++)
            rank->stream[s].done = 0;
        rank->context.log = r == 0 ? log : NULL;
        rank->context.log_rows = n_steps;
        rank->context.log_next = 0;
    }
}

int lockstep_run(struct lockstep *lockstep, enum lockstep_order order, int n_steps, double *log)
{
    begin(lockstep, n_steps, log);
    for (bool moved = true; moved;) {
        int rc = 0;
        moved = false;
        if (order == LOCKSTEP_EARLY)
            rc = early_collectives(lockstep, n_steps, &moved);
        moved = compute(lockstep, n_steps, order == LOCKSTEP_LATE) || moved;
        if (rc == 0 && !moved && order == LOCKSTEP_LATE)
            rc = late_collective(lockstep, n_steps, &moved);
        if (rc)
            return rc;
    }
    if (!finished(lockstep, n_steps))
        return lockstep_stuck(lockstep, n_steps);
    lockstep->steps_done += n_steps;
    return 0;
}
