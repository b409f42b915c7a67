/* Node-local folders: the parts of a save that are on other nodes than rank 0. */
#include "driver/checkpoint_save_part.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"

static bool leads_apart(const struct saver *s)
{
    return s->view.leads && !s->view.sees;
}

static int rename_to(const struct saver_slot *slot, const char *to)
{
    return rename(slot->folder, to) == 0 ? 0 : errno;
}

/* A part that nobody has published: the job was killed between its nodes' parts and the manifest. */
static bool is_orphan(const struct saver *s, const char *folder, int code)
{
    char manifest[CHECKPOINT_PATH + 32];
    checkpoint_path(manifest, sizeof manifest, folder, "manifest.json");
    return s->config.continues && (code == ENOTEMPTY || code == EEXIST) &&
           access(manifest, F_OK) != 0;
}

int saver_place_part(struct saver *s, struct saver_slot *slot)
{
    char to[CHECKPOINT_PATH];
    slot->placed = false;
    if (!leads_apart(s))
        return 0;
    checkpoint_step_folder(s->config.root, slot->step, to, sizeof to);
    int code = checkpoint_sync_folder(slot->folder);
    if (code == 0)
        code = rename_to(slot, to);
    if (code != 0 && is_orphan(s, to, code) && checkpoint_set_aside(s->config.root, slot->step))
        code = rename_to(slot, to);
    slot->placed = code == 0;
    if (code == 0)
        code = checkpoint_sync_folder(s->config.root);
    if (code == 0)
        return 0;
    return fail(FAIL_FILE, "checkpoint: this node's part of step %lld cannot become %s: %s",
                (long long)slot->step, to, strerror(code));
}

void saver_take_part_back(struct saver *s, struct saver_slot *slot)
{
    char from[CHECKPOINT_PATH];
    checkpoint_step_folder(s->config.root, slot->step, from, sizeof from);
    if (slot->placed && rename(from, slot->folder) != 0)
        checkpoint_remove(from);
    slot->placed = false;
}

void saver_prune_parts(struct saver *s)
{
    char folder[CHECKPOINT_PATH];
    int64_t old = s->n_published - 1 - s->config.keep;
    if (!leads_apart(s) || s->config.keep == 0 || old < 0)
        return;
    checkpoint_step_folder(s->config.root, s->published[old], folder, sizeof folder);
    checkpoint_remove(folder);
}
