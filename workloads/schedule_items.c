#include <stddef.h>
#include <stdlib.h>

#include "base/err.h"
#include "workloads/schedule.h"

/* ---- who needs whom ---- */

struct place {
    int stage;
    struct schedule_slot slot;
};

/* The slot that a slot's input comes from, or its output goes to, on another stage. */
static bool neighbour(const struct schedule *s, const struct place *at, bool before,
                      struct place *out)
{
    bool forward = at->slot.part == PART_FORWARD;
    int parts = s->stages * s->chunks, part = at->slot.chunk * s->stages + at->stage;
    int other = forward != before ? part + 1 : part - 1;
    if (at->slot.part == PART_WEIGHTS || other < 0 || other >= parts || s->stages == 1)
        return false;
    *out = (struct place){other % s->stages, {at->slot.part, at->slot.micro, other / s->stages}};
    return true;
}

/* ---- play ---- */

struct play {
    const struct schedule *schedule;
    int slots;
    struct schedule_slot *list; /* [stages][slots] */
    int *at;                    /* [stages] next slot */
    int *index; /* [stages][parts][micro_batches * chunks] where it is in the list */
    const double *begin, *seconds;
    struct schedule_transfer transfer;
    double *finish; /* [stages][slots], < 0: not yet */
};

static int *index_of(const struct play *p, int stage, const struct schedule_slot *slot)
{
    const struct schedule *s = p->schedule;
    int64_t each = (int64_t)s->micro_batches * s->chunks;
    return &p->index[((int64_t)stage * SCHEDULE_PARTS + (int64_t)slot->part) * each +
                     (int64_t)slot->micro * s->chunks + slot->chunk];
}

static void play_open(struct play *p, const struct schedule *s, const double *seconds,
                      double *finish)
{
    int slots = schedule_slots(s);
    size_t all = (size_t)s->stages * (size_t)slots;
    *p = (struct play){.schedule = s, .slots = slots, .seconds = seconds, .finish = finish};
    p->list = must_alloc(all, sizeof *p->list);
    p->at = must_alloc((size_t)s->stages, sizeof *p->at);
    p->index = must_alloc((size_t)s->stages * SCHEDULE_PARTS * (size_t)s->micro_batches *
                              (size_t)s->chunks,
                          sizeof *p->index);
    for (int stage = 0; stage < s->stages; stage++) {
        struct schedule_slot *list = p->list + (ptrdiff_t)stage * slots;
        schedule_list(s, stage, list);
        for (int i = 0; i < slots; i++) {
            *index_of(p, stage, &list[i]) = i;
            finish[(ptrdiff_t)stage * slots + i] = -1;
        }
    }
}

static void play_close(struct play *p)
{
    free(p->list);
    free(p->at);
    free(p->index);
}

static double takes(const struct play *p, int stage, int i)
{
    int part = (int)p->list[(ptrdiff_t)stage * p->slots + i].part;
    if (p->seconds != NULL)
        return p->seconds[(ptrdiff_t)stage * p->slots + i];
    return part == PART_BACKWARD && p->schedule->kind != SCHEDULE_ZB_H1 ? 2 : 1;
}

static double finish_of(const struct play *p, const struct place *at)
{
    return p->finish[(ptrdiff_t)at->stage * p->slots + *index_of(p, at->stage, &at->slot)];
}

/* When a stage may compute again behind slot i. */
static double free_after(const struct play *p, int stage, int i)
{
    struct place here = {stage, p->list[(ptrdiff_t)stage * p->slots + i]}, to;
    bool held = p->transfer.blocks && neighbour(p->schedule, &here, false, &to);
    return p->finish[(ptrdiff_t)stage * p->slots + i] + (held ? p->transfer.seconds : 0);
}

/* As far as a stage comes; did it move? */
static bool advance(struct play *p, int stage)
{
    bool moved = false;
    for (; p->at[stage] < p->slots; p->at[stage]++, moved = true) {
        int i = p->at[stage];
        double *finish = p->finish + (ptrdiff_t)stage * p->slots, begin = 0;
        struct place here = {stage, p->list[(ptrdiff_t)stage * p->slots + i]}, from;
        if (i > 0)
            begin = free_after(p, stage, i - 1);
        else if (p->begin != NULL)
            begin = p->begin[stage];
        if (neighbour(p->schedule, &here, true, &from)) {
            double ready = finish_of(p, &from);
            if (ready < 0)
                return moved;
            ready += p->transfer.seconds;
            begin = ready > begin ? ready : begin;
        }
        finish[i] = begin + takes(p, stage, i);
    }
    return moved;
}

static double play(struct play *p)
{
    double end = 0;
    for (bool moved = true; moved;) {
        moved = false;
        for (int stage = 0; stage < p->schedule->stages; stage++)
            moved = advance(p, stage) || moved;
    }
    for (int stage = 0; stage < p->schedule->stages; stage++) {
        double last = p->finish[(ptrdiff_t)(stage + 1) * p->slots - 1];
        if (last < 0)
            BUG("schedule %s of %d stages stands still", schedule_name((int)p->schedule->kind),
                p->schedule->stages);
        end = last > end ? last : end;
    }
    return end;
}

double schedule_play(const struct schedule *s, const double *begin, const double *seconds,
                     struct schedule_transfer transfer, double *finish)
{
    struct play p;
    play_open(&p, s, seconds, finish);
    p.begin = begin;
    p.transfer = transfer;
    double end = play(&p);
    play_close(&p);
    return end;
}

/* ---- transfers ---- */

struct transfer {
    double when;
    int direction, from; /* the stage that makes it */
    struct schedule_item item;
};

/* The order that all stages share. */
static int earlier(const void *a, const void *b)
{
    const struct transfer *x = a, *y = b;
    if (x->when != y->when)
        return x->when < y->when ? -1 : 1;
    if (x->direction != y->direction)
        return x->direction - y->direction;
    return x->direction == SCHEDULE_DOWN ? y->from - x->from : x->from - y->from;
}

/* The transfers of a stage, sorted; returns how many. */
static int list_transfers(const struct play *p, int stage, struct transfer *out)
{
    int n = 0;
    for (int i = 0; i < p->slots; i++) {
        struct place here = {stage, p->list[(ptrdiff_t)stage * p->slots + i]}, other;
        int direction = here.slot.part == PART_FORWARD ? SCHEDULE_DOWN : SCHEDULE_UP;
        if (neighbour(p->schedule, &here, true, &other))
            out[n++] = (struct transfer){finish_of(p, &other),
                                         direction,
                                         other.stage,
                                         {ACT_RECEIVE, here.slot, direction, other.stage, false}};
        if (neighbour(p->schedule, &here, false, &other))
            out[n++] = (struct transfer){finish_of(p, &here),
                                         direction,
                                         stage,
                                         {ACT_SEND, here.slot, direction, other.stage, false}};
    }
    qsort(out, (size_t)n, sizeof *out, earlier);
    return n;
}

static bool same_slot(const struct schedule_slot *a, const struct schedule_slot *b)
{
    return a->part == b->part && a->micro == b->micro && a->chunk == b->chunk;
}

/*
 * Receives that come next, up to the first send, which has to be computed before. Behind a send
 * (direction >= 0) the first of its direction goes ahead, to be one post with it; in a chain of stages
 * that hangs nothing, in a ring it might.
 */
static int give_receives(const struct transfer *list, int n, int *at, int direction,
                         struct schedule_item *out)
{
    int first = *at, end = *at, given = 0;
    while (end < n && list[end].item.act == ACT_RECEIVE)
        end++;
    while (first < end && list[first].item.direction != direction)
        first++;
    if (first < end)
        out[given++] = list[first].item;
    for (; *at < end; (*at)++)
        if (*at != first)
            out[given++] = list[*at].item;
    return given;
}

/*
 * A post of two has ended when both have. Memory that was sent may be wanted by the next slot of that
 * part, so a receive is one post with the send only where that slot cannot begin without it either.
 */
static bool is_one_post(const struct play *p, int stage, const struct schedule_item *send,
                        const struct schedule_item *receive)
{
    const struct schedule_slot *list = p->list + (ptrdiff_t)stage * p->slots;
    int i = *index_of(p, stage, &send->slot) + 1;
    if (send->act != ACT_SEND || receive->act != ACT_RECEIVE ||
        send->direction != receive->direction)
        return false;
    while (i < p->slots && list[i].part != send->slot.part)
        i++;
    return i < p->slots && same_slot(&list[i], &receive->slot);
}

struct schedule_item *schedule_items(const struct schedule *s, int stage, int *n)
{
    int slots = schedule_slots(s), at = 0;
    double *finish = must_alloc((size_t)s->stages * (size_t)slots, sizeof *finish);
    struct schedule_item *out = must_alloc(3 * (size_t)slots, sizeof *out);
    struct transfer *list = must_alloc(2 * (size_t)slots, sizeof *list);
    struct play p;
    play_open(&p, s, NULL, finish);
    play(&p);
    int n_transfers = list_transfers(&p, stage, list);
    *n = give_receives(list, n_transfers, &at, -1, out);
    for (int i = 0; i < slots; i++) {
        struct schedule_slot slot = p.list[(ptrdiff_t)stage * slots + i];
        out[(*n)++] = (struct schedule_item){.act = ACT_COMPUTE, .slot = slot};
        if (at < n_transfers && same_slot(&list[at].item.slot, &slot)) {
            int direction = s->chunks == 1 ? list[at].item.direction : -1;
            out[(*n)++] = list[at++].item;
            *n += give_receives(list, n_transfers, &at, direction, out + *n);
        }
    }
    for (int i = 0; i + 1 < *n; i++)
        out[i].with_next = is_one_post(&p, stage, &out[i], &out[i + 1]);
    play_close(&p);
    free(finish);
    free(list);
    return out;
}
