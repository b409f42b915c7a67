/* Blocks of attention, their gradients and their merge on a GPU against fp64, by cuDNN and by all
 * fused kernels; moves bit by bit. */
#include "tests/gpu/gpu_rig.h"

#include "tests/attention_block.h"

/* As for whole attention: two roundings forward, three backward, and one more of what is added. */
static struct gpu_bound forward_bound(enum dtype type)
{
    return type == DTYPE_BF16 ? gpu_rounded(GPU_U_BF16, 2) : (struct gpu_bound){2e-6, 2e-6};
}

static struct gpu_bound backward_bound(enum dtype type)
{
    return type == DTYPE_BF16 ? gpu_rounded(GPU_U_BF16, 4) : (struct gpu_bound){1e-5, 1e-5};
}

static const struct gpu_bound lse_bound = {6e-7, 6e-7};

/* Rows that the op does not write hold 1, and are compared too. */
static double *marked(struct gpu_rig *rig, int t, enum dtype type, int64_t n)
{
    double *x = gpu_take(rig, t, type, n);
    for (int64_t i = 0; i < n; i++)
        x[i] = 1;
    gpu_upload(rig, t);
    return x;
}

static double *copy_of(const double *x, int64_t n)
{
    double *copy = gpu_doubles(n);
    memcpy(copy, x, (size_t)n * sizeof *x);
    return copy;
}

static void name(char *what, size_t size, const char *kind, const struct block_case *c, int head)
{
    snprintf(what, size, "%s %lld on %lld%s heads %d/%d x %d", kind, (long long)c->q_rows,
             (long long)c->kv_rows, c->causal ? " causal" : "", c->kv_heads * c->group, c->kv_heads,
             head);
}

/* As gpu_run, and asks whose kernels they are; false when the set refuses cuDNN for this op. */
static bool run(struct gpu_rig *rig, enum op_kind kind, const char *what)
{
    rig->op.kind = kind;
    int rc = rig->context.attention == ATTENTION_CUDNN ? gpu_open_op(rig) : 0;
    if (rig->context.attention == ATTENTION_CUDNN)
        kernels_cuda.close(&rig->context);
    if (rc != 0) {
        printf("%-44s not by cuDNN: %s\n", what, fail_message());
        CHECK_EQ(rc, FAIL_USAGE);
        fail_clear();
        return false;
    }
    gpu_must(gpu_open_op(rig));
    static char text[8192];
    kernels_cuda.describe(&rig->context, text, sizeof text);
    if (gpu_has_older(rig, rig->op.dtype, rig->op.shape.attention.head))
        CHECK_HAS(text, rig->older ? "fused, mma" : "fused, wgmma");
    kernels_cuda.run[kind](&rig->op, &rig->context, rig->device.type->native(&rig->device, 0));
    rig->device.type->sync(&rig->device);
    kernels_cuda.close(&rig->context);
    return true;
}

static void test_forward(struct gpu_rig *rig, enum dtype type, const struct block_case *c, int head)
{
    char what[96];
    struct shape_attention s = block_shape(c, head);
    rig->op.dtype = type;
    rig->op.shape.attention = s;
    const double *qkv = gpu_random(rig, 0, type, block_qkv(&s), 1);
    const double *kv = gpu_random(rig, 1, type, block_kv(&s), 1);
    double *out = copy_of(marked(rig, 2, type, block_out(&s)), block_out(&s));
    double *lse = copy_of(marked(rig, 3, DTYPE_F32, block_lse(&s)), block_lse(&s));
    name(what, sizeof what, "block", c, head);
    block_forward(&s, qkv, kv, out, lse);
    if (run(rig, OP_ATTENTION_BLOCK, what)) {
        gpu_check(rig, 2, out, forward_bound(type), what);
        gpu_check(rig, 3, lse, lse_bound, "    lse");
    }
    gpu_clear(rig);
    free(out), free(lse);
}

static void test_backward(struct gpu_rig *rig, enum dtype type, const struct block_case *c,
                          int head, bool add)
{
    char what[96];
    struct shape_attention s = block_shape(c, head);
    s.add_q = add;
    s.add_kv = add && rig->context.attention == ATTENTION_FUSED;
    rig->op.dtype = type;
    rig->op.shape.attention = s;
    int64_t n = block_out(&s), row = s.heads + 2 * s.kv_heads;
    const double *dout = gpu_random(rig, 0, type, n, 1);
    const double *qkv = gpu_random(rig, 1, type, block_qkv(&s), 1);
    const double *kv = gpu_random(rig, 2, type, block_kv(&s), 1);
    double *out = gpu_take(rig, 3, type, n), *lse = gpu_take(rig, 4, DTYPE_F32, block_lse(&s));
    block_forward(&s, qkv, kv, out, lse);
    gpu_upload(rig, 3);
    gpu_upload(rig, 4);
    double *dqkv = copy_of(marked(rig, 5, type, block_qkv(&s)), block_qkv(&s));
    double *dkv = copy_of(marked(rig, 6, type, block_kv(&s)), block_kv(&s));
    for (int64_t b = 0; b < s.batch; b++) { /* what is written and not added to */
        for (int64_t i = 0; !s.add_q && i < s.q_rows; i++)
            memset(dqkv + (b * s.sequence + s.q_first + i) * row * head, 0,
                   (size_t)(s.heads * head) * sizeof *dqkv);
        for (int64_t j = 0; !s.add_kv && j < s.kv_rows; j++)
            memset(dkv + block_key(&s, b, 0, j), 0, (size_t)(2 * s.kv_heads * head) * sizeof *dkv);
    }
    block_backward(&s, dout, qkv, kv, out, lse, dqkv, dkv);
    name(what, sizeof what, add ? "block-grad +=" : "block-grad", c, head);
    if (!run(rig, OP_ATTENTION_BLOCK_GRAD, what)) {
        gpu_clear(rig);
        free(dqkv), free(dkv);
        return;
    }
    gpu_check(rig, 5, dqkv, backward_bound(type), what);
    gpu_check(rig, 6, dkv, backward_bound(type), "    dkv");
    if (!add && rig->context.attention == ATTENTION_FUSED)
        gpu_check_same(rig, OP_ATTENTION_BLOCK_GRAD, (const int[]){5, 6, -1}, what);
    gpu_clear(rig);
    free(dqkv), free(dkv);
}

static void test_merge(struct gpu_rig *rig, enum dtype type, int head)
{
    struct block_case c = {2, 50, 20, 30, 100, 0, 100, false, 1, 3};
    struct shape_attention s = block_shape(&c, head), early = s, late = s;
    int64_t n = block_out(&s), m = block_lse(&s);
    early.kv_rows = 35;
    late.kv_first = 35, late.kv_rows = 65;
    double *qkv = gpu_doubles(block_qkv(&s)), *kv = gpu_doubles(block_kv(&s));
    for (int64_t i = 0; i < block_qkv(&s); i++)
        qkv[i] = (double)rng_normal(rng_key(1, "merge.q"), (uint64_t)i);
    for (int64_t i = 0; i < block_kv(&s); i++)
        kv[i] = (double)rng_normal(rng_key(1, "merge.kv"), (uint64_t)i);
    rig->op.dtype = type;
    rig->op.shape.attention = s;
    double *more = gpu_take(rig, 0, type, n), *more_lse = gpu_take(rig, 1, DTYPE_F32, m);
    double *out = gpu_take(rig, 2, type, n), *lse = gpu_take(rig, 3, DTYPE_F32, m);
    block_forward(&late, qkv, kv, more, more_lse);
    block_forward(&early, qkv, kv, out, lse);
    double *want = copy_of(out, n), *want_lse = copy_of(lse, m);
    block_forward(&s, qkv, kv, want, want_lse);
    for (int t = 0; t < 4; t++)
        gpu_upload(rig, t);
    gpu_run(rig, OP_ATTENTION_MERGE);
    gpu_check(rig, 2, want, forward_bound(type), "merge");
    gpu_check(rig, 3, want_lse, lse_bound, "    lse");
    gpu_clear(rig);
    free(qkv), free(kv), free(want), free(want_lse);
}

static void test_move(struct gpu_rig *rig, enum dtype type, int64_t unit, bool reversed)
{
    struct shape_move s = {.n = {5, 7},
                           .from = {9 * unit, 50 * unit},
                           .to = {70 * unit, 8 * unit},
                           .width = 8 * unit,
                           .reversed = reversed};
    int64_t from = 4 * s.from[0] + 6 * s.from[1] + s.width;
    int64_t to = 4 * s.to[0] + 6 * s.to[1] + s.width;
    rig->op.dtype = type;
    rig->op.shape.move = s;
    const double *x = gpu_random(rig, 0, type, from, 1);
    double *want = copy_of(marked(rig, 1, type, to), to);
    for (int64_t i = 0; i < 5; i++)
        for (int64_t j = 0; j < 7; j++)
            memcpy(want + i * s.to[0] + j * s.to[1],
                   x + (reversed ? 4 - i : i) * s.from[0] + j * s.from[1],
                   (size_t)s.width * sizeof *want);
    gpu_run(rig, OP_MOVE);
    gpu_check(rig, 1, want, (struct gpu_bound){0, 0}, "move");
    gpu_clear(rig);
    free(want);
}

int main(int argc, char **argv)
{
    static const enum dtype types[] = {DTYPE_F32, DTYPE_BF16};
    static const int heads[] = {64, 128, 24};
    int cases =
        gpu_small(argc, argv) ? 2 : BLOCK_CASES; /* a race checker takes a hundred times as long */
    struct gpu_rig rig;
    if (gpu_rig_open(&rig) != 0)
        return 77;
    for (int choice = ATTENTION_CUDNN; choice <= ATTENTION_FUSED; choice++)
        for (size_t h = 0; h < GPU_COUNT(heads); h++)
            for (size_t t = choice == ATTENTION_CUDNN ? 1 : 0; t < GPU_COUNT(types); t++)
                for (int i = 0; i < cases; i++)
                    for (int older = 0; older < 2; older++) {
                        rig.context.attention = (enum attention_choice)choice;
                        rig.older = older == 1;
                        if (older == 1 && !gpu_has_older(&rig, types[t], heads[h]))
                            continue;
                        test_forward(&rig, types[t], &block_cases[i], heads[h]);
                        test_backward(&rig, types[t], &block_cases[i], heads[h], false);
                        test_backward(&rig, types[t], &block_cases[i], heads[h], true);
                    }
    rig.older = false;
    for (int i = 0; i < 2 * cases; i++) { /* whatever is the fastest, or has an order */
        int head = i < cases ? 64 : 128;
        rig.context.attention = ATTENTION_AUTO;
        rig.context.search = true;
        test_forward(&rig, DTYPE_BF16, &block_cases[i % cases], head);
        test_backward(&rig, DTYPE_BF16, &block_cases[i % cases], head, false);
        test_backward(&rig, DTYPE_BF16, &block_cases[i % cases], head, true);
        rig.context.search = false;
        rig.context.deterministic = true;
        test_backward(&rig, DTYPE_BF16, &block_cases[i % cases], head, true);
        rig.context.deterministic = false;
    }
    for (size_t t = 0; t < GPU_COUNT(types); t++) {
        for (size_t h = 0; h < GPU_COUNT(heads); h++)
            test_merge(&rig, types[t], heads[h]);
        for (int reversed = 0; reversed < 2; reversed++) {
            test_move(&rig, types[t], 1, reversed);
            test_move(&rig, types[t], 8, reversed);
        }
    }
    gpu_rig_close(&rig);
    return test_end();
}
