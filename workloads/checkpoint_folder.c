/* Folders of checkpoints: which steps are published, which is the newest, which may go. */
#define _DEFAULT_SOURCE /* realpath */
#include "workloads/checkpoint_manifest.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/units.h"

enum { MANIFEST_MOST = 1 << 30 };
enum { TRIES = 3, PAUSE_NS = 100000000 }; /* of what the system would not give */

void checkpoint_step_folder(const char *root, int64_t step, char *out, size_t size)
{
    char name[32];
    snprintf(name, sizeof name, "step-%010lld", (long long)step);
    checkpoint_path(out, size, root, name);
}

/* 0 where it has one, else an errno: ENOENT where it has none. */
static int look_for_manifest(const char *folder)
{
    char path[CHECKPOINT_PATH + 32];
    struct stat found;
    checkpoint_path(path, sizeof path, folder, "manifest.json");
    return stat(path, &found) == 0 ? 0 : errno;
}

static bool has_manifest(const char *folder)
{
    return look_for_manifest(folder) == 0;
}

/* The step of a name "step-0000000120", -1 of any other. */
static int64_t step_of(const char *name)
{
    if (strncmp(name, "step-", 5) != 0 || strlen(name) < 6 || strlen(name) > 5 + 18)
        return -1;
    for (const char *at = name + 5; *at != '\0'; at++)
        if (!isdigit((unsigned char)*at))
            return -1;
    return strtoll(name + 5, NULL, 10);
}

static int ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* With a manifest, or all; *code: an errno where the system would not say what is there. */
static int list_steps(const char *root, bool published, int64_t **steps, int *code)
{
    int n = 0, capacity = 0;
    DIR *list = opendir(root);
    *steps = NULL;
    *code = list == NULL ? errno : 0;
    for (struct dirent *entry; list != NULL && (errno = 0, entry = readdir(list)) != NULL;) {
        char folder[CHECKPOINT_PATH];
        int64_t step = step_of(entry->d_name);
        if (step < 0)
            continue;
        checkpoint_path(folder, sizeof folder, root, entry->d_name);
        int found = published ? look_for_manifest(folder) : 0;
        *code = found != 0 && found != ENOENT ? found : *code;
        if (found != 0)
            continue;
        if (n == capacity)
            *steps = must_grow(*steps, (size_t)(capacity = 2 * capacity + 16), sizeof **steps);
        (*steps)[n++] = step;
    }
    *code = list != NULL && errno != 0 ? errno : *code;
    if (list != NULL)
        closedir(list);
    if (n > 0)
        qsort(*steps, (size_t)n, sizeof **steps, ascending);
    return n;
}

int checkpoint_steps(const char *root, int64_t **steps)
{
    int code;
    return list_steps(root, true, steps, &code);
}

int checkpoint_steps_known(const char *root, int64_t **steps)
{
    int code, n = list_steps(root, true, steps, &code);
    return code == 0 ? n : -1;
}

int checkpoint_parts(const char *root, int64_t **steps)
{
    int code;
    return list_steps(root, false, steps, &code);
}

int64_t checkpoint_newest_part(const char *root)
{
    int64_t *steps;
    int n = checkpoint_parts(root, &steps);
    int64_t newest = n > 0 ? steps[n - 1] : -1;
    free(steps);
    return newest;
}

/* root/step-N -> root, and N: -1 where the name is another. */
static int64_t split_step(const char *folder, char *root, size_t size)
{
    snprintf(root, size, "%s", folder);
    for (size_t n = strlen(root); n > 1 && root[n - 1] == '/'; n--)
        root[n - 1] = '\0';
    char *slash = strrchr(root, '/');
    int64_t step = step_of(slash ? slash + 1 : root);
    if (slash == NULL)
        snprintf(root, size, ".");
    else
        slash[slash == root] = '\0';
    return step;
}

/* The published step before that of `folder`, which may be a link or "." instead of a step's name. */
static void find_previous(const char *folder, char *out, size_t size)
{
    char root[CHECKPOINT_PATH];
    int64_t *steps, step = split_step(folder, root, sizeof root);
    char *real = step < 0 ? realpath(folder, NULL) : NULL;
    if (real != NULL && strlen(real) < sizeof root)
        step = split_step(real, root, sizeof root);
    free(real);
    out[0] = '\0';
    if (step < 0)
        return;
    int n = checkpoint_steps(root, &steps);
    for (int i = 0; i < n; i++)
        if (steps[i] < step)
            checkpoint_step_folder(root, steps[i], out, size);
    free(steps);
}

int checkpoint_find(const char *given, char *folder, size_t size, char *previous,
                    size_t previous_size)
{
    int64_t *steps = NULL;
    struct stat found;
    if (stat(given, &found) != 0)
        return fail(FAIL_FILE, "checkpoint: cannot read %s: %s", given, strerror(errno));
    int n = has_manifest(given) ? 0 : checkpoint_steps(given, &steps);
    if (n > 0)
        checkpoint_step_folder(given, steps[n - 1], folder, size);
    else
        snprintf(folder, size, "%s", given);
    free(steps);
    if (n == 0 && !has_manifest(given))
        return fail(FAIL_FILE,
                    "checkpoint: %s is no checkpoint: it has neither a manifest.json nor a "
                    "published step-N",
                    given);
    if (previous != NULL)
        find_previous(folder, previous, previous_size);
    return 0;
}

/* A step gets a name that says what happens to it, so that what a kill leaves is known as such. */
static void rename_to_remove(const char *folder, char *out, size_t size)
{
    const char *slash = strrchr(folder, '/'), *name = slash ? slash + 1 : folder;
    int64_t step = step_of(name);
    snprintf(out, size, "%.*sremoving-%lld.tmp", (int)(name - folder), folder, (long long)step);
    if (step < 0 || rename(folder, out) != 0)
        snprintf(out, size, "%s", folder);
}

/* Files of shards, and the notes that ranks leave each other while they save (driver/checkpoint_save.h). */
static bool is_ours(const char *name)
{
    size_t n = strlen(name);
    return (n > 3 && strcmp(name + n - 3, ".h5") == 0) ||
           (strncmp(name, "shard-", 6) == 0 && strstr(name, ".json") != NULL);
}

void checkpoint_remove(const char *folder)
{
    char going[CHECKPOINT_PATH], path[CHECKPOINT_PATH + 300];
    rename_to_remove(folder, going, sizeof going);
    DIR *list = opendir(going);
    if (list == NULL)
        return;
    checkpoint_path(path, sizeof path, going, "manifest.json");
    if (unlink(path) == 0)
        (void)checkpoint_sync_folder(going); /* no longer a checkpoint, before it is half of one */
    for (struct dirent *entry; (entry = readdir(list)) != NULL;) {
        checkpoint_path(path, sizeof path, going, entry->d_name);
        if (is_ours(entry->d_name))
            unlink(path);
    }
    closedir(list);
    rmdir(going);
}

bool checkpoint_set_aside(const char *root, int64_t step)
{
    char from[CHECKPOINT_PATH], to[CHECKPOINT_PATH], name[40];
    checkpoint_step_folder(root, step, from, sizeof from);
    for (int i = 0; i < 100; i++) { /* it may have happened to this step before */
        snprintf(name, sizeof name, i == 0 ? "damaged-%010lld" : "damaged-%010lld.%d",
                 (long long)step, i);
        checkpoint_path(to, sizeof to, root, name);
        if (rename(from, to) == 0) {
            (void)checkpoint_sync_folder(root); /* lost by a crash, it would be renamed again */
            return true;
        }
        if (errno != ENOTEMPTY && errno != EEXIST)
            break;
    }
    return errno == ENOENT; /* another rank was faster */
}

bool checkpoint_is_aside(const char *root, int64_t step)
{
    char path[CHECKPOINT_PATH], name[40];
    struct stat found;
    snprintf(name, sizeof name, "damaged-%010lld", (long long)step);
    checkpoint_path(path, sizeof path, root, name);
    return stat(path, &found) == 0;
}

void checkpoint_retire(const char *root, int64_t step)
{
    char folder[CHECKPOINT_PATH], going[CHECKPOINT_PATH];
    checkpoint_step_folder(root, step, folder, sizeof folder);
    rename_to_remove(folder, going, sizeof going);
    if (strcmp(folder, going) == 0) /* one of this step is going already */
        checkpoint_remove(folder);
}

void checkpoint_sweep(const char *root)
{
    char path[CHECKPOINT_PATH + 300];
    DIR *list = opendir(root);
    for (struct dirent *entry; list != NULL && (entry = readdir(list)) != NULL;) {
        size_t n = strlen(entry->d_name);
        if (strncmp(entry->d_name, "removing-", 9) != 0 ||
            strcmp(entry->d_name + n - 4, ".tmp") != 0)
            continue;
        checkpoint_path(path, sizeof path, root, entry->d_name);
        checkpoint_remove(path);
    }
    if (list != NULL)
        closedir(list);
}

int64_t checkpoint_retire_old(const char *root, int64_t keep)
{
    int64_t *steps, oldest = -1;
    int n = checkpoint_steps(root, &steps);
    for (int i = 0; keep > 0 && i < n - keep; i++)
        checkpoint_retire(root, steps[i]);
    if (keep > 0 && n > 0)
        oldest = steps[n > keep ? n - keep : 0];
    free(steps);
    return oldest;
}

void checkpoint_prune(const char *root, int64_t keep)
{
    (void)checkpoint_retire_old(root, keep);
    if (keep > 0)
        checkpoint_sweep(root);
}

/* 0 or an errno. */
static int read_text(const char *path, char **text)
{
    struct stat found;
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return errno;
    int code = fstat(fileno(file), &found) == 0 ? 0 : errno;
    size_t size = code == 0 && found.st_size < MANIFEST_MOST ? (size_t)found.st_size : 0;
    *text = must_alloc(size + 1, 1);
    errno = 0;
    if (fread(*text, 1, size, file) < size && ferror(file))
        code = errno != 0 ? errno : EIO;
    fclose(file);
    if (code != 0) {
        free(*text);
        *text = NULL;
    }
    return code;
}

int checkpoint_manifest_text(const char *folder, char **text)
{
    char path[CHECKPOINT_PATH + 32];
    int code = 0;
    *text = NULL;
    checkpoint_path(path, sizeof path, folder, "manifest.json");
    for (int i = 0; i < TRIES; i++) {
        if (i > 0)
            units_sleep_ns(PAUSE_NS);
        code = read_text(path, text);
        if (code == 0)
            return 0;
    }
    return fail(FAIL_FILE, "checkpoint: cannot read %s: %s", path, strerror(code));
}

int checkpoint_manifest_read(struct checkpoint_manifest *out, const char *folder)
{
    char *text;
    memset(out, 0, sizeof *out);
    int rc = checkpoint_manifest_text(folder, &text);
    if (rc == 0)
        rc = checkpoint_manifest_parse(out, text, folder);
    free(text);
    return rc;
}
