/*
 * attention_block.h: OP_ATTENTION_BLOCK and its gradient in fp64, pair by pair, as plan.h says them,
 * and the shapes that tests of a device try: squares and strips, with the mask and without, queries
 * and keys in the middle of their tensors, several queries a key head.
 */
#ifndef TESTS_ATTENTION_BLOCK_H
#define TESTS_ATTENTION_BLOCK_H

#include <math.h>
#include <stdlib.h>

#include "base/err.h"
#include "workloads/plan.h"

/* heads and head size are filled in by the test: `group` queries share a key head. */
struct block_case {
    int64_t batch, sequence, q_first, q_rows, kv_sequence, kv_first, kv_rows;
    bool causal;
    int kv_heads, group;
};

static const struct block_case block_cases[] = {
    {1, 64, 0, 64, 64, 0, 64, true, 2, 1},
    {2, 70, 0, 70, 70, 0, 70, true, 1, 2},
    {1, 128, 0, 128, 128, 0, 64, false, 2, 2},
    {2, 96, 48, 48, 96, 0, 96, false, 1, 1},
    {1, 200, 100, 100, 300, 0, 250, true, 1, 3},
    {2, 66, 33, 33, 132, 0, 99, true, 2, 1},
    {1, 130, 65, 65, 130, 13, 70, false, 1, 2},
    {1, 129, 0, 129, 300, 40, 257, true, 1, 1},
    {1, 5, 2, 3, 9, 1, 7, true, 1, 1},
    {1, 1, 0, 1, 1, 0, 1, false, 1, 1},
    {1, 256, 0, 256, 256, 0, 256, true, 2, 1},
    {2, 256, 0, 256, 256, 0, 128, false, 1, 1},
    {1, 256, 128, 128, 256, 0, 256, false, 1, 2},
};
enum { BLOCK_CASES = sizeof block_cases / sizeof *block_cases };

static inline struct shape_attention block_shape(const struct block_case *c, int head)
{
    return (struct shape_attention){.batch = c->batch,
                                    .sequence = c->sequence,
                                    .heads = c->kv_heads * c->group,
                                    .kv_heads = c->kv_heads,
                                    .head = head,
                                    .q_first = c->q_first,
                                    .q_rows = c->q_rows,
                                    .kv_sequence = c->kv_sequence,
                                    .kv_first = c->kv_first,
                                    .kv_rows = c->kv_rows,
                                    .causal = c->causal};
}

/* Elements of the tensors. */
static inline int64_t block_qkv(const struct shape_attention *s)
{
    return s->batch * s->sequence * (s->heads + 2 * s->kv_heads) * s->head;
}
static inline int64_t block_kv(const struct shape_attention *s)
{
    return s->batch * s->kv_sequence * 2 * s->kv_heads * s->head;
}
static inline int64_t block_lse(const struct shape_attention *s)
{
    return s->batch * s->sequence * s->heads;
}
static inline int64_t block_out(const struct shape_attention *s)
{
    return block_lse(s) * s->head;
}

/* Where query `i` of the block, head h of sample b lies; key j likewise. */
struct block_query {
    int64_t q, out, lse, seen;
};
static inline struct block_query block_query(const struct shape_attention *s, int64_t b, int h,
                                             int64_t i)
{
    int64_t row = b * s->sequence + s->q_first + i;
    return (struct block_query){.q = row * (s->heads + 2 * s->kv_heads) * s->head +
                                     (int64_t)h * s->head,
                                .out = (row * s->heads + h) * s->head,
                                .lse = (b * s->heads + h) * s->sequence + s->q_first + i,
                                .seen = s->causal ? s->kv_rows - s->q_rows + i + 1 : s->kv_rows};
}
static inline int64_t block_key(const struct shape_attention *s, int64_t b, int h, int64_t j)
{
    int64_t row = b * s->kv_sequence + s->kv_first + j;
    return (row * 2 * s->kv_heads + h / (s->heads / s->kv_heads)) * s->head;
}

static inline double block_inner(const double *a, const double *b, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* Scores of one query into p [kv_rows]. */
static inline void block_scores(const struct shape_attention *s, const double *qkv,
                                const double *kv, int64_t b, int h, const struct block_query *query,
                                double *p)
{
    for (int64_t j = 0; j < query->seen; j++)
        p[j] = block_inner(qkv + query->q, kv + block_key(s, b, h, j), s->head) /
               sqrt((double)s->head);
}

/* Rows of out and lse that the block has; the others are left as they are. */
static inline void block_forward(const struct shape_attention *s, const double *qkv,
                                 const double *kv, double *out, double *lse)
{
    int64_t v = (int64_t)s->kv_heads * s->head, n = s->batch * s->heads * s->q_rows;
    double *p = must_alloc((size_t)s->kv_rows + 1, sizeof *p);
    for (int64_t at = 0; at < n; at++) {
        int64_t b = at / s->q_rows / s->heads;
        int h = (int)(at / s->q_rows % s->heads);
        struct block_query query = block_query(s, b, h, at % s->q_rows);
        double most = -(double)INFINITY, sum = 0;
        block_scores(s, qkv, kv, b, h, &query, p);
        for (int64_t j = 0; j < query.seen; j++)
            most = fmax(most, p[j]);
        for (int64_t j = 0; j < query.seen; j++)
            sum += p[j] = exp(p[j] - most);
        lse[query.lse] = most + log(sum);
        for (int c = 0; c < s->head; c++)
            out[query.out + c] = 0;
        for (int64_t j = 0; j < query.seen; j++)
            for (int c = 0; c < s->head; c++)
                out[query.out + c] += p[j] / sum * kv[block_key(s, b, h, j) + v + c];
    }
    free(p);
}

/* Added to dq in dqkv and to dkv. */
static inline void block_backward(const struct shape_attention *s, const double *dout,
                                  const double *qkv, const double *kv, const double *out,
                                  const double *lse, double *dqkv, double *dkv)
{
    int64_t v = (int64_t)s->kv_heads * s->head, n = s->batch * s->heads * s->q_rows;
    double *p = must_alloc((size_t)s->kv_rows + 1, sizeof *p), scale = 1 / sqrt((double)s->head);
    for (int64_t at = 0; at < n; at++) {
        int64_t b = at / s->q_rows / s->heads;
        int h = (int)(at / s->q_rows % s->heads);
        struct block_query query = block_query(s, b, h, at % s->q_rows);
        double delta = block_inner(dout + query.out, out + query.out, s->head);
        block_scores(s, qkv, kv, b, h, &query, p);
        for (int64_t j = 0; j < query.seen; j++) {
            int64_t key = block_key(s, b, h, j);
            double e = exp(p[j] - lse[query.lse]);
            double ds = e * (block_inner(dout + query.out, kv + key + v, s->head) - delta) * scale;
            for (int c = 0; c < s->head; c++) {
                dqkv[query.q + c] += ds * kv[key + c];
                dkv[key + c] += ds * qkv[query.q + c];
                dkv[key + v + c] += e * dout[query.out + c];
            }
        }
    }
    free(p);
}

#endif
