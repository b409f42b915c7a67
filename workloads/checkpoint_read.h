/*
 * checkpoint_read: from a checkpoint to any layout.
 *
 * An index says for every run of elements of every whole tensor in which shard it lies. A reader asks
 * for a piece of a tensor as its own rank holds it, and gets its values whoever saved them: parts that
 * meet the piece are read whole, since their hashes are of the whole part, verified, and what belongs
 * to the piece is copied. A part read before is not verified again. Reading is with O_DIRECT where the
 * file system has it, so it is storage that is read.
 *
 * Failures name file and tensor: FAIL_FILE for a missing, short, foreign or corrupt file, for a part
 * whose hash is another, for elements that no file holds, for what the system would not give. Only a size, a
 * hash, or a file that stays away from a folder that is there, prove that a checkpoint is damaged.
 */
#ifndef WORKLOADS_CHECKPOINT_READ_H
#define WORKLOADS_CHECKPOINT_READ_H

#include <stdint.h>

#include "workloads/checkpoint_manifest.h"

struct checkpoint_times {
    int64_t read_ns, verify_ns, recut_ns; /* of the calling thread: waiting for storage, hashing,
                                             copying between layouts */
    int64_t bytes;                        /* read */
};

struct checkpoint_reader;

/* `manifest` stays the caller's, and must outlive the reader. Of what several shards hold, that of
 * `rank` is read. `direct`: with O_DIRECT where that is possible. A file's size and frame are looked at when it is first needed. */
void checkpoint_reader_open(struct checkpoint_reader **out, const char *folder,
                            const struct checkpoint_manifest *manifest, int rank, bool direct);
void checkpoint_reader_close(struct checkpoint_reader *reader);

/* out[piece->count]: the piece (of a plan whose tensors are whole or cut in any way) of one array. */
int checkpoint_reader_piece(struct checkpoint_reader *reader, int array, const struct plan *plan,
                            const struct plan_piece *piece, float *out);

const struct checkpoint_times *checkpoint_reader_times(const struct checkpoint_reader *reader);
bool checkpoint_reader_damaged(const struct checkpoint_reader *reader); /* that was proved */
bool checkpoint_reader_is_direct(
    const struct checkpoint_reader *reader); /* all files read so far */

/* Read and verify every stride-th shard from `first` on, small state included. */
int checkpoint_verify(const char *folder, const struct checkpoint_manifest *manifest, int first,
                      int stride);

#endif
