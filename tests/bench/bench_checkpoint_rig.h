/* bench_checkpoint_rig: raw writes, and ratios as they are printed. */
#ifndef TESTS_BENCH_CHECKPOINT_RIG_H
#define TESTS_BENCH_CHECKPOINT_RIG_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "analysis/stats.h"
#include "base/err.h"
#include "base/units.h"
#include "workloads/checkpoint_pipe.h"

enum { SAMPLES = 4000, CHUNK = 16 << 20 };

static inline void must(int rc)
{
    if (rc != 0)
        die(rc, "%s", fail_message());
}

static inline void print_ratio(const char *what, const double *ratio, int n)
{
    struct stats_interval m;
    stats_quantile_interval(ratio, n, 0.5, 0.95, &m);
    printf("%-58s %8.4f  %8.4f .. %8.4f   n %d\n", what, m.value, m.low, m.high, n);
}

static inline void print_ms(const char *what, const double *ns, int n)
{
    struct stats_interval m;
    stats_quantile_interval(ns, n, 0.5, 0.95, &m);
    printf("%-58s %8.3f  %8.3f .. %8.3f ms\n", what, m.value / 1e6, m.low / 1e6, m.high / 1e6);
}

/* Room is there before the clock starts, as for a checkpoint. Returns ns until it is fsynced. */
static inline double raw_write(const char *path, unsigned char *data, int64_t bytes, bool deep)
{
    static unsigned long context;
    unsigned long none = 0;
    struct checkpoint_pipe pipe;
    int fd = open(path, O_CREAT | O_EXCL | O_RDWR, 0666);
    if (fd < 0 || ftruncate(fd, bytes) != 0 ||
        (fallocate(fd, 0, 0, bytes) != 0 && errno != EOPNOTSUPP))
        die(FAIL_FILE, "%s: %s", path, strerror(errno));
    close(fd);
    int64_t begin = units_now_ns();
    int code = checkpoint_pipe_open(&pipe, path, true, true, deep ? &context : &none);
    if (!deep)
        pipe.context = 0;
    for (int64_t at = 0; at < bytes && code == 0; at += CHUNK)
        code = checkpoint_pipe_post(&pipe, data + at,
                                    (size_t)(bytes - at < CHUNK ? bytes - at : CHUNK), at);
    if (code == 0)
        code = checkpoint_pipe_sync(&pipe);
    int64_t end = units_now_ns();
    checkpoint_pipe_close(&pipe);
    checkpoint_aio_close(none);
    unlink(path);
    if (code != 0)
        die(FAIL_FILE, "%s: %s", path, strerror(code));
    return (double)(end - begin);
}

#endif
