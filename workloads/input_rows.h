/*
 * input_rows: the batch of an OP_INPUT in host memory, for every set. Of samples that a group of cp
 * shares, a rank makes all and keeps its rows.
 */
#ifndef WORKLOADS_INPUT_ROWS_H
#define WORKLOADS_INPUT_ROWS_H

#include "workloads/kernels/kernels.h"

/* Bytes of the rows that an op delivers; and of the room that making them takes beside, 0 for whole
 * samples. */
int64_t input_rows_bytes(const struct op *op);
int64_t input_rows_room(const struct op *op);

/* The most room that an OP_INPUT of the plan takes. */
int64_t input_rows_most_room(const struct plan *plan);

/* tokens, targets, mask [samples][rows]. */
void input_rows(const struct op *op, const struct kernel_context *context, void *room,
                int32_t *tokens, int32_t *targets, uint8_t *mask);

#endif
