#include "workloads/lifetime.h"

#include <stdlib.h>

#include "base/err.h"
#include "workloads/fuse.h"
#include "workloads/touch.h"

struct access {
    int op, tensor;
    int buffer;
    int64_t begin, end; /* bytes, as touched */
    enum dtype dtype;
    bool reads, writes;
    int part; /* run of bytes of an arena that accesses chain together */
    int web;
};

struct find {
    struct lifetime *out;
    const struct plan *plan;
    struct fusion fusion;
    struct access *access; /* [n], in the order of ops */
    int n, capacity;
    int n_parts;
    int *first, *sorted; /* [n_parts + 1], [n] accesses of each part, in the order of ops */
    int n_webs, capacity_webs;
    struct lifetime_web *web; /* in the order of parts */
    int *ordinal, *seen;      /* [micro-batches + 1] webs of a part that began there */
};

static int64_t grain_down(int64_t at)
{
    return at / LIFETIME_GRAIN * LIFETIME_GRAIN;
}

static int64_t grain_up(int64_t at)
{
    return grain_down(at + LIFETIME_GRAIN - 1);
}

/* ---- accesses ---- */

static void list_accesses(struct find *f, const bool *in)
{
    for (int i = 0; i < f->plan->n_ops; i++) {
        struct touch touch[TOUCHES];
        int n = touch_op(f->plan, &f->plan->ops[i], touch);
        for (int j = 0; j < n; j++) {
            const struct touch *t = &touch[j];
            if (!in[t->t.buffer])
                continue;
            if (f->n == f->capacity) {
                f->capacity = f->capacity ? 2 * f->capacity : 1024;
                f->access = must_grow(f->access, (size_t)f->capacity, sizeof *f->access);
            }
            f->access[f->n++] = (struct access){.op = i,
                                                .tensor = t->index,
                                                .buffer = t->t.buffer,
                                                .begin = t->t.offset,
                                                .end = t->t.offset + touch_bytes(t),
                                                .dtype = t->dtype,
                                                .reads = t->reads,
                                                .writes = t->writes};
        }
    }
}

struct range {
    int buffer, access;
    int64_t begin, end;
};

static int by_place(const void *a, const void *b)
{
    const struct range *x = a, *y = b;
    if (x->buffer != y->buffer)
        return x->buffer < y->buffer ? -1 : 1;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->access < y->access ? -1 : x->access > y->access;
}

/* Runs of bytes that accesses chain together. */
static void find_parts(struct find *f)
{
    struct range *range = must_alloc((size_t)f->n + 1, sizeof *range);
    for (int i = 0; i < f->n; i++)
        range[i] = (struct range){f->access[i].buffer, i, grain_down(f->access[i].begin),
                                  grain_up(f->access[i].end)};
    qsort(range, (size_t)f->n, sizeof *range, by_place);
    int64_t end = 0;
    for (int i = 0; i < f->n; i++) {
        bool chained = i > 0 && range[i].buffer == range[i - 1].buffer && range[i].begin < end;
        f->n_parts += !chained;
        end = chained && end > range[i].end ? end : range[i].end;
        f->access[range[i].access].part = f->n_parts - 1;
    }
    free(range);
    f->first = must_alloc((size_t)f->n_parts + 2, sizeof *f->first);
    f->sorted = must_alloc((size_t)f->n + 1, sizeof *f->sorted);
    for (int i = 0; i < f->n; i++)
        f->first[f->access[i].part + 2]++;
    for (int p = 1; p < f->n_parts; p++)
        f->first[p + 1] += f->first[p];
    for (int i = 0; i < f->n; i++)
        f->sorted[f->first[f->access[i].part + 1]++] = i;
}

/* ---- who wrote last ---- */

struct span {
    int64_t begin, end;
    int writer;
};
struct spans {
    struct span *span; /* in order, apart */
    int n, capacity;
};

/* The earliest of the last writers of the bytes; -1: some were written by nobody. */
static int oldest_writer(const struct spans *s, int64_t begin, int64_t end)
{
    int oldest = -1;
    for (int i = 0; i < s->n && begin < end; i++) {
        if (s->span[i].end <= begin)
            continue;
        if (s->span[i].begin > begin)
            return -1;
        oldest = oldest < 0 || s->span[i].writer < oldest ? s->span[i].writer : oldest;
        begin = s->span[i].end;
    }
    return begin < end ? -1 : oldest;
}

static void put_span(struct spans *s, int at, struct span span)
{
    if (s->n == s->capacity) {
        s->capacity = s->capacity ? 2 * s->capacity : 16;
        s->span = must_grow(s->span, (size_t)s->capacity, sizeof *s->span);
    }
    for (int i = s->n++; i > at; i--)
        s->span[i] = s->span[i - 1];
    s->span[at] = span;
}

static void paint(struct spans *s, int64_t begin, int64_t end, int writer)
{
    int at = 0;
    while (at < s->n && s->span[at].end <= begin)
        at++;
    if (at < s->n && s->span[at].begin < begin) {
        struct span left = {s->span[at].begin, begin, s->span[at].writer};
        s->span[at].begin = begin;
        put_span(s, at++, left);
    }
    int over = at;
    while (over < s->n && s->span[over].end <= end)
        over++;
    if (over < s->n && s->span[over].begin < end)
        s->span[over].begin = end;
    for (int i = over; i < s->n; i++)
        s->span[at + i - over] = s->span[i];
    s->n -= over - at;
    put_span(s, at, (struct span){begin, end, writer});
}

/* ---- webs of a part ---- */

static struct access *of_part(const struct find *f, int i)
{
    return &f->access[f->sorted[i]];
}

/* The end of the accesses of the op of access i. */
static int end_of_op(const struct find *f, int i, int end)
{
    int op = of_part(f, i)->op;
    while (i < end && of_part(f, i)->op == op)
        i++;
    return i;
}

/*
 * needs[i]: of the accesses from `first` on, the earliest write that access i needs; itself when it
 * needs none. False when one needs what nobody wrote.
 */
static bool find_needs(const struct find *f, int first, int end, int *needs)
{
    struct spans spans = {0};
    bool good = true;
    for (int i = first, next; i < end; i = next) {
        next = end_of_op(f, i, end);
        for (int j = i; j < next; j++) {
            const struct access *a = of_part(f, j);
            int writer = a->reads ? oldest_writer(&spans, a->begin, a->end) : i;
            needs[j - first] = writer < 0 ? first : writer;
            good = good && writer >= 0;
        }
        for (int j = i; j < next; j++)
            if (of_part(f, j)->writes)
                paint(&spans, of_part(f, j)->begin, of_part(f, j)->end, i);
    }
    free(spans.span);
    return good;
}

static bool is_sum_of_gradients(const struct plan *plan, const struct access *a)
{
    enum op_kind kind = plan->ops[a->op].kind;
    return a->dtype == DTYPE_F32 && (kind == OP_ADD || kind == OP_SUMSQ || kind == OP_ADAMW ||
                                     (kind == OP_CAST && a->tensor == 0));
}

/* Without communication: does a compute op read what no compute op of the web wrote, and would any
 * value there not do? */
static bool needs_what_was_left(const struct find *f, int first, int end)
{
    struct spans spans = {0};
    bool needs = false;
    for (int i = first, next; i < end && !needs; i = next) {
        next = end_of_op(f, i, end);
        if (f->plan->ops[of_part(f, i)->op].kind == OP_COLLECTIVE)
            continue;
        for (int j = i; j < next; j++) {
            const struct access *a = of_part(f, j);
            needs = needs || (a->reads && a->buffer != BUFFER_PARAMETER &&
                              oldest_writer(&spans, a->begin, a->end) < 0 &&
                              !is_sum_of_gradients(f->plan, a));
        }
        for (int j = i; j < next; j++)
            if (of_part(f, j)->writes)
                paint(&spans, of_part(f, j)->begin, of_part(f, j)->end, i);
    }
    free(spans.span);
    return needs;
}

/* What an op writes that may run inside a product before it (fuse.h) is written from there on. */
static int born(const struct find *f, int op)
{
    int with = f->fusion.with[op];
    return with >= 0 && with < op && f->plan->ops[op].kind != OP_GEMM ? with : op;
}

static void add_web(struct find *f, int first, int end, bool fixed)
{
    if (f->n_webs == f->capacity_webs) {
        f->capacity_webs = f->capacity_webs ? 2 * f->capacity_webs : 256;
        f->web = must_grow(f->web, (size_t)f->capacity_webs, sizeof *f->web);
    }
    struct access *a = of_part(f, first);
    struct lifetime_web w = {.buffer = a->buffer,
                             .begin = INT64_MAX,
                             .first = born(f, a->op),
                             .fixed = fixed || needs_what_was_left(f, first, end)};
    for (int i = first; i < end; i++) {
        a = of_part(f, i);
        const struct op *op = &f->plan->ops[a->op];
        w.begin = w.begin < grain_down(a->begin) ? w.begin : grain_down(a->begin);
        w.end = w.end > grain_up(a->end) ? w.end : grain_up(a->end);
        w.last = a->op;
        w.fixed = w.fixed || (a->dtype != DTYPE_F32 && a->dtype != DTYPE_BF16);
        w.called = w.called || op->kind == OP_COLLECTIVE;
        w.kept = w.kept || (op->kind == OP_ADAMW && a->tensor == 1);
        a->web = f->n_webs;
    }
    f->web[f->n_webs++] = w;
}

/* Webs that begin as the k-th of their part in a micro-batch are a group. */
static void number_groups(struct find *f, int first_web, int part)
{
    int base = f->out->n_groups, most = 0;
    for (int w = first_web; w < f->n_webs; w++) {
        int micro = f->plan->ops[f->web[w].first].micro + 1;
        if (f->seen[micro] != part + 1)
            f->ordinal[micro] = 0;
        f->seen[micro] = part + 1;
        f->web[w].group = base + f->ordinal[micro]++;
        most = f->ordinal[micro] > most ? f->ordinal[micro] : most;
    }
    f->out->n_groups = base + most;
}

/* Where one web is fixed the others of its part stay with it, as they lay. */
static void keep_together(struct find *f, int first_web)
{
    struct lifetime_web whole = f->web[first_web];
    bool fixed = false;
    for (int w = first_web; w < f->n_webs; w++) {
        const struct lifetime_web *web = &f->web[w];
        fixed = fixed || web->fixed;
        whole.begin = web->begin < whole.begin ? web->begin : whole.begin;
        whole.end = web->end > whole.end ? web->end : whole.end;
    }
    for (int w = first_web; fixed && w < f->n_webs; w++) {
        f->web[w].begin = whole.begin;
        f->web[w].end = whole.end;
        f->web[w].group = whole.group;
        f->web[w].fixed = true;
    }
    if (fixed)
        f->out->n_groups = whole.group + 1;
}

/* Cut where nothing later needs what was written before. */
static void find_webs_of(struct find *f, int part)
{
    int first = f->first[part], end = f->first[part + 1], first_web = f->n_webs;
    int *needs = must_alloc((size_t)(end - first) + 1, sizeof *needs);
    bool good = find_needs(f, first, end, needs);
    for (int i = end - first - 2; i >= 0; i--) /* of this access and all later ones */
        needs[i] = needs[i] < needs[i + 1] ? needs[i] : needs[i + 1];
    int begin = first;
    for (int i = first; i < end; i++)
        if (i + 1 == end || (good && needs[i + 1 - first] > i)) {
            add_web(f, begin, i + 1, !good);
            begin = i + 1;
        }
    number_groups(f, first_web, part);
    keep_together(f, first_web);
    free(needs);
}

struct rank {
    int first, web;
};

static int by_first(const void *a, const void *b)
{
    const struct rank *x = a, *y = b;
    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    return x->web < y->web ? -1 : x->web > y->web;
}

/* Webs by their first op; who belongs to which. */
static void number_webs(struct find *f)
{
    struct lifetime *out = f->out;
    size_t n = (size_t)f->n_webs + 1;
    struct rank *rank = must_alloc(n, sizeof *rank);
    int *now = must_alloc(n, sizeof *now);
    out->n_webs = f->n_webs;
    out->web = must_alloc(n, sizeof *out->web);
    out->of = must_alloc((size_t)f->plan->n_ops + 1, sizeof *out->of);
    for (int w = 0; w < f->n_webs; w++)
        rank[w] = (struct rank){f->web[w].first, w};
    qsort(rank, (size_t)f->n_webs, sizeof *rank, by_first);
    for (int w = 0; w < f->n_webs; w++) {
        now[rank[w].web] = w;
        out->web[w] = f->web[rank[w].web];
    }
    for (int i = 0; i < f->plan->n_ops; i++)
        for (int t = 0; t < OP_TENSORS; t++)
            out->of[i][t] = -1;
    for (int i = 0; i < f->n; i++)
        out->of[f->access[i].op][f->access[i].tensor] = now[f->access[i].web];
    free(rank);
    free(now);
}

/* What the host reads between steps. */
static void fix_load(struct lifetime *out)
{
    const struct tensor *load = &out->plan->load;
    for (int w = 0; w < out->n_webs && load->buffer != BUFFER_NONE; w++) {
        struct lifetime_web *web = &out->web[w];
        if (web->buffer != load->buffer || load->offset < web->begin || load->offset >= web->end)
            continue;
        web->fixed = true;
        out->load = w;
    }
}

/* ---- all of it ---- */

void lifetime_find(struct lifetime *out, const struct plan *plan, const bool in[PLAN_BUFFERS])
{
    struct find f = {.out = out, .plan = plan};
    *out = (struct lifetime){.plan = plan, .n_streams = 2 + plan->n_channels, .load = -1};
    f.ordinal = must_alloc(2 * (size_t)plan->micro_batches + 4, sizeof *f.ordinal);
    f.seen = f.ordinal + plan->micro_batches + 2;
    fuse_pairs(&f.fusion, plan);
    list_accesses(&f, in);
    find_parts(&f);
    for (int part = 0; part < f.n_parts; part++)
        find_webs_of(&f, part);
    number_webs(&f);
    fix_load(out);
    lifetime_order(out);
    fuse_release(&f.fusion);
    free(f.access);
    free(f.first);
    free(f.sorted);
    free(f.web);
    free(f.ordinal);
}

void lifetime_release(struct lifetime *lifetime)
{
    free(lifetime->web);
    free(lifetime->of);
    free(lifetime->last);
    free(lifetime->entry);
    free(lifetime->again);
    free(lifetime->floor);
    free(lifetime->soonest);
    *lifetime = (struct lifetime){0};
}
