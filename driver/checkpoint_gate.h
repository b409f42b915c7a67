/*
 * checkpoint_gate: what is saved comes back, proven by the step after it.
 *
 * The gate model trains on layout `from`, is saved, makes one more step, and is saved again. On layout
 * `to` the first checkpoint is loaded into state made from another seed, one step is made, and compared:
 *
 *   resume-loss    loss of that step
 *   resume-state   masters and moments after it, element by element with the second checkpoint, which is
 *                  read onto `to`; the subject says mode and array
 *
 * `exact`: both must be the same bits (same layout, dtype and kernels whose order of summation is fixed).
 * Else the loss must be within the gate's bound of the first step, and each array within 1e-3 of what
 * the step moved it by, or of its size, whichever is larger, in L2 norms.
 */
#ifndef DRIVER_CHECKPOINT_GATE_H
#define DRIVER_CHECKPOINT_GATE_H

#include "driver/checkpoint_save.h"
#include "driver/gate.h"

struct checkpoint_trial {
    const struct gate_reference *reference;
    const struct layout *from, *to;
    struct policy from_policy, to_policy; /* as gate_point_policy() makes them */
    const struct backend *backend;
    const void *parent; /* address of the MPI_Comm of both layouts */
    const char *root;   /* a folder of its own, removed at the end */
    enum save_mode mode;
    bool shared, exact;
};

enum { CHECKPOINT_TRIAL_ROWS = 1 + CHECKPOINT_ARRAYS };

/* Collective. Rows as each rank sees them: the same checks in the same order. */
int checkpoint_trial(const struct checkpoint_trial *trial,
                     struct gate_row rows[CHECKPOINT_TRIAL_ROWS]);

/* Its parts, for several loads of one save: save on `from`, giving the loss of the step behind; load on
 * `to` and compare; remove what was saved. */
int checkpoint_trial_save(const struct checkpoint_trial *trial, double *loss);
int checkpoint_trial_load(const struct checkpoint_trial *trial, double loss,
                          struct gate_row rows[CHECKPOINT_TRIAL_ROWS]);
void checkpoint_trial_remove(const struct checkpoint_trial *trial);

#endif
