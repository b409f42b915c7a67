#define _GNU_SOURCE /* sched_getcpu, CPU sets, gettid by syscall */
#include "workloads/checkpoint_write.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/err.h"
#include "base/units.h"
#include "workloads/checkpoint_pipe.h"

enum {
    QUEUE = 16,
    ASIDE = 2, /* CPUs that must be left: of one alone, others may have made a worse place */
};

struct job { /* a save, or a call */
    struct checkpoint_save *save;
    void (*call)(void *arg);
    void *arg;
};

struct checkpoint_writer {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct job queue[QUEUE];
    int first, n;
    int calls; /* outstanding */
    bool stop;
    int nice;
    unsigned long aio;
    int launch_cpu; /* where the launch thread was at the start, -1 unknown */
};

/* ---- the thread's place ---- */

/* Nice, last in the best-effort class of I/O, and not on the core of the launch thread. None of it is
 * worth failing for. */
static void step_aside(const struct checkpoint_writer *writer)
{
    enum { IOPRIO_WHO_PROCESS = 1, CLASS_BEST_EFFORT = 2, CLASS_SHIFT = 13, LOWEST = 7 };
    pid_t me = (pid_t)syscall(SYS_gettid);
    cpu_set_t cpus;
    if (writer->nice > 0) {
        (void)setpriority(PRIO_PROCESS, (id_t)me, writer->nice);
        (void)syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, me,
                      CLASS_BEST_EFFORT << CLASS_SHIFT | LOWEST);
    }
    if (writer->launch_cpu < 0 || sched_getaffinity(0, sizeof cpus, &cpus) != 0)
        return;
    CPU_CLR((size_t)writer->launch_cpu, &cpus);
    if (CPU_COUNT(&cpus) >= ASIDE)
        (void)sched_setaffinity(0, sizeof cpus, &cpus);
}

/* ---- hashes, part by part ---- */

struct hasher {
    XXH3_state_t *state[CHECKPOINT_ARRAYS]; /* of the part that the next element belongs to */
    int part[CHECKPOINT_ARRAYS];
};

static void hasher_open(struct hasher *hasher)
{
    for (int a = 0; a < CHECKPOINT_ARRAYS; a++) {
        hasher->state[a] = XXH3_createState();
        XXH3_64bits_reset(hasher->state[a]);
        hasher->part[a] = 0;
    }
}

static void hasher_close(struct hasher *hasher)
{
    for (int a = 0; a < CHECKPOINT_ARRAYS; a++)
        XXH3_freeState(hasher->state[a]);
}

static void hash_chunk(struct hasher *hasher, const struct checkpoint_save *save,
                       const struct checkpoint_chunk *chunk)
{
    const struct checkpoint_shard *shard = save->shard;
    int a = chunk->array, *part = &hasher->part[a];
    int64_t end = chunk->first + chunk->n;
    for (; *part < shard->n_parts; (*part)++) {
        const struct checkpoint_part *p = &shard->parts[*part];
        int64_t from = p->offset > chunk->first ? p->offset : chunk->first;
        int64_t to = p->offset + p->count < end ? p->offset + p->count : end;
        if (from < to)
            XXH3_64bits_update(hasher->state[a], chunk->data + (from - chunk->first),
                               (size_t)(to - from) * sizeof(float));
        if (p->offset + p->count > end)
            return; /* goes on in the next chunk */
        save->hash[*part * CHECKPOINT_ARRAYS + a] = XXH3_64bits_digest(hasher->state[a]);
        XXH3_64bits_reset(hasher->state[a]);
    }
}

/* ---- one save ---- */

/* As the giver declared them, or the device has left word. */
static int ready_of(const struct checkpoint_save *save)
{
    int told = save->arrived != NULL ? atomic_load(save->arrived) : 0;
    return told > save->ready ? told : save->ready;
}

static void wait_for_chunks(struct checkpoint_writer *writer, const struct checkpoint_save *save)
{
    struct timespec until;
    if (save->arrived == NULL) {
        pthread_cond_wait(&writer->changed, &writer->lock);
        return;
    }
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 200000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&writer->changed, &writer->lock, &until);
}

/* Chunks that may be written: more than `least`, waited for when `wait`. -1: the save was given up. */
static int await_ready(struct checkpoint_writer *writer, struct checkpoint_save *save, int least,
                       bool wait)
{
    pthread_mutex_lock(&writer->lock);
    while (wait && ready_of(save) <= least && save->code == 0)
        wait_for_chunks(writer, save);
    int ready = save->code == 0 ? ready_of(save) : -1;
    pthread_mutex_unlock(&writer->lock);
    return ready;
}

static bool goes_on(struct checkpoint_writer *writer, const struct checkpoint_save *save)
{
    pthread_mutex_lock(&writer->lock);
    bool go_on = save->code == 0;
    pthread_mutex_unlock(&writer->lock);
    return go_on;
}

static void keep_failure(struct checkpoint_writer *writer, struct checkpoint_save *save, int code)
{
    pthread_mutex_lock(&writer->lock);
    if (save->code == 0) {
        save->code = FAIL_FILE;
        snprintf(save->why, sizeof save->why, "checkpoint: cannot write %s: %s", save->path,
                 strerror(code));
    }
    pthread_mutex_unlock(&writer->lock);
}

/* By what has landed. */
static void note_progress(struct checkpoint_save *save, const struct checkpoint_pipe *pipe)
{
    int64_t all = CHECKPOINT_ARRAYS * save->place.padded * (int64_t)sizeof(float);
    int64_t now = units_now_ns();
    while (save->landed < pipe->landed && save->landed < save->n_chunks)
        save->landed_bytes += save->chunks[save->landed++].n * (int64_t)sizeof(float);
    if (save->quarter_ns == 0 && 4 * save->landed_bytes >= all)
        save->quarter_ns = now;
    if (save->three_quarters_ns == 0 && 4 * save->landed_bytes >= 3 * all)
        save->three_quarters_ns = now;
}

static int land_all(struct checkpoint_save *save, struct checkpoint_pipe *pipe)
{
    int code = 0;
    while (code == 0 && pipe->landed < pipe->posted) {
        code = checkpoint_pipe_wait(pipe, pipe->landed);
        note_progress(save, pipe);
    }
    return code;
}

static void hold_back(const struct checkpoint_save *save, int64_t done)
{
    if (save->throttle_bytes_per_s <= 0)
        return;
    double due = (double)done / (double)save->throttle_bytes_per_s * 1e9;
    int64_t ahead = save->begin_ns + (int64_t)due - units_now_ns();
    if (ahead > 0)
        units_sleep_ns(ahead);
}

static int post_chunk(struct checkpoint_save *save, struct checkpoint_pipe *pipe, int index)
{
    const struct checkpoint_chunk *chunk = &save->chunks[index];
    int64_t bytes = chunk->n * (int64_t)sizeof(float), done = save->given_bytes;
    int64_t at = save->place.array[chunk->array] + chunk->first * (int64_t)sizeof(float);
    hold_back(save, done);
    int code = checkpoint_pipe_post(pipe, (void *)(uintptr_t)chunk->data, (size_t)bytes, at);
    save->posted_ns = units_now_ns();
    save->given_bytes = done + bytes;
    return code;
}

/* All that is ready and fits is on its way before any of it is hashed: a nice thread gets its turn late,
 * and the disk shall not wait for it. */
static int write_chunks(struct checkpoint_writer *writer, struct checkpoint_save *save,
                        struct checkpoint_pipe *pipe, struct hasher *hasher)
{
    int code = 0, posted = 0, hashed = 0;
    while (code == 0 && hashed < save->n_chunks) {
        bool caught_up = hashed == posted;
        int ready = await_ready(writer, save, posted, caught_up && posted < save->n_chunks);
        if (ready < 0)
            return 0;
        bool room = checkpoint_pipe_room(pipe);
        note_progress(save, pipe);
        if (posted < ready && (caught_up || room))
            code = post_chunk(save, pipe, posted++);
        else
            hash_chunk(hasher, save, &save->chunks[hashed++]);
    }
    return code;
}

static void write_save(struct checkpoint_writer *writer, struct checkpoint_save *save)
{
    struct checkpoint_pipe pipe;
    struct hasher hasher;
    save->begin_ns = units_now_ns();
    int code = checkpoint_pipe_open(&pipe, save->path, true, save->direct, &writer->aio);
    hasher_open(&hasher);
    if (code == 0) {
        save->was_direct = pipe.direct;
        code = write_chunks(writer, save, &pipe, &hasher);
    }
    if (code == 0 && goes_on(writer, save)) {
        save->small_hash = XXH3_64bits(save->small, CHECKPOINT_ALIGN);
        code = checkpoint_pipe_post(&pipe, (void *)(uintptr_t)save->small, CHECKPOINT_ALIGN,
                                    save->place.small);
    }
    if (code == 0 && goes_on(writer, save))
        code = land_all(save, &pipe);
    save->landed_ns = units_now_ns();
    if (code == 0 && goes_on(writer, save))
        code = checkpoint_pipe_sync(&pipe);
    checkpoint_pipe_close(&pipe);
    hasher_close(&hasher);
    if (code != 0)
        keep_failure(writer, save, code);
    save->end_ns = units_now_ns();
}

/* ---- the thread ---- */

static void *work(void *arg)
{
    struct checkpoint_writer *writer = arg;
    step_aside(writer);
    pthread_mutex_lock(&writer->lock);
    for (;;) {
        while (writer->n == 0 && !writer->stop)
            pthread_cond_wait(&writer->changed, &writer->lock);
        if (writer->n == 0)
            break;
        struct job job = writer->queue[writer->first];
        pthread_mutex_unlock(&writer->lock);
        if (job.save != NULL)
            write_save(writer, job.save);
        else
            job.call(job.arg);
        pthread_mutex_lock(&writer->lock);
        if (job.save != NULL) {
            job.save->done = true;
        } else {
            writer->calls--;
        }
        writer->first = (writer->first + 1) % QUEUE;
        writer->n--;
        pthread_cond_broadcast(&writer->changed);
    }
    pthread_mutex_unlock(&writer->lock);
    return NULL;
}

int checkpoint_writer_start(struct checkpoint_writer **out, int nice)
{
    struct checkpoint_writer *writer = must_alloc(1, sizeof *writer);
    pthread_mutex_init(&writer->lock, NULL);
    pthread_cond_init(&writer->changed, NULL);
    writer->nice = nice;
    writer->launch_cpu = sched_getcpu();
    int code = pthread_create(&writer->thread, NULL, work, writer);
    if (code != 0) {
        free(writer);
        return fail(FAIL_INTERNAL, "checkpoint: no thread to write with: %s", strerror(code));
    }
    *out = writer;
    return 0;
}

void checkpoint_writer_stop(struct checkpoint_writer *writer)
{
    if (writer == NULL)
        return;
    pthread_mutex_lock(&writer->lock);
    writer->stop = true;
    pthread_cond_broadcast(&writer->changed);
    pthread_mutex_unlock(&writer->lock);
    pthread_join(writer->thread, NULL);
    checkpoint_aio_close(writer->aio);
    pthread_cond_destroy(&writer->changed);
    pthread_mutex_destroy(&writer->lock);
    free(writer);
}

static void queue_job(struct checkpoint_writer *writer, struct job job)
{
    pthread_mutex_lock(&writer->lock);
    if (writer->n == QUEUE)
        BUG("more than %d jobs of a checkpoint's writer", QUEUE);
    writer->queue[(writer->first + writer->n++) % QUEUE] = job;
    writer->calls += job.save == NULL;
    pthread_cond_broadcast(&writer->changed);
    pthread_mutex_unlock(&writer->lock);
}

void checkpoint_writer_give(struct checkpoint_writer *writer, struct checkpoint_save *save)
{
    save->ready = save->code = 0;
    if (save->arrived != NULL)
        atomic_store(save->arrived, 0);
    save->done = false;
    save->quarter_ns = save->three_quarters_ns = save->begin_ns = save->end_ns = 0;
    save->posted_ns = save->landed_ns = save->given_bytes = save->landed_bytes = 0;
    save->landed = 0;
    queue_job(writer, (struct job){.save = save});
}

void checkpoint_writer_call(struct checkpoint_writer *writer, void (*call)(void *arg), void *arg)
{
    queue_job(writer, (struct job){.call = call, .arg = arg});
}

void checkpoint_writer_ready(struct checkpoint_writer *writer, struct checkpoint_save *save)
{
    pthread_mutex_lock(&writer->lock);
    save->ready++;
    pthread_cond_broadcast(&writer->changed);
    pthread_mutex_unlock(&writer->lock);
}

void checkpoint_writer_give_up(struct checkpoint_writer *writer, struct checkpoint_save *save,
                               const char *why)
{
    pthread_mutex_lock(&writer->lock);
    if (save->code == 0 && !save->done) {
        save->code = FAIL_FILE;
        snprintf(save->why, sizeof save->why, "%s", why);
        pthread_cond_broadcast(&writer->changed);
    }
    pthread_mutex_unlock(&writer->lock);
}

bool checkpoint_writer_called(struct checkpoint_writer *writer)
{
    pthread_mutex_lock(&writer->lock);
    bool called = writer->calls == 0;
    pthread_mutex_unlock(&writer->lock);
    return called;
}

bool checkpoint_save_done(struct checkpoint_writer *writer, const struct checkpoint_save *save)
{
    pthread_mutex_lock(&writer->lock);
    bool done = save->done;
    pthread_mutex_unlock(&writer->lock);
    return done;
}

void checkpoint_save_wait(struct checkpoint_writer *writer, const struct checkpoint_save *save)
{
    pthread_mutex_lock(&writer->lock);
    while (!save->done)
        pthread_cond_wait(&writer->changed, &writer->lock);
    pthread_mutex_unlock(&writer->lock);
}
