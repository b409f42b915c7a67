#include "driver/checkpoint_section.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/units.h"
#include "driver/agree.h"
#include "driver/checkpoint_gate.h"
#include "driver/checkpoint_place.h"
#include "driver/point_row.h"
#include "driver/watchdog.h"

enum { QUIET_LEAST = 5, QUIET_MOST = 200, BEHIND = 5 };

/* One point's section while it runs. */
struct section {
    const struct checkpoint_section *of;
    struct checkpoint_ask ask;
    struct saver saver;
    struct record_point *local; /* of measure */
    int turn;                   /* steps so far */
    int mode, save;             /* now */
    int64_t drained;            /* steps from the last call to the end of its save */
    struct pending {            /* of a slot */
        int mode, save, flags;
        int64_t wait_ns;
    } pending[SAVER_SLOTS];
};

/* ---- rows ---- */

void checkpoint_section_row(const struct saver *saver, int index, struct checkpoint_row *row)
{
    const struct saver_slot *slot = &saver->slot[index];
    const struct checkpoint_save *save = &slot->save;
    bool lost = slot->state == SAVE_LOST;
    point_text(row->kind, sizeof row->kind, "save");
    point_text(row->mode, sizeof row->mode, save_mode_name(slot->mode));
    point_text(row->file_system, sizeof row->file_system, saver->file_system);
    row->rank = saver->plan->layout.rank;
    row->flags = (save->was_direct ? CHECKPOINT_DIRECT : 0) | (lost ? CHECKPOINT_FAILED : 0);
    row->trained = slot->step;
    row->bytes = slot->bytes;
    row->call_ns = slot->call_end_ns - slot->call_begin_ns;
    row->blocked_ns = slot->blocked_ns;
    row->staged_ns = slot->staged_ns;
    row->written_ns = lost ? -1 : save->end_ns - slot->call_begin_ns;
    row->complete_ns = lost ? -1 : slot->complete_ns;
    row->first_quarter_ns = lost ? -1 : save->quarter_ns - save->begin_ns;
    row->last_quarter_ns = lost ? -1 : save->end_ns - save->three_quarters_ns;
    row->host_bytes = saver->host_bytes;
    row->read_ns = row->verify_ns = row->recut_ns = row->upload_ns = -1;
}

static void add_save(struct section *x, int index)
{
    const struct pending *pending = &x->pending[index];
    struct checkpoint_row *row = RECORD_ADD(&x->local->checkpoints, 1);
    checkpoint_section_row(&x->saver, index, row);
    row->save = pending->save;
    row->flags |= pending->flags;
    row->wait_ns = pending->wait_ns;
}

/* Local time; measure_gather() converts it. */
static void add_step(struct section *x, const struct step_row *step, enum drain_phase phase,
                     int64_t held_ns)
{
    struct drain_row *row = RECORD_ADD(&x->local->drains, 1);
    point_text(row->mode, sizeof row->mode, save_mode_name(x->mode));
    row->save = x->save;
    row->phase = (i32)phase;
    row->turn = x->turn++;
    row->rank = x->saver.plan->layout.rank;
    row->start_ns = step->start_ns;
    row->end_ns = step->end_ns;
    row->held_ns = held_ns;
}

/* ---- steps ---- */

static int ended(struct section *x, int index)
{
    if (index >= 0)
        add_save(x, index);
    return 0;
}

/* One step, and what is under way brought on behind it. */
static int one_step(struct section *x, enum drain_phase phase)
{
    struct execute *e = x->of->measure->execute;
    struct execute_samples samples;
    int over = -1, rc = 0;
    watchdog_at("step beside checkpoints", x->turn, save_mode_name(x->mode));
    execute_block(e, VARIANT_FULL, 0, 1, -1, &samples);
    int called = saver_collect(&x->saver);
    add_step(x, samples.step, phase, called >= 0 ? x->saver.slot[called].held_ns : 0);
    execute_samples_release(&samples);
    if (called >= 0 && x->saver.slot[called].state >= SAVE_PUBLISHED) /* within the call */
        ended(x, called);
    TRY(saver_poll(&x->saver, &over));
    ended(x, over);
out:
    return rc;
}

static int quiet_steps(struct section *x)
{
    int64_t n = x->drained < QUIET_LEAST  ? QUIET_LEAST
                : x->drained > QUIET_MOST ? QUIET_MOST
                                          : x->drained;
    int rc = 0;
    for (int64_t i = 0; i < n; i++)
        TRY(one_step(x, DRAIN_QUIET));
out:
    return rc;
}

/* Room for a save: polls without steps. False in *room: there will be none. */
static int wait_for_room(struct section *x, bool *room)
{
    int over, rc = 0;
    while (!saver_can_call(&x->saver) && saver_under_way(&x->saver) > 0) {
        TRY(saver_poll(&x->saver, &over));
        ended(x, over);
    }
    if (!saver_can_call(&x->saver))
        TRY(saver_poll(&x->saver, &over)); /* what has just ended is made ready */
    TRY(saver_make_room(&x->saver));
    *room = saver_can_call(&x->saver);
out:
    return rc;
}

/* Is the next call due? Rank 0's clock decides for all. */
static int is_due(struct section *x, int64_t steps, int64_t since_ns, int *due)
{
    *due = x->ask.every_ns > 0      ? units_now_ns() - since_ns >= x->ask.every_ns
           : x->ask.every_steps > 0 ? steps >= x->ask.every_steps
                                    : 0;
    return x->ask.every_ns > 0 ? agree_broadcast(due, sizeof *due, 0, x->of->measure->parent) : 0;
}

static int too_often(const struct section *x, int64_t steps, int64_t begin_ns)
{
    if (x->ask.every_ns > 0)
        return fail(FAIL_USAGE,
                    "--checkpoint-every %s: a save in mode %s takes %.2f s to complete here: the "
                    "smallest interval is %.0fs",
                    x->of->job->study.checkpoint_every, save_mode_name(x->mode),
                    (double)(units_now_ns() - begin_ns) / 1e9,
                    1 + (double)(units_now_ns() - begin_ns) / 1e9);
    return fail(FAIL_USAGE,
                "--checkpoint-every %s: a save in mode %s takes %lld step%s to complete here: the "
                "smallest interval is %lld",
                x->of->job->study.checkpoint_every, save_mode_name(x->mode), (long long)steps,
                units_s((double)steps), (long long)steps + 1);
}

/* Until the save is over, five more, and then until the next call is due. */
static int drain(struct section *x, int64_t begin_ns, struct pending *pending)
{
    int64_t steps = 1;
    int due = 0, late = 0, rc = 0;
    for (; saver_under_way(&x->saver) > 0; steps++) {
        TRY(one_step(x, DRAIN_DRAINING));
        TRY(is_due(x, steps, begin_ns, &due));
        late |= due && saver_under_way(&x->saver) > 0;
        pending->flags |= due && saver_under_way(&x->saver) > 0 ? CHECKPOINT_OVERLAPS : 0;
    }
    x->drained = steps;
    if (late && x->save > 0)
        return too_often(x, steps, begin_ns);
    for (int i = 0; i < BEHIND; i++, steps++)
        TRY(one_step(x, DRAIN_BEHIND));
    for (due = 1; x->ask.every_ns > 0 || x->ask.every_steps > 0; steps++) {
        TRY(is_due(x, steps, begin_ns, &due));
        if (due)
            break;
        TRY(one_step(x, DRAIN_QUIET));
    }
out:
    return rc;
}

static int one_save(struct section *x)
{
    bool room = false;
    int rc = 0;
    TRY(quiet_steps(x));
    int64_t begin = units_now_ns();
    TRY(wait_for_room(x, &room));
    if (!room)
        return 0; /* said already; the last good one stays */
    int64_t wait = units_now_ns() - begin;
    for (int i = 0; i < x->saver.n_slots; i++)
        if (x->saver.slot[i].state == SAVE_READY)
            x->pending[i] =
                (struct pending){x->mode, x->save, x->save == 0 ? CHECKPOINT_FIRST : 0, wait};
    saver_want(&x->saver, 0, (enum save_mode)x->mode);
    begin = units_now_ns();
    int before = -1;
    for (int i = x->saver.n_slots - 1; i >= 0; i--)
        before = x->saver.slot[i].state == SAVE_READY ? i : before;
    TRY(one_step(x, DRAIN_SAVING));
    TRY(drain(x, begin, &x->pending[before]));
out:
    return rc;
}

/* ---- the section ---- */

static void add_note(struct record_point *rows, const char *kind, const char *words)
{
    point_event(rows, kind, 0, words);
    if (strcmp(kind, "warning") == 0)
        fprintf(stderr, "scalestudy: %s\n", words);
}

void checkpoint_section_place_notes(const struct saver *saver, const char *root,
                                    struct record_point *rows)
{
    char words[512];
    const char *doubt = checkpoint_place_doubt(saver->file_system);
    if (saver->apart)
        add_note(rows, "warning",
                 "checkpoints: ranks do not share the folder (node-local storage): a checkpoint is "
                 "complete only while every node's part is there");
    if (doubt != NULL) {
        snprintf(words, sizeof words, "checkpoints: %.200s is on %s: %s", root, saver->file_system,
                 doubt);
        add_note(rows, "warning", words);
    }
    if (saver->n_slots == 1)
        add_note(rows, "note", "checkpoints: host memory allows one save under way, not two");
}

static void note_lost(const struct saver *saver, struct record_point *rows)
{
    char words[128];
    snprintf(words, sizeof words, "checkpoints: lost saves: %lld; the last good one stayed",
             (long long)saver->failures);
    if (saver->failures > 0)
        add_note(rows, "fault", words);
}

static int run(struct section *x, const char *root, struct record_point *rows)
{
    int rc = 0;
    bool first = x->of->measure->layout->rank == 0;
    if (first)
        checkpoint_section_place_notes(&x->saver, root, rows);
    for (x->save = 0; x->save < x->of->job->study.checkpoint_saves; x->save++)
        for (int i = 0; i < x->ask.n_modes; i++) {
            x->mode = x->ask.mode[i];
            TRY(one_save(x));
        }
    if (first)
        note_lost(&x->saver, rows);
out:
    return rc;
}

int checkpoint_section_gate(const struct job *job, const struct point *point,
                            const struct layout *layout, const struct policy *policy,
                            bool accumulate, const void *parent, struct record_point *rows)
{
    struct checkpoint_ask ask;
    struct gate_row list[CHECKPOINT_TRIAL_ROWS];
    char point_root[CHECKPOINT_PATH], root[CHECKPOINT_PATH];
    int rc = 0;
    checkpoint_ask_read(&ask, &job->study);
    checkpoint_ask_root(job, point, point_root, sizeof point_root);
    checkpoint_path(root, sizeof root, point_root, "gate");
    struct policy gate = gate_point_policy(&job->reference, layout, policy, accumulate);
    for (int i = 0; i < ask.n_modes; i++) {
        struct checkpoint_trial trial = {.reference = &job->reference,
                                         .from = layout,
                                         .to = layout,
                                         .from_policy = gate,
                                         .to_policy = gate,
                                         .backend = &job->backend,
                                         .parent = parent,
                                         .root = root,
                                         .mode = (enum save_mode)ask.mode[i],
                                         .shared = ask.shared,
                                         .exact = job->backend.device->runs_host_tasks};
        TRY(checkpoint_trial(&trial, list));
        TRY(gate_collect(list, CHECKPOINT_TRIAL_ROWS, layout, parent, rows));
    }
out:
    return rc;
}

bool checkpoint_section_wanted(const struct job *job, const struct point *point)
{
    return job->study.checkpoint_dir[0] != '\0' && point->copies == 1;
}

int checkpoint_section(const struct checkpoint_section *section, struct record_point *rows)
{
    struct section x = {.of = section, .local = &section->measure->local};
    struct measure *m = section->measure;
    char root[CHECKPOINT_PATH];
    int rc = 0;
    checkpoint_ask_read(&x.ask, &section->job->study);
    checkpoint_ask_root(section->job, section->point, root, sizeof root);
    struct saver_config config = {.execute = m->execute,
                                  .parent = m->parent,
                                  .root = root,
                                  .shared = x.ask.shared,
                                  .needs_snapshot = checkpoint_ask_has(&x.ask, SAVE_SNAPSHOT),
                                  .keep = section->job->study.checkpoint_keep,
                                  .throttle_bytes_per_s = section->job->study.test_throttle,
                                  .begin_step = section->job->begin_step};
    checkpoint_ask_terms(section->job, section->point, &config.terms);
    checkpoint_ask_about(section->job, m->layout, &config.about);
    int crowded = rows->point.oversubscribed; /* rank 0 knows */
    TRY(agree_broadcast(&crowded, sizeof crowded, 0, m->parent));
    config.crowded = crowded;
    TRY(saver_open(&x.saver, &config));
    TRY(run(&x, root, rows));
    bool any = x.saver.n_published > 0;
    saver_close(&x.saver);
    if (any)
        TRY(checkpoint_read_back(section, root));
out:
    saver_close(&x.saver);
    return rc;
}
