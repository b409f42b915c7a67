/*
 * input: the samples of a study, each a pure function of its global index.
 *
 * A sample is a sequence of S tokens, the S targets that follow them, and a mask (1: counts). So
 * the tokens of step k are samples [k B, (k+1) B) of the study whatever the layout.
 *
 * Exactly, with V the vocabulary and rng_key, rng_below of base/rng (all integers, so that a script
 * can make the same tokens):
 *   sample i     is sample (i mod repeat) when repeat > 0; "memory" then takes it mod n_resident
 *   token 0      rng_below(rng_key(seed, "input.first"), i, V)
 *   draw         at position p = 1..S of sample i: d = rng_below(rng_key(seed, "input.draw"),
 *                i (S + 1) + p, 16), and k = 0 for d < 8, 1 for d < 12, 2 for d < 14, else 3
 *   token p      (rng_below(N, 5 t, V) + k Q + rng_below(N, 5 t + 1 + k, Q)) mod V, where t is the
 *                token at p - 1, N = rng_key(seed, "input.next") and Q = V / 4 rounded down
 *   tokens       are tokens 0..S-1, targets are tokens 1..S
 *   valid        S - rng_below(rng_key(seed, "input.padding"), i, floor(padding S) + 1): the mask is
 *                1 for that many positions from the first on, then 0
 *
 * So it is a Markov chain in which each token has four different successors with
 * weights 8, 4, 2, 2 of 16, and loss must fall from about ln V towards
 * input_entropy(). "synthetic" makes samples where they are used; "memory" holds the first
 * n_resident of them in host memory and copies, wrapping around: the same work plus an input path.
 * "file:PATH" reads them from files of tokens (input_file.h), sample (i mod repeat) as the others.
 * `padding` masks the tail of each sample by a share drawn uniformly from [0, padding], so that
 * ranks hold unequal numbers of valid tokens; at least one token of a sample is valid.
 *
 * input_fill() is what OP_INPUT calls. With a feed (input_feed.h) it is metered, and takes batches
 * that workers have made ahead; which thread made a sample changes nothing in it.
 */
#ifndef WORKLOADS_INPUT_H
#define WORKLOADS_INPUT_H

#include <stdbool.h>
#include <stdint.h>

struct input_feed;
struct input_file;

struct input {
    char kind[16]; /* "synthetic", "memory", "file" */
    uint64_t seed;
    int64_t vocabulary; /* tokens are < vocabulary (unpadded) */
    int64_t sequence;
    double padding; /* 0 .. <1 */
    int64_t repeat; /* > 0: sample index is taken modulo this (the repeated batch of the gate) */
    int64_t n_resident; /* memory: samples held */
    int32_t *resident;  /* memory: [n_resident][sequence + 1]; else NULL */
    uint64_t key_first, key_next, key_draw, key_padding;
    uint32_t most_padding;   /* floor(padding sequence) */
    struct input_file *file; /* "file"; else NULL. Owned */
    struct input_feed *feed; /* NULL: not metered, no workers. Owned */
    bool
        pinned; /* a device that copies batches takes them from page-locked memory; true when open */
};

/* FAIL_USAGE for an unknown kind, a padding outside [0, 1), sizes too small or beyond 32 bits; what
 * input_file_open() fails with. `resident` samples are made for "memory" (at least 1). The caller
 * may set `repeat` afterwards. */
int input_open(struct input *input, const char *kind, uint64_t seed, int64_t vocabulary,
               int64_t sequence, double padding, int64_t resident);

/* The same with what only files know: which token ends a document (input_file.h). */
int input_open_documents(struct input *input, const char *kind, uint64_t seed, int64_t vocabulary,
                         int64_t sequence, double padding, int64_t resident,
                         const char *document_end);
void input_close(struct input *input); /* safe on a zeroed struct */

/* Whether a word of --input names files: what follows "file:", or NULL. */
const char *input_path(const char *kind);

/* Write samples [first, first + n): tokens, targets int32 [n][S], mask uint8 [n][S]. */
void input_fill(const struct input *input, int64_t first, int64_t n, int32_t *tokens,
                int32_t *targets, uint8_t *mask);

/* The same without a feed: made by the calling thread, whichever it is; returns the bytes that came
 * from files. A sample that could not be read has no valid token, see input_failed(). */
int64_t input_make(const struct input *input, int64_t first, int64_t n, int32_t *tokens,
                   int32_t *targets, uint8_t *mask);

/* 0, or what went wrong while samples were read, as FAIL_FILE. Outside the fence. */
int input_failed(const struct input *input);

/* Valid tokens of samples [first, first + n). Files are read for it, the others not made. */
int64_t input_valid(const struct input *input, int64_t first, int64_t n);

/* Entropy rate of the chain in nats a token, 1.75 ln 2: what the loss of a perfect model tends to. */
double input_entropy(void);

#endif
