#include "workloads/input_feed.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/err.h"
#include "base/units.h"

struct slot {
    bool ready;
    int64_t read_bytes, cpu_ns;
    int32_t *tokens, *targets; /* [samples][sequence] */
    uint8_t *mask;
};

/* Batch j of a lane is OP_INPUT number j % n_batches of step j / n_batches since `base`. */
struct lane {
    int64_t base, stride, repeat;
    int64_t claimed, taken; /* batches */
    int ready;
    struct slot *slots; /* [prefetch], batch j in j % prefetch; NULL without workers */
};

struct input_feed {
    const struct input *input;
    int n_batches;   /* OP_INPUTs of a step on this rank */
    int64_t *first;  /* [n_batches] first sample of each, from the step's first */
    int64_t samples; /* of each */
    int workers, prefetch;
    pthread_t *threads;
    pthread_mutex_t lock;
    pthread_cond_t work, done; /* a batch may be made; one has been */
    struct lane lanes[INPUT_LANES];
    struct lane *active; /* NULL between blocks */
    int busy;            /* workers making a batch */
    bool stop;
    int max_steps, n_steps; /* room; of this block */
    int64_t takes;          /* since begin() */
    int64_t cpu_begin_ns;
    struct input_step *steps; /* [max_steps] */
};

static int64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* ---- workers ---- */

static int64_t sample_of_batch(const struct input_feed *feed, const struct lane *lane,
                               int64_t batch)
{
    return lane->base + batch / feed->n_batches * lane->stride +
           feed->first[batch % feed->n_batches];
}

static bool has_work(const struct input_feed *feed)
{
    const struct lane *lane = feed->active;
    return lane != NULL && lane->claimed < lane->taken + feed->prefetch;
}

static void make(struct input_feed *feed, struct lane *lane, int64_t batch)
{
    struct slot *slot = &lane->slots[batch % feed->prefetch];
    int64_t begin = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    slot->read_bytes = input_make(feed->input, sample_of_batch(feed, lane, batch), feed->samples,
                                  slot->tokens, slot->targets, slot->mask);
    slot->cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) - begin;
}

static void *work(void *arg)
{
    struct input_feed *feed = arg;
    pthread_mutex_lock(&feed->lock);
    while (!feed->stop) {
        if (!has_work(feed)) {
            pthread_cond_wait(&feed->work, &feed->lock);
            continue;
        }
        struct lane *lane = feed->active;
        int64_t batch = lane->claimed++;
        feed->busy++;
        pthread_mutex_unlock(&feed->lock);
        make(feed, lane, batch);
        pthread_mutex_lock(&feed->lock);
        lane->slots[batch % feed->prefetch].ready = true;
        lane->ready++;
        feed->busy--;
        pthread_cond_signal(&feed->done);
    }
    pthread_mutex_unlock(&feed->lock);
    return NULL;
}

/* ---- open and close ---- */

static int find_batches(struct input_feed *feed, const struct plan *plan)
{
    for (int i = 0; i < plan->n_ops; i++) {
        const struct op *op = &plan->ops[i];
        if (op->kind != OP_INPUT)
            continue;
        if (feed->n_batches > 0 && op->shape.input.samples != feed->samples)
            BUG("batches of %lld and %lld samples in a step", (long long)feed->samples,
                (long long)op->shape.input.samples);
        feed->first = must_grow(feed->first, (size_t)feed->n_batches + 1, sizeof *feed->first);
        feed->first[feed->n_batches++] = op->shape.input.first;
        feed->samples = op->shape.input.samples;
    }
    return feed->n_batches;
}

static void open_lane(struct input_feed *feed, struct lane *lane)
{
    size_t n = (size_t)(feed->samples * feed->input->sequence);
    lane->slots = must_alloc((size_t)feed->prefetch, sizeof *lane->slots);
    for (int i = 0; i < feed->prefetch; i++) {
        struct slot *slot = &lane->slots[i];
        slot->tokens = must_alloc(n, 2 * sizeof *slot->tokens + 1);
        slot->targets = slot->tokens + n;
        slot->mask = (uint8_t *)(slot->targets + n);
        memset(slot->tokens, 0,
               n * (2 * sizeof *slot->tokens + 1)); /* in memory before the fence */
    }
}

static void close_lane(struct input_feed *feed, struct lane *lane)
{
    for (int i = 0; lane->slots != NULL && i < feed->prefetch; i++)
        free(lane->slots[i].tokens);
    free(lane->slots);
}

static int start_workers(struct input_feed *feed, int workers)
{
    feed->threads = must_alloc((size_t)workers, sizeof *feed->threads);
    for (int i = 0; i < INPUT_LANES; i++)
        open_lane(feed, &feed->lanes[i]);
    for (int i = 0; i < workers; i++) {
        if (pthread_create(&feed->threads[i], NULL, work, feed) != 0)
            return fail(FAIL_INTERNAL, "input: worker %d of %d could not be started", i + 1,
                        workers);
        feed->workers++;
    }
    return 0;
}

int input_feed_open(struct input *input, const struct plan *plan, int workers, int prefetch,
                    int max_steps)
{
    struct input_feed *feed = must_alloc(1, sizeof *feed);
    feed->input = input;
    feed->prefetch = prefetch < 1 ? 1 : prefetch;
    feed->max_steps = max_steps;
    pthread_mutex_init(&feed->lock, NULL);
    pthread_cond_init(&feed->work, NULL);
    pthread_cond_init(&feed->done, NULL);
    if (find_batches(feed, plan) == 0) {
        input_feed_close(feed);
        return 0;
    }
    feed->steps = must_alloc((size_t)max_steps, sizeof *feed->steps);
    input->feed = feed;
    return workers > 0 ? start_workers(feed, workers) : 0;
}

void input_feed_close(struct input_feed *feed)
{
    if (feed == NULL)
        return;
    pthread_mutex_lock(&feed->lock);
    feed->stop = true;
    pthread_cond_broadcast(&feed->work);
    pthread_mutex_unlock(&feed->lock);
    for (int i = 0; i < feed->workers; i++)
        pthread_join(feed->threads[i], NULL);
    for (int i = 0; i < INPUT_LANES; i++)
        close_lane(feed, &feed->lanes[i]);
    pthread_cond_destroy(&feed->done);
    pthread_cond_destroy(&feed->work);
    pthread_mutex_destroy(&feed->lock);
    free(feed->threads);
    free(feed->first);
    free(feed->steps);
    free(feed);
}

bool input_feed_has_workers(const struct input_feed *feed)
{
    return feed->workers > 0;
}

int64_t input_feed_bytes(const struct input_feed *feed)
{
    int64_t batch = feed->samples * feed->input->sequence * (int64_t)(2 * sizeof(int32_t) + 1);
    return feed->workers > 0 ? INPUT_LANES * feed->prefetch * batch : 0;
}

/* ---- around a block ---- */

static void seek(struct input_feed *feed, struct lane *lane, int64_t first, int64_t stride)
{
    bool goes_on = lane->taken % feed->n_batches == 0 && lane->repeat == feed->input->repeat &&
                   lane->stride == stride &&
                   lane->base + lane->taken / feed->n_batches * stride == first;
    if (goes_on)
        return;
    lane->base = first;
    lane->stride = stride;
    lane->repeat = feed->input->repeat;
    lane->claimed = lane->taken = 0;
    lane->ready = 0;
    for (int i = 0; lane->slots != NULL && i < feed->prefetch; i++)
        lane->slots[i].ready = false;
}

void input_feed_begin(struct input_feed *feed, enum input_lane lane, int64_t first, int64_t stride,
                      int n_steps)
{
    if (n_steps > feed->max_steps)
        BUG("a block of %d steps, room for %d", n_steps, feed->max_steps);
    memset(feed->steps, 0, (size_t)n_steps * sizeof *feed->steps);
    feed->n_steps = n_steps;
    feed->takes = 0;
    feed->cpu_begin_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    pthread_mutex_lock(&feed->lock);
    seek(feed, &feed->lanes[lane], first, stride);
    feed->active = &feed->lanes[lane];
    pthread_cond_broadcast(&feed->work);
    pthread_mutex_unlock(&feed->lock);
}

/* The process' CPU time since the last such call belongs to a step. */
static void charge(struct input_feed *feed, struct input_step *step)
{
    int64_t now = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    step->cpu_ns += now - feed->cpu_begin_ns;
    feed->cpu_begin_ns = now;
}

void input_feed_end(struct input_feed *feed)
{
    pthread_mutex_lock(&feed->lock);
    feed->active = NULL;
    while (feed->busy > 0)
        pthread_cond_wait(&feed->done, &feed->lock);
    pthread_mutex_unlock(&feed->lock);
    if (feed->n_steps > 0)
        charge(feed, &feed->steps[feed->n_steps - 1]);
}

const struct input_step *input_feed_steps(const struct input_feed *feed)
{
    return feed->steps;
}

/* ---- in a step ---- */

/* The step whose batch this is; the CPU time until its first one belongs to the step before. */
static struct input_step *step_of_take(struct input_feed *feed)
{
    int64_t take = feed->takes++, step = take / feed->n_batches;
    if (step >= feed->n_steps)
        step = feed->n_steps - 1;
    struct input_step *found = &feed->steps[step < 0 ? 0 : step];
    if (take % feed->n_batches == 0 && step > 0)
        charge(feed, found - 1);
    if (found->batches == 0)
        found->depth = INT32_MAX;
    return found;
}

/* The ring's next batch, when it is the one that is asked for; waits until it is ready. */
static struct slot *take_slot(struct input_feed *feed, int64_t first, int64_t n,
                              struct input_step *step)
{
    struct lane *lane = feed->active;
    if (feed->workers == 0 || lane == NULL || n != feed->samples ||
        sample_of_batch(feed, lane, lane->taken) != first)
        return NULL;
    struct slot *slot = &lane->slots[lane->taken % feed->prefetch];
    pthread_mutex_lock(&feed->lock);
    step->depth = lane->ready < step->depth ? lane->ready : step->depth;
    if (!slot->ready) {
        int64_t begin = units_now_ns();
        while (!slot->ready)
            pthread_cond_wait(&feed->done, &feed->lock);
        step->wait_ns += units_now_ns() - begin;
        step->waits++;
    }
    pthread_mutex_unlock(&feed->lock);
    return slot;
}

static void give_back(struct input_feed *feed, struct slot *slot)
{
    pthread_mutex_lock(&feed->lock);
    slot->ready = false;
    feed->active->taken++;
    feed->active->ready--;
    if (feed->active->claimed - feed->active->taken <= feed->prefetch / 2)
        pthread_cond_signal(&feed->work); /* to wake a thread costs more than to make a batch */
    pthread_mutex_unlock(&feed->lock);
}

/* An op that was left out (a planted fault) breaks the order: then the batch is made here. */
static void make_here(struct input_feed *feed, int64_t first, int64_t n, int32_t *tokens,
                      int32_t *targets, uint8_t *mask, struct input_step *step)
{
    int64_t begin = units_now_ns();
    step->read_bytes += input_make(feed->input, first, n, tokens, targets, mask);
    step->wait_ns += units_now_ns() - begin;
    step->waits++;
    step->depth = 0;
}

void input_feed_take(struct input_feed *feed, int64_t first, int64_t n, int32_t *tokens,
                     int32_t *targets, uint8_t *mask)
{
    int64_t begin = units_now_ns();
    struct input_step *step = step_of_take(feed);
    struct slot *slot = take_slot(feed, first, n, step);
    if (slot == NULL) {
        make_here(feed, first, n, tokens, targets, mask, step);
    } else {
        size_t count = (size_t)(n * feed->input->sequence);
        memcpy(tokens, slot->tokens, count * sizeof *tokens);
        memcpy(targets, slot->targets, count * sizeof *targets);
        memcpy(mask, slot->mask, count);
        step->read_bytes += slot->read_bytes;
        step->worker_cpu_ns += slot->cpu_ns;
        give_back(feed, slot);
    }
    step->batches++;
    step->input_ns += units_now_ns() - begin;
}
