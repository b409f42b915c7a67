#undef _GNU_SOURCE
#define _GNU_SOURCE /* memfd_create() */

#include <sys/mman.h>
#include <unistd.h>

#include "base/device_timed.h"

static size_t round_up(size_t bytes, size_t to)
{
    return (bytes + to - 1) / to * to;
}

static size_t region_of(size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t least = round_up(bytes / DEVICE_TIMED_WINDOWS + 1, page);

    return least > DEVICE_TIMED_REAL ? least : DEVICE_TIMED_REAL;
}

void *device_timed_map(size_t bytes)
{
    size_t region = region_of(bytes), total = round_up(bytes, region);
    int file = memfd_create("scalestudy-timed", MFD_CLOEXEC);
    char *all = MAP_FAILED;

    if (file < 0)
        return NULL;
    if (ftruncate(file, (off_t)region) == 0)
        all = mmap(NULL, total, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    for (size_t at = 0; all != MAP_FAILED && at < total; at += region)
        if (mmap(all + at, region, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) ==
            MAP_FAILED) {
            munmap(all, total);
            all = MAP_FAILED;
        }
    close(file);
    return all != MAP_FAILED ? all : NULL;
}

void device_timed_unmap(void *memory, size_t bytes)
{
    munmap(memory, round_up(bytes, region_of(bytes)));
}
