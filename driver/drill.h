/*
 * drill: the failure that a recovery is measured with.
 *
 * In the first launch of a drilled run the victim kills itself with SIGKILL, in the middle of a step or
 * of a save, at a moment that is a pure function of --kill-seed and of how long blocks and saves have
 * taken so far. A thread of its own does it, so nothing in the run has to come to a place first; its last
 * word is a line in the run's log, written just before. Nothing is killed before a checkpoint is
 * published: a drill is about going on. Later launches kill nobody.
 *
 *   step   in the block of the chosen step, at a random part of it
 *   save   in the second save or a later one, at a random part of what the last one took; when the save
 *          is over sooner, in the next
 */
#ifndef DRIVER_DRILL_H
#define DRIVER_DRILL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "driver/full_run_log.h"
#include "driver/job.h"

enum drill_moment { DRILL_STEP, DRILL_SAVE };

struct drill {
    bool armed;          /* this rank is a victim of this launch */
    bool chosen, speaks; /* the moment is set; this victim says the word */
    enum drill_moment moment;
    int64_t step; /* not before so many steps */
    double part;  /* of the block, or of the save */
    int save;     /* not before this one, from 0 */
    int64_t last_save_ns;
    char who[32];
    struct run_log log;
    pthread_t thread;
    _Atomic int64_t at_ns; /* 0: not yet */
    atomic_bool in_block, saving, over;
};

/* given[i]: row i of study_options was said. FAIL_USAGE: --kill and its kind where nothing is drilled. */
int drill_given(const struct study *study, const bool *given);

/* FAIL_USAGE: what --kill means for this layout; a drill without checkpoints; no save before the end. */
int drill_options(const struct study *study);
int drill_check(const struct job *job);

/* `first` and `target`: steps of the run. FAIL_INTERNAL: no thread. */
int drill_open(struct drill *drill, const struct job *job, const struct point *point, int rank,
               int64_t first, int64_t target);
void drill_close(struct drill *drill); /* safe on a zeroed struct */

/* Around a block: it begins with `done` steps, is thought to take block_ns; a save is called in it, the
 * `save`-th. */
void drill_block(struct drill *drill, int64_t done, int64_t n, int64_t block_ns, int calls_save,
                 bool any_published);
void drill_block_over(struct drill *drill, bool saving);
/* A save was published after so long. */
void drill_saved(struct drill *drill, int64_t complete_ns);

#endif
