/*
 * input_file: files of tokens behind `--input file:PATH`.
 *
 * PATH is a file, a folder (its *.bin, in the order of names) or a pattern of the shell (what it
 * matches, in the order of names). All of its files have one form, told from name and content:
 *
 *   bytes      a name that does not end in .bin: each byte is a token
 *   llm.c      *.bin that begins with 256 little-endian int32: 20240520, version 1, number of
 *              tokens; then so many uint16. Or 20240801, version 7, then uint32 (Llama 3)
 *   nanoGPT    any other *.bin: uint16 from the first byte on
 *
 * (github.com/karpathy/llm.c dev/data/data_common.py, github.com/karpathy/nanoGPT
 * data/openwebtext/prepare.py.) The files follow each other as one stream of T tokens x.
 *
 * Documents end with a token of their own: 50256 in uint16 shards (GPT-2's end of text), 128000 in
 * uint32 shards (it begins a document there: the same places), none in bytes, unless --document-end
 * says another one or none.
 *
 * Sample i of sequence length S, seed s: with n = ceil((T - 1) / S) samples an epoch, epoch
 * e = i div n, the window w = shuffle_at(rng_bits(rng_key(s, "input.shuffle"), e), n, i mod n).
 * It begins at x[a], a = w S: every token but the first is a target once an epoch. Where documents
 * end, a = w S + rng_below(rng_key(s, "input.shift"), e, S), or 0 when that is not below T - 1; the
 * sample then holds one document: it ends behind the first target that is the ending token, and at
 * the end of the stream. What follows is padding: token and target 0, mask 0. Windows that begin
 * elsewhere in each epoch reach what padding hid. A sample depends on nothing else: no layout, no
 * table, no order of reading.
 *
 * What goes wrong while reading (a token that the model does not have, a file that changed) is kept
 * by the first thread that meets it; its sample is all padding; input_file_failed() tells. Any
 * number of threads may read.
 */
#ifndef WORKLOADS_INPUT_FILE_H
#define WORKLOADS_INPUT_FILE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "workloads/input_map.h"

enum {
    INPUT_FILE_CHECKED = 64 << 20, /* bytes of tokens that input_file_check() looks at, and up to
                                      which a fingerprint is one of all content */
    INPUT_FILE_RESIDENT = 64 << 20 /* bytes that the mappings together keep resident, about */
};

struct file_shard {
    char *path;
    struct input_map map;
    int64_t header, first, n; /* bytes before the tokens; tokens of the stream before it; its own */
    uint64_t device, node;    /* which file it was, */
    int64_t bytes, changed_ns; /* and how it was, when it was opened */
};

struct input_file {
    int n_shards;
    struct file_shard *shards;
    int width; /* bytes of a token: 1, 2, 4 */
    bool has_header;
    int64_t n_tokens, vocabulary;
    int64_t document_end; /* token, -1: none */
    pthread_mutex_t lock;
    bool locks;
    atomic_int failed; /* FAIL_* */
    char why[640];     /* under `lock` until `failed` is set */
};

/* FAIL_FILE: missing, empty, not readable, no regular file, no shard; FAIL_USAGE: a vocabulary or
 * ending token that does not fit. `document_end`: "auto", "none" or a token. */
int input_file_open(struct input_file *file, const char *path, int64_t vocabulary,
                    const char *document_end);
void input_file_close(struct input_file *file); /* safe on a zeroed struct */

/* Samples of one epoch. */
int64_t input_file_samples(const struct input_file *file, int64_t sequence);

/* Where sample `index` begins in the stream. */
int64_t input_file_start(const struct input_file *file, uint64_t seed, int64_t sequence,
                         int64_t index);

/* Write the sample that begins at `start`: tokens, targets [sequence]; returns its valid tokens,
 * 0 on failure. */
int64_t input_file_sample(struct input_file *file, int64_t start, int64_t sequence, int32_t *tokens,
                          int32_t *targets);

/* Look at the first INPUT_FILE_CHECKED bytes of tokens: FAIL_FILE, file, offset and token named. */
int input_file_check(struct input_file *file);

/* 0, or what reading met first, as FAIL_FILE. */
int input_file_failed(struct input_file *file);

/* FAIL_FILE when a file is not the one that was opened: size, time of change, or gone. */
int input_file_unchanged(const struct input_file *file);

/*
 * "files=1 bytes=5458199 xxh3=0123456789abcdef": of all content up to INPUT_FILE_CHECKED bytes,
 * else of the size, beginning and end of each file ("ends=..."), and then with the latest time of
 * change, since the middle may differ too. FAIL_FILE.
 */
enum { INPUT_FILE_FINGERPRINT = 128 };
int input_file_fingerprint(struct input_file *file, char text[INPUT_FILE_FINGERPRINT]);

/* Copy bytes of a shard; false: kept as a failure. Private to input_file*.c. */
bool input_file_copy(struct input_file *file, int shard, int64_t offset, int64_t bytes, void *to);

#endif
