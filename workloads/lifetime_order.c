/* What happens before what: by streams and waits alone. */
#include "workloads/lifetime.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"

/* Latest ops of each stream that have finished before an op of two steps in a row; of step 1 from
 * n_ops on. */
static void follow(const struct plan *plan, int n_streams, int *known)
{
    int n = plan->n_ops, before[2 + PLAN_CHANNELS];
    for (int s = 0; s < n_streams; s++)
        before[s] = -1;
    for (int i = 0; i < 2 * n; i++) {
        const struct op *op = &plan->ops[i % n];
        int *mine = &known[(size_t)i * (size_t)n_streams], last = before[op->stream];
        for (int s = 0; s < n_streams; s++)
            mine[s] = last < 0 ? -1 : known[(size_t)last * (size_t)n_streams + (size_t)s];
        bool grouped = i % n > 0 && plan->ops[i % n - 1].with_next;
        if (last >= 0 && !grouped)
            mine[op->stream] = last;
        for (int w = 0; w < op->n_waits; w++) {
            int awaited = i / n * n + op->wait[w];
            const int *theirs = &known[(size_t)awaited * (size_t)n_streams];
            for (int s = 0; s < n_streams; s++)
                mine[s] = theirs[s] > mine[s] ? theirs[s] : mine[s];
            int *there = &mine[plan->ops[op->wait[w]].stream];
            *there = awaited > *there ? awaited : *there;
        }
        before[op->stream] = i;
    }
}

static void least(int *to, const int *from, int n)
{
    for (int s = 0; s < n; s++)
        to[s] = from[s] < to[s] ? from[s] : to[s];
}

static void find_floors(struct lifetime *out)
{
    size_t streams = (size_t)out->n_streams, cells = ((size_t)out->n_webs + 1) * streams;
    out->floor = must_alloc(cells, sizeof *out->floor);
    out->soonest = must_alloc(streams, sizeof *out->soonest);
    for (size_t s = 0; s < streams; s++)
        out->soonest[s] = out->floor[cells - streams + s] = 2 * out->plan->n_ops;
    for (int w = out->n_webs - 1; w >= 0; w--) {
        int *floor = &out->floor[(size_t)w * streams];
        memcpy(floor, floor + streams, streams * sizeof *floor);
        least(floor, &out->entry[(size_t)w * streams], out->n_streams);
        least(out->soonest, &out->again[(size_t)w * streams], out->n_streams);
    }
}

void lifetime_order(struct lifetime *out)
{
    const struct plan *plan = out->plan;
    size_t streams = (size_t)out->n_streams, n = (size_t)plan->n_ops, cells = 0;
    int *known = must_alloc(2 * n * streams + 1, sizeof *known);
    follow(plan, out->n_streams, known);
    cells = ((size_t)out->n_webs + 1) * streams;
    out->last = must_alloc(cells, sizeof *out->last);
    out->entry = must_alloc(cells, sizeof *out->entry);
    out->again = must_alloc(cells, sizeof *out->again);
    for (size_t i = 0; i < cells; i++) {
        out->last[i] = -1;
        out->entry[i] = out->again[i] = 2 * plan->n_ops;
    }
    for (size_t i = 0; i < n; i++)
        for (int t = 0; t < OP_TENSORS; t++) {
            if (out->of[i][t] < 0)
                continue;
            size_t row = (size_t)out->of[i][t] * streams;
            int *last = &out->last[row + (size_t)plan->ops[i].stream];
            *last = (int)i > *last ? (int)i : *last;
            least(&out->entry[row], &known[i * streams], out->n_streams);
            least(&out->again[row], &known[(n + i) * streams], out->n_streams);
        }
    for (int w = 0; w < out->n_webs; w++) { /* first may be before what touches it */
        size_t first = (size_t)out->web[w].first, row = (size_t)w * streams;
        least(&out->entry[row], &known[first * streams], out->n_streams);
        least(&out->again[row], &known[(n + first) * streams], out->n_streams);
    }
    free(known);
    find_floors(out);
}

static bool covers(const int *known, const int *last, int n)
{
    for (int s = 0; s < n; s++)
        if (last[s] > known[s])
            return false;
    return true;
}

bool lifetime_apart(const struct lifetime *l, int a, int b)
{
    size_t n = (size_t)l->n_streams, at = (size_t)a * n, bt = (size_t)b * n;
    return !l->web[a].fixed && !l->web[b].fixed && !l->web[a].kept &&
           covers(&l->entry[bt], &l->last[at], l->n_streams) &&
           covers(&l->again[at], &l->last[bt], l->n_streams);
}

bool lifetime_past(const struct lifetime *l, int a, int b)
{
    size_t n = (size_t)l->n_streams;
    return !l->web[a].fixed && !l->web[a].kept &&
           covers(&l->floor[(size_t)b * n], &l->last[(size_t)a * n], l->n_streams);
}

bool lifetime_is_late(const struct lifetime *l, int b)
{
    return !covers(l->soonest, &l->last[(size_t)b * (size_t)l->n_streams], l->n_streams);
}
