#include "workloads/input.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/rng.h"
#include "workloads/input_feed.h"
#include "workloads/input_file.h"

/* Which of a token's four successors a draw of 0..15 takes: weights 8, 4, 2, 2. */
static const uint8_t successor[16] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 3};

/* The sample that stands for the one with this index. */
static int64_t sample_of(const struct input *input, int64_t index)
{
    if (input->repeat > 0)
        index %= input->repeat;
    return input->resident != NULL ? index % input->n_resident : index;
}

static int64_t valid_of(const struct input *input, int64_t sample)
{
    return input->sequence -
           (int64_t)rng_below(input->key_padding, (uint64_t)sample, input->most_padding + 1);
}

/* The k-th successor of a token: each lies in a quarter of its own, so that the four differ. */
static uint32_t successor_of(const struct input *input, uint32_t token, uint32_t k)
{
    uint32_t vocabulary = (uint32_t)input->vocabulary, quarter = vocabulary / 4;
    uint64_t at = 5 * (uint64_t)token;
    uint64_t base = rng_below(input->key_next, at, vocabulary);
    uint64_t in_quarter = rng_below(input->key_next, at + 1 + k, quarter);
    return (uint32_t)((base + (uint64_t)k * quarter + in_quarter) % vocabulary);
}

/* The targets are the tokens one position further on, one more than there are tokens. */
static void make_sample(const struct input *input, int64_t sample, int32_t *tokens,
                        int32_t *targets)
{
    uint32_t vocabulary = (uint32_t)input->vocabulary;
    uint64_t draw = (uint64_t)sample * ((uint64_t)input->sequence + 1);
    uint32_t token = rng_below(input->key_first, (uint64_t)sample, vocabulary);

    for (int64_t p = 0; p < input->sequence; p++) {
        tokens[p] = (int32_t)token;
        uint32_t k = successor[rng_below(input->key_draw, draw + (uint64_t)p + 1, 16)];
        token = successor_of(input, token, k);
        targets[p] = (int32_t)token;
    }
}

static void make_resident(struct input *input, int64_t n)
{
    size_t length = (size_t)input->sequence + 1;
    input->n_resident = n;
    input->resident = must_alloc((size_t)n * length, sizeof *input->resident);
    for (int64_t i = 0; i < n; i++) {
        int32_t *held = input->resident + (size_t)i * length;
        make_sample(input, i, held, held + 1);
    }
}

const char *input_path(const char *kind)
{
    return strncmp(kind, "file:", 5) == 0 ? kind + 5 : NULL;
}

static int check_open(const char *kind, int64_t vocabulary, int64_t sequence, double padding)
{
    if (strcmp(kind, "memory") != 0 && strcmp(kind, "synthetic") != 0 && input_path(kind) == NULL)
        return fail(FAIL_USAGE, "input: unknown kind \"%s\": choose synthetic, memory or file:PATH",
                    kind);
    if (!(padding >= 0 && padding < 1))
        return fail(FAIL_USAGE, "input: padding of %g is not a share in [0, 1)", padding);
    if (vocabulary < 4 || vocabulary > INT32_MAX || sequence < 1 || sequence >= INT32_MAX)
        return fail(FAIL_USAGE,
                    "input: vocabulary %" PRId64 " and sequence %" PRId64
                    " must be at least 4 and 1 and fit 32 bits",
                    vocabulary, sequence);
    return 0;
}

int input_open_documents(struct input *input, const char *kind, uint64_t seed, int64_t vocabulary,
                         int64_t sequence, double padding, int64_t resident,
                         const char *document_end)
{
    int rc = 0;
    memset(input, 0, sizeof *input);
    TRY(check_open(kind, vocabulary, sequence, padding));
    const char *path = input_path(kind);
    snprintf(input->kind, sizeof input->kind, "%s", path != NULL ? "file" : kind);
    input->pinned = true;
    input->seed = seed;
    input->vocabulary = vocabulary;
    input->sequence = sequence;
    input->padding = padding;
    input->most_padding = (uint32_t)floor(padding * (double)sequence);
    input->key_first = rng_key(seed, "input.first");
    input->key_next = rng_key(seed, "input.next");
    input->key_draw = rng_key(seed, "input.draw");
    input->key_padding = rng_key(seed, "input.padding");
    if (strcmp(kind, "memory") == 0)
        make_resident(input, resident < 1 ? 1 : resident);
    if (path != NULL) {
        input->file = must_alloc(1, sizeof *input->file);
        rc = input_file_open(input->file, path, vocabulary, document_end);
    }
out:
    return rc;
}

int input_open(struct input *input, const char *kind, uint64_t seed, int64_t vocabulary,
               int64_t sequence, double padding, int64_t resident)
{
    return input_open_documents(input, kind, seed, vocabulary, sequence, padding, resident, "auto");
}

void input_close(struct input *input)
{
    input_feed_close(input->feed);
    if (input->file != NULL)
        input_file_close(input->file);
    free(input->file);
    free(input->resident);
    memset(input, 0, sizeof *input);
}

/* Returns the valid tokens. */
static int64_t fill_sample(const struct input *input, int64_t sample, int32_t *tokens,
                           int32_t *targets)
{
    size_t length = (size_t)input->sequence;
    int64_t valid = valid_of(input, sample);
    if (input->file != NULL) {
        int64_t start = input_file_start(input->file, input->seed, input->sequence, sample);
        int64_t there = input_file_sample(input->file, start, input->sequence, tokens, targets);
        return there < valid ? there : valid;
    }
    if (input->resident != NULL) {
        const int32_t *held = input->resident + (size_t)sample * (length + 1);
        memcpy(tokens, held, length * sizeof *tokens);
        memcpy(targets, held + 1, length * sizeof *targets);
    } else {
        make_sample(input, sample, tokens, targets);
    }
    return valid;
}

int64_t input_make(const struct input *input, int64_t first, int64_t n, int32_t *tokens,
                   int32_t *targets, uint8_t *mask)
{
    size_t length = (size_t)input->sequence;
    for (int64_t i = 0; i < n; i++, tokens += length, targets += length, mask += length) {
        size_t valid = (size_t)fill_sample(input, sample_of(input, first + i), tokens, targets);
        memset(mask, 1, valid);
        memset(mask + valid, 0, length - valid);
    }
    return input->file != NULL ? n * (input->sequence + 1) * input->file->width : 0;
}

void input_fill(const struct input *input, int64_t first, int64_t n, int32_t *tokens,
                int32_t *targets, uint8_t *mask)
{
    if (input->feed != NULL)
        input_feed_take(input->feed, first, n, tokens, targets, mask);
    else
        input_make(input, first, n, tokens, targets, mask);
}

int input_failed(const struct input *input)
{
    return input->file != NULL ? input_file_failed(input->file) : 0;
}

static int64_t valid_in_file(const struct input *input, int64_t first, int64_t n)
{
    size_t length = (size_t)input->sequence;
    int32_t *words = must_alloc(2 * length, sizeof *words);
    int64_t valid = 0;
    for (int64_t i = 0; i < n; i++)
        valid += fill_sample(input, sample_of(input, first + i), words, words + length);
    free(words);
    return valid;
}

int64_t input_valid(const struct input *input, int64_t first, int64_t n)
{
    int64_t valid = 0;
    if (input->file != NULL)
        return valid_in_file(input, first, n);
    for (int64_t i = 0; i < n; i++)
        valid += valid_of(input, sample_of(input, first + i));
    return valid;
}

double input_entropy(void)
{
    return 1.75 * log(2.0);
}
