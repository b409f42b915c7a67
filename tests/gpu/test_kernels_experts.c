/*
 * Kernels of layers of experts: what a token takes is what the CPU kernel takes, to the bit; rows are
 * moved exactly; sums and products are compared with fp64.
 */
#include "tests/gpu/gpu_rig.h"
#include "workloads/routing.h"

struct route_case {
    enum routing_kind kind;
    int experts, top_k, parts;
    int64_t sequence, sequences, capacity;
};

static void fill_route(struct shape_route *s, const struct route_case *c, int32_t *first,
                       uint32_t *threshold)
{
    struct routing routing = {.kind = c->kind, .sigma = 1.0, .seed = 5};
    int64_t all = c->sequence * c->sequences, counts[EXPERTS_MOST];
    *s = (struct shape_route){.rows = all / c->parts,
                              .all_rows = all,
                              .sequence = c->sequence,
                              .lead = all / c->parts / 2,
                              .parts = c->parts,
                              .part = c->parts - 1,
                              .experts = c->experts,
                              .top_k = c->top_k,
                              .kind = c->kind,
                              .capacity = c->capacity,
                              .first = first,
                              .threshold = threshold,
                              .key = routing_key(&routing, 3),
                              .first_token = 7 * all,
                              .balance = 0.3f,
                              .counted = true};
    routing_thresholds(&routing, 3, c->experts, threshold);
    if (c->kind != ROUTING_LEARNED)
        routing_counts(s, counts);
    if (c->kind == ROUTING_LEARNED && c->capacity == 0) { /* dropless: counted */
        s->first = NULL;
        s->sent = s->rows * c->top_k;
        return;
    }
    for (int e = 0; e < c->experts; e++) {
        int64_t most = c->capacity * c->sequences;
        first[e] = (int32_t)s->sent;
        if (c->kind == ROUTING_LEARNED)
            counts[e] = most > 0 && most < s->rows ? most : s->rows;
        s->sent += counts[e];
    }
}

/* The same op on the host: outputs as doubles into want[t]. */
static void on_host(struct gpu_rig *rig, enum op_kind kind, double **want)
{
    struct kernel_context context = {.work = {0}};
    struct op op = rig->op;
    op.kind = kind;
    for (int t = 0; t < OP_TENSORS; t++) {
        struct gpu_tensor *tensor = &rig->t[t];
        if (tensor->value == NULL)
            continue;
        size_t size = dtype_size((int)tensor->type);
        unsigned char *memory = must_alloc((size_t)tensor->n + 1, size);
        for (int64_t i = 0; i < tensor->n; i++)
            gpu_pack(tensor->type, memory, i, tensor->value[i]);
        op.t[t] = (struct tensor){t + 1, 0};
        context.base[t + 1] = memory;
    }
    kernels_cpu.run[kind](&op, &context, NULL);
    for (int t = 0; t < OP_TENSORS; t++) {
        struct gpu_tensor *tensor = &rig->t[t];
        want[t] = tensor->value ? gpu_doubles(tensor->n) : NULL;
        for (int64_t i = 0; tensor->value && i < tensor->n; i++)
            want[t][i] = gpu_unpack(tensor->type, context.base[t + 1], i);
        free(context.base[t + 1]);
    }
}

static void compare(struct gpu_rig *rig, double **want, int first, int last, const char *what)
{
    static const struct gpu_bound exact = {0, 0}, few = {4e-6, 2e-6};
    for (int t = first; t <= last; t++) {
        char name[96];
        bool whole = rig->t[t].type == DTYPE_I32;
        snprintf(name, sizeof name, "%s, t%d", what, t);
        gpu_check(rig, t, want[t], whole ? exact : few, name);
    }
    for (int t = 0; t < OP_TENSORS; t++)
        free(want[t]);
}

static void test_route(struct gpu_rig *rig, const struct route_case *c)
{
    static int32_t first[EXPERTS_MOST];
    static uint32_t threshold[EXPERTS_MOST];
    char what[64];
    double *want[OP_TENSORS];
    struct shape_route *s = &rig->op.shape.route;
    fill_route(s, c, first, threshold);
    int64_t slots = s->rows * s->top_k, share = c->sequences * s->experts;
    gpu_random(rig, 0, DTYPE_F32, s->all_rows * s->experts, 1);
    gpu_zeros(rig, 1, DTYPE_I32, slots);
    gpu_zeros(rig, 2, DTYPE_I32, slots);
    gpu_poison(rig, 3, DTYPE_F32, slots);
    gpu_zeros(rig, 4, DTYPE_I32, s->sent);
    gpu_zeros(rig, 5, DTYPE_F64, s->experts + 3);
    gpu_poison(rig, 6, DTYPE_F32, share);
    if (s->first == NULL)
        gpu_zeros(rig, 7, DTYPE_I32, s->experts);
    int last = s->first == NULL ? 7 : 6;
    on_host(rig, OP_ROUTE, want);
    gpu_run(rig, OP_ROUTE);
    snprintf(what, sizeof what, "route %d, top %d of %d, %d parts, capacity %lld", (int)c->kind,
             c->top_k, c->experts, c->parts, (long long)c->capacity);
    double *experts = gpu_fetch(rig, 1), *shares = gpu_fetch(rig, 6), *logits = rig->t[0].value;
    compare(rig, want, 1, last, what);
    gpu_check_same(rig, OP_ROUTE, (const int[]){1, 2, 3, 4, last, -1}, what);
    double *kept = gpu_doubles(s->all_rows * s->experts);
    memcpy(kept, logits, (size_t)(s->all_rows * s->experts) * sizeof *kept);
    struct shape_route shape = *s;
    gpu_clear(rig);

    rig->op.shape.route = shape;
    memcpy(gpu_take(rig, 0, DTYPE_F32, shape.all_rows * shape.experts), kept,
           (size_t)(shape.all_rows * shape.experts) * sizeof *kept);
    gpu_upload(rig, 0);
    memcpy(gpu_take(rig, 1, DTYPE_I32, slots), experts, (size_t)slots * sizeof *kept);
    gpu_upload(rig, 1);
    gpu_random(rig, 2, DTYPE_F32, slots, 1);
    memcpy(gpu_take(rig, 3, DTYPE_F32, share), shares, (size_t)share * sizeof *kept);
    gpu_upload(rig, 3);
    gpu_poison(rig, 4, DTYPE_F32, shape.rows * shape.experts);
    on_host(rig, OP_ROUTE_GRAD, want);
    gpu_run(rig, OP_ROUTE_GRAD);
    compare(rig, want, 4, 4, "route-grad");
    gpu_clear(rig);
    free(kept);
    free(experts);
    free(shares);
}

/* Every third slot is dropped; every fifth row of the send buffer is padding. */
static void place_slots(int32_t *place, int32_t *source, int64_t slots, int64_t sent)
{
    int64_t row = 0;
    for (int64_t i = 0; i < sent; i++)
        source[i] = -1;
    for (int64_t slot = 0; slot < slots; slot++) {
        row += row % 5 == 4;
        place[slot] = slot % 3 == 2 ? -1 : (int32_t)row;
        if (place[slot] >= 0)
            source[row++] = (int32_t)slot;
    }
}

static void put_ints(struct gpu_rig *rig, int t, const int32_t *from, int64_t n)
{
    double *x = gpu_take(rig, t, DTYPE_I32, n);
    for (int64_t i = 0; i < n; i++)
        x[i] = from[i];
    gpu_upload(rig, t);
}

static void test_permute(struct gpu_rig *rig, enum dtype type, int64_t rows, int64_t width)
{
    struct shape_permute s = {.rows = rows, .sent = 2 * rows, .width = width, .top_k = 2};
    int64_t slots = rows * 2;
    int32_t *place = must_alloc((size_t)slots, sizeof *place);
    int32_t *source = must_alloc((size_t)s.sent, sizeof *source);
    double *want = gpu_doubles(s.sent * width), *gate = gpu_doubles(slots);
    struct gpu_bound rounded = gpu_rounded(type == DTYPE_BF16 ? GPU_U_BF16 : GPU_U_F32, 4);
    place_slots(place, source, slots, s.sent);
    rig->op.dtype = type;
    rig->op.shape.permute = s;
    const double *x = gpu_random(rig, 0, type, rows * width, 1);
    put_ints(rig, 1, source, s.sent);
    gpu_poison(rig, 2, type, s.sent * width);
    for (int64_t i = 0; i < s.sent * width; i++)
        want[i] = source[i / width] < 0 ? 0 : x[source[i / width] / 2 * width + i % width];
    gpu_run(rig, OP_PERMUTE);
    gpu_check(rig, 2, want, (struct gpu_bound){0, 0}, "permute");
    gpu_clear(rig);

    rig->op.dtype = type;
    rig->op.shape.permute = s;
    rig->op.shape.permute.accumulate = true;
    const double *y = gpu_random(rig, 0, type, s.sent * width, 1);
    put_ints(rig, 1, place, slots);
    const double *g = gpu_random(rig, 2, DTYPE_F32, slots, 1);
    const double *old = gpu_random(rig, 3, type, rows * width, 1);
    for (int64_t i = 0; i < rows * width; i++) {
        want[i] = old[i];
        for (int64_t slot = i / width * 2; slot < i / width * 2 + 2; slot++)
            want[i] += place[slot] < 0 ? 0 : g[slot] * y[place[slot] * width + i % width];
    }
    gpu_run(rig, OP_COMBINE);
    gpu_check(rig, 3, want, rounded, "combine, adding");
    gpu_clear(rig);

    rig->op.dtype = type;
    rig->op.shape.permute = s;
    const double *dout = gpu_random(rig, 0, type, rows * width, 1);
    y = gpu_random(rig, 1, type, s.sent * width, 1);
    g = gpu_random(rig, 2, DTYPE_F32, slots, 1);
    put_ints(rig, 3, place, slots);
    put_ints(rig, 4, source, s.sent);
    gpu_poison(rig, 5, type, s.sent * width);
    gpu_poison(rig, 6, DTYPE_F32, slots);
    for (int64_t slot = 0; slot < slots; slot++)
        for (int64_t j = 0; j < width; j++)
            gate[slot] +=
                place[slot] < 0 ? 0 : dout[slot / 2 * width + j] * y[place[slot] * width + j];
    for (int64_t i = 0; i < s.sent * width; i++) {
        int32_t slot = source[i / width];
        want[i] = slot < 0 ? 0 : g[slot] * dout[slot / 2 * width + i % width];
    }
    gpu_run(rig, OP_COMBINE_GRAD);
    gpu_check(rig, 5, want, rounded, "combine-grad");
    gpu_check(rig, 6, gate, (struct gpu_bound){1e-5, 5e-6}, "combine-grad, gates");
    gpu_check_same(rig, OP_COMBINE_GRAD, (const int[]){5, 6, -1}, "combine-grad");
    gpu_clear(rig);
    free(place);
    free(source);
    free(want);
    free(gate);
}

/* counted: the products are described when they are given out. */
static void test_grouped(struct gpu_rig *rig, enum dtype type, enum grouped_form form, bool counted)
{
    static const int64_t rows[] = {24, 0, 136, 40, 8};
    static const int32_t which[] = {0, 1, 2, 0, 1};
    enum { N = 96, K = 64, MATRICES = 3 };
    bool weight = form == GROUPED_WEIGHT;
    static const int64_t all = 208;
    int64_t a = form == GROUPED_FORWARD ? K : N, b = N + K - a;
    int64_t out = weight ? MATRICES * N * K : all * b;
    double *want = gpu_doubles(out);
    char what[64];
    rig->op.dtype = type;
    rig->op.shape.grouped = (struct shape_grouped){.form = form,
                                                   .blocks = 5,
                                                   .rows = rows,
                                                   .which = which,
                                                   .all_rows = all,
                                                   .matrices = MATRICES,
                                                   .n = N,
                                                   .k = K,
                                                   .rows_valid = all,
                                                   .now = counted ? &all : NULL};
    const double *x = gpu_random(rig, 0, type, all * a, 1);
    const double *w = gpu_random(rig, 1, type, weight ? all * K : MATRICES * N * K, 1);
    if (weight)
        memcpy(want, gpu_random(rig, 2, DTYPE_F32, out, 1), (size_t)out * sizeof *want);
    else
        gpu_poison(rig, 2, type, out);
    for (int64_t i = 0, row = 0; i < 5; row += rows[i++])
        for (int64_t r = row; r < row + rows[i]; r++)
            for (int64_t n = 0; n < N; n++)
                for (int64_t k = 0; k < K; k++) {
                    int64_t at = which[i] * N * K + n * K + k;
                    if (form == GROUPED_FORWARD)
                        want[r * N + n] += x[r * K + k] * w[at];
                    else if (form == GROUPED_INPUT)
                        want[r * K + k] += x[r * N + n] * w[at];
                    else
                        want[at] += x[r * N + n] * w[r * K + k];
                }
    gpu_run(rig, OP_GROUPED_GEMM);
    snprintf(what, sizeof what, "grouped-gemm form %d%s", (int)form, counted ? ", counted" : "");
    bool narrow = type == DTYPE_BF16 && !weight;
    gpu_check(rig, 2, want, narrow ? gpu_rounded(GPU_U_BF16, 1.1) : (struct gpu_bound){1e-5, 1e-5},
              what);
    CHECK(rig->context.work.gemm_flops == 2.0 * 208 * N * K);
    gpu_check_same(rig, OP_GROUPED_GEMM, (const int[]){2, -1}, what);
    gpu_clear(rig);
    free(want);
}

/* The tables are there when the op is given out. */
static void test_counts(struct gpu_rig *rig)
{
    static int64_t send[2], receive[2], rows[6], now;
    rig->op.dtype = DTYPE_F32;
    rig->op.shape.counts = (struct shape_counts){.ranks = 2,
                                                 .experts = 6,
                                                 .width = 8,
                                                 .most = 100,
                                                 .send = send,
                                                 .receive = receive,
                                                 .rows = rows,
                                                 .now = &now};
    put_ints(rig, 0, (const int32_t[]){1, 0, 3, 10, 20, 0}, 6);
    put_ints(rig, 1, (const int32_t[]){7, 5, 0, 0, 9, 2}, 6);
    rig->op.kind = OP_COUNTS;
    gpu_must(gpu_open_op(rig));
    kernels_cuda.run[OP_COUNTS](&rig->op, &rig->context, rig->device.type->native(&rig->device, 0));
    CHECK_EQ(now, 23);
    CHECK(send[0] == 4 * 8 && send[1] == 30 * 8 && receive[0] == 12 * 8 && receive[1] == 11 * 8);
    CHECK(rows[0] == 7 && rows[1] == 5 && rows[2] == 0 && rows[4] == 9 && rows[5] == 2);
    CHECK_EQ(rig->context.counts, 1);
    CHECK(rig->context.waited_ns > 0);
    kernels_cuda.close(&rig->context);
    gpu_clear(rig);
}

int main(int argc, char **argv)
{
    static const struct route_case cases[] = {
        {ROUTING_BALANCED, 8, 2, 1, 64, 4, 0},    {ROUTING_SKEWED, 8, 2, 1, 1024, 3, 0},
        {ROUTING_SKEWED, 64, 6, 2, 256, 2, 30},   {ROUTING_LEARNED, 8, 2, 1, 512, 4, 160},
        {ROUTING_LEARNED, 8, 1, 2, 64, 4, 6},     {ROUTING_LEARNED, 200, 8, 1, 128, 2, 7},
        {ROUTING_LEARNED, 16, 4, 4, 512, 2, 100}, {ROUTING_LEARNED, 8, 2, 1, 512, 4, 0},
        {ROUTING_LEARNED, 64, 6, 2, 256, 2, 0},   {ROUTING_LEARNED, 200, 8, 1, 128, 2, 0},
    };
    struct gpu_rig rig;
    (void)argc;
    (void)argv;
    int skipped = gpu_rig_open(&rig);
    if (skipped)
        return skipped;
    for (size_t i = 0; i < GPU_COUNT(cases); i++)
        test_route(&rig, &cases[i]);
    for (int narrow = 0; narrow < 2; narrow++) {
        enum dtype type = narrow ? DTYPE_BF16 : DTYPE_F32;
        for (rig.shift = 0; rig.shift < 2; rig.shift++) {
            test_permute(&rig, type, 96, 64);
            test_permute(&rig, type, 33, 51);
        }
        rig.shift = 0;
        for (int form = GROUPED_FORWARD; form <= GROUPED_WEIGHT; form++)
            for (int counted = 0; counted < 2; counted++)
                test_grouped(&rig, type, (enum grouped_form)form, counted);
    }
    test_counts(&rig);
    gpu_rig_close(&rig);
    return test_end();
}
