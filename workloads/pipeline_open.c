#include <stdlib.h>

#include "base/err.h"
#include "workloads/build.h"

/* ---- what a stage holds ---- */

void pipeline_layers(const struct build *b, int chunk, int *first, int *end)
{
    int64_t from, to;
    schedule_layers(&b->pipe.schedule, b->model->layers, b->pipe.me, chunk, &from, &to);
    *first = (int)from;
    *end = (int)to;
}

bool pipeline_holds(const struct build *b, int layer)
{
    for (int chunk = 0; chunk < b->pipe.schedule.chunks; chunk++) {
        int first, end;
        pipeline_layers(b, chunk, &first, &end);
        if (layer >= first && layer < end)
            return true;
    }
    return false;
}

/* ---- who has which place when ---- */

/* Places of a kind: which are taken. */
struct places {
    bool *taken;
    int n;
};

/* The first free one, or one more. */
static int take(struct places *p)
{
    int i = 0;
    while (i < p->n && p->taken[i])
        i++;
    if (i == p->n) {
        p->taken = must_grow(p->taken, (size_t)p->n + 1, sizeof *p->taken);
        p->n++;
    }
    p->taken[i] = true;
    return i;
}

struct assign {
    struct build *b;
    struct places places[PLACES];
    int leaving; /* gradients that the next slot may have, -1; not a receive that is one post with
                    the send from there */
};

static void hold(struct assign *a, enum pipeline_place place, int key)
{
    a->b->pipe.held[place][key] = take(&a->places[place]);
}

static void let_go(struct assign *a, enum pipeline_place place, int key)
{
    a->places[place].taken[a->b->pipe.held[place][key]] = false;
}

static void forward(struct assign *a, int key, int micro)
{
    struct build *b = a->b;
    bool ahead = b->policy->copy_stream;
    hold(a, PLACE_LAYERS, key);
    if (pipeline_embeds(b))
        hold(a, PLACE_INPUT, key);
    if (pipeline_has_head(b))
        hold(a, PLACE_HEAD, key);
    if (!pipeline_takes_batch(b))
        return;
    if (!ahead || micro == 0)
        hold(a, PLACE_BATCH, micro);
    if (ahead && micro + 1 < b->pipe.schedule.micro_batches)
        hold(a, PLACE_BATCH, micro + 1);
    if (!b->pipe.first)
        let_go(a, PLACE_BATCH, micro);
}

static void backward(struct assign *a, int key, int micro)
{
    struct build *b = a->b;
    if (pipeline_has_head(b)) {
        hold(a, PLACE_GRADIENTS, key);
        let_go(a, PLACE_HEAD, key);
    }
    if (pipeline_embeds(b))
        let_go(a, PLACE_BATCH, micro);
    let_go(a, PLACE_INPUT, key);
    if (!b->pipe.delays)
        let_go(a, PLACE_LAYERS, key);
    a->leaving = key;
}

static void assign_item(struct assign *a, const struct schedule_item *item)
{
    struct build_pipeline *p = &a->b->pipe;
    int micro = item->slot.micro, key = micro * p->schedule.chunks + item->slot.chunk;
    if (item->act == ACT_RECEIVE)
        hold(a, item->direction == SCHEDULE_DOWN ? PLACE_INPUT : PLACE_GRADIENTS, key);
    if (item->act != ACT_COMPUTE)
        return;
    if (a->leaving >= 0)
        let_go(a, PLACE_GRADIENTS, a->leaving);
    a->leaving = -1;
    p->chunk = item->slot.chunk;
    if (item->slot.part == PART_FORWARD)
        forward(a, key, micro);
    else if (item->slot.part == PART_BACKWARD)
        backward(a, key, micro);
    else
        let_go(a, PLACE_LAYERS, key);
}

/* The step once without ops: how many places it needs, and who has which. */
static void assign(struct build *b)
{
    struct build_pipeline *p = &b->pipe;
    struct assign a = {.b = b, .leaving = -1};
    size_t all = (size_t)p->schedule.micro_batches * (size_t)p->schedule.chunks;
    for (int place = 0; place < PLACES; place++)
        p->held[place] = must_alloc(all, sizeof *p->held[place]);
    for (int i = 0; i < p->n_items; i++)
        assign_item(&a, &p->items[i]);
    for (int place = 0; place < PLACES; place++) {
        p->n[place] = a.places[place].n;
        p->reader[place] = must_alloc((size_t)p->n[place] + 1, sizeof *p->reader[place]);
        free(a.places[place].taken);
    }
}

/* ---- open and close ---- */

void pipeline_open(struct build *b)
{
    struct build_pipeline *p = &b->pipe;
    const struct group *pp = &b->plan->layout.group[AXIS_PP];
    int first, end;
    p->schedule = policy_schedule(b->policy, &b->plan->layout.degrees);
    p->me = pp->me;
    p->first = pp->me == 0;
    p->last = pp->me == pp->size - 1;
    p->tied_apart = b->model->tied && pp->size > 1 && (p->first || p->last);
    p->delays = p->schedule.kind == SCHEDULE_ZB_H1;
    p->items = schedule_items(&p->schedule, p->me, &p->n_items);
    pipeline_layers(b, 0, &first, &end);
    p->most_layers = end - first;
    assign(b);
    size_t all = (size_t)p->schedule.micro_batches * (size_t)p->schedule.chunks;
    for (int direction = 0; direction < 2; direction++)
        p->received[direction] = must_alloc(all, sizeof *p->received[direction]);
    p->sender = must_alloc((size_t)p->n[PLACE_GRADIENTS] + 1, sizeof *p->sender);
    p->layers = must_alloc((size_t)p->n[PLACE_LAYERS] * (size_t)p->most_layers, sizeof *p->layers);
    p->input = must_alloc((size_t)p->n[PLACE_INPUT] + 1, sizeof *p->input);
    p->gradients = must_alloc((size_t)p->n[PLACE_GRADIENTS] + 1, sizeof *p->gradients);
    p->head = must_alloc((size_t)p->n[PLACE_HEAD] + 1, sizeof *p->head);
    p->batch = must_alloc((size_t)p->n[PLACE_BATCH] + 1, sizeof *p->batch);
}

void pipeline_close(struct build *b)
{
    struct build_pipeline *p = &b->pipe;
    for (int place = 0; place < PLACES; place++) {
        free(p->held[place]);
        free(p->reader[place]);
    }
    free(p->received[0]);
    free(p->received[1]);
    free(p->sender);
    free(p->items);
    free(p->layers);
    free(p->input);
    free(p->gradients);
    free(p->head);
    free(p->batch);
}
