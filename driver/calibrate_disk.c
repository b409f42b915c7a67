/* The disk under the study file: written past the page cache and fsynced, then read back. */
#define _GNU_SOURCE /* O_DIRECT */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/rng.h"
#include "base/units.h"
#include "driver/agree.h"
#include "driver/calibrate_parts.h"
#include "driver/watchdog.h"

enum { BLOCK = 8 << 20, BLOCKS_MOST = 128, PAGE = 4096 };
#define MOST_NS INT64_C(1000000000) /* to write, and to read back what there is time for */

struct disk {
    char path[STUDY_PATH + 64];
    unsigned char *block;
    int fd, blocks, read_blocks;
    bool direct;
    double write_s, read_s;
};

static int disk_failed(const struct disk *disk, const char *what)
{
    return fail(FAIL_FILE, "calibrate: %s: %s: %s", disk->path, what, strerror(errno));
}

static int open_disk(struct disk *disk, int flags)
{
    disk->fd = open(disk->path, flags | O_DIRECT, 0600);
    disk->direct = disk->fd >= 0;
    if (disk->fd < 0 && errno == EINVAL) /* a file system without it */
        disk->fd = open(disk->path, flags, 0600);
    return disk->fd < 0 ? disk_failed(disk, "cannot be opened") : 0;
}

static int move(struct disk *disk, bool write_it, int index)
{
    for (size_t done = 0; done < BLOCK;) {
        off_t at = (off_t)index * BLOCK + (off_t)done;
        ssize_t n = write_it ? pwrite(disk->fd, disk->block + done, BLOCK - done, at)
                             : pread(disk->fd, disk->block + done, BLOCK - done, at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return disk_failed(disk, write_it ? "cannot be written" : "cannot be read");
        done += (size_t)n;
    }
    return 0;
}

static int write_all(struct disk *disk)
{
    int64_t begin = units_now_ns();
    int rc = 0;
    TRY(open_disk(disk, O_WRONLY | O_CREAT | O_EXCL));
    while (disk->blocks < BLOCKS_MOST && units_now_ns() - begin < MOST_NS)
        TRY(move(disk, true, disk->blocks++));
    if (fsync(disk->fd) != 0)
        rc = disk_failed(disk, "cannot be synced");
    disk->write_s = (double)(units_now_ns() - begin) / 1e9;
out:
    if (disk->fd >= 0 && close(disk->fd) != 0 && rc == 0)
        rc = disk_failed(disk, "cannot be closed");
    disk->fd = -1;
    return rc;
}

static int read_all(struct disk *disk)
{
    int rc = 0;
    TRY(open_disk(disk, O_RDONLY));
    if (!disk->direct)
        posix_fadvise(disk->fd, 0, 0, POSIX_FADV_DONTNEED);
    int64_t begin = units_now_ns();
    while (disk->read_blocks < disk->blocks && units_now_ns() - begin < MOST_NS)
        TRY(move(disk, false, disk->read_blocks++));
    disk->read_s = (double)(units_now_ns() - begin) / 1e9;
out:
    if (disk->fd >= 0)
        close(disk->fd);
    disk->fd = -1;
    return rc;
}

/* The folder of the study file, or where checkpoints would go. */
static void name_file(const struct job *job, struct disk *disk)
{
    const char *slash = strrchr(job->study.out, '/');
    int length = slash != NULL ? (int)(slash - job->study.out) : 0;
    if (job->study.checkpoint_dir[0] != '\0')
        snprintf(disk->path, sizeof disk->path, "%s/calibrate.%d.%d.tmp", job->study.checkpoint_dir,
                 (int)getpid(), job->rank);
    else
        snprintf(disk->path, sizeof disk->path, "%.*s/calibrate.%d.%d.tmp",
                 slash != NULL ? length : 1, slash != NULL ? job->study.out : ".", (int)getpid(),
                 job->rank);
}

static void add_row(struct calibration *c, const struct disk *disk, bool written)
{
    double seconds = written ? disk->write_s : disk->read_s;
    double bytes = (double)(written ? disk->blocks : disk->read_blocks) * BLOCK;
    const char *how = disk->direct ? "past the page cache" : "through the page cache";
    char shape[128];
    snprintf(shape, sizeof shape, "%s, blocks of 8 MiB, %s", written ? "write and fsync" : "read",
             how);
    struct ceiling_row *row = calibrate_row(c, "disk", shape);
    row->bytes = bytes;
    calibrate_times(row, &seconds, 1, bytes, "B/s");
    calibrate_fact(&c->topology.fact[written ? FACT_DISK_WRITE : FACT_DISK_READ], row->rate,
                   "scalestudy calibrate: %s of %.0f MB, %s, one rank of each node",
                   written ? "write and fsync" : "read", bytes / 1e6, how);
}

int calibrate_disk(struct calibration *c)
{
    struct job *job = c->job;
    struct disk disk = {.fd = -1};
    int rc = 0;
    watchdog_at("calibrate", BLOCKS_MOST, "the disk");
    name_file(job, &disk);
    if (job->found.ranks[job->rank].local == 0) {
        if (posix_memalign((void **)&disk.block, PAGE, BLOCK) != 0)
            rc = fail(FAIL_INTERNAL, "calibrate: no memory for a block");
        if (rc == 0)
            rng_fill_normal((float *)(void *)disk.block, BLOCK / sizeof(float),
                            rng_key(1, "calibrate.disk"), 0, 1.0f);
        if (rc == 0)
            rc = write_all(&disk);
        if (rc == 0)
            rc = read_all(&disk);
        unlink(disk.path);
        free(disk.block);
    }
    rc = agree(rc, job->world);
    if (rc == 0 && job->rank == 0) {
        add_row(c, &disk, true);
        add_row(c, &disk, false);
    }
    return rc;
}
