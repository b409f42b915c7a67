/*
 * checkpoint_index: where the elements of whole tensors lie in a checkpoint.
 *
 * Runs of each tensor, ascending in begin and end, each element once where any shard holds it: of
 * copies that of the shard of rank `prefer` is taken, else that of the lowest rank. Private to
 * checkpoint_read.
 */
#ifndef WORKLOADS_CHECKPOINT_INDEX_H
#define WORKLOADS_CHECKPOINT_INDEX_H

#include <stdint.h>

#include "workloads/checkpoint_manifest.h"

struct checkpoint_run {
    int64_t whole, count; /* elements whole .. whole + count of the unsplit tensor */
    int entry, part;
    int64_t image; /* element of that shard's image */
};

struct checkpoint_named {
    char name[64];
    int64_t rows, columns; /* of the whole */
    int64_t n, capacity;
    struct checkpoint_run *run;
};

struct checkpoint_index {
    int n, capacity;
    struct checkpoint_named *tensor; /* by name */
};

void checkpoint_index_make(struct checkpoint_index *index,
                           const struct checkpoint_manifest *manifest, int prefer);
void checkpoint_index_release(struct checkpoint_index *index);

/* NULL: no such tensor. */
const struct checkpoint_named *checkpoint_index_find(const struct checkpoint_index *index,
                                                     const char *name);
/* The run that holds an element, or NULL. */
const struct checkpoint_run *checkpoint_index_at(const struct checkpoint_named *tensor,
                                                 int64_t element);

#endif
