#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "workloads/cost.h"

/* A stage while all are replayed. */
struct stage {
    const struct plan *plan;
    int at;                           /* next op */
    double *end;                      /* [n_ops] */
    double stream[PLAN_CHANNELS + 2]; /* when it is free */
    struct cost_step step;
};

struct stages {
    const struct cost *cost;
    struct stage *stage; /* [n] */
    int n;
    bool free; /* communication takes no time */
};

static const struct op *head(const struct stage *s)
{
    return s->at < s->plan->n_ops ? &s->plan->ops[s->at] : NULL;
}

/* Does an op wait for other stages? */
static bool meets(const struct op *op)
{
    return op->kind == OP_COLLECTIVE &&
           (op->shape.coll.axis == AXIS_PP || op->shape.coll.axis == AXIS_EMBED);
}

static bool is_transfer(const struct op *op)
{
    enum coll_kind kind = op->shape.coll.coll.kind;
    return kind == COLL_SEND || kind == COLL_RECV;
}

/* When an op could begin; the wait that ends last, -1: its stream was busy until then. */
static double ready(const struct stage *s, const struct op *op, int *last)
{
    double when = s->stream[op->stream];
    *last = -1;
    for (int i = 0; i < op->n_waits; i++)
        if (s->end[op->wait[i]] > when) {
            when = s->end[op->wait[i]];
            *last = op->wait[i];
        }
    return when;
}

static double seconds(const struct stages *all, const struct stage *s, const struct op *op)
{
    if (op->kind != OP_COLLECTIVE)
        return cost_op_s(all->cost, op);
    if (all->free)
        return 0;
    return cost_coll_s(all->cost, &op->shape.coll.coll,
                       &s->plan->layout.group[op->shape.coll.axis]);
}

/* The op at the head runs from `begin` on, for as long as it takes. */
static void take(struct stages *all, struct stage *s, double begin, double takes)
{
    const struct op *op = head(s);
    int last;
    double could = ready(s, op, &last);
    if (op->stream == 0 && last >= 0 && s->plan->ops[last].kind == OP_COLLECTIVE)
        s->step.exposed_s[s->plan->ops[last].shape.coll.axis] += could - s->stream[0];
    if (op->kind == OP_COLLECTIVE)
        s->step.comm_s[op->shape.coll.axis] += takes;
    else if (op->stream == 0)
        s->step.compute_s += takes;
    s->end[s->at] = s->stream[op->stream] = begin + takes;
    if (s->at > 0 && op[-1].with_next) /* one post, which ends as one */
        s->end[s->at - 1] = s->end[s->at];
    s->at++;
    (void)all;
}

static bool run_alone(struct stages *all, struct stage *s)
{
    bool moved = false;
    for (int last; head(s) != NULL && !meets(head(s)); moved = true)
        take(all, s, ready(s, head(s), &last), seconds(all, s, head(s)));
    return moved;
}

/* Does stage `other` stand at the call that is at the head of stage `me`? */
static bool stands_there(const struct stages *all, int me, int other)
{
    const struct op *mine = head(&all->stage[me]), *theirs = head(&all->stage[other]);
    if (theirs == NULL || !meets(theirs) || theirs->shape.coll.axis != mine->shape.coll.axis ||
        theirs->shape.coll.direction != mine->shape.coll.direction ||
        is_transfer(theirs) != is_transfer(mine))
        return false;
    return !is_transfer(mine) || (theirs->shape.coll.coll.peer == me &&
                                  theirs->shape.coll.coll.kind != mine->shape.coll.coll.kind);
}

/* Stages first, first + step, ...: those of the call at the head of a stage. */
static struct group members_of(const struct stages *all, int me)
{
    const struct op *op = head(&all->stage[me]);
    int peer = op->shape.coll.coll.peer;
    if (is_transfer(op))
        return (struct group){.first = me, .stride = peer - me, .size = 2};
    if (op->shape.coll.axis == AXIS_EMBED)
        return (struct group){.first = 0, .stride = all->n - 1, .size = 2};
    return (struct group){.first = 0, .stride = 1, .size = all->n};
}

static bool run_together(struct stages *all, int me)
{
    struct group members = members_of(all, me);
    double begin = 0;
    int last;
    for (int i = 0; i < members.size; i++) {
        struct stage *s = &all->stage[group_rank(&members, i)];
        if (group_rank(&members, i) != me && !stands_there(all, me, group_rank(&members, i)))
            return false;
        double could = ready(s, head(s), &last);
        begin = could > begin ? could : begin;
    }
    double takes = seconds(all, &all->stage[me], head(&all->stage[me]));
    for (int i = 0; i < members.size; i++)
        take(all, &all->stage[group_rank(&members, i)], begin, takes);
    return true;
}

static void replay(struct stages *all)
{
    for (bool moved = true; moved;) {
        moved = false;
        for (int i = 0; i < all->n; i++) {
            moved = run_alone(all, &all->stage[i]) || moved;
            if (head(&all->stage[i]) != NULL)
                moved = run_together(all, i) || moved;
        }
    }
    for (int i = 0; i < all->n; i++)
        if (head(&all->stage[i]) != NULL)
            BUG("stage %d of a replay stands still at op %d", i, all->stage[i].at);
}

static void play(const struct cost *cost, const struct plan *plans, int n, bool free_calls,
                 struct cost_step *out)
{
    struct stages all = {.cost = cost, .n = n, .free = free_calls};
    memset(out, 0, sizeof *out);
    all.stage = must_alloc((size_t)n, sizeof *all.stage);
    for (int i = 0; i < n; i++) {
        all.stage[i].plan = &plans[i];
        all.stage[i].end = must_alloc((size_t)plans[i].n_ops + 1, sizeof(double));
    }
    replay(&all);
    for (int i = 0; i < n; i++) {
        const struct stage *s = &all.stage[i];
        out->step_s = s->stream[0] > out->step_s ? s->stream[0] : out->step_s;
        out->compute_s += s->step.compute_s / n;
        for (int axis = 0; axis < AXIS_COUNT; axis++) {
            out->comm_s[axis] += s->step.comm_s[axis] / n;
            out->exposed_s[axis] += s->step.exposed_s[axis] / n;
        }
        free(s->end);
    }
    free(all.stage);
}

void cost_stages(const struct cost *cost, const struct plan *plans, int n, struct cost_step *out,
                 double *bubble_s)
{
    struct cost_step alone;
    play(cost, plans, n, false, out);
    if (bubble_s == NULL)
        return;
    play(cost, plans, n, true, &alone);
    *bubble_s = alone.step_s - alone.compute_s;
}
