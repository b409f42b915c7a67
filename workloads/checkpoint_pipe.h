/*
 * checkpoint_pipe: blocks of memory to or from a file at given places, several under way.
 *
 * O_DIRECT where the file system has it, by Linux native asynchronous I/O (io_submit); else, or where
 * the kernel refuses that interface, pread and pwrite. Memory, length and place are multiples of
 * CHECKPOINT_ALIGN. Functions return 0 or an errno.
 */
#ifndef WORKLOADS_CHECKPOINT_PIPE_H
#define WORKLOADS_CHECKPOINT_PIPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Deep, so that the disk has work while a nice thread waits for its turn. */
enum { CHECKPOINT_PIPE_DEPTH = 16 };

/*
 * What io_submit needs, made by the first pipe that can use it and kept by who opens pipes one after
 * the other, since to close one takes the kernel tens of milliseconds. One pipe at a time may have
 * operations under way on it. 0: none.
 */
void checkpoint_aio_close(unsigned long context);

struct checkpoint_pipe {
    int fd;
    bool direct; /* the file is open with O_DIRECT */
    bool writes;
    unsigned long context; /* aio_context_t; 0: none, every operation is done when posted */
    int under_way;
    int64_t posted, landed; /* operations ever; they land in order for the caller */
    struct checkpoint_pipe_slot {
        size_t bytes;
        bool busy;
        int code;            /* when it is no longer busy */
        uint64_t control[8]; /* struct iocb */
    } slot[CHECKPOINT_PIPE_DEPTH];
};

/* Open an existing file. */
int checkpoint_pipe_open(struct checkpoint_pipe *pipe, const char *path, bool writes, bool direct,
                         unsigned long *context);
/* Could one be posted without waiting? Takes note of what has landed. */
bool checkpoint_pipe_room(struct checkpoint_pipe *pipe);
/* Start one operation; waits for the oldest when CHECKPOINT_PIPE_DEPTH are under way. */
int checkpoint_pipe_post(struct checkpoint_pipe *pipe, void *memory, size_t bytes, int64_t at);
/* Until operation `index` (from 0 in the order of posting) has landed. */
int checkpoint_pipe_wait(struct checkpoint_pipe *pipe, int64_t index);
int checkpoint_pipe_sync(struct checkpoint_pipe *pipe); /* all landed, then fsync */
/* Waits for what is under way. Safe on a zeroed struct. */
void checkpoint_pipe_close(struct checkpoint_pipe *pipe);

#endif
