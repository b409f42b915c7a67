/*
 * schedule: in which order the stages of a pipeline compute, and when they exchange what they need.
 *
 * A model of p stages is cut into v p chunks of layers; chunk c of stage s is part c p + s, so that with
 * v > 1 (interleaved) a micro-batch passes every stage v times. On a stage, a micro-batch and a chunk
 * make a *slot* of work: forward, backward, and with zb-h1 the gradients of weights apart. Lists:
 *
 *   gpipe        all forwards, then all backwards, both in the order of micro-batches
 *   1f1b         p - 1 - s forwards, then forward and backward in turn (PipeDream-flush)
 *   interleaved  2 (p - 1 - s) + (v - 1) p forwards; p micro-batches at a time go through a chunk
 *                before the next chunk (Narayanan et al., SC'21); m is a multiple of p
 *   zb-h1        1f1b whose backward makes dx alone; dW of a micro-batch follows s backwards later,
 *                and what is left fills the end (Qi et al., ICLR'24, schedule H1)
 *
 * Idle time over the time of computing, stages equal, backward twice as long as forward, transfers
 * free: gpipe and 1f1b (p - 1)/m, interleaved (p - 1)/(v m), zb-h1 with forward, dx and dW of F, B, W
 * (p - 1)/m (F + B - W)/(F + B + W), a third of that of 1f1b where they are equal.
 *
 * Transfers. What a forward hands to the next part goes down, the gradient of it goes up; parts p - 1
 * and p are on the last and the first stage, so with v > 1 both directions close a ring. Every stage
 * makes its transfers in one order that all stages share: that in which they would come if each
 * forward took 1 and each backward 2 (of ties the later stage's first going down, the earlier's going
 * up). A receive is posted as soon as what stands before it was, so it waits beside computation;
 * since the order is one for all, transfers made strictly one at a time cannot hang either. A send
 * and the receive of the same direction behind it are one post where that receive is for the next
 * slot of the part: a post ends as one, and the next slot may want the memory that was sent.
 *
 * Pure arithmetic; out of memory: die().
 */
#ifndef WORKLOADS_SCHEDULE_H
#define WORKLOADS_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

enum schedule_kind { SCHEDULE_GPIPE, SCHEDULE_1F1B, SCHEDULE_INTERLEAVED, SCHEDULE_ZB_H1 };
const char *schedule_name(int kind);

struct schedule {
    enum schedule_kind kind;
    int stages, micro_batches;
    int chunks; /* v; 1 but for interleaved */
};

enum schedule_part { PART_FORWARD, PART_BACKWARD, PART_WEIGHTS, SCHEDULE_PARTS };

struct schedule_slot {
    enum schedule_part part;
    int micro, chunk;
};

enum schedule_act { ACT_COMPUTE, ACT_SEND, ACT_RECEIVE };
enum { SCHEDULE_DOWN, SCHEDULE_UP }; /* directions of the pp axis */

/* A line of a stage's programme: a slot to compute, or a transfer that a slot needs or made. */
struct schedule_item {
    enum schedule_act act;
    struct schedule_slot slot; /* here: the one that made it or will use it */
    int direction, peer;       /* of transfers; peer is a stage */
    bool with_next;            /* one post with the item behind it */
};

/* FAIL_USAGE with the nearest that would do: too few micro-batches, chunks or micro-batches that the
 * schedule cannot have, layers that do not go into the parts. */
int schedule_check(const struct schedule *schedule, int64_t layers);

/* Layers [*first, *end) of a part. With v = 1 parts may differ by one layer: the middle stages have
 * more, then the first, and never the last, which has the head. */
void schedule_layers(const struct schedule *schedule, int64_t layers, int stage, int chunk,
                     int64_t *first, int64_t *end);

/* The slots of a stage in order: their number (of every stage the same); the list. */
int schedule_slots(const struct schedule *schedule);
void schedule_list(const struct schedule *schedule, int stage, struct schedule_slot *out);

/* The list with its transfers; *n items, the caller frees. */
struct schedule_item *schedule_items(const struct schedule *schedule, int stage, int *n);

/* Forwards before the first backward; the most slots whose activations are kept at once, from a
 * forward to its backward (zb-h1: to its gradients of weights). */
int schedule_warm_up(const struct schedule *schedule, int stage);
int schedule_in_flight(const struct schedule *schedule, int stage);

/* Bubble over ideal of equal stages, as above; how long a slot of each part takes decides with zb-h1
 * alone: seconds[SCHEDULE_PARTS]. */
double schedule_bubble(const struct schedule *schedule, const double *seconds);

/*
 * Play all stages: stage s begins at begin[s] (NULL: 0), and how long each slot of each stage takes is
 * seconds[stage * slots + i] for slot i of its list (NULL: the units above). What a slot makes is with
 * the next stage `transfer` later; `blocks`: and its own stage computes nothing until then. finish[],
 * of the same shape, says when slots end; returns the end of the last.
 */
struct schedule_transfer {
    double seconds;
    bool blocks;
};
double schedule_play(const struct schedule *schedule, const double *begin, const double *seconds,
                     struct schedule_transfer transfer, double *finish);

#endif
