/*
 * touch: which bytes an op reads and writes, as the table of plan.h says, in one place.
 *
 * Readers: plan_seal (nothing may reach beyond its arena), kernels that convert what they touch,
 * the test that ops of different streams which touch the same bytes are ordered, and whoever asks
 * how much memory an op moves.
 */
#ifndef WORKLOADS_TOUCH_H
#define WORKLOADS_TOUCH_H

#include "workloads/plan.h"

struct touch {
    int index;       /* of the tensor in op.t */
    struct tensor t; /* where: that of the op, for scalars the first of those touched */
    int64_t n;       /* elements from there on */
    enum dtype dtype;
    bool reads, writes; /* both: "+=" and in place */
};
enum { TOUCHES = OP_TENSORS + 1 };

/* Fill out[TOUCHES]; returns how many. `plan` gives the sizes of groups to collectives. Tensors of
 * BUFFER_NONE and of no elements are left out. */
int touch_op(const struct plan *plan, const struct op *op, struct touch *out);

int64_t touch_bytes(const struct touch *touch);

#endif
