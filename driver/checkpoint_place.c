#define _DEFAULT_SOURCE /* statfs, flock */
#include "driver/checkpoint_place.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/err.h"
#include "base/units.h"
#include "driver/agree.h"

/* A link to what is not there is in the way of a folder, and is not seen where links are followed. */
static int check_link(const char *path)
{
    struct stat found;
    bool dangles = stat(path, &found) != 0 && errno == ENOENT && lstat(path, &found) == 0;
    return dangles ? fail(FAIL_FILE, "checkpoint: %s is a link to what is not there", path) : 0;
}

int checkpoint_place_make(const char *folder)
{
    char path[CHECKPOINT_PATH];
    struct stat found;
    snprintf(path, sizeof path, "%s", folder);
    for (char *at = path + 1; *at != '\0'; at++)
        if (*at == '/') {
            *at = '\0';
            (void)mkdir(path, 0777);
            if (check_link(path) != 0)
                return FAIL_FILE;
            *at = '/';
        }
    int code = mkdir(path, 0777) != 0 ? errno : 0;
    if (code == EEXIST && check_link(path) != 0)
        return FAIL_FILE;
    if (code != 0 && code != EEXIST)
        return fail(FAIL_FILE, "checkpoint: cannot make %s: %s", folder, strerror(code));
    if (stat(path, &found) != 0 || !S_ISDIR(found.st_mode))
        return fail(FAIL_FILE, "checkpoint: %s is no folder", folder);
    return 0;
}

/* Magic numbers of statfs(2) and of linux/magic.h; Lustre, GPFS and BeeGFS from their own sources. */
void checkpoint_place_type(const char *folder, char *out, size_t size)
{
    static const struct {
        unsigned long magic;
        const char *name;
    } types[] = {{0xef53, "ext4"},       {0x58465342, "xfs"},      {0x9123683e, "btrfs"},
                 {0x01021994, "tmpfs"},  {0x858458f6, "ramfs"},    {0x794c7630, "overlay"},
                 {0x6969, "nfs"},        {0x0bd00bd0, "lustre"},   {0x47504653, "gpfs"},
                 {0x19830326, "beegfs"}, {0x00c36400, "ceph"},     {0x2fc12fc1, "zfs"},
                 {0xff534d42, "cifs"},   {0x65735546, "fuse"},     {0xaad7aaea, "panfs"},
                 {0xf2f52010, "f2fs"},   {0x6a656a63, "virtiofs"}, {0x01021997, "9p"}};
    struct statfs found;
    out[0] = '\0';
    if (statfs(folder, &found) != 0)
        return;
    unsigned long magic = (unsigned long)found.f_type & 0xffffffffUL;
    snprintf(out, size, "0x%lx", magic);
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (types[i].magic == magic)
            snprintf(out, size, "%s", types[i].name);
}

const char *checkpoint_place_doubt(const char *type)
{
    if (strcmp(type, "tmpfs") == 0 || strcmp(type, "ramfs") == 0)
        return "memory, not storage: a checkpoint there is gone with the host, and its rates are "
               "those of memory";
    if (strcmp(type, "overlay") == 0)
        return "the writable layer of a container: a checkpoint there may go with the container";
    return NULL;
}

/* ---- do all ranks see it? ---- */

enum { NAME = 96 };

/* "nonce.R" of rank R. */
static void name_planted(const char *folder, const char *nonce, int rank, char *out, size_t size)
{
    char name[NAME + 16];
    snprintf(name, sizeof name, "%s.%d", nonce, rank);
    checkpoint_path(out, size, folder, name);
}

static int plant(const char *folder, const char *nonce, int rank, bool *planted)
{
    char path[CHECKPOINT_PATH + NAME];
    name_planted(folder, nonce, rank, path, sizeof path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return fail(FAIL_FILE, "checkpoint: cannot write in %s: %s", folder, strerror(errno));
    close(fd);
    *planted = true;
    return 0;
}

static bool is_planted(const char *folder, const char *nonce, int rank)
{
    char path[CHECKPOINT_PATH + NAME];
    name_planted(folder, nonce, rank, path, sizeof path);
    return access(path, F_OK) == 0;
}

/* By names that nobody has looked for before: a client of NFS may remember what was not there, or a list of it. */
static bool is_first(const char *folder, const char *nonce, int rank)
{
    for (int r = 1; r < rank; r++)
        if (is_planted(folder, nonce, r))
            return false;
    return true;
}

/* Of the folder that rank 0 has, which all may have, it need not be said whose it is. */
static int agree_of_folder(int rc, int rank, const void *comm)
{
    int first = agree_quietly(rank == 0 ? rc : 0, comm);
    return first != 0 ? first : agree_named(rc, comm);
}

int checkpoint_place_shared(const char *folder, int rank, const void *comm,
                            struct checkpoint_view *view)
{
    char nonce[NAME] = "", path[CHECKPOINT_PATH + NAME];
    bool planted = false;
    int rc = 0;
    *view = (struct checkpoint_view){.sees = rank == 0, .leads = rank == 0};
    if (rank == 0) {
        snprintf(nonce, sizeof nonce, ".seen-%ld-%lld", (long)getpid(), (long long)units_now_ns());
        rc = checkpoint_place_make(folder);
    }
    if (rank == 0 && rc == 0)
        rc = plant(folder, nonce, rank, &planted);
    TRY(agree_quietly(rc, comm));
    TRY(agree_broadcast(nonce, sizeof nonce, 0, comm));
    view->sees = is_planted(folder, nonce, 0);
    if (!view->sees && (rc = checkpoint_place_make(folder)) == 0)
        rc = plant(folder, nonce, rank, &planted); /* a folder of this node's own */
    TRY(agree_of_folder(rc, rank, comm));
    view->leads = rank == 0 || (!view->sees && is_first(folder, nonce, rank));
    TRY(agree_barrier(comm)); /* all have looked */
out:
    name_planted(folder, nonce, rank, path, sizeof path);
    if (planted)
        unlink(path);
    return rc;
}

/* ---- could it be? ---- */

/* What is there of it: the folder, or the nearest above it. FAIL_FILE for a link to nothing on the way. */
static int find_above(const char *folder, char path[CHECKPOINT_PATH])
{
    struct stat found;
    snprintf(path, CHECKPOINT_PATH, "%s", folder);
    while (stat(path, &found) != 0 && errno == ENOENT) {
        if (check_link(path) != 0)
            return FAIL_FILE;
        char *slash = strrchr(path, '/');
        if (slash == path || slash == NULL)
            snprintf(path, CHECKPOINT_PATH, slash == path ? "/" : ".");
        else
            *slash = '\0';
    }
    return 0;
}

static int look(const char *folder)
{
    char path[CHECKPOINT_PATH];
    struct stat found;
    if (find_above(folder, path) != 0)
        return FAIL_FILE;
    bool there = strcmp(path, folder) == 0 && stat(path, &found) == 0;
    if (there && !S_ISDIR(found.st_mode))
        return fail(FAIL_FILE, "checkpoint: %s is no folder", folder);
    if (access(path, W_OK | X_OK) != 0)
        return fail(FAIL_FILE, "checkpoint: cannot %s %s: %s", there ? "write in" : "make", folder,
                    strerror(errno));
    return 0;
}

int checkpoint_place_look(const char *folder, int rank, const void *comm,
                          struct checkpoint_view *view)
{
    *view = (struct checkpoint_view){.sees = rank == 0, .leads = true, .looks = true};
    return agree_of_folder(look(folder), rank, comm);
}

/* ---- nobody else saves there ---- */

static int hold(const char *folder, int seconds, int how, int *held)
{
    const int tries = 10 * seconds;
    *held = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; *held >= 0 && i < tries; i++) {
        if (flock(*held, how | LOCK_NB) == 0 || errno != EWOULDBLOCK)
            return 0;
        units_sleep_ns(100000000);
    }
    if (*held < 0)
        return 0;
    close(*held);
    *held = -1;
    return fail(FAIL_USAGE,
                "--checkpoint-dir: another study saves in %s: take another folder, or wait for it",
                folder);
}

bool checkpoint_place_is_held(int held)
{
    return held >= 0 && flock(held, LOCK_EX | LOCK_NB) == 0; /* again, which changes nothing */
}

int checkpoint_place_hold(const char *folder, int rank, const struct checkpoint_view *view,
                          int seconds, const void *comm, int *held)
{
    int how = view->looks ? LOCK_SH : LOCK_EX;
    *held = -1;
    return agree_of_folder(view->leads ? hold(folder, seconds, how, held) : 0, rank, comm);
}

/* ---- and nothing is there that is another study's ---- */

/* The newest of n that can be read; what cannot is damaged, or of who knows whom. */
static int read_newest(struct checkpoint_manifest *out, const char *root, const int64_t *steps,
                       int n)
{
    char folder[CHECKPOINT_PATH];
    for (int i = n; i-- > 0; fail_clear()) {
        checkpoint_step_folder(root, steps[i], folder, sizeof folder);
        if (checkpoint_manifest_read(out, folder) == 0)
            return 0;
    }
    return fail(FAIL_USAGE,
                "--checkpoint-dir: %s holds checkpoints up to step %lld, and not one whose "
                "manifest can be read, to say whose they are: take an empty folder",
                root, (long long)steps[n - 1]);
}

/* What is there is of the same training, or the newest of one would pass for the other's, and
 * --checkpoint-keep would remove what is not this study's. */
static int check_same(const char *root, const struct checkpoint_terms *here, const int64_t *steps,
                      int n)
{
    struct checkpoint_manifest there;
    int rc = read_newest(&there, root, steps, n);
    if (rc != 0)
        return rc;
    const struct checkpoint_term *mine = checkpoint_terms_differ(&there.terms, here);
    const char *its = mine ? checkpoint_terms_get(&there.terms, mine->name) : NULL;
    if (mine != NULL)
        rc = fail(
            FAIL_USAGE,
            "--checkpoint-dir: %s holds checkpoints of another study, whose %s is %s and that "
            "of this one is %s: take an empty folder",
            root, mine->name, its && its[0] ? its : "none", mine->value[0] ? mine->value : "none");
    checkpoint_manifest_release(&there);
    return rc;
}

/* Parts without a manifest, which would be in the way of saves of their steps: of a node's own folder, where nothing
 * says whose they are, or of a save of rank 0 that was not published. */
static int without_parts(const char *root, const char *whose, int64_t start)
{
    int64_t newest = checkpoint_newest_part(root);
    if (newest <= start)
        return 0;
    return fail(FAIL_USAGE,
                "--checkpoint-dir: %s%s holds parts of checkpoints up to step %lld, and this study "
                "begins at step %lld: take an empty folder, or remove each step-N there with N "
                "above %lld",
                root, whose, (long long)newest, (long long)start, (long long)start);
}

int checkpoint_place_empty(const char *root, const struct checkpoint_terms *terms, int64_t start)
{
    int64_t *steps, newest = -1;
    int n = checkpoint_steps(root, &steps);
    newest = n > 0 ? steps[n - 1] : -1;
    int rc = n > 0 && newest <= start ? check_same(root, terms, steps, n) : 0;
    free(steps);
    if (newest <= start)
        return rc != 0 ? rc : without_parts(root, "", start);
    return fail(FAIL_USAGE,
                "--checkpoint-dir: %s holds checkpoints up to step %lld, and this study begins at "
                "step %lld: take an empty folder, or --resume-from %s",
                root, (long long)newest, (long long)start, root);
}

int checkpoint_place_check(const char *root, int rank, const struct checkpoint_view *view,
                           const struct checkpoint_terms *terms, int64_t start, const void *comm)
{
    int rc = 0;
    if (view->leads)
        rc = rank == 0 ? checkpoint_place_empty(root, terms, start)
                       : without_parts(root, " of this node", start);
    return agree_of_folder(rc, rank, comm);
}

/* ---- the rest ---- */

int64_t checkpoint_place_memory(void)
{
    char line[128];
    long long kilobytes = 0;
    FILE *file = fopen("/proc/meminfo", "r");
    while (file != NULL && kilobytes == 0 && fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "MemAvailable: %lld kB", &kilobytes) != 1)
            kilobytes = 0;
    if (file != NULL)
        fclose(file);
    return (int64_t)kilobytes * 1024;
}

void checkpoint_place_clean(const char *folder)
{
    char path[CHECKPOINT_PATH + 300];
    DIR *list = opendir(folder);
    for (struct dirent *entry; list != NULL && (entry = readdir(list)) != NULL;) {
        size_t n = strlen(entry->d_name);
        bool ours = strncmp(entry->d_name, "saving-", 7) == 0 ||
                    strncmp(entry->d_name, "removing-", 9) == 0;
        if (!ours || n < 4 || strcmp(entry->d_name + n - 4, ".tmp") != 0)
            continue;
        checkpoint_path(path, sizeof path, folder, entry->d_name);
        checkpoint_remove(path);
    }
    if (list != NULL)
        closedir(list);
}
