#include "workloads/plan_check_reach.h"

#include <stdint.h>
#include <stdlib.h>

#include "base/err.h"

enum { STREAMS = 2 + PLAN_CHANNELS };
enum { NONE = INT32_MIN };

void reach_open(struct reach *r, const struct plan *plan)
{
    int n = plan->n_ops, latest[STREAMS];
    size_t size = (size_t)n * REACH_STEPS + 1;
    *r =
        (struct reach){plan, must_alloc(size, sizeof *r->before), must_alloc(size, sizeof *r->seen),
                       must_alloc(size + 1, sizeof *r->stack), 0};
    for (int s = 0; s < STREAMS; s++)
        latest[s] = NONE;
    for (int i = 0; i < 2 * n; i++) {
        int stream = plan->ops[i % n].stream;
        if (i >= n)
            r->before[i - n] = latest[stream] == NONE ? NONE : latest[stream] - n;
        latest[stream] = i;
    }
}

void reach_close(struct reach *r)
{
    free(r->before);
    free(r->seen);
    free(r->stack);
}

static int push_one(struct reach *r, int n, int op, int not_before)
{
    if (op < not_before || op < 0 || r->seen[op] == r->search)
        return n;
    r->seen[op] = r->search;
    r->stack[n] = op;
    return n + 1;
}

/* The op before on the stream; negative: none. */
static int before(const struct reach *r, int op)
{
    int n = r->plan->n_ops, there = r->before[op % n];
    return there == NONE ? NONE : op / n * n + there;
}

/* Is it posted as one with the op behind it, `op`? */
static bool is_partner(const struct reach *r, int first, int op)
{
    return first >= 0 && first == op - 1 && r->plan->ops[first % r->plan->n_ops].with_next;
}

/* An op has ended, and what is posted as one with it. */
static int push(struct reach *r, int n, int op, int not_before)
{
    n = push_one(r, n, op, not_before);
    if (is_partner(r, op - 1, op))
        n = push_one(r, n, op - 1, not_before);
    return is_partner(r, op, op + 1) ? push_one(r, n, op + 1, not_before) : n;
}

/* What has ended on the stream when an op begins: calls that are posted as one begin together. */
static int push_before(struct reach *r, int n, int op, int not_before)
{
    int last = before(r, op);
    return push(r, n, is_partner(r, last, op) ? before(r, last) : last, not_before);
}

bool reach_is(struct reach *r, int earlier, int later)
{
    int all = r->plan->n_ops, n = 0;
    if (r->plan->ops[earlier % all].stream == r->plan->ops[later % all].stream)
        return !is_partner(r, earlier, later);
    r->search++;
    r->stack[n++] = later;
    while (n > 0) {
        int op = r->stack[--n], base = op / all * all;
        const struct op *it = &r->plan->ops[op % all];
        n = push_before(r, n, op, earlier);
        for (int w = 0; w < it->n_waits; w++)
            n = push(r, n, base + it->wait[w], earlier);
        if (r->seen[earlier] == r->search)
            return true;
    }
    return false;
}
