#include "workloads/formulas_context.h"

#include <math.h>

/* Elements of the heads that one rank of tp has, a row. */
static double heads_width(int64_t heads, int64_t head, int tp)
{
    return (heads < tp ? 1.0 : (double)heads / tp) * (double)head;
}

double formula_recomputed(const struct model *m, const struct policy *p, enum recompute what)
{
    return p->recompute == what ? (double)((m->layers - 1) / p->recompute_every + 1) : 0;
}

/* Every exchange moves all but a rank's own share of something: of keys and values on their way
 * through the ring or gathered, of rows and heads in an all-to-all. */
double formula_context_bytes(const struct model *m, const struct degrees *d, const struct policy *p)
{
    double layers = (double)m->layers, attention = formula_recomputed(m, p, RECOMPUTE_SELECTIVE);
    double whole = formula_recomputed(m, p, RECOMPUTE_FULL), n = d->cp;
    double element = p->dtype == DTYPE_BF16 ? 2 : 4;
    double rows = element * (double)(p->micro_batch * m->sequence) / n;
    double q = rows * heads_width(m->heads, m->head, d->tp);
    double kv = 2 * rows * heads_width(m->kv_heads, m->head, d->tp);
    if (d->cp == 1)
        return 0;
    if (p->cp_kind == CP_ULYSSES) /* a kv head at least for each rank */
        kv = fmax(kv, 2 * rows * n * (double)m->head);
    if (p->cp_kind == CP_ULYSSES)
        return (n - 1) / n * (2 * layers * (q + kv + q) + whole * (q + kv + q) + attention * q);
    return (n - 1) * kv * (3 * layers + whole + attention);
}

static void ring_ops(double n, struct formula_context *out)
{
    double forward = 1 + n + (n - 1);          /* own keys, blocks, merges */
    double backward = 1 + 1 + n + (n - 1) + 1; /* own keys, clear, blocks, sums, put back */
    out->forward = forward + (n - 1);          /* exchanges */
    out->backward = backward + (n - 1) / 2     /* blocks of half the keys: clear the other */
                    + 2 * (n - 1);
    out->again_attention = out->again_layer = out->forward;
}

static void gather_ops(struct formula_context *out)
{
    out->forward = 1 + 1 + 2 + 2;                  /* own keys, gather, in order, blocks */
    out->backward = 1 + 1 + 2 + 1 + 2 + 2 + 1 + 1; /* the same, clear; back, scatter, put back */
    out->again_attention = out->again_layer = out->forward;
}

static void ulysses_ops(const struct model *m, const struct degrees *d, const struct policy *p,
                        struct formula_context *out)
{
    double turn = p->micro_batch > 1 ? 1 : 0; /* samples of several ranks lie apart */
    double copies = fmax(1, d->cp / fmax(1, (double)(m->kv_heads / d->tp)));
    double spread = 1 + 2 * copies + 1 + turn, attention = 1 + turn + 1 + 1;
    out->forward = out->again_layer = spread + attention;
    out->again_attention = attention;
    out->backward = (1 + 1 + turn) + 1 + (turn + 1 + 1 + 2 * copies);
    if (copies > 1)
        out->backward += (copies - 1) + 1; /* summed, put back */
}

void formula_context_ops(const struct model *m, const struct degrees *d, const struct policy *p,
                         struct formula_context *out)
{
    *out = (struct formula_context){1, 1, 1, 1};
    if (d->cp == 1)
        return;
    if (p->cp_kind == CP_ULYSSES)
        ulysses_ops(m, d, p, out);
    else if (p->cp_kind == CP_ALL_GATHER)
        gather_ops(out);
    else
        ring_ops(d->cp, out);
}
