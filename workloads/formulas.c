#include "workloads/formulas.h"

#include <stdbool.h>

#include "workloads/formulas_context.h"
#include "workloads/formulas_expert.h"

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
    return (has_biases(m) ? 6 : 2) * (double)m->hidden + (double)(m->experts * m->hidden);
}

static double final_elements(const struct model *m)
{
    return (has_biases(m) ? 2 : 1) * (double)m->hidden;
}

/* Inner width of the MLP that every token takes. */
double formula_common_width(const struct model *m)
{
    return (double)(m->experts > 0 ? m->shared_experts * m->expert_ffn : m->ffn);
}

/* Without experts. */
static double layer_elements(const struct model *m, int tp)
{
    double h = (double)m->hidden, q = (double)(m->heads * m->head), f = formula_common_width(m);
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

/* Micro-batches of a step in which gradients leave a rank. */
static double hand_overs(const struct degrees *d, const struct policy *p)
{
    bool every = d->shard > 1 && p->shard_stage > 1 && policy_reduces_every(p, d->pp);
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
    double into_mlp = (m->style == MODEL_LLAMA ? 2 : 1) * formula_common_width(m);
    if (m->experts > 0) /* experts whole, since gates need their outputs again, and the router */
        into_mlp += (double)(3 * m->top_k * m->expert_ffn + m->experts);
    double layer = 2 * s * h * (qkv + q + into_mlp) + scores; /* all but the last product */
    return model_flops_per_sequence(m) + formula_recomputed(m, p, RECOMPUTE_FULL) * layer +
           formula_recomputed(m, p, RECOMPUTE_SELECTIVE) * scores;
}

/* ---- bytes ---- */

/* Embedding on the first and, tied, on the last stage too: elements of that copy. */
static double second_table(const struct model *m, const struct degrees *d)
{
    return m->tied && d->pp > 1 ? padded_rows(m) / d->tp * (double)m->hidden : 0;
}

static double tensor_bytes(const struct model *m, const struct degrees *d, const struct policy *p)
{
    double rows = (double)(p->micro_batch * m->sequence) / d->cp, layers = (double)m->layers;
    double matrix = rows * (double)m->hidden * (p->dtype == DTYPE_BF16 ? 2 : 4);
    double again = formula_recomputed(m, p, RECOMPUTE_FULL), gathers, small = 0, kv = 0;
    if (formula_expert_skips(m, d)) {
        gathers = 5 * layers + 4 + 2 * again;
        small = 4 * (layers * small_elements(m) + final_elements(m));
    } else if (p->sequence_parallel) {
        gathers = 10 * layers + 4 + 3 * again;
        small = 4 * (layers * small_elements(m) + final_elements(m));
    } else {
        gathers = 2 * (4 * layers + 2 + again);
        small = 4 * layers * (double)(m->experts * m->hidden); /* the router's */
    }
    if (d->tp > m->kv_heads)
        kv = 4 * layers * 2 * (double)(m->kv_heads * m->head) * (double)m->hidden;
    double statistics = 12 * rows * d->tp + formula_expert_logits(m, d, p);
    double scalars = 4 + formula_expert_scalars(d);
    if (d->pp > 1 && p->sequence_parallel)
        gathers++; /* the head's input: others came between its forward and its backward */
    return part(d->tp) * ((micro_batches(d, p) * (gathers * matrix + statistics) +
                           2 * hand_overs(d, p) * (small + kv)) /
                              d->pp +
                          2 * scalars * 8);
}

/* A unit's elements, padded so that each rank of shard has a multiple of 16. */
static double padded_unit(double elements, int shard)
{
    int64_t unit = 16 * (int64_t)shard;
    return (double)(((int64_t)elements + unit - 1) / unit * unit);
}

/* Of a layer, and its experts where they go the same way. */
static double layer_unit(const struct model *m, const struct degrees *d)
{
    double experts = formula_expert_apart(d) ? 0 : formula_expert_elements(m, d);
    return layer_elements(m, d->tp) + experts;
}

/* Of all stages. */
static double padded_units(const struct model *m, const struct degrees *d)
{
    double layer = layer_unit(m, d);
    return (double)m->layers * padded_unit(layer, d->shard) +
           padded_unit(embedding_elements(m, d->tp), d->shard) +
           padded_unit(head_elements(m, d->tp), d->shard) +
           padded_unit(second_table(m, d), d->shard);
}

static int expert_copies(const struct degrees *d)
{
    return d->tp * d->cp * d->dp / (d->ep * d->etp);
}

double formula_state(const struct model *m, const struct degrees *d)
{
    double experts = (double)m->layers * formula_expert_elements(m, d);
    bool apart = m->experts > 0 && formula_expert_apart(d);
    if (d->shard == 1)
        return (formula_parameters(m, d->tp) + second_table(m, d) + experts) / d->pp;
    int copies = expert_copies(d);
    double own =
        apart ? (double)m->layers * padded_unit(experts / (double)m->layers, copies) / copies : 0;
    return (padded_units(m, d) / d->shard + own) / d->pp;
}

static double shard_bytes(const struct model *m, const struct degrees *d, const struct policy *p)
{
    double layer = layer_unit(m, d);
    double layers = (double)m->layers * padded_unit(layer, d->shard);
    double embedding = padded_unit(embedding_elements(m, d->tp), d->shard);
    double head = padded_unit(head_elements(m, d->tp), d->shard);
    double all = padded_units(m, d), gathered = all;
    bool reshards = p->shard_stage == 3 && policy_reshards(p, d->pp);
    if (reshards && d->pp == 1) /* the head's forward and backward are one use */
        gathered = 2 * layers + head + (m->tied ? 2 : 1) * embedding;
    else if (reshards)
        gathered =
            2 * layers + embedding + 2 * head + 2 * padded_unit(second_table(m, d), d->shard);
    if (reshards || (p->shard_stage == 3 && d->pp == 1))
        gathered *= micro_batches(d, p);
    double element = p->dtype == DTYPE_BF16 ? 2 : 4;
    return part(d->shard) *
           ((element * gathered + hand_overs(d, p) * wire_size(p) * all) / d->pp + 2 * 8);
}

/* Experts that ep divides are units of their own, over the ranks that hold the same: gathered and
 * reduced as layers are. */
static double expert_bytes(const struct model *m, const struct degrees *d, const struct policy *p)
{
    int edp = expert_copies(d);
    double all = (double)m->layers * padded_unit(formula_expert_elements(m, d), edp);
    bool reshards = p->shard_stage == 3 && policy_reshards(p, d->pp);
    double gathered = (reshards ? 2 : 1) * all, element = p->dtype == DTYPE_BF16 ? 2 : 4;
    if (m->experts == 0 || !formula_expert_apart(d))
        return 0;
    if (reshards || (p->shard_stage == 3 && d->pp == 1))
        gathered *= micro_batches(d, p);
    return part(edp) *
           ((element * gathered + hand_overs(d, p) * wire_size(p) * all) / d->pp + 2 * 8);
}

/* Of an all-reduce among n ranks that hold the same shard each sends part(n) of this. */
static double replicate_bytes(const struct model *m, const struct degrees *d,
                              const struct policy *p)
{
    return 2 * wire_size(p) * padded_units(m, d) / d->shard / d->pp;
}

/* Gradients of what is not sharded, and sums of the loss on the last stage: over dp, or dp with cp. */
static double dense_bytes(const struct model *m, const struct degrees *d, const struct policy *p)
{
    double gradient = wire_size(p) * (formula_parameters(m, d->tp) + second_table(m, d));
    if (!formula_expert_apart(d))
        gradient += wire_size(p) * (double)m->layers * formula_expert_elements(m, d);
    return 2 * part(d->dp * d->cp) * ((d->shard > 1 ? 0 : gradient) + 3 * 8) / d->pp;
}

/* Each of the p v - 1 boundaries is crossed down and up; then 5 sums of 8. */
static double pipeline_bytes(const struct model *m, const struct degrees *d, const struct policy *p)
{
    int chunks = p->schedule == SCHEDULE_INTERLEAVED ? p->virtual_stages : 1;
    double rows = (double)(p->micro_batch * m->sequence) / d->cp;
    double matrix = rows * (double)m->hidden * (p->dtype == DTYPE_BF16 ? 2 : 4);
    if (p->sequence_parallel)
        matrix /= d->tp;
    return 2 * micro_batches(d, p) * (d->pp * chunks - 1) * matrix / d->pp +
           2 * part(d->pp) * 5 * 8;
}

double formula_bytes(const struct model *m, const struct degrees *d, const struct policy *p,
                     enum axis axis)
{
    switch ((int)axis) {
    case AXIS_TP:
        return d->tp > 1 ? tensor_bytes(m, d, p) : 0;
    case AXIS_DP:
        return d->cp > 1 ? 0 : dense_bytes(m, d, p);
    case AXIS_DPCP:
        return d->cp > 1 ? dense_bytes(m, d, p) : 0;
    case AXIS_EP:
        return formula_expert_bytes(m, d, p);
    case AXIS_EDP:
        return d->shard > 1 ? expert_bytes(m, d, p)
                            : formula_expert_gradient(m, d) * wire_size(p) / d->pp;
    case AXIS_PP:
        return d->pp > 1 ? pipeline_bytes(m, d, p) : 0;
    case AXIS_EMBED: /* an all-reduce of two, in fp32, on two of the stages */
        return 2 * part(2) * 4 * second_table(m, d) * 2 / d->pp;
    case AXIS_CP:
        return micro_batches(d, p) *
                   (formula_context_bytes(m, d, p) + formula_expert_context(m, d, p)) / d->pp +
               (d->shard > 1 ? part(d->cp) * replicate_bytes(m, d, p) : 0);
    case AXIS_SHARD:
        return d->shard > 1 ? shard_bytes(m, d, p) : 0;
    case AXIS_REPLICATE:
        return d->shard > 1 ? part(d->dp / d->shard) * replicate_bytes(m, d, p) : 0;
    default:
        return 0;
    }
}
