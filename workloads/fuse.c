#include "workloads/fuse.h"

#include <stdlib.h>

#include "base/err.h"
#include "workloads/touch.h"

enum { COMPUTE = 0, LOOK = 16 }; /* the stream; ops between a product and its partner, at most */

int fuse_index(const struct plan *plan, const struct op *op)
{
    uintptr_t first = (uintptr_t)plan->ops, at = (uintptr_t)op;
    if (plan->ops == NULL || at < first || at >= first + (uintptr_t)plan->n_ops * sizeof *op)
        return -1;
    return (int)((at - first) / sizeof *op);
}

enum fuse_partner fuse_kind(const struct op *partner)
{
    if (partner == NULL)
        return PARTNER_NONE;
    switch ((int)partner->kind) {
    case OP_GELU:
        return PARTNER_GELU;
    case OP_GELU_GRAD:
        return PARTNER_GELU_GRAD;
    case OP_BIAS_GRAD:
        return PARTNER_BIAS_GRAD;
    default:
        return PARTNER_NONE;
    }
}

/* ---- does the product make what the partner works on? ---- */

static bool is_same(struct tensor a, struct tensor b)
{
    return a.buffer == b.buffer && a.offset == b.offset;
}

/* cuBLASLt wants a matrix beside C in whole 16 bytes a row. */
static bool is_aligned(const struct op *gemm, const struct op *partner)
{
    const struct tensor *t = partner->t;
    return gemm->shape.gemm.n % 8 == 0 && t[0].offset % 16 == 0 && t[1].offset % 16 == 0 &&
           t[2].offset % 16 == 0;
}

static bool reads_product(const struct op *gemm, const struct op *partner)
{
    const struct shape_gemm *g = &gemm->shape.gemm;
    return is_same(gemm->t[2], partner->t[0]) && !g->wide && g->beta == 0 &&
           g->m * g->n == partner->shape.vector.n && is_aligned(gemm, partner);
}

static bool sums_its_input(const struct op *gemm, const struct op *partner)
{
    const struct shape_gemm *g = &gemm->shape.gemm;
    return g->trans_a && g->wide && is_same(gemm->t[0], partner->t[0]) &&
           g->m == partner->shape.rows.width && g->k == partner->shape.rows.rows;
}

static bool belong_together(const struct op *gemm, const struct op *partner)
{
    if (gemm->kind != OP_GEMM || gemm->dtype != DTYPE_BF16 || partner->dtype != DTYPE_BF16)
        return false;
    switch ((int)partner->kind) {
    case OP_GELU:
        return reads_product(gemm, partner);
    case OP_GELU_GRAD: /* the epilogue takes a bias or this, and not over what it reads */
        return gemm->t[3].buffer == BUFFER_NONE && reads_product(gemm, partner) &&
               !is_same(partner->t[1], partner->t[2]);
    case OP_BIAS_GRAD:
        return gemm->t[3].buffer == BUFFER_NONE && sums_its_input(gemm, partner);
    default:
        return false;
    }
}

/* ---- may the partner move to the product's place? ---- */

static bool overlap(const struct touch *a, const struct touch *b)
{
    return a->t.buffer == b->t.buffer && a->t.offset < b->t.offset + touch_bytes(b) &&
           b->t.offset < a->t.offset + touch_bytes(a);
}

/* In one kernel the partner would write while the product still reads: bytes that packing lets them share
 * one after the other are not theirs at once. */
static bool writes_over_input(const struct plan *plan, const struct op *gemm,
                              const struct op *partner)
{
    struct touch a[TOUCHES], b[TOUCHES];
    int n = touch_op(plan, partner, a), m = touch_op(plan, gemm, b);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++)
            if (a[i].writes && b[j].reads && overlap(&a[i], &b[j]))
                return true;
    return false;
}

static bool conflict(const struct plan *plan, const struct op *partner, const struct op *other)
{
    struct touch a[TOUCHES], b[TOUCHES];
    int n = touch_op(plan, partner, a), m = touch_op(plan, other, b);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++)
            if ((a[i].writes || b[j].writes) && overlap(&a[i], &b[j]))
                return true;
    return false;
}

/* Back from the partner to a product before it. */
static int look_back(const struct plan *plan, int partner)
{
    const struct op *op = &plan->ops[partner];
    for (int i = partner - 1; i >= 0 && i >= partner - LOOK; i--) {
        if (plan->ops[i + 1].stream == COMPUTE && plan->ops[i + 1].n_waits > 0)
            return -1;
        if (plan->ops[i].stream != COMPUTE)
            continue;
        if (belong_together(&plan->ops[i], op))
            return writes_over_input(plan, &plan->ops[i], op) ? -1 : i;
        if (conflict(plan, op, &plan->ops[i]))
            return -1;
    }
    return -1;
}

/* On from the partner to a product behind it. */
static int look_on(const struct plan *plan, int partner)
{
    const struct op *op = &plan->ops[partner];
    for (int i = partner + 1; i < plan->n_ops && i <= partner + LOOK; i++) {
        if (plan->ops[i - 1].stream == COMPUTE && plan->ops[i - 1].awaited)
            return -1;
        if (plan->ops[i].stream != COMPUTE)
            continue;
        if (belong_together(&plan->ops[i], op))
            return writes_over_input(plan, &plan->ops[i], op) ? -1 : i;
        if (conflict(plan, op, &plan->ops[i]))
            return -1;
    }
    return -1;
}

void fuse_pairs(struct fusion *out, const struct plan *plan)
{
    out->plan = plan;
    out->with = must_alloc((size_t)plan->n_ops + 1, sizeof *out->with);
    out->used = must_alloc((size_t)plan->n_ops + 1, sizeof *out->used);
    for (int i = 0; i < plan->n_ops; i++)
        out->with[i] = -1;
    for (int i = 0; i < plan->n_ops; i++) {
        const struct op *op = &plan->ops[i];
        if (fuse_kind(op) == PARTNER_NONE || op->stream != COMPUTE)
            continue;
        int product = look_back(plan, i);
        if (product < 0 && op->kind == OP_BIAS_GRAD)
            product = look_on(plan, i);
        if (product < 0 || out->with[product] >= 0)
            continue;
        out->with[product] = i;
        out->with[i] = product;
    }
}

void fuse_release(struct fusion *fusion)
{
    free(fusion->with);
    free(fusion->used);
    *fusion = (struct fusion){0};
}

const struct op *fuse_partner(const struct fusion *fusion, const struct op *product)
{
    int index = fusion->plan ? fuse_index(fusion->plan, product) : -1;
    int with = index >= 0 ? fusion->with[index] : -1;
    return with >= 0 ? &fusion->plan->ops[with] : NULL;
}

void fuse_use(struct fusion *fusion, const struct op *product)
{
    int index = fuse_index(fusion->plan, product);
    fusion->used[index] = fusion->used[fusion->with[index]] = true;
}

bool fuse_is_used(const struct fusion *fusion, const struct op *op)
{
    int index = fusion->plan ? fuse_index(fusion->plan, op) : -1;
    return index >= 0 && fusion->used[index];
}
