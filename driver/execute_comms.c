/* Communicators of an executor: as many as the plan has channels, made as somebody asks. */
#include "driver/execute.h"

#include <mpi.h>
#include <string.h>
#include <xxhash.h>

#include "base/err.h"
#include "driver/agree.h"
#include "driver/execute_fence.h"
#include "workloads/pack.h"

int execute_together(const struct execute_config *config, int code)
{
    return config->parent != NULL ? agree_quietly(code, config->parent) : code;
}

/* Counted calls at their largest. */
static int check_calls(const struct plan *plan, const struct comm *comm)
{
    int rc = 0;
    for (int i = 0; i < plan->n_ops && comm->type->takes != NULL; i++) {
        const struct shape_coll *s = &plan->ops[i].shape.coll;
        if (plan->ops[i].kind != OP_COLLECTIVE || plan->ops[i].stream != comm->stream)
            continue;
        int64_t most = s->most[0] > s->most[1] ? s->most[0] : s->most[1];
        struct coll call = s->coll;
        call.count = s->counted && most > call.count ? most : call.count;
        TRY(comm->type->takes(comm, &call));
    }
out:
    return rc;
}

int execute_open_comms(struct execute *e, const struct execute_config *config, struct comm *comms,
                       int *n_comms)
{
    int rc = 0;
    for (int i = 0; i < e->plan->n_channels; i++) {
        enum axis axis = e->plan->channel[i].axis;
        const struct group *group = &e->plan->layout.group[axis];
        rc = comm_open(&comms[i], config->backend->comm, config->parent, &e->device, 1 + i, axis,
                       group, e->plan->n_ops);
        *n_comms = i + (rc == 0);
        TRY(execute_together(config, rc == 0 ? check_calls(e->plan, &comms[i]) : rc));
    }
out:
    return rc;
}

/* ---- memory that the library is told of ---- */

static void close_comms(struct execute *e)
{
    for (int i = 0; i < e->n_comms; i++)
        comm_close(&e->comm[i]);
    memset(e->comm, 0, sizeof e->comm);
    e->n_comms = 0;
}

static bool calls_use(const struct plan *plan, int stream, int buffer)
{
    for (int i = 0; i < plan->n_ops; i++) {
        const struct op *op = &plan->ops[i];
        if (op->kind == OP_COLLECTIVE && op->stream == stream &&
            (op->t[0].buffer == buffer || op->t[1].buffer == buffer))
            return true;
    }
    return false;
}

/* Of an arena: all of it; of one that others share, as far as calls of any stream reach. */
static int64_t bytes_to_enrol(const struct plan *plan, int buffer)
{
    int64_t most = 0;
    if (!plan->packed || buffer != BUFFER_ACTIVATION)
        return plan->bytes[buffer];
    for (int stream = 1; stream <= plan->n_channels; stream++) {
        int64_t bytes = pack_called_bytes(plan, stream, buffer);
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* Where calls of groups lie in the arenas; of gathers and scatters the whole. */
static uint64_t places_of_calls(const struct plan *plan)
{
    uint64_t sum = 0;
    for (int i = 0; i < plan->n_ops; i++) {
        const struct op *op = &plan->ops[i];
        int kind = op->kind == OP_COLLECTIVE ? (int)op->shape.coll.coll.kind : -1;
        if (kind < 0 || kind == COLL_SEND || kind == COLL_RECV || kind == COLL_SENDRECV)
            continue;
        const struct tensor *to = &op->t[kind == COLL_REDUCE_SCATTER ? 0 : 1];
        const struct tensor *from = kind == COLL_ALL_GATHER ? to : &op->t[0];
        int64_t place[] = {op->stream, from->buffer, from->offset, to->buffer, to->offset};
        sum = XXH3_64bits_withSeed(place, sizeof place, sum);
    }
    return sum;
}

/* Windows are of one size on all members, and calls lie at one place in them; here: on all ranks. */
static int check_sizes(const struct execute *e, const void *comm)
{
    enum { N = PLAN_BUFFERS + 1 };
    int64_t least[N], most[N];
    for (int b = 1; b < PLAN_BUFFERS; b++)
        least[b] = most[b] = bytes_to_enrol(e->plan, b);
    least[0] = most[0] = execute_has_scratch(e);
    least[N - 1] = most[N - 1] = (int64_t)(places_of_calls(e->plan) >> 1);
    MPI_Allreduce(MPI_IN_PLACE, least, N, MPI_INT64_T, MPI_MIN, *(const MPI_Comm *)comm);
    MPI_Allreduce(MPI_IN_PLACE, most, N, MPI_INT64_T, MPI_MAX, *(const MPI_Comm *)comm);
    for (int b = 0; b < PLAN_BUFFERS; b++)
        if (least[b] != most[b])
            return fail(FAIL_ABSENT,
                        "comm: no windows: ranks of this layout hold different amounts of memory");
    if (least[N - 1] != most[N - 1])
        return fail(FAIL_ABSENT, "comm: no windows: calls lie at different places of the ranks");
    return 0;
}

/* Making a window is collective: no rank goes on to the next while another has given up. */
static int enrol_one(struct comm *comm, void *memory, size_t bytes, enum comm_enrolment how,
                     const void *parent)
{
    int rc = comm->type->enrol(comm, memory, bytes, how);
    return how == ENROL_WINDOWS ? agree_quietly(rc, parent) : rc;
}

static int enrol(struct execute *e, struct comm *comm, enum comm_enrolment how, const void *parent)
{
    int rc = 0;
    for (int b = 1; b < PLAN_BUFFERS; b++) {
        size_t bytes = (size_t)bytes_to_enrol(e->plan, b);
        if (bytes == 0 || !calls_use(e->plan, comm->stream, b))
            continue;
        TRY(enrol_one(comm, e->memory[b], bytes, how, parent));
        if (e->scratch[b] != NULL)
            TRY(enrol_one(comm, e->scratch[b], bytes, how, parent));
    }
out:
    return rc;
}

/* ---- as asked ---- */

/* On every channel. What the library, or the plan, has against it. */
static int tell(struct execute *e, const struct execute_config *config, enum comm_enrolment how)
{
    int told = how == ENROL_WINDOWS ? check_sizes(e, config->parent) : 0;
    for (int i = 0; i < e->n_comms && how != ENROL_NOTHING && told == 0; i++)
        told = enrol(e, &e->comm[i], how, config->parent);
    return told;
}

int execute_make_comms(struct execute *e, const struct execute_config *config,
                       const struct comm_setup *setup, bool *refused)
{
    const struct comm_type *type = config->backend->comm;
    int rc = 0;
    *refused = false;
    close_comms(e);
    if (e->plan->n_channels == 0)
        return 0;
    if (type->set_up != NULL)
        *refused = execute_together(config, type->set_up(setup)) != 0;
    if (*refused)
        return 0;
    TRY(execute_open_comms(e, config, e->comm, &e->n_comms));
    *refused = execute_together(config, tell(e, config, setup->enrolment)) != 0;
out:
    return rc;
}
