/*
 * execute_input: which samples the steps of a block take, and what they paid for them.
 *
 * Training takes the samples of the study, one after the other. Compute-only steps train nothing:
 * they take the samples of the next training step again and again, which costs them what making or
 * copying costs; but where reading ahead matters (files, workers) that would be another input than
 * training has, so there they take samples of their own, one after the other too. Private to the
 * executor.
 */
#ifndef DRIVER_EXECUTE_INPUT_H
#define DRIVER_EXECUTE_INPUT_H

#include "driver/execute.h"

/* Outside the fence, before and after the steps of a block. `first`: sample of the first step, */
struct execute_samples_taken {
    int64_t first, stride; /* and how far steps are apart */
};
struct execute_samples_taken execute_input_begin(struct execute *execute, enum variant variant,
                                                 int n_steps);

/* Rows go to `samples` (NULL: nowhere), step by step from 0. */
void execute_input_end(struct execute *execute, enum variant variant, int n_steps,
                       struct execute_samples *samples);

#endif
