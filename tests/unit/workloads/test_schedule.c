/*
 * Schedules: every slot once and in an order that can be computed; idle time and kept slots as the
 * closed forms say; transfers meet when made one at a time; layers are shared out; what cannot be is
 * refused with the nearest that can.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "tests/test.h"
#include "workloads/schedule.h"

enum { MOST = 4096 };

static double finish[MOST * 16];

static void each_slot_once(const struct schedule *s)
{
    static struct schedule_slot list[MOST];
    static char seen[SCHEDULE_PARTS][MOST];
    int n = schedule_slots(s);
    for (int stage = 0; stage < s->stages; stage++) {
        int kept = 0, most = 0, warm = 0;
        bool weights = s->kind == SCHEDULE_ZB_H1, backward = false;
        memset(seen, 0, sizeof seen);
        schedule_list(s, stage, list);
        for (int i = 0; i < n; i++) {
            int at = list[i].micro * s->chunks + list[i].chunk;
            CHECK(list[i].micro < s->micro_batches && list[i].chunk < s->chunks);
            CHECK(!seen[list[i].part][at]);
            seen[list[i].part][at] = 1;
            if (list[i].part > PART_FORWARD)
                CHECK(seen[list[i].part - 1][at]);
            backward = backward || list[i].part == PART_BACKWARD;
            warm += !backward;
            kept += list[i].part == PART_FORWARD;
            most = kept > most ? kept : most;
            kept -= list[i].part == (weights ? PART_WEIGHTS : PART_BACKWARD);
        }
        CHECK_EQ(kept, 0);
        CHECK_EQ(most, schedule_in_flight(s, stage));
        /* the forward of the first pair stands before the first backward, but not where all do */
        int pair = schedule_warm_up(s, stage) < s->micro_batches * s->chunks;
        CHECK_EQ(warm, schedule_warm_up(s, stage) + pair);
    }
}

/* Equal stages: the makespan is that of the closed form. */
static void bubble_as_said(const struct schedule *s)
{
    double work = 3.0 * s->micro_batches * s->chunks;
    double end = schedule_play(s, NULL, NULL, (struct schedule_transfer){0}, finish);
    const double equal[] = {1, 1, 1};
    CHECK_NEAR((end - work) / work, schedule_bubble(s, equal), 1e-12);
}

struct head {
    struct schedule_item *items;
    int n, at;
};

static bool meets(const struct schedule_item *a, const struct schedule_item *b, int stages)
{
    bool same = a->slot.part == b->slot.part && a->slot.micro == b->slot.micro &&
                a->direction == b->direction;
    const struct schedule_item *send = a->act == ACT_SEND ? a : b, *receive = send == a ? b : a;
    int step = receive->slot.chunk - send->slot.chunk, wraps = send->peer == 0 ? 1 : 0;
    if (send->direction == SCHEDULE_UP)
        wraps = send->peer == stages - 1 ? -1 : 0;
    return same && send->act == ACT_SEND && receive->act == ACT_RECEIVE &&
           (stages == 2 ? abs(step) <= 1 : step == wraps);
}

/* One transfer at a time on every stage, in its order; computing takes no part in waiting. */
static void transfers_meet(const struct schedule *s)
{
    struct head *head = calloc((size_t)s->stages, sizeof *head);
    int64_t made = 0;
    for (int stage = 0; stage < s->stages; stage++)
        head[stage].items = schedule_items(s, stage, &head[stage].n);
    for (bool moved = true; moved;) {
        moved = false;
        for (int stage = 0; stage < s->stages; stage++) {
            struct head *h = &head[stage];
            while (h->at < h->n && h->items[h->at].act == ACT_COMPUTE)
                h->at++, moved = true;
            if (h->at == h->n)
                continue;
            struct head *other = &head[h->items[h->at].peer];
            while (other->at < other->n && other->items[other->at].act == ACT_COMPUTE)
                other->at++;
            if (other->at < other->n && other->items[other->at].peer == stage &&
                meets(&h->items[h->at], &other->items[other->at], s->stages))
                h->at++, other->at++, made++, moved = true;
        }
    }
    for (int stage = 0; stage < s->stages; stage++) {
        CHECK_EQ(head[stage].at, head[stage].n);
        free(head[stage].items);
    }
    CHECK_EQ(made, 2LL * s->micro_batches * (s->stages * s->chunks - 1));
    free(head);
}

/* Where the first slot of that part behind item i stands. */
static int next_of_part(const struct schedule_item *items, int n, int i)
{
    enum schedule_part part = items[i].slot.part;
    while (++i < n && (items[i].act != ACT_COMPUTE || items[i].slot.part != part))
        continue;
    return i;
}

/* A receive stands before its slot, a send behind; a post of two is a send and then a receive, and ends
 * as one: so that memory that was sent is free no later than the slot can begin that may want it. */
static void transfers_in_place(const struct schedule *s)
{
    for (int stage = 0; stage < s->stages; stage++) {
        int n, posts = 0;
        struct schedule_item *items = schedule_items(s, stage, &n);
        for (int i = 0; i < n; i++) {
            int slot = -1;
            for (int j = 0; j < n; j++)
                if (items[j].act == ACT_COMPUTE &&
                    memcmp(&items[j].slot, &items[i].slot, sizeof items[i].slot) == 0)
                    slot = j;
            CHECK(items[i].act == ACT_COMPUTE ? slot == i
                                              : (slot < i) == (items[i].act == ACT_SEND));
            if (items[i].with_next) {
                posts++;
                CHECK(items[i].act == ACT_SEND && items[i + 1].act == ACT_RECEIVE);
                CHECK(items[i].direction == items[i + 1].direction);
                int next = next_of_part(items, n, i);
                CHECK(next < n &&
                      memcmp(&items[next].slot, &items[i + 1].slot, sizeof items[next].slot) == 0);
            }
        }
        bool middle = stage > 0 && stage < s->stages - 1;
        if (middle && s->kind == SCHEDULE_1F1B)
            CHECK(posts >= s->micro_batches); /* most of the 2 (m - 1) */
        free(items);
    }
}

static void all_schedules(void)
{
    for (int p = 1; p <= 8; p++)
        for (int m = p; m <= 3 * p; m++)
            for (int kind = SCHEDULE_GPIPE; kind <= SCHEDULE_ZB_H1; kind++)
                for (int v = 1; v <= (kind == SCHEDULE_INTERLEAVED ? 3 : 1); v++) {
                    struct schedule s = {(enum schedule_kind)kind, p, m, v};
                    if (schedule_check(&s, 6 * p) != 0) {
                        fail_clear();
                        continue;
                    }
                    each_slot_once(&s);
                    bubble_as_said(&s);
                    if (p > 1 && m <= 2 * p) {
                        transfers_meet(&s);
                        transfers_in_place(&s);
                    }
                }
}

static void layers_are_shared_out(void)
{
    for (int p = 1; p <= 9; p++)
        for (int64_t layers = p; layers < 40; layers++) {
            struct schedule s = {SCHEDULE_1F1B, p, p, 1};
            int64_t first, end, before = 0, last = 0;
            for (int stage = 0; stage < p; stage++) {
                schedule_layers(&s, layers, stage, 0, &first, &end);
                CHECK_EQ(first, before);
                CHECK(end - first == layers / p || end - first == layers / p + 1);
                before = end;
                last = end - first;
            }
            CHECK_EQ(before, layers);
            CHECK_EQ(last, layers / p);
        }
    struct schedule s = {SCHEDULE_INTERLEAVED, 2, 4, 3};
    int64_t first, end;
    schedule_layers(&s, 12, 1, 2, &first, &end);
    CHECK(first == 10 && end == 12);
    struct schedule three = {SCHEDULE_1F1B, 3, 4, 1};
    schedule_layers(&three, 13, 1, 0, &first, &end); /* 4, 5, 4 */
    CHECK(first == 4 && end == 9);
    schedule_layers(&three, 14, 0, 0, &first, &end); /* 5, 5, 4 */
    CHECK(first == 0 && end == 5);
}

static void refuses(int kind, int p, int m, int v, int64_t layers, const char *sentence)
{
    struct schedule s = {(enum schedule_kind)kind, p, m, v};
    CHECK_EQ(schedule_check(&s, layers), FAIL_USAGE);
    CHECK_HAS(fail_message(), sentence);
    fail_clear();
}

static void names(void)
{
    static const char *const expected[] = {"?", "gpipe", "1f1b", "interleaved", "zb-h1", "?"};
    for (int kind = -1; kind <= SCHEDULE_ZB_H1 + 1; kind++)
        CHECK(strcmp(schedule_name(kind), expected[kind + 1]) == 0);
}

static void refusals(void)
{
    refuses(SCHEDULE_1F1B, 8, 8, 1, 6, "choose pp=6 or fewer");
    refuses(SCHEDULE_1F1B, 4, 3, 1, 8, "3 micro-batches a step for pp=4 stages");
    refuses(SCHEDULE_ZB_H1, 2, 4, 2, 8, "zb-h1 has one chunk a stage");
    refuses(SCHEDULE_INTERLEAVED, 2, 4, 1, 8, "is 1f1b");
    refuses(SCHEDULE_INTERLEAVED, 4, 6, 2, 8, "choose 4 or 8 of them");
    refuses(SCHEDULE_INTERLEAVED, 2, 4, 3, 16, "choose --virtual-stages 2 or 4");
    struct schedule five = {SCHEDULE_INTERLEAVED, 2, 4,
                            5}; /* for more chunks there are no layers */
    CHECK_EQ(schedule_check(&five, 8), FAIL_USAGE);
    CHECK_HAS(fail_message(), "choose --virtual-stages 4");
    CHECK(strstr(fail_message(), " or ") == NULL);
    fail_clear();
    refuses(SCHEDULE_INTERLEAVED, 3, 3, 2, 8, "whose product divides 8");
}

/* A stage that takes longer holds all up: 1f1b of stages a and b, two micro-batches. */
static void uneven_times(void)
{
    struct schedule s = {SCHEDULE_1F1B, 2, 2, 1};
    /* stage 0: F F B B of 1 1 2 2; stage 1: F B F B of 3 3 3 3 */
    const double seconds[] = {1, 1, 2, 2, 3, 3, 3, 3};
    CHECK_NEAR(schedule_play(&s, NULL, seconds, (struct schedule_transfer){0}, finish),
               1 + 4 * 3 + 2, 1e-12);
    CHECK_NEAR(finish[2], 1 + 6 + 2, 1e-12);
}

int main(void)
{
    all_schedules();
    layers_are_shared_out();
    names();
    refusals();
    uneven_times();
    return test_end();
}
