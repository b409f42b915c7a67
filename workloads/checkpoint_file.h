/*
 * checkpoint_file: the HDF5 files of a checkpoint.
 *
 *   rank-NNNNN.h5   one rank's shard, its datasets at the root; or
 *   state.h5        all ranks' shards, one group "rank-NNNNN" each
 *
 *   master, moment1, moment2   float32 [image], see checkpoint.h
 *   small                      compound [1], CHECKPOINT_ALIGN bytes: the small state
 *   tensors, parts             compound: what the elements are
 *
 * HDF5 makes the layout: contiguous, allocated at once, aligned to CHECKPOINT_ALIGN, never filled.
 * The bytes of master, moments and small are then written by others at the offsets given here
 * (checkpoint_write.h), and can be read by any HDF5 program. What lies between them, the *frame*, is
 * complete when create() returns and has a hash of its own, so that a damaged file is known before
 * HDF5 opens it.
 *
 * All of this is HDF5's one thread: call it from the thread that uses HDF5 elsewhere.
 */
#ifndef WORKLOADS_CHECKPOINT_FILE_H
#define WORKLOADS_CHECKPOINT_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "workloads/checkpoint.h"

/* Where the bytes of one shard lie in its file. */
struct checkpoint_place {
    int64_t array[CHECKPOINT_ARRAYS]; /* bytes from the start of the file */
    int64_t small;
    int64_t padded; /* elements of each array */
};

/* "rank-00003.h5", "state.h5". */
void checkpoint_file_name(char *name, size_t size, bool shared, int rank);

/*
 * Before any call of HDF5 in a program that saves and may meet a full disk: HDF5 does not tidy up when the process ends.
 * A file that it could not finish stays open in it, and its tidying ends the process by a signal, whatever its exit code
 * was (1.10.8). Every file that can be closed has been.
 */
void checkpoint_file_library(void);

/*
 * Create `path` (which must not exist) for n shards and reserve its space: shards[i] lies at places[i];
 * `shared` puts each in a group of its own. FAIL_FILE with path and the system's words.
 */
int checkpoint_file_create(const char *path, bool shared, const struct checkpoint_shard *shards,
                           int n, struct checkpoint_place *places);

/* Size and hash of the frame: everything outside the places of its n shards. FAIL_FILE. */
int checkpoint_file_frame(const char *path, const struct checkpoint_place *places, int n,
                          int64_t *bytes, uint64_t *hash);

/* The CHECKPOINT_ALIGN bytes of `small`, as the file's compound type has them. */
void checkpoint_file_small(const struct checkpoint_small *small, void *block);
void checkpoint_file_small_read(const void *block, struct checkpoint_small *small);

/*
 * Read through HDF5 (as any other program would) elements [first, first + n) of an array. FAIL_FILE
 * names file and dataset. For proofs: loading reads at offsets.
 */
int checkpoint_file_read(const char *path, bool shared, int rank, int array, int64_t first,
                         int64_t n, float *out);
int checkpoint_file_read_small(const char *path, bool shared, int rank,
                               struct checkpoint_small *out);

#endif
