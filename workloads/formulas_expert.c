#include "workloads/formulas_expert.h"

#include <string.h>

#include "base/err.h"
#include "workloads/counts.h"
#include "workloads/formulas_context.h"

static double part(int n)
{
    return (double)(n - 1) / (double)n;
}

bool formula_expert_apart(const struct degrees *d)
{
    return d->ep > 1 || d->etp != d->tp;
}

double formula_expert_elements(const struct model *m, const struct degrees *d)
{
    return 3.0 * (double)(m->hidden * m->expert_ffn * m->experts) / (d->ep * d->etp);
}

bool formula_expert_skips(const struct model *m, const struct degrees *d)
{
    return m->experts > 0 && d->etp != d->tp && m->shared_experts == 0;
}

double formula_expert_logits(const struct model *m, const struct degrees *d, const struct policy *p)
{
    double layers = (double)m->layers + formula_recomputed(m, p, RECOMPUTE_FULL);
    return m->experts > 0 && d->etp != d->tp
               ? 4.0 * layers * (double)(p->micro_batch * m->sequence * m->experts) / d->cp
               : 0;
}

double formula_expert_context(const struct model *m, const struct degrees *d,
                              const struct policy *p)
{
    double layers = (double)m->layers + formula_recomputed(m, p, RECOMPUTE_FULL);
    return part(d->cp) * 4.0 * layers * (double)(p->micro_batch * m->sequence * m->experts);
}

double formula_expert_scalars(const struct degrees *d)
{
    return d->ep > 1 && d->etp == d->tp ? 1 : 0;
}

double formula_expert_gradient(const struct model *m, const struct degrees *d)
{
    int n = d->tp * d->cp * d->dp / (d->ep * d->etp);
    bool sums = m->experts > 0 && formula_expert_apart(d);
    return sums ? 2 * part(n) * (double)m->layers * formula_expert_elements(m, d) : 0;
}

/* Forward: product and softmax of the router, permute, three grouped ops, combine; backward: gradients
 * of the combine, four of the products, of the activation and the router, which has three more, and
 * the sum of rows; shared experts: three and five. All but the combine and the shared experts' last
 * product is made again. */
void formula_expert_ops(const struct model *m, const struct degrees *d, const struct policy *p,
                        struct formula_expert *out)
{
    bool shared = m->shared_experts > 0, narrow = p->dtype == DTYPE_BF16;
    double gathers = (d->etp != d->tp) + (d->cp > 1), exchanges = d->ep > 1 ? 2 : 0;
    double counts = routing_is_dropless(&p->routing); /* the host waits, behind an exchange */
    out->forward = 7 + (shared ? 3 : 0) + counts;
    out->again = out->forward - 1 - shared;
    out->backward = 10 + narrow + (shared ? 5 : 0);
    out->calls = gathers + counts * (d->ep > 1) + 2 * exchanges;
    out->calls_again = gathers + counts * (d->ep > 1) + exchanges;
}

double formula_expert_counts(const struct model *m, const struct degrees *d, const struct policy *p)
{
    double micro_batches = (double)(p->global_batch / (d->dp * p->micro_batch));
    double layers = (double)m->layers + formula_recomputed(m, p, RECOMPUTE_FULL);
    return micro_batches * layers * d->tp * d->cp * d->dp;
}

/* ---- rows that travel ---- */

struct walk {
    const struct model *m;
    const struct degrees *d;
    const struct policy *p;
    struct layout layout; /* of the rank that sends */
    int ranks_per_node, micro_batches;
    int64_t slots; /* of an expert in a sequence; 0: all */
    double inside, across;
};

static void add(struct walk *w, int member, double bytes)
{
    const struct group *ep = &w->layout.group[AXIS_EP];
    int home = w->layout.rank / w->ranks_per_node;
    if (member == ep->me)
        return;
    if (group_rank(ep, member) / w->ranks_per_node == home)
        w->inside += bytes;
    else
        w->across += bytes;
}

/* Positions of a run that a rank of cp holds: Ulysses gives it one, the others two. */
static int64_t run_of(const struct walk *w)
{
    int runs = w->d->cp == 1 ? 1 : w->p->cp_kind == CP_ULYSSES ? w->d->cp : 2 * w->d->cp;
    return w->m->sequence / runs;
}

static bool sends(const struct walk *w, int64_t token)
{
    int64_t s = w->m->sequence, run = run_of(w), n = token % s / run, cp = w->d->cp;
    int64_t lead = s / cp * w->p->micro_batch / w->d->tp / w->p->tp_chunks;
    int64_t row = token / s * (s / cp) + (n < cp ? 0 : run) + token % run;
    if ((n < cp ? n : 2 * cp - 1 - n) != w->layout.group[AXIS_CP].me)
        return false;
    return w->d->etp == w->d->tp || row / lead % w->d->tp == w->layout.group[AXIS_TP].me;
}

/* Token by token: the rows of one micro-batch of one layer. */
static void count_tokens(struct walk *w, const struct shape_route *route, int micro, double bytes)
{
    int64_t s = w->m->sequence, all = s * w->p->micro_batch;
    int64_t first = (w->layout.group[AXIS_DP].me * w->micro_batches + micro) * all;
    int32_t taken[TOP_K_MOST];
    int64_t used[EXPERTS_MOST];
    for (int64_t t = 0; t < all; t++) {
        if (t % s == 0)
            memset(used, 0, sizeof used);
        routing_take(route, first + t, taken);
        for (int j = 0; j < route->top_k; j++)
            if ((w->slots == 0 || used[taken[j]]++ < w->slots) && sends(w, t))
                add(w, taken[j] / ((int)w->m->experts / w->d->ep), bytes);
    }
}

/* That a rank routes in a micro-batch. */
static int64_t rows_of(const struct walk *w)
{
    int64_t all = w->m->sequence / w->d->cp * w->p->micro_batch;
    return w->d->etp == w->d->tp ? all : all / w->d->tp;
}

/* Rows that a rank sends to each of the group, where that is the same for all; -1: it is not. */
static double rows_to_each(const struct walk *w)
{
    const struct model *m = w->m;
    int64_t rows = rows_of(w);
    if (w->p->routing.kind == ROUTING_LEARNED) {
        int64_t each = w->slots * w->p->micro_batch;
        return (double)((each < rows ? each : rows) * m->experts / w->d->ep);
    }
    if (w->p->routing.kind == ROUTING_BALANCED && w->d->etp == w->d->tp &&
        run_of(w) * m->top_k % m->experts == 0)
        return (double)(rows * m->top_k) / w->d->ep;
    return -1;
}

/* Dropless: what even routing would send, and the numbers that say so, of one micro-batch. */
static void count_even(struct walk *w, double bytes, double exchanges)
{
    int experts = (int)w->m->experts, here = experts / w->d->ep;
    int64_t counts[EXPERTS_MOST];
    counts_even(rows_of(w) * w->m->top_k, experts, counts);
    for (int e = 0; e < experts; e++)
        add(w, e / here, (double)counts[e] * bytes + exchanges * 4);
}

static void count_layer(struct walk *w, int layer)
{
    const struct policy *p = w->p;
    uint32_t threshold[EXPERTS_MOST];
    struct shape_route route = {.experts = (int)w->m->experts,
                                .top_k = (int)w->m->top_k,
                                .kind = p->routing.kind,
                                .key = routing_key(&p->routing, layer),
                                .threshold = threshold};
    bool again = p->recompute == RECOMPUTE_FULL && layer % p->recompute_every == 0;
    bool dropless = routing_is_dropless(&p->routing);
    double each = dropless ? -1 : rows_to_each(w);
    double bytes = (again ? 6.0 : 4.0) * (double)w->m->hidden * (p->dtype == DTYPE_BF16 ? 2 : 4);
    if (each >= 0) {
        for (int member = 0; member < w->d->ep; member++)
            add(w, member, w->micro_batches * each * bytes);
        return;
    }
    for (int micro = 0; dropless && micro < w->micro_batches; micro++)
        count_even(w, bytes, again ? 2 : 1);
    if (dropless)
        return;
    routing_thresholds(&p->routing, layer, route.experts, threshold);
    for (int micro = 0; micro < w->micro_batches; micro++)
        count_tokens(w, &route, micro, bytes);
}

void formula_expert_exchange(const struct model *m, const struct degrees *d, const struct policy *p,
                             int ranks_per_node, double *inside, double *across)
{
    int world = d->tp * d->cp * d->dp * d->pp;
    struct walk w = {.m = m,
                     .d = d,
                     .p = p,
                     .ranks_per_node = ranks_per_node,
                     .micro_batches = (int)(p->global_batch / (d->dp * p->micro_batch))};
    w.slots = routing_capacity(&p->routing, m->sequence, (int)m->experts, (int)m->top_k);
    for (int rank = 0; rank < world && d->ep > 1; rank++) {
        if (layout_init(&w.layout, 1, world, rank, d) != 0)
            BUG("rank %d of a legal layout has none", rank);
        int64_t first = m->layers * w.layout.group[AXIS_PP].me / d->pp;
        int64_t end = m->layers * (w.layout.group[AXIS_PP].me + 1) / d->pp;
        for (int64_t l = first; l < end; l++)
            count_layer(&w, (int)l);
    }
    *inside = w.inside;
    *across = w.across;
}

double formula_expert_bytes(const struct model *m, const struct degrees *d, const struct policy *p)
{
    int world = d->tp * d->cp * d->dp * d->pp;
    double inside, across;
    if (m->experts == 0 || d->ep == 1)
        return 0;
    formula_expert_exchange(m, d, p, world, &inside, &across);
    return (inside + across) / world + 2 * part(d->ep) * 8;
}
