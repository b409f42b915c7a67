/*
 * input_feed: batches made ahead of the step, and what the step paid for its input.
 *
 * A feed knows which samples each OP_INPUT of a step takes on this rank, so it knows the order of
 * all batches to come. Workers make them into a ring of `prefetch` batches and stop when it is
 * full: memory is fixed when the feed opens. input_feed_take() hands them to the step in order and
 * waits for one that is not ready. Without workers it makes them itself. Either way the samples are
 * those of input_make(): losses do not depend on workers.
 *
 * Between blocks of steps workers stand still, and a block goes on with the ring that the one
 * before has left: the time between blocks fills no ring that would hide a slow disk. Training
 * (INPUT_TRAIN) and the compute-only variant (INPUT_ASIDE) have a ring and a position each, so that
 * each finds the state that steps of its own kind have made. A ring starts empty again where the
 * position jumps (a reset, the repeated batch of a check).
 *
 * A meter runs with and without workers. Waiting is time in which the step needed a batch that was
 * not there: without workers all of the making. Rings, meter and threads belong to the feed; struct
 * input owns the feed.
 */
#ifndef WORKLOADS_INPUT_FEED_H
#define WORKLOADS_INPUT_FEED_H

#include "workloads/input.h"
#include "workloads/plan.h"

enum input_lane { INPUT_TRAIN, INPUT_ASIDE, INPUT_LANES };

enum { INPUT_WORKERS_MOST = 256, INPUT_PREFETCH_MOST = 65536 };

/* Where INPUT_ASIDE begins: samples of its own, far from those that training takes. */
#define INPUT_ASIDE_FIRST (INT64_C(1) << 40)

/* What one step paid on this rank. */
struct input_step {
    int64_t input_ns;      /* in input_feed_take(), all of it */
    int64_t wait_ns;       /* of it: waiting, or making the batch itself */
    int64_t read_bytes;    /* of its samples, from files (page cache or storage) */
    int64_t cpu_ns;        /* of the process, all threads, until the next step's first batch */
    int64_t worker_cpu_ns; /* that workers took to make its batches */
    int32_t batches, waits;
    int32_t depth; /* fewest ready batches that one of its takes found */
};

/* Open the feed of `input` for `plan`; at most max_steps steps to a block. FAIL_INTERNAL: no
 * threads. A plan without OP_INPUT has no feed. */
int input_feed_open(struct input *input, const struct plan *plan, int workers, int prefetch,
                    int max_steps);
void input_feed_close(struct input_feed *feed); /* NULL is fine */

bool input_feed_has_workers(const struct input_feed *feed);
int64_t input_feed_bytes(const struct input_feed *feed); /* of the rings */

/*
 * Around a block, outside the fence: the first sample of its first step and how far steps are
 * apart; then workers run until end(), which waits until none of them works. steps(): the meter of
 * the block's steps, valid until the next begin().
 */
void input_feed_begin(struct input_feed *feed, enum input_lane lane, int64_t first, int64_t stride,
                      int n_steps);
void input_feed_end(struct input_feed *feed);
const struct input_step *input_feed_steps(const struct input_feed *feed);

/* What input_fill() does when there is a feed; one caller at a time. */
void input_feed_take(struct input_feed *feed, int64_t first, int64_t n, int32_t *tokens,
                     int32_t *targets, uint8_t *mask);

#endif
