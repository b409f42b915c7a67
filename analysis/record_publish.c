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
        return fail_path("write", path, code);
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
        return fail_path("write", path, code);
    }
    return record_sync_folder(path);
}

int record_sync_folder(const char *path)
{
    char folder[RECORD_PATH];
    snprintf(folder, sizeof folder, "%s", path);
    char *slash = strrchr(folder, '/');
    if (slash == NULL)
        strcpy(folder, ".");
    else
        slash[slash == folder] = '\0';
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

int record_lock(const char *folder, int *fd)
{
    char path[RECORD_PATH + 8];
    struct stat opened, named;
    snprintf(path, sizeof path, "%s/lock", folder);
    *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (*fd < 0)
        return fail_path("write", path, errno);
    int code = wait_for_lock(*fd);
    if (code == 0 && fstat(*fd, &opened) == 0 && stat(path, &named) == 0 &&
        opened.st_ino == named.st_ino)
        return 0;
    close(*fd);
    *fd = -1;
    if (code != 0 && code != EWOULDBLOCK)
        return fail_path("lock", path, code);
    return fail(FAIL_FILE, "record: %s is in use: another run is writing this study", folder);
}
