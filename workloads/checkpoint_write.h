/*
 * checkpoint_write: the one thread of a rank that brings staged bytes to storage.
 *
 * The thread takes one save at a time: the chunks of an image, in order, as each is declared ready.
 * It writes with O_DIRECT (Linux native asynchronous I/O, up to CHECKPOINT_PIPE_DEPTH chunks in flight; plain
 * pwrite where the file system takes no direct I/O), and hashes what is on its way, part by part. When all
 * have been written it writes the small state, and fsyncs. The thread is nice and of low I/O
 * priority, and stays off the core that the launch thread was on when it began, where there are several
 * others.
 *
 * It calls no MPI, no HDF5 and no device. What goes wrong is kept in the save, in words; the rest of
 * that save is then skipped.
 *
 * A second kind of job, checkpoint_writer_call(), runs a function on the same thread behind the save:
 * publishing, so that no step waits for it.
 */
#ifndef WORKLOADS_CHECKPOINT_WRITE_H
#define WORKLOADS_CHECKPOINT_WRITE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "workloads/checkpoint_file.h"

/* Elements [first, first + n) of an array's image, both multiples of CHECKPOINT_BLOCK. */
struct checkpoint_chunk {
    int array;
    int64_t first, n;
    const float
        *data; /* CHECKPOINT_ALIGN bytes aligned; owned by the giver until the save is done */
};

struct checkpoint_save {
    /* The giver's, constant while the save is under way. */
    char path[CHECKPOINT_PATH]; /* of a file that checkpoint_file_create() made */
    struct checkpoint_place place;
    const struct checkpoint_shard *shard;
    int n_chunks;
    const struct checkpoint_chunk *chunks; /* those of an array ascend and cover it */
    const void *small;                     /* CHECKPOINT_ALIGN bytes, aligned */
    bool direct;                           /* try O_DIRECT */
    int64_t throttle_bytes_per_s;          /* tests: a slow disk; 0: none */
    /* Where a device counts chunks that hold their bytes, in order, instead of checkpoint_writer_ready();
     * looked at five times in a millisecond. The giver's memory; NULL: there is none. */
    atomic_int *arrived;

    /* The writer's; valid when checkpoint_save_done(). */
    uint64_t *hash; /* [n_parts][CHECKPOINT_ARRAYS]; the giver's memory */
    uint64_t small_hash;
    bool was_direct;
    int64_t begin_ns, quarter_ns, three_quarters_ns, end_ns; /* written so far; all, and fsynced */
    int64_t posted_ns, landed_ns;      /* the last write has begun; all have ended */
    int64_t given_bytes, landed_bytes; /* to the disk so far */
    int landed;                        /* chunks that are there */
    int code;                          /* 0, or FAIL_FILE and: */
    char why[CHECKPOINT_PATH + 256];

    /* Shared. */
    int ready; /* chunks that have been declared ready */
    bool done;
};

struct checkpoint_writer;

/* `nice`: how far the thread steps back (setpriority); more than 0 also lowers its I/O priority. 0 on
 * machines with more threads than cores, where a nice thread would never run. FAIL_INTERNAL when the
 * thread cannot start. */
int checkpoint_writer_start(struct checkpoint_writer **out, int nice);
void checkpoint_writer_stop(
    struct checkpoint_writer *writer); /* finishes what it has; NULL is fine */

/* Queue a save, no chunk of it ready yet. Sixteen jobs at most are queued (BUG). */
void checkpoint_writer_give(struct checkpoint_writer *writer, struct checkpoint_save *save);

/* One more chunk of the save holds its bytes, in order. Any thread. */
void checkpoint_writer_ready(struct checkpoint_writer *writer, struct checkpoint_save *save);

/* The save ends as soon as it can, with this code and words (of another rank that failed). */
void checkpoint_writer_give_up(struct checkpoint_writer *writer, struct checkpoint_save *save,
                               const char *why);

/* Run call(arg) behind what is queued. Poll checkpoint_writer_called(). */
void checkpoint_writer_call(struct checkpoint_writer *writer, void (*call)(void *arg), void *arg);
bool checkpoint_writer_called(struct checkpoint_writer *writer); /* no call is outstanding */

bool checkpoint_save_done(struct checkpoint_writer *writer, const struct checkpoint_save *save);
void checkpoint_save_wait(struct checkpoint_writer *writer, const struct checkpoint_save *save);

#endif
