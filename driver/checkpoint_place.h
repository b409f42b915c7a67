/*
 * checkpoint_place: the folder of checkpoints, and the memory of the host, before anything is saved.
 */
#ifndef DRIVER_CHECKPOINT_PLACE_H
#define DRIVER_CHECKPOINT_PLACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "workloads/checkpoint_manifest.h"

/* Make a folder and those above it; one that is there is fine. FAIL_FILE. */
int checkpoint_place_make(const char *folder);

/* "ext4", "tmpfs", "lustre", ... or the magic number in hex; "" when it cannot be asked. */
void checkpoint_place_type(const char *folder, char *out, size_t size);

/* Why a checkpoint in a folder of this type may not survive what checkpoints are for; NULL: it may. */
const char *checkpoint_place_doubt(const char *type);

/* What a rank sees under the name of the folder. */
struct checkpoint_view {
    bool sees; /* the folder that rank 0 has, and not one of its own node */
    bool
        leads; /* it is the first rank of those who see this folder: rank 0, and one rank of each other node */
    bool
        looks; /* it saves nothing there: who leads is not known, so each rank looks for itself, beside others */
};

/* Collective over `comm`; the folder is made where it is not there. FAIL_FILE where it cannot be written in. */
int checkpoint_place_shared(const char *folder, int rank, const void *comm,
                            struct checkpoint_view *view);

/* Collective: could it be made, and written in? Nothing is touched: what is there of the path is asked for its rights,
 * and space and quotas are not. FAIL_FILE as the one above; its view serves the two below. */
int checkpoint_place_look(const char *folder, int rank, const void *comm,
                          struct checkpoint_view *view);

/*
 * Collective: each folder is for one study at a time, as long as *held of the rank that leads there stays open (-1: there
 * is nothing to close). FAIL_USAGE where another still has it after `seconds`: one that was killed ends when its write to
 * the disk does. Where the file system knows no locks all may have it.
 */
int checkpoint_place_hold(const char *folder, int rank, const struct checkpoint_view *view,
                          int seconds, const void *comm, int *held);
bool checkpoint_place_is_held(int held); /* and by locks: nobody else has it */

/*
 * Nothing is there that a study of these terms, which begins at step `start`, would run into: FAIL_USAGE for checkpoints
 * of later steps, or of other terms, and for parts of later steps that are not published. The second is collective and looks into the folders of all nodes.
 */
int checkpoint_place_empty(const char *root, const struct checkpoint_terms *terms, int64_t start);
int checkpoint_place_check(const char *root, int rank, const struct checkpoint_view *view,
                           const struct checkpoint_terms *terms, int64_t start, const void *comm);

/* Memory that this host could give now (MemAvailable), 0: unknown. */
int64_t checkpoint_place_memory(void);

/* Remove "saving-*.tmp" and "removing-*.tmp" that a killed job has left. */
void checkpoint_place_clean(const char *folder);

#endif
