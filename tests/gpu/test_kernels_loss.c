/* Cross-entropy with all columns and with a split vocabulary, embedding and its gradient. */
#include "tests/gpu/gpu_rig.h"

static const enum dtype types[] = {DTYPE_F32, DTYPE_BF16};

/* In fp32 some units in the last place from the sum and the exponential; in bf16 the result is rounded
 * once. The loss of a row is fp32, their sum fp64. */
static const struct gpu_bound gradient[] = {
    [DTYPE_F32] = {6e-7, 2.5e-7}, [DTYPE_BF16] = {4e-3, 2.5e-3}};
static const struct gpu_bound stats_bound = {4e-7, 1.8e-7}, scalar_bound = {6e-8, 6e-8};
static const struct gpu_bound embedded[] = {
    [DTYPE_F32] = {1e-7, 1e-7}, [DTYPE_BF16] = {4e-3, 2.5e-3}};
/* Values are multiples of 2^-16: sums below 2^8 are exact. */
static const struct gpu_bound sums = {2.4e-7, 1e-7};

struct loss_case {
    int64_t rows, width, valid;
    int parts;
};

static void fill_targets(struct gpu_rig *rig, int t, const struct loss_case *c)
{
    double *target = gpu_take(rig, t, DTYPE_I32, c->rows);
    uint64_t key = rng_key(rig->stream++, "targets");
    int64_t vocabulary = c->width * (c->parts - 1) + c->valid;
    for (int64_t r = 0; r < c->rows; r++)
        target[r] = (double)rng_below(key, (uint64_t)r, (uint32_t)vocabulary);
    gpu_upload(rig, t);
}

static void fill_mask(struct gpu_rig *rig, int t, int64_t rows)
{
    double *mask = gpu_take(rig, t, DTYPE_U8, rows);
    for (int64_t r = 0; r < rows; r++)
        mask[r] = r % 5 != 3;
    gpu_upload(rig, t);
}

/* Largest, sum, target's logit of the valid columns of a row on the rank that begins at `first`. */
static void row_stats(const double *row, const struct loss_case *c, int64_t valid, double target,
                      int64_t first, double *stats)
{
    (void)c;
    stats[0] = -(double)INFINITY;
    stats[1] = stats[2] = 0;
    for (int64_t j = 0; j < valid; j++)
        stats[0] = row[j] > stats[0] ? row[j] : stats[0];
    for (int64_t j = 0; j < valid; j++)
        stats[1] += exp(row[j] - stats[0]);
    if ((int64_t)target >= first && (int64_t)target < first + valid)
        stats[2] = row[(int64_t)target - first];
}

/* Gradient of one row in place of logits, and its loss, from the stats of all ranks. */
static double row_grad(double *row, const struct loss_case *c, int64_t valid, double target,
                       int64_t first, const double *stats, int64_t stride)
{
    double most = -(double)INFINITY, sum = 0, logit = 0;
    for (int p = 0; p < c->parts; p++)
        most = stats[p * stride] > most ? stats[p * stride] : most;
    for (int p = 0; p < c->parts; p++) {
        sum += stats[p * stride + 1] * exp(stats[p * stride] - most);
        logit += stats[p * stride + 2];
    }
    for (int64_t j = 0; j < c->width; j++)
        row[j] = j < valid ? exp(row[j] - most) / sum - (first + j == (int64_t)target) : 0;
    return most + log(sum) - logit;
}

/* One rank of `parts`: the logits of the others are made here too, for their stats. */
static void test_rank(struct gpu_rig *rig, enum dtype type, const struct loss_case *c, int me)
{
    char what[96];
    int64_t n = c->rows * c->width, stride = c->rows * 3;
    double *stats = gpu_doubles(stride * c->parts), *want = gpu_doubles(n);
    double scalars[SCALARS] = {[SCALAR_LOSS_SUM] = 7, [SCALAR_VALID] = 2, [SCALAR_TOKENS] = 1};
    fill_targets(rig, 1, c);
    fill_mask(rig, 2, c->rows);
    for (int p = 0; p < c->parts; p++) {
        int64_t valid = p == c->parts - 1 ? c->valid : c->width;
        double *logits = p == me ? gpu_random(rig, 0, type, n, 3) : gpu_doubles(n);
        struct gpu_move others = {
            .value = logits, .key = rng_key(rig->stream++, "others"), .scale = 3};
        if (p != me)
            gpu_parallel(n, GPU_GRAIN, gpu_random_piece, &others);
        for (int64_t r = 0; r < c->rows; r++)
            row_stats(logits + r * c->width, c, valid, rig->t[1].value[r], p * c->width,
                      stats + p * stride + 3 * r);
        if (p != me)
            free(logits);
    }
    int64_t mine = me == c->parts - 1 ? c->valid : c->width;
    rig->op.dtype = type;
    rig->op.shape.rows = (struct shape_rows){.rows = c->rows,
                                             .width = c->width,
                                             .valid = mine,
                                             .first_column = me * c->width,
                                             .parts = c->parts > 1 ? c->parts : 0};
    memcpy(want, rig->t[0].value, (size_t)n * sizeof *want);
    for (int64_t r = 0; r < c->rows; r++) {
        bool counts = rig->t[2].value[r] != 0;
        double loss = row_grad(want + r * c->width, c, mine, rig->t[1].value[r], me * c->width,
                               stats + 3 * r, stride);
        for (int64_t j = 0; !counts && j < c->width; j++)
            want[r * c->width + j] = 0;
        if (me == 0) {
            scalars[SCALAR_LOSS_SUM] += counts ? loss : 0;
            scalars[SCALAR_VALID] += counts;
            scalars[SCALAR_TOKENS] += 1;
        }
    }
    double *before = gpu_take(rig, 3, DTYPE_F64, SCALARS);
    before[SCALAR_LOSS_SUM] = 7, before[SCALAR_VALID] = 2, before[SCALAR_TOKENS] = 1;
    gpu_upload(rig, 3);
    if (c->parts > 1) {
        memcpy(gpu_take(rig, 4, DTYPE_F32, stride * c->parts), stats,
               (size_t)(stride * c->parts) * sizeof *stats);
        gpu_upload(rig, 4);
    }
    gpu_run(rig, OP_CROSS_ENTROPY);
    snprintf(what, sizeof what, "cross-entropy %lld x %lld, rank %d of %d", (long long)c->rows,
             (long long)c->width, me, c->parts);
    gpu_check(rig, 0, want, gradient[type], what);
    gpu_check(rig, 3, scalars, scalar_bound, "    scalars");
    gpu_check_same(rig, OP_CROSS_ENTROPY, (const int[]){0, 3, -1}, what);
    gpu_clear(rig);
    free(stats), free(want);
}

static void test_stats(struct gpu_rig *rig, enum dtype type, const struct loss_case *c)
{
    char what[96];
    double *want = gpu_doubles(c->rows * 3);
    rig->op.dtype = type;
    rig->op.shape.rows = (struct shape_rows){
        .rows = c->rows, .width = c->width, .valid = c->valid, .first_column = c->width};
    const double *logits = gpu_random(rig, 0, type, c->rows * c->width, 3);
    fill_targets(rig, 1, &(struct loss_case){c->rows, c->width, c->valid, 2});
    gpu_poison(rig, 2, DTYPE_F32, c->rows * 3);
    for (int64_t r = 0; r < c->rows; r++)
        row_stats(logits + r * c->width, c, c->valid, rig->t[1].value[r], c->width, want + 3 * r);
    gpu_run(rig, OP_CLASS_STATS);
    snprintf(what, sizeof what, "class-stats of %s %lld x %lld", dtype_name((int)type),
             (long long)c->rows, (long long)c->width);
    gpu_check(rig, 2, want, stats_bound, what);
    gpu_clear(rig);
    free(want);
}

struct embed_case {
    int64_t rows, width, sequence, vocabulary, first_column, first_row;
    int hot; /* percent of positions that hold one token */
    bool wpe;
};

static void fill_tokens(struct gpu_rig *rig, const struct embed_case *c)
{
    double *token = gpu_take(rig, 0, DTYPE_I32, c->rows);
    uint64_t key = rng_key(rig->stream++, "tokens");
    for (int64_t r = 0; r < c->rows; r++)
        token[r] = (int)rng_below(key, (uint64_t)(2 * r), 100) < c->hot
                       ? (double)(c->first_column + 1)
                       : (double)rng_below(key, (uint64_t)(2 * r + 1),
                                           (uint32_t)(c->vocabulary + c->first_column));
    gpu_upload(rig, 0);
}

static struct shape_rows embed_shape(const struct embed_case *c)
{
    return (struct shape_rows){.rows = c->rows,
                               .width = c->width,
                               .valid = c->vocabulary,
                               .sequence = c->sequence,
                               .first_column = c->first_column,
                               .first_row = c->first_row};
}

static int64_t local(const struct gpu_rig *rig, const struct embed_case *c, int64_t r)
{
    int64_t row = (int64_t)rig->t[0].value[r] - c->first_column;
    return row >= 0 && row < c->vocabulary ? row : -1;
}

static void test_embed(struct gpu_rig *rig, enum dtype type, const struct embed_case *c)
{
    char what[96];
    int64_t h = c->width;
    double *want = gpu_doubles(c->rows * h);
    rig->op.dtype = type;
    rig->op.shape.rows = embed_shape(c);
    fill_tokens(rig, c);
    const double *wte = gpu_random(rig, 1, type, c->vocabulary * h, 1);
    const double *wpe = c->wpe ? gpu_random(rig, 2, type, c->sequence * h, 1) : NULL;
    gpu_poison(rig, 3, type, c->rows * h);
    for (int64_t i = 0; i < c->rows * h; i++) {
        int64_t row = local(rig, c, i / h), position = (c->first_row + i / h) % c->sequence;
        want[i] = row < 0 ? 0 : wte[row * h + i % h];
        if (wpe && c->first_column == 0)
            want[i] += wpe[position * h + i % h];
    }
    gpu_run(rig, OP_EMBED);
    snprintf(what, sizeof what, "embed %lld x %lld of %lld", (long long)c->rows, (long long)h,
             (long long)c->vocabulary);
    gpu_check(rig, 3, want, embedded[type], what);
    CHECK_EQ(rig->context.work.tokens, c->first_column == 0 ? c->rows : 0);
    gpu_clear(rig);
    free(want);
}

static void test_embed_grad(struct gpu_rig *rig, enum dtype type, const struct embed_case *c)
{
    char what[96];
    int64_t h = c->width;
    double *wte = gpu_doubles(c->vocabulary * h), *wpe = gpu_doubles(c->sequence * h);
    rig->op.dtype = type;
    rig->op.shape.rows = embed_shape(c);
    fill_tokens(rig, c);
    const double *dx = gpu_random(rig, 1, type, c->rows * h, 1);
    memcpy(wte, gpu_random(rig, 2, DTYPE_F32, c->vocabulary * h, 1),
           (size_t)(c->vocabulary * h) * sizeof *wte);
    if (c->wpe)
        memcpy(wpe, gpu_random(rig, 3, DTYPE_F32, c->sequence * h, 1),
               (size_t)(c->sequence * h) * sizeof *wpe);
    for (int64_t i = 0; i < c->rows * h; i++) {
        int64_t row = local(rig, c, i / h), position = (c->first_row + i / h) % c->sequence;
        if (row >= 0)
            wte[row * h + i % h] += dx[i];
        wpe[position * h + i % h] += dx[i];
    }
    gpu_run(rig, OP_EMBED_GRAD);
    snprintf(what, sizeof what, "embed-grad of %s %lld x %lld, hot %d%%", dtype_name((int)type),
             (long long)c->rows, (long long)h, c->hot);
    gpu_check(rig, 2, wte, sums, what);
    if (c->wpe)
        gpu_check(rig, 3, wpe, sums, "    positions");
    gpu_check_same(rig, OP_EMBED_GRAD, (const int[]){2, c->wpe ? 3 : -1, -1}, what);
    gpu_clear(rig);
    free(wte), free(wpe);
}

int main(int argc, char **argv)
{
    static const struct loss_case losses[] = {
        {3, 37, 30, 1},     {40, 1000, 997, 1}, {16, 96, 96, 3},       {16, 96, 1, 4},
        {7, 2056, 2050, 2}, {5000, 40, 37, 1},  {64, 50304, 50257, 1}, {64, 25152, 25105, 2},
    };
    static const struct embed_case embeds[] = {
        {1, 8, 4, 5, 0, 0, 0, true},
        {100, 37, 10, 7, 0, 3, 0, true},
        {96, 64, 32, 50, 0, 0, 95, true},
        {200, 40, 50, 90, 60, 0, 10, false},
        {2000, 64, 100, 300, 0, 0, 30, true},
        {65536, 32, 1024, 5000, 0, 0, 4, true},
        {4096, 256, 1024, 50257, 0, 0, 4, true},
        {4096, 1600, 1024, 3000, 0, 0, 0, true},
        {2048, 4096, 2048, 1602, 1602, 0, 4, false},
    };
    struct gpu_rig rig;
    bool small = gpu_small(argc, argv);
    if (gpu_rig_open(&rig) != 0)
        return 77;
    for (size_t i = 0; i < GPU_COUNT(types); i++)
        for (rig.shift = 0; rig.shift < 2; rig.shift++) {
            for (size_t j = 0; j < GPU_COUNT(losses) - (small ? 3 : 0); j++) {
                for (int me = 0; me < losses[j].parts; me++)
                    test_rank(&rig, types[i], &losses[j], me);
                test_stats(&rig, types[i], &losses[j]);
            }
            for (size_t j = 0; j < GPU_COUNT(embeds) - (small ? 4 : 0); j++) {
                test_embed(&rig, types[i], &embeds[j]);
                test_embed_grad(&rig, types[i], &embeds[j]);
            }
        }
    gpu_rig_close(&rig);
    return test_end();
}
