/* LayerNorm and RMSNorm, with and without a residual, forward and backward, against fp64. */
#include "tests/gpu/gpu_rig.h"

/* In fp32 three or four roundings of an element, and statistics that are summed by threads, warps and
 * blocks, so over few levels; in bf16 the result is rounded once. Gradients of weights are fp32 in
 * every case, and sums over the rows of a block, then of blocks: 0.3 sqrt(20) u twice. */
static const struct gpu_bound forward[] = {
    [DTYPE_F32] = {4e-7, 1.8e-7}, [DTYPE_BF16] = {4e-3, 2.5e-3}};
static const struct gpu_bound backward[] = {
    [DTYPE_F32] = {4e-7, 1.8e-7}, [DTYPE_BF16] = {4e-3, 2.5e-3}};
static const struct gpu_bound statistics = {5e-7, 1.8e-7}, weights = {6e-7, 4e-7};

struct norm_case {
    int64_t rows, width;
    bool rms, residual, accumulate;
};

static void statistics_of(const double *x, int64_t n, bool rms, double *mean, double *rstd)
{
    double sum = 0, squares = 0;
    for (int64_t j = 0; j < n; j++)
        sum += x[j];
    *mean = rms ? 0 : sum / (double)n;
    for (int64_t j = 0; j < n; j++)
        squares += (x[j] - *mean) * (x[j] - *mean);
    *rstd = 1 / sqrt(squares / (double)n + 1e-5);
}

static void name(char *what, size_t size, const char *kind, const struct norm_case *c)
{
    snprintf(what, size, "%s%s%s %lld x %lld", c->rms ? "rms " : "", kind,
             c->residual     ? " residual"
             : c->accumulate ? " adding"
                             : "",
             (long long)c->rows, (long long)c->width);
}

static struct shape_rows shape(const struct norm_case *c)
{
    return (struct shape_rows){
        .rows = c->rows, .width = c->width, .rms = c->rms, .accumulate = c->accumulate};
}

static void test_forward(struct gpu_rig *rig, enum dtype type, const struct norm_case *c)
{
    int64_t n = c->rows * c->width;
    char what[96];
    double *y = gpu_doubles(n), *x = gpu_doubles(n), *mean = gpu_doubles(c->rows);
    double *rstd = gpu_doubles(c->rows);
    rig->op.dtype = type;
    rig->op.shape.rows = shape(c);
    gpu_random(rig, 0, type, n, 1);
    for (int64_t i = 0; i < n; i++) /* a mean that is not small */
        rig->t[0].value[i] += 0.5;
    rig->device.type->free(&rig->device, DEVICE_ACTIVATIONS, rig->t[0].memory, rig->t[0].bytes);
    gpu_upload(rig, 0);
    const double *w = gpu_random(rig, 1, type, c->width, 1);
    const double *b = c->rms ? NULL : gpu_random(rig, 2, type, c->width, 1);
    gpu_poison(rig, 3, type, n);
    if (!c->rms)
        gpu_poison(rig, 4, DTYPE_F32, c->rows);
    gpu_poison(rig, 5, DTYPE_F32, c->rows);
    for (int64_t i = 0; i < n; i++)
        x[i] = rig->t[0].value[i];
    if (c->residual) {
        const double *more = gpu_random(rig, 6, type, n, 1);
        gpu_poison(rig, 7, type, n);
        for (int64_t i = 0; i < n; i++)
            x[i] = type == DTYPE_BF16 ? gpu_from_bf16(gpu_to_bf16(x[i] + more[i])) : x[i] + more[i];
    }
    for (int64_t r = 0; r < c->rows; r++) {
        statistics_of(x + r * c->width, c->width, c->rms, &mean[r], &rstd[r]);
        for (int64_t j = 0; j < c->width; j++)
            y[r * c->width + j] = (x[r * c->width + j] - mean[r]) * rstd[r] * w[j] + (b ? b[j] : 0);
    }
    gpu_run(rig, OP_NORM);
    name(what, sizeof what, "norm", c);
    gpu_check(rig, 3, y, forward[type], what);
    if (!c->rms)
        gpu_check(rig, 4, mean, statistics, "    mean");
    gpu_check(rig, 5, rstd, statistics, "    rstd");
    if (c->residual)
        gpu_check(rig, 7, x, (struct gpu_bound){1e-7, 1e-7}, "    sum");
    gpu_clear(rig);
    free(y), free(x), free(mean), free(rstd);
}

static void reference_grad(const struct gpu_rig *rig, const struct norm_case *c, double *dx,
                           double *dw, double *db)
{
    const double *dy = rig->t[0].value, *x = rig->t[1].value, *w = rig->t[2].value;
    int64_t n = c->width;
    for (int64_t r = 0; r < c->rows; r++) {
        double center = c->rms ? 0 : rig->t[3].value[r], scale = rig->t[4].value[r];
        double mean = 0, slope = 0;
        for (int64_t j = 0; j < n; j++) {
            double g = dy[r * n + j] * w[j], hat = (x[r * n + j] - center) * scale;
            mean += c->rms ? 0 : g / (double)n;
            slope += g * hat / (double)n;
            dw[j] += dy[r * n + j] * hat;
            db[j] += dy[r * n + j];
        }
        for (int64_t j = 0; j < n; j++) {
            double hat = (x[r * n + j] - center) * scale;
            dx[r * n + j] += scale * (dy[r * n + j] * w[j] - mean - hat * slope);
        }
    }
}

static void test_backward(struct gpu_rig *rig, enum dtype type, const struct norm_case *c)
{
    int64_t n = c->rows * c->width;
    char what[96];
    double *dx = gpu_doubles(n), *dw = gpu_doubles(c->width), *db = gpu_doubles(c->width);
    rig->op.dtype = type;
    rig->op.shape.rows = shape(c);
    gpu_random(rig, 0, type, n, 1);
    const double *x = gpu_random(rig, 1, type, n, 1);
    gpu_random(rig, 2, type, c->width, 1);
    double *mean = gpu_take(rig, 3, DTYPE_F32, c->rows),
           *rstd = gpu_take(rig, 4, DTYPE_F32, c->rows);
    for (int64_t r = 0; r < c->rows; r++)
        statistics_of(x + r * c->width, c->width, c->rms, &mean[r], &rstd[r]);
    gpu_upload(rig, 3);
    gpu_upload(rig, 4);
    if (c->accumulate)
        memcpy(dx, gpu_random(rig, 5, type, n, 1), (size_t)n * sizeof *dx);
    else
        gpu_poison(rig, 5, type, n);
    memcpy(dw, gpu_random(rig, 6, DTYPE_F32, c->width, 1), (size_t)c->width * sizeof *dw);
    if (!c->rms)
        memcpy(db, gpu_random(rig, 7, DTYPE_F32, c->width, 1), (size_t)c->width * sizeof *db);
    if (c->rms)
        rig->op.t[3].buffer = BUFFER_NONE;
    reference_grad(rig, c, dx, dw, db);
    gpu_run(rig, OP_NORM_GRAD);
    name(what, sizeof what, "norm-grad", c);
    gpu_check(rig, 5, dx, backward[type], what);
    gpu_check(rig, 6, dw, weights, "    dw");
    if (!c->rms)
        gpu_check(rig, 7, db, weights, "    db");
    gpu_check_same(rig, OP_NORM_GRAD, (const int[]){5, 6, c->rms ? -1 : 7, -1}, what);
    gpu_clear(rig);
    free(dx), free(dw), free(db);
}

static void test_case(struct gpu_rig *rig, const struct norm_case *c)
{
    static const enum dtype types[] = {DTYPE_F32, DTYPE_BF16};
    for (size_t i = c->width > 16384 ? 1 : 0; i < GPU_COUNT(types); i++)
        for (rig->shift = 0; rig->shift < (c->width > 4096 ? 1 : 2); rig->shift++) {
            test_forward(rig, types[i], c);
            if (!c->residual)
                test_backward(rig, types[i], c);
        }
}

static void test_refusal(struct gpu_rig *rig)
{
    rig->op.kind = OP_NORM;
    rig->op.dtype = DTYPE_BF16;
    rig->op.shape.rows = (struct shape_rows){.rows = 2, .width = 32769};
    CHECK_EQ(gpu_open_op(rig), FAIL_USAGE);
    CHECK_HAS(fail_message(), "norm: a row of 32769 elements of bf16");
    fail_clear();
    kernels_cuda.close(&rig->context);
}

int main(int argc, char **argv)
{
    static const struct norm_case odd[] = {
        {1, 1, false, false, false},    {3, 37, false, false, false}, {7, 37, true, false, true},
        {65, 257, false, true, false},  {9, 264, false, false, true}, {9, 264, true, true, false},
        {33, 1032, false, false, true},
    };
    /* Every kernel and width of block; the first two are more rows than a grid takes at once, as rows
     * of warps and, where accesses are narrow, of blocks. */
    static const struct norm_case full[] = {
        {70001, 16, false, false, true},  {8600, 260, false, false, false},
        {1024, 768, false, false, true},  {1024, 1600, false, true, false},
        {1024, 1600, true, false, false}, {300, 4096, true, true, false},
        {400, 4096, true, false, true},   {300, 5120, false, false, false},
        {300, 8192, false, false, true},  {270, 12288, true, false, false},
        {270, 16384, false, false, true}, {270, 24576, false, false, true},
        {100, 32768, false, true, false},
    };
    struct gpu_rig rig;
    if (gpu_rig_open(&rig) != 0)
        return 77;
    for (size_t i = 0; i < GPU_COUNT(odd); i++)
        test_case(&rig, &odd[i]);
    for (size_t i = 0; i < GPU_COUNT(full) && !gpu_small(argc, argv); i++)
        test_case(&rig, &full[i]);
    test_refusal(&rig);
    gpu_rig_close(&rig);
    return test_end();
}
