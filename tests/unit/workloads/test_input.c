/*
 * A sample is a function of its index alone, made as input.h says; the two kinds hold the same
 * tokens; the chain has the entropy that is claimed.
 */
#include <stdlib.h>

#include "base/err.h"
#include "base/rng.h"
#include "tests/test.h"
#include "workloads/kernels/kernels.h"

enum { V = 301, S = 37, N = 12 };
static const uint64_t SEED = 20;
static const double weight[] = {8, 4, 2, 2}; /* of 16 */

struct batch {
    int32_t tokens[N * S], targets[N * S];
    uint8_t mask[N * S];
};

static void fill(const struct input *input, int64_t first, struct batch *batch)
{
    memset(batch, 0x5a, sizeof *batch);
    input_fill(input, first, N, batch->tokens, batch->targets, batch->mask);
}

static bool same(const struct batch *a, const struct batch *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

static void open_input(struct input *input, const char *kind, double padding, int64_t resident)
{
    CHECK_EQ(input_open(input, kind, SEED, V, S, padding, resident), 0);
}

/* Successor k of token t in a vocabulary of v, from the words of input.h alone. */
static uint32_t successor(uint64_t key, uint64_t t, uint64_t k, uint32_t v)
{
    uint64_t quarter = v / 4;
    return (uint32_t)((rng_below(key, 5 * t, v) + k * quarter +
                       rng_below(key, 5 * t + 1 + k, (uint32_t)quarter)) %
                      v);
}

/* Token p of sample i, from the words of input.h alone. */
static int32_t token(uint64_t i, uint64_t p)
{
    if (p == 0)
        return (int32_t)rng_below(rng_key(SEED, "input.first"), i, V);
    uint32_t d = rng_below(rng_key(SEED, "input.draw"), i * (S + 1) + p, 16);
    uint64_t k = d < 8 ? 0 : d < 12 ? 1 : d < 14 ? 2 : 3;
    return (int32_t)successor(rng_key(SEED, "input.next"), (uint64_t)token(i, p - 1), k, V);
}

static void test_definition(void)
{
    static struct batch batch;
    struct input input;
    open_input(&input, "synthetic", 0.4, 0);
    fill(&input, 1000, &batch);
    long wrong = 0, valid = 0;
    for (uint64_t i = 0; i < N; i++) {
        uint64_t shown = S - rng_below(rng_key(SEED, "input.padding"), 1000 + i, 14 + 1);
        for (uint64_t p = 0; p < S; p++) {
            wrong += batch.tokens[i * S + p] != token(1000 + i, p);
            wrong += batch.targets[i * S + p] != token(1000 + i, p + 1);
            wrong += batch.mask[i * S + p] != (p < shown);
            valid += batch.mask[i * S + p];
        }
    }
    CHECK_EQ(wrong, 0);
    CHECK_EQ(input_valid(&input, 1000, N), valid);
    CHECK(valid < N * S && valid > N * S / 2);
    input_close(&input);
}

/* Any cut into calls gives the same samples. */
static void test_cuts(void)
{
    static struct batch whole, pieces;
    struct input input;
    open_input(&input, "synthetic", 0.4, 0);
    fill(&input, 5, &whole);
    memset(&pieces, 0x5a, sizeof pieces);
    for (int64_t i = 0; i < N; i += i % 2 + 1) {
        int64_t n = i % 2 + 1;
        input_fill(&input, 5 + i, n < N - i ? n : N - i, pieces.tokens + i * S,
                   pieces.targets + i * S, pieces.mask + i * S);
    }
    CHECK(same(&whole, &pieces));
    fill(&input, 6, &pieces);
    CHECK(!same(&whole, &pieces));
    input_close(&input);
}

static void test_memory(void)
{
    static struct batch a, b;
    struct input synthetic, memory;
    open_input(&synthetic, "synthetic", 0.4, 0);
    open_input(&memory, "memory", 0.4, 20);
    fill(&synthetic, 3, &a);
    fill(&memory, 3, &b);
    CHECK(same(&a, &b));
    fill(&memory, 3 + 5 * 20, &b); /* around five times */
    CHECK(same(&a, &b));
    CHECK_EQ(input_valid(&memory, 103, N), input_valid(&synthetic, 3, N));
    input_close(&memory);
    open_input(&memory, "memory", 0, 0); /* at least one sample */
    fill(&memory, 0, &b);
    CHECK(memcmp(b.tokens, b.tokens + S, S * sizeof b.tokens[0]) == 0);
    input_close(&memory);
    input_close(&synthetic);
}

static void test_repeat(void)
{
    static struct batch a, b;
    struct input input;
    open_input(&input, "synthetic", 0.4, 0);
    fill(&input, 0, &a);
    input.repeat = N;
    fill(&input, 7 * N, &b);
    CHECK(same(&a, &b));
    CHECK_EQ(input_valid(&input, 7 * N, N), input_valid(&input, 0, N));
    input_close(&input);
}

/* No padding: everything counts. Much padding: at least one token of a sample does. */
static void test_padding(void)
{
    struct input input;
    open_input(&input, "synthetic", 0, 0);
    CHECK_EQ(input_valid(&input, 0, 1000), 1000 * S);
    input_close(&input);
    open_input(&input, "synthetic", 1 - 0x1p-53, 0);
    int64_t least = S, most = 0, sum = 0, n = 20000;
    for (int64_t i = 0; i < n; i++) {
        int64_t valid = input_valid(&input, i, 1);
        least = valid < least ? valid : least;
        most = valid > most ? valid : most;
        sum += valid;
    }
    CHECK_EQ(least, 1);
    CHECK_EQ(most, S);
    CHECK_NEAR((double)sum / (double)n, (S + 1) / 2.0, 0.4); /* five standard errors */
    input_close(&input);
}

/* Each token is followed by at most four, with shares near 8, 4, 2, 2 of 16; and the conditional
 * entropy of what follows is what input_entropy() says. */
static void test_chain(void)
{
    enum { SMALL = 16, LONG = 400000 };
    struct input input;
    static int32_t tokens[LONG], targets[LONG];
    static uint8_t mask[LONG];
    static double follows[SMALL][SMALL];
    CHECK_EQ(input_open(&input, "synthetic", 11, SMALL, LONG, 0, 0), 0);
    input_fill(&input, 0, 1, tokens, targets, mask);
    long torn = 0;
    for (int i = 0; i < LONG; i++) {
        torn += i > 0 && tokens[i] != targets[i - 1];
        follows[tokens[i]][targets[i]]++;
    }
    CHECK_EQ(torn, 0);
    double entropy = 0, expected = 0;
    uint64_t key = rng_key(11, "input.next");
    for (uint64_t t = 0; t < SMALL; t++) {
        double share[SMALL] = {0}, count = 0;
        for (uint64_t k = 0; k < 4; k++)
            share[successor(key, t, k, SMALL)] += weight[k] / 16;
        for (int u = 0; u < SMALL; u++)
            count += follows[t][u];
        for (int u = 0; u < SMALL; u++) {
            CHECK((follows[t][u] > 0) <= (share[u] > 0));
            CHECK_NEAR(follows[t][u], count * share[u], 5 * sqrt(count * share[u]) + 1e-9);
            if (follows[t][u] > 0) {
                entropy -= follows[t][u] / LONG * log(follows[t][u] / count);
                expected -= count / LONG * share[u] * log(share[u]);
            }
        }
    }
    CHECK_NEAR(entropy, expected, 0.01);
    CHECK_NEAR(input_entropy(), 1.75 * log(2.0), 1e-15);
    CHECK(entropy <= input_entropy() + 0.01);
    input_close(&input);
}

/* The four successors of a token differ in any vocabulary, so the entropy is exactly the one claimed. */
static void test_successors_differ(void)
{
    static const uint32_t sizes[] = {4, 5, 7, 256, 509, 50257};
    uint64_t key = rng_key(1, "input.next");
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (uint64_t t = 0; t < sizes[i]; t++) {
            uint32_t a = successor(key, t, 0, sizes[i]), b = successor(key, t, 1, sizes[i]);
            uint32_t c = successor(key, t, 2, sizes[i]), d = successor(key, t, 3, sizes[i]);
            CHECK(a != b && a != c && a != d && b != c && b != d && c != d);
        }
}

static void test_op(void)
{
    static struct batch want, got;
    struct input input;
    open_input(&input, "synthetic", 0.4, 0);
    fill(&input, 107, &want);
    memset(&got, 0x5a, sizeof got);
    struct kernel_context context = {.input = &input, .first_sample = 100};
    context.base[BUFFER_BATCH] = (unsigned char *)&got;
    struct op op = {
        .kind = OP_INPUT,
        .t = {{BUFFER_BATCH, 0},
              {BUFFER_BATCH, offsetof(struct batch, targets)},
              {BUFFER_BATCH, offsetof(struct batch, mask)}},
        .shape.input = {.first = 7, .samples = N, .sequence = S},
    };
    kernels_cpu.run[OP_INPUT](&op, &context, NULL);
    CHECK(same(&want, &got));
    input_close(&input);
}

static void refused(const char *kind, int64_t vocabulary, int64_t sequence, double padding,
                    const char *words)
{
    struct input input;
    fail_clear();
    CHECK_EQ(input_open(&input, kind, 1, vocabulary, sequence, padding, 1), FAIL_USAGE);
    CHECK_HAS(fail_message(), words);
    input_close(&input);
}

static void test_refusals(void)
{
    refused("tape", V, S, 0, "\"tape\"");
    refused("synthetic", V, S, 1, "padding of 1 ");
    refused("synthetic", V, S, -0.1, "padding of -0.1 ");
    refused("memory", V, S, (double)NAN, "padding of nan ");
    refused("memory", 0, S, 0, "vocabulary 0 ");
    refused("memory", V, 0, 0, "sequence 0 ");
    refused("synthetic", (int64_t)1 << 31, S, 0, "vocabulary 2147483648 ");
    fail_clear();
    struct input zeroed = {0};
    input_close(&zeroed);
}

int main(void)
{
    test_definition();
    test_cuts();
    test_memory();
    test_repeat();
    test_padding();
    test_chain();
    test_successors_differ();
    test_op();
    test_refusals();
    return test_end();
}
