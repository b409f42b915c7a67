/*
 * expert: mixtures of experts in place of the MLP of a layer. Shared by expert*.c alone.
 *
 * A layer with E experts over ep ranks, of which each holds E / ep. N rows are what a rank routes: R
 * where experts are split over tp like the rest (etp = tp), and L, its own, where they are not (etp
 * = 1: then the expert groups run over tp too, and rows are split by sequence parallelism). Forward:
 *
 *   logits f [N][E] = x W^T; where rows are split, gathered over tp and over cp, so that every rank
 *   sees whole sequences and no split changes what a token takes; route; permute to the send buffer, ordered by
 *   expert; all-to-all; a product, SwiGLU and a product for each block (source rank, expert) of what
 *   came; all-to-all back; combine with the gates.
 *
 * Shared experts are the layer's MLP of their width, split over tp, computed while rows travel.
 * Backward sends gradients of outputs the way of the rows and gradients of rows the way of outputs:
 * four all-to-alls of K N H elements a layer and micro-batch, six where the layer is recomputed,
 * since the gradient of the gates needs the experts' outputs again. Where experts are split over
 * tp, outputs and gradients of gates and rows are partial sums: one reduction adds the rows with
 * those of the shared experts, one the router's gradient.
 *
 * Balanced and skewed routing: the counts of all ranks of the group are known here, and every buffer
 * has the size of its largest micro-batch. Learned: each expert gets min(N, b C) rows from each rank,
 * C its slots of a sequence, the rest zero rows. The exchange is an all-to-all where all parts are
 * equal, else an all-to-all-v. Without a capacity (dropless) counts.h says what is known when.
 */
#ifndef WORKLOADS_EXPERT_H
#define WORKLOADS_EXPERT_H

#include "workloads/build.h"

/* What one micro-batch of one layer exchanges. Tables are of the plan. */
struct expert_exchange {
    int64_t sent, received;  /* rows */
    int32_t *first;          /* [E] */
    int64_t *send, *receive; /* [ep] elements */
    int64_t count;           /* of the call */
    bool even;               /* all parts are equal */
    int blocks;
    int64_t *rows;  /* [blocks] */
    int32_t *which; /* [blocks] */
    int64_t rows_valid;
    /* dropless, else NULL and none: `received` is the most, this what there is; counts of the rows that
     * go and come */
    int64_t *now;
    struct tensor counts, arrived;
};

/* What a layer keeps for its backward. */
struct expert_layer {
    uint64_t key;
    uint32_t *threshold;
    struct tensor own_logits, part_logits, logits, /* of N rows, of R, of whole sequences */
        experts, place, gates, source, share;
    struct tensor received, fc, act, returned;
    struct tensor d_returned; /* zb-h1: d of what experts made, until dW is */
};

struct expert {
    int n, local, top_k; /* E; of this rank; K */
    int ep, ep_me;
    bool own_rows; /* N = L: etp = 1 with tp above 1 */
    int64_t rows;  /* N */
    int64_t inner; /* inner width of an expert, as this rank holds it */
    int64_t most_sent, most_received;
    struct expert_layer *layer; /* [layers]: those of the micro-batch at work */
    struct expert_layer *kept;  /* [n_kept][layers] of the places of a pipeline */
    int n_kept;
    struct expert_exchange *exchange; /* [layers][micro_batches] */
    struct tensor a, b;               /* wire: [most of both][H] */
    struct tensor dact, dgates, dlogits, dnarrow;
};

/* Fill that of a layer and micro-batch; counts[ep][E] is room to work in. */
void expert_make_exchange(struct build *b, int layer, int micro, int64_t *counts);

/* Dropless: memory of the counts of every layer and micro-batch. */
void expert_take_counts(struct build *b);

/* expert_send.c. Rows of the send buffer to the experts' ranks, or rows of theirs back; the op, -1 with
 * ep = 1. Dropless: how many rows go where, to those who get them (-1 too where plans know it), and
 * then the host waits for that. */
int expert_send(struct build *b, struct tensor from, struct tensor to, bool back);
int expert_send_counts(struct build *b);
void expert_await_counts(struct build *b, int sent);

/* Of the current layer and micro-batch; its routing, but for `sent` and `first`. */
struct expert_exchange *expert_exchange_of(const struct build *b);
struct shape_route expert_route(const struct build *b);

#endif
