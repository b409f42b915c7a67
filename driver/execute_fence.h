/*
 * execute_fence: what is around the steps of a block, however they are given to the device. Private
 * to the executor.
 */
#ifndef DRIVER_EXECUTE_FENCE_H
#define DRIVER_EXECUTE_FENCE_H

#include "driver/execute_input.h"

struct execute_fence {
    enum variant variant;
    int level, n_steps, keep;
    bool graph;                      /* steps are launched as graphs */
    struct execute_samples *samples; /* where rows go; NULL: nowhere */
    struct execute_samples_taken taken;
    int64_t begun_ns; /* the step that is given out */
};

/* Between the two: no allocation, printing, barrier or host synchronisation. end() waits. */
void execute_fence_begin(struct execute *execute, struct execute_fence *fence);
void execute_fence_end(struct execute *execute, struct execute_fence *fence);

/* Around the giving out of each step. */
void execute_step_begin(struct execute *execute, struct execute_fence *fence, int step);
void execute_step_end(struct execute *execute, struct execute_fence *fence, int step);

/* One step of the plan, op by op; `slots`: its first stamp. */
void execute_step(struct execute *execute, enum variant variant, int level, int slots);

/* Buffers, scratch or state, and the log that the steps of a variant write. */
void execute_bind(struct execute *execute, enum variant variant);

/* Scratch copies of the state: taken where there is room, else quietly not. */
void execute_scratch_take(struct execute *execute);
void execute_scratch_free(struct execute *execute);

/* The job ends here when a communicator of this executor (arg) has failed. */
void execute_alive(void *arg);

/* One communicator for each channel of the plan: on all ranks, or a failure on all. */
int execute_open_comms(struct execute *execute, const struct execute_config *config,
                       struct comm *comms, int *n_comms);

/* Collective: those of the executor closed and made as `setup` says, its memory told of. *refused: the
 * library would not, on some rank, where its words are kept (fail_message); then there may be none. */
int execute_make_comms(struct execute *execute, const struct execute_config *config,
                       const struct comm_setup *setup, bool *refused);

/* A rank that fails takes the others with it before they wait for it. */
int execute_together(const struct execute_config *config, int code);

#endif
