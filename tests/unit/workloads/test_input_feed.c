/* A feed hands out the samples that would have been made without it, in whatever order blocks come,
 * for any number of workers; its memory is what it says; its meter counts what was paid. */
#include <stdlib.h>

#include "base/err.h"
#include "base/units.h"
#include "tests/test.h"
#include "workloads/input_feed.h"

enum { V = 300, S = 24, SAMPLES = 3, MICRO = 2, BATCH = 12, MOST_STEPS = 8, N = SAMPLES * S };

struct rig {
    struct input input, plain; /* the second without a feed */
    struct plan plan;
    struct op ops[MICRO + 1];
};

static void rig_open(struct rig *rig, const char *kind, int workers, int prefetch)
{
    memset(rig, 0, sizeof *rig);
    rig->ops[0].kind = OP_ZERO;
    for (int m = 0; m < MICRO; m++) /* the second of two replicas */
        rig->ops[m + 1] = (struct op){
            .kind = OP_INPUT,
            .shape.input = {.first = (MICRO + m) * SAMPLES, .samples = SAMPLES, .sequence = S}};
    rig->plan.ops = rig->ops;
    rig->plan.n_ops = MICRO + 1;
    rig->plan.global_batch = BATCH;
    CHECK_EQ(input_open(&rig->input, kind, 3, V, S, 0.5, 40), 0);
    CHECK_EQ(input_open(&rig->plain, kind, 3, V, S, 0.5, 40), 0);
    CHECK_EQ(input_feed_open(&rig->input, &rig->plan, workers, prefetch, MOST_STEPS), 0);
    CHECK(rig->input.feed != NULL);
    CHECK_EQ(input_feed_has_workers(rig->input.feed), workers > 0);
    CHECK_EQ(input_feed_bytes(rig->input.feed),
             workers > 0 ? (int64_t)INPUT_LANES * prefetch * N * 9 : 0);
}

static void rig_close(struct rig *rig)
{
    input_close(&rig->input);
    input_close(&rig->plain);
}

/* One batch through the feed and one without it: are they the same? */
static bool same_batch(struct rig *rig, int64_t first)
{
    int32_t tokens[2][N], targets[2][N];
    uint8_t mask[2][N];
    const struct input *inputs[2] = {&rig->input, &rig->plain};
    memset(tokens, 1, sizeof tokens);
    memset(targets, 2, sizeof targets);
    memset(mask, 3, sizeof mask);
    for (int i = 0; i < 2; i++)
        input_fill(inputs[i], first, SAMPLES, tokens[i], targets[i], mask[i]);
    return memcmp(tokens[0], tokens[1], sizeof tokens[0]) == 0 &&
           memcmp(targets[0], targets[1], sizeof targets[0]) == 0 &&
           memcmp(mask[0], mask[1], sizeof mask[0]) == 0;
}

/* A block as the executor runs it; returns the batches that were wrong. */
static int block(struct rig *rig, enum input_lane lane, int64_t first, int64_t stride, int n_steps)
{
    int wrong = 0;
    input_feed_begin(rig->input.feed, lane, first, stride, n_steps);
    for (int step = 0; step < n_steps; step++)
        for (int m = 0; m < MICRO; m++)
            wrong += !same_batch(rig, first + step * stride + rig->ops[m + 1].shape.input.first);
    input_feed_end(rig->input.feed);
    return wrong;
}

static void test_any_order(const char *kind)
{
    static const struct {
        int workers, prefetch;
    } cases[] = {{0, 4}, {1, 1}, {1, 4}, {2, 3}, {3, 16}, {4, 2}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct rig rig;
        int64_t train = 0, aside = INPUT_ASIDE_FIRST;
        rig_open(&rig, kind, cases[c].workers, cases[c].prefetch);
        for (int round = 0; round < 4; round++) {
            CHECK_EQ(block(&rig, INPUT_TRAIN, train, BATCH, 5), 0);
            train += 5 * BATCH;
            CHECK_EQ(block(&rig, INPUT_ASIDE, aside, BATCH, 3), 0);
            aside += 3 * BATCH;
            CHECK_EQ(block(&rig, INPUT_TRAIN, train, 0, 2), 0); /* the same batch twice */
        }
        CHECK_EQ(block(&rig, INPUT_TRAIN, 0, BATCH, 1), 0); /* a reset */
        rig.input.repeat = rig.plain.repeat = BATCH;        /* the repeated batch of a check */
        CHECK_EQ(block(&rig, INPUT_TRAIN, BATCH, BATCH, 4), 0);
        rig.input.repeat = rig.plain.repeat = 0;
        CHECK_EQ(block(&rig, INPUT_TRAIN, 5 * BATCH, BATCH, MOST_STEPS), 0);
        rig_close(&rig);
    }
}

/* An op that is left out, and one that nobody announced: still the right samples. */
static void test_out_of_order(void)
{
    struct rig rig;
    rig_open(&rig, "memory", 2, 4);
    input_feed_begin(rig.input.feed, INPUT_TRAIN, 0, BATCH, 2);
    CHECK(same_batch(&rig, rig.ops[2].shape.input.first));
    CHECK(same_batch(&rig, 1000));
    CHECK(same_batch(&rig, rig.ops[1].shape.input.first));
    input_feed_end(rig.input.feed);
    CHECK(same_batch(&rig, 6)); /* outside a block */
    CHECK_EQ(block(&rig, INPUT_TRAIN, 2 * BATCH, BATCH, 3), 0);
    rig_close(&rig);
}

static void test_meter(void)
{
    struct rig rig;
    rig_open(&rig, "synthetic", 0, 4);
    CHECK_EQ(block(&rig, INPUT_TRAIN, 0, BATCH, 3), 0);
    for (int step = 0; step < 3; step++) {
        const struct input_step *s = &input_feed_steps(rig.input.feed)[step];
        CHECK_EQ(s->batches, MICRO);
        CHECK_EQ(s->waits, MICRO);
        CHECK_EQ(s->depth, 0);
        CHECK(s->wait_ns > 0 && s->wait_ns <= s->input_ns && s->cpu_ns > 0);
        CHECK(s->worker_cpu_ns == 0 && s->read_bytes == 0);
    }
    rig_close(&rig);

    rig_open(&rig, "synthetic", 2, 4); /* a step so slow that the ring is full before each */
    input_feed_begin(rig.input.feed, INPUT_TRAIN, 0, BATCH, 4);
    for (int step = 0; step < 4; step++) {
        units_sleep_ns(30000000);
        for (int m = 0; m < MICRO; m++)
            CHECK(same_batch(&rig, step * BATCH + rig.ops[m + 1].shape.input.first));
    }
    input_feed_end(rig.input.feed);
    const struct input_step *s = input_feed_steps(rig.input.feed);
    CHECK(s[2].depth >= 1 && s[2].depth <= 4 && s[2].worker_cpu_ns > 0 && s[2].batches == MICRO);
    CHECK(s[1].waits + s[2].waits + s[3].waits <= 3); /* none, unless the machine was busy */
    rig_close(&rig);
}

/* What workers made ahead is not lost between blocks: a block goes on where its kind stopped. */
static void test_goes_on(void)
{
    struct rig rig;
    rig_open(&rig, "synthetic", 1, 6);
    bool kept = false; /* where the machine is busy the ring may not be full each time */
    for (int k = 0; k < 50 && !kept; k++) {
        int64_t first = (int64_t)2 * k * BATCH, aside = INPUT_ASIDE_FIRST + (int64_t)3 * k * BATCH;
        input_feed_begin(rig.input.feed, INPUT_TRAIN, first, BATCH, 1);
        for (int m = 0; m < MICRO; m++)
            CHECK(same_batch(&rig, first + rig.ops[m + 1].shape.input.first));
        units_sleep_ns(100000000);
        input_feed_end(rig.input.feed);
        CHECK_EQ(block(&rig, INPUT_ASIDE, aside, BATCH, 3), 0);
        CHECK_EQ(block(&rig, INPUT_TRAIN, first + BATCH, BATCH, 1), 0);
        const struct input_step *s = input_feed_steps(rig.input.feed);
        kept = s[0].waits == 0 && s[0].depth >= 3;
    }
    CHECK(kept);
    int empty = 0;
    for (int jump = 1; jump <= 60 && empty == 0; jump++) {
        input_feed_begin(rig.input.feed, INPUT_TRAIN, (40 * jump - 1) * BATCH, BATCH, 1);
        for (int m = 0; m < MICRO; m++)
            CHECK(same_batch(&rig, (40 * jump - 1) * BATCH + rig.ops[m + 1].shape.input.first));
        units_sleep_ns(30000000); /* the ring is full again */
        input_feed_end(rig.input.feed);
        CHECK_EQ(block(&rig, INPUT_TRAIN, (40 * jump + 9) * BATCH, BATCH, 1), 0);
        empty += input_feed_steps(rig.input.feed)[0].depth == 0;
    }
    CHECK(empty >
          0); /* a jump begins empty, unless this thread was held up meanwhile: not each time */
    rig_close(&rig);
}

/* A plan whose rank takes no samples needs no feed. */
static void test_no_batches(void)
{
    struct input input;
    struct op zero = {.kind = OP_ZERO};
    struct plan plan = {.ops = &zero, .n_ops = 1};
    CHECK_EQ(input_open(&input, "synthetic", 1, V, S, 0, 0), 0);
    CHECK_EQ(input_feed_open(&input, &plan, 2, 4, 1), 0);
    CHECK(input.feed == NULL);
    input_close(&input);
}

int main(void)
{
    test_any_order("synthetic");
    test_any_order("memory");
    test_any_order("file:" TEST_SOURCE_DIR "/test.h");
    test_out_of_order();
    test_meter();
    test_goes_on();
    test_no_batches();
    return test_end();
}
