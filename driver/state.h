/*
 * state: the training state of a rank, piece by piece, as part of the whole tensors.
 *
 * A value of the state belongs to an element of an unsplit, unfused tensor; plan_piece_runs says
 * which. What is here works for every layout: initial values, and what a rank holds of a tensor
 * that somebody has whole.
 */
#ifndef DRIVER_STATE_H
#define DRIVER_STATE_H

#include "workloads/plan.h"

/* Initial masters of a piece: out[piece->count], bit for bit those of the whole tensor, made by up to
 * `threads` threads of this process (the caller is one), which is how many cores it may use. */
void state_initial(const struct plan *plan, const struct plan_piece *piece, uint64_t seed,
                   int threads, float *out);

/* What the piece holds of a whole tensor: out[piece->count] from whole[rows * columns]. */
void state_cut(const struct plan *plan, const struct plan_piece *piece, const float *whole,
               float *out);

/*
 * Put a piece back: whole[element] = piece[i], and one more in held[element], which counts over
 * ranks how many hold it.
 */
void state_paste(const struct plan *plan, const struct plan_piece *piece, const float *values,
                 float *whole, int *held);

/* Of `count` elements from whole_first on, those that the unpadded model has: the first so many. */
int64_t state_run_valid(const struct plan_tensor *t, int64_t whole_first, int64_t count);

/* Elements of a piece that the unpadded model has. */
int64_t state_valid(const struct plan *plan, const struct plan_piece *piece);

/*
 * Where the gradient of each piece lies after a step, reduced over all ranks: at[n_pieces], what the
 * AdamW of the piece reads; returns its type.
 */
enum dtype state_gradients(const struct plan *plan, struct tensor *at);

#endif
