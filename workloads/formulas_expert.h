/*
 * formulas_expert: what layers of experts must amount to, in closed form. With N rows that a rank
 * routes in a micro-batch, K of top-k, H hidden, e bytes of an element:
 *
 *   ep    A micro-batches of L layers: 4 all-to-alls (6 where the layer is recomputed) of the rows
 *         whose expert another rank of ep holds, H e each: (ep-1)/ep K N where routing gives every rank
 *         the same, else counted token by token; and a sum of 8. Dropless: what even routing would
 *         send, and 4 E (ep-1)/ep for the exchange of counts, once (twice where recomputed)
 *   edp   g of the elements of a rank's experts, where ep or etp divides them apart from the rest
 *   tp    with etp = 1, the gather of 4 E bytes of logits for each of R rows
 *   cp    the gather of 4 E bytes of logits for each row of the micro-batch
 */
#ifndef WORKLOADS_FORMULAS_EXPERT_H
#define WORKLOADS_FORMULAS_EXPERT_H

#include "workloads/formulas.h"

/* Does ep or etp divide experts apart from the rest? */
bool formula_expert_apart(const struct degrees *d);

/* Elements of the experts that a rank holds in one layer. */
double formula_expert_elements(const struct model *m, const struct degrees *d);

/* tp: does the MLP need no rows of other ranks? Bytes of logits a micro-batch, before (tp-1)/tp;
 * scalars beyond the 4 that are summed. */
bool formula_expert_skips(const struct model *m, const struct degrees *d);
double formula_expert_logits(const struct model *m, const struct degrees *d,
                             const struct policy *p);
double formula_expert_context(const struct model *m, const struct degrees *d,
                              const struct policy *p); /* the same over cp, bytes that are sent */
double formula_expert_scalars(const struct degrees *d);

/* Operations of the MLP part of one layer and micro-batch on one rank. */
struct formula_expert {
    double forward, backward, again; /* on the compute stream; again: what recomputation makes */
    double calls, calls_again; /* on ep, and of logits on tp and cp; a dense layer: what is left
                                        out of recomputation is its last product */
};
void formula_expert_ops(const struct model *m, const struct degrees *d, const struct policy *p,
                        struct formula_expert *out);

/* Dropless: times a step that hosts wait for counts, all ranks. */
double formula_expert_counts(const struct model *m, const struct degrees *d,
                             const struct policy *p);

/* Inner width of the MLP that every token takes. */
double formula_common_width(const struct model *m);

/* Bytes a step on ep, the mean of all ranks; gradient elements of all
 * layers on edp, times what each is sent. */
double formula_expert_bytes(const struct model *m, const struct degrees *d, const struct policy *p);
double formula_expert_gradient(const struct model *m, const struct degrees *d);

/* The all-to-alls of all ranks, a step, by what leaves a node of `ranks_per_node`. */
void formula_expert_exchange(const struct model *m, const struct degrees *d, const struct policy *p,
                             int ranks_per_node, double *inside, double *across);

#endif
