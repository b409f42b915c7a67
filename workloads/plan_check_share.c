#include "workloads/plan_check_share.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "workloads/plan_check_reach.h"
#include "workloads/touch.h"

enum { STREAMS = 2 + PLAN_CHANNELS, STEPS = REACH_STEPS };

/* Who wrote a byte: element `at` of tensor `tensor` of op `op` (of step s: + s n_ops); NOBODY, 0, 0. */
enum { NOBODY = -1 };
struct mark {
    int op, tensor;
    int64_t at; /* bytes from the start of what the op wrote */
};

/* Bytes [begin, end) of an arena with one history. */
struct run {
    int64_t begin, end;
    struct mark mark;    /* of the byte at `begin` */
    int reader[STREAMS]; /* latest of each stream since; -1 */
};

struct arena {
    struct run *run; /* in order, apart; bytes that nobody wrote or read have none */
    int n, capacity;
};

struct history {
    const struct plan *plan;
    struct arena arena[PLAN_BUFFERS];
};

/* ---- arenas ---- */

/* The first run that ends behind `at`. */
static int find_run(const struct arena *a, int64_t at)
{
    int low = 0, high = a->n;
    while (low < high) {
        int middle = (low + high) / 2;
        if (a->run[middle].end > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static struct run *insert_run(struct arena *a, int at)
{
    if (a->n == a->capacity) {
        a->capacity = a->capacity ? 2 * a->capacity : 64;
        a->run = must_grow(a->run, (size_t)a->capacity, sizeof *a->run);
    }
    memmove(&a->run[at + 1], &a->run[at], (size_t)(a->n - at) * sizeof *a->run);
    a->n++;
    return &a->run[at];
}

/* A run begins at `at`, if one covers it. */
static void cut_run(struct arena *a, int64_t at)
{
    int i = find_run(a, at);
    if (i == a->n || a->run[i].begin >= at)
        return;
    struct run *left = insert_run(a, i);
    *left = a->run[i + 1];
    left->end = at;
    a->run[i + 1].mark.at += a->run[i + 1].mark.op == NOBODY ? 0 : at - a->run[i + 1].begin;
    a->run[i + 1].begin = at;
}

/* Bytes that have no run yet get one, whose writer is nobody; returns the first run of [begin, end). */
static int cover(struct arena *a, int64_t begin, int64_t end)
{
    cut_run(a, begin);
    cut_run(a, end);
    int first = find_run(a, begin);
    for (int i = first; begin < end; i++) {
        int64_t next = i < a->n && a->run[i].begin < end ? a->run[i].begin : end;
        if (begin < next) {
            struct run *new = insert_run(a, i);
            *new = (struct run){.begin = begin, .end = next, .mark.op = NOBODY};
            for (int s = 0; s < STREAMS; s++)
                new->reader[s] = NOBODY;
            begin = next;
        } else {
            begin = a->run[i].end;
        }
    }
    return first;
}

static void write_run(struct arena *a, int64_t begin, int64_t end, struct mark mark)
{
    int first = cover(a, begin, end), last = first;
    while (last < a->n && a->run[last].begin < end)
        last++;
    a->run[first].end = end;
    a->run[first].mark = mark;
    for (int s = 0; s < STREAMS; s++)
        a->run[first].reader[s] = NOBODY;
    memmove(&a->run[first + 1], &a->run[last], (size_t)(a->n - last) * sizeof *a->run);
    a->n -= last - first - 1;
}

static void release(struct history *h)
{
    for (int b = 0; b < PLAN_BUFFERS; b++)
        free(h->arena[b].run);
}

static int64_t end_of(const struct touch *t)
{
    return t->t.offset + touch_bytes(t);
}

/* ---- words ---- */

static int say_meeting(const struct plan *plan, int earlier, int later, const char *how)
{
    int n = plan->n_ops;
    const struct op *a = &plan->ops[earlier % n], *b = &plan->ops[later % n];
    return fail(FAIL_WRONG,
                "check: op %d (%s, layer %d, micro-batch %d) and op %d (%s, layer %d, micro-batch "
                "%d%s) share bytes: %s",
                earlier % n, op_name((int)a->kind), a->layer, a->micro, later % n,
                op_name((int)b->kind), b->layer, b->micro,
                later / n > earlier / n ? ", of the next step" : "", how);
}

/* ---- order: packed alone ---- */

static int meet_reader(struct reach *r, const struct run *run, int op)
{
    for (int s = 0; s < STREAMS; s++)
        if (run->reader[s] != NOBODY && run->reader[s] != op && !reach_is(r, run->reader[s], op))
            return say_meeting(r->plan, run->reader[s], op,
                               "the second writes, and nothing makes it wait until the first has "
                               "read");
    return 0;
}

static int order_touch(struct reach *r, struct history *h, int op, const struct touch *t)
{
    struct arena *arena = &h->arena[t->t.buffer];
    int stream = h->plan->ops[op % h->plan->n_ops].stream, rc = 0;
    for (int i = cover(arena, t->t.offset, end_of(t)); i < arena->n; i++) {
        struct run *run = &arena->run[i];
        if (run->begin >= end_of(t))
            break;
        if (run->mark.op != NOBODY && run->mark.op != op && !reach_is(r, run->mark.op, op))
            return say_meeting(r->plan, run->mark.op, op,
                               "nothing makes the second wait until the first has written");
        if (t->writes)
            TRY(meet_reader(r, run, op));
        if (t->reads)
            run->reader[stream] = op;
    }
    if (t->writes)
        write_run(arena, t->t.offset, end_of(t), (struct mark){op, t->index, 0});
out:
    return rc;
}

static int check_order(const struct plan *packed)
{
    struct history h = {.plan = packed};
    struct reach reach;
    int rc = 0;
    reach_open(&reach, packed);
    for (int i = 0; i < STEPS * packed->n_ops; i++) {
        struct touch touch[TOUCHES];
        int n = touch_op(packed, &packed->ops[i % packed->n_ops], touch);
        for (int writes = 0; writes < 2; writes++)
            for (int j = 0; j < n; j++)
                if (touch[j].writes == (writes != 0))
                    TRY(order_touch(&reach, &h, i, &touch[j]));
    }
out:
    reach_close(&reach);
    release(&h);
    return rc;
}

/* ---- values: both, side by side ---- */

static bool is_apart(const struct mark *a, const struct mark *b)
{
    return a->op != b->op || a->tensor != b->tensor || a->at != b->at;
}

static bool any_value_does(const struct op *op, const struct touch *t)
{
    return t->t.buffer == BUFFER_PARAMETER ||
           (t->dtype == DTYPE_F32 && (op->kind == OP_ADD || op->kind == OP_SUMSQ ||
                                      op->kind == OP_ADAMW || op->kind == OP_CAST));
}

static struct mark mark_at(const struct run *run, int64_t at)
{
    struct mark mark = run->mark;
    mark.at += mark.op == NOBODY ? 0 : at - run->begin;
    return mark;
}

/* Runs of both side by side over what a touch reads. */
static int compare_read(struct history *plain, struct history *packed, int op,
                        const struct touch *t, const struct touch *u, bool alone)
{
    struct arena *x = &plain->arena[t->t.buffer], *y = &packed->arena[u->t.buffer];
    int i = cover(x, t->t.offset, end_of(t)), j = cover(y, u->t.offset, end_of(u));
    const struct op *it = &plain->plan->ops[op % plain->plan->n_ops];
    for (int64_t at = 0, n = touch_bytes(t); at < n;) {
        const struct run *a = &x->run[i], *b = &y->run[j];
        struct mark was = mark_at(a, t->t.offset + at), is = mark_at(b, u->t.offset + at);
        bool bad = is_apart(&was, &is);
        if (alone && bad)
            bad = is.op != NOBODY && !any_value_does(it, u);
        if (bad)
            return say_meeting(plain->plan, is.op == NOBODY ? op : is.op, op,
                               alone ? "without communication the second reads what the first "
                                       "wrote there"
                                     : "the second reads what the first wrote there, which is not "
                                       "what it is to read");
        int64_t left = a->end - t->t.offset, right = b->end - u->t.offset;
        at = left < right ? left : right;
        i += left == at;
        j += right == at;
    }
    return 0;
}

static int check_value(struct history *plain, struct history *packed, int op, bool alone)
{
    struct touch t[TOUCHES], u[TOUCHES];
    const struct plan *a = plain->plan, *b = packed->plan;
    int n = touch_op(a, &a->ops[op % a->n_ops], t), rc = 0;
    if (touch_op(b, &b->ops[op % a->n_ops], u) != n)
        return fail(FAIL_WRONG, "check: op %d touches more tensors in one plan than in the other",
                    op % a->n_ops);
    for (int i = 0; i < n; i++)
        if (t[i].reads)
            TRY(compare_read(plain, packed, op, &t[i], &u[i], alone));
    for (int i = 0; i < n; i++) {
        if (!t[i].writes)
            continue;
        struct mark mark = {op, t[i].index, 0};
        write_run(&plain->arena[t[i].t.buffer], t[i].t.offset, end_of(&t[i]), mark);
        write_run(&packed->arena[u[i].t.buffer], u[i].t.offset, end_of(&u[i]), mark);
    }
out:
    return rc;
}

/* `alone`: without communication. */
static int check_values(const struct plan *plan, const struct plan *packed, bool alone)
{
    struct history a = {.plan = plan}, b = {.plan = packed};
    int rc = 0;
    for (int i = 0; i < STEPS * plan->n_ops; i++)
        if (!alone || plan->ops[i % plan->n_ops].kind != OP_COLLECTIVE)
            TRY(check_value(&a, &b, i, alone));
out:
    release(&a);
    release(&b);
    return rc;
}

/* ---- integers ---- */

static bool is_number(enum dtype dtype)
{
    return dtype == DTYPE_F32 || dtype == DTYPE_BF16;
}

/* Marks are 0 for integers and doubles, 1 for what may share. */
static int check_kinds(const struct plan *packed)
{
    struct history h = {.plan = packed};
    int rc = 0;
    for (int i = 0; i < packed->n_ops; i++) {
        struct touch touch[TOUCHES];
        int n = packed->ops[i].kind == OP_ZERO ? 0 : touch_op(packed, &packed->ops[i], touch);
        for (int j = 0; j < n; j++) {
            struct arena *arena = &h.arena[touch[j].t.buffer];
            int64_t end = end_of(&touch[j]);
            int kind = is_number(touch[j].dtype);
            for (int k = cover(arena, touch[j].t.offset, end);
                 k < arena->n && arena->run[k].begin < end; k++) {
                struct mark *mark = &arena->run[k].mark;
                if (mark->op != NOBODY && mark->tensor != kind) {
                    rc = say_meeting(packed, mark->op, i, "integers share them with other values");
                    goto out;
                }
                *mark = (struct mark){i, kind, 0};
            }
        }
    }
out:
    release(&h);
    return rc;
}

/* ---- all of it ---- */

static int check_same_ops(const struct plan *plan, const struct plan *packed)
{
    bool same = plan->n_ops == packed->n_ops;
    for (int i = 0; i < plan->n_ops && same; i++) {
        struct op a = plan->ops[i], b = packed->ops[i];
        memset(a.t, 0, sizeof a.t);
        memset(b.t, 0, sizeof b.t);
        same = a.kind == b.kind && a.stream == b.stream && a.n_waits == b.n_waits &&
               memcmp(a.wait, b.wait, sizeof a.wait) == 0 && a.with_next == b.with_next;
    }
    return same ? 0 : fail(FAIL_WRONG, "check: the packed plan has other ops than the plan");
}

int plan_check_share(const struct plan *plan, const struct plan *packed)
{
    int rc = 0;
    TRY(check_same_ops(plan, packed));
    TRY(check_values(plan, packed, false));
    TRY(check_values(plan, packed, true));
    TRY(check_kinds(packed));
    TRY(check_order(packed));
out:
    return rc;
}
