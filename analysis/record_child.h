/*
 * record_child: a function run in a forked child, because HDF5 may crash, hang or eat memory on a
 * damaged file, and on a disk that fills while it closes.
 *
 * The child has limits of memory (beside what the parent has mapped), CPU time and wall time, is
 * deaf to the terminal and silent, and dies with its parent. It speaks through a pipe.
 */
#ifndef ANALYSIS_RECORD_CHILD_H
#define ANALYSIS_RECORD_CHILD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct record_limits {
    size_t memory_bytes; /* not kept under sanitizers, whose shadow memory is not ours to count */
    unsigned cpu_s, wall_s;
};

struct record_child {
    pid_t pid;
    int fd; /* what the child writes */
};

/* body(arg, fd) runs in the child, its result (0 to 255) is the exit status. FAIL_FILE: no fork. */
int record_child_start(struct record_child *child, int (*body)(void *arg, int fd), void *arg,
                       const struct record_limits *limits);

/* Whether memory is not limited in this build. */
bool record_child_unlimited(void);

/* Exactly `size` bytes from the child, or false. */
bool record_child_read(const struct record_child *child, void *bytes, size_t size);

/* For the child: all bytes to the pipe, or false. */
bool record_child_write(int fd, const void *bytes, size_t size);

/* Close the pipe and wait. The exit status, or -1 when a signal or limit ended it; with `end`, a
 * child that still runs is killed first. */
int record_child_end(struct record_child *child, bool end);

#endif
