#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

#include "base/err.h"
#include "workloads/input_file.h"

enum { PIECE = 1 << 20, END_BYTES = 64 << 10 };

static bool add_bytes(struct input_file *file, int shard, int64_t from, int64_t to, void *buffer,
                      XXH3_state_t *state)
{
    for (int64_t at = from; at < to; at += PIECE) {
        int64_t n = to - at < PIECE ? to - at : PIECE;
        if (!input_file_copy(file, shard, at, n, buffer))
            return false;
        XXH3_64bits_update(state, buffer, (size_t)n);
    }
    return true;
}

/* Sizes are hashed beside the content: two files never look like one cut elsewhere. */
static void add_shard(struct input_file *file, int index, bool whole, void *buffer,
                      XXH3_state_t *state)
{
    const struct file_shard *shard = &file->shards[index];
    int64_t middle = whole || shard->bytes < 2 * END_BYTES ? shard->bytes : END_BYTES;
    XXH3_64bits_update(state, &shard->bytes, sizeof shard->bytes);
    if (add_bytes(file, index, 0, middle, buffer, state) && middle < shard->bytes)
        add_bytes(file, index, shard->bytes - END_BYTES, shard->bytes, buffer, state);
}

int input_file_fingerprint(struct input_file *file, char text[INPUT_FILE_FINGERPRINT])
{
    int64_t bytes = 0, latest = 0;
    for (int i = 0; i < file->n_shards; i++) {
        bytes += file->shards[i].bytes;
        latest = file->shards[i].changed_ns > latest ? file->shards[i].changed_ns : latest;
    }
    bool whole = bytes <= INPUT_FILE_CHECKED;
    void *buffer = must_alloc(PIECE, 1);
    XXH3_state_t *state = XXH3_createState();
    XXH3_64bits_reset(state);
    for (int i = 0; i < file->n_shards; i++)
        add_shard(file, i, whole, buffer, state);
    uint64_t digest = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    free(buffer);
    int n = snprintf(text, INPUT_FILE_FINGERPRINT, "files=%d bytes=%" PRId64 " %s=%016" PRIx64,
                     file->n_shards, bytes, whole ? "xxh3" : "ends", digest);
    if (!whole)
        snprintf(text + n, INPUT_FILE_FINGERPRINT - (size_t)n, " changed_ns=%" PRId64, latest);
    return input_file_failed(file);
}
