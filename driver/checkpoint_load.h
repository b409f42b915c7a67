/*
 * checkpoint_load: the training state from a checkpoint, on any layout.
 *
 * Rank 0 reads the manifest and gives it to all; each rank reads what its own pieces need, verifies and
 * re-cuts it (workloads/checkpoint_read.h) and brings it to the device; bf16 parameters are the rounded
 * masters. Counters go on where the checkpoint has them. On the layout, dtype and batch that saved
 * it, with fixed threads on a CPU or --deterministic on a GPU, the next steps are the same bit for bit.
 */
#ifndef DRIVER_CHECKPOINT_LOAD_H
#define DRIVER_CHECKPOINT_LOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "driver/execute.h"
#include "workloads/checkpoint_read.h"

struct checkpoint_source {
    char folder[CHECKPOINT_PATH];   /* of the step, as this rank sees it */
    char previous[CHECKPOINT_PATH]; /* of the published step before, "" */
    struct checkpoint_manifest manifest;
};

/*
 * Collective over `comm`: what `given` (a step's folder, or one of steps) means. `terms` that differ are
 * FAIL_USAGE. What cannot be read is FAIL_FILE; source->manifest.damaged on all ranks where it is damaged.
 */
int checkpoint_source_open(struct checkpoint_source *source, const char *given,
                           const struct checkpoint_terms *terms, int rank, const void *comm);
/* Read and verify all of it, each rank its part of the files. Collective. */
int checkpoint_source_verify(const struct checkpoint_source *source, int rank, int size,
                             const void *comm);
/* Of a failure with this source, the same on all ranks: the sentence again, and the way out that there is. */
int checkpoint_source_offer(int rc, const struct checkpoint_source *source);
void checkpoint_source_close(struct checkpoint_source *source); /* safe on a zeroed struct */

struct checkpoint_loaded {
    int64_t read_ns, verify_ns, recut_ns, upload_ns, total_ns, bytes;
    bool direct;
    bool damaged; /* why it failed: this rank has proof of it */
};

/* This rank's state; local (agree afterwards). */
int checkpoint_load(struct execute *execute, const struct checkpoint_source *source,
                    struct checkpoint_loaded *loaded);

#endif
