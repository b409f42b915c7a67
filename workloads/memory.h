/*
 * memory: what a rank takes of its device, before anything is allocated. Arithmetic on a plan.
 *
 * All memory of a point is taken when it opens and none later, so what a rank holds at its peak is a
 * sum of items: the arenas of its plan, and what the driver adds to them. Each item is of one class,
 * the classes that a device keeps apart when it counts (base/device.h), and the prediction of a class
 * is what that device will say, to the byte. Not in here: what libraries take by themselves (the
 * context of a GPU, buffers of NCCL, workspaces that cuBLASLt and cuDNN choose when they open);
 * memory_beside() is the room to leave for them.
 *
 * Of each item the largest part is known by name: a tensor of the model for what is kept of the
 * state, else the op that touches most bytes, with its shape. That is what to look at when it does
 * not fit.
 */
#ifndef WORKLOADS_MEMORY_H
#define WORKLOADS_MEMORY_H

#include <stddef.h>

#include "base/device.h"
#include "workloads/plan.h"

/* Items: those below PLAN_BUFFERS are arenas. */
enum memory_item {
    MEMORY_SCRATCH = PLAN_BUFFERS, /* copies of the state that the variants run on */
    MEMORY_LOG,                    /* scalars of the steps of a block */
    MEMORY_PROOF, /* two buffers in which collectives are proved, before step one */
    MEMORY_ITEMS
};

/* On a GPU, beside all items: context, code and libraries, and the own buffers of so many
 * communicators. As measured on two H200 with NCCL 2.28 (tests/gpu/RESULTS.md): 1,190 MiB, and 866,
 * 1,532 and 2,402 MiB more for one, two and three communicators. */
static inline int64_t memory_beside(int communicators)
{
    return (1190 + 790 * (int64_t)communicators) << 20;
}

/* What the driver takes beside the plan; all zero: nothing, as a training job would. */
struct memory_added {
    bool scratch;
    int log_steps;
    int64_t proof_bytes; /* of one of the two buffers; 0: nothing is proved */
};

struct memory_part {
    int64_t bytes;
    char text[112]; /* "cross-entropy 8192 x 50304 bf16" */
};

struct memory {
    int64_t item[MEMORY_ITEMS];
    struct memory_part largest[MEMORY_ITEMS]; /* of the item; text "": it has no parts */
    int64_t class_bytes[DEVICE_CLASSES];
    int top[DEVICE_CLASSES]; /* the item that takes most of the class; -1: the class is empty */
    int64_t bytes;           /* all classes, which are held at the same time */
};

/* `added` may be NULL. */
void memory_of_plan(struct memory *out, const struct plan *plan, const struct memory_added *added);

/* Class of an arena or another item; whether an arena is training state (what scratch copies). */
enum device_class memory_class(int item);
bool memory_is_state(int buffer);

const char *memory_item_name(int item); /* "first moments" */

/* The class that takes most. */
int memory_most(const struct memory *memory);

/*
 * A class in words, for refusals: "61.2 GiB of it for activations (largest: cross-entropy 8192 x
 * 50304, bf16, 0.77 GiB)". `by` is the unit, 1 << 30 or 1e9, and `unit` its name.
 */
void memory_say(const struct memory *memory, int class, double by, const char *unit, char *text,
                size_t size);

/* The largest part of the class alone: "activations: cross-entropy 8192 x 50304 bf16". */
void memory_say_part(const struct memory *memory, int class, char *text, size_t size);

#endif
