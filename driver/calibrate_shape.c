#include <inttypes.h>
#include <stdio.h>

#include "driver/calibrate_parts.h"
#include "workloads/cost.h"

static void gemm(const struct op *op, char *text, size_t size)
{
    const struct shape_gemm *g = &op->shape.gemm;
    snprintf(text, size, "%" PRId64 " x %" PRId64 " x %" PRId64 "%s%s%s%s%s", g->m, g->n, g->k,
             g->trans_a ? " ta" : "", g->trans_b ? " tb" : "", g->wide ? " wide" : "",
             g->beta != 0.0f ? " +=" : "", op->t[3].buffer != BUFFER_NONE ? " bias" : "");
}

static void attention(const struct op *op, char *text, size_t size)
{
    const struct shape_attention *a = &op->shape.attention;
    snprintf(text, size, "%" PRId64 " x %" PRId64 ", heads %d of %d, kv %d", a->batch, a->sequence,
             a->heads, a->head, a->kv_heads);
}

/* What else has a shape of its own is told apart by what it does. */
static void by_work(const struct op *op, char *text, size_t size)
{
    struct cost_work work;
    cost_work(op, &work);
    snprintf(text, size, "%.0f bytes, %.0f FLOP", work.bytes,
             work.product_flops + work.attention_flops + work.other_flops);
}

void calibrate_shape(const struct op *op, char *text, size_t size)
{
    const struct shape_rows *r = &op->shape.rows;
    switch ((int)op->kind) {
    case OP_GEMM:
        gemm(op, text, size);
        break;
    case OP_ATTENTION:
    case OP_ATTENTION_GRAD:
    case OP_ROTARY:
        attention(op, text, size);
        break;
    case OP_ZERO:
    case OP_GELU:
    case OP_GELU_GRAD:
    case OP_ADD:
    case OP_SUMSQ:
        snprintf(text, size, "%" PRId64, op->shape.vector.n);
        break;
    case OP_ADAMW:
        snprintf(text, size, "%" PRId64 ", gradient %s", op->shape.optimizer.n,
                 dtype_name((int)op->shape.optimizer.gradient));
        break;
    case OP_CAST:
        snprintf(text, size, "%" PRId64 ", %s to %s", op->shape.cast.n,
                 dtype_name((int)op->shape.cast.from), dtype_name((int)op->shape.cast.to));
        break;
    case OP_EMBED:
    case OP_EMBED_GRAD:
    case OP_NORM:
    case OP_NORM_GRAD:
    case OP_BIAS_GRAD:
    case OP_SWIGLU:
    case OP_SWIGLU_GRAD:
    case OP_CROSS_ENTROPY:
    case OP_CLASS_STATS:
        snprintf(text, size, "%" PRId64 " x %" PRId64 "%s%s%s", r->rows, r->width,
                 r->rms ? " rms" : "", r->accumulate ? " +=" : "",
                 op->kind == OP_NORM && op->t[6].buffer != BUFFER_NONE ? " residual" : "");
        break;
    case OP_CLIP:
        snprintf(text, size, "scalars");
        break;
    default:
        by_work(op, text, size);
    }
}
