/* Notes of what ranks have written, and publishing: all on the writers' threads. */
#include "driver/checkpoint_save_part.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/units.h"

static void note_name(char *name, size_t size, int rank)
{
    snprintf(name, size, "shard-%05d.json", rank);
}

void saver_note_path(const struct saver *s, const struct saver_slot *slot, char *out, size_t size)
{
    char name[32];
    note_name(name, sizeof name, s->plan->layout.rank);
    checkpoint_path(out, size, slot->folder, name);
}

/* ---- each rank: behind its save ---- */

static bool write_note(const char *path, const char *text)
{
    char temporary[CHECKPOINT_PATH + 8];
    snprintf(temporary, sizeof temporary, "%s.tmp", path);
    FILE *file = fopen(temporary, "w");
    if (file == NULL)
        return false;
    bool good = fputs(text, file) >= 0;
    good = fclose(file) == 0 && good && rename(temporary, path) == 0;
    int code = errno;
    if (!good)
        unlink(temporary);
    errno = code;
    return good;
}

/* What was written is in no folder, where somebody has removed it meanwhile. */
bool saver_check_file(struct saver_slot *slot)
{
    bool there = slot->save.code != 0 || access(slot->save.path, F_OK) == 0;
    if (!there) {
        slot->save.code = FAIL_FILE;
        snprintf(slot->save.why, sizeof slot->save.why, "checkpoint: %s is gone: %s",
                 slot->save.path, strerror(errno));
    }
    return there;
}

/* A note that cannot be left is a save that failed. */
static void leave_note(void *arg)
{
    struct saver_slot *slot = arg;
    char path[CHECKPOINT_PATH];
    saver_check_file(slot);
    if (slot->save.code == 0) {
        slot->entry.small_hash = slot->save.small_hash;
        char *text = checkpoint_shard_text(&slot->entry);
        saver_note_path(slot->saver, slot, path, sizeof path);
        if (!write_note(path, text)) {
            slot->save.code = FAIL_FILE;
            snprintf(slot->save.why, sizeof slot->save.why, "checkpoint: cannot write %s: %s", path,
                     strerror(errno));
        }
        free(text);
    }
    slot->noted_ns = units_now_ns();
    atomic_store(&slot->noted, slot->save.code == 0 ? 1 : 2);
}

/* ---- rank 0: when all notes are there ---- */

static bool is_note(const char *name)
{
    size_t n = strlen(name);
    return strncmp(name, "shard-", 6) == 0 && n > 5 && strcmp(name + n - 5, ".json") == 0;
}

/* By reading the folder: a name that was looked for too early may stay missing for long on NFS. -1: there
 * is no folder any more. */
static int count_notes(const char *folder)
{
    DIR *list = opendir(folder);
    int n = list != NULL ? 0 : -1;
    for (struct dirent *entry; list != NULL && (entry = readdir(list)) != NULL;)
        n += is_note(entry->d_name);
    if (list != NULL)
        closedir(list);
    return n;
}

static char *read_note(const char *path)
{
    struct stat found;
    FILE *file = fopen(path, "r");
    char *text = NULL;
    if (file == NULL)
        return NULL;
    if (fstat(fileno(file), &found) == 0) {
        text = must_alloc((size_t)found.st_size + 1, 1);
        if (fread(text, 1, (size_t)found.st_size, file) != (size_t)found.st_size) {
            free(text);
            text = NULL;
        }
    }
    fclose(file);
    return text;
}

/* Notes become texts of the manifest, and go. */
static bool take_notes(struct saver_slot *slot, int world)
{
    bool good = true;
    if (slot->texts == NULL)
        slot->texts = must_alloc((size_t)world, sizeof *slot->texts);
    for (int r = 0; r < world && good; r++) {
        char name[32], path[CHECKPOINT_PATH];
        note_name(name, sizeof name, r);
        checkpoint_path(path, sizeof path, slot->folder, name);
        free(slot->texts[r]);
        slot->texts[r] = read_note(path);
        good = slot->texts[r] != NULL && unlink(path) == 0;
    }
    if (!good)
        snprintf(slot->why, sizeof slot->why,
                 "checkpoint: cannot read the notes of ranks in %s: %s", slot->folder,
                 strerror(errno));
    return good;
}

void saver_publish(struct saver_slot *slot)
{
    const struct saver *s = slot->saver;
    checkpoint_file_small_read(slot->small, &slot->head.small);
    int code = checkpoint_publish(s->config.root, slot->folder, &slot->head,
                                  (const char *const *)slot->texts, s->plan->layout.world,
                                  slot->why, sizeof slot->why);
    slot->complete_ns = units_now_ns() - slot->call_begin_ns;
    slot->oldest = -1;
    if (code == 0 && s->apart) /* no longer published, before others remove their parts of it */
        slot->oldest = checkpoint_retire_old(s->config.root, s->config.keep);
    atomic_store(&slot->publishing, code == 0 ? 1 : 2);
}

/* As long as it takes, or until a rank is known to have failed. */
static void publish_by_notes(void *arg)
{
    struct saver_slot *slot = arg;
    int world = slot->saver->plan->layout.world, n;
    int64_t begin = units_now_ns(), sleep_ns = 200000;
    while ((n = count_notes(slot->folder)) >= 0 && n < world) {
        if (atomic_load(&slot->given_up))
            return;
        units_sleep_ns(sleep_ns); /* seen a sixteenth too late at most */
        sleep_ns = (units_now_ns() - begin) / 16;
        sleep_ns = sleep_ns < 200000 ? 200000 : sleep_ns > 10000000 ? 10000000 : sleep_ns;
    }
    if (n < 0)
        snprintf(slot->why, sizeof slot->why, "checkpoint: %s is gone", slot->folder);
    slot->together_ns = units_now_ns();
    if (n == world && take_notes(slot, world))
        saver_publish(slot);
    else
        atomic_store(&slot->publishing, 2);
}

void saver_queue_publishing(struct saver *s, struct saver_slot *slot)
{
    atomic_store(&slot->noted, 0);
    atomic_store(&slot->publishing, 0);
    atomic_store(&slot->given_up, false);
    if (s->apart)
        return; /* at the next poll */
    checkpoint_writer_call(s->writer, leave_note, slot);
    if (s->plan->layout.rank == 0)
        checkpoint_writer_call(s->writer, publish_by_notes, slot);
}
