#include "analysis/record_merge.h"

#include <errno.h>
#include <fcntl.h>
#include <hdf5.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "analysis/record_child.h"
#include "analysis/record_hdf5.h"
#include "analysis/record_parts.h"
#include "analysis/record_publish.h"
#include "analysis/record_stream.h"
#include "base/err.h"

struct merge {
    char temporary[RECORD_PATH + 8];
    const char *folder;
    const struct record_head *head;
    struct record_parts parts;
};

/* What the child says when it fails; then its exit status is not 0. */
struct reason {
    char words[128];
};

static int copy_part(hid_t to, const struct merge *merge, const struct record_part *part)
{
    char path[RECORD_PATH + 56], group[64];
    snprintf(path, sizeof path, "%s/%s.h5", merge->folder, part->name);
    snprintf(group, sizeof group, "points/%s", part->name);
    hid_t from = record_open_file(path);
    int rc = from < 0 ? -1 : H5Ocopy(from, group, to, group, H5P_DEFAULT, H5P_DEFAULT);
    if (rc >= 0)
        H5Fclose(from);
    return rc < 0 ? -1 : 0;
}

/* In the child: nothing is closed after an error, since closing is what may crash. */
static int merge_parts(void *arg, int fd)
{
    const struct merge *merge = arg;
    struct reason reason;
    int64_t file;
    int rc = record_create_file(&file, merge->temporary);
    if (rc == 0)
        rc = record_put_head(file, merge->head);
    for (int i = 0; i < merge->parts.n && rc == 0; i++)
        rc = copy_part(file, merge, &merge->parts.parts[i]);
    if (rc == 0 && (H5Fflush(file, H5F_SCOPE_GLOBAL) < 0 || H5Fclose(file) < 0))
        rc = -1;
    if (rc == 0)
        return 0;
    record_hdf5_words(reason.words, sizeof reason.words);
    record_child_write(fd, &reason, sizeof reason);
    return 1;
}

static int run_child(struct merge *merge, const char *path)
{
    const struct record_limits limits = {(size_t)1 << 30, 3600, 3600};
    struct record_child child;
    struct reason reason = {"HDF5 died while merging; is the disk full?"};
    int rc = record_child_start(&child, merge_parts, merge, &limits);
    if (rc != 0)
        return rc;
    record_child_read(&child, &reason, sizeof reason);
    reason.words[sizeof reason.words - 1] = '\0';
    if (record_child_end(&child, false) == 0)
        return 0;
    return fail(FAIL_FILE, "record: cannot write %s: %s (the points stay in %s)", path,
                reason.words, merge->folder);
}

/* What HDF5 would meet half way and not survive, met before: a full disk, a quota, a limit. */
static int reserve(const struct merge *merge, const char *path)
{
    char part[RECORD_PATH + 56];
    struct stat found;
    off_t wanted = 4096;
    for (int i = 0; i < merge->parts.n; i++) {
        snprintf(part, sizeof part, "%s/%s.h5", merge->folder, merge->parts.parts[i].name);
        if (stat(part, &found) == 0)
            wanted += found.st_size;
    }
    int fd = open(merge->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    int code = fd < 0 ? errno : posix_fallocate(fd, 0, wanted);
    if (fd >= 0)
        close(fd);
    if (code == 0 || (fd >= 0 && (code == EINVAL || code == EOPNOTSUPP)))
        return 0; /* not every file system can */
    return fail(FAIL_FILE, "record: cannot write %s: %s, %.1f MB wanted (the points stay in %s)",
                path, strerror(code), (double)wanted / 1e6, merge->folder);
}

/* HDF5's word is not enough to throw the parts away. */
static int read_back(const struct merge *merge)
{
    struct record_file file = {0};
    int rc = record_stream_read(&file, merge->temporary, false);
    if (rc == 0 && file.n_parts != merge->parts.n)
        rc = fail(FAIL_FILE, "record: %s has %d points, %d were merged", merge->temporary,
                  file.n_parts, merge->parts.n);
    record_file_release(&file);
    return rc;
}

int record_merge(const char *path, const char *parts, const struct record_head *head)
{
    struct merge merge = {.folder = parts, .head = head};
    int rc;
    snprintf(merge.temporary, sizeof merge.temporary, "%s.tmp", path);
    TRY(record_parts_list(&merge.parts, parts));
    TRY(reserve(&merge, path));
    TRY(run_child(&merge, path));
    TRY(read_back(&merge));
    TRY(record_publish_file(merge.temporary, path));
out:
    if (rc != 0)
        unlink(merge.temporary);
    record_parts_release(&merge.parts);
    return rc;
}
