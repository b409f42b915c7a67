#include "analysis/record_publish.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/units.h"

static int fail_path(const char *verb, const char *path, int code)
{
    return fail(FAIL_FILE, "record: cannot %s %s: %s", verb, path, strerror(code));
}

int record_cannot_write(const char *path, int code)
{
    return fail_path("write", path, code);
}

bool record_exists(const char *path)
{
    struct stat found;
    return lstat(path, &found) == 0;
}

static int write_all(int fd, const char *bytes, size_t size)
{
    while (size > 0) {
        ssize_t n = write(fd, bytes, size < 1 << 30 ? size : 1 << 30);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? errno : EIO;
        bytes += n;
        size -= (size_t)n;
    }
    return 0;
}

static int write_synced(const char *path, const void *bytes, size_t size)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return errno;
    int code = write_all(fd, bytes, size);
    if (code == 0 && fsync(fd) != 0)
        code = errno;
    if (close(fd) != 0 && code == 0)
        code = errno;
    return code;
}

int record_publish(const char *path, const void *bytes, size_t size)
{
    char temporary[RECORD_PATH + 8];
    snprintf(temporary, sizeof temporary, "%s.tmp", path);
    int code = write_synced(temporary, bytes, size);
    if (code == 0 && rename(temporary, path) != 0)
        code = errno;
    if (code != 0) {
        unlink(temporary);
        return record_cannot_write(path, code);
    }
    return record_sync_folder(path);
}

/* rename() would replace the target; where links are not known, a look before has to do. */
static int rename_new(const char *from, const char *to)
{
    if (link(from, to) == 0)
        return unlink(from) == 0 ? 0 : errno;
    int code = errno;
    if (code == EEXIST || record_exists(to))
        return EEXIST;
    return rename(from, to) == 0 ? 0 : code;
}

int record_publish_file(const char *temporary, const char *path)
{
    int fd = open(temporary, O_RDONLY | O_CLOEXEC);
    int code = fd < 0 || fsync(fd) != 0 ? errno : 0;
    if (fd >= 0)
        close(fd);
    if (code == 0)
        code = rename_new(temporary, path);
    if (code != 0) {
        unlink(temporary);
        return record_cannot_write(path, code);
    }
    return record_sync_folder(path);
}

static void folder_of(const char *path, char folder[RECORD_PATH])
{
    snprintf(folder, RECORD_PATH, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash == NULL)
        strcpy(folder, ".");
    else
        slash[slash == folder] = '\0';
}

int record_cannot_make(const char *path)
{
    char folder[RECORD_PATH];
    struct stat found;
    if (lstat(path, &found) == 0)
        return EEXIST;
    if (errno != ENOENT)
        return errno;
    folder_of(path, folder);
    return access(folder, W_OK | X_OK) == 0 ? 0 : errno;
}

int record_sync_folder(const char *path)
{
    char folder[RECORD_PATH];
    folder_of(path, folder);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return fail_path("open", folder, errno);
    int code = fsync(fd) == 0 || errno == EINVAL ? 0 : errno; /* EINVAL: has no such thing */
    close(fd);
    return code == 0 ? 0 : fail_path("sync", folder, code);
}

/* A file system without locks (Lustre often) is no reason not to measure. */
static bool unlockable(int code)
{
    return code == ENOSYS || code == EOPNOTSUPP || code == ENOLCK;
}

static int wait_for_lock(int fd)
{
    for (int tries = 0; flock(fd, LOCK_EX | LOCK_NB) != 0; tries++) {
        if (unlockable(errno))
            return 0;
        if (errno != EINTR && (errno != EWOULDBLOCK || tries >= 100))
            return errno;
        units_sleep_ns(10 * 1000 * 1000); /* a killed writer may still be dying */
    }
    return 0;
}

/* `create` is O_CREAT, or 0: then one that could be made is nobody's. */
static int take_lock(const char *folder, int create, int *fd)
{
    char path[RECORD_PATH + 8];
    struct stat opened, named;
    snprintf(path, sizeof path, "%s/lock", folder);
    *fd = open(path, O_RDWR | create | O_CLOEXEC, 0666);
    int code = *fd < 0 ? errno : 0;
    if (code == ENOENT && create == 0 && (code = record_cannot_make(path)) == 0)
        return 0;
    if (code != 0)
        return record_cannot_write(path, code);
    code = wait_for_lock(*fd);
    if (code == 0 && fstat(*fd, &opened) == 0 && stat(path, &named) == 0 &&
        opened.st_ino == named.st_ino)
        return 0;
    close(*fd);
    *fd = -1;
    if (code != 0 && code != EWOULDBLOCK)
        return fail_path("lock", path, code);
    return fail(FAIL_FILE, "record: %s is in use: another run is writing this study", folder);
}

int record_lock(const char *folder, int *fd)
{
    return take_lock(folder, O_CREAT, fd);
}

int record_lock_there(const char *folder, int *fd)
{
    return take_lock(folder, 0, fd);
}
