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
#include "workloads/checkpoint_manifest.h"

int checkpoint_place_make(const char *folder)
{
    char path[CHECKPOINT_PATH];
    struct stat found;
    snprintf(path, sizeof path, "%s", folder);
    for (char *at = path + 1; *at != '\0'; at++)
        if (*at == '/') {
            *at = '\0';
            (void)mkdir(path, 0777);
            *at = '/';
        }
    if (mkdir(path, 0777) != 0 && errno != EEXIST)
        return fail(FAIL_FILE, "checkpoint: cannot make %s: %s", folder, strerror(errno));
    if (stat(path, &found) != 0 || !S_ISDIR(found.st_mode))
        return fail(FAIL_FILE, "checkpoint: %s is no folder", folder);
    return 0;
}

int checkpoint_place_look(const char *folder)
{
    char path[CHECKPOINT_PATH];
    struct stat found;
    snprintf(path, sizeof path, "%s", folder);
    while (stat(path, &found) != 0 && errno == ENOENT) { /* up to what is there */
        char *slash = strrchr(path, '/');
        if (slash == path || slash == NULL)
            snprintf(path, sizeof path, slash == path ? "/" : ".");
        else
            *slash = '\0';
    }
    if (stat(path, &found) == 0 && !S_ISDIR(found.st_mode))
        return fail(FAIL_FILE, "checkpoint: %s is no folder", path);
    if (access(path, W_OK | X_OK) != 0)
        return fail(FAIL_FILE, "checkpoint: cannot write in %s: %s", path, strerror(errno));
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

static int plant(const char *folder, char *name, size_t size)
{
    char path[CHECKPOINT_PATH + 64];
    snprintf(name, size, ".seen-%ld-%lld", (long)getpid(), (long long)units_now_ns());
    checkpoint_path(path, sizeof path, folder, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return fail(FAIL_FILE, "checkpoint: cannot write in %s: %s", folder, strerror(errno));
    close(fd);
    return 0;
}

int checkpoint_place_shared(const char *folder, int rank, const void *comm, bool *sees)
{
    char name[64] = "", path[CHECKPOINT_PATH + 64], own[64];
    int rc = 0;
    *sees = true;
    if (rank == 0)
        rc = checkpoint_place_make(folder);
    TRY(agree_quietly(rc, comm));
    if (rank == 0)
        rc = plant(folder, name, sizeof name);
    TRY(agree_quietly(rc, comm));
    TRY(agree_broadcast(name, sizeof name, 0, comm));
    checkpoint_path(path, sizeof path, folder, name);
    *sees = access(path, F_OK) == 0;
    if (!*sees && (rc = checkpoint_place_make(folder)) == 0) {
        rc = plant(folder, own, sizeof own); /* a folder of this node's own */
        checkpoint_path(path, sizeof path, folder, own);
        unlink(path);
    }
    TRY(agree_quietly(rc, comm)); /* all have looked */
    if (rank == 0)
        unlink(path);
out:
    return rc;
}

/* ---- nobody else saves there ---- */

int checkpoint_place_hold(const char *folder, int seconds, int *held)
{
    const int tries = 10 * seconds;
    *held = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; *held >= 0 && i < tries; i++) {
        if (flock(*held, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
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
