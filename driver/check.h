/*
 * check: what the full model must show without any reference.
 *
 *   initial-loss    loss of the first step within 2 % of ln V + width * 0.02^2 / 2: logits of a normalised
 *                   row and a random head are normal, and that is the mean of log sum exp - target
 *   finite          loss and gradient norm of that step
 *   valid-tokens    counted on the device as the input says for those samples
 *   counters        consumed samples, micro-steps, optimizer steps, global steps, as they must be
 *   effective-batch replicas * local batch * accumulation is the global batch
 *   skipped         no update was skipped
 *   changes         every master's checksum (L2 norm, dot with a +-1 vector) is another after it
 *   repeated-batch  loss on one batch, repeated, falls below 0.9 of its first within 30 steps
 *
 * The state is reset to the generator afterwards. Kernels without numerics are asked for the rows that
 * count something alone: valid-tokens, counters, effective-batch, skipped.
 */
#ifndef DRIVER_CHECK_H
#define DRIVER_CHECK_H

#include "driver/execute.h"
#include "driver/proof.h"

enum { CHECK_REPEATS = 30 };

/*
 * Collective over the point; appends rows to out->gate on rank 0 and gives the work of the first
 * step. `input` is the one that execute was opened with. Returns 0 whatever the verdict.
 */
int check_full(struct execute *execute, struct input *input, const struct model *model,
               uint64_t seed, const void *parent, struct proof_counts *work,
               struct record_point *out);

#endif
