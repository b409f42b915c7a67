/* Causal attention forward and backward, by cuDNN and by all fused kernels, against fp64. */
#include "tests/gpu/gpu_rig.h"

/*
 * In bf16 probabilities are rounded before they are multiplied, and their gradients, made from these or
 * from what these were, each at random, which leaves the relative size of an error as it is; then the
 * result is rounded: two roundings forward, three backward. lse is fp32 everywhere, as are products of the plain kernel in
 * fp32: a few units in the last place of scores.
 */
static struct gpu_bound forward_bound(enum dtype type)
{
    return type == DTYPE_BF16 ? gpu_rounded(GPU_U_BF16, 2) : (struct gpu_bound){1e-6, 1.1e-6};
}

/* The gradient of a key is a sum over the queries of all its heads, which fp32 adds in order. The
 * first of them weigh most, so a large sum is there early and every later addition rounds it. */
static struct gpu_bound backward_bound(enum dtype type, const struct shape_attention *s)
{
    double terms = (double)s->sequence * (s->heads / s->kv_heads);
    if (type == DTYPE_BF16)
        return (struct gpu_bound){2 * 1.02 * GPU_U_BF16, gpu_rounded(GPU_U_BF16, 3).rms};
    return (struct gpu_bound){1e-6 + 4 * GPU_RMS * sqrt(terms) * GPU_U_F32,
                              2 * hypot(0.3 * sqrt(terms) * GPU_U_F32, 3e-7)};
}

static const struct gpu_bound lse_bound = {6e-7, 5e-7};

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

/* Four sums, since one would wait for each addition. */
static double inner(const double *a, const double *b, int n)
{
    double sum[4] = {0};
    int i = 0;
    for (; i + 4 <= n; i += 4)
        for (int j = 0; j < 4; j++)
            sum[j] += a[i + j] * b[i + j];
    for (; i < n; i++)
        sum[0] += a[i] * b[i];
    return sum[0] + sum[1] + (sum[2] + sum[3]);
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

struct reference {
    const struct shape_attention *shape;
    const double *x, *dout; /* qkv, and the gradient of out */
    double *out, *lse, *dx;
    pthread_mutex_t lock; /* of dx: heads share keys */
};

/* Queries first..end-1 of all samples and heads, one after the other. */
static void attend_piece(void *arg, int64_t first, int64_t end)
{
    const struct reference *r = arg;
    const struct shape_attention *s = r->shape;
    double *p = gpu_doubles(s->sequence);
    for (int64_t n = first; n < end; n++) {
        int64_t b = n / s->sequence / s->heads, i = n % s->sequence;
        int h = (int)(n / s->sequence % s->heads);
        struct qkv t = head_of(s, r->x, b, h);
        double *o = r->out + ((b * s->sequence + i) * s->heads + h) * s->head;
        r->lse[n] = probabilities(&t, i, s->head, p);
        for (int64_t j = 0; j <= i; j++)
            for (int c = 0; c < s->head; c++)
                o[c] += p[j] * t.v[j * t.row + c];
    }
    free(p);
}

static void attend(const struct shape_attention *s, const double *x, double *out, double *lse)
{
    struct reference r = {.shape = s, .x = x, .out = out, .lse = lse};
    gpu_parallel(s->batch * s->heads * s->sequence, 16, attend_piece, &r);
}

/* Gradients of one query: its own to dx at once, those of keys and values to dk and dv [s][head]. */
static void query_grad(const struct reference *r, const struct qkv *t, int64_t at, int64_t i,
                       double *p, double *dk, double *dv)
{
    int head = r->shape->head;
    double *dq = r->dx + (t->q - r->x) + i * t->row, scale = 1 / sqrt((double)head);
    double delta = inner(r->dout + at, r->out + at, head);
    probabilities(t, i, head, p);
    for (int64_t j = 0; j <= i; j++) {
        double ds = p[j] * (inner(r->dout + at, t->v + j * t->row, head) - delta) * scale;
        for (int c = 0; c < head; c++) {
            dv[j * head + c] += p[j] * r->dout[at + c];
            dq[c] += ds * t->k[j * t->row + c];
            dk[j * head + c] += ds * t->q[i * t->row + c];
        }
    }
}

/* Samples and heads, one after the other, in pieces of queries. */
enum { QUERIES = 128 };

static void grad_piece(void *arg, int64_t first, int64_t end)
{
    struct reference *r = arg;
    const struct shape_attention *s = r->shape;
    int64_t pieces = (s->sequence + QUERIES - 1) / QUERIES, all = s->sequence * s->head;
    double *p = gpu_doubles(s->sequence), *dk = gpu_doubles(2 * all), *dv = dk + all;
    for (int64_t n = first; n < end; n++) {
        int64_t b = n / pieces / s->heads, from = n % pieces * QUERIES;
        int h = (int)(n / pieces % s->heads);
        struct qkv t = head_of(s, r->x, b, h);
        memset(dk, 0, (size_t)(2 * all) * sizeof *dk);
        for (int64_t i = from; i < from + QUERIES && i < s->sequence; i++)
            query_grad(r, &t, ((b * s->sequence + i) * s->heads + h) * s->head, i, p, dk, dv);
        pthread_mutex_lock(&r->lock);
        for (int64_t i = 0; i < all; i++) {
            int64_t to = i / s->head * t.row + i % s->head;
            r->dx[t.k - r->x + to] += dk[i];
            r->dx[t.v - r->x + to] += dv[i];
        }
        pthread_mutex_unlock(&r->lock);
    }
    free(p), free(dk);
}

static void attend_grad(const struct shape_attention *s, const double *x, double *out,
                        const double *dout, double *dx)
{
    struct reference r = {.shape = s, .x = x, .dout = dout, .out = out, .dx = dx};
    int64_t pieces = (s->sequence + QUERIES - 1) / QUERIES;
    pthread_mutex_init(&r.lock, NULL);
    gpu_parallel(s->batch * s->heads * pieces, 1, grad_piece, &r);
    pthread_mutex_destroy(&r.lock);
}

static void name(char *what, size_t size, const char *kind, const struct shape_attention *s)
{
    snprintf(what, size, "%s b %lld s %lld heads %d/%d x %d", kind, (long long)s->batch,
             (long long)s->sequence, s->heads, s->kv_heads, s->head);
}

/* What the last search said: plans and kernels that were timed, and that gave other results. */
static struct tried {
    int candidates, refused;
} tried;

static void read_tried(const char *choice)
{
    const char *at = choice == NULL ? NULL : strstr(choice, "MiB, ");
    tried = (struct tried){0};
    if (at != NULL)
        sscanf(at, "MiB, %d candidates, %d refused", &tried.candidates, &tried.refused);
}

/* Opens the set, says who computes, runs; false when the set refuses cuDNN for this op. */
static bool run(struct gpu_rig *rig, enum op_kind kind, const char *what)
{
    static char text[8192];
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
    const char *choice = strchr(text, '\n'); /* of a search */
    read_tried(choice);
    printf("%s%s", choice != NULL ? choice + 1 : "", choice != NULL ? "\n" : "");
    *strchr(text, ';') = '\0';
    printf("%-44s by %s\n", what, text);
    if (rig->context.attention != ATTENTION_AUTO)
        CHECK_HAS(text, rig->context.attention == ATTENTION_CUDNN ? "cuDNN" : "fused");
    if (gpu_has_older(rig, rig->op.dtype, rig->op.shape.attention.head))
        CHECK_HAS(text, rig->older ? "fused, mma" : "fused, wgmma");
    CHECK_EQ(strstr(text, "fixed order") != NULL, rig->context.deterministic);
    if (rig->context.attention == ATTENTION_AUTO && rig->context.deterministic &&
        kind == OP_ATTENTION_GRAD && rig->op.shape.attention.head == 64 &&
        gpu_is_hopper(rig, rig->op.dtype, 64))
        CHECK_HAS(text, "own (wgmma)");
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
        gpu_check(rig, 1, out, forward_bound(type), what);
        gpu_check(rig, 2, lse, lse_bound, "    lse");
    }
    gpu_clear(rig);
    free(out), free(lse);
}

/* out and lse are the reference's own, rounded to what a kernel would have left, and taken so by the
 * reference of the gradient. */
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
    gpu_upload(rig, 2);
    gpu_upload(rig, 3);
    attend_grad(&s, x, out, dout, want);
    gpu_poison(rig, 4, type, all);
    name(what, sizeof what, "attention-grad", &s);
    if (run(rig, OP_ATTENTION_GRAD, what)) {
        gpu_check(rig, 4, want, backward_bound(type, &s), what);
        if (rig->context.attention == ATTENTION_FUSED || rig->context.deterministic)
            gpu_check_same(rig, OP_ATTENTION_GRAD, (const int[]){4, -1}, what);
    }
    gpu_clear(rig);
    free(want);
}

/* cuDNN's plans, then with a kernel of ours among them, which gives what they give. */
static void test_search(struct gpu_rig *rig, enum dtype type, struct shape_attention s)
{
    int more = gpu_is_hopper(rig, type, s.head) ? 1 : 0;
    void (*const test[])(struct gpu_rig *, enum dtype, struct shape_attention) = {test_forward,
                                                                                  test_backward};
    for (int i = 0; i < 2; i++) {
        tried = (struct tried){0};
        rig->context.attention = ATTENTION_CUDNN;
        test[i](rig, type, s);
        struct tried alone = tried;
        rig->context.attention = ATTENTION_AUTO;
        test[i](rig, type, s);
        if (alone.candidates > 1) {
            CHECK_EQ(tried.candidates, alone.candidates + more);
            CHECK_EQ(tried.refused, alone.refused);
        }
    }
}

/* At an odd place nothing is read in 16 bytes. */
static void test_odd_place(struct gpu_rig *rig)
{
    struct shape_attention s = {.batch = 1, .sequence = 70, .heads = 2, .kv_heads = 2, .head = 64};
    rig->context.attention = ATTENTION_FUSED;
    rig->shift = 1;
    test_forward(rig, DTYPE_BF16, s);
    test_backward(rig, DTYPE_BF16, s);
    rig->shift = 0;
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
        {.batch = 2, .sequence = 33, .heads = 2, .kv_heads = 2, .head = 64},
        {.batch = 1, .sequence = 200, .heads = 4, .kv_heads = 2, .head = 64},
        {.batch = 1, .sequence = 129, .heads = 2, .kv_heads = 1, .head = 128},
        {.batch = 1, .sequence = 1, .heads = 1, .kv_heads = 1, .head = 64},
        {.batch = 2, .sequence = 50, .heads = 3, .kv_heads = 1, .head = 8},
        {.batch = 1, .sequence = 70, .heads = 2, .kv_heads = 2, .head = 96},
        {.batch = 1, .sequence = 45, .heads = 1, .kv_heads = 1, .head = 256},
        {.batch = 1, .sequence = 256, .heads = 1, .kv_heads = 1, .head = 128},
    };
    static const struct shape_attention full[] = {
        {.batch = 2, .sequence = 1024, .heads = 3, .kv_heads = 3, .head = 64},
        {.batch = 1, .sequence = 1023, .heads = 4, .kv_heads = 2, .head = 128},
        {.batch = 1, .sequence = 2048, .heads = 4, .kv_heads = 1, .head = 128},
        {.batch = 1, .sequence = 500, .heads = 25, .kv_heads = 25, .head = 64},
        {.batch = 3, .sequence = 513, .heads = 6, .kv_heads = 3, .head = 64},
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
                rig.context.deterministic = true; /* an engine that says so, or a kernel of ours */
                rig.context.attention = ATTENTION_AUTO;
                if (choice == ATTENTION_CUDNN)
                    test_backward(&rig, types[t], s);
                rig.context.attention = (enum attention_choice)choice;
                rig.context.deterministic = false;
                rig.context.search = choice == ATTENTION_CUDNN; /* whatever plan is the fastest */
                if (rig.context.search)
                    test_search(&rig, types[t], s);
                rig.context.search = false;
                rig.older = gpu_has_older(&rig, types[t], s.head);
                if (rig.older) {
                    test_forward(&rig, types[t], s);
                    test_backward(&rig, types[t], s);
                }
                rig.older = false;
            }
    test_odd_place(&rig);
    test_refusals(&rig);
    gpu_rig_close(&rig);
    return test_end();
}
