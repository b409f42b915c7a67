#include "workloads/kernels/cpu.h"

#include <cblas.h>
#include <limits.h>
#include <string.h>

#include "base/err.h"
#include "workloads/kernels/cpu_attention.h"
#include "workloads/kernels/cpu_math.h"

/* Backward makes the probabilities again from the scores and lse. */
enum { BLOCK = CPU_ATTENTION_BLOCK };

/* One head of one sample. */
struct head {
    const float *q, *k, *v; /* [sequence][width], rows `row` floats apart */
    int row;
    int out_row; /* the same of out and dout */
    int width;
    float scale;
};

static void product(CBLAS_TRANSPOSE trans_a, CBLAS_TRANSPOSE trans_b, int m, int n, int k,
                    float alpha, const float *a, int lda, const float *b, int ldb, float beta,
                    float *c, int ldc)
{
    cblas_sgemm(CblasRowMajor, trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

static struct head head_at(const struct shape_attention *shape, const float *qkv, int64_t batch,
                           int h)
{
    int64_t row = (int64_t)(shape->heads + 2 * shape->kv_heads) * shape->head;
    int64_t kv = h / (shape->heads / shape->kv_heads);
    const float *sample = qkv + batch * shape->sequence * row;
    const float *k = sample + (int64_t)shape->heads * shape->head + kv * shape->head;

    if (row > INT_MAX || cpu_attention_score_row(shape->sequence) > INT_MAX)
        die(FAIL_INTERNAL, "attention: a row of %lld does not fit CBLAS", (long long)row);
    return (struct head){
        .q = sample + (int64_t)h * shape->head,
        .k = k,
        .v = k + (int64_t)shape->kv_heads * shape->head,
        .row = (int)row,
        .out_row = shape->heads * shape->head,
        .width = shape->head,
        .scale = (float)(1 / sqrt((double)shape->head)),
    };
}

/* scores [rows][first + rows] of the queries from `first` on, scaled, not masked. */
static void block_scores(const struct head *head, int first, int rows, float *scores, int ld)
{
    product(CblasNoTrans, CblasTrans, rows, first + rows, head->width, head->scale,
            head->q + (int64_t)first * head->row, head->row, head->k, head->row, 0, scores, ld);
}

static void attend(const struct head *head, int first, int rows, float *out, float *lse,
                   float *scores, int ld)
{
    int columns = first + rows;
    double sum[BLOCK];

    block_scores(head, first, rows, scores, ld);
    for (int i = 0; i < rows; i++) {
        float *row = scores + (int64_t)i * ld;
        int seen = first + i + 1;
        float most = cpu_row_max(row, seen);
        sum[i] = cpu_row_exp(row, seen, most);
        memset(row + seen, 0, (size_t)(columns - seen) * sizeof *row);
        lse[first + i] = (float)((double)most + log(sum[i]));
    }
    out += (int64_t)first * head->out_row;
    product(CblasNoTrans, CblasNoTrans, rows, head->width, columns, 1, scores, ld, head->v,
            head->row, 0, out, head->out_row);
    for (int i = 0; i < rows; i++, out += head->out_row) {
        float inverse = (float)(1 / sum[i]);
        for (int j = 0; j < head->width; j++)
            out[j] *= inverse;
    }
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
    int sequence = (int)shape->sequence, ld = (int)cpu_attention_score_row(shape->sequence);

    for (int64_t b = 0; b < shape->batch; b++)
        for (int h = 0; h < shape->heads; h++, lse += sequence) {
            struct head head = head_at(shape, qkv, b, h);
            float *o = out + b * sequence * head.out_row + (int64_t)h * head.width;
            for (int first = 0; first < sequence; first += BLOCK)
                attend(&head, first, sequence - first < BLOCK ? sequence - first : BLOCK, o, lse,
                       scores, ld);
        }
    kernel_flops(context, op, pair_flops(shape));
}

/* Gradients of one head, laid out as its q, k, v. */
struct head_grad {
    float *dq, *dk, *dv;
    const float *out, *dout;
    const float *lse;
    float *p, *ds; /* score blocks */
    int ld;
};

/* p = e^(score - lse), 0 above the diagonal; ds = p (dp - sum(dout out)) scale, in place of dp. */
static void block_softmax_grad(const struct head *head, const struct head_grad *grad, int first,
                               int rows)
{
    for (int i = 0; i < rows; i++) {
        float *restrict p = grad->p + (int64_t)i * grad->ld;
        float *restrict ds = grad->ds + (int64_t)i * grad->ld;
        int64_t at = (int64_t)(first + i) * head->out_row;
        float inner = cpu_row_dot(grad->dout + at, grad->out + at, head->width);
        float lse = grad->lse[first + i], scale = head->scale;
        int seen = first + i + 1;
        for (int j = 0; j < seen; j++) {
            p[j] = cpu_exp_minus(lse - p[j]);
            ds[j] = p[j] * (ds[j] - inner) * scale;
        }
        size_t unseen = (size_t)(rows - i - 1) * sizeof *p;
        memset(p + seen, 0, unseen);
        memset(ds + seen, 0, unseen);
    }
}

/* `beta` 0: this block is the first to write dk and dv, and reaches all their rows. */
static void attend_grad(const struct head *head, const struct head_grad *grad, int first, int rows,
                        float beta)
{
    int columns = first + rows, width = head->width, row = head->row, ld = grad->ld;
    const float *dout = grad->dout + (int64_t)first * head->out_row;

    block_scores(head, first, rows, grad->p, ld);
    product(CblasNoTrans, CblasTrans, rows, columns, width, 1, dout, head->out_row, head->v, row, 0,
            grad->ds, ld);
    block_softmax_grad(head, grad, first, rows);
    product(CblasTrans, CblasNoTrans, columns, width, rows, 1, grad->p, ld, dout, head->out_row,
            beta, grad->dv, row);
    product(CblasNoTrans, CblasNoTrans, rows, width, columns, 1, grad->ds, ld, head->k, row, 0,
            grad->dq + (int64_t)first * row, row);
    product(CblasTrans, CblasNoTrans, columns, width, rows, 1, grad->ds, ld,
            head->q + (int64_t)first * row, row, beta, grad->dk, row);
}

/* Blocks from the last one up, since the last reaches every key: nothing has to be cleared. */
static void head_backward(const struct head *head, const struct head_grad *grad, int sequence,
                          bool first_of_group)
{
    int last = (sequence - 1) / BLOCK * BLOCK;
    for (int first = last; first >= 0; first -= BLOCK)
        attend_grad(head, grad, first, sequence - first < BLOCK ? sequence - first : BLOCK,
                    first_of_group && first == last ? 0 : 1);
}

void cpu_attention_grad(const struct op *op, struct kernel_context *context, void *native)
{
    (void)native;
    const struct shape_attention *shape = &op->shape.attention;
    const float *dout = tensor_at(context, op->t[0]), *qkv = tensor_at(context, op->t[1]);
    const float *out = tensor_at(context, op->t[2]), *lse = tensor_at(context, op->t[3]);
    float *dqkv = tensor_at(context, op->t[4]), *workspace = tensor_at(context, op->t[5]);
    int sequence = (int)shape->sequence;
    int64_t ld = cpu_attention_score_row(sequence);

    for (int64_t b = 0; b < shape->batch; b++)
        for (int h = 0; h < shape->heads; h++, lse += sequence) {
            struct head head = head_at(shape, qkv, b, h);
            int64_t at = b * sequence * head.out_row + (int64_t)h * head.width;
            struct head_grad grad = {
                .dq = dqkv + (head.q - qkv),
                .dk = dqkv + (head.k - qkv),
                .dv = dqkv + (head.v - qkv),
                .out = out + at,
                .dout = dout + at,
                .lse = lse,
                .p = workspace,
                .ds = workspace + BLOCK * ld,
                .ld = (int)ld,
            };
            head_backward(&head, &grad, sequence, h % (shape->heads / shape->kv_heads) == 0);
        }
    kernel_flops(context, op, 2 * pair_flops(shape));
}
