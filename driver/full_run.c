#include "driver/full_run_part.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/units.h"
#include "driver/agree.h"
#include "driver/clock.h"
#include "driver/point_row.h"
#include "driver/preempt.h"
#include "driver/watchdog.h"

bool full_run_wanted(const struct study *study)
{
    return study->run_steps > 0;
}

bool full_run_is_unsaved(const struct record_point *rows)
{
    for (int64_t i = 0; i < rows->events.n; i++)
        if (strncmp(rows->events.rows[i].kind, FULL_RUN_UNSAVED,
                    sizeof rows->events.rows[i].kind) == 0)
            return true;
    return false;
}

/* ---- refusals ---- */

int full_run_options(const struct study *study)
{
    struct checkpoint_ask ask;
    int rc = 0;
    TRY(drill_options(study));
    if (!full_run_wanted(study))
        return 0;
    if (study->base == BASE_LOADED)
        return fail(FAIL_USAGE, "--base loaded: a run (--run-steps) has no copies beside it: take "
                                "alone");
    checkpoint_ask_read(&ask, study);
    if (ask.n_modes > 1)
        return fail(FAIL_USAGE, "--checkpoint-mode %s: a run saves in one mode, found %d",
                    study->checkpoint_mode, ask.n_modes);
    if (!ask.saves && (ask.every_steps > 0 || ask.every_ns > 0))
        return fail(FAIL_USAGE, "--checkpoint-every %s: wanted --checkpoint-dir D, where to save",
                    study->checkpoint_every);
    if (ask.saves && ask.every_steps > study->run_steps)
        return fail(FAIL_USAGE,
                    "--checkpoint-every %s: the run has %lld step%s and would end before its first "
                    "save: take a smaller interval, or more --run-steps",
                    study->checkpoint_every, (long long)study->run_steps,
                    units_s((double)study->run_steps));
out:
    return rc;
}

int full_run_check(const struct job *job)
{
    return drill_check(job);
}

/* Stamps of a block stay within some ten thousand. */
int full_run_most(const struct study *study, const struct plan *plan)
{
    int64_t most = 65536 / (plan->n_ops > 0 ? plan->n_ops : 1);
    most = most < 256 ? most : 256;
    return (int)(most > study->block + 1 ? most : study->block + 1);
}

/* ---- blocks ---- */

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* A second of steps, none beyond the next call; the first step of a launch stands alone. */
static int block_length(const struct full_run *x, bool calls)
{
    bool saves = calls || x->behind > 0 || saver_under_way(&x->saver) > 0;
    int64_t long_ns = saves ? FULL_RUN_SAVING_BLOCK_NS : FULL_RUN_BLOCK_NS;
    int64_t n = x->steps == 0 ? 1 : x->step_ns > 0 ? long_ns / x->step_ns : 1;
    n = least(n, x->m->execute->max_steps);
    n = least(n, x->target - full_run_done(x));
    if (x->steps < x->warm_up)
        n = least(n, x->warm_up - x->steps);
    int64_t until = full_run_until_call(x);
    if (until > 0)
        n = least(n, until);
    return (int)(n > 1 ? n : 1);
}

static int go_on(struct full_run *x)
{
    int rc = 0;
    while (full_run_done(x) < x->target && x->signal == 0) {
        bool calls, first = x->steps == 0;
        TRY(full_run_before_block(x, &calls));
        TRY(full_run_block(x, block_length(x, calls), calls));
        TRY(full_run_after_block(x));
        if (first && x->at->job->study.drill && full_run_is_first(x)) {
            printf("# drill: stepped %lld\n", (long long)full_run_done(x));
            fflush(stdout);
        }
        if (x->end_ns - x->piece_ns >= FULL_RUN_PIECE_NS)
            TRY(full_run_piece(x));
    }
out:
    return rc;
}

/* ---- begin ---- */

static int64_t now(const struct full_run *x)
{
    return clock_global_ns(&x->m->clock, units_now_ns());
}

/* The host's clock was set back, or is another host's: how long nobody trained is not known. */
static void say_moved(const struct full_run *x)
{
    char words[200];
    double behind_s = (double)x->log.moved_ns / 1e9;
    if (behind_s < 1)
        return;
    snprintf(words, sizeof words,
             "the clock of this host is %.0f s behind what the launch before wrote: this launch is "
             "recorded as if it had followed at once",
             behind_s);
    point_event(x->at->rows, "warning", units_now_ns() - x->at->job->t0_ns, words);
    fprintf(stderr, "scalestudy: %s\n", words);
}

/* Rank 0 knows what was before; all must do the same. */
static int open_log(struct full_run *x)
{
    const struct full_run_at *at = x->at;
    int rc = 0;
    x->log.fd = -1;
    if (full_run_is_first(x))
        rc = run_log_open(&x->log, at->job, at->point, &x->past);
    TRY(agree_quietly(rc, x->m->parent));
    TRY(agree_broadcast(&x->past, sizeof x->past, 0, x->m->parent));
    say_moved(x);
    if (at->order == 0)
        full_run_interval(x, "launch", at->job->begin_ns, at->start_ns, 0, 0, "");
out:
    return rc;
}

static int begin(struct full_run *x)
{
    const struct full_run_at *at = x->at;
    char words[64];
    int rc = 0;
    x->warm_up = at->job->study.warm_up;
    x->stretch = true;
    checkpoint_ask_read(&x->ask, &at->job->study);
    TRY(clock_measure(&x->m->clock, 0, x->m->parent));
    TRY(open_log(x));
    TRY(full_run_saver_open(x));
    int64_t opened = now(x);
    TRY(full_run_load(x));
    if (x->ask.saves)
        TRY(saver_drop_orphans(&x->saver));
    x->first = x->called_step = full_run_done(x);
    x->m->final_loss = NAN; /* of no step */
    x->target = x->past.begun ? x->past.target : x->first + at->job->study.run_steps;
    snprintf(words, sizeof words, "to step %lld", (long long)x->target);
    full_run_start_up(x, at->start_ns, opened, words);
    rc = drill_open(&x->drill, at->job, at->point, x->m->layout->rank, x->first, x->target);
    TRY(agree_quietly(rc, x->m->parent));
    x->end_ns = now(x);
    TRY(agree_broadcast(&x->end_ns, sizeof x->end_ns, 0, x->m->parent));
    x->called_ns = x->piece_ns = x->end_ns;
out:
    return rc;
}

/* ---- end ---- */

/* A victim that is still there: no moment of the kind that was asked for came. */
static int drill_is_over(struct full_run *x)
{
    int rc = 0;
    if (x->drill.armed)
        rc = fail(FAIL_USAGE,
                  "drill: nothing was killed: %s came behind a published checkpoint: take more "
                  "--run-steps, or a smaller --checkpoint-every",
                  x->drill.moment == DRILL_SAVE ? "no second save" : "no step");
    drill_close(&x->drill);
    return agree_quietly(rc, x->m->parent);
}

static void instant(struct full_run *x, const char *kind, int flags, const char *text)
{
    int64_t at = now(x);
    full_run_books(x, at, 0);
    full_run_interval(x, kind, at, at, full_run_done(x), flags, text);
}

/* Is there a checkpoint of where the run is? */
static bool is_saved(const struct full_run *x)
{
    int64_t n = x->saver.n_published, done = full_run_done(x);
    if (n > 0)
        return x->saver.published[n - 1] == done && saver_keeps_last(&x->saver);
    return x->ask.saves && x->steps == 0 && done > 0;
}

/* Saves were asked for, and the last state is in none: whoever goes on begins earlier. */
static void say_unsaved(const struct full_run *x)
{
    char newest[64] = "no checkpoint was published";
    int64_t n = x->saver.n_published;
    if (!full_run_is_first(x) || !x->ask.saves || is_saved(x))
        return;
    if (n > 0)
        snprintf(newest, sizeof newest, "the newest checkpoint%s of step %lld%s",
                 saver_keeps_last(&x->saver) ? " is" : ",", (long long)x->saver.published[n - 1],
                 saver_keeps_last(&x->saver) ? "" : ", is gone");
    struct event_row *event = RECORD_ADD(&x->at->rows->events, 1);
    event->rank = -1;
    event->at_ns = units_now_ns() - x->at->job->t0_ns;
    point_text(event->kind, sizeof event->kind, FULL_RUN_UNSAVED);
    snprintf(event->text, sizeof event->text, "the end of the run, step %lld, is not saved: %s",
             (long long)full_run_done(x), newest);
    fprintf(stderr, "scalestudy: %s\n", event->text);
}

/* Known now only: how long a run takes nobody knows before. */
static void say_not_due(struct full_run *x)
{
    char words[160];
    bool due = x->saves > 0 || x->end_ns - x->called_ns >= x->ask.every_ns;
    if (!full_run_is_first(x) || !x->ask.saves || x->ask.every_ns == 0 || x->steps == 0 || due)
        return;
    snprintf(words, sizeof words,
             "no save was due within the %s: --checkpoint-every %s is longer than it",
             x->past.begun ? "launch" : "run", x->at->job->study.checkpoint_every);
    point_event(x->at->rows, "note", units_now_ns() - x->at->job->t0_ns, words);
    printf("# %s\n", words);
    fflush(stdout);
}

static int finish(struct full_run *x)
{
    int rc = 0;
    TRY(drill_is_over(x));
    say_not_due(x);
    TRY(full_run_save_now(x)); /* what was trained is worth keeping, due or not */
    say_unsaved(x);
    instant(x, "end", 0, "");
    TRY(clock_measure(&x->m->clock, 1, x->m->parent));
    rc = x->failed ? x->failed : full_run_last_rows(x);
    TRY(agree_quietly(rc, x->m->parent));
    measure_judge(x->m);
out:
    return rc;
}

/* What there is is published before anybody leaves. */
static int stop(struct full_run *x)
{
    const char *name = preempt_name(x->signal);
    int rc = 0;
    drill_close(&x->drill);
    instant(x, "preempted", 0, name);
    TRY(full_run_save_now(x));
    instant(x, "end", INTERVAL_STOPS, "");
    TRY(full_run_piece(x));
    rc = fail(FAIL_STOPPED, "run: stopped by %s at step %lld of %lld, %s: --resume goes on", name,
              (long long)full_run_done(x), (long long)x->target,
              is_saved(x) ? "which is saved" : "with no checkpoint of it");
out:
    return rc;
}

int full_run(const struct full_run_at *at)
{
    struct full_run x = {.at = at, .m = at->measure, .log = {.fd = -1}};
    int64_t start = units_now_ns();
    int rc = 0;
    TRY(begin(&x));
    x.signal = 0;
    TRY(go_on(&x));
    TRY(x.signal != 0 ? stop(&x) : finish(&x));
    at->measure->timed_s = (double)(units_now_ns() - start) / 1e9;
out:
    drill_close(&x.drill);
    saver_close(&x.saver);
    run_log_close(&x.log);
    return rc;
}
