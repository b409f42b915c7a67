/*
 * progress: in-order queues worked off by one thread; the engine under the "cpu" device.
 *
 * One thread (the host's, which is the compute stream) pushes entries; one progress thread takes
 * the head of every queue in turn: starts a task once and polls it until it is done, runs calls and
 * copies, makes stamps, holds a queue at an await. Queues advance concurrently, each in its order.
 *
 * The thread sleeps on a condition variable while there is nothing that it could poll. While a task
 * is outstanding it polls and sleeps for tens of microseconds in between, so that of a core shared
 * with the host's arithmetic a few per cent are lost, and algorithms of many rounds still move.
 * When the host itself waits there is no arithmetic to disturb, and the thread polls faster.
 *
 * Stamps have generations. A slot is made at most once between two drains; progress_drain() makes
 * every slot unmade again, but its time stays readable until it is made anew. Waiting for a slot
 * that has not been made since the last drain waits for it to be made. When host and queues all
 * wait for each other, die() says so.
 *
 * Nothing is allocated after progress_reserve(). Too many entries on one queue: die().
 */
#ifndef BASE_PROGRESS_H
#define BASE_PROGRESS_H

#include <stddef.h>
#include <stdint.h>

#include "base/device.h"

enum progress_kind { PROGRESS_TASK, PROGRESS_CALL, PROGRESS_COPY, PROGRESS_STAMP, PROGRESS_AWAIT };

struct progress_entry {
    enum progress_kind kind;
    union {
        struct device_task task;
        struct {
            void (*kernel)(void *arg, void *native);
            void *arg;
        } call;
        struct {
            void *to;
            const void *from;
            size_t bytes;
        } copy;
        int stamp; /* PROGRESS_STAMP, PROGRESS_AWAIT */
    } u;
};

struct progress;

/* Start the thread, with queues 0..n-1 (none: no thread). FAIL_INTERNAL when it cannot start. */
int progress_start(struct progress **out, int n_queues);
void progress_stop(struct progress *progress); /* drains first; NULL is fine */

/* Drain, then make room for slots 0..n_stamps-1 and `depth` outstanding entries on each queue. */
void progress_reserve(struct progress *progress, int n_stamps, int depth);

/* All of these belong to the host's thread. */
void progress_push(struct progress *progress, int queue, const struct progress_entry *entry);
void progress_stamp(struct progress *progress, int stamp); /* by the host itself, now */
void progress_await(struct progress *progress, int stamp); /* the host sleeps until it is made */
void progress_drain(struct progress *progress); /* the host sleeps until every queue is empty */
int64_t progress_when(const struct progress *progress, int stamp); /* 0: never made */

#endif
