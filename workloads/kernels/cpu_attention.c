#include "workloads/kernels/cpu.h"

#include <math.h>

#include "workloads/kernels/cpu_attention_head.h"

static struct cpu_head head_at(const struct shape_attention *shape, const float *qkv, int64_t batch,
                               int h)
{
    int64_t row = (int64_t)(shape->heads + 2 * shape->kv_heads) * shape->head;
    int64_t kv = h / (shape->heads / shape->kv_heads);
    const float *sample = qkv + batch * shape->sequence * row;
    struct cpu_head head = cpu_head_of(shape, shape->sequence, shape->sequence, row, row, true);
    head.q = sample + (int64_t)h * shape->head;
    head.k = sample + (int64_t)shape->heads * shape->head + kv * shape->head;
    head.v = head.k + (int64_t)shape->kv_heads * shape->head;
    return head;
}

static double pair_flops(const struct shape_attention *shape)
{
    return 2.0 * (double)shape->batch * (double)shape->sequence * (double)shape->sequence *
           shape->heads * shape->head;
}

void cpu_attention(const struct op *op, struct kernel_context *context, void *native)
{
    (void)native;
    const struct shape_attention *shape = &op->shape.attention;
    const float *qkv = tensor_at(context, op->t[0]);
    float *out = tensor_at(context, op->t[1]), *lse = tensor_at(context, op->t[2]);
    float *scores = tensor_at(context, op->t[3]);
    int64_t sequence = shape->sequence;

    for (int64_t b = 0; b < shape->batch; b++)
        for (int h = 0; h < shape->heads; h++, lse += sequence) {
            struct cpu_head head = head_at(shape, qkv, b, h);
            cpu_head_forward(&head, out + b * sequence * head.out_row + (int64_t)h * head.width,
                             lse, scores, (int)cpu_attention_score_row(sequence));
        }
    kernel_flops(context, op, pair_flops(shape));
}

void cpu_attention_grad(const struct op *op, struct kernel_context *context, void *native)
{
    (void)native;
    const struct shape_attention *shape = &op->shape.attention;
    const float *dout = tensor_at(context, op->t[0]), *qkv = tensor_at(context, op->t[1]);
    const float *out = tensor_at(context, op->t[2]), *lse = tensor_at(context, op->t[3]);
    float *dqkv = tensor_at(context, op->t[4]), *workspace = tensor_at(context, op->t[5]);
    int64_t sequence = shape->sequence, ld = cpu_attention_score_row(sequence);

    for (int64_t b = 0; b < shape->batch; b++)
        for (int h = 0; h < shape->heads; h++, lse += sequence) {
            struct cpu_head head = head_at(shape, qkv, b, h);
            int64_t at = b * sequence * head.out_row + (int64_t)h * head.width;
            struct cpu_head_grad grad = {
                .dq = dqkv + (head.q - qkv),
                .dk = dqkv + (head.k - qkv),
                .dv = dqkv + (head.v - qkv),
                .out = out + at,
                .dout = dout + at,
                .lse = lse,
                .p = workspace,
                .ds = workspace + CPU_ATTENTION_BLOCK * ld,
                .ld = (int)ld,
                .add_kv = h % (shape->heads / shape->kv_heads) != 0,
            };
            cpu_head_backward(&head, &grad);
        }
    kernel_flops(context, op, 2 * pair_flops(shape));
}
