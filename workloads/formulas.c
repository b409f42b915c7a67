#include "workloads/formulas.h"

#include <stdbool.h>

/* ---- sizes ---- */

static bool has_biases(const struct model *m)
{
    return m->style == MODEL_GPT2;
}

static double padded_rows(const struct model *m)
{
    return (double)((m->vocabulary + m->pad - 1) / m->pad * m->pad);
}

/* Of each replicated k and v head as many ranks have one as tp exceeds the heads. */
static double kv_elements(const struct model *m, int tp)
{
    double heads = m->kv_heads < tp ? 1 : (double)m->kv_heads / tp;
    return 2 * heads * (double)m->head * (double)m->hidden;
}

/* Norm weights and biases that every rank of tp holds whole. */
static double small_elements(const struct model *m)
{
    return (has_biases(m) ? 6 : 2) * (double)m->hidden;
}

static double final_elements(const struct model *m)
{
    return (has_biases(m) ? 2 : 1) * (double)m->hidden;
}

static double layer_elements(const struct model *m, int tp)
{
    double h = (double)m->hidden, q = (double)(m->heads * m->head), f = (double)m->ffn;
    double split = (2 * h * q + (m->style == MODEL_LLAMA ? 3 : 2) * h * f) / tp;
    if (has_biases(m))
        split += (q + 2 * (double)(m->kv_heads * m->head) + f) / tp;
    return split + kv_elements(m, tp) + small_elements(m);
}

static double embedding_elements(const struct model *m, int tp)
{
    double positions = m->style == MODEL_GPT2 ? (double)m->sequence : 0;
    return (padded_rows(m) / tp + positions) * (double)m->hidden;
}

static double head_elements(const struct model *m, int tp)
{
    return final_elements(m) + (m->tied ? 0 : padded_rows(m) / tp * (double)m->hidden);
}

double formula_parameters(const struct model *m, int tp)
{
    return (double)m->layers * layer_elements(m, tp) + embedding_elements(m, tp) +
           head_elements(m, tp);
}

/* ---- the step ---- */

static double micro_batches(const struct degrees *d, const struct policy *p)
{
    return (double)(p->global_batch / (d->dp * p->micro_batch));
}

/* Layers whose forward, or attention, is made again. */
static double recomputed(const struct model *m, const struct policy *p, enum recompute what)
{
    return p->recompute == what ? (double)((m->layers - 1) / p->recompute_every + 1) : 0;
}

/* Micro-batches of a step in which gradients leave a rank. */
static double hand_overs(const struct degrees *d, const struct policy *p)
{
    bool every = d->shard > 1 && p->shard_stage > 1 && p->reduce_every;
    return every ? micro_batches(d, p) : 1;
}

static double wire_size(const struct policy *p)
{
    return p->grad_dtype == DTYPE_BF16 ? 2 : 4;
}

static double part(int n)
{
    return (double)(n - 1) / (double)n;
}

double formula_hardware_flops(const struct model *m, const struct policy *p)
{
    double s = (double)m->sequence, h = (double)m->hidden, q = (double)(m->heads * m->head);
    double scores = 2 * s * s * q; /* q k^T and p v, causal half */
    double qkv = q + 2 * (double)(m->kv_heads * m->head);
    double into_mlp = (m->style == MODEL_LLAMA ? 2 : 1) * (double)m->ffn;
    double layer = 2 * s * h * (qkv + q + into_mlp) + scores; /* all but the last product */
    return model_flops_per_sequence(m) + recomputed(m, p, RECOMPUTE_FULL) * layer +
           recomputed(m, p, RECOMPUTE_SELECTIVE) * scores;
}

/* ---- bytes ---- */

static double tensor_bytes(const struct model *m, const struct degrees *d, const struct policy *p)
{
    double rows = (double)(p->micro_batch * m->sequence), layers = (double)m->layers;
    double matrix = rows * (double)m->hidden * (p->dtype == DTYPE_BF16 ? 2 : 4);
    double again = recomputed(m, p, RECOMPUTE_FULL), gathers, small = 0, kv = 0;
    if (p->sequence_parallel) {
        gathers = 10 * layers + 4 + 3 * again;
        small = 4 * (layers * small_elements(m) + final_elements(m));
    } else {
        gathers = 2 * (4 * layers + 2 + again);
    }
    if (d->tp > m->kv_heads)
        kv = 4 * layers * 2 * (double)(m->kv_heads * m->head) * (double)m->hidden;
    double statistics = 12 * rows * d->tp;
    return part(d->tp) * (micro_batches(d, p) * (gathers * matrix + statistics) +
                          2 * hand_overs(d, p) * (small + kv) + 2 * 4 * 8);
}

/* A unit's elements, padded so that each rank of shard has a multiple of 16. */
static double padded_unit(double elements, int shard)
{
    int64_t unit = 16 * (int64_t)shard;
    return (double)(((int64_t)elements + unit - 1) / unit * unit);
}

static double shard_bytes(const struct model *m, const struct degrees *d, const struct policy *p)
{
    double layers = (double)m->layers * padded_unit(layer_elements(m, d->tp), d->shard);
    double embedding = padded_unit(embedding_elements(m, d->tp), d->shard);
    double head = padded_unit(head_elements(m, d->tp), d->shard);
    double all = layers + embedding + head, gathered = all;
    if (p->shard_stage == 3 && p->fsdp_reshard)
        gathered = 2 * layers + head + (m->tied ? 2 : 1) * embedding;
    if (p->shard_stage == 3)
        gathered *= micro_batches(d, p);
    double element = p->dtype == DTYPE_BF16 ? 2 : 4;
    return part(d->shard) * (element * gathered + hand_overs(d, p) * wire_size(p) * all + 2 * 8);
}

static double replicate_bytes(const struct model *m, const struct degrees *d,
                              const struct policy *p)
{
    double all = (double)m->layers * padded_unit(layer_elements(m, d->tp), d->shard) +
                 padded_unit(embedding_elements(m, d->tp), d->shard) +
                 padded_unit(head_elements(m, d->tp), d->shard);
    return 2 * part(d->dp / d->shard) * wire_size(p) * all / d->shard;
}

double formula_bytes(const struct model *m, const struct degrees *d, const struct policy *p,
                     enum axis axis)
{
    switch ((int)axis) {
    case AXIS_TP:
        return d->tp > 1 ? tensor_bytes(m, d, p) : 0;
    case AXIS_DP: {
        double gradient = d->shard > 1 ? 0 : wire_size(p) * formula_parameters(m, d->tp);
        return 2 * part(d->dp) * (gradient + 3 * 8);
    }
    case AXIS_SHARD:
        return d->shard > 1 ? shard_bytes(m, d, p) : 0;
    case AXIS_REPLICATE:
        return d->shard > 1 ? replicate_bytes(m, d, p) : 0;
    default:
        return 0;
    }
}
