/* Files of tokens: each form is read as its definition says, every target of a file once an epoch,
 * one document to a sample, whatever is wrong with a file is one sentence, and a file that shrinks
 * under its reader does no harm. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/rng.h"
#include "tests/test.h"
#include "workloads/input.h"
#include "workloads/input_file.h"
#include "workloads/input_shuffle.h"

enum { V = 1000, SEED = 7, FORM_RAW = 0, FORM_GPT2 = 20240520, FORM_LLAMA3 = 20240801 };

static char folder[64];

static const char *path_of(const char *name)
{
    static char path[4][128];
    static int next;
    next = (next + 1) % 4;
    snprintf(path[next], sizeof path[next], "%s/%s", folder, name);
    return path[next];
}

static void write_bytes(const char *name, const void *bytes, size_t n)
{
    FILE *file = fopen(path_of(name), "wb");
    CHECK(file != NULL && fwrite(bytes, 1, n, file) == n);
    fclose(file);
}

/* A shard of n tokens; a header that says `count` of them where the form has one. */
static void write_shard(const char *name, int form, int version, int count, const int *tokens,
                        int n)
{
    unsigned char bytes[8192] = {0}, *at = bytes;
    const int header[3] = {form, version, count};
    if (form != FORM_RAW) {
        for (int i = 0; i < 3; i++)
            for (int b = 0; b < 4; b++)
                bytes[4 * i + b] = (unsigned char)(header[i] >> 8 * b & 255);
        at += 1024;
    }
    for (int i = 0; i < n; i++)
        for (int b = 0; b < (form == FORM_LLAMA3 ? 4 : 2); b++)
            *at++ = (unsigned char)(tokens[i] >> 8 * b & 255);
    write_bytes(name, bytes, (size_t)(at - bytes));
}

/* Token i of the streams written here. */
static int token(int i)
{
    return (int)rng_below(99, (uint64_t)i, V - 1) + 1;
}

/* ---- the order ---- */

static void test_shuffle(void)
{
    static const int64_t sizes[] = {1, 2, 3, 4, 5, 16, 17, 1000, 65537};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        int64_t n = sizes[s], wrong = 0, moved = 0, same = 0;
        unsigned char *seen = must_alloc((size_t)n, 1);
        for (int64_t i = 0; i < n; i++) {
            int64_t at = shuffle_at(5, n, i);
            wrong += at < 0 || at >= n || seen[at]++;
            moved += at != i;
            same += at == shuffle_at(6, n, i);
        }
        CHECK_EQ(wrong, 0);
        CHECK(n < 16 || (moved > n / 2 && same < n / 2));
        free(seen);
    }
    int64_t large = INT64_C(1) << 60, at = shuffle_at(5, large + 3, large);
    CHECK(at >= 0 && at < large + 3);
    /* Neighbours part: the mean distance of a random order is n / 3. */
    double distance = 0;
    for (int64_t i = 0; i < 10000; i++)
        distance += (double)llabs(shuffle_at(8, 10001, i + 1) - shuffle_at(8, 10001, i)) / 1e4;
    CHECK_NEAR(distance, 10001 / 3.0, 150);
}

/* ---- what a sample is ---- */

/* Sample `index` of a stream of T tokens, from the words of input_file.h alone. */
static int64_t expected(int64_t T, int64_t S, int64_t end, int64_t index, int (*x)(int),
                        int *tokens, int *targets)
{
    int64_t n = (T - 2) / S + 1, e = index / n, valid = 0;
    int64_t a = S * shuffle_at(rng_bits(rng_key(SEED, "input.shuffle"), (uint64_t)e), n, index % n);
    if (end >= 0) {
        a += rng_below(rng_key(SEED, "input.shift"), (uint64_t)e, (uint32_t)S);
        a = a < T - 1 ? a : 0;
    }
    memset(tokens, 0, (size_t)S * sizeof *tokens);
    memset(targets, 0, (size_t)S * sizeof *targets);
    for (bool ended = false; valid < S && a + valid + 1 < T && !ended; valid++) {
        tokens[valid] = x((int)(a + valid));
        targets[valid] = x((int)(a + valid + 1));
        ended = targets[valid] == end;
    }
    return valid;
}

static void check_samples(const char *path, const char *document_end, int64_t T, int64_t S,
                          int64_t end, int (*x)(int))
{
    int32_t tokens[64], targets[64];
    int want[64], want_targets[64];
    uint8_t mask[64];
    struct input input;
    char kind[160];
    snprintf(kind, sizeof kind, "file:%s", path);
    if (!CHECK_EQ(input_open_documents(&input, kind, SEED, V, S, 0, 0, document_end), 0)) {
        printf("%s\n", fail_message());
        fail_clear();
        return;
    }
    CHECK_EQ(input_file_samples(input.file, S), (T - 2) / S + 1);
    int64_t wrong = 0;
    for (int64_t i = 0; i < 3 * T / S; i++) {
        int64_t valid = expected(T, S, end, i, x, want, want_targets), shown = 0;
        input_fill(&input, i, 1, tokens, targets, mask);
        for (int64_t p = 0; p < S; p++) {
            shown += mask[p];
            wrong += tokens[p] != want[p] || targets[p] != want_targets[p];
            wrong += mask[p] != (p < valid);
        }
        wrong += valid < 1 || shown != valid || input_valid(&input, i, 1) != valid;
    }
    CHECK_EQ(wrong, 0);
    CHECK_EQ(input_failed(&input), 0);
    input_close(&input);
}

static int byte_token(int i)
{
    return token(i) & 255;
}

static void test_forms(void)
{
    enum { T = 1501 };
    static int all[T];
    static unsigned char bytes[T];
    for (int i = 0; i < T; i++) {
        all[i] = token(i);
        bytes[i] = (unsigned char)byte_token(i);
    }
    write_bytes("text", bytes, T);
    write_shard("raw.bin", FORM_RAW, 0, 0, all, T);
    write_shard("gpt2.bin", FORM_GPT2, 1, T, all, T);
    write_shard("llama3.bin", FORM_LLAMA3, 7, T, all, T);
    mkdir(path_of("shards"), 0700); /* three files, the middle one empty but for its header */
    write_shard("shards/b1.bin", FORM_GPT2, 1, 7, all, 7);
    write_shard("shards/b2.bin", FORM_GPT2, 1, 0, NULL, 0);
    write_shard("shards/b3.bin", FORM_GPT2, 1, T - 7, all + 7, T - 7);
    write_bytes("shards/notes.txt", "x", 1);
    static const int64_t lengths[] = {1, 16, 63};
    for (size_t i = 0; i < 3; i++) {
        check_samples(path_of("text"), "auto", T, lengths[i], -1, byte_token);
        check_samples(path_of("raw.bin"), "auto", T, lengths[i], 50256, token);
        check_samples(path_of("gpt2.bin"), "none", T, lengths[i], -1, token);
        check_samples(path_of("llama3.bin"), "none", T, lengths[i], -1, token);
        check_samples(path_of("shards"), "none", T, lengths[i], -1, token);
        check_samples(path_of("shards/b*.bin"), "none", T, lengths[i], -1, token);
        check_samples(path_of("gpt2.bin"), "77", T, lengths[i], 77, token);
        check_samples(path_of("text"), "32", T, lengths[i], 32, byte_token);
    }
}

/* Without documents each token but the first is a target once an epoch, in another order each. */
static void test_epoch(void)
{
    enum { T = 1000, S = 13, N = (T - 2) / S + 1 };
    unsigned char bytes[T];
    int32_t tokens[S], targets[S];
    struct input_file file;
    int seen[2][256] = {{0}}, other = 0;
    for (int i = 0; i < T; i++)
        bytes[i] = (unsigned char)byte_token(i);
    write_bytes("epoch", bytes, T);
    CHECK_EQ(input_file_open(&file, path_of("epoch"), 256, "auto"), 0);
    for (int64_t i = 0; i < 2 * N; i++) {
        int64_t start = input_file_start(&file, SEED, S, i);
        int64_t valid = input_file_sample(&file, start, S, tokens, targets);
        for (int64_t p = 0; p < valid; p++)
            seen[i / N][targets[p]]++;
        other += i < N && start != input_file_start(&file, SEED, S, i + N);
    }
    for (int i = 1; i < T; i++)
        seen[0][bytes[i]]--;
    for (int t = 0; t < 256; t++)
        CHECK_EQ(seen[0][t], 0);
    CHECK(other > N / 2);
    input_file_close(&file);
}

/* Lines shorter than the sequence: a sample never holds two of them, and padding still applies. */
static void test_documents(void)
{
    enum { S = 40 };
    const char *text =
        "one\nsecond line\na third one, longer than any sequence that is asked for here, "
        "so that it takes several\n\nfive\n";
    int32_t tokens[S], targets[S];
    uint8_t mask[S];
    struct input input;
    char kind[160];
    write_bytes("lines", text, strlen(text));
    snprintf(kind, sizeof kind, "file:%s", path_of("lines"));
    CHECK_EQ(input_open_documents(&input, kind, SEED, 256, S, 0, 0, "10"), 0);
    int64_t shorter = 0, crossed = 0, covered = 0;
    for (int64_t i = 0; i < 200; i++) {
        int64_t valid = input_valid(&input, i, 1);
        input_fill(&input, i, 1, tokens, targets, mask);
        for (int64_t p = 0; p < valid; p++) {
            crossed += p > 0 && tokens[p] == '\n';
            covered |= 1 << (targets[p] == 'v') << (targets[p] == 'y');
        }
        for (int64_t p = valid; p < S; p++)
            crossed += tokens[p] != 0 || targets[p] != 0 || mask[p] != 0;
        shorter += valid < S;
    }
    CHECK_EQ(crossed, 0);
    CHECK(shorter > 50 && shorter < 200);
    CHECK_EQ(covered & 2, 2); /* "five" begins in the middle of every window of epoch 0 */
    input_close(&input);
    CHECK_EQ(input_open_documents(&input, kind, SEED, 256, S, 0.9, 0, "none"), 0);
    CHECK(input_valid(&input, 0, 30) < 30 * S * 3 / 4);
    input_close(&input);
}

/* ---- what is refused ---- */

static void refused(int code, const char *name, int64_t vocabulary, const char *document_end,
                    const char *words)
{
    struct input_file file;
    fail_clear();
    int rc = input_file_open(&file, name, vocabulary, document_end);
    if (rc == 0)
        rc = input_file_check(&file);
    CHECK_EQ(rc, code);
    CHECK_HAS(fail_message(), words);
    CHECK(strchr(fail_message(), '\n') == NULL);
    input_file_close(&file);
    fail_clear();
}

static void test_refusals(void)
{
    const int tokens[] = {1, 2, 3, 700, 5};
    mkdir(path_of("none"), 0700);
    mkdir(path_of("mixed"), 0700);
    CHECK_EQ(mkfifo(path_of("fifo"), 0600), 0);
    write_bytes("empty", "", 0);
    write_bytes("one", "x", 1);
    write_bytes("odd.bin", "abc", 3);
    write_shard("version.bin", FORM_GPT2, 2, 5, tokens, 5);
    write_shard("short.bin", FORM_GPT2, 1, 6, tokens, 5);
    write_shard("eval.bin", 20240522, 1, 5, tokens, 5);
    write_shard("good.bin", FORM_GPT2, 1, 5, tokens, 5);
    write_shard("mixed/a.bin", FORM_GPT2, 1, 5, tokens, 5);
    write_shard("mixed/b.bin", FORM_RAW, 0, 0, tokens, 5);
    write_bytes("letters", "abc", 3);
    write_bytes("locked", "abc", 3);
    chmod(path_of("locked"), 0);
    refused(FAIL_USAGE, "", V, "auto", "names no file");
    refused(FAIL_FILE, path_of("missing"), V, "auto", "missing: No such file or directory");
    refused(FAIL_FILE, path_of("missing*"), V, "auto", "no file matches");
    refused(FAIL_FILE, path_of("empty"), V, "auto", "is empty");
    refused(FAIL_FILE, path_of("one"), V, "auto", "holds 1 tokens, wanted at least 2");
    refused(FAIL_FILE, path_of("fifo"), V, "auto", "is a FIFO, wanted a regular file");
    refused(FAIL_FILE, path_of("none"), V, "auto", "holds no shard: wanted files *.bin");
    refused(FAIL_FILE, path_of("odd.bin"), V, "auto",
            "3 bytes are no whole number of 16-bit tokens");
    refused(FAIL_FILE, path_of("version.bin"), V, "auto", "its version is 2, wanted 1");
    refused(FAIL_FILE, path_of("short.bin"), V, "auto",
            "its header says 6 tokens of 2 bytes, and 10 bytes follow it");
    refused(FAIL_FILE, path_of("eval.bin"), V, "auto", "questions for evaluation");
    refused(FAIL_FILE, path_of("mixed"), V, "auto", "are not of one form");
    refused(FAIL_FILE, path_of("good.bin"), 700, "auto",
            "good.bin: token 700 at byte 1030 is not below the vocabulary of 700");
    refused(FAIL_USAGE, path_of("letters"), 255, "auto", "vocabulary is 255: take a model with");
    refused(FAIL_USAGE, path_of("good.bin"), V, "1000", "--document-end: found \"1000\"");
    refused(FAIL_USAGE, path_of("good.bin"), V, "newline", "--document-end: found \"newline\"");
    if (geteuid() != 0)
        refused(FAIL_FILE, path_of("locked"), V, "auto", "locked: Permission denied");
}

/* ---- a file that changes ---- */

static void test_changed(void)
{
    enum { BYTES = 1 << 16, S = 32 };
    static unsigned char bytes[BYTES];
    int32_t tokens[S], targets[S];
    uint8_t mask[S];
    struct input input;
    char kind[160];
    memset(bytes, 'a', sizeof bytes);
    write_bytes("shrinks", bytes, BYTES);
    snprintf(kind, sizeof kind, "file:%s", path_of("shrinks"));
    CHECK_EQ(input_open(&input, kind, SEED, 256, S, 0, 0), 0);
    CHECK_EQ(input_file_unchanged(input.file), 0);
    CHECK_EQ(truncate(path_of("shrinks"), 5000), 0);
    CHECK_EQ(input_file_unchanged(input.file), FAIL_FILE);
    CHECK_HAS(fail_message(), "it had 65536 bytes and has 5000");
    fail_clear();
    int64_t lost = 0;
    for (int64_t i = 0; i < BYTES / S; i++) {
        input_fill(&input, i, 1, tokens, targets, mask);
        lost += mask[0] == 0;
    }
    CHECK(lost > 1500 && lost < BYTES / S); /* what the first two pages held is still there */
    CHECK_EQ(input_failed(&input), FAIL_FILE);
    CHECK_HAS(fail_message(), "shrinks changed while it was read: bytes ");
    fail_clear();
    input_close(&input);
    CHECK_EQ(input_open(&input, kind, SEED, 256, S, 0, 0), 0);
    write_bytes("new", bytes, 5000);
    CHECK_EQ(rename(path_of("new"), path_of("shrinks")), 0);
    CHECK_EQ(input_file_unchanged(input.file), FAIL_FILE);
    CHECK_HAS(fail_message(), "it was written again, 5000 bytes as before");
    fail_clear();
    CHECK_EQ(unlink(path_of("shrinks")), 0);
    CHECK_EQ(input_file_unchanged(input.file), FAIL_FILE);
    CHECK_HAS(fail_message(), "No such file");
    fail_clear();
    input_close(&input);
}

static void fingerprint(const char *name, char text[INPUT_FILE_FINGERPRINT])
{
    struct input_file file;
    CHECK_EQ(input_file_open(&file, path_of(name), V, "auto"), 0);
    CHECK_EQ(input_file_fingerprint(&file, text), 0);
    input_file_close(&file);
}

static void test_fingerprint(void)
{
    char a[INPUT_FILE_FINGERPRINT], b[INPUT_FILE_FINGERPRINT];
    write_bytes("a", "some text", 9);
    write_bytes("b", "some text", 9);
    fingerprint("a", a);
    fingerprint("b", b);
    CHECK(strcmp(a, b) == 0); /* a copy is the same data */
    CHECK_HAS(a, "files=1 bytes=9 xxh3=");
    write_bytes("b", "some tezt", 9);
    fingerprint("b", b);
    CHECK(strcmp(a, b) != 0);
}

int main(void)
{
    snprintf(folder, sizeof folder, "/tmp/scalestudy-input.XXXXXX");
    if (mkdtemp(folder) == NULL)
        return 1;
    test_shuffle();
    test_forms();
    test_epoch();
    test_documents();
    test_refusals();
    test_changed();
    test_fingerprint();
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    CHECK_EQ(system(command), 0);
    return test_end();
}
