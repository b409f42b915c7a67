/* The checkpoints of a run: when one is called, what is waited for. */
#include "driver/full_run_part.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/units.h"
#include "driver/agree.h"
#include "driver/checkpoint_section.h"
#include "driver/clock.h"
#include "driver/watchdog.h"

static int64_t now(const struct full_run *x)
{
    return clock_global_ns(&x->m->clock, units_now_ns());
}

void full_run_say(const struct full_run *x, const char *what, int64_t step)
{
    if (!x->at->job->study.drill || !full_run_is_first(x))
        return;
    printf("# drill: %s %lld\n", what, (long long)step);
    fflush(stdout);
}

int full_run_saver_open(struct full_run *x)
{
    const struct job *job = x->at->job;
    int rc = 0;
    if (!x->ask.saves)
        return 0;
    checkpoint_ask_root(job, x->at->point, x->root, sizeof x->root);
    struct saver_config config = {.execute = x->m->execute,
                                  .parent = x->m->parent,
                                  .root = x->root,
                                  .shared = x->ask.shared,
                                  .needs_snapshot = checkpoint_ask_has(&x->ask, SAVE_SNAPSHOT),
                                  .keep = job->study.checkpoint_keep,
                                  .throttle_bytes_per_s = job->study.test_throttle,
                                  .continues = x->past.begun,
                                  .begin_step = job->begin_step};
    checkpoint_ask_terms(job, x->at->point, &config.terms);
    checkpoint_ask_about(job, x->m->layout, &config.about);
    int crowded = x->at->rows->point.oversubscribed; /* rank 0 knows */
    TRY(agree_broadcast(&crowded, sizeof crowded, 0, x->m->parent));
    config.crowded = crowded;
    TRY(saver_open(&x->saver, &config));
    if (full_run_is_first(x))
        checkpoint_section_place_notes(&x->saver, x->root, x->at->rows);
out:
    return rc;
}

/* ---- what is over ---- */

/* Rank 0's row of intervals, and every rank's of checkpoints. */
static void ended(struct full_run *x, int index)
{
    const struct saver_slot *slot = &x->saver.slot[index];
    const struct full_run_save *pending = &x->pending[index];
    struct checkpoint_row *row = RECORD_ADD(&x->m->local.checkpoints, 1);
    bool lost = slot->state == SAVE_LOST;
    checkpoint_section_row(&x->saver, index, row);
    row->save = pending->save;
    row->flags |= pending->flags;
    row->wait_ns = pending->wait_ns;
    x->pending[index].save = -1;
    x->behind = FULL_RUN_BEHIND;
    if (!lost)
        drill_saved(&x->drill, slot->complete_ns);
    full_run_say(x, lost ? "lost" : "published", slot->step);
    full_run_interval(x, "save", slot->call_begin_ns,
                      lost ? slot->call_end_ns : slot->call_begin_ns + slot->complete_ns,
                      slot->step, lost ? INTERVAL_LOST : 0, save_mode_name(slot->mode));
}

static int poll(struct full_run *x)
{
    int over = -1, rc = 0;
    TRY(saver_poll(&x->saver, &over));
    if (over >= 0)
        ended(x, over);
out:
    return rc;
}

int full_run_after_block(struct full_run *x)
{
    int64_t begin = now(x);
    int rc = 0;
    if (!x->ask.saves)
        return 0;
    for (int i = 0; i < x->saver.n_slots; i++) /* sync: over within its call */
        if (x->saver.slot[i].state >= SAVE_PUBLISHED && x->pending[i].save >= 0)
            ended(x, i);
    TRY(poll(x));
    if (now(x) - begin >= FULL_RUN_POLL_NS) /* publishing, and the next one's files */
        full_run_interval(x, "save-wait", begin, now(x), full_run_done(x), 0, "poll");
out:
    return rc;
}

int full_run_wait(struct full_run *x)
{
    int64_t begin = now(x);
    int rc = 0;
    if (!x->ask.saves || saver_under_way(&x->saver) == 0)
        return 0;
    x->stretch = true;
    while (saver_under_way(&x->saver) > 0) {
        watchdog_at("wait for a checkpoint", full_run_done(x), "its writers");
        TRY(poll(x));
    }
    full_run_interval(x, "save-wait", begin, now(x), full_run_done(x), 0, "");
out:
    return rc;
}

/* ---- the call ---- */

int64_t full_run_until_call(const struct full_run *x)
{
    if (!x->ask.saves || x->ask.every_steps <= 0)
        return INT64_MAX;
    return x->called_step + x->ask.every_steps - full_run_done(x);
}

static bool is_due(const struct full_run *x)
{
    if (x->ask.every_steps > 0)
        return full_run_until_call(x) <= 0;
    if (x->ask.every_ns > 0)
        return x->end_ns - x->called_ns >= x->ask.every_ns;
    bool again = saver_can_call(&x->saver) || full_run_done(x) >= x->called_step + FULL_RUN_BEHIND;
    return saver_under_way(&x->saver) == 0 && x->behind == 0 && again;
}

/* Room for a call: the save before is over, and a slot is ready. */
static int make_room(struct full_run *x, int64_t *wait_ns, bool *room)
{
    int64_t begin = units_now_ns();
    bool waits = saver_under_way(&x->saver) > 0;
    int rc = 0;
    TRY(full_run_wait(x));
    if (!saver_can_call(&x->saver))
        TRY(poll(x)); /* what has just ended is made ready */
    TRY(saver_make_room(&x->saver));
    *wait_ns = waits ? units_now_ns() - begin : 0;
    *room = saver_can_call(&x->saver);
out:
    return rc;
}

static int call(struct full_run *x, bool *calls)
{
    bool late = saver_under_way(&x->saver) > 0;
    int64_t wait_ns = 0;
    int rc = 0;
    TRY(make_room(x, &wait_ns, calls));
    x->called_step = full_run_done(x);
    x->called_ns = x->end_ns;
    if (!*calls)
        return 0; /* said already; the last good one stays */
    for (int i = 0; i < x->saver.n_slots; i++)
        if (x->saver.slot[i].state == SAVE_READY)
            x->pending[i] = (struct full_run_save){
                x->saves, (x->saves == 0 ? CHECKPOINT_FIRST : 0) | (late ? CHECKPOINT_OVERLAPS : 0),
                wait_ns};
    x->saves++;
    saver_want(&x->saver, 0, (enum save_mode)x->ask.mode[0]);
    full_run_say(x, "call", x->called_step);
out:
    return rc;
}

int full_run_before_block(struct full_run *x, bool *calls)
{
    *calls = false;
    if (!x->ask.saves || x->steps == 0 || full_run_done(x) == x->called_step || !is_due(x))
        return 0;
    return call(x, calls);
}

/* The hook of the step is called without one: the device has nothing else to do. */
int full_run_save_now(struct full_run *x)
{
    struct execute *e = x->m->execute;
    bool calls = false;
    int rc = 0;
    if (!x->ask.saves || full_run_done(x) == x->called_step)
        return full_run_wait(x);
    TRY(call(x, &calls));
    if (!calls)
        return 0;
    int64_t begin = now(x);
    e->waits_before = e->device.host_waits;
    e->hook.step(e->hook.arg, 0);
    e->device.type->sync(&e->device);
    saver_collect(&x->saver);
    full_run_interval(x, "save-wait", begin, now(x), full_run_done(x), 0, "call");
    TRY(full_run_after_block(x));
    TRY(full_run_wait(x));
out:
    return rc;
}
