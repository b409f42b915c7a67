/* Attention of some queries over some keys, for plans that cut sequences (OP_ATTENTION_BLOCK*). */
#include "workloads/kernels/cpu.h"

#include <math.h>
#include <string.h>

#include "workloads/kernels/cpu_attention_head.h"

/* Where the parts of an op begin for head h of sample b. */
struct place {
    struct cpu_head head;
    int64_t q, kv, v; /* in qkv and dqkv; in kv and dkv: k; v behind k */
    int64_t out, lse;
};

static struct place place_at(const struct shape_attention *s, int64_t b, int h)
{
    int64_t row = (int64_t)(s->heads + 2 * s->kv_heads) * s->head, out_row = s->heads * s->head;
    int64_t kv_row = 2 * (int64_t)s->kv_heads * s->head, query = b * s->sequence + s->q_first;
    int64_t shared = h / (s->heads / s->kv_heads);
    return (struct place){
        .head = cpu_head_of(s, s->q_rows, s->kv_rows, row, kv_row, s->causal),
        .q = query * row + (int64_t)h * s->head,
        .kv = (b * s->kv_sequence + s->kv_first) * kv_row + shared * s->head,
        .v = (int64_t)s->kv_heads * s->head,
        .out = query * out_row + (int64_t)h * s->head,
        .lse = (b * s->heads + h) * s->sequence + s->q_first,
    };
}

static void set_head(struct place *place, const float *qkv, const float *kv)
{
    place->head.q = qkv + place->q;
    place->head.k = kv + place->kv;
    place->head.v = place->head.k + place->v;
}

static double product_flops(const struct shape_attention *s)
{
    return 2.0 * plan_block_pairs(s) * s->heads * s->head;
}

void cpu_attention_block(const struct op *op, struct kernel_context *context, void *native)
{
    (void)native;
    const struct shape_attention *s = &op->shape.attention;
    const float *qkv = tensor_at(context, op->t[0]), *kv = tensor_at(context, op->t[1]);
    float *out = tensor_at(context, op->t[2]), *lse = tensor_at(context, op->t[3]);
    float *scores = tensor_at(context, op->t[4]);

    for (int64_t b = 0; b < s->batch; b++)
        for (int h = 0; h < s->heads; h++) {
            struct place at = place_at(s, b, h);
            set_head(&at, qkv, kv);
            cpu_head_forward(&at.head, out + at.out, lse + at.lse, scores,
                             (int)cpu_attention_score_row(s->kv_rows));
        }
    kernel_flops(context, op, 2 * product_flops(s));
}

void cpu_attention_block_grad(const struct op *op, struct kernel_context *context, void *native)
{
    (void)native;
    const struct shape_attention *s = &op->shape.attention;
    const float *dout = tensor_at(context, op->t[0]), *qkv = tensor_at(context, op->t[1]);
    const float *kv = tensor_at(context, op->t[2]), *out = tensor_at(context, op->t[3]);
    const float *lse = tensor_at(context, op->t[4]);
    float *dqkv = tensor_at(context, op->t[5]), *dkv = tensor_at(context, op->t[6]);
    float *workspace = tensor_at(context, op->t[7]);
    int64_t ld = cpu_attention_score_row(s->kv_rows);

    for (int64_t b = 0; b < s->batch; b++)
        for (int h = 0; h < s->heads; h++) {
            struct place at = place_at(s, b, h);
            set_head(&at, qkv, kv);
            struct cpu_head_grad grad = {
                .dq = dqkv + at.q,
                .dk = dkv + at.kv,
                .dv = dkv + at.kv + at.v,
                .out = out + at.out,
                .dout = dout + at.out,
                .lse = lse + at.lse,
                .p = workspace,
                .ds = workspace + CPU_ATTENTION_BLOCK * ld,
                .ld = (int)ld,
                .add_q = s->add_q,
                .add_kv = s->add_kv || h % (s->heads / s->kv_heads) != 0,
            };
            cpu_head_backward(&at.head, &grad);
        }
    kernel_flops(context, op, 4 * product_flops(s));
}

/* The larger lse is taken out first, so that neither power can overflow. */
void cpu_attention_merge(const struct op *op, struct kernel_context *context, void *native)
{
    (void)native;
    const struct shape_attention *s = &op->shape.attention;
    const float *more = tensor_at(context, op->t[0]), *more_lse = tensor_at(context, op->t[1]);
    float *out = tensor_at(context, op->t[2]), *lse = tensor_at(context, op->t[3]);
    int64_t out_row = s->heads * s->head;

    for (int64_t b = 0; b < s->batch; b++)
        for (int h = 0; h < s->heads; h++) {
            struct place at = place_at(s, b, h);
            for (int64_t r = 0; r < s->q_rows; r++) {
                double a = (double)lse[at.lse + r], c = (double)more_lse[at.lse + r];
                double sum = fmax(a, c) + log1p(exp(-fabs(a - c)));
                float keep = (float)exp(a - sum), add = (float)exp(c - sum);
                float *to = out + at.out + r * out_row;
                const float *from = more + at.out + r * out_row;
                for (int i = 0; i < s->head; i++)
                    to[i] = to[i] * keep + from[i] * add;
                lse[at.lse + r] = (float)sum;
            }
        }
}

void cpu_move(const struct op *op, struct kernel_context *context, void *native)
{
    (void)native;
    const struct shape_move *s = &op->shape.move;
    int64_t size = (int64_t)dtype_size((int)op->dtype);
    const unsigned char *from = tensor_at(context, op->t[0]);
    unsigned char *to = tensor_at(context, op->t[1]);

    for (int64_t i = 0; i < s->n[0]; i++)
        for (int64_t j = 0; j < s->n[1]; j++) {
            int64_t source = (s->reversed ? s->n[0] - 1 - i : i) * s->from[0] + j * s->from[1];
            memcpy(to + (i * s->to[0] + j * s->to[1]) * size, from + source * size,
                   (size_t)(s->width * size));
        }
}
