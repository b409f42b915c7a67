/*
 * context: sequences cut over the ranks of cp. Shared by context*.c alone; build.h has the way in.
 *
 * All rows of a rank go through a layer as they are; attention alone needs the keys of others. Ring
 * and all-gather cut a sequence of S positions into 2 cp chunks, of which rank i holds chunks i and
 * 2 cp - 1 - i: an early and a late one, so that under the causal mask all ranks have the same work.
 * Ulysses gives each rank a run of S / cp positions. Every weight is whole on every rank of cp, so
 * dense gradients and losses are summed over dp with cp.
 *
 * Ring: in step s of cp a rank attends to the keys of the rank s before it, which come from its
 * neighbour while the block before is computed. With C = S / (2 cp) rows of a chunk, each step has 2 C^2
 * pairs of a query and a key a head: own keys, the triangle of 2 C rows; keys of an earlier rank,
 * all 2 C queries and the C early keys; of a later one, the C late queries and all 2 C keys. Backward
 * goes round again with the final lse; dk and dv of a block travel on with it, and reach the owner
 * in the last step, beside the gradient of its own block. The keys of the first step are fetched
 * before backward of the layer begins.
 *
 * All-gather: keys of all ranks, put in the order of positions; two blocks, whose queries are an
 * early and a late chunk. Backward gathers them again and scatters the sum of dk and dv.
 *
 * Ulysses: an all-to-all gives each rank all rows of heads / cp heads, another one turns the
 * output back; query heads have to divide. Where ranks are more than kv heads, and a multiple of them,
 * each kv head goes to all whose queries read it, and the owner of a row sums what they send back.
 *
 * Calls of a layer and micro-batch, KV = bytes of the keys and values that a rank holds:
 *   ring        forward cp - 1 exchanges of KV; backward cp - 1 of KV and cp - 1 of as many gradients
 *   all-gather  forward (cp - 1) KV; backward twice that
 *   ulysses     (cp - 1) / cp of qkv and of the output of a rank; backward the same; at least a kv head
 *               for each rank
 */
#ifndef WORKLOADS_CONTEXT_H
#define WORKLOADS_CONTEXT_H

#include "workloads/build.h"

int64_t context_chunk(const struct build *b);  /* C */
int64_t context_kv_row(const struct build *b); /* elements of a row of keys and values */
int64_t context_kv(const struct build *b);     /* elements of the keys and values of this rank */

/* An op on rows of this rank: shape of all its rows, none chosen yet. */
struct shape_attention context_shape(const struct build *b, int64_t kv_sequence);

int context_move(struct build *b, struct tensor from, struct tensor to, struct shape_move shape);

/* Keys and values of qkv into rows of their own; such rows into the columns of dqkv. */
void context_pack(struct build *b, struct tensor qkv, struct tensor kv);
void context_unpack(struct build *b, struct tensor kv, struct tensor qkv);

/* Attention of rows of `qkv` over `kv`; its gradient, with dq in b->wide. */
void context_block(struct build *b, struct shape_attention shape, struct tensor qkv,
                   struct tensor kv, struct tensor out, struct tensor lse);
void context_block_grad(struct build *b, struct shape_attention shape,
                        const struct layer_activations *a, struct tensor kv, struct tensor dkv);

/* A call on cp, of elements of plan.dtype, after op `after`; without overlap the next op waits. */
int context_call(struct build *b, enum coll_kind kind, int direction, int64_t count,
                 struct tensor send, struct tensor receive, int after);

void context_ring_arenas(struct build *b);
void context_ring(struct build *b, const struct layer_activations *a);
void context_ring_ahead(struct build *b, const struct layer_activations *a);
void context_ring_grad(struct build *b, const struct layer_activations *a);

void context_gather_arenas(struct build *b);
void context_gather(struct build *b, const struct layer_activations *a);
void context_gather_ahead(struct build *b, const struct layer_activations *a);
void context_gather_grad(struct build *b, const struct layer_activations *a);

void context_ulysses_arenas(struct build *b);
void context_ulysses_spread(struct build *b, const struct layer_activations *a);
void context_ulysses(struct build *b, const struct layer_activations *a);
void context_ulysses_grad(struct build *b, const struct layer_activations *a);

#endif
