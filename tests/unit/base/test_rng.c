/* Random values are the published function of (key, index), bit for bit, whatever the order in which
 * they are asked for, and have the moments that are claimed. */
#include "base/rng.h"

#include "tests/test.h"

/* Computed by an independent implementation of the definition in rng.h (arbitrary-precision
 * integers). The first two are also the published outputs of splitmix64 from seed 0. */
static void test_golden(void)
{
    CHECK(rng_bits(0, 0) == 0xe220a8397b1dcdaf);
    CHECK(rng_bits(0, 1) == 0x6e789e6aa1b965f4);
    CHECK(rng_bits(1, 0) == 0x910a2dec89025cc1);
    CHECK(rng_bits(UINT64_MAX, UINT64_MAX) == 0xb4d055fcf2cbbd7b);
    CHECK(rng_bits(1234567, 0) == 0x599ed017fb08fc85);
    CHECK(rng_bits(1234567, 1) == 0x2c73f08458540fa5);

    CHECK(rng_key(1, "") == 0x5c9a92469e6c1853);
    CHECK(rng_key(1, "wte") == 0x0877aa65d6fe4847);
    CHECK(rng_key(1, "etw") == 0xe4982f1f8467341d);
    CHECK(rng_key(2, "wte") == 0xd24300ae0ab60842);
    CHECK(rng_key(1, "h.0.attn.weight") == 0xfac573681e849229);
    CHECK(rng_key(1, "\xc3\xa9") == 0x238529d1695f7dcc); /* bytes are unsigned */

    uint64_t key = rng_key(1, "wte");
    CHECK(rng_normal(key, 0) == -0x1.0bca0p-1f);
    CHECK(rng_normal(key, 1) == 0x1.7e3b0p+0f);
    CHECK(rng_normal(key, 2) == 0x1.557f0p+0f);
    CHECK(rng_normal(key, 1000000) == 0x1.d2860p+0f);
    CHECK_EQ(rng_below(key, 0, 50257), 30103);
    CHECK_EQ(rng_below(key, 1000000, 50257), 27324);
    CHECK(rng_uniform(key, 1) == 0x1.1e491511df700p-9);
    CHECK(rng_uniform(key, 2) == 0x1.06b8c456f85dcp-2);
    CHECK(rng_sign(key, 0) == -1.0f && rng_sign(key, 1) == 1.0f);
}

static void test_layout_independence(void)
{
    enum { COUNT = 1000 };
    static float whole[COUNT], pieces[COUNT];
    uint64_t key = rng_key(7, "layer");
    rng_fill_normal(whole, COUNT, key, 500, 0.02f);
    for (int first = COUNT, size = 1; first > 0; size = size * 2 + 1) { /* backwards, odd sizes */
        int n = size < first ? size : first;
        first -= n;
        rng_fill_normal(pieces + first, n, key, (uint64_t)(500 + first), 0.02f);
    }
    CHECK(memcmp(whole, pieces, sizeof whole) == 0);
    CHECK(whole[3] == 0.02f * rng_normal(key, 503));
    rng_fill_normal(pieces, 0, key, 0, 1.0f);
    CHECK(pieces[0] == whole[0]);
}

/* n draws of a law have a sample mean within 5 standard errors, every time: the seed is fixed. */
static void test_normal_moments(void)
{
    enum { COUNT = 400000 };
    double sum[5] = {0}, largest = 0;
    uint64_t key = rng_key(3, "moments");
    for (uint64_t i = 0; i < COUNT; i++) {
        double z = (double)rng_normal(key, i), power = 1;
        largest = fabs(z) > largest ? fabs(z) : largest;
        for (int p = 1; p <= 4; p++)
            sum[p] += power *= z;
    }
    double error = 1 / sqrt((double)COUNT);
    CHECK_NEAR(sum[1] / COUNT, 0, 5 * error);
    CHECK_NEAR(sum[2] / COUNT, 1, 5 * error * sqrt(2));
    CHECK_NEAR(sum[3] / COUNT, 0, 5 * error * sqrt(15));
    CHECK_NEAR(sum[4] / COUNT, 2.9, 5 * error * sqrt(96)); /* Irwin-Hall of 12: 3 - 0.1 */
    CHECK(largest > 4 && largest <= 6);
}

/* Every bit of an index, a key, a seed and a name moves half of the output bits. */
static void test_avalanche(void)
{
    static const char *const names[] = {"h.0.mlp", "h.1.mlp", "h.0.mlq", "h.0.ml", "mlp.h.0"};
    long flipped = 0, total = 0;
    for (uint64_t i = 0; i < 200; i++)
        for (int bit = 0; bit < 64; bit++) {
            uint64_t x = rng_bits(i, 12345) ^ rng_bits(i ^ UINT64_C(1) << bit, 12345);
            uint64_t y = rng_bits(99, i) ^ rng_bits(99, i ^ UINT64_C(1) << bit);
            for (int b = 0; b < 64; b++)
                flipped += (long)(x >> b & 1) + (long)(y >> b & 1);
            total += 128;
        }
    CHECK_NEAR((double)flipped / (double)total, 0.5, 0.002);
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < i; j++)
            CHECK(rng_key(1, names[i]) != rng_key(1, names[j]));
    CHECK(rng_key(1, "x") != rng_key(2, "x"));
}

static void test_integers(void)
{
    enum { COUNT = 100000, SIDES = 7 };
    long seen[SIDES] = {0}, heads = 0;
    double sum = 0;
    for (uint64_t i = 0; i < COUNT; i++) {
        uint32_t value = rng_below(11, i, SIDES);
        CHECK(value < SIDES);
        seen[value % SIDES]++;
        heads += rng_sign(12, i) > 0;
        sum += rng_uniform(13, i);
    }
    for (int i = 0; i < SIDES; i++)
        CHECK_NEAR(seen[i], COUNT / (double)SIDES, 5 * sqrt(COUNT / (double)SIDES));
    CHECK_NEAR(heads, COUNT / 2.0, 5 * sqrt(COUNT) / 2);
    CHECK_NEAR(sum / COUNT, 0.5, 5 / sqrt(12.0 * COUNT));
    CHECK_EQ(rng_below(1, 2, 1), 0);
    uint32_t high = 0;
    for (uint64_t i = 0; i < 100; i++)
        high = rng_below(1, i, UINT32_MAX) > high ? rng_below(1, i, UINT32_MAX) : high;
    CHECK(high > UINT32_MAX / 10 * 9);
}

int main(void)
{
    test_golden();
    test_layout_independence();
    test_normal_moments();
    test_avalanche();
    test_integers();
    return test_end();
}
