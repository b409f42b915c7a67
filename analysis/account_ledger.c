#include "analysis/account_ledger.h"

#include <math.h>
#include <stdlib.h>

#include "base/err.h"

/* Bounds first: a step index is below the number of rows in any file that we wrote. */
static int check_steps(struct ledger *l)
{
    const struct record_point *p = l->point;
    for (int64_t i = 0; i < p->steps.n; i++) {
        const struct step_row *r = &p->steps.rows[i];
        if (r->variant < 0 || r->variant >= VARIANTS || r->step < 0 || r->step >= p->steps.n ||
            r->rank < 0 || r->rank >= l->ranks)
            return fail(FAIL_FILE,
                        "account: point %d: a step row says variant %d, step %d, rank %d, but the "
                        "point has %d ranks and %lld step rows: the file is damaged",
                        p->point.point, r->variant, r->step, r->rank, l->ranks,
                        (long long)p->steps.n);
        if (r->step >= l->n[r->variant])
            l->n[r->variant] = r->step + 1;
    }
    return 0;
}

static double span(int64_t from_ns, int64_t to_ns)
{
    return (double)to_ns - (double)from_ns;
}

static double closed_residual(const struct step_row *r)
{
    return span(r->start_ns, r->end_ns) - (double)r->compute_ns - (double)r->input_ns -
           (double)r->stall_ns - (double)r->idle_ns - (double)r->stamps_ns;
}

static void add_row(struct ledger *l, const struct step_row *r)
{
    struct cell *c = &l->cells[r->variant][r->step];
    double own = span(r->start_ns, r->end_ns);
    if (c->seen == 0 || r->end_ns > c->end_ns)
        c->end_ns = r->end_ns;
    c->longest_ns = fmax(c->longest_ns, own);
    c->tokens = r->valid_tokens;
    c->block = r->block;
    c->flags |= r->flags;
    c->seen++;
    c->term_ns[TERM_STEP] += own;
    c->term_ns[TERM_COMPUTE] += (double)r->compute_ns;
    c->term_ns[TERM_INPUT] += (double)r->input_ns;
    c->term_ns[TERM_STALL] += (double)r->stall_ns;
    c->term_ns[TERM_IDLE] += (double)r->idle_ns;
    c->term_ns[TERM_STAMPS] += (double)r->stamps_ns;
    c->term_ns[TERM_HOST] += (double)r->host_ns;
    if (!(r->flags & STEP_INSTRUMENTED))
        return;
    double residual = closed_residual(r);
    c->term_ns[TERM_RESIDUAL] += residual;
    /* Clock correction may stretch a step by a little. */
    if (fabs(residual - (double)r->residual_ns) > 1000.0 + 1e-4 * own)
        l->n_contradicting++;
}

static void add_exposed(struct ledger *l)
{
    const struct record_point *p = l->point;
    for (int64_t i = 0; i < p->stalls.n; i++) {
        const struct stall_row *r = &p->stalls.rows[i];
        if (r->variant < 0 || r->variant >= VARIANTS || r->step < 0 || r->step >= l->n[r->variant])
            continue; /* steps outside the fence have no step row */
        struct cell *c = &l->cells[r->variant][r->step];
        if (r->exposed_ns >= 0) {
            c->has_exposed = true;
            c->term_ns[TERM_EXPOSED] += (double)r->exposed_ns;
        }
    }
}

int ledger_open(struct ledger *out, const struct record_point *point)
{
    *out = (struct ledger){.point = point, .ranks = point->point.ranks};
    if (out->ranks < 1)
        return fail(FAIL_FILE, "account: point %d says %d ranks: the file is damaged",
                    point->point.point, out->ranks);
    int rc = check_steps(out);
    if (rc != 0)
        return rc;
    for (int v = 0; v < VARIANTS; v++)
        out->cells[v] = must_alloc((size_t)out->n[v] + 1, sizeof *out->cells[v]);
    for (int64_t i = 0; i < point->steps.n; i++)
        add_row(out, &point->steps.rows[i]);
    add_exposed(out);
    return 0;
}

void ledger_release(struct ledger *ledger)
{
    for (int v = 0; v < VARIANTS; v++)
        free(ledger->cells[v]);
    *ledger = (struct ledger){0};
}

enum account_kind ledger_kind(int variant, int flags)
{
    if (variant == VARIANT_COMPUTE)
        return ACCOUNT_COMPUTE;
    if (variant == VARIANT_COMM)
        return ACCOUNT_COMM;
    if (flags & STEP_GRAPH)
        return ACCOUNT_GRAPH;
    return flags & STEP_INSTRUMENTED ? ACCOUNT_INSTRUMENTED : ACCOUNT_FULL;
}

const struct cell *ledger_measured(const struct ledger *ledger, int variant, int step)
{
    if (variant < 0 || variant >= VARIANTS || step < 0 || step >= ledger->n[variant])
        return NULL;
    const struct cell *c = &ledger->cells[variant][step];
    return c->measured ? c : NULL;
}

static void series_room(struct account_series *s, int64_t steps)
{
    size_t room = (size_t)steps + 1;
    s->period_ns = must_alloc(room, sizeof *s->period_ns);
    s->longest_ns = must_alloc(room, sizeof *s->longest_ns);
    s->in_block = must_alloc(room, sizeof *s->in_block);
    s->blocks = must_alloc(room, sizeof *s->blocks);
}

static void series_add(struct account_series *s, const struct cell *c, double period_ns, bool opens)
{
    if (opens || s->n_blocks == 0)
        s->blocks[s->n_blocks++] = (struct account_block){.block = c->block};
    struct account_block *b = &s->blocks[s->n_blocks - 1];
    s->period_ns[s->n] = period_ns;
    s->longest_ns[s->n] = c->longest_ns;
    s->in_block[s->n] = (int32_t)(s->n_blocks - 1);
    s->n++;
    b->steps++;
    for (int t = 0; t < TERMS; t++)
        b->term_ns[t] += c->term_ns[t] / c->seen;
    if (!c->has_exposed)
        b->term_ns[TERM_EXPOSED] = NAN;
}

static void series_close(struct account_series *s)
{
    for (int64_t i = 0; i < s->n_blocks; i++) {
        for (int t = 0; t < TERMS; t++) {
            s->term_ns[t] += s->blocks[i].term_ns[t] / (double)s->n;
            s->blocks[i].term_ns[t] /= (double)s->blocks[i].steps;
        }
    }
    for (int t = 0; t < TERMS && s->n == 0; t++)
        s->term_ns[t] = NAN;
}

/* Two steps of one block: the end of the first is where the clock of the second starts. */
static bool follows(const struct ledger *l, int variant, int64_t step)
{
    if (step == 0)
        return false;
    const struct cell *c = &l->cells[variant][step], *before = c - 1;
    return before->seen == l->ranks && before->block == c->block &&
           ledger_kind(variant, before->flags) == ledger_kind(variant, c->flags);
}

static void collect(struct ledger *l, int variant, struct account_series *series)
{
    int32_t block[ACCOUNT_KINDS] = {-1, -1, -1, -1, -1};
    for (int64_t i = 0; i < l->n[variant]; i++) {
        struct cell *c = &l->cells[variant][i];
        l->n_incomplete += c->seen > 0 && c->seen != l->ranks;
        if (c->seen != l->ranks || c->flags & (STEP_WARM_UP | STEP_LEAD_IN))
            continue;
        if (!follows(l, variant, i))
            continue;
        enum account_kind kind = ledger_kind(variant, c->flags);
        c->measured = true;
        series_add(&series[kind], c, span(c[-1].end_ns, c->end_ns), block[kind] != c->block);
        block[kind] = c->block;
    }
}

void ledger_series(struct ledger *ledger, struct account_series series[ACCOUNT_KINDS])
{
    series_room(&series[ACCOUNT_FULL], ledger->n[VARIANT_FULL]);
    series_room(&series[ACCOUNT_INSTRUMENTED], ledger->n[VARIANT_FULL]);
    series_room(&series[ACCOUNT_GRAPH], ledger->n[VARIANT_FULL]);
    series_room(&series[ACCOUNT_COMPUTE], ledger->n[VARIANT_COMPUTE]);
    series_room(&series[ACCOUNT_COMM], ledger->n[VARIANT_COMM]);
    for (int v = 0; v < VARIANTS; v++)
        collect(ledger, v, series);
    for (int k = 0; k < ACCOUNT_KINDS; k++)
        series_close(&series[k]);
}
