#define _GNU_SOURCE /* O_DIRECT, syscall */
#include "workloads/checkpoint_pipe.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

_Static_assert(sizeof(struct iocb) <= sizeof((struct checkpoint_pipe_slot){0}.control),
               "room for a control block");

static unsigned long aio_open(void)
{
    aio_context_t context = 0;
    return syscall(SYS_io_setup, (unsigned)CHECKPOINT_PIPE_DEPTH, &context) == 0 ? context : 0;
}

void checkpoint_aio_close(unsigned long context)
{
    if (context != 0)
        syscall(SYS_io_destroy, (aio_context_t)context);
}

int checkpoint_pipe_open(struct checkpoint_pipe *pipe, const char *path, bool writes, bool direct,
                         unsigned long *context)
{
    int flags = (writes ? O_WRONLY : O_RDONLY) | O_CLOEXEC;
    memset(pipe, 0, sizeof *pipe);
    pipe->writes = writes;
    pipe->fd = direct ? open(path, flags | O_DIRECT) : -1;
    pipe->direct = pipe->fd >= 0;
    if (pipe->fd < 0)
        pipe->fd = open(path, flags);
    if (pipe->fd < 0) {
        int code = errno;
        pipe->fd = 0;
        return code;
    }
    if (pipe->direct && *context == 0)
        *context = aio_open();
    pipe->context = pipe->direct ? *context : 0;
    if (!writes && !pipe->direct) /* what the page cache holds is no storage */
        (void)posix_fadvise(pipe->fd, 0, 0, POSIX_FADV_DONTNEED);
    return 0;
}

/* All of it at once, by the calling thread. */
static int move(const struct checkpoint_pipe *pipe, unsigned char *memory, size_t bytes, int64_t at)
{
    while (bytes > 0) {
        ssize_t n = pipe->writes ? pwrite(pipe->fd, memory, bytes, (off_t)at)
                                 : pread(pipe->fd, memory, bytes, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? errno : ENODATA;
        memory += n;
        bytes -= (size_t)n;
        at += n;
    }
    return 0;
}

/* At least so many operations that are under way end; 0: those that have. */
static int reap(struct checkpoint_pipe *pipe, long least)
{
    struct io_event events[CHECKPOINT_PIPE_DEPTH];
    struct timespec at_once = {0, 0};
    long n;
    do
        n = syscall(SYS_io_getevents, (aio_context_t)pipe->context, least,
                    (long)CHECKPOINT_PIPE_DEPTH, events, least > 0 ? NULL : &at_once);
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return errno;
    for (long i = 0; i < n; i++) {
        struct checkpoint_pipe_slot *slot = &pipe->slot[events[i].data];
        int64_t result = (int64_t)events[i].res;
        slot->busy = false;
        slot->code = result < 0 ? (int)-result : (size_t)result == slot->bytes ? 0 : ENODATA;
        if (slot->code == ENODATA && pipe->writes)
            slot->code = ENOSPC; /* a write that stops short has met the end of the space */
        pipe->under_way--;
    }
    return 0;
}

int checkpoint_pipe_wait(struct checkpoint_pipe *pipe, int64_t index)
{
    int code = 0;
    while (pipe->landed <= index && pipe->landed < pipe->posted) {
        struct checkpoint_pipe_slot *slot = &pipe->slot[pipe->landed % CHECKPOINT_PIPE_DEPTH];
        while (slot->busy && code == 0)
            code = reap(pipe, 1);
        if (code != 0)
            return code;
        pipe->landed++;
        if (slot->code != 0)
            return slot->code;
    }
    return 0;
}

bool checkpoint_pipe_room(struct checkpoint_pipe *pipe)
{
    if (pipe->under_way > 0)
        (void)reap(pipe, 0);
    while (pipe->landed < pipe->posted) { /* one that failed is left to be waited for */
        const struct checkpoint_pipe_slot *slot = &pipe->slot[pipe->landed % CHECKPOINT_PIPE_DEPTH];
        if (slot->busy || slot->code != 0)
            break;
        pipe->landed++;
    }
    return pipe->posted - pipe->landed < CHECKPOINT_PIPE_DEPTH;
}

static bool submit(struct checkpoint_pipe *pipe, int index, void *memory, size_t bytes, int64_t at)
{
    struct iocb *control = (struct iocb *)(void *)pipe->slot[index].control;
    memset(control, 0, sizeof *control);
    control->aio_data = (unsigned)index;
    control->aio_lio_opcode = pipe->writes ? IOCB_CMD_PWRITE : IOCB_CMD_PREAD;
    control->aio_fildes = (uint32_t)pipe->fd;
    control->aio_buf = (uint64_t)(uintptr_t)memory;
    control->aio_nbytes = bytes;
    control->aio_offset = at;
    return syscall(SYS_io_submit, (aio_context_t)pipe->context, 1L, &control) == 1;
}

int checkpoint_pipe_post(struct checkpoint_pipe *pipe, void *memory, size_t bytes, int64_t at)
{
    int index = (int)(pipe->posted % CHECKPOINT_PIPE_DEPTH), code = 0;
    struct checkpoint_pipe_slot *slot = &pipe->slot[index];
    if (pipe->posted - pipe->landed == CHECKPOINT_PIPE_DEPTH)
        code = checkpoint_pipe_wait(pipe, pipe->landed);
    if (code != 0)
        return code;
    pipe->posted++;
    slot->bytes = bytes;
    slot->code = 0;
    slot->busy = pipe->context != 0 && submit(pipe, index, memory, bytes, at);
    pipe->under_way += slot->busy;
    if (!slot->busy)
        slot->code = move(pipe, memory, bytes, at);
    return 0;
}

int checkpoint_pipe_sync(struct checkpoint_pipe *pipe)
{
    int code = checkpoint_pipe_wait(pipe, pipe->posted);
    if (code == 0 && fsync(pipe->fd) != 0)
        code = errno;
    return code;
}

void checkpoint_pipe_close(struct checkpoint_pipe *pipe)
{
    while (pipe->under_way > 0 && reap(pipe, 1) == 0)
        ;
    if (pipe->fd > 0)
        close(pipe->fd);
    memset(pipe, 0, sizeof *pipe);
}
