/*
 * overwrite: sums that begin with zeros which a product could write over.
 *
 * A step zeroes its accumulators and then adds to them. The first to add to most of them is a product
 * that makes all of a weight's gradient: C = A B + C with a C that is known to be zero. Where the plan
 * shows that, a product may as well take beta = 0, and these bytes need not be zeroed at all: the
 * result is the same, and the accumulators are written once instead of written, read and written.
 *
 * A pass over the sealed plan: after each OP_ZERO of the compute stream, a product of it is the first
 * where its C lies in the zeroed bytes and no op before it in the plan, of any stream, touches these.
 * Ops that come later touch what the product made. What no product is the first to write is left to
 * the zeroing: gradients of biases and norms, padding that travels, tables of embeddings.
 */
#ifndef WORKLOADS_OVERWRITE_H
#define WORKLOADS_OVERWRITE_H

#include "workloads/plan.h"

struct overwrite_run {
    int64_t begin, end; /* bytes of the buffer */
};

struct overwrite {
    const struct plan *plan;     /* borrowed */
    bool *first;                 /* [n_ops] products whose C is zero when they begin */
    int *n_left;                 /* [n_ops] of each OP_ZERO: runs that it still has to zero */
    struct overwrite_run **left; /* [n_ops][n_left], in order, apart from each other */
};

void overwrite_find(struct overwrite *out, const struct plan *plan);
void overwrite_release(struct overwrite *overwrite); /* safe on a zeroed struct */

#endif
