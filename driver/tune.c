#include "driver/tune.h"

#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/units.h"
#include "driver/agree.h"
#include "driver/execute_fence.h"
#include "driver/execute_graph.h"
#include "driver/watchdog.h"

enum { STEPS = 8 }; /* of a block, at most */
static const double worth_it = 0.995;
static const double lead_share = 0.5, heat_share = 3; /* of the seconds of a candidate */

static const char *const enrolment_names[COMM_ENROLMENTS] = {"nothing registered", "buffers",
                                                             "windows"};

/* Communicators made as a row says; *refused: the library would not, on some rank, whose words are kept
 * there. */
static int make(struct execute *e, const struct execute_config *config, const struct tune_row *row,
                bool *refused)
{
    int rc = 0;
    for (int i = 0; i < e->plan->n_channels && e->device.type->prioritise != NULL; i++)
        rc = rc ? rc : e->device.type->prioritise(&e->device, 1 + i, !row->beside);
    TRY(agree_quietly(rc, config->parent));
    TRY(execute_make_comms(e, config, &row->setup, refused));
out:
    return rc;
}

/* ---- times ---- */

/* Steps of a block that takes so long, when one takes `pace` ms (0: not known); two have a time between
 * their ends. */
static int block_steps(const struct execute *e, double seconds, double pace)
{
    int most = e->max_steps < STEPS ? e->max_steps : STEPS;
    double fit = pace > 0 ? fmax(ceil(seconds * 1e3 / pace), 1) + 1 : most;
    return fit < most ? (int)fit : most;
}

/* A block's time between ends of steps, of the slowest rank; one step alone has only its own. */
static double block_ms(struct execute *e, enum variant variant, int n, int *steps, const void *comm)
{
    struct execute_samples samples;
    int first = n > 1 ? 0 : -1;
    execute_block(e, variant, 0, n, -1, &samples);
    int64_t begin = first < 0 ? samples.step[0].start_ns : samples.step[0].end_ns;
    double ms = (double)(samples.step[n - 1].end_ns - begin) / 1e6;
    execute_samples_release(&samples);
    MPI_Allreduce(MPI_IN_PLACE, &ms, 1, MPI_DOUBLE, MPI_MAX, *(const MPI_Comm *)comm);
    *steps = n > 1 ? n - 1 : 1;
    return ms;
}

/* ms a step of blocks of full steps, at least one, until they have taken so long on all ranks. */
static double full_ms(struct execute *e, double seconds, double pace, int *steps, const void *comm)
{
    const int block = block_steps(e, seconds, pace);
    double ms = 0;
    *steps = 0;
    do {
        int n;
        ms += block_ms(e, VARIANT_FULL, block, &n, comm);
        *steps += n;
    } while (ms < seconds * 1e3);
    return ms / *steps;
}

/* Connections are made in the first calls, and a processor that has rested is fast for a while. */
static int try_row(const struct tune *t, struct execute *e, const struct execute_config *config,
                   struct tune_row *row)
{
    int rc = 0, n;
    watchdog_at("tune communicators", row->setup.max_ctas, enrolment_names[row->setup.enrolment]);
    TRY(make(e, config, row, &row->refused));
    if (row->refused) {
        fail_clear();
        goto out;
    }
    full_ms(e, t->each_s * lead_share, t->pace_ms, &n, config->parent);
    row->step_ms = full_ms(e, t->each_s, t->pace_ms, &row->steps, config->parent);
    row->alone_ms =
        block_ms(e, VARIANT_COMM, block_steps(e, t->each_s, t->pace_ms), &n, config->parent);
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
    int rc = try_row(t, e, config, row);
    t->n++;
    return rc;
}

/* Shorter than the library's own before and behind it, and by something of their mean. */
static bool is_shorter(const struct tune_row *turn)
{
    double before = turn[-1].step_ms, behind = turn[1].step_ms;
    return !turn->refused && turn->step_ms < fmin(before, behind) &&
           turn->step_ms < worth_it * (before + behind) / 2;
}

/* The favourite's further turns, each between two of the library's own: what drifts is in both. */
static int decide(struct tune *t, struct execute *e, const struct execute_config *config)
{
    static const struct comm_setup own;
    const int favourite = best(t, 1), first = t->n + 1;
    bool every = true;
    int rc = 0;
    if (favourite < 0)
        goto out;
    const struct tune_row row = t->row[favourite];
    TRY(try_next(t, e, config, ENROL_NOTHING, own, false));
    for (int turn = 0; turn < TUNE_TURNS; turn++) {
        TRY(try_next(t, e, config, row.setup.enrolment, row.setup, row.beside));
        TRY(try_next(t, e, config, ENROL_NOTHING, own, false));
        every = every && is_shorter(&t->row[first + 2 * turn]);
    }
    t->chosen = every ? first : 0;
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
    out->pace_ms = full_ms(e, seconds * heat_share, 0, &steps, config->parent);
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

void tune_asked(struct tune *out, const struct comm_setup *setup)
{
    *out = (struct tune){.n = 1};
    out->row[0].setup = *setup;
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
                            row->alone_ms, i >= TUNE_CANDIDATES ? " (again)" : "", taken);
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
