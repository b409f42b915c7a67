/*
 * Kernels of the "cuda" set at the shapes of a training step, beside what bounds them on this GPU in
 * this run: memory-bound ones as a share of a device-to-device copy, matrix products against a bare
 * cuBLASLt loop, fused attention against cuDNN.
 *
 *     bench_gpu_kernels [124m|774m|1558m] [memory|gemm|matmul|attention] [rounds]
 *
 * gemm: the products of a step, with its biases and fp32 sums; matmul: the same sizes into bf16, as
 * torch.matmul makes them. BENCH_TURNS: a line is measured for each line on stdin (torch_kernels.py);
 * BENCH_CHOICES: what was chosen is printed.
 *
 * Products take the algorithm that a search at set-up finds (GEMM_SEARCH=off: the first).
 * Data are normals (zeros are faster than anything that trains). A time is the median of `rounds`,
 * each between two events; bytes are those that an op must read and write once.
 */
#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include "tests/gpu/gpu_bench.h"

struct shape {
    const char *name;
    int64_t batch, hidden;
    int heads, layers;
    int64_t parameters;
};
static const struct shape shapes[] = {{"124m", 64, 768, 12, 12, 124475904},
                                      {"774m", 32, 1280, 20, 36, 774090240},
                                      {"1558m", 16, 1600, 25, 48, 1557686400}};
enum { SEQUENCE = 1024, VOCABULARY = 50257, PADDED = 50304 };

/* ---- memory-bound ops ---- */

struct memory_op {
    enum op_kind kind;
    const char *note;
    double bytes;
};

/* One op, its tensors taken by the caller: a line of the table. */
static void memory_line(struct bench *b, const struct memory_op *m, double copy)
{
    double seconds = bench_op(b, m->kind);
    double rate = m->bytes / seconds;
    printf("%-16s %-26s %9.1f us %8.0f GB/s  %5.1f %% of copy\n", op_name((int)m->kind), m->note,
           seconds * 1e6, rate / 1e9, 100 * rate / copy);
    bench_clear(b);
}

static void vector_ops(struct bench *b, int64_t n, double copy)
{
    b->op.shape.vector.n = n;
    bench_take(b, 0, DTYPE_BF16, n), bench_take(b, 1, DTYPE_BF16, n);
    memory_line(b, &(struct memory_op){OP_GELU, "rows x 4 hidden", 4.0 * (double)n}, copy);
    b->op.shape.vector.n = n;
    bench_take(b, 0, DTYPE_BF16, n), bench_take(b, 1, DTYPE_BF16, n);
    b->op.t[2] = b->op.t[0];
    memory_line(b, &(struct memory_op){OP_GELU_GRAD, "rows x 4 hidden", 6.0 * (double)n}, copy);
    b->op.shape.vector.n = n / 4;
    bench_take(b, 0, DTYPE_BF16, n / 4), bench_take(b, 1, DTYPE_BF16, n / 4);
    bench_take(b, 2, DTYPE_BF16, n / 4);
    memory_line(b, &(struct memory_op){OP_ADD, "rows x hidden", 6.0 * (double)(n / 4)}, copy);
}

static void norm_tensors(struct bench *b, int64_t rows, int64_t width, bool residual)
{
    int64_t n = rows * width;
    b->op.shape.rows = (struct shape_rows){.rows = rows, .width = width};
    bench_take(b, 0, DTYPE_BF16, n);
    bench_take(b, 1, DTYPE_BF16, width), bench_take(b, 2, DTYPE_BF16, width);
    bench_take(b, 3, DTYPE_BF16, n);
    bench_take(b, 4, DTYPE_F32, rows), bench_take(b, 5, DTYPE_F32, rows);
    if (residual)
        bench_take(b, 6, DTYPE_BF16, n), bench_take(b, 7, DTYPE_BF16, n);
}

static void norm_ops(struct bench *b, int64_t rows, int64_t width, double copy)
{
    double n = (double)(rows * width);
    norm_tensors(b, rows, width, false);
    memory_line(b, &(struct memory_op){OP_NORM, "rows x hidden", 4 * n}, copy);
    norm_tensors(b, rows, width, true);
    memory_line(b, &(struct memory_op){OP_NORM, "rows x hidden, residual", 8 * n}, copy);
    norm_tensors(b, rows, width, true);
    b->op.shape.rows.rms = true;
    memory_line(b, &(struct memory_op){OP_NORM, "rms, residual", 8 * n}, copy);
    b->op.shape.rows = (struct shape_rows){.rows = rows, .width = width, .accumulate = true};
    bench_take(b, 0, DTYPE_BF16, rows * width), bench_take(b, 1, DTYPE_BF16, rows * width);
    bench_take(b, 2, DTYPE_BF16, width);
    bench_take(b, 3, DTYPE_F32, rows), bench_take(b, 4, DTYPE_F32, rows);
    bench_take(b, 5, DTYPE_BF16, rows * width);
    bench_take(b, 6, DTYPE_F32, width), bench_take(b, 7, DTYPE_F32, width);
    memory_line(b, &(struct memory_op){OP_NORM_GRAD, "rows x hidden, adding", 8 * n}, copy);
}

static void row_ops(struct bench *b, int64_t rows, int64_t width, int heads, double copy)
{
    int64_t inner = 4 * width;
    double n = (double)(rows * inner);
    b->op.shape.rows = (struct shape_rows){.rows = rows, .width = inner};
    bench_take(b, 0, DTYPE_BF16, 2 * rows * inner), bench_take(b, 1, DTYPE_BF16, rows * inner);
    memory_line(b, &(struct memory_op){OP_SWIGLU, "rows x 4 hidden", 6 * n}, copy);
    b->op.shape.rows = (struct shape_rows){.rows = rows, .width = inner};
    bench_take(b, 0, DTYPE_BF16, rows * inner), bench_take(b, 1, DTYPE_BF16, 2 * rows * inner);
    b->op.t[2] = b->op.t[1];
    memory_line(b, &(struct memory_op){OP_SWIGLU_GRAD, "rows x 4 hidden", 10 * n}, copy);
    b->op.shape.attention = (struct shape_attention){.batch = rows / SEQUENCE,
                                                     .sequence = SEQUENCE,
                                                     .heads = heads,
                                                     .kv_heads = heads,
                                                     .head = (int)(width / heads),
                                                     .theta = 10000};
    bench_take(b, 0, DTYPE_BF16, 3 * rows * width);
    memory_line(b, &(struct memory_op){OP_ROTARY, "q, k of rows x hidden", 2 * n}, copy);
    for (int i = 0; i < 3; i++) {
        static const int factor[] = {1, 3, 4};
        int64_t columns = factor[i] * width;
        b->op.shape.rows = (struct shape_rows){.rows = rows, .width = columns};
        bench_take(b, 0, DTYPE_BF16, rows * columns), bench_take(b, 1, DTYPE_F32, columns);
        memory_line(b,
                    &(struct memory_op){OP_BIAS_GRAD,
                                        i == 0   ? "hidden"
                                        : i == 1 ? "3 hidden"
                                                 : "4 hidden",
                                        2.0 * (double)(rows * columns)},
                    copy);
    }
}

static void vocabulary_ops(struct bench *b, int64_t rows, int64_t width, double copy)
{
    double n = (double)(rows * width), logits = (double)rows * PADDED;
    struct shape_rows embed = {
        .rows = rows, .width = width, .valid = VOCABULARY, .sequence = SEQUENCE};
    struct shape_rows loss = {.rows = rows, .width = PADDED, .valid = VOCABULARY};
    b->op.shape.rows = embed;
    bench_tokens(b, 0, rows, VOCABULARY);
    bench_take(b, 1, DTYPE_BF16, PADDED * width), bench_take(b, 2, DTYPE_BF16, SEQUENCE * width);
    bench_take(b, 3, DTYPE_BF16, rows * width);
    memory_line(b, &(struct memory_op){OP_EMBED, "rows x hidden", 4 * n}, copy);
    b->op.shape.rows = embed;
    bench_tokens(b, 0, rows, VOCABULARY);
    bench_take(b, 1, DTYPE_BF16, rows * width);
    bench_take(b, 2, DTYPE_F32, PADDED * width), bench_take(b, 3, DTYPE_F32, SEQUENCE * width);
    double touched = n < (double)(VOCABULARY * width) ? n : (double)(VOCABULARY * width);
    memory_line(
        b, &(struct memory_op){OP_EMBED_GRAD, "dx twice, rows of dwte", 4 * n + 8 * touched}, copy);
    b->op.shape.rows = loss;
    bench_take(b, 0, DTYPE_BF16, rows * PADDED), bench_tokens(b, 1, rows, VOCABULARY);
    bench_ones(b, 2, rows), bench_take(b, 3, DTYPE_F64, SCALARS);
    memory_line(b, &(struct memory_op){OP_CROSS_ENTROPY, "logits once each way", 4 * logits}, copy);
    b->op.shape.rows = loss;
    bench_take(b, 0, DTYPE_BF16, rows * PADDED), bench_tokens(b, 1, rows, VOCABULARY);
    bench_take(b, 2, DTYPE_F32, 3 * rows);
    memory_line(b, &(struct memory_op){OP_CLASS_STATS, "logits once", 2 * logits}, copy);
}

static void update_ops(struct bench *b, int64_t n, double copy)
{
    double bytes = (double)n;
    b->op.shape.vector.n = n;
    bench_take(b, 0, DTYPE_F32, n);
    memory_line(b, &(struct memory_op){OP_ZERO, "gradients", 4 * bytes}, copy);
    b->op.dtype = DTYPE_F32;
    b->op.shape.vector.n = n;
    bench_take(b, 0, DTYPE_F32, n), bench_take(b, 1, DTYPE_F64, SCALARS);
    memory_line(b, &(struct memory_op){OP_SUMSQ, "fp32 gradients", 4 * bytes}, copy);
    b->op.shape.cast = (struct shape_cast){.n = n, .from = DTYPE_F32, .to = DTYPE_BF16};
    bench_take(b, 0, DTYPE_F32, n), bench_take(b, 1, DTYPE_BF16, n);
    memory_line(b, &(struct memory_op){OP_CAST, "fp32 to bf16", 6 * bytes}, copy);
    for (int i = 0; i < 2; i++) {
        enum dtype gradient = i == 0 ? DTYPE_F32 : DTYPE_BF16;
        b->op.shape.optimizer = (struct shape_optimizer){
            .n = n, .gradient = gradient, .beta1 = 0.9f, .beta2 = 0.95f, .epsilon = 1e-8f};
        bench_take(b, 0, DTYPE_F32, n), bench_take(b, 1, gradient, n);
        bench_take(b, 2, DTYPE_F32, n), bench_take(b, 3, DTYPE_F32, n);
        bench_scalars(b, 4), bench_take(b, 5, DTYPE_BF16, n);
        memory_line(b,
                    &(struct memory_op){
                        OP_ADAMW, i == 0 ? "fp32 gradient, bf16 copy" : "bf16 gradient, bf16 copy",
                        (26 + (double)dtype_size((int)gradient)) * bytes},
                    copy);
    }
}

static void bench_memory(struct bench *b, const struct shape *s)
{
    int64_t rows = s->batch * SEQUENCE;
    double copy = bench_copy(b, INT64_C(1) << 30);
    printf("copy on the device: %.0f GB/s, read and written\n", copy / 1e9);
    vector_ops(b, 4 * rows * s->hidden, copy);
    norm_ops(b, rows, s->hidden, copy);
    row_ops(b, rows, s->hidden, s->heads, copy);
    vocabulary_ops(b, rows, s->hidden, copy);
    update_ops(b, s->parameters, copy);
}

/* ---- matrix products ---- */

struct product {
    const char *name;
    int64_t m, n, k;
    bool trans_a, trans_b, add, bias;
};

/* The same product by cuBLASLt alone: no bias, the heuristic's first choice. */
static double bare_product(struct bench *b, const struct product *p)
{
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t how;
    cublasLtMatrixLayout_t layout[3];
    cublasLtMatmulPreference_t preference;
    cublasLtMatmulHeuristicResult_t found;
    cublasOperation_t first = p->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t second = p->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    size_t workspace = 32 << 20;
    void *memory = NULL;
    float alpha = 1, beta = p->add ? 1 : 0;
    int n = 0;
    cudaDataType_t out = p->add ? CUDA_R_32F : CUDA_R_16BF;
    cublasLtCreate(&handle);
    cublasLtMatmulDescCreate(&how, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatmulDescSetAttribute(how, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first);
    cublasLtMatmulDescSetAttribute(how, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second);
    int64_t an = p->trans_a ? p->m : p->k, bn = p->trans_b ? p->k : p->n;
    cublasLtMatrixLayoutCreate(&layout[0], CUDA_R_16BF, (uint64_t)an, (uint64_t)(p->m * p->k / an),
                               an);
    cublasLtMatrixLayoutCreate(&layout[1], CUDA_R_16BF, (uint64_t)bn, (uint64_t)(p->k * p->n / bn),
                               bn);
    cublasLtMatrixLayoutCreate(&layout[2], out, (uint64_t)p->n, (uint64_t)p->m, p->n);
    cublasLtMatmulPreferenceCreate(&preference);
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                         &workspace, sizeof workspace);
    bench_must(cublasLtMatmulAlgoGetHeuristic(handle, how, layout[1], layout[0], layout[2],
                                              layout[2], preference, 1, &found,
                                              &n) != CUBLAS_STATUS_SUCCESS ||
                   n == 0,
               "heuristic");
    bench_must(cudaMalloc(&memory, workspace), "workspace");
    bench_rest();
    for (int i = -3; i < b->rounds; i++) {
        bench_begin(b, i);
        bench_must(cublasLtMatmul(handle, how, &alpha, bench_at(b, 1), layout[1], bench_at(b, 0),
                                  layout[0], &beta, bench_at(b, 2), layout[2], bench_at(b, 2),
                                  layout[2], &found.algo, memory, workspace, b->stream),
                   "cublasLtMatmul");
        bench_end(b, i);
    }
    double seconds = bench_median(b);
    cudaFree(memory);
    cublasLtMatmulPreferenceDestroy(preference);
    for (int i = 0; i < 3; i++)
        cublasLtMatrixLayoutDestroy(layout[i]);
    cublasLtMatmulDescDestroy(how);
    cublasLtDestroy(handle);
    return seconds;
}

/* Times of ours and of the bare one, alternating: bare, ours, ours, bare. */
static void product_line(struct bench *b, const struct product *p, double times, double total[3])
{
    double flops = 2.0 * (double)p->m * (double)p->n * (double)p->k;
    b->op.shape.gemm = (struct shape_gemm){.m = p->m,
                                           .n = p->n,
                                           .k = p->k,
                                           .trans_a = p->trans_a,
                                           .trans_b = p->trans_b,
                                           .wide = p->add,
                                           .beta = p->add ? 1 : 0,
                                           .m_valid = p->m,
                                           .n_valid = p->n,
                                           .k_valid = p->k};
    bench_take(b, 0, DTYPE_BF16, p->m * p->k), bench_take(b, 1, DTYPE_BF16, p->k * p->n);
    bench_take(b, 2, p->add ? DTYPE_F32 : DTYPE_BF16, p->m * p->n);
    if (p->bias)
        bench_take(b, 3, DTYPE_BF16, p->n);
    bench_turn();
    bool alone = bench_in_turn(); /* the other program is what it is compared with */
    double bare = alone ? (double)NAN : bare_product(b, p), ours = bench_op(b, OP_GEMM);
    ours = (ours + bench_op(b, OP_GEMM)) / 2;
    bare = alone ? bare : (bare + bare_product(b, p)) / 2;
    printf("%-16s %6lld x %6lld x %6lld %c%c%s %9.1f us %6.0f TFLOP/s  bare %6.0f, ratio %.3f\n",
           p->name, (long long)p->m, (long long)p->n, (long long)p->k, p->trans_a ? 't' : 'n',
           p->trans_b ? 't' : 'n',
           p->bias  ? " bias"
           : p->add ? " add "
                    : "     ",
           ours * 1e6, flops / ours / 1e12, flops / bare / 1e12, bare / ours);
    total[0] += times * flops, total[1] += times * ours, total[2] += times * bare;
    bench_clear(b);
}

/* `plain`: into bf16, nothing added. */
static void bench_gemm(struct bench *b, const struct shape *s, bool plain)
{
    int64_t r = s->batch * SEQUENCE, h = s->hidden;
    double total[3] = {0};
    const struct product products[] = {
        {"8192", 8192, 8192, 8192, false, true, false, false},
        {"qkv", r, 3 * h, h, false, true, false, true},
        {"qkv dx", r, h, 3 * h, false, false, false, false},
        {"qkv dw", 3 * h, h, r, true, false, true, false},
        {"proj", r, h, h, false, true, false, true},
        {"proj dx", r, h, h, false, false, false, false},
        {"proj dw", h, h, r, true, false, true, false},
        {"fc", r, 4 * h, h, false, true, false, true},
        {"fc dx", r, h, 4 * h, false, false, false, false},
        {"fc dw", 4 * h, h, r, true, false, true, false},
        {"mlp proj", r, h, 4 * h, false, true, false, true},
        {"mlp proj dx", r, 4 * h, h, false, false, false, false},
        {"mlp proj dw", h, 4 * h, r, true, false, true, false},
        {"logits", r, PADDED, h, false, true, false, false},
        {"logits dx", r, h, PADDED, false, false, false, false},
        {"logits dw", PADDED, h, r, true, false, true, false},
    };
    for (size_t i = 0; i < sizeof products / sizeof products[0]; i++) {
        bool of_layer = strncmp(products[i].name, "logits", 6) != 0;
        struct product p = products[i];
        p.bias = p.bias && !plain;
        p.add = p.add && !plain;
        product_line(b, &p, i == 0 ? 0 : of_layer ? s->layers : 1, total);
    }
    printf("%-16s %9.1f us %6.0f TFLOP/s  bare %6.0f, ratio %.3f\n", "of a step", total[1] * 1e6,
           total[0] / total[1] / 1e12, total[0] / total[2] / 1e12, total[2] / total[1]);
}

/* ---- attention ---- */

static double attention_time(struct bench *b, enum op_kind kind, enum attention_choice choice,
                             const struct shape_attention *s)
{
    int64_t rows = s->batch * s->sequence, out = rows * s->heads * s->head;
    int64_t qkv = rows * (s->heads + 2 * s->kv_heads) * s->head, lse = rows * s->heads;
    b->context.attention = choice;
    b->op.shape.attention = *s;
    if (kind == OP_ATTENTION) {
        bench_take(b, 0, DTYPE_BF16, qkv), bench_take(b, 1, DTYPE_BF16, out);
        bench_take(b, 2, DTYPE_F32, lse);
    } else {
        bench_take(b, 0, DTYPE_BF16, out), bench_take(b, 1, DTYPE_BF16, qkv);
        bench_take(b, 2, DTYPE_BF16, out), bench_take(b, 3, DTYPE_F32, lse);
        bench_take(b, 4, DTYPE_BF16, qkv);
    }
    double seconds = bench_op(b, kind);
    bench_clear(b);
    return seconds;
}

static void attention_line(struct bench *b, const struct shape_attention *s)
{
    double pairs =
        (double)s->batch * (double)s->sequence * (double)s->sequence / 2 * s->heads * s->head;
    for (int backward = 0; backward < 2; backward++) {
        enum op_kind kind = backward ? OP_ATTENTION_GRAD : OP_ATTENTION;
        double flops = (backward ? 10 : 4) * pairs; /* backward makes the scores again */
        bench_turn();
        double cudnn = attention_time(b, kind, ATTENTION_CUDNN, s);
        double fused = attention_time(b, kind, ATTENTION_FUSED, s);
        b->context.deterministic = true;
        double ordered = attention_time(b, kind, ATTENTION_CUDNN, s);
        b->context.deterministic = false;
        double taken = attention_time(b, kind, ATTENTION_AUTO, s); /* by a step */
        printf("%-15s b %2lld s %5lld heads %2d/%2d x %3d  cuDNN %9.1f us %5.0f TFLOP/s  fused "
               "%9.1f us %5.0f  ratio %.3f  taken %9.1f us  cuDNN in order %9.1f us\n",
               op_name((int)kind), (long long)s->batch, (long long)s->sequence, s->heads,
               s->kv_heads, s->head, cudnn * 1e6, flops / cudnn / 1e12, fused * 1e6,
               flops / fused / 1e12, cudnn / fused, taken * 1e6, ordered * 1e6);
    }
}

static void bench_attention(struct bench *b, const struct shape *s)
{
    const struct shape_attention cases[] = {
        {.batch = s->batch,
         .sequence = SEQUENCE,
         .heads = s->heads,
         .kv_heads = s->heads,
         .head = (int)(s->hidden / s->heads)},
        {.batch = 2, .sequence = 8192, .heads = 32, .kv_heads = 8, .head = 128},
        {.batch = 16, .sequence = 1024, .heads = 16, .kv_heads = 16, .head = 128},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        attention_line(b, &cases[i]);
}

int main(int argc, char **argv)
{
    const struct shape *s = &shapes[0];
    const char *part = argc > 2 ? argv[2] : "";
    struct bench b;
    for (size_t i = 0; argc > 1 && i < sizeof shapes / sizeof shapes[0]; i++)
        if (strcmp(argv[1], shapes[i].name) == 0)
            s = &shapes[i];
    int rc = bench_open(&b, argc > 3 ? atoi(argv[3]) : 20);
    if (rc != 0)
        return rc;
    const char *search = getenv("GEMM_SEARCH");
    b.context.search = search == NULL || strcmp(search, "off") != 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("gpt2-%s, %lld x %d tokens, bf16, median of %d\n", s->name, (long long)s->batch,
           SEQUENCE, b.rounds);
    if (part[0] == '\0' || strcmp(part, "memory") == 0)
        bench_memory(&b, s);
    if (part[0] == '\0' || strcmp(part, "gemm") == 0)
        bench_gemm(&b, s, false);
    if (strcmp(part, "matmul") == 0)
        bench_gemm(&b, s, true);
    if (part[0] == '\0' || strcmp(part, "attention") == 0)
        bench_attention(&b, s);
    bench_close(&b);
    return 0;
}
