/*
 * OP_ATTENTION is causal softmax(q k^T / sqrt(head)) v and OP_ATTENTION_GRAD its derivative, for
 * sequences inside, at and beyond a block, with fewer kv heads than heads.
 *
 * The reference is the definition, in double, one pair of positions after the other; its own
 * gradient is checked against difference quotients.
 */
#include "kernel_rig.h"

struct reference {
    struct shape_attention shape;
    int64_t row, out_row, n_qkv, n_out, n_lse;
    const double *qkv;
    double *out, *lse; /* made by forward */
};

static void reference_sizes(struct reference *r, const struct shape_attention *shape)
{
    r->shape = *shape;
    r->row = (int64_t)(shape->heads + 2 * shape->kv_heads) * shape->head;
    r->out_row = (int64_t)shape->heads * shape->head;
    r->n_qkv = shape->batch * shape->sequence * r->row;
    r->n_out = shape->batch * shape->sequence * r->out_row;
    r->n_lse = shape->batch * shape->sequence * shape->heads;
}

/* Where q (part 0), k (1) or v (2) of a query head lies at a position. */
static int64_t place(const struct reference *r, int part, int64_t b, int64_t position, int h)
{
    int kv = h / (r->shape.heads / r->shape.kv_heads);
    int head = part == 0 ? h : r->shape.heads + (part - 1) * r->shape.kv_heads + kv;
    return (b * r->shape.sequence + position) * r->row + (int64_t)head * r->shape.head;
}

static int64_t out_place(const struct reference *r, int64_t b, int64_t position, int h)
{
    return (b * r->shape.sequence + position) * r->out_row + (int64_t)h * r->shape.head;
}

static double dot(const double *x, const double *y, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i] * y[i];
    return sum;
}

static double score(const struct reference *r, int64_t b, int64_t i, int64_t j, int h)
{
    return dot(r->qkv + place(r, 0, b, i, h), r->qkv + place(r, 1, b, j, h), r->shape.head) /
           sqrt((double)r->shape.head);
}

static void forward_row(struct reference *r, int64_t b, int64_t i, int h)
{
    double sum = 0, *out = r->out + out_place(r, b, i, h);
    for (int64_t j = 0; j <= i; j++)
        sum += exp(score(r, b, i, j, h));
    for (int c = 0; c < r->shape.head; c++)
        out[c] = 0;
    for (int64_t j = 0; j <= i; j++) {
        double p = exp(score(r, b, i, j, h)) / sum;
        for (int c = 0; c < r->shape.head; c++)
            out[c] += p * r->qkv[place(r, 2, b, j, h) + c];
    }
    r->lse[(b * r->shape.heads + h) * r->shape.sequence + i] = log(sum);
}

/* From p alone: dv_j += p dout, ds = p (dout v_j - dout out), dq += ds k, dk += ds q. */
static void backward_row(const struct reference *r, const double *dout, int64_t b, int64_t i, int h,
                         double *dqkv)
{
    int n = r->shape.head;
    int64_t o = out_place(r, b, i, h), q = place(r, 0, b, i, h);
    double lse = r->lse[(b * r->shape.heads + h) * r->shape.sequence + i];
    double inner = dot(dout + o, r->out + o, n);
    for (int64_t j = 0; j <= i; j++) {
        int64_t k = place(r, 1, b, j, h), v = place(r, 2, b, j, h);
        double p = exp(score(r, b, i, j, h) - lse);
        double ds = p * (dot(dout + o, r->qkv + v, n) - inner) / sqrt((double)n);
        for (int c = 0; c < n; c++) {
            dqkv[v + c] += p * dout[o + c];
            dqkv[q + c] += ds * r->qkv[k + c];
            dqkv[k + c] += ds * r->qkv[q + c];
        }
    }
}

static void forward(struct reference *r)
{
    for (int64_t b = 0; b < r->shape.batch; b++)
        for (int h = 0; h < r->shape.heads; h++)
            for (int64_t i = 0; i < r->shape.sequence; i++)
                forward_row(r, b, i, h);
}

static void backward(const struct reference *r, const double *dout, double *dqkv)
{
    for (int64_t b = 0; b < r->shape.batch; b++)
        for (int h = 0; h < r->shape.heads; h++)
            for (int64_t i = 0; i < r->shape.sequence; i++)
                backward_row(r, dout, b, i, h, dqkv);
}

/* sum dout out(qkv + by d). */
static double projection(struct reference *r, const double *qkv, const double *d, double by,
                         const double *dout)
{
    double *moved = must_alloc((size_t)r->n_qkv, sizeof *moved), sum = 0;
    for (int64_t i = 0; i < r->n_qkv; i++)
        moved[i] = qkv[i] + by * d[i];
    r->qkv = moved;
    forward(r);
    for (int64_t i = 0; i < r->n_out; i++)
        sum += dout[i] * r->out[i];
    free(moved);
    return sum;
}

/* The derivative along directions in q alone, k alone, v alone (part 0..2) and all (3): the
 * kernel's within fp32, the reference's within the quotient's own error. */
static void check_slopes(struct reference *r, const double *qkv, const double *dout,
                         const double *want, const float *dqkv)
{
    int64_t first[] = {0, r->shape.heads, r->shape.heads + r->shape.kv_heads, 0};
    int64_t end[] = {first[1], first[2], r->row / r->shape.head, r->row / r->shape.head};
    for (int part = 0; part < 4; part++) {
        double *d = rig_direction(r->n_qkv), slope = 0, size = 0;
        for (int64_t i = 0; i < r->n_qkv; i++) {
            int64_t head = i % r->row / r->shape.head;
            if (head < first[part] || head >= end[part])
                d[i] = 0;
            slope += want[i] * d[i];
            size += fabs(want[i] * d[i]);
        }
        const double h = 1e-5;
        double quotient =
            (projection(r, qkv, d, h, dout) - projection(r, qkv, d, -h, dout)) / (2 * h);
        CHECK_NEAR(slope, quotient, 1e-7 * (size + 1));
        CHECK_NEAR(rig_inner(dqkv, d, r->n_qkv), quotient, 2e-6 * (size + 1));
        free(d);
    }
}

static void make_reference(struct reference *r, const struct shape_attention *shape)
{
    reference_sizes(r, shape);
    r->out = must_alloc((size_t)r->n_out, sizeof *r->out);
    r->lse = must_alloc((size_t)r->n_lse, sizeof *r->lse);
}

static double flops(const struct shape_attention *s)
{
    return 2.0 * (double)(s->batch * s->sequence * s->sequence * s->heads * s->head);
}

/* Runs forward in `rig`; returns out. */
static float *run_forward(struct rig *rig, const struct reference *r)
{
    int64_t workspace = kernels_attention_workspace(&r->shape);
    rig->op.shape.attention = r->shape;
    rig_random(rig, 0, r->n_qkv);
    float *out = rig_poisoned(rig, 1, r->n_out);
    rig_poisoned(rig, 2, r->n_lse);
    rig_poisoned(rig, 3, workspace / (int64_t)sizeof(float));
    rig_run(rig, OP_ATTENTION);
    CHECK(rig->context.work.model_flops == flops(&r->shape));
    CHECK(rig->context.work.gemm_flops == 0);
    return out;
}

/* Runs backward on what forward left; returns dqkv. */
static float *run_backward(struct rig *rig, struct rig *before, const struct reference *r)
{
    int64_t workspace = kernels_attention_workspace(&r->shape);
    rig->op.shape.attention = r->shape;
    rig_random(rig, 0, r->n_out);
    for (int t = 0; t < 3; t++) {
        int64_t n[] = {r->n_qkv, r->n_out, r->n_lse};
        size_t bytes = (size_t)n[t] * sizeof(float);
        memcpy(rig_tensor(rig, t + 1, bytes), tensor_at(&before->context, before->op.t[t]), bytes);
    }
    float *dqkv = rig_poisoned(rig, 4, r->n_qkv);
    rig_poisoned(rig, 5, workspace / (int64_t)sizeof(float));
    rig_run(rig, OP_ATTENTION_GRAD);
    CHECK(rig->context.work.model_flops == 2 * flops(&r->shape));
    return dqkv;
}

static void check_attention(const struct shape_attention *shape, bool slopes)
{
    struct reference r = {0};
    struct rig rig = {0}, grad = {0};
    make_reference(&r, shape);
    float *out = run_forward(&rig, &r), *dqkv = run_backward(&grad, &rig, &r);
    double *qkv = rig_double(tensor_at(&rig.context, rig.op.t[0]), r.n_qkv);
    double *dout = rig_double(tensor_at(&grad.context, grad.op.t[0]), r.n_out);
    double *want = must_alloc((size_t)r.n_qkv, sizeof *want);

    r.qkv = qkv;
    forward(&r);
    CHECK(rig_error(out, r.out, r.n_out) < 1e-6);
    CHECK(rig_error(tensor_at(&rig.context, rig.op.t[2]), r.lse, r.n_lse) < 1e-6);
    backward(&r, dout, want);
    CHECK(rig_error(dqkv, want, r.n_qkv) < 2e-6);
    if (slopes)
        check_slopes(&r, qkv, dout, want, dqkv);
    free(qkv);
    free(dout);
    free(want);
    free(r.out);
    free(r.lse);
    rig_release(&rig);
    rig_release(&grad);
}

/* batch, sequence, heads, kv heads, width of a head */
static struct shape_attention shape_of(const int size[5])
{
    return (struct shape_attention){.batch = size[0],
                                    .sequence = size[1],
                                    .heads = size[2],
                                    .kv_heads = size[3],
                                    .head = size[4]};
}

static void test_shapes(void)
{
    static const int sizes[][5] = {{1, 1, 1, 1, 1},   {2, 3, 3, 1, 7},    {1, 7, 2, 2, 3},
                                   {2, 63, 4, 2, 5},  {1, 64, 2, 1, 16},  {1, 65, 3, 3, 8},
                                   {2, 127, 6, 2, 9}, {1, 128, 1, 1, 64}, {1, 129, 4, 4, 8},
                                   {1, 200, 2, 1, 33}};
    for (size_t i = 0; i < RIG_COUNT(sizes); i++) {
        struct shape_attention shape = shape_of(sizes[i]);
        check_attention(&shape, shape.sequence <= 65);
    }
}

/* What comes later changes nothing, to the bit. */
static void test_causal(void)
{
    enum { S = 100, CUT = 70, HEAD = 8, ROW = 3 * HEAD };
    struct reference r = {0};
    struct rig rig = {0};
    struct shape_attention shape = shape_of((const int[]){1, S, 1, 1, HEAD});
    reference_sizes(&r, &shape);
    float *out = run_forward(&rig, &r);
    float *qkv = tensor_at(&rig.context, rig.op.t[0]), before[CUT * HEAD];
    memcpy(before, out, sizeof before);
    for (int64_t i = CUT * ROW; i < S * ROW; i++)
        qkv[i] = 3 * qkv[i] + 1;
    rig_run(&rig, OP_ATTENTION);
    CHECK(memcmp(before, out, sizeof before) == 0);
    CHECK(memcmp(out + CUT * HEAD - HEAD, out + CUT * HEAD, HEAD * sizeof *out) != 0);
    rig_release(&rig);
}

/* Scores of hundreds neither overflow nor lose the row: its weight goes to the largest. */
static void test_large_scores(void)
{
    struct reference r = {0};
    struct rig rig = {0};
    struct shape_attention shape = shape_of((const int[]){1, 2, 1, 1, 1});
    reference_sizes(&r, &shape);
    float *out = run_forward(&rig, &r);
    const float qkv[] = {1000, 1, 5, 1000, -1, 7}; /* q k v of two positions */
    memcpy(tensor_at(&rig.context, rig.op.t[0]), qkv, sizeof qkv);
    rig_run(&rig, OP_ATTENTION);
    const float *lse = tensor_at(&rig.context, rig.op.t[2]);
    CHECK_NEAR(out[0], 5, 0);
    CHECK_NEAR(out[1], 5, 0);
    CHECK_NEAR(lse[1], 1000, 0);
    rig_release(&rig);
}

int main(void)
{
    test_shapes();
    test_causal();
    test_large_scores();
    return test_end();
}
