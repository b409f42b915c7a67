#include "base/progress.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

#include "base/err.h"
#include "base/prompt.h"
#include "base/units.h"

struct slot {
    _Atomic int64_t made; /* generation in which it was made last */
    int64_t asked;        /* generation in which it was asked for last; the host's own */
    int64_t at_ns;        /* written before `made` */
};

/* A ring with one writer (the host moves tail) and one reader (the thread moves head). */
struct queue {
    _Atomic uint64_t head, tail;
    struct progress_entry *ring; /* [depth] */
    bool started;                /* the task at the head; the thread's own */
};

/*
 * Who sleeps where. The thread sleeps on `bell` and says so in `parked`; the host sleeps on
 * `resume` and says so in `host_waits`. A waker first publishes, then looks whether the other
 * sleeps; a sleeper first says that it sleeps, then looks once more. All of it is sequentially
 * consistent, so that one of the two sees the other.
 */
struct progress {
    int n_queues, n_slots, depth;
    int64_t generation; /* of the slots; the host changes it while all queues are empty */
    struct queue *queues;
    struct slot *slots;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t bell, resume;
    _Atomic uint64_t rung; /* times that the host gave the thread a reason to look */
    atomic_bool parked, quit, host_waits;
    int host_slot; /* what the host waits for; NO_SLOT: that every queue is empty */
};
enum { NO_SLOT = -1 };

/*
 * Back-off between polls. While the host computes the thread only sleeps: on a shared core,
 * yielding would hand over a whole slice. While the host waits too nothing else needs the core, so
 * it polls hot for a while.
 */
enum { SLEEP_NS = 40000, HOT_POLLS_HOST_WAITS = 64, SLEEP_NS_HOST_WAITS = 10000 };

static bool is_made(struct progress *p, int slot)
{
    return atomic_load(&p->slots[slot].made) == p->generation;
}

static bool is_empty(struct queue *queue)
{
    return atomic_load(&queue->head) == atomic_load(&queue->tail);
}

static bool all_empty(struct progress *p)
{
    for (int i = 0; i < p->n_queues; i++)
        if (!is_empty(&p->queues[i]))
            return false;
    return true;
}

static bool host_may_go(struct progress *p)
{
    return p->host_slot != NO_SLOT ? is_made(p, p->host_slot) : all_empty(p);
}

static void make(struct progress *p, int slot)
{
    p->slots[slot].at_ns = units_now_ns();
    atomic_store(&p->slots[slot].made, p->generation);
}

static void wake_host(struct progress *p)
{
    if (!atomic_load(&p->host_waits))
        return;
    pthread_mutex_lock(&p->mutex);
    if (atomic_load(&p->host_waits) && host_may_go(p))
        pthread_cond_signal(&p->resume);
    pthread_mutex_unlock(&p->mutex);
}

/* Whether the task at the head has finished. */
static bool poll_task(struct queue *queue, const struct device_task *task)
{
    if (!queue->started)
        task->start(task->arg);
    queue->started = task->done != NULL && !task->done(task->arg);
    return !queue->started;
}

/* Whether the entry at the head has finished. */
static bool work_off(struct progress *p, struct queue *queue, const struct progress_entry *entry)
{
    switch (entry->kind) {
    case PROGRESS_TASK:
        return poll_task(queue, &entry->u.task);
    case PROGRESS_CALL:
        entry->u.call.kernel(entry->u.call.arg, NULL);
        return true;
    case PROGRESS_COPY:
        memcpy(entry->u.copy.to, entry->u.copy.from, entry->u.copy.bytes);
        return true;
    case PROGRESS_STAMP:
        make(p, entry->u.stamp);
        return true;
    case PROGRESS_AWAIT:
        return is_made(p, entry->u.stamp);
    }
    return true;
}

/* Take what can be taken off one queue; whether anything was. */
static bool advance(struct progress *p, struct queue *queue)
{
    uint64_t head = atomic_load(&queue->head);
    bool moved = false;

    while (head != atomic_load(&queue->tail) &&
           work_off(p, queue, &queue->ring[head % (uint64_t)p->depth])) {
        atomic_store(&queue->head, ++head);
        moved = true;
        wake_host(p);
    }
    return moved;
}

/* Nothing runs and nothing moves: only the host can change that, and it waits as well. So every
 * queue that is not empty stands at an await. */
static _Noreturn void die_of_deadlock(struct progress *p)
{
    for (int i = 0; i < p->n_queues; i++) {
        struct queue *queue = &p->queues[i];
        if (!is_empty(queue))
            die(FAIL_INTERNAL,
                "device: the host and every stream wait for each other: stream %d for stamp %d",
                i + 1, queue->ring[atomic_load(&queue->head) % (uint64_t)p->depth].u.stamp);
    }
    die(FAIL_INTERNAL, "device: the host waits for stamp %d, which no stream has been given",
        p->host_slot);
}

/* Sleep until the host rings again. */
static void park(struct progress *p, uint64_t seen)
{
    pthread_mutex_lock(&p->mutex);
    atomic_store(&p->parked, true);
    while (atomic_load(&p->rung) == seen && !atomic_load(&p->quit)) {
        if (atomic_load(&p->host_waits) && !host_may_go(p))
            die_of_deadlock(p);
        pthread_cond_wait(&p->bell, &p->mutex);
    }
    atomic_store(&p->parked, false);
    pthread_mutex_unlock(&p->mutex);
}

static void back_off(struct progress *p, int idle_polls)
{
    bool host_waits = atomic_load(&p->host_waits);

    if (host_waits && idle_polls < HOT_POLLS_HOST_WAITS)
        sched_yield();
    else
        units_sleep_ns(host_waits ? SLEEP_NS_HOST_WAITS : SLEEP_NS);
}

static void *run(void *arg)
{
    struct progress *p = arg;
    int idle_polls = 0;

    prompt_wakeups();
    while (!atomic_load(&p->quit)) {
        uint64_t seen = atomic_load(&p->rung);
        bool moved = false, running = false;
        for (int i = 0; i < p->n_queues; i++) {
            moved |= advance(p, &p->queues[i]);
            running |= p->queues[i].started;
        }
        if (moved) {
            idle_polls = 0;
        } else if (running) {
            back_off(p, idle_polls++);
        } else {
            park(p, seen);
            idle_polls = 0;
        }
    }
    return NULL;
}

/* Signals are the business of the host's thread. */
static int start_thread(struct progress *p)
{
    sigset_t all, old;
    int failed;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    failed = pthread_create(&p->thread, NULL, run, p);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return failed;
}

int progress_start(struct progress **out, int n_queues)
{
    struct progress *p = must_alloc(1, sizeof *p);

    *out = NULL;
    *p = (struct progress){.n_queues = n_queues, .generation = 1, .host_slot = NO_SLOT};
    p->queues = must_alloc((size_t)n_queues + 1, sizeof *p->queues);
    pthread_mutex_init(&p->mutex, NULL);
    pthread_cond_init(&p->bell, NULL);
    pthread_cond_init(&p->resume, NULL);
    if (n_queues > 0) {
        int failed = start_thread(p);
        if (failed) {
            free(p->queues);
            free(p);
            return fail(FAIL_INTERNAL, "device: cannot start the progress thread: %s",
                        strerror(failed));
        }
    }
    *out = p;
    return 0;
}

static void ring_bell(struct progress *p)
{
    atomic_fetch_add(&p->rung, 1);
    if (!atomic_load(&p->parked))
        return;
    pthread_mutex_lock(&p->mutex);
    pthread_cond_signal(&p->bell);
    pthread_mutex_unlock(&p->mutex);
}

void progress_stop(struct progress *p)
{
    if (p == NULL)
        return;
    progress_drain(p);
    if (p->n_queues > 0) {
        atomic_store(&p->quit, true);
        ring_bell(p);
        pthread_join(p->thread, NULL);
    }
    for (int i = 0; i < p->n_queues; i++)
        free(p->queues[i].ring);
    pthread_cond_destroy(&p->resume);
    pthread_cond_destroy(&p->bell);
    pthread_mutex_destroy(&p->mutex);
    free(p->queues);
    free(p->slots);
    free(p);
}

void progress_reserve(struct progress *p, int n_stamps, int depth)
{
    progress_drain(p);
    free(p->slots);
    p->slots = must_alloc((size_t)n_stamps + 1, sizeof *p->slots);
    p->n_slots = n_stamps;
    p->depth = depth;
    for (int i = 0; i < p->n_queues; i++) {
        free(p->queues[i].ring);
        p->queues[i].ring = must_alloc((size_t)depth + 1, sizeof *p->queues[i].ring);
    }
}

static void check_slot(const struct progress *p, int slot)
{
    if (slot < 0 || slot >= p->n_slots)
        BUG("stamp %d, but %d are reserved", slot, p->n_slots);
}

/* A slot names one moment between two drains; a second one would make waiting for it ambiguous. */
static void ask_for(struct progress *p, int slot)
{
    check_slot(p, slot);
    if (p->slots[slot].asked == p->generation)
        BUG("stamp %d is given out twice without a sync in between", slot);
    p->slots[slot].asked = p->generation;
}

void progress_push(struct progress *p, int queue_index, const struct progress_entry *entry)
{
    struct queue *queue;
    uint64_t tail;

    if (queue_index < 0 || queue_index >= p->n_queues)
        BUG("stream %d of %d", queue_index + 1, p->n_queues + 1);
    if (entry->kind == PROGRESS_STAMP)
        ask_for(p, entry->u.stamp);
    if (entry->kind == PROGRESS_AWAIT)
        check_slot(p, entry->u.stamp);
    queue = &p->queues[queue_index];
    tail = atomic_load(&queue->tail);
    if (tail - atomic_load(&queue->head) >= (uint64_t)p->depth)
        die(FAIL_INTERNAL, "device: stream %d is full: %d entries are outstanding, reserve more",
            queue_index + 1, p->depth);
    queue->ring[tail % (uint64_t)p->depth] = *entry;
    atomic_store(&queue->tail, tail + 1);
    ring_bell(p);
}

void progress_stamp(struct progress *p, int stamp)
{
    ask_for(p, stamp);
    make(p, stamp);
    /* Only the host fills queues: where all are empty, nobody waits for this stamp, and waking the
     * thread at every op would cost the core that computes. */
    if (!all_empty(p))
        ring_bell(p);
}

/* Sleep until the thread has brought about what the host waits for. */
static void host_wait(struct progress *p, int slot)
{
    pthread_mutex_lock(&p->mutex);
    p->host_slot = slot;
    atomic_store(&p->host_waits, true);
    /* a parked thread looks again, now that the host cannot: it may be the end of all movement */
    atomic_fetch_add(&p->rung, 1);
    pthread_cond_signal(&p->bell);
    while (!host_may_go(p))
        pthread_cond_wait(&p->resume, &p->mutex);
    atomic_store(&p->host_waits, false);
    p->host_slot = NO_SLOT;
    pthread_mutex_unlock(&p->mutex);
}

void progress_await(struct progress *p, int stamp)
{
    check_slot(p, stamp);
    if (is_made(p, stamp))
        return;
    if (p->n_queues == 0)
        die(FAIL_INTERNAL, "device: the host waits for stamp %d, which no stream has been given",
            stamp);
    host_wait(p, stamp);
}

void progress_drain(struct progress *p)
{
    if (!host_may_go(p))
        host_wait(p, NO_SLOT);
    p->generation++;
}

int64_t progress_when(const struct progress *p, int stamp)
{
    check_slot(p, stamp);
    return p->slots[stamp].at_ns;
}
