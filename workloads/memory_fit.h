/*
 * memory_fit: of all ways to split a model over ranks, which fit a device. Arithmetic on plans.
 *
 * Every tuple of degrees that layout_init and transformer_check let pass, with every shard stage it
 * can have, every recomputation, and every micro-batch asked for; all do the same global batch. Of
 * each the rank that holds most is planned (the first of each pipeline stage) and held against the
 * device. Plans have as many micro-batches as change what is held: two without a pipeline (the
 * second accumulates beside the first), twice the stages with one.
 */
#ifndef WORKLOADS_MEMORY_FIT_H
#define WORKLOADS_MEMORY_FIT_H

#include "workloads/cost.h"
#include "workloads/memory.h"
#include "workloads/transformer.h"

enum { MEMORY_FIT_MOST = 20000 };

struct memory_fit_ask {
    const struct model *model;
    struct policy policy; /* what does not vary; its stage and recompute are the base of a tuple */
    int nodes, ranks_per_node;
    struct degrees fixed;       /* a degree that is not 0 is kept; order */
    int64_t global_batch;       /* 0: the smallest that splits everywhere */
    const int64_t *micro_batch; /* [n_micro_batch], the base first */
    int n_micro_batch;
    double capacity_bytes;   /* of a device */
    int64_t beside_bytes;    /* not of the plan: context, libraries, communicators */
    const struct cost *cost; /* NULL: no modelled times */
};

struct memory_choice {
    struct degrees degrees;
    char parallel[64];
    int shard_stage; /* 0: no state is sharded */
    enum recompute recompute;
    int64_t micro_batch, micro_steps;
    int rank;                                   /* that holds most */
    int64_t bytes, class_bytes[DEVICE_CLASSES]; /* of its plan */
    double over_bytes;                          /* above the device; below 0: room */
    char most[192];                             /* the class that takes most, in words */
    double wire_bytes;                          /* a rank sends in a step, closed forms; all axes */
    double extra_flops; /* share of the model's FLOPs that is computed again */
    double modelled_s;  /* NaN without a cost model */
    double measured_s;  /* NaN until the caller knows better */
    bool is_base;       /* the asked policy on this tuple */
};

struct memory_fit {
    int n, room;
    struct memory_choice *choice; /* [n], owned */
    int64_t global_batch;
    int n_tuples;
};

/*
 * FAIL_USAGE when no tuple is legal (the refusal of the plainest one is said) or there are more than
 * MEMORY_FIT_MOST choices. *out is zeroed on failure.
 */
int memory_fit_all(struct memory_fit *out, const struct memory_fit_ask *ask);
void memory_fit_release(struct memory_fit *fit);

/* What fits first; by time measured, then modelled, then less recomputed, then fewer bytes sent;
 * of what does not fit the nearest first. */
void memory_fit_sort(struct memory_fit *fit);

/* One change to a base: what it buys. */
struct memory_lever {
    const struct memory_choice *from, *to;
    char text[48]; /* "recompute=full" */
};
enum { MEMORY_LEVERS = 16 };

/* Changes of `base` alone that take fewer bytes, most first; returns how many. */
int memory_fit_levers(const struct memory_fit *fit, const struct memory_choice *base,
                      struct memory_lever levers[MEMORY_LEVERS]);

const char *memory_recompute_name(int recompute);

#endif
