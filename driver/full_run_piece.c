/* The rows of a run on their way to the study file. */
#include "driver/full_run_part.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/wall.h"
#include "base/err.h"
#include "base/units.h"
#include "driver/agree.h"
#include "driver/clock.h"
#include "driver/point_row.h"
#include "driver/watchdog.h"

static void take_intervals(const struct run_log *log, struct record_point *rows)
{
    int64_t n = log->n - log->published;
    if (n > 0)
        memcpy(RECORD_ADD(&rows->intervals, n), log->rows + log->published,
               (size_t)n * sizeof *log->rows);
}

static int publish(struct full_run *x, struct record_point *piece)
{
    int rc = 0;
    piece->point = x->at->rows->point;
    piece->point.end_ns = x->end_ns - x->at->job->t0_ns;
    piece->point.final_loss = x->m->final_loss;
    piece->point.initial_loss = x->m->initial_loss;
    take_intervals(&x->log, piece);
    TRY(record_append_piece(x->at->job->record, piece, x->pieces));
    TRY(run_log_published(&x->log, x->pieces));
out:
    return rc;
}

/* Collective. Behind it the rows are in no memory any more. */
int full_run_piece(struct full_run *x)
{
    struct record_point piece;
    int64_t begin = clock_global_ns(&x->m->clock, units_now_ns());
    int rc = 0;
    memset(&piece, 0, sizeof piece);
    watchdog_at("publish a piece of the run", x->pieces, "all ranks of the point");
    TRY(clock_measure(&x->m->clock, 1, x->m->parent));
    TRY(measure_gather(x->m, &piece));
    record_point_release(&x->m->local);
    x->pieces++;
    if (full_run_is_first(x))
        rc = x->failed ? x->failed : publish(x, &piece);
    TRY(agree_quietly(rc, x->m->parent));
    full_run_interval(x, "file", begin, clock_global_ns(&x->m->clock, units_now_ns()),
                      full_run_done(x), 0, "");
    x->piece_ns = x->end_ns;
    x->stretch = true;
out:
    record_point_release(&piece);
    return rc;
}

/* Time that no interval claims is said, as it limits what the account is worth. */
static void say_open(const struct wall *wall, struct record_point *rows, int64_t at_ns)
{
    struct event_row *event;
    if (wall_closes(wall))
        return;
    event = RECORD_ADD(&rows->events, 1);
    event->rank = -1;
    event->at_ns = at_ns;
    point_text(event->kind, sizeof event->kind, "warning");
    snprintf(event->text, sizeof event->text,
             "the account of the run does not close: %.2f %% of its wall time is in no bucket, at "
             "most %.0f %% is allowed",
             100.0 * (double)wall->rank_ns[WALL_OTHER] /
                 ((double)(wall->end_ns - wall->begin_ns) * wall->ranks),
             100 * WALL_OTHER_MOST);
    fprintf(stderr, "scalestudy: %s\n", event->text);
}

/* The steps were made all the same: a log whose times have no sense takes nothing with it but the account. */
static void say_none(struct record_point *rows, int64_t at_ns)
{
    char words[400];
    snprintf(words, sizeof words, "the run has no account of its wall time: %.300s",
             fail_message());
    fail_clear();
    point_event(rows, "warning", at_ns, words);
    fprintf(stderr, "scalestudy: %s\n", words);
}

int full_run_last_rows(struct full_run *x)
{
    struct interval_row *rows = NULL;
    struct wall wall;
    int64_t n = 0;
    int rc = 0;
    if (!full_run_is_first(x))
        return 0;
    take_intervals(&x->log, x->at->rows);
    TRY(run_log_read(&x->log, &rows, &n));
    if (wall_account(&wall, rows, n) == 0) {
        wall_rows(&wall, x->at->rows);
        say_open(&wall, x->at->rows, units_now_ns() - x->at->job->t0_ns);
    } else {
        say_none(x->at->rows, units_now_ns() - x->at->job->t0_ns);
    }
    wall_release(&wall);
out:
    free(rows);
    return rc;
}
