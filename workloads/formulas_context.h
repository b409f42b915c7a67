/* formulas_context: what sequences cut over cp add to formulas. Shared by formulas*.c alone. */
#ifndef WORKLOADS_FORMULAS_CONTEXT_H
#define WORKLOADS_FORMULAS_CONTEXT_H

#include "workloads/formulas.h"

/* Layers of the model in which attention, or all, is made again in backward. */
double formula_recomputed(const struct model *model, const struct policy *policy,
                          enum recompute what);

/* Bytes a rank sends at least on cp for attention, a micro-batch: what moves, without gradients of
 * parameters. */
double formula_context_bytes(const struct model *model, const struct degrees *degrees,
                             const struct policy *policy);

/*
 * Operations of a layer, calls included, for what the one op is where cp = 1; the mean over the ranks
 * of cp. `again`: of what is recomputed, attention alone or the whole layer.
 */
struct formula_context {
    double forward, backward, again_attention, again_layer;
};
void formula_context_ops(const struct model *model, const struct degrees *degrees,
                         const struct policy *policy, struct formula_context *out);

#endif
