/*
 * Blocks of attention, their gradients and their merge on the host against fp64 and against whole
 * attention; moves against the formula of plan.h; what is not theirs is left alone.
 */
#include "tests/unit/workloads/kernel_rig.h"

#include "tests/attention_block.h"

enum { HEAD = 6 };

static double worst[3]; /* forward, backward, merge */

static void note(double *most, double error, double bound)
{
    CHECK(error <= bound);
    *most = error > *most ? error : *most;
}

/* The workspace of a shape, behind the other tensors. */
static void take_workspace(struct rig *rig, int t)
{
    rig_tensor(rig, t, (size_t)kernels_attention_workspace(&rig->op.shape.attention));
}

/* Filled with 7 where the op is not to write. */
static float *marked(struct rig *rig, int t, int64_t n)
{
    float *x = rig_tensor(rig, t, (size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++)
        x[i] = 7;
    return x;
}

static void test_forward(const struct block_case *c)
{
    struct rig rig = {.op = {.dtype = DTYPE_F32}};
    struct shape_attention s = rig.op.shape.attention = block_shape(c, HEAD);
    double *qkv = rig_double(rig_random(&rig, 0, block_qkv(&s)), block_qkv(&s));
    double *kv = rig_double(rig_random(&rig, 1, block_kv(&s)), block_kv(&s));
    float *out = marked(&rig, 2, block_out(&s)), *lse = marked(&rig, 3, block_lse(&s));
    double *want = rig_double(out, block_out(&s)), *want_lse = rig_double(lse, block_lse(&s));
    take_workspace(&rig, 4);
    block_forward(&s, qkv, kv, want, want_lse);
    rig_run(&rig, OP_ATTENTION_BLOCK);
    note(&worst[0], rig_error(out, want, block_out(&s)), 1e-6);
    note(&worst[0], rig_error(lse, want_lse, block_lse(&s)), 1e-6);
    double pairs = (double)s.q_rows * (double)s.kv_rows -
                   (c->causal ? (double)s.q_rows * (double)s.q_rows / 2 : 0);
    CHECK_NEAR(rig.context.work.model_flops, 4 * pairs * (double)s.batch * s.heads * HEAD, 1e-9);
    free(qkv), free(kv), free(want), free(want_lse);
    rig_release(&rig);
}

static void test_backward(const struct block_case *c, bool add_q, bool add_kv)
{
    struct rig rig = {.op = {.dtype = DTYPE_F32}};
    struct shape_attention s = block_shape(c, HEAD);
    s.add_q = add_q, s.add_kv = add_kv;
    rig.op.shape.attention = s;
    int64_t n = block_out(&s), all = block_qkv(&s), keys = block_kv(&s);
    double *dout = rig_double(rig_random(&rig, 0, n), n);
    double *qkv = rig_double(rig_random(&rig, 1, all), all);
    double *kv = rig_double(rig_random(&rig, 2, keys), keys);
    float *out = marked(&rig, 3, n), *lse = marked(&rig, 4, block_lse(&s));
    double *wide = rig_double(out, n), *wide_lse = rig_double(lse, block_lse(&s));
    float *dqkv = marked(&rig, 5, all), *dkv = marked(&rig, 6, keys);
    double *want = rig_double(dqkv, all), *want_kv = rig_double(dkv, keys);
    take_workspace(&rig, 7);
    block_forward(&s, qkv, kv, wide, wide_lse);
    for (int64_t i = 0; i < n; i++)
        out[i] = (float)wide[i];
    for (int64_t i = 0; i < block_lse(&s); i++)
        lse[i] = (float)wide_lse[i];
    for (int64_t b = 0; b < s.batch; b++) { /* what is written and not added to */
        for (int64_t i = 0; !add_q && i < s.q_rows; i++)
            memset(want + block_query(&s, b, 0, i).q, 0, (size_t)(s.heads * HEAD) * sizeof *want);
        for (int64_t j = 0; !add_kv && j < s.kv_rows; j++)
            memset(want_kv + block_key(&s, b, 0, j), 0,
                   (size_t)(2 * s.kv_heads * HEAD) * sizeof *want_kv);
    }
    block_backward(&s, dout, qkv, kv, wide, wide_lse, want, want_kv);
    rig_run(&rig, OP_ATTENTION_BLOCK_GRAD);
    note(&worst[1], rig_error(dqkv, want, all), 2e-6);
    note(&worst[1], rig_error(dkv, want_kv, keys), 2e-6);
    free(dout), free(qkv), free(kv), free(wide), free(wide_lse), free(want), free(want_kv);
    rig_release(&rig);
}

/* Keys [0, cut) and [cut, 2 s) of one sequence, merged, are attention over all of them. */
static void test_merge(int64_t rows, int64_t cut, double shift)
{
    struct rig rig = {.op = {.dtype = DTYPE_F32}};
    struct block_case c = {2, rows, 1, rows - 1, 2 * rows, 0, 2 * rows, false, 1, 2};
    struct shape_attention s = block_shape(&c, HEAD), early = s, late = s;
    int64_t n = block_out(&s), m = block_lse(&s);
    early.kv_rows = cut;
    late.kv_first = cut, late.kv_rows = 2 * rows - cut;
    double *qkv = rig_direction(block_qkv(&s)), *kv = rig_direction(block_kv(&s));
    for (int64_t i = 0; i < block_qkv(&s); i++)
        qkv[i] *= shift;
    float *more = marked(&rig, 0, n), *more_lse = marked(&rig, 1, m);
    float *out = marked(&rig, 2, n), *lse = marked(&rig, 3, m);
    double *want = rig_double(out, n), *want_lse = rig_double(lse, m);
    double *a = rig_double(out, n), *a_lse = rig_double(lse, m);
    double *b = rig_double(out, n), *b_lse = rig_double(lse, m);
    block_forward(&s, qkv, kv, want, want_lse);
    block_forward(&early, qkv, kv, a, a_lse);
    block_forward(&late, qkv, kv, b, b_lse);
    for (int64_t i = 0; i < n; i++)
        out[i] = (float)a[i], more[i] = (float)b[i];
    for (int64_t i = 0; i < m; i++)
        lse[i] = (float)a_lse[i], more_lse[i] = (float)b_lse[i];
    rig.op.shape.attention = s;
    rig_run(&rig, OP_ATTENTION_MERGE);
    note(&worst[2], rig_error(out, want, n), 4e-6 * fmax(1, shift));
    note(&worst[2], rig_error(lse, want_lse, m), 2e-7);
    free(qkv), free(kv), free(want), free(want_lse), free(a), free(a_lse), free(b), free(b_lse);
    rig_release(&rig);
}

static void test_move(enum dtype dtype, struct shape_move shape)
{
    struct rig rig = {.op = {.dtype = dtype, .shape = {.move = shape}}};
    int64_t from = shape.width, to = shape.width;
    for (int i = 0; i < 2; i++) {
        from += (shape.n[i] - 1) * shape.from[i];
        to += (shape.n[i] - 1) * shape.to[i];
    }
    float *x = rig_random(&rig, 0, from), *y = marked(&rig, 1, to);
    const uint16_t *halves = (const uint16_t *)(const void *)x;
    uint16_t *got = (uint16_t *)(void *)y;
    bool same = true, narrow = dtype == DTYPE_BF16;
    rig_run(&rig, OP_MOVE);
    for (int64_t i = 0; i < shape.n[0]; i++)
        for (int64_t j = 0; j < shape.n[1]; j++)
            for (int64_t e = 0; e < shape.width; e++) {
                int64_t source = shape.reversed ? shape.n[0] - 1 - i : i;
                int64_t a = source * shape.from[0] + j * shape.from[1] + e;
                int64_t b = i * shape.to[0] + j * shape.to[1] + e;
                same = same && (narrow ? halves[a] == got[b] : x[a] == y[b]);
                if (!narrow)
                    y[b] = 7; /* so that what is left is what no run covers */
            }
    CHECK(same);
    for (int64_t i = 0; i < to && !narrow; i++)
        CHECK(y[i] == 7);
    rig_release(&rig);
}

int main(void)
{
    kernels_blas_threads(1);
    for (int i = 0; i < BLOCK_CASES; i++) {
        test_forward(&block_cases[i]);
        for (int add = 0; add < 4; add++)
            test_backward(&block_cases[i], add & 1, add & 2);
    }
    test_merge(40, 30, 1);
    test_merge(70, 1, 1);
    test_merge(33, 65, 30); /* lse far apart: one side all but vanishes */
    for (int narrow = 0; narrow < 2; narrow++)
        for (int reversed = 0; reversed < 2; reversed++)
            test_move(
                narrow ? DTYPE_BF16 : DTYPE_F32,
                (struct shape_move){
                    .n = {3, 5}, .from = {40, 8}, .to = {7, 21}, .width = 6, .reversed = reversed});
    printf("largest errors: forward %.2g, backward %.2g, merge %.2g\n", worst[0], worst[1],
           worst[2]);
    return test_end();
}
