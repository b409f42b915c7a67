/*
 * What the CPU kernels cost beside the bare thing, alternating in short blocks, with the ratio of
 * the bare thing to itself (a/a) beside every ratio:
 *   products     OP_GEMM, bias included, beside cblas_sgemm of the same shape (goal: >= 0.95)
 *   attention    beside cblas_sgemm of a square product, model FLOPs (causal half)
 *   bytes        kernels bound by memory beside memcpy of as many bytes
 *   input        filling a batch, tokens a second
 * Ratios are medians over rounds of bare time / kernel time. One BLAS thread, and the CPU time of
 * this thread, so that other work on the machine counts as little as possible.
 */
#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/err.h"
#include "base/rng.h"
#include "workloads/kernels/kernels.h"

enum { ROUNDS = 15 };
static const double BLOCK_S = 0.01;

/* Something to time: run(arg) does it once. */
struct thing {
    void (*run)(void *arg);
    void *arg;
};

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static double seconds_of(const struct thing *thing, int64_t repeats)
{
    double begin = now_s();
    for (int64_t i = 0; i < repeats; i++)
        thing->run(thing->arg);
    return (now_s() - begin) / (double)repeats;
}

static int64_t repeats_for(const struct thing *thing)
{
    double once = seconds_of(thing, 1);
    once = seconds_of(thing, 1 + (int64_t)(BLOCK_S / 4 / once));
    return 1 + (int64_t)(BLOCK_S / once);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double x[ROUNDS])
{
    qsort(x, ROUNDS, sizeof *x, by_value);
    return x[ROUNDS / 2];
}

/* One line: the rates of `amount` a call in units of 1e9, bare / kernel and bare / bare. */
static void compare(const char *name, const char *unit, double amount, struct thing bare,
                    double bare_amount, struct thing kernel)
{
    double ratio[ROUNDS], same[ROUNDS], bare_s[ROUNDS], kernel_s[ROUNDS];
    int64_t n_bare = repeats_for(&bare), n_kernel = repeats_for(&kernel);
    for (int round = 0; round < ROUNDS; round++) {
        double first = 0, second = 0, taken = 0;
        for (int turn = 0; turn < 3; turn++)
            switch ((turn + round) % 3) { /* who goes first changes */
            case 0:
                first = seconds_of(&bare, n_bare);
                break;
            case 1:
                taken = seconds_of(&kernel, n_kernel);
                break;
            default:
                second = seconds_of(&bare, n_bare);
            }
        bare_s[round] = first / bare_amount;
        kernel_s[round] = taken / amount;
        ratio[round] = (first + second) / 2 / bare_amount / kernel_s[round];
        same[round] = second / first;
    }
    double kernel_rate = 1e-9 / median(kernel_s), bare_rate = 1e-9 / median(bare_s);
    printf("%-28s %8.2f %8.2f %-8s %7.3f %7.3f\n", name, kernel_rate, bare_rate, unit,
           median(ratio), median(same));
    fflush(stdout);
}

/* An op with tensors of its own. */
struct work {
    struct op op;
    struct kernel_context context;
    int64_t bytes; /* of all its tensors */
};

static void work_run(void *arg)
{
    struct work *work = arg;
    kernels_cpu.run[work->op.kind](&work->op, &work->context, NULL);
}

static void *work_tensor(struct work *work, int t, int64_t bytes)
{
    void *memory = aligned_alloc(64, (size_t)((bytes + 63) / 64 * 64));
    if (memory == NULL)
        die(FAIL_INTERNAL, "bench: no memory for %lld bytes", (long long)bytes);
    memset(memory, 0, (size_t)bytes);
    work->context.base[t + 1] = memory;
    work->op.t[t] = (struct tensor){.buffer = t + 1};
    work->bytes += bytes;
    return memory;
}

static void work_floats(struct work *work, int t, int64_t n)
{
    rng_fill_normal(work_tensor(work, t, n * 4), n, (uint64_t)t, 0, 1);
}

static void work_release(struct work *work)
{
    for (int b = 0; b < PLAN_BUFFERS; b++)
        free(work->context.base[b]);
    memset(work, 0, sizeof *work);
}

static void bare_gemm(void *arg)
{
    const struct work *work = arg;
    const struct shape_gemm *g = &work->op.shape.gemm;
    int m = (int)g->m, n = (int)g->n, k = (int)g->k;
    cblas_sgemm(CblasRowMajor, g->trans_a ? CblasTrans : CblasNoTrans,
                g->trans_b ? CblasTrans : CblasNoTrans, m, n, k, 1,
                tensor_at(&work->context, work->op.t[0]), g->trans_a ? m : k,
                tensor_at(&work->context, work->op.t[1]), g->trans_b ? k : n, g->beta,
                tensor_at(&work->context, work->op.t[2]), n);
}

static double gemm_flops(const struct shape_gemm *g)
{
    return 2.0 * (double)g->m * (double)g->n * (double)g->k;
}

/* y = x W^T + bias and its two gradients. */
static void bench_linear(const char *name, int64_t rows, int64_t in, int64_t out, bool bias)
{
    const struct {
        const char *what;
        struct shape_gemm shape;
    } forms[] = {
        {"y", {.m = rows, .n = out, .k = in, .trans_b = true}},
        {"dx", {.m = rows, .n = in, .k = out}},
        {"dW", {.m = out, .n = in, .k = rows, .trans_a = true, .beta = 1}},
    };
    for (size_t i = 0; i < 3; i++) {
        struct work work = {.op = {.kind = OP_GEMM, .shape.gemm = forms[i].shape}};
        const struct shape_gemm *g = &work.op.shape.gemm;
        char line[96];
        work_floats(&work, 0, g->m * g->k);
        work_floats(&work, 1, g->k * g->n);
        work_floats(&work, 2, g->m * g->n);
        if (bias && i == 0)
            work_floats(&work, 3, g->n);
        snprintf(line, sizeof line, "%s.%s", name, forms[i].what);
        compare(line, "GFLOP/s", gemm_flops(g), (struct thing){bare_gemm, &work}, gemm_flops(g),
                (struct thing){work_run, &work});
        work_release(&work);
    }
}

static void bench_model(const char *name, int64_t rows, int64_t hidden, int64_t ffn,
                        int64_t vocabulary)
{
    const struct {
        const char *part;
        int64_t in, out;
        bool bias;
    } parts[] = {{"qkv", hidden, 3 * hidden, true},
                 {"proj", hidden, hidden, true},
                 {"fc", hidden, ffn, true},
                 {"fc2", ffn, hidden, true},
                 {"logits", hidden, vocabulary, false}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        char line[64];
        snprintf(line, sizeof line, "%s.%s", name, parts[i].part);
        bench_linear(line, rows, parts[i].in, parts[i].out, parts[i].bias);
    }
}

static void bench_attention(const char *name, struct shape_attention shape)
{
    int64_t positions = shape.batch * shape.sequence,
            row = shape.head * (shape.heads + 2 * shape.kv_heads);
    int64_t out = positions * shape.heads * shape.head, lse = positions * shape.heads;
    double flops = 2.0 * (double)out * (double)shape.sequence;
    struct work square = {.op = {.kind = OP_GEMM, .shape.gemm = {512, 512, 512, .trans_b = true}}};
    struct work forward = {.op = {.kind = OP_ATTENTION, .shape.attention = shape}};
    struct work backward = {.op = {.kind = OP_ATTENTION_GRAD, .shape.attention = shape}};
    char line[64];

    for (int t = 0; t < 3; t++)
        work_floats(&square, t, 512 * 512);
    work_floats(&forward, 0, positions * row);
    work_floats(&forward, 1, out);
    work_floats(&forward, 2, lse);
    work_tensor(&forward, 3, kernels_attention_workspace(&shape));
    work_run(&forward);
    work_floats(&backward, 0, out);
    work_floats(&backward, 4, positions * row);
    work_tensor(&backward, 5, kernels_attention_workspace(&shape));
    for (int t = 0; t < 3; t++) {
        int64_t n[] = {positions * row, out, lse};
        memcpy(work_tensor(&backward, t + 1, n[t] * 4), forward.context.base[t + 1],
               (size_t)n[t] * 4);
    }
    snprintf(line, sizeof line, "%s.attention", name);
    compare(line, "GFLOP/s", flops, (struct thing){bare_gemm, &square}, 2.0 * 512 * 512 * 512,
            (struct thing){work_run, &forward});
    snprintf(line, sizeof line, "%s.attention.grad", name);
    compare(line, "GFLOP/s", 2 * flops, (struct thing){bare_gemm, &square}, 2.0 * 512 * 512 * 512,
            (struct thing){work_run, &backward});
    work_release(&square);
    work_release(&forward);
    work_release(&backward);
}

/* memcpy of half the bytes moves as many: one half is read, the other written. */
struct copy {
    unsigned char *from, *to;
    size_t bytes;
};

static void copy_run(void *arg)
{
    const struct copy *copy = arg;
    memcpy(copy->to, copy->from, copy->bytes);
}

static void against_memcpy(const char *name, struct work *work, int64_t moved)
{
    struct copy copy = {.bytes = (size_t)moved / 2};
    copy.from = must_alloc(1, copy.bytes);
    copy.to = must_alloc(1, copy.bytes);
    memset(copy.from, 1, copy.bytes);
    memset(copy.to, 1, copy.bytes);
    compare(name, "GB/s", (double)moved, (struct thing){copy_run, &copy}, (double)moved,
            (struct thing){work_run, work});
    free(copy.from);
    free(copy.to);
    work_release(work);
}

/* Kernels over plain vectors: tensors of n floats, each read or written `passes` times in all. */
static void bench_vector(enum op_kind kind, int64_t n, int tensors, int passes)
{
    struct work work = {.op = {.kind = kind, .shape.vector = {n}}};
    for (int t = 0; t < tensors; t++)
        work_floats(&work, t, n);
    if (kind == OP_SUMSQ)
        work_tensor(&work, 1, SCALARS * 8);
    against_memcpy(op_name((int)kind), &work, passes * n * 4);
}

static void bench_adamw(int64_t n)
{
    struct work work = {.op = {.kind = OP_ADAMW}};
    work.op.shape.optimizer = (struct shape_optimizer){
        .n = n, .beta1 = 0.9f, .beta2 = 0.95f, .epsilon = 1e-8f, .weight_decay = 0.1f};
    work_floats(&work, 0, n);
    work_floats(&work, 1, n);
    work_tensor(&work, 2, n * 4);
    work_tensor(&work, 3, n * 4);
    double *scalars = work_tensor(&work, 4, SCALARS * 8);
    scalars[SCALAR_SCALE] = 1;
    scalars[SCALAR_LR] = 1e-4;
    scalars[SCALAR_STEP] = 10;
    against_memcpy("adamw", &work, 7 * n * 4);
}

static void bench_norm(int64_t rows, int64_t width)
{
    int64_t n = rows * width;
    struct work forward = {.op = {.kind = OP_NORM, .shape.rows = {.rows = rows, .width = width}}};
    struct work backward = {
        .op = {.kind = OP_NORM_GRAD,
               .shape.rows = {.rows = rows, .width = width, .accumulate = true}}};
    int64_t length[2][8] = {{n, width, width, n, rows, rows},
                            {n, n, width, rows, rows, n, width, width}};
    for (int t = 0; t < 8; t++) {
        if (t < 6)
            work_floats(&forward, t, length[0][t]);
        work_floats(&backward, t, length[1][t]);
    }
    against_memcpy("norm", &forward, 2 * n * 4);
    against_memcpy("norm-grad", &backward, 4 * n * 4);
    struct work bias = {.op = {.kind = OP_BIAS_GRAD, .shape.rows = {.rows = rows, .width = width}}};
    work_floats(&bias, 0, n);
    work_floats(&bias, 1, width);
    against_memcpy("bias-grad", &bias, n * 4);
}

/* Logits are made anew by no one here: the gradients of one call are the logits of the next. */
static void bench_loss(int64_t rows, int64_t width)
{
    struct work work = {.op = {.kind = OP_CROSS_ENTROPY,
                               .shape.rows = {.rows = rows, .width = width, .valid = width}}};
    work_floats(&work, 0, rows * width);
    work_tensor(&work, 1, rows * 4);
    memset(work_tensor(&work, 2, rows), 1, (size_t)rows);
    work_tensor(&work, 3, SCALARS * 8);
    against_memcpy("cross-entropy", &work, 2 * rows * width * 4);
}

static void bench_embed(int64_t rows, int64_t width, int64_t vocabulary)
{
    for (int backward = 0; backward < 2; backward++) {
        struct work work = {.op = {.kind = backward ? OP_EMBED_GRAD : OP_EMBED}};
        work.op.shape.rows = (struct shape_rows){
            .rows = rows, .width = width, .valid = vocabulary, .sequence = rows};
        int32_t *tokens = work_tensor(&work, 0, rows * 4);
        for (int64_t i = 0; i < rows; i++)
            tokens[i] = (int32_t)rng_below(1, (uint64_t)i, (uint32_t)vocabulary);
        work_floats(&work, backward ? 2 : 1, vocabulary * width);
        work_floats(&work, backward ? 3 : 2, rows * width);
        work_floats(&work, backward ? 1 : 3, rows * width);
        against_memcpy(op_name((int)work.op.kind), &work, (backward ? 5 : 3) * rows * width * 4);
    }
}

static void bench_input(void)
{
    enum { S = 1024, N = 64 };
    const char *kinds[] = {"synthetic", "memory"};
    int32_t *tokens = must_alloc(N * S, 4), *targets = must_alloc(N * S, 4);
    uint8_t *mask = must_alloc(N * S, 1);
    for (int i = 0; i < 2; i++) {
        struct input input;
        double best = 1e9;
        if (input_open(&input, kinds[i], 1, 50257, S, 0.1, N) != 0)
            die(FAIL_INTERNAL, "%s", fail_message());
        for (int round = 0; round < ROUNDS; round++) {
            double begin = now_s();
            input_fill(&input, 0, N, tokens, targets, mask);
            double s = now_s() - begin;
            best = s < best ? s : best;
        }
        printf("input.%-22s %8.2f ns/token\n", kinds[i], best * 1e9 / (N * S));
        input_close(&input);
    }
    free(tokens);
    free(targets);
    free(mask);
}

int main(void)
{
    const int64_t megabyte_floats = 1 << 18;
    kernels_blas_threads(1);
    printf("# %s\n", kernels_blas_version());
    printf("# %-26s %8s %8s %-8s %7s %7s\n", "kernel", "kernel", "bare", "", "ratio", "a/a");
    bench_model("tiny", 128, 64, 256, 256);
    bench_model("gpt2-124m", 256, 768, 3072, 50304);
    bench_attention("tiny", (struct shape_attention){
                                .batch = 2, .sequence = 64, .heads = 8, .kv_heads = 8, .head = 8});
    bench_attention("gpt2-124m",
                    (struct shape_attention){
                        .batch = 1, .sequence = 1024, .heads = 12, .kv_heads = 12, .head = 64});
    bench_vector(OP_ZERO, 16 * megabyte_floats, 1, 1);
    bench_vector(OP_ADD, 16 * megabyte_floats, 3, 3);
    bench_vector(OP_GELU, 16 * megabyte_floats, 2, 2);
    bench_vector(OP_GELU_GRAD, 16 * megabyte_floats, 3, 3);
    bench_vector(OP_SUMSQ, 16 * megabyte_floats, 1, 1);
    bench_norm(4096, 768);
    bench_loss(256, 50304);
    bench_embed(1024, 768, 50257);
    bench_adamw(16 * megabyte_floats);
    bench_input();
    return 0;
}
