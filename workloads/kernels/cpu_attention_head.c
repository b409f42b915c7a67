#include "workloads/kernels/cpu_attention_head.h"

#include <cblas.h>
#include <limits.h>
#include <string.h>

#include "base/err.h"
#include "workloads/kernels/cpu_math.h"

/* Backward makes the probabilities again from the scores and lse. */
enum { BLOCK = CPU_ATTENTION_BLOCK };

struct cpu_head cpu_head_of(const struct shape_attention *shape, int64_t queries, int64_t keys,
                            int64_t row, int64_t kv_row, bool causal)
{
    if (row > INT_MAX || kv_row > INT_MAX || cpu_attention_score_row(keys) > INT_MAX)
        die(FAIL_INTERNAL, "attention: a row of %lld does not fit CBLAS", (long long)row);
    if (causal && keys < queries)
        BUG("attention: %lld keys for %lld causal queries", (long long)keys, (long long)queries);
    return (struct cpu_head){
        .queries = (int)queries,
        .keys = (int)keys,
        .row = (int)row,
        .kv_row = (int)kv_row,
        .out_row = shape->heads * shape->head,
        .width = shape->head,
        .scale = (float)(1 / sqrt((double)shape->head)),
        .causal = causal,
    };
}

static void product(CBLAS_TRANSPOSE trans_a, CBLAS_TRANSPOSE trans_b, int m, int n, int k,
                    float alpha, const float *a, int lda, const float *b, int ldb, float beta,
                    float *c, int ldc)
{
    cblas_sgemm(CblasRowMajor, trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

/* Keys that a query sees. */
static int seen_by(const struct cpu_head *head, int query)
{
    return head->causal ? head->keys - head->queries + query + 1 : head->keys;
}

static int rows_from(const struct cpu_head *head, int first)
{
    return head->queries - first < BLOCK ? head->queries - first : BLOCK;
}

/* scores [rows][what the last of them sees] of the queries from `first` on, scaled, not masked. */
static void block_scores(const struct cpu_head *head, int first, int rows, float *scores, int ld)
{
    product(CblasNoTrans, CblasTrans, rows, seen_by(head, first + rows - 1), head->width,
            head->scale, head->q + (int64_t)first * head->row, head->row, head->k, head->kv_row, 0,
            scores, ld);
}

static void attend(const struct cpu_head *head, int first, int rows, float *out, float *lse,
                   float *scores, int ld)
{
    int columns = seen_by(head, first + rows - 1);
    double sum[BLOCK];

    block_scores(head, first, rows, scores, ld);
    for (int i = 0; i < rows; i++) {
        float *row = scores + (int64_t)i * ld;
        int seen = seen_by(head, first + i);
        float most = cpu_row_max(row, seen);
        sum[i] = cpu_row_exp(row, seen, most);
        memset(row + seen, 0, (size_t)(columns - seen) * sizeof *row);
        lse[first + i] = (float)((double)most + log(sum[i]));
    }
    out += (int64_t)first * head->out_row;
    product(CblasNoTrans, CblasNoTrans, rows, head->width, columns, 1, scores, ld, head->v,
            head->kv_row, 0, out, head->out_row);
    for (int i = 0; i < rows; i++, out += head->out_row) {
        float inverse = (float)(1 / sum[i]);
        for (int j = 0; j < head->width; j++)
            out[j] *= inverse;
    }
}

void cpu_head_forward(const struct cpu_head *head, float *out, float *lse, float *scores, int ld)
{
    for (int first = 0; first < head->queries; first += BLOCK)
        attend(head, first, rows_from(head, first), out, lse, scores, ld);
}

/* p = e^(score - lse), 0 behind the mask; ds = p (dp - sum(dout out)) scale, in place of dp. */
static void block_softmax_grad(const struct cpu_head *head, const struct cpu_head_grad *grad,
                               int first, int rows)
{
    int columns = seen_by(head, first + rows - 1);
    for (int i = 0; i < rows; i++) {
        float *restrict p = grad->p + (int64_t)i * grad->ld;
        float *restrict ds = grad->ds + (int64_t)i * grad->ld;
        int64_t at = (int64_t)(first + i) * head->out_row;
        float inner = cpu_row_dot(grad->dout + at, grad->out + at, head->width);
        float lse = grad->lse[first + i], scale = head->scale;
        int seen = seen_by(head, first + i);
        for (int j = 0; j < seen; j++) {
            p[j] = cpu_exp_minus(lse - p[j]);
            ds[j] = p[j] * (ds[j] - inner) * scale;
        }
        size_t unseen = (size_t)(columns - seen) * sizeof *p;
        memset(p + seen, 0, unseen);
        memset(ds + seen, 0, unseen);
    }
}

/* `beta` 0: this block is the first to write dk and dv, and reaches all their rows. */
static void attend_grad(const struct cpu_head *head, const struct cpu_head_grad *grad, int first,
                        int rows, float beta)
{
    int columns = seen_by(head, first + rows - 1), width = head->width, ld = grad->ld;
    const float *dout = grad->dout + (int64_t)first * head->out_row;

    block_scores(head, first, rows, grad->p, ld);
    product(CblasNoTrans, CblasTrans, rows, columns, width, 1, dout, head->out_row, head->v,
            head->kv_row, 0, grad->ds, ld);
    block_softmax_grad(head, grad, first, rows);
    product(CblasTrans, CblasNoTrans, columns, width, rows, 1, grad->p, ld, dout, head->out_row,
            beta, grad->dv, head->kv_row);
    product(CblasNoTrans, CblasNoTrans, rows, width, columns, 1, grad->ds, ld, head->k,
            head->kv_row, grad->add_q ? 1 : 0, grad->dq + (int64_t)first * head->row, head->row);
    product(CblasTrans, CblasNoTrans, columns, width, rows, 1, grad->ds, ld,
            head->q + (int64_t)first * head->row, head->row, beta, grad->dk, head->kv_row);
}

/* Blocks from the last one up, since the last reaches every key: nothing has to be cleared. */
void cpu_head_backward(const struct cpu_head *head, const struct cpu_head_grad *grad)
{
    int last = (head->queries - 1) / BLOCK * BLOCK;
    for (int first = last; first >= 0; first -= BLOCK)
        attend_grad(head, grad, first, rows_from(head, first),
                    !grad->add_kv && first == last ? 0 : 1);
}
