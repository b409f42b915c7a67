/* Node-local folders: the parts of a save that are on other nodes than rank 0. */
#include "driver/checkpoint_save_part.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "driver/agree.h"

static bool leads_apart(const struct saver *s)
{
    return s->view.leads && !s->view.sees;
}

static int rename_to(const struct saver_slot *slot, const char *to)
{
    return rename(slot->folder, to) == 0 ? 0 : errno;
}

/* A part that nobody has published, where it could not be removed (saver_drop_orphans). */
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

/* ---- what no longer is part of a checkpoint ---- */

int saver_learn(struct saver *s)
{
    bool first = s->plan->layout.rank == 0;
    int n = 0, rc = 0;
    free(s->known);
    s->known = NULL;
    if (first)
        n = checkpoint_steps_known(s->config.root, &s->known);
    TRY(agree_broadcast(&n, sizeof n, 0, s->config.parent));
    if (s->known == NULL)
        s->known = must_alloc((size_t)(n > 0 ? n : 0) + 1, sizeof *s->known);
    if (n > 0)
        TRY(agree_broadcast(s->known, n * (int64_t)sizeof *s->known, 0, s->config.parent));
    s->n_known = n;
out:
    return rc;
}

static bool is_among(int64_t step, const int64_t *steps, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (steps[i] == step)
            return true;
    return false;
}

/* Of these terms: what is older may be of another study, whose other nodes are elsewhere. */
static bool is_own(const struct saver *s, int64_t step)
{
    return s->config.continues || is_among(step, s->known, s->n_known) ||
           is_among(step, s->published, s->n_published);
}

static void sweep(void *arg)
{
    const struct saver *s = arg;
    checkpoint_sweep(s->config.root);
}

void saver_prune_parts(struct saver *s, int64_t oldest)
{
    int64_t *parts;
    if (!leads_apart(s) || s->config.keep == 0)
        return;
    int n = checkpoint_parts(s->config.root, &parts);
    for (int i = 0; i < n && parts[i] < oldest; i++)
        if (is_own(s, parts[i]))
            checkpoint_retire(s->config.root, parts[i]);
    free(parts);
    checkpoint_writer_call(s->writer, sweep, s);
}

int saver_drop_orphans(struct saver *s)
{
    int64_t *parts;
    int rc = 0;
    if (!s->config.continues)
        return 0;
    TRY(saver_learn(s));
    if (s->n_known < 0 || !s->view.leads || !checkpoint_place_is_held(s->held))
        return 0;
    int n = checkpoint_parts(s->config.root, &parts);
    for (int i = 0; i < n; i++)
        if (!is_among(parts[i], s->known, s->n_known))
            checkpoint_retire(s->config.root, parts[i]);
    free(parts);
    checkpoint_writer_call(s->writer, sweep, s);
out:
    return rc;
}
