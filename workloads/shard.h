/*
 * shard: training state divided over the replicas (ZeRO-1, ZeRO-2, FSDP).
 *
 * The parameters of a unit (a layer, the embeddings, the head) are one flat run of elements, padded
 * to a multiple of SHARD_ALIGN times the n ranks of the shard group; rank i owns run i of n: master
 * weights and moments, cut into pieces where tensors begin. The padding is zero, is no piece, and
 * travels.
 *
 *   stage   weights that kernels read                     gradients
 *   1       whole; gathered in the first micro-batch      whole; reduce-scattered in the last
 *   2       whole; gathered in the first micro-batch      of a few units; reduce-scattered in each
 *   3       of a few units; gathered for forward, let go, of a few units; reduce-scattered in each
 *           gathered again for backward (fsdp_reshard);
 *           or whole, gathered for each forward
 *
 * Weights are gathered before they are used, not after they were updated: so the calls of stages 1
 * and 2 overlap with forward too, and a step begins from masters alone. A rank casts its masters
 * into its own part of where the weights will lie, and the all-gather is in place; where parameters
 * are fp32 it reads the masters themselves. `fsdp_prefetch` units are gathered ahead of the one in
 * use, so layers need that number and one of places, used in turn; a gather waits for the last op
 * that read its place. The embeddings and the head have places of their own. The head's forward and
 * backward are one use, and the embedding needs no weights in backward: with untied weights these
 * two units are gathered once a micro-batch, with a tied head the embeddings twice.
 *
 * Gradients of a layer accumulate in one of two places in turn; when the last is complete the unit
 * is reduce-scattered: in the first micro-batch into the fp32 accumulators (BUFFER_SHARD), later
 * beside them and added. With reduce_every off, stages 2 and 3 hold whole gradients and reduce in
 * the last micro-batch, as stage 1 does. Gradients that travel as bf16 are cast before and after.
 * After the last micro-batch of a unit the accumulators are summed over the ranks that hold the same
 * shard: those of AXIS_CP, whose rows are of the same samples, then those of AXIS_REPLICATE where the
 * shard group is smaller than dp (HSDP).
 *
 * Experts that ep divides have units of their own, one a layer, beside that of the rest of the layer:
 * divided over all ranks that hold the same experts (AXIS_EDP, d of them: dp cp / ep with etp = tp),
 * whatever `shard` is, so that no copies are left to be summed. They are gathered and reduced when the
 * layer's other unit is, in places of their own. With d = 1 a rank has its experts for itself: these
 * are neither gathered nor reduced; kernels read the masters, or where parameters are bf16 a copy that
 * the update writes, and add gradients to the accumulators.
 *
 * Calls a step of a rank, n ranks of the shard group, r of the replicate group, padded elements P of
 * a unit, e and g bytes of a parameter and of a gradient on its way, A micro-batches:
 *   gather     (n-1)/n e P each: stage 3 once per use above and micro-batch, stages 1 and 2 once
 *   reduce     (n-1)/n g P each: A times, or once where reduced in the last
 *   replicate  2 (r-1)/r g P/n, and the same over cp
 * and one sum of squares over shard, 2 (n-1)/n 8; of units of experts the same with d for n, over edp.
 */
#ifndef WORKLOADS_SHARD_H
#define WORKLOADS_SHARD_H

#include "workloads/build.h"

enum { SHARD_ALIGN = 16, SHARD_RING = 2 };

extern const struct split split_shard;

/* FAIL_USAGE for a stage, prefetch or reduction that the layout cannot have. */
int shard_check(const struct layout *layout, const struct policy *policy);

/* ---- shared by shard*.c alone ---- */

/* A flat unit, and where it is now. */
struct shard_unit {
    enum axis axis;               /* over which it is divided */
    int n, me;                    /* of that group */
    int copies;                   /* ranks that hold the same shard: of replicate, and of cp */
    bool local;                   /* experts that no other rank has */
    int64_t resident;             /* local, bf16: offset of the weights in BUFFER_PARAMETER */
    int64_t elements, share;      /* in the model; of one rank, padded */
    int64_t state;                /* offset of this rank's run in master, moments, BUFFER_SHARD */
    int last_tensor;              /* in arena order; -1: an empty unit */
    int weights, gradients;       /* places in use, -1 */
    int after[1 + PLAN_CHANNELS]; /* ops that complete its gradient, by stream; -1 */
    int reduced;                  /* op after which its accumulators are right, -1 */
};

/* Memory for the weights or gradients of a unit. */
struct shard_place {
    int64_t offset; /* elements in its arena */
    int uses;       /* weights: uses that are still to come */
    int last;       /* op that last read or wrote it, -1 */
};

/* One all-gather of a step, in the order in which units are used. */
struct shard_gather {
    int unit, place;
    int use;  /* index of the use that it is for */
    int uses; /* that it serves */
    int op;
};

/*
 * A unit's gradient on its way beside the accumulators: where another micro-batch is in them already,
 * or where it travels as bf16.
 */
struct shard_arrival {
    struct tensor sent, received; /* in BUFFER_WIRE; `sent` for bf16 alone */
    int unit, op;                 /* -1: nothing under way */
    bool first, last;             /* what the accumulators get first, last in this step */
};

struct shard {
    int n_units, n_dense;    /* n_dense: the embeddings, layers, the head; behind them, where ep
                                divides experts, those of each layer */
    struct shard_unit *unit; /* [n_units] */
    bool whole_gradients;

    int n_places, weight_ring;   /* places that layers take in turn; 0: a place for each unit */
    struct shard_place *weights; /* [n_places] */
    int n_uses, next_use;        /* of a step */
    int *use, *served;           /* [n_uses] unit, index of the gather */
    int n_gathers, due, posted;  /* of a step; for uses so far; calls so far */
    struct shard_gather *gather; /* [n_gathers] */

    struct shard_place *gradients; /* by unit, or a ring, embeddings, head, a ring of experts */
    struct shard_arrival
        arrival[2 * SHARD_RING + 2]; /* layers in turn, embeddings, head, experts */
    int gradient_ring, next_gradient[2], next_arrival[2]; /* of layers, of experts */
    struct tensor sum;        /* in BUFFER_WIRE: what arrived as bf16, before it is added */
    struct tensor replicated; /* in BUFFER_WIRE: accumulators as bf16, summed over replicas */
};

static inline bool shard_is_expert(const struct shard *s, int unit)
{
    return unit >= s->n_dense;
}

/* Of a layer, but for its experts where they are apart. */
static inline bool shard_is_layer(const struct shard *s, int unit)
{
    return unit > UNIT_EMBEDDING && unit < s->n_dense - 1;
}

/* The layer of a unit, -1: none. */
static inline int shard_layer(const struct shard *s, int unit)
{
    return shard_is_expert(s, unit) ? unit - s->n_dense : shard_is_layer(s, unit) ? unit - 1 : -1;
}

/* Are experts gathered and reduced by themselves? The unit of those of a layer's unit, -1: none. */
static inline bool shard_divides_experts(const struct shard *s)
{
    return s->n_units > s->n_dense && !s->unit[s->n_dense].local;
}
static inline int shard_experts_of(const struct shard *s, int unit)
{
    return shard_is_layer(s, unit) && shard_divides_experts(s) ? s->n_dense + unit - 1 : -1;
}

/* shard_gather.c: the uses and gathers of a step, their memory; the hooks of weights. */
void shard_plan_gathers(struct build *b, struct shard *s);
void shard_rewind(struct build *b, struct shard *s);
void shard_use(struct build *b, int unit);
void shard_done(struct build *b, int unit);
void shard_embeds(struct build *b);

/* shard_reduce.c: memory; the hooks of gradients. A unit's gradient begins with its backward. */
void shard_plan_reductions(struct build *b, struct shard *s);
void shard_begin_gradient(struct build *b, int unit);
void shard_finished(struct build *b, int tensor, const int *after);
void shard_reduce(struct build *b);

#endif
