/* Reading of input_file: tokens of the stream, samples, and what can be wrong with them. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/rng.h"
#include "workloads/input_file.h"
#include "workloads/input_shuffle.h"

/* ---- failures: the first one is kept ---- */

static void keep(struct input_file *file, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void keep(struct input_file *file, const char *format, ...)
{
    va_list list;
    pthread_mutex_lock(&file->lock);
    if (atomic_load(&file->failed) == 0) {
        va_start(list, format);
        vsnprintf(file->why, sizeof file->why, format, list);
        va_end(list);
        atomic_store(&file->failed, FAIL_FILE);
    }
    pthread_mutex_unlock(&file->lock);
}

int input_file_failed(struct input_file *file)
{
    int code = atomic_load(&file->failed);
    return code == 0 ? 0 : fail(code, "%s", file->why);
}

/* ---- tokens ---- */

bool input_file_copy(struct input_file *file, int index, int64_t offset, int64_t bytes, void *to)
{
    struct file_shard *shard = &file->shards[index];
    if (map_copy(&shard->map, (size_t)offset, (size_t)bytes, to))
        return true;
    keep(file,
         "input: %s changed while it was read: bytes %" PRId64 " to %" PRId64
         " cannot be read any more (it had %" PRId64 " when it was opened)",
         shard->path, offset, offset + bytes, shard->bytes);
    return false;
}

static int shard_of(const struct input_file *file, int64_t token)
{
    int low = 0, high = file->n_shards - 1;
    while (low < high) {
        int middle = low + (high - low + 1) / 2;
        if (file->shards[middle].first <= token)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* Little-endian tokens at the end of `out`, moved apart from the first on. */
static void widen(int32_t *out, int64_t n, int width)
{
    const unsigned char *from = (const unsigned char *)(out + n) - n * width;
    for (int64_t i = 0; i < n && width == 1; i++)
        out[i] = from[i];
    for (int64_t i = 0; i < n && width == 2; i++)
        out[i] = from[2 * i] | from[2 * i + 1] << 8;
}

static int64_t little(const int32_t *word)
{
    const unsigned char *at = (const unsigned char *)word;
    return (int64_t)((uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 |
                     (uint32_t)at[3] << 24);
}

/* Tokens [first, first + n) of one shard, all below the vocabulary. */
static bool read_shard(struct input_file *file, int index, int64_t first, int64_t n, int32_t *out)
{
    struct file_shard *shard = &file->shards[index];
    int64_t offset = shard->header + (first - shard->first) * file->width;
    unsigned char *raw = (unsigned char *)(out + n) - n * file->width;
    if (!input_file_copy(file, index, offset, n * file->width, raw))
        return false;
    widen(out, n, file->width);
    for (int64_t i = 0; i < n && file->width > 1; i++) {
        int64_t token = file->width == 4 ? little(&out[i]) : out[i];
        if (token < file->vocabulary) {
            out[i] = (int32_t)token;
            continue;
        }
        keep(file,
             "input: %s: token %" PRId64 " at byte %" PRId64
             " is not below the vocabulary of %" PRId64 " of the model",
             shard->path, token, offset + i * file->width, file->vocabulary);
        return false;
    }
    return true;
}

static bool read_tokens(struct input_file *file, int64_t first, int64_t n, int32_t *out)
{
    for (int shard = shard_of(file, first); n > 0; shard++) {
        int64_t left = file->shards[shard].first + file->shards[shard].n - first;
        int64_t take = left < n ? left : n;
        if (take > 0 && !read_shard(file, shard, first, take, out))
            return false;
        first += take;
        out += take;
        n -= take;
    }
    return true;
}

int input_file_check(struct input_file *file)
{
    enum { PIECE = 1 << 16 };
    int64_t most = INPUT_FILE_CHECKED / file->width, n = file->n_tokens;
    if (file->width == 1)
        return 0; /* input_file_open() has seen that the vocabulary has all bytes */
    int32_t *piece = must_alloc(PIECE, sizeof *piece);
    bool good = true;
    n = n < most ? n : most;
    for (int64_t at = 0; at < n && good; at += PIECE)
        good = read_tokens(file, at, n - at < PIECE ? n - at : PIECE, piece);
    free(piece);
    return input_file_failed(file);
}

/* ---- samples ---- */

int64_t input_file_samples(const struct input_file *file, int64_t sequence)
{
    return (file->n_tokens - 2) / sequence + 1;
}

int64_t input_file_start(const struct input_file *file, uint64_t seed, int64_t sequence,
                         int64_t index)
{
    int64_t n = input_file_samples(file, sequence), epoch = index / n;
    uint64_t key = rng_bits(rng_key(seed, "input.shuffle"), (uint64_t)epoch);
    int64_t start = shuffle_at(key, n, index % n) * sequence;
    if (file->document_end < 0)
        return start;
    start += rng_below(rng_key(seed, "input.shift"), (uint64_t)epoch, (uint32_t)sequence);
    return start < file->n_tokens - 1 ? start : 0;
}

/* Targets up to the first that ends a document, and it. */
static int64_t document(const struct input_file *file, const int32_t *targets, int64_t n)
{
    for (int64_t i = 0; i < n && file->document_end >= 0; i++)
        if (targets[i] == file->document_end)
            return i + 1;
    return n;
}

int64_t input_file_sample(struct input_file *file, int64_t start, int64_t sequence, int32_t *tokens,
                          int32_t *targets)
{
    int64_t left = file->n_tokens - 1 - start, n = left < sequence ? left : sequence;
    bool good = read_tokens(file, start + 1, n, targets) && read_tokens(file, start, 1, tokens);
    int64_t valid = good ? document(file, targets, n) : 0;
    if (valid > 0)
        memcpy(tokens + 1, targets, (size_t)(valid - 1) * sizeof *tokens);
    memset(tokens + valid, 0, (size_t)(sequence - valid) * sizeof *tokens);
    memset(targets + valid, 0, (size_t)(sequence - valid) * sizeof *targets);
    return valid;
}
