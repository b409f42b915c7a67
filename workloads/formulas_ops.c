#include "workloads/formulas.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/err.h"

/* ---- buckets: what closes as tensors finish ---- */

/* A tensor of a rank: elements, and how many ranks of tp hold the same. */
struct held {
    double elements;
    int copies;
};

struct tensors {
    struct held *held;
    int n;
};

static void hold(struct tensors *list, double elements, int copies)
{
    list->held[list->n++] = (struct held){elements, copies};
}

static void hold_layer(struct tensors *list, const struct model *m, int tp)
{
    double h = (double)m->hidden, f = (double)m->ffn, q = (double)(m->heads * m->head);
    double kv = 2 * (double)(m->kv_heads * m->head);
    bool gpt2 = m->style == MODEL_GPT2;
    hold(list, h * f / tp, 1);
    hold(list, (gpt2 ? 1 : 2) * h * f / tp, 1);
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
    for (int i = 0; i < (gpt2 ? 6 : 2); i++)
        hold(list, h, tp);
}

static void hold_all(struct tensors *list, const struct model *m, int tp)
{
    double h = (double)m->hidden;
    double table = (double)((m->vocabulary + m->pad - 1) / m->pad * m->pad) * h / tp;
    list->held = must_alloc((size_t)(14 * m->layers + 5), sizeof *list->held);
    if (!m->tied)
        hold(list, table, 1);
    for (int i = 0; i < (m->style == MODEL_GPT2 ? 2 : 1); i++)
        hold(list, h, tp);
    for (int64_t l = 0; l < m->layers; l++)
        hold_layer(list, m, tp);
    if (m->style == MODEL_GPT2)
        hold(list, (double)m->sequence * h, tp);
    hold(list, table, 1);
}

struct buckets {
    int n;    /* all-reduces */
    int sums; /* runs within them that rank `me` of tp counts */
};

static struct buckets count_buckets(const struct tensors *list, const struct policy *p, int me,
                                    bool parallel)
{
    struct buckets out = {0};
    double bytes = p->grad_dtype == DTYPE_BF16 ? 2 : 4, filled = 0;
    bool running = false;
    for (int i = 0; i < list->n; i++) {
        double limit = (double)p->bucket_bytes;
        if (out.n == 0 && limit > 1 << 20)
            limit = 1 << 20;
        bool counted = me % list->held[i].copies == 0;
        out.sums += counted && !running;
        running = counted;
        filled += bytes * list->held[i].elements;
        if (i == list->n - 1 || (parallel && filled >= limit)) {
            out.n++;
            filled = 0;
            running = false;
        }
    }
    return out;
}

/* ---- operations of one rank ---- */

/* Of a micro-batch, on the compute stream. */
static double compute_ops(const struct model *m, const struct degrees *d, const struct policy *p)
{
    bool gpt2 = m->style == MODEL_GPT2;
    double chunks = p->tp_chunks, turns = gpt2 ? 0 : 1, biases = gpt2 ? 4 : 0;
    double forward = 2 + 4 * chunks + turns + 1 + 1; /* norms, products, attention, activation */
    double backward = 4 * chunks + 4 + biases + 1 + 2 + 1 + turns;
    double every = p->recompute_every, again = 0;
    double layers_again = (double)((m->layers - 1) / (int64_t)every + 1);
    if (p->recompute == RECOMPUTE_FULL)
        again = layers_again * (forward - chunks);
    else if (p->recompute == RECOMPUTE_SELECTIVE)
        again = layers_again;
    double outside = 1 + 1 + 1 + chunks + 1 + chunks + 1 + 1 + 1; /* input ... embed-grad */
    return (double)m->layers * (forward + backward) + again + outside + (d->tp > 1 ? 1 : 0);
}

/* Calls of a micro-batch on tp. */
static double tensor_calls(const struct model *m, const struct policy *p)
{
    double chunks = p->tp_chunks, layers = (double)m->layers, again = 0;
    if (p->recompute == RECOMPUTE_FULL)
        again = (double)((m->layers - 1) / p->recompute_every + 1);
    if (p->sequence_parallel)
        return chunks * (10 * layers + 4 + 3 * again) + 1;
    return chunks * (4 * layers + 2 + again) + 1;
}

/* Once a step: sums of small gradients, of replicated k and v (clear, in, call, clear, out), of
 * scalars. */
static double tensor_ops(const struct model *m, const struct degrees *d, const struct policy *p)
{
    double layers = (double)m->layers;
    double small = p->sequence_parallel ? layers + 1 : 0;
    double replicated = d->tp > m->kv_heads ? layers * (1 + 2 + 1 + 1 + 2) : 0;
    return small + replicated + 1;
}

double formula_ops(const struct model *m, const struct degrees *d, const struct policy *p)
{
    double micro_batches = (double)(p->global_batch / (d->dp * p->micro_batch)), all = 0;
    struct tensors list = {0};
    bool parallel = d->dp > 1;
    if (d->shard > 1)
        return -1;
    hold_all(&list, m, d->tp);
    for (int me = 0; me < d->tp; me++) {
        struct buckets buckets = count_buckets(&list, p, me, parallel);
        double casts = p->grad_dtype == DTYPE_BF16 ? buckets.n : 0;
        double rank = micro_batches * compute_ops(m, d, p) + 3 + buckets.sums + list.n;
        if (parallel)
            rank += buckets.n + casts + 1;
        if (d->tp > 1)
            rank += micro_batches * tensor_calls(m, p) + tensor_ops(m, d, p);
        all += rank;
    }
    free(list.held);
    return all * d->dp;
}
