/*
 * checkpoint_section: the steps of a point in which its state is saved.
 *
 * After the timed blocks, on the training state, mode by mode and save by save in turn: quiet steps; the
 * call and the step behind it; steps until the checkpoint is published; five more. Every step is a block
 * of its own, quiet or not: ranks come together after each, as trainers do that finish saves at step
 * boundaries, so steps compare with steps. At the end the newest checkpoint is read back, past the page
 * cache, by all ranks at once.
 *
 * With --checkpoint-every K the next call comes K steps (or seconds) after the last one; when the last
 * save is not over by then, the interval is refused and the smallest said, the first save of a mode
 * apart.
 */
#ifndef DRIVER_CHECKPOINT_SECTION_H
#define DRIVER_CHECKPOINT_SECTION_H

#include "driver/checkpoint_ask.h"
#include "driver/measure.h"

struct checkpoint_section {
    const struct job *job;
    const struct point *point;
    struct measure *measure; /* rows go to its local ones; its executor was opened for a saver */
};

/* Copies of a point that run at once save nothing: they would be in each other's way. */
bool checkpoint_section_wanted(const struct job *job, const struct point *point);

/* Collective over the point. Rows of `checkpoints` and `drains`, and events on rank 0. */
int checkpoint_section(const struct checkpoint_section *section, struct record_point *rows);

/*
 * The gate's part: the gate model is saved, loaded and makes its next step, in every mode that is asked
 * for (driver/checkpoint_gate.h). Rows on rank 0, as gate_point()'s. Collective.
 */
int checkpoint_section_gate(const struct job *job, const struct point *point,
                            const struct layout *layout, const struct policy *policy,
                            bool accumulate, const void *parent, struct record_point *rows);

/* On rank 0, of an open saver: what there is to say of its folder and its memory, to the point and, where it is
 * a warning, to stderr. */
void checkpoint_section_place_notes(const struct saver *saver, const char *root,
                                    struct record_point *rows);

/* What a slot's save was, once it is over: but for `save`, `wait_ns` and the flags of its turn. */
void checkpoint_section_row(const struct saver *saver, int index, struct checkpoint_row *row);

/* Resume: the state of --resume-from into the executor; a row of `checkpoints`. Collective. */
int checkpoint_resume(const struct checkpoint_section *section);
/* Of a step; *damaged: it failed, and some rank has proof that this is why. What the system would not give is
 * tried again first, in all of these. */
int checkpoint_resume_at(const struct checkpoint_section *section, const char *folder,
                         bool *damaged);
int checkpoint_resume_again(
    void *section); /* the same once more, without a row; struct measure.again */

/* The newest checkpoint in `root`, by all ranks at once; a row. Collective. */
int checkpoint_read_back(const struct checkpoint_section *section, const char *root);

#endif
