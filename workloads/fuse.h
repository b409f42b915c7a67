/*
 * fuse: ops of a plan that can run inside a matrix product, where a library has an epilogue for them.
 *
 * A pass over the sealed plan pairs a product with one op of the compute stream, its partner:
 *
 *   gelu       of the C that the product made: it stores C (backward reads it) and GELU(C)
 *   gelu-grad  of the C that the product made, dy: it stores dy GELU'(x)
 *   bias-grad  of the A that the product reads, transposed: its sums over k
 *
 * The partner then runs at the product's place in the stream, earlier or later than its own, so the
 * pass looks at all that lies between: nothing there may touch what the partner writes, nor write
 * what it reads; a partner that runs earlier may wait for no other stream, and nobody on another
 * stream may wait for what lies between a partner that runs later and its product. Nor may the partner
 * write what the product reads: one kernel does both (packing, lifetime.h, keeps them apart). The plan stays
 * as it is: the same ops in the same order, the same FLOPs; the run of an op that was done by its
 * product launches nothing, and a stamp around it shows no time, which its product's stamps have.
 *
 * Pairs are possible ones. Whether a pair is used, its product's choice says (cuda_gemm.h).
 */
#ifndef WORKLOADS_FUSE_H
#define WORKLOADS_FUSE_H

#include "workloads/plan.h"

enum fuse_partner { PARTNER_NONE, PARTNER_GELU, PARTNER_GELU_GRAD, PARTNER_BIAS_GRAD };

struct fusion {
    const struct plan *plan; /* borrowed */
    int *with;               /* [n_ops] the other of a pair, -1 */
    bool *used;              /* [n_ops] of both: the product does both */
};

void fuse_pairs(struct fusion *out, const struct plan *plan);
void fuse_release(struct fusion *fusion);

/* Index of an op of the plan, -1: another op. */
int fuse_index(const struct plan *plan, const struct op *op);

/* The possible partner of a product, NULL; what it is; and whether the product does it. */
const struct op *fuse_partner(const struct fusion *fusion, const struct op *product);
enum fuse_partner fuse_kind(const struct op *partner);
void fuse_use(struct fusion *fusion, const struct op *product);
bool fuse_is_used(const struct fusion *fusion, const struct op *op);

#endif
