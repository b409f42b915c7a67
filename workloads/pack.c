#include "workloads/pack.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "workloads/lifetime.h"
#include "workloads/touch.h"

enum { GROUPS_MOST = 1 << 15, LARGE = 1 << 16, ALIGN_LARGE = 256 };

/* Webs of one group have one place. */
struct block {
    int64_t bytes, at;
    int first, first_web; /* op, web */
    bool fixed, called;
};

struct pack {
    const struct lifetime *life;
    int n;
    struct block *block; /* [n] */
    uint64_t *meet;      /* [n][words] groups that never share bytes */
    size_t words;
    int *placed; /* [n] groups by offset */
};

/* ---- who meets whom ---- */

static bool meets(const struct pack *p, int a, int b)
{
    return p->block[a].fixed || p->block[b].fixed ||
           (p->meet[(size_t)a * p->words + (size_t)b / 64] >> (b % 64) & 1) != 0;
}

static void compare(struct pack *p, int a, int b)
{
    int x = p->life->web[a].group, y = p->life->web[b].group;
    if (x == y || meets(p, x, y) || lifetime_apart(p->life, a, b))
        return;
    p->meet[(size_t)x * p->words + (size_t)y / 64] |= UINT64_C(1) << (y % 64);
    p->meet[(size_t)y * p->words + (size_t)x / 64] |= UINT64_C(1) << (x % 64);
}

static void find_blocks(struct pack *p)
{
    const struct lifetime *life = p->life;
    p->n = life->n_groups;
    p->words = (size_t)p->n / 64 + 1;
    p->block = must_alloc((size_t)p->n, sizeof *p->block);
    p->meet = must_alloc((size_t)p->n * p->words, sizeof *p->meet);
    p->placed = must_alloc((size_t)p->n, sizeof *p->placed);
    for (int w = life->n_webs - 1; w >= 0; w--) {
        const struct lifetime_web *web = &life->web[w];
        struct block *block = &p->block[web->group];
        int64_t bytes = web->end - web->begin;
        block->bytes = bytes > block->bytes ? bytes : block->bytes;
        block->first = web->first;
        block->first_web = w;
        block->fixed = block->fixed || web->fixed;
        block->called = block->called || web->called;
    }
}

/* A web that began before meets later ones until all of these begin after its end. */
static void find_meetings(struct pack *p)
{
    const struct lifetime *life = p->life;
    int *active = must_alloc((size_t)life->n_webs + 1, sizeof *active), n = 0;
    for (int b = 0; b < life->n_webs; b++) {
        int kept = 0;
        for (int i = 0; i < n; i++) {
            if (lifetime_past(life, active[i], b))
                continue;
            compare(p, active[i], b);
            active[kept++] = active[i];
        }
        n = kept;
        if (life->web[b].fixed)
            continue;
        active[n++] = b;
        for (int a = 0; lifetime_is_late(life, b) && a < b; a++)
            compare(p, a, b);
    }
    free(active);
}

/* ---- places ---- */

struct turn {
    bool called;
    double weight;
    int first, group;
};

static int by_turn(const void *x, const void *y)
{
    const struct turn *a = x, *b = y;
    if (a->called != b->called)
        return a->called ? -1 : 1;
    if (a->weight != b->weight)
        return a->weight > b->weight ? -1 : 1;
    if (a->first != b->first)
        return a->first < b->first ? -1 : 1;
    return a->group < b->group ? -1 : a->group > b->group;
}

static int64_t aligned(int64_t at, int64_t bytes)
{
    int64_t grain = bytes >= LARGE ? ALIGN_LARGE : LIFETIME_GRAIN;
    return (at + grain - 1) / grain * grain;
}

/* The lowest place where the group meets nobody of the n that are placed. */
static void place(struct pack *p, int group, int n)
{
    struct block *block = &p->block[group];
    int64_t at = 0;
    int to = 0;
    for (int i = 0; i < n; i++) {
        const struct block *other = &p->block[p->placed[i]];
        if (other->at >= at + block->bytes)
            break;
        if (other->at + other->bytes > at && meets(p, group, p->placed[i]))
            at = aligned(other->at + other->bytes, block->bytes);
    }
    block->at = at;
    while (to < n && p->block[p->placed[to]].at <= at)
        to++;
    for (int i = n; i > to; i--)
        p->placed[i] = p->placed[i - 1];
    p->placed[to] = group;
}

/* The larger first, or the larger among those that meet many; those that meet all before them. */
static double weight_of(const struct pack *p, int group, bool by_meetings)
{
    double bytes = (double)p->block[group].bytes, meetings = 1;
    if (p->block[group].fixed)
        return HUGE_VAL;
    for (size_t w = 0; by_meetings && w < p->words; w++)
        for (uint64_t left = p->meet[(size_t)group * p->words + w]; left != 0; left &= left - 1)
            meetings++;
    return bytes * meetings;
}

/* Bytes of the arena. */
static int64_t place_all(struct pack *p, bool called_first, bool by_meetings)
{
    struct turn *turn = must_alloc((size_t)p->n + 1, sizeof *turn);
    int64_t bytes = 0;
    for (int g = 0; g < p->n; g++)
        turn[g] = (struct turn){called_first && p->block[g].called, weight_of(p, g, by_meetings),
                                p->block[g].first, g};
    qsort(turn, (size_t)p->n, sizeof *turn, by_turn);
    for (int i = 0; i < p->n; i++) {
        place(p, turn[i].group, i);
        const struct block *block = &p->block[turn[i].group];
        bytes = block->at + block->bytes > bytes ? block->at + block->bytes : bytes;
    }
    free(turn);
    return bytes;
}

/* The first of the smallest. */
static int64_t place_best(struct pack *p)
{
    int64_t least = INT64_MAX;
    int best = 0;
    for (int way = 0; way < 4; way++) {
        int64_t bytes = place_all(p, way / 2 == 0, way % 2 != 0);
        best = bytes < least ? way : best;
        least = bytes < least ? bytes : least;
    }
    return place_all(p, best / 2 == 0, best % 2 != 0);
}

/* ---- what lives ---- */

static void span_of(const struct pack *p, int w, int *first, int *last)
{
    const struct lifetime_web *web = &p->life->web[w];
    bool fixed = p->block[web->group].fixed;
    *first = fixed ? 0 : web->first;
    *last = fixed || web->kept ? p->life->plan->n_ops - 1 : web->last;
}

/* A block that is nobody else's counts once, with its first web. */
static int64_t bytes_of(const struct pack *p, int w)
{
    const struct lifetime_web *web = &p->life->web[w];
    const struct block *block = &p->block[web->group];
    if (!block->fixed)
        return web->end - web->begin;
    return block->first_web == w ? block->bytes : 0;
}

static void find_most(const struct pack *p, struct pack_found *found)
{
    const struct lifetime *life = p->life;
    int n = life->plan->n_ops, first, last;
    int64_t *change = must_alloc((size_t)n + 1, sizeof *change), now = 0;
    for (int w = 0; w < life->n_webs; w++) {
        span_of(p, w, &first, &last);
        change[first] += bytes_of(p, w);
        change[last + 1] -= bytes_of(p, w);
    }
    for (int i = 0; i < n; i++) {
        now += change[i];
        if (now <= found->live)
            continue;
        found->live = now;
        found->op = i;
    }
    for (int w = 0; w < life->n_webs; w++) {
        span_of(p, w, &first, &last);
        if (found->op >= first && found->op <= last)
            found->at_op[life->web[w].buffer] += bytes_of(p, w);
    }
    free(change);
}

/* ---- moving ---- */

static struct tensor moved(const struct pack *p, struct tensor t, int web, int to)
{
    if (web < 0) /* an op that has it and does not touch it */
        return (struct tensor){to, 0};
    const struct lifetime_web *w = &p->life->web[web];
    return (struct tensor){to, p->block[w->group].at + t.offset - w->begin};
}

static void move_all(struct pack *p, struct plan *plan, const bool *in, int to, int64_t bytes)
{
    for (int i = 0; i < plan->n_ops; i++)
        for (int t = 0; t < OP_TENSORS; t++)
            if (in[plan->ops[i].t[t].buffer])
                plan->ops[i].t[t] = moved(p, plan->ops[i].t[t], p->life->of[i][t], to);
    if (in[plan->load.buffer])
        plan->load = moved(p, plan->load, p->life->load, to);
    for (int b = 1; b < PLAN_BUFFERS; b++)
        plan->bytes[b] = in[b] ? 0 : plan->bytes[b];
    plan->bytes[to] = bytes;
}

static int64_t sum_of(const struct plan *plan, const bool *in)
{
    int64_t bytes = 0;
    for (int b = 1; b < PLAN_BUFFERS; b++)
        bytes += in[b] ? plan->bytes[b] : 0;
    return bytes;
}

/* Some arenas into one of them; nothing where that would not make it smaller. */
static void pack_into(struct plan *plan, const bool *in, int to, struct pack_found *found)
{
    struct lifetime life;
    struct pack p = {.life = &life};
    int64_t before = sum_of(plan, in), bytes = before;
    lifetime_find(&life, plan, in);
    if (life.n_groups > 0 && life.n_groups <= GROUPS_MOST) {
        find_blocks(&p);
        find_meetings(&p);
        bytes = place_best(&p);
    }
    found->before += before;
    if (bytes < before) {
        if (to == BUFFER_ACTIVATION)
            find_most(&p, found);
        move_all(&p, plan, in, to, bytes);
    }
    found->after += sum_of(plan, in);
    free(p.block);
    free(p.meet);
    free(p.placed);
    lifetime_release(&life);
}

void plan_pack(struct plan *plan, struct pack_found *found)
{
    bool passing[PLAN_BUFFERS], weights[PLAN_BUFFERS] = {[BUFFER_PARAMETER] = true};
    struct pack_found mine;
    found = found != NULL ? found : &mine;
    *found = (struct pack_found){.op = -1};
    memcpy(passing, plan->passing, sizeof passing);
    passing[BUFFER_PARAMETER] = false;
    passing[BUFFER_ACTIVATION] = passing[BUFFER_TEMPORARY] = passing[BUFFER_WIRE] = true;
    pack_into(plan, passing, BUFFER_ACTIVATION, found);
    if (plan->passing[BUFFER_PARAMETER])
        pack_into(plan, weights, BUFFER_PARAMETER, found);
    plan->packed = true;
}

int64_t pack_called_bytes(const struct plan *plan, int stream, int buffer)
{
    int64_t end = 0;
    for (int i = 0; i < plan->n_ops; i++) {
        const struct op *op = &plan->ops[i];
        struct touch touch[TOUCHES];
        int n = op->kind == OP_COLLECTIVE && op->stream == stream ? touch_op(plan, op, touch) : 0;
        for (int j = 0; j < n; j++) {
            int64_t reach = touch[j].t.offset + touch_bytes(&touch[j]);
            if (touch[j].t.buffer == buffer && reach > end)
                end = reach;
        }
    }
    return end;
}
