#include "workloads/overwrite.h"

#include <stdlib.h>

#include "base/err.h"
#include "workloads/touch.h"

enum { COMPUTE = 0 };

/* Bytes of a zeroed range that ops have come to: in order, apart; `written` by a product first. */
struct span {
    int64_t begin, end;
    bool written;
};
struct spans {
    struct span *span;
    int n;
    int64_t untouched; /* bytes */
};

static int64_t later(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static int64_t sooner(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The first span that ends behind `at`. */
static int find(const struct spans *s, int64_t at)
{
    int low = 0, high = s->n;
    while (low < high) {
        int middle = (low + high) / 2;
        if (s->span[middle].end > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static void insert(struct spans *s, int at, int64_t begin, int64_t end, bool written)
{
    s->span = must_grow(s->span, (size_t)s->n + 1, sizeof *s->span);
    for (int i = s->n; i > at; i--)
        s->span[i] = s->span[i - 1];
    s->span[at] = (struct span){begin, end, written};
    s->n++;
    s->untouched -= end - begin;
}

/* The parts of [begin, end) that are new. */
static void add(struct spans *s, int64_t begin, int64_t end, bool written)
{
    for (int i = find(s, begin); begin < end; i++) {
        int64_t next = i < s->n ? s->span[i].begin : end;
        if (begin < sooner(next, end)) {
            insert(s, i, begin, sooner(next, end), written);
            i++;
        }
        if (i >= s->n || s->span[i].begin >= end)
            return;
        begin = later(begin, s->span[i].end);
    }
}

static bool is_new(const struct spans *s, int64_t begin, int64_t end)
{
    int i = find(s, begin);
    return i == s->n || s->span[i].begin >= end;
}

/* C of a product that adds to all of it, inside [begin, end). */
static bool could_be_first(const struct op *op, const struct touch *t, int64_t begin, int64_t end)
{
    return op->kind == OP_GEMM && op->stream == COMPUTE && t->index == 2 &&
           op->shape.gemm.beta == 1 && op->t[3].buffer == BUFFER_NONE && t->t.offset >= begin &&
           t->t.offset + touch_bytes(t) <= end;
}

static void come_to(struct overwrite *o, struct spans *s, int index, struct overwrite_run range,
                    int buffer)
{
    const struct op *op = &o->plan->ops[index];
    struct touch touch[TOUCHES];
    int n = touch_op(o->plan, op, touch);
    for (int i = 0; i < n; i++) {
        const struct touch *t = &touch[i];
        int64_t begin = later(t->t.offset, range.begin);
        int64_t end = sooner(t->t.offset + touch_bytes(t), range.end);
        if (t->t.buffer != buffer || begin >= end)
            continue;
        bool first = could_be_first(op, t, range.begin, range.end) && is_new(s, begin, end);
        o->first[index] = o->first[index] || first;
        add(s, begin, end, first);
    }
}

/* What is left of the range: all but what products write first. */
static void keep_left(struct overwrite *o, const struct spans *s, int zero,
                      struct overwrite_run range)
{
    struct overwrite_run *left = must_alloc((size_t)s->n + 1, sizeof *left);
    int64_t at = range.begin;
    int n = 0;
    for (int i = 0; i < s->n; i++) {
        if (!s->span[i].written)
            continue;
        if (at < s->span[i].begin)
            left[n++] = (struct overwrite_run){at, s->span[i].begin};
        at = s->span[i].end;
    }
    if (at < range.end)
        left[n++] = (struct overwrite_run){at, range.end};
    o->left[zero] = left;
    o->n_left[zero] = n;
}

static void follow_zero(struct overwrite *o, int zero)
{
    const struct op *op = &o->plan->ops[zero];
    int64_t begin = op->t[0].offset, bytes = op->shape.vector.n * 4;
    struct overwrite_run range = {begin, begin + bytes};
    struct spans spans = {.untouched = bytes};
    for (int i = zero + 1; i < o->plan->n_ops && spans.untouched > 0; i++)
        come_to(o, &spans, i, range, op->t[0].buffer);
    keep_left(o, &spans, zero, range);
    free(spans.span);
}

void overwrite_find(struct overwrite *out, const struct plan *plan)
{
    size_t n = (size_t)plan->n_ops + 1;
    out->plan = plan;
    out->first = must_alloc(n, sizeof *out->first);
    out->n_left = must_alloc(n, sizeof *out->n_left);
    out->left = must_alloc(n, sizeof *out->left);
    for (int i = 0; i < plan->n_ops; i++)
        if (plan->ops[i].kind == OP_ZERO && plan->ops[i].stream == COMPUTE)
            follow_zero(out, i);
}

void overwrite_release(struct overwrite *overwrite)
{
    for (int i = 0; overwrite->plan != NULL && i < overwrite->plan->n_ops; i++)
        free(overwrite->left[i]);
    free(overwrite->left);
    free(overwrite->n_left);
    free(overwrite->first);
    *overwrite = (struct overwrite){0};
}
