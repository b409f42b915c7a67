/*
 * checkpoint_ask: what the options want saved and resumed, and whether that can be, before anything runs.
 *
 * A study of one point saves in --checkpoint-dir itself; of several, or a later launch, in
 * point-NNN[.launchL] below it; all launches of a run (driver/full_run.h) in one. Refused: a mode that there is not, sync of a device without state, lazy
 * where a plan does not allow it, a folder that cannot be written or holds checkpoints as far as this
 * study would begin, host memory below one save of a host's ranks, a checkpoint of another model,
 * optimizer, seed or data (what differs, both values), or one that cannot be read. With --validate all of
 * it is read and verified.
 */
#ifndef DRIVER_CHECKPOINT_ASK_H
#define DRIVER_CHECKPOINT_ASK_H

#include <stdbool.h>
#include <stdint.h>

#include "driver/checkpoint_load.h"
#include "driver/checkpoint_save.h"
#include "driver/job.h"

enum { CHECKPOINT_MODES_MOST = 8 };

struct checkpoint_ask {
    bool saves;
    int n_modes, mode[CHECKPOINT_MODES_MOST]; /* enum save_mode, in the order asked for */
    int64_t every_steps; /* between calls; 0: as soon as the last one is over */
    int64_t every_ns;
    bool shared;
};

/* Of checked options. */
void checkpoint_ask_read(struct checkpoint_ask *ask, const struct study *study);
bool checkpoint_ask_has(const struct checkpoint_ask *ask, enum save_mode mode);

/* The options alone: FAIL_USAGE, FAIL_ABSENT. */
int checkpoint_ask_options(const struct study *study);

/* Collective over the job, before step 0. */
int checkpoint_ask_check(struct job *job);

void checkpoint_ask_root(const struct job *job, const struct point *point, char *out, size_t size);

/* What must be the same in a checkpoint of this point; and what may differ. */
void checkpoint_ask_terms(const struct job *job, const struct point *point,
                          struct checkpoint_terms *terms);
void checkpoint_ask_about(const struct job *job, const struct layout *layout,
                          struct checkpoint_terms *about);

#endif
