/* OP_NORM is LayerNorm or RMSNorm, of x or of x plus a residual; OP_NORM_GRAD its derivative;
 * OP_BIAS_GRAD a column sum; "+=" adds. */
#include "kernel_rig.h"

static void reference_row(bool rms, const double *x, const double *w, const double *b, int64_t n,
                          double *y, double *mean, double *rstd)
{
    double m = 0, variance = 0;
    for (int64_t j = 0; j < n && !rms; j++)
        m += x[j] / (double)n;
    for (int64_t j = 0; j < n; j++)
        variance += (x[j] - m) * (x[j] - m) / (double)n;
    double r = 1 / sqrt(variance + 1e-5);
    for (int64_t j = 0; j < n; j++)
        y[j] = (x[j] - m) * r * w[j] + (rms ? 0 : b[j]);
    *mean = m;
    *rstd = r;
}

/* L = sum r y as a function of x, w and b moved by `by` along their directions. */
struct norm_case {
    bool rms;
    int64_t rows, width;
    double *x, *w, *b, *r, *dx, *dw, *db; /* values; weights of L; directions */
};

static double projection(const struct norm_case *c, double by)
{
    int64_t n = c->width;
    double *work = must_alloc((size_t)(4 * n), sizeof *work), sum = 0, mean, rstd;
    double *x = work, *w = work + n, *b = work + 2 * n, *y = work + 3 * n;
    for (int64_t j = 0; j < n; j++) {
        w[j] = c->w[j] + by * c->dw[j];
        b[j] = c->b[j] + by * c->db[j];
    }
    for (int64_t i = 0; i < c->rows; i++) {
        for (int64_t j = 0; j < n; j++)
            x[j] = c->x[i * n + j] + by * c->dx[i * n + j];
        reference_row(c->rms, x, w, b, n, y, &mean, &rstd);
        for (int64_t j = 0; j < n; j++)
            sum += c->r[i * n + j] * y[j];
    }
    free(work);
    return sum;
}

static void check_forward(struct rig *rig, const struct norm_case *c)
{
    int64_t rows = c->rows, n = c->width, all = rows * n;
    float *y = rig_poisoned(rig, 3, all);
    float *mean = c->rms ? NULL : rig_poisoned(rig, 4, rows), *rstd = rig_poisoned(rig, 5, rows);
    double *want = must_alloc((size_t)(all + 2 * rows), sizeof *want);
    for (int64_t i = 0; i < rows; i++)
        reference_row(c->rms, c->x + i * n, c->w, c->b, n, want + i * n, want + all + i,
                      want + all + rows + i);
    rig_run(rig, OP_NORM);
    CHECK(rig_error(y, want, all) < 5e-7);
    if (!c->rms)
        CHECK(rig_error(mean, want + all, rows) < 1e-6);
    CHECK(rig_error(rstd, want + all + rows, rows) < 1e-6);
    free(want);
}

static void free_case(struct norm_case *c)
{
    double *all[] = {c->x, c->w, c->b, c->r, c->dx, c->dw, c->db};
    for (size_t i = 0; i < RIG_COUNT(all); i++)
        free(all[i]);
}

/* Slopes along x, w and b apart: 0, 1, 2. */
static double quotient(const struct norm_case *c, int which)
{
    struct norm_case moved = *c;
    double *none = must_alloc((size_t)(c->rows * c->width), sizeof *none);
    if (which != 0)
        moved.dx = none;
    if (which != 1)
        moved.dw = none;
    if (which != 2)
        moved.db = none;
    const double h = 1e-5;
    double slope = (projection(&moved, h) - projection(&moved, -h)) / (2 * h);
    free(none);
    return slope;
}

static void check_backward(const struct rig *forward, const struct norm_case *c, bool accumulate)
{
    int64_t rows = c->rows, n = c->width, all = rows * n;
    struct rig rig = {
        .op.shape.rows = {.rows = rows, .width = n, .accumulate = accumulate, .rms = c->rms}};
    int from[] = {-1, 0, 1, 4, 5};
    int64_t length[] = {all, all, n, rows, rows};
    float *dy = rig_tensor(&rig, 0, (size_t)all * sizeof *dy);
    for (int64_t i = 0; i < all; i++)
        dy[i] = (float)c->r[i];
    for (int t = 1; t < 5; t++) {
        size_t bytes = (size_t)length[t] * sizeof(float);
        if (t == 3 && c->rms)
            continue;
        memcpy(rig_tensor(&rig, t, bytes), tensor_at(&forward->context, forward->op.t[from[t]]),
               bytes);
    }
    float *dx = accumulate ? rig_random(&rig, 5, all) : rig_poisoned(&rig, 5, all);
    float *dw = rig_random(&rig, 6, n), *db = c->rms ? NULL : rig_random(&rig, 7, n);
    double x0 = accumulate ? rig_inner(dx, c->dx, all) : 0;
    double w0 = rig_inner(dw, c->dw, n), b0 = c->rms ? 0 : rig_inner(db, c->db, n);

    rig_run(&rig, OP_NORM_GRAD);
    double tolerance = 3e-6 * sqrt((double)all) + 2e-6 * (fabs(x0) + fabs(w0) + fabs(b0));
    double slope = n > 1 || c->rms ? quotient(c, 0) : 0;
    CHECK_NEAR(rig_inner(dx, c->dx, all) - x0, slope, tolerance * (n < 8 ? 20 : 1));
    CHECK_NEAR(rig_inner(dw, c->dw, n) - w0, quotient(c, 1), tolerance);
    if (!c->rms)
        CHECK_NEAR(rig_inner(db, c->db, n) - b0, quotient(c, 2), tolerance);
    rig_release(&rig);
}

/* The same from x in two parts: their sum is kept, and all else is equal to the bit. */
static void check_residual(const struct rig *plain, const struct norm_case *c)
{
    int64_t rows = c->rows, all = rows * c->width;
    size_t bytes = (size_t)all * sizeof(float);
    struct rig rig = {.op.shape.rows = plain->op.shape.rows};
    const float *x = tensor_at(&plain->context, plain->op.t[0]);
    float *part = rig_random(&rig, 0, all), *residual = rig_tensor(&rig, 6, bytes);
    for (int64_t i = 0; i < all; i++) {
        part[i] = (float)((int)(part[i] * 4)) / 4; /* sums are exact */
        residual[i] = x[i] - part[i];
    }
    for (int t = 1; t < (c->rms ? 2 : 3); t++)
        memcpy(rig_tensor(&rig, t, (size_t)c->width * sizeof(float)),
               tensor_at(&plain->context, plain->op.t[t]), (size_t)c->width * sizeof(float));
    float *y = rig_poisoned(&rig, 3, all), *sum = rig_poisoned(&rig, 7, all);
    float *mean = c->rms ? NULL : rig_poisoned(&rig, 4, rows), *rstd = rig_poisoned(&rig, 5, rows);
    rig_run(&rig, OP_NORM);
    CHECK(memcmp(sum, x, bytes) == 0);
    CHECK(memcmp(y, tensor_at(&plain->context, plain->op.t[3]), bytes) == 0);
    size_t column = (size_t)rows * sizeof(float);
    CHECK(memcmp(rstd, tensor_at(&plain->context, plain->op.t[5]), column) == 0);
    if (!c->rms)
        CHECK(memcmp(mean, tensor_at(&plain->context, plain->op.t[4]), column) == 0);
    rig_release(&rig);
}

static void check_norm(int64_t rows, int64_t width, bool rms)
{
    int64_t all = rows * width;
    struct rig rig = {.op.shape.rows = {.rows = rows, .width = width, .rms = rms}};
    float *x = rig_random(&rig, 0, all);
    for (int64_t i = 0; i < all; i++) /* a mean that is not 0; few bits, so that sums are exact */
        x[i] = (float)((int)(x[i] * 1024)) / 1024 + 2;
    struct norm_case c = {.rms = rms, .rows = rows, .width = width};
    c.x = rig_double(x, all);
    c.w = rig_double(rig_random(&rig, 1, width), width);
    if (!rms)
        c.b = rig_double(rig_random(&rig, 2, width), width);
    c.r = rig_direction(all);
    c.dx = rig_direction(all);
    c.dw = rig_direction(width);
    c.db = rig_direction(width);
    if (rms)
        c.b = rig_direction(width); /* not part of it */
    check_forward(&rig, &c);
    check_residual(&rig, &c);
    check_backward(&rig, &c, false);
    check_backward(&rig, &c, true);
    free_case(&c);
    rig_release(&rig);
}

static void check_bias_grad(int64_t rows, int64_t width)
{
    struct rig rig = {.op.shape.rows = {.rows = rows, .width = width}};
    float *dy = rig_random(&rig, 0, rows * width), *db = rig_random(&rig, 1, width);
    double *want = rig_double(db, width);
    for (int64_t i = 0; i < rows * width; i++)
        want[i % width] += (double)dy[i];
    rig_run(&rig, OP_BIAS_GRAD);
    CHECK(rig_error(db, want, width) < 1e-6);
    free(want);
    rig_release(&rig);
}

int main(void)
{
    static const int64_t rows[] = {1, 3, 4, 7, 8, 9, 33},
                         widths[] = {1, 3, 7, 16, 17, 65, 127, 768};
    for (size_t i = 0; i < RIG_COUNT(rows); i++)
        for (size_t j = 0; j < RIG_COUNT(widths); j++) {
            check_norm(rows[i], widths[j], false);
            check_norm(rows[i], widths[j], true);
            check_bias_grad(rows[i], widths[j]);
        }
    return test_end();
}
