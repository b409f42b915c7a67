/* Causal attention forward and backward, by cuDNN and by both fused kernels, against fp64. */
#include "tests/gpu/gpu_rig.h"

/* Written before the first run. bf16 rounds probabilities and their gradients to 2^-8 before they
 * are multiplied; lse is fp32 everywhere. */
static const struct gpu_bound forward[] = {[DTYPE_F32] = {2e-6, 1e-6}, [DTYPE_BF16] = {1e-2, 4e-3}};
static const struct gpu_bound backward[] = {
    [DTYPE_F32] = {1e-5, 2e-6}, [DTYPE_BF16] = {2e-2, 8e-3}};
static const struct gpu_bound lse_bound = {2e-5, 1e-5};

struct qkv {
    const double *q, *k, *v;
    int64_t row;
};

static struct qkv head_of(const struct shape_attention *s, const double *x, int64_t b, int h)
{
    int64_t row = (int64_t)(s->heads + 2 * s->kv_heads) * s->head;
    int kv = h / (s->heads / s->kv_heads);
    const double *sample = x + b * s->sequence * row;
    const double *k = sample + (int64_t)(s->heads + kv) * s->head;
    return (struct qkv){sample + (int64_t)h * s->head, k, k + (int64_t)s->kv_heads * s->head, row};
}

static double inner(const double *a, const double *b, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += a[i] * b[i];
    return sum;
}

/* Probabilities of one query; returns the log of the sum. */
static double probabilities(const struct qkv *x, int64_t i, int head, double *p)
{
    double most = -(double)INFINITY, sum = 0;
    for (int64_t j = 0; j <= i; j++) {
        p[j] = inner(x->q + i * x->row, x->k + j * x->row, head) / sqrt((double)head);
        most = p[j] > most ? p[j] : most;
    }
    for (int64_t j = 0; j <= i; j++)
        sum += p[j] = exp(p[j] - most);
    for (int64_t j = 0; j <= i; j++)
        p[j] /= sum;
    return most + log(sum);
}

static void attend(const struct shape_attention *s, const double *x, double *out, double *lse)
{
    double *p = gpu_doubles(s->sequence);
    for (int64_t b = 0; b < s->batch; b++)
        for (int h = 0; h < s->heads; h++)
            for (int64_t i = 0; i < s->sequence; i++) {
                struct qkv t = head_of(s, x, b, h);
                double *o = out + ((b * s->sequence + i) * s->heads + h) * s->head;
                lse[(b * s->heads + h) * s->sequence + i] = probabilities(&t, i, s->head, p);
                for (int64_t j = 0; j <= i; j++)
                    for (int c = 0; c < s->head; c++)
                        o[c] += p[j] * t.v[j * t.row + c];
            }
    free(p);
}

static void attend_grad(const struct shape_attention *s, const double *x, const double *out,
                        const double *dout, double *dx)
{
    double *p = gpu_doubles(s->sequence), scale = 1 / sqrt((double)s->head);
    for (int64_t b = 0; b < s->batch; b++)
        for (int h = 0; h < s->heads; h++)
            for (int64_t i = 0; i < s->sequence; i++) {
                struct qkv t = head_of(s, x, b, h);
                double *dq = dx + (t.q - x), *dk = dx + (t.k - x), *dv = dx + (t.v - x);
                int64_t at = ((b * s->sequence + i) * s->heads + h) * s->head;
                double delta = inner(dout + at, out + at, s->head);
                probabilities(&t, i, s->head, p);
                for (int64_t j = 0; j <= i; j++) {
                    double dp = inner(dout + at, t.v + j * t.row, s->head);
                    double ds = p[j] * (dp - delta) * scale;
                    for (int c = 0; c < s->head; c++) {
                        dv[j * t.row + c] += p[j] * dout[at + c];
                        dq[i * t.row + c] += ds * t.k[j * t.row + c];
                        dk[j * t.row + c] += ds * t.q[i * t.row + c];
                    }
                }
            }
    free(p);
}

static void name(char *what, size_t size, const char *kind, const struct shape_attention *s)
{
    snprintf(what, size, "%s b %lld s %lld heads %d/%d x %d", kind, (long long)s->batch,
             (long long)s->sequence, s->heads, s->kv_heads, s->head);
}

/* Opens the set, says who computes, runs; false when the set refuses cuDNN for this op. */
static bool run(struct gpu_rig *rig, enum op_kind kind, const char *what)
{
    char text[512];
    rig->op.kind = kind;
    int rc = gpu_open_op(rig);
    if (rc != 0 && rig->context.attention == ATTENTION_CUDNN) {
        printf("%-44s not by cuDNN: %s\n", what, fail_message());
        CHECK_EQ(rc, FAIL_USAGE);
        fail_clear();
        kernels_cuda.close(&rig->context);
        return false;
    }
    gpu_must(rc);
    kernels_cuda.describe(&rig->context, text, sizeof text);
    *strchr(text, ';') = '\0';
    printf("%-44s by %s\n", what, text);
    CHECK_HAS(text, rig->context.attention == ATTENTION_CUDNN ? "cuDNN" : "fused");
    kernels_cuda.run[kind](&rig->op, &rig->context, rig->device.type->native(&rig->device, 0));
    rig->device.type->sync(&rig->device);
    kernels_cuda.close(&rig->context);
    return true;
}

static void test_forward(struct gpu_rig *rig, enum dtype type, struct shape_attention s)
{
    char what[96];
    int64_t rows = s.batch * s.sequence, n = rows * s.heads * s.head, m = rows * s.heads;
    double *out = gpu_doubles(n), *lse = gpu_doubles(m);
    rig->op.dtype = type;
    rig->op.shape.attention = s;
    attend(&s, gpu_random(rig, 0, type, rows * (s.heads + 2 * s.kv_heads) * s.head, 1), out, lse);
    gpu_poison(rig, 1, type, n);
    gpu_poison(rig, 2, DTYPE_F32, m);
    name(what, sizeof what, "attention", &s);
    if (run(rig, OP_ATTENTION, what)) {
        gpu_check(rig, 1, out, forward[type], what);
        gpu_check(rig, 2, lse, lse_bound, "    lse");
    }
    gpu_clear(rig);
    free(out), free(lse);
}

/* out and lse are the reference's own, rounded to what a kernel would have left. */
static void test_backward(struct gpu_rig *rig, enum dtype type, struct shape_attention s)
{
    char what[96];
    int64_t rows = s.batch * s.sequence, n = rows * s.heads * s.head, m = rows * s.heads;
    int64_t all = rows * (s.heads + 2 * s.kv_heads) * s.head;
    double *want = gpu_doubles(all);
    rig->op.dtype = type;
    rig->op.shape.attention = s;
    const double *dout = gpu_random(rig, 0, type, n, 1), *x = gpu_random(rig, 1, type, all, 1);
    double *out = gpu_take(rig, 2, type, n), *lse = gpu_take(rig, 3, DTYPE_F32, m);
    attend(&s, x, out, lse);
    attend_grad(&s, x, out, dout, want);
    gpu_upload(rig, 2);
    gpu_upload(rig, 3);
    gpu_poison(rig, 4, type, all);
    name(what, sizeof what, "attention-grad", &s);
    if (run(rig, OP_ATTENTION_GRAD, what)) {
        gpu_check(rig, 4, want, backward[type], what);
        if (rig->context.attention == ATTENTION_FUSED || rig->context.deterministic)
            gpu_check_same(rig, OP_ATTENTION_GRAD, (const int[]){4, -1}, what);
    }
    gpu_clear(rig);
    free(want);
}

static void test_refusals(struct gpu_rig *rig)
{
    rig->op.kind = OP_ATTENTION;
    rig->op.dtype = DTYPE_BF16;
    rig->context.attention = ATTENTION_FUSED;
    rig->op.shape.attention =
        (struct shape_attention){.batch = 1, .sequence = 8, .heads = 1, .kv_heads = 1, .head = 264};
    CHECK_EQ(gpu_open_op(rig), FAIL_USAGE);
    CHECK_HAS(fail_message(), "heads of 264 elements: this device takes heads of up to 256");
    fail_clear();
    kernels_cuda.close(&rig->context);
    rig->op.dtype = DTYPE_F64;
    CHECK_EQ(gpu_open_op(rig), FAIL_USAGE);
    CHECK_HAS(fail_message(), "attention in fp64");
    fail_clear();
    kernels_cuda.close(&rig->context);
}

int main(int argc, char **argv)
{
    static const struct shape_attention small[] = {
        {2, 33, 2, 2, 64, 0, false},  {1, 200, 4, 2, 64, 0, false},  {1, 129, 2, 1, 128, 0, false},
        {1, 1, 1, 1, 64, 0, false},   {2, 50, 3, 1, 8, 0, false},    {1, 70, 2, 2, 96, 0, false},
        {1, 45, 1, 1, 256, 0, false}, {1, 256, 1, 1, 128, 0, false},
    };
    static const struct shape_attention full[] = {
        {2, 1024, 12, 12, 64, 0, false}, {1, 1023, 8, 2, 128, 0, false},
        {1, 2048, 4, 1, 128, 0, false},  {1, 1000, 25, 25, 64, 0, false},
        {3, 513, 6, 3, 64, 0, false},
    };
    static const enum dtype types[] = {DTYPE_F32, DTYPE_BF16};
    struct gpu_rig rig;
    if (gpu_rig_open(&rig) != 0)
        return 77;
    for (int choice = ATTENTION_CUDNN; choice <= ATTENTION_FUSED; choice++)
        for (size_t t = choice == ATTENTION_CUDNN ? 1 : 0; t < GPU_COUNT(types); t++)
            for (size_t i = 0; i < GPU_COUNT(small) + GPU_COUNT(full); i++) {
                bool large = i >= GPU_COUNT(small);
                if (large && gpu_small(argc, argv))
                    break;
                struct shape_attention s = large ? full[i - GPU_COUNT(small)] : small[i];
                rig.context.attention = (enum attention_choice)choice;
                test_forward(&rig, types[t], s);
                test_backward(&rig, types[t], s);
                rig.context.deterministic = true;
                if (choice == ATTENTION_CUDNN)
                    test_backward(&rig, types[t], s);
                rig.context.deterministic = false;
            }
    test_refusals(&rig);
    gpu_rig_close(&rig);
    return test_end();
}
