#include "driver/tune.h"

#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/err.h"
#include "base/units.h"
#include "driver/agree.h"
#include "driver/execute_fence.h"
#include "driver/execute_graph.h"
#include "driver/watchdog.h"
#include "workloads/pack.h"

enum { STEPS = 8 }; /* of a block, at most */
static const double worth_it = 0.995;
static const double lead_share = 0.5, heat_share = 3; /* of the seconds of a candidate */

static const char *const enrolment_names[COMM_ENROLMENTS] = {"nothing registered", "buffers",
                                                             "windows"};

/* ---- communicators ---- */

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
            return fail(FAIL_ABSENT, "tune: ranks hold different amounts: no windows");
    if (least[N - 1] != most[N - 1])
        return fail(FAIL_ABSENT, "tune: calls lie at different places of the ranks: no windows");
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

/* Communicators made as a row says; *refused: the library would not, on some rank, whose words are kept
 * there. */
static int make(struct execute *e, const struct execute_config *config, const struct tune_row *row,
                bool *refused)
{
    int rc = 0, told = 0;
    close_comms(e);
    for (int i = 0; i < e->plan->n_channels && e->device.type->prioritise != NULL; i++)
        rc = rc ? rc : e->device.type->prioritise(&e->device, 1 + i, !row->beside);
    TRY(agree_quietly(rc, config->parent));
    *refused = agree_quietly(config->backend->comm->set_up(&row->setup), config->parent) != 0;
    if (*refused)
        return 0;
    TRY(execute_open_comms(e, config, e->comm, &e->n_comms));
    if (row->setup.enrolment == ENROL_WINDOWS)
        told = check_sizes(e, config->parent);
    for (int i = 0; i < e->n_comms && row->setup.enrolment != ENROL_NOTHING && told == 0; i++)
        told = enrol(e, &e->comm[i], row->setup.enrolment, config->parent);
    *refused = agree_quietly(told, config->parent) != 0;
out:
    return rc;
}

/* ---- times ---- */

/* A block's time between ends of steps, of the slowest rank; one step alone has only its own. */
static double block_ms(struct execute *e, enum variant variant, int *steps, const void *comm)
{
    struct execute_samples samples;
    int n = e->max_steps < STEPS ? e->max_steps : STEPS, first = n > 1 ? 0 : -1;
    execute_block(e, variant, 0, n, -1, &samples);
    int64_t begin = first < 0 ? samples.step[0].start_ns : samples.step[0].end_ns;
    double ms = (double)(samples.step[n - 1].end_ns - begin) / 1e6;
    execute_samples_release(&samples);
    MPI_Allreduce(MPI_IN_PLACE, &ms, 1, MPI_DOUBLE, MPI_MAX, *(const MPI_Comm *)comm);
    *steps = n > 1 ? n - 1 : 1;
    return ms;
}

/* ms a step of blocks of full steps, at least one, until they have taken so long on all ranks. */
static double full_ms(struct execute *e, double seconds, int *steps, const void *comm)
{
    double ms = 0;
    *steps = 0;
    do {
        int n;
        ms += block_ms(e, VARIANT_FULL, &n, comm);
        *steps += n;
    } while (ms < seconds * 1e3);
    return ms / *steps;
}

/* Connections are made in the first calls, and a processor that has rested is fast for a while. */
static int try_row(struct execute *e, const struct execute_config *config, struct tune_row *row,
                   double seconds)
{
    int rc = 0, n;
    watchdog_at("tune communicators", row->setup.max_ctas, enrolment_names[row->setup.enrolment]);
    TRY(make(e, config, row, &row->refused));
    if (row->refused) {
        fail_clear();
        goto out;
    }
    full_ms(e, seconds * lead_share, &n, config->parent);
    row->step_ms = full_ms(e, seconds, &row->steps, config->parent);
    row->alone_ms = block_ms(e, VARIANT_COMM, &n, config->parent);
    row->alone_ms /= n;
out:
    return rc;
}

/* The fastest row from `from` on, -1. */
static int best(const struct tune *t, int from)
{
    int at = -1;
    for (int i = from; i < t->n; i++)
        if (!t->row[i].refused && (at < 0 || t->row[i].step_ms < t->row[at].step_ms))
            at = i;
    return at;
}

static int try_next(struct tune *t, struct execute *e, const struct execute_config *config,
                    enum comm_enrolment enrolment, struct comm_setup setup, bool beside)
{
    struct tune_row *row = &t->row[t->n];
    *row = (struct tune_row){.setup = setup, .beside = beside};
    row->setup.enrolment = enrolment;
    int rc = try_row(e, config, row, t->each_s);
    t->n++;
    return rc;
}

/* The favourite once more between two turns of the library's own way: whatever drifts is in all three. */
static int decide(struct tune *t, struct execute *e, const struct execute_config *config)
{
    static const struct comm_setup own;
    const int favourite = best(t, 1);
    int rc = 0;
    if (favourite < 0)
        goto out;
    const struct tune_row row = t->row[favourite];
    TRY(try_next(t, e, config, ENROL_NOTHING, own, false));
    TRY(try_next(t, e, config, row.setup.enrolment, row.setup, row.beside));
    TRY(try_next(t, e, config, ENROL_NOTHING, own, false));
    const struct tune_row *last = &t->row[t->n - 1], *between = last - 1, *before = last - 2;
    double mean = (before->step_ms + last->step_ms) / 2;
    double limit = fmin(worth_it * mean, fmin(before->step_ms, last->step_ms));
    t->chosen = !between->refused && between->step_ms < limit ? t->n - 2 : 0;
out:
    return rc;
}

int tune_comms(struct tune *out, struct execute *e, const struct execute_config *config,
               uint64_t seed, double seconds)
{
    static const struct comm_setup own = {0}, none = {.blocks = COMM_NO_BLOCKS},
                                   fewer[] = {{.blocks = COMM_FEW_BLOCKS},
                                              {.max_ctas = 16},
                                              {.max_ctas = 8},
                                              {.max_ctas = 4}};
    int64_t begin = units_now_ns();
    bool refused;
    int rc = 0, steps;
    *out = (struct tune){.each_s = seconds};
    if (e->n_comms == 0 || config->parent == NULL || config->backend->comm->set_up == NULL)
        return 0;
    execute_graph_close(e); /* its communicators are to be made like the others */
    execute_reset(e, seed);
    full_ms(e, seconds * heat_share, &steps, config->parent);
    for (int how = ENROL_NOTHING; how < COMM_ENROLMENTS; how++)
        TRY(try_next(out, e, config, (enum comm_enrolment)how, own, false));
    enum comm_enrolment how = out->row[best(out, 0)].setup.enrolment;
    TRY(try_next(out, e, config, ENROL_WINDOWS, none, false));
    for (size_t i = 0; i < sizeof fewer / sizeof fewer[0]; i++)
        TRY(try_next(out, e, config, how, fewer[i], false));
    const struct tune_row fastest = out->row[best(out, 0)];
    TRY(try_next(out, e, config, fastest.setup.enrolment, fastest.setup, true));
    TRY(decide(out, e, config));
    TRY(make(e, config, &out->row[out->chosen], &refused));
    if (refused) { /* now, though not before: the library's own way is always there */
        fail_clear();
        out->chosen = 0;
        TRY(make(e, config, &out->row[0], &refused));
    }
    if (config->graph)
        TRY(execute_graph_open(e, config));
    out->seconds = (double)(units_now_ns() - begin) / 1e9;
out:
    return rc;
}

int tune_take(struct tune *out, struct execute *e, const struct execute_config *config,
              const char *setup)
{
    bool refused;
    int rc = 0;
    *out = (struct tune){0};
    if (e->plan->n_channels == 0 || config->parent == NULL || config->backend->comm->set_up == NULL)
        return 0;
    execute_graph_close(e);
    TRY(comm_setup_parse(&out->row[0].setup, setup));
    TRY(make(e, config, &out->row[0], &refused));
    if (refused)
        return FAIL_ABSENT;
    out->n = 1;
    if (config->graph)
        TRY(execute_graph_open(e, config));
out:
    return rc;
}

/* ---- words ---- */

static size_t say_row(const struct tune *t, int i, char *text, size_t size)
{
    const struct tune_row *row = &t->row[i];
    const char *memory = enrolment_names[row->setup.enrolment];
    static const char *const words[COMM_BLOCKS] = {"the library's blocks", "few blocks",
                                                   "no blocks where copies do"};
    char ctas[32], setup[COMM_SETUP_TEXT], taken[64] = "";
    snprintf(ctas, sizeof ctas, "%s", words[row->setup.blocks]);
    if (row->setup.max_ctas > 0)
        snprintf(ctas, sizeof ctas, "at most %d blocks", row->setup.max_ctas);
    if (t->n == 1)
        return (size_t)snprintf(text, size, "%s, %s, as asked", memory, ctas);
    if (row->refused)
        return (size_t)snprintf(text, size, "%s, %s: refused", memory, ctas);
    comm_setup_text(&row->setup, setup);
    if (i == t->chosen)
        snprintf(taken, sizeof taken, " (taken%s%s)", row->beside ? "" : ": --comm-setup ",
                 row->beside ? "" : setup);
    return (size_t)snprintf(text, size, "%s, %s%s: step %.3f ms, calls alone %.3f ms%s%s", memory,
                            ctas, row->beside ? ", beside products" : "", row->step_ms,
                            row->alone_ms, i >= TUNE_ROWS - 3 ? " (again)" : "", taken);
}

void tune_say(const struct tune *tune, char *text, size_t size)
{
    enum { MOST = 200 }; /* characters of a line */
    size_t at = 0;
    text[0] = '\0';
    for (int i = 0; i < tune->n && at + MOST < size; i++) {
        if (i > 0)
            text[at++] = '\n';
        at += say_row(tune, i, text + at, MOST);
    }
}
