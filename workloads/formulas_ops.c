#include "workloads/formulas.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/err.h"
#include "workloads/formulas_context.h"
#include "workloads/formulas_expert.h"

/* ---- buckets: what closes as tensors finish ---- */

/* A tensor of a rank: elements, and how many ranks of tp hold the same; 0: counted elsewhere. */
struct held {
    double elements;
    int copies;
    bool apart; /* an expert whose gradient is summed over edp */
    int unit;   /* what begins its gradients together: a layer, the head, the embeddings */
};

struct tensors {
    struct held *held;
    int n, unit;
};

static void hold(struct tensors *list, double elements, int copies)
{
    list->held[list->n++] = (struct held){elements, copies, false, list->unit};
}

static void hold_experts(struct tensors *list, const struct model *m, const struct degrees *d)
{
    double each = (double)(m->hidden * m->expert_ffn) / d->etp;
    for (int64_t i = 0; i < 2 * m->experts / d->ep; i++) {
        hold(list, i < m->experts / d->ep ? each : 2 * each, 1);
        list->held[list->n - 1].apart = formula_expert_apart(d);
    }
}

static void hold_layer(struct tensors *list, const struct model *m, const struct degrees *d)
{
    int tp = d->tp;
    double h = (double)m->hidden, f = formula_common_width(m), q = (double)(m->heads * m->head);
    double kv = 2 * (double)(m->kv_heads * m->head);
    bool gpt2 = m->style == MODEL_GPT2;
    hold_experts(list, m, d);
    if (f > 0) {
        hold(list, h * f / tp, 1);
        hold(list, (gpt2 ? 1 : 2) * h * f / tp, 1);
    }
    if (gpt2)
        hold(list, f / tp, 1);
    hold(list, h * q / tp, 1);
    if (tp > m->kv_heads) {
        hold(list, h * q / tp, 1);
        hold(list, 2 * (double)m->head * h, tp / (int)m->kv_heads);
    } else {
        hold(list, h * (q + kv) / tp, 1);
    }
    if (gpt2)
        hold(list, (q + kv) / tp, 1);
    if (m->experts > 0)
        hold(list, h * (double)m->experts, tp);
    for (int i = 0; i < (gpt2 ? 6 : 2); i++)
        hold(list, h, tp);
}

/* Layers of a stage: of those that do not go up, one to the middle stages in order, then to the
 * first. */
static int64_t layers_of(const struct model *m, int pp, int stage)
{
    int64_t extra = m->layers % pp;
    bool middle = stage > 0 && stage < pp - 1;
    return m->layers / pp + (middle ? stage <= extra : stage == 0 && extra > 0 && extra == pp - 1);
}

static void hold_stage(struct tensors *list, const struct model *m, const struct degrees *d,
                       int stage)
{
    bool first = stage == 0, last = stage == d->pp - 1;
    double h = (double)m->hidden;
    double table = (double)((m->vocabulary + m->pad - 1) / m->pad * m->pad) * h / d->tp;
    list->n = list->unit = 0;
    if (last && !m->tied)
        hold(list, table, 1);
    for (int i = 0; last && i < (m->style == MODEL_GPT2 ? 2 : 1); i++)
        hold(list, h, d->tp);
    list->unit++;
    for (int64_t l = 0; l < layers_of(m, d->pp, stage); l++, list->unit++)
        hold_layer(list, m, d);
    if (first && m->style == MODEL_GPT2)
        hold(list, (double)m->sequence * h, d->tp);
    if (first)
        hold(list, table, 1);
    else if (last && m->tied)
        hold(list, table, 0);
}

/* Of what goes over the replicas, and of what goes over edp. */
struct buckets {
    int n[2];   /* all-reduces */
    int sums;   /* runs of neighbours in one bucket that rank `me` of tp counts */
    int begins; /* runs of neighbours in one bucket and unit: cleared as the unit's backward begins */
};

static struct buckets count_buckets(const struct tensors *list, const struct policy *p, int me,
                                    const bool parallel[2], bool passing)
{
    struct buckets out = {{0}, 0, 0};
    double bytes = p->grad_dtype == DTYPE_BF16 ? 2 : 4, filled[2] = {0};
    bool running = false, begun = false;
    for (int i = 0; i < list->n; i++) {
        const struct held *held = &list->held[i];
        int way = held->apart;
        double limit = (double)p->bucket_bytes;
        if (out.n[way] == 0 && limit > 1 << 20)
            limit = 1 << 20;
        bool counted = held->copies > 0 && me % held->copies == 0;
        bool same = i > 0 && held->apart == list->held[i - 1].apart;
        bool same_unit = same && held->unit == list->held[i - 1].unit;
        running = running && (passing ? same_unit : same);
        out.sums += counted && !running;
        out.begins += !(begun && same_unit);
        running = counted;
        begun = true;
        filled[way] += bytes * held->elements;
        if (parallel[way] && filled[way] >= limit) {
            out.n[way]++;
            filled[way] = 0;
            running = begun = false;
        }
    }
    for (int way = 0; way < 2; way++)
        out.n[way] += filled[way] > 0;
    return out;
}

/* ---- operations of one rank ---- */

/* Of a micro-batch, more than with one stage: the batch on the last too, sums at boundaries, sends and
 * receives both ways; zb-h1 copies what two products of a layer leave for later, of which experts take
 * the place of one: what they leave comes to where it stays. */
static double stage_ops(const struct model *m, const struct degrees *d, const struct policy *p)
{
    int chunks = p->schedule == SCHEDULE_INTERLEAVED ? p->virtual_stages : 1;
    double boundaries = d->pp * chunks - 1;
    double later = (double)m->layers;
    if (p->recompute != RECOMPUTE_NONE)
        later -= (double)((m->layers - 1) / p->recompute_every + 1);
    bool copies = p->schedule == SCHEDULE_ZB_H1 && !(d->tp > 1 && p->sequence_parallel);
    return d->pp > 1 ? 1 + 5 * boundaries + (copies ? (m->experts > 0 ? 1 : 2) * later : 0) : 0;
}

/* Of a micro-batch on all stages, on the compute stream, and around attention on that of cp. */
static double compute_ops(const struct model *m, const struct degrees *d, const struct policy *p)
{
    bool gpt2 = m->style == MODEL_GPT2;
    double chunks = p->tp_chunks, turns = gpt2 ? 0 : 1, biases = gpt2 ? 4 : 0;
    struct formula_context attention;
    formula_context_ops(m, d, p, &attention);
    struct formula_expert mlp = {2 * chunks + 1, 2 * chunks + 2 + 1, chunks + 1, 0, 0}; /* dense */
    if (m->experts > 0)
        formula_expert_ops(m, d, p, &mlp);
    double rest = 2 + 2 * chunks + turns; /* norms, products */
    double forward = rest + mlp.forward + attention.forward + mlp.calls;
    double backward = 2 * chunks + 2 + biases + mlp.backward + 2 + attention.backward + turns;
    double every = p->recompute_every, again = 0;
    double layers_again = (double)((m->layers - 1) / (int64_t)every + 1);
    if (p->recompute == RECOMPUTE_FULL)
        again = layers_again * (rest + mlp.again + attention.again_layer + mlp.calls_again);
    else if (p->recompute == RECOMPUTE_SELECTIVE)
        again = layers_again * attention.again_attention;
    else if (p->recompute == RECOMPUTE_MLP)
        again = layers_again;
    double outside = 1 + 1 + 1 + chunks + 1 + chunks + 1 + 1 + 1; /* input ... embed-grad */
    outside += 4.0 * (p->head_chunks - 1); /* product, loss, dx, dW of each more */
    return (double)m->layers * (forward + backward) + again + outside + (d->tp > 1 ? 1 : 0) +
           stage_ops(m, d, p);
}

/* Calls of a micro-batch on tp. */
static double tensor_calls(const struct model *m, const struct degrees *d, const struct policy *p)
{
    double chunks = p->tp_chunks, layers = (double)m->layers, again = 0;
    if (p->recompute == RECOMPUTE_FULL)
        again = (double)((m->layers - 1) / p->recompute_every + 1);
    if (formula_expert_skips(m, d))
        return chunks * (5 * layers + 4 + 2 * again + (d->pp > 1)) + 1;
    if (p->sequence_parallel)
        return chunks * (10 * layers + 4 + 3 * again + (d->pp > 1)) + 1;
    return chunks * (4 * layers + 2 + again) + 1;
}

/* Once a step: sums of small gradients, of replicated k and v (clear, in, call, clear, out), of
 * scalars. */
static double tensor_ops(const struct model *m, const struct degrees *d, const struct policy *p)
{
    double layers = (double)m->layers;
    double small = p->sequence_parallel ? layers + 1 : m->experts > 0 ? layers : 0;
    double replicated = d->tp > m->kv_heads ? layers * (1 + 2 + 1 + 1 + 2) : 0;
    return small + replicated + d->pp;
}

/* Once a step: clears and clip, squares, updates, buckets, sums of scalars; of the ranks of one tp
 * coordinate on all stages. */
static double update_ops(const struct model *m, const struct degrees *d, const struct policy *p,
                         int me, struct tensors *list)
{
    int edp = d->tp * d->cp * d->dp / (d->ep * d->etp);
    bool parallel[2] = {d->dp * d->cp > 1, edp > 1}, narrow = p->grad_dtype == DTYPE_BF16;
    double ops = parallel[0] ? 1 : 0; /* the loss, on the last stage */
    bool passing = d->pp == 1 && p->global_batch == d->dp * p->micro_batch;
    if (m->experts > 0) /* loads are cleared, squares summed */
        ops += d->pp * (1 + (d->ep > 1));
    if (d->pp > 1)
        ops += d->pp + (m->tied ? 2 : 0); /* scalars; the two tables */
    for (int stage = 0; stage < d->pp; stage++) {
        hold_stage(list, m, d, stage);
        struct buckets buckets = count_buckets(list, p, me, parallel, passing);
        ops += 2 + (passing ? buckets.begins : 1) + buckets.sums + list->n;
        for (int way = 0; way < 2; way++)
            ops += buckets.n[way] * (parallel[way] + (parallel[0] && narrow));
    }
    return ops;
}

double formula_ops(const struct model *m, const struct degrees *d, const struct policy *p)
{
    double micro_batches = (double)(p->global_batch / (d->dp * p->micro_batch)), all = 0;
    struct tensors list = {0};
    if (d->shard > 1)
        return -1;
    list.held = must_alloc((size_t)((15 + 2 * m->experts) * m->layers + 5), sizeof *list.held);
    for (int me = 0; me < d->tp; me++) {
        all += micro_batches * compute_ops(m, d, p) + update_ops(m, d, p, me, &list);
        if (d->tp > 1)
            all += micro_batches * tensor_calls(m, d, p) + tensor_ops(m, d, p);
    }
    free(list.held);
    return all * d->dp * d->cp;
}
