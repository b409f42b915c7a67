/* Between blocks: ranks come together, rank 0 publishes, slots are made ready again. */
#include "driver/checkpoint_save_part.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/units.h"
#include "driver/agree.h"

/* What a rank knows of a slot; the largest over ranks counts. */
enum view {
    VIEW_UNWRITTEN,
    VIEW_FAILED,
    VIEW_PUBLISHED,
    VIEW_LOST,
    VIEW_COMPLETE_NS,
    VIEW_OLDEST,
    VIEWS
};

static bool is_out(const struct saver_slot *slot)
{
    return slot->state == SAVE_CALLED || slot->state == SAVE_PUBLISHING;
}

static void look(struct saver *s, struct saver_slot *slot, int64_t *view)
{
    bool called = slot->state == SAVE_CALLED;
    bool done = called && (s->apart ? checkpoint_save_done(s->writer, &slot->save)
                                    : atomic_load(&slot->noted) != 0);
    if (done && s->apart) /* before a rank of its node renames the folder: all look first */
        saver_check_file(slot);
    int published = is_out(slot) ? atomic_load(&slot->publishing) : 0;
    view[VIEW_UNWRITTEN] = called && !done;
    view[VIEW_FAILED] = done && slot->save.code != 0;
    view[VIEW_PUBLISHED] = published == 1;
    view[VIEW_LOST] = published == 2;
    view[VIEW_COMPLETE_NS] = view[VIEW_PUBLISHED] ? slot->complete_ns : 0;
    view[VIEW_OLDEST] = view[VIEW_PUBLISHED] ? slot->oldest : -1;
}

static int bring_together(struct saver *s, int64_t *views, int n)
{
    MPI_Request request;
    AGREE_MPI(MPI_Iallreduce(MPI_IN_PLACE, views, n, MPI_INT64_T, MPI_MAX,
                             *(const MPI_Comm *)s->config.parent, &request));
    return agree_wait(&request);
}

/* ---- published ---- */

static void prune(void *arg)
{
    const struct saver *s = arg;
    checkpoint_prune(s->config.root, s->config.keep);
}

static void published(struct saver *s, struct saver_slot *slot, const int64_t *view)
{
    s->published = must_grow(s->published, (size_t)s->n_published + 1, sizeof *s->published);
    s->published[s->n_published++] = slot->step;
    s->said = false; /* the next failure is news again */
    slot->placed = false;
    saver_prune_parts(s, view[VIEW_OLDEST]);
    slot->complete_ns = view[VIEW_COMPLETE_NS];
    slot->state = SAVE_PUBLISHED;
    if (s->plan->layout.rank == 0 && s->config.keep > 0)
        checkpoint_writer_call(s->writer, prune, s);
}

bool saver_keeps_last(const struct saver *s)
{
    char folder[CHECKPOINT_PATH];
    checkpoint_step_folder(s->config.root, s->published[s->n_published - 1], folder, sizeof folder);
    return access(folder, F_OK) == 0;
}

/* ---- failure: said by the rank that failed ---- */

static int lose(struct saver *s, struct saver_slot *slot, const char *why)
{
    char last[64] = "none was published before";
    int rc = 0;
    slot->state = SAVE_LOST;
    s->failures++;
    saver_take_part_back(s, slot); /* before the ranks of its node drop their files, below */
    if (s->n_published > 0)
        snprintf(last, sizeof last, "that of step %lld %s",
                 (long long)s->published[s->n_published - 1],
                 saver_keeps_last(s) ? "stays the newest" : "is gone too");
    fail_clear();
    if (why != NULL)
        rc = fail(FAIL_FILE, "%s: the checkpoint of step %lld is lost, %s", why,
                  (long long)slot->step, last);
    rc = s->said ? agree_quietly(rc, s->config.parent) : agree(rc, s->config.parent);
    s->said = true;
    if (rc == FAIL_COMM)
        return rc;
    snprintf(slot->why, sizeof slot->why, "%s", fail_message());
    fail_clear();
    saver_drop_files(s, slot);
    return agree_barrier(s->config.parent); /* nobody makes the folder again while it goes */
}

/* ---- publishing where ranks share no folder: texts by MPI ---- */

static void publish(void *arg)
{
    saver_publish(arg);
}

static void split_texts(struct saver_slot *slot, const char *all, const int64_t *counts, int world)
{
    if (slot->texts == NULL)
        slot->texts = must_alloc((size_t)world, sizeof *slot->texts);
    for (int r = 0; r < world; r++) {
        free(slot->texts[r]);
        slot->texts[r] = must_alloc((size_t)counts[r] + 1, 1);
        memcpy(slot->texts[r], all, (size_t)counts[r]);
        all += counts[r];
    }
}

static int gather_texts(struct saver *s, struct saver_slot *slot)
{
    int world = s->plan->layout.world;
    int64_t total, *counts = must_alloc((size_t)world, sizeof *counts);
    void *all = NULL;
    slot->entry.small_hash = slot->save.small_hash;
    char *text = checkpoint_shard_text(&slot->entry);
    int rc = agree_gather(text, (int64_t)strlen(text), &all, &total, counts, s->config.parent);
    if (rc == 0 && s->plan->layout.rank == 0)
        split_texts(slot, all, counts, world);
    free(all);
    free(text);
    free(counts);
    return rc;
}

/* The manifest comes last: it is there when every node's part is. */
static int begin_publishing(struct saver *s, struct saver_slot *slot)
{
    int64_t failed = saver_place_part(s, slot) != 0;
    bool mine = failed != 0;
    int rc = 0;
    if (mine)
        snprintf(slot->why, sizeof slot->why, "%s", fail_message());
    TRY(bring_together(s, &failed, 1));
    if (failed)
        return lose(s, slot, mine ? slot->why : NULL);
    TRY(gather_texts(s, slot));
    atomic_store(&slot->publishing, 0);
    slot->state = SAVE_PUBLISHING;
    if (s->plan->layout.rank == 0)
        checkpoint_writer_call(s->writer, publish, slot);
out:
    return rc;
}

/* ---- one round ---- */

/* Some rank could not write; the others need not write on, and rank 0 not wait. */
static int give_up(struct saver *s, struct saver_slot *slot)
{
    bool failed = checkpoint_save_done(s->writer, &slot->save) && slot->save.code != 0;
    atomic_store(&slot->given_up, true);
    if (!failed)
        checkpoint_writer_give_up(s->writer, &slot->save, "another rank could not write");
    checkpoint_save_wait(s->writer, &slot->save);
    while (!checkpoint_writer_called(s->writer))
        units_sleep_ns(200000);
    return lose(s, slot, failed ? slot->save.why : NULL);
}

static int move_on(struct saver *s, struct saver_slot *slot, const int64_t *view)
{
    if (slot->state == SAVE_CALLED && view[VIEW_FAILED])
        return give_up(s, slot);
    if (slot->state == SAVE_CALLED && s->apart && !view[VIEW_UNWRITTEN])
        return begin_publishing(s, slot);
    if (is_out(slot) && view[VIEW_LOST])
        return lose(s, slot, s->plan->layout.rank == 0 ? slot->why : NULL);
    if (is_out(slot) && view[VIEW_PUBLISHED])
        published(s, slot, view);
    return 0;
}

/* What cannot be made ready is no failure yet: the other slot may be, and it is tried again when a save is due. */
static int make_ready(struct saver *s, struct saver_slot *slot, bool *failed)
{
    int rc = saver_prepare(s, slot);
    *failed |= rc != 0;
    return rc == FAIL_COMM ? rc : 0;
}

/* Of slots that could not be made ready, when that leaves none. */
static void say_none_ready(struct saver *s)
{
    bool none = !saver_can_call(s) && saver_under_way(s) == 0;
    if (none && !s->said && s->plan->layout.rank == 0)
        fprintf(stderr,
                "scalestudy: %s: no checkpoint is made ready, training goes on, what was published "
                "stays and the next is tried when it is due\n",
                fail_message());
    s->said |= none;
    fail_clear();
}

int saver_advance(struct saver *s, bool prepare, int *ended)
{
    int64_t views[SAVER_SLOTS * VIEWS];
    bool failed = false;
    int rc = 0;
    if (ended != NULL)
        *ended = -1;
    for (int i = 0; i < s->n_slots; i++) {
        struct saver_slot *slot = &s->slot[i];
        bool free_now = slot->state == SAVE_PUBLISHED || slot->state == SAVE_LOST;
        if (prepare && free_now) {
            slot->state = SAVE_FREE;
            TRY(make_ready(s, slot, &failed));
        }
        look(s, slot, views + (ptrdiff_t)i * VIEWS);
    }
    if (failed)
        say_none_ready(s);
    if (saver_under_way(s) == 0)
        return 0;
    TRY(bring_together(s, views, s->n_slots * VIEWS));
    for (int i = 0; i < s->n_slots; i++) {
        struct saver_slot *slot = &s->slot[i];
        bool was = is_out(slot);
        TRY(move_on(s, slot, views + (ptrdiff_t)i * VIEWS));
        bool is = slot->state == SAVE_PUBLISHED || slot->state == SAVE_LOST;
        if (was && is && ended != NULL)
            *ended = i;
    }
out:
    return rc;
}

int saver_make_room(struct saver *s)
{
    bool failed = false;
    int rc = 0;
    for (int i = 0; i < s->n_slots && !saver_can_call(s); i++)
        if (s->slot[i].state == SAVE_FREE)
            TRY(make_ready(s, &s->slot[i], &failed));
    if (failed)
        say_none_ready(s);
    s->failures += !saver_can_call(s);
out:
    return rc;
}

int saver_poll(struct saver *s, int *ended)
{
    return saver_advance(s, true, ended);
}

bool saver_can_call(const struct saver *s)
{
    for (int i = 0; i < s->n_slots; i++)
        if (s->slot[i].state == SAVE_READY)
            return true;
    return false;
}

void saver_want(struct saver *s, int step, enum save_mode mode)
{
    s->wanted = step;
    s->wanted_mode = (int)mode;
}

int saver_under_way(const struct saver *s)
{
    int n = 0;
    for (int i = 0; i < s->n_slots; i++)
        n += is_out(&s->slot[i]);
    return n;
}
