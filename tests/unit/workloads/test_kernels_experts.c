/*
 * A layer of experts by its CPU kernels, forward, beside a plain computation in fp64 that goes token by
 * token and knows neither permutation nor blocks; routing by its definition; and refused words.
 */
#include "tests/unit/workloads/kernel_rig.h"

#include <math.h>
#include <string.h>

#include "workloads/routing.h"

enum { H = 12, F = 10, E = 8, S = 24, SEQUENCES = 3, N = S * SEQUENCES };

struct block {
    int top_k;
    enum routing_kind kind;
    int64_t capacity;
    struct shape_route shape;
    int32_t first[E];
    uint32_t threshold[E];
    float x[N * H], router[E * H], fc[E * 2 * F * H], proj[E * H * F];
    float logits[N * E], gates[N * E], share[SEQUENCES * E], out[N * H];
    int32_t experts[N * E], place[N * E], source[N * E * 2];
    double load[E + 3];
    float sent[N * E * H], inner[N * E * 2 * F], act[N * E * F], made[N * E * H];
};

static void fill(float *x, int64_t n, double scale)
{
    static uint64_t stream = 99;
    rng_fill_normal(x, n, rng_key(stream++, "block"), 0, (float)scale);
}

static void open_block(struct block *b)
{
    struct routing routing = {.kind = b->kind, .sigma = 1.2, .seed = 11};
    int64_t counts[EXPERTS_MOST];
    fill(b->x, N * H, 1);
    fill(b->router, E * H, 0.5);
    fill(b->fc, E * 2 * F * H, 0.4);
    fill(b->proj, E * H * F, 0.4);
    b->shape = (struct shape_route){.rows = N,
                                    .all_rows = N,
                                    .sequence = S,
                                    .lead = N,
                                    .parts = 1,
                                    .experts = E,
                                    .top_k = b->top_k,
                                    .kind = b->kind,
                                    .capacity = b->capacity,
                                    .first = b->first,
                                    .threshold = b->threshold,
                                    .key = routing_key(&routing, 1),
                                    .first_token = 1000,
                                    .balance = 0.1f,
                                    .counted = true};
    routing_thresholds(&routing, 1, E, b->threshold);
    routing_counts(&b->shape, counts);
    for (int e = 0; e < E; e++) {
        int64_t most = b->capacity * SEQUENCES;
        b->first[e] = (int32_t)b->shape.sent;
        if (b->kind == ROUTING_LEARNED)
            counts[e] = most > 0 && most < N ? most : N;
        b->shape.sent += counts[e];
    }
}

/* ---- by the kernels ---- */

static void run(enum op_kind kind, const struct op *op, void *const *tensors)
{
    struct kernel_context context = {.work = {0}};
    struct op copy = *op;
    copy.kind = kind;
    for (int t = 0; t < OP_TENSORS; t++)
        if (tensors[t] != NULL) {
            copy.t[t] = (struct tensor){t + 1, 0};
            context.base[t + 1] = tensors[t];
        }
    kernels_cpu.run[kind](&copy, &context, NULL);
}

static void products(struct block *b, const float *x, const float *w, float *y, int64_t n,
                     int64_t k)
{
    int64_t rows[E];
    int32_t which[E];
    struct op op = {0};
    for (int e = 0; e < E; e++) {
        rows[e] = (e + 1 < E ? b->first[e + 1] : (int32_t)b->shape.sent) - b->first[e];
        which[e] = e;
    }
    op.shape.grouped = (struct shape_grouped){
        .form = GROUPED_FORWARD, .blocks = E, .rows = rows, .which = which, .n = n, .k = k};
    run(OP_GROUPED_GEMM, &op, (void *[OP_TENSORS]){(void *)x, (void *)w, y});
}

static void by_kernels(struct block *b)
{
    struct op op = {0};
    for (int64_t t = 0; t < N; t++)
        for (int e = 0; e < E; e++) {
            b->logits[t * E + e] = 0;
            for (int i = 0; i < H; i++)
                b->logits[t * E + e] += b->x[t * H + i] * b->router[e * H + i];
        }
    op.shape.route = b->shape;
    run(OP_ROUTE, &op,
        (void *[OP_TENSORS]){b->logits, b->experts, b->place, b->gates, b->source, b->load,
                             b->share});
    op.shape.permute = (struct shape_permute){N, b->shape.sent, H, b->top_k, false};
    run(OP_PERMUTE, &op, (void *[OP_TENSORS]){b->x, b->source, b->sent});
    products(b, b->sent, b->fc, b->inner, 2 * F, H);
    op.shape.rows = (struct shape_rows){.rows = b->shape.sent, .width = F};
    run(OP_SWIGLU, &op, (void *[OP_TENSORS]){b->inner, b->act});
    products(b, b->act, b->proj, b->made, H, F);
    op.shape.permute = (struct shape_permute){N, b->shape.sent, H, b->top_k, false};
    run(OP_COMBINE, &op, (void *[OP_TENSORS]){b->made, b->place, b->gates, b->out});
}

/* ---- plainly ---- */

static void expert_of_token(const struct block *b, int64_t t, int e, double gate, double *out)
{
    double inner[F];
    const float *up = b->fc + e * 2 * F * H;
    for (int f = 0; f < F; f++) {
        double g = 0, u = 0;
        for (int i = 0; i < H; i++) {
            g += (double)up[f * H + i] * (double)b->x[t * H + i];
            u += (double)up[(F + f) * H + i] * (double)b->x[t * H + i];
        }
        inner[f] = g / (1 + exp(-g)) * u;
    }
    for (int i = 0; i < H; i++)
        for (int f = 0; f < F; f++)
            out[i] += gate * (double)b->proj[e * H * F + i * F + f] * inner[f];
}

/* The K largest by counting how many are larger. */
static bool is_chosen(const struct block *b, const double *logits, int64_t t, int e)
{
    int larger = 0;
    int32_t taken[TOP_K_MOST];
    if (b->kind == ROUTING_LEARNED) {
        for (int i = 0; i < E; i++)
            larger += logits[i] > logits[e];
        return larger < b->top_k;
    }
    routing_take(&b->shape, b->shape.first_token + t, taken);
    for (int j = 0; j < b->top_k; j++)
        larger += taken[j] == e;
    return larger > 0;
}

static void plainly(const struct block *b, double *out, double *dropped)
{
    int64_t used[E] = {0};
    memset(out, 0, N * H * sizeof *out);
    for (int64_t t = 0; t < N; t++) {
        double logits[E], sum = 0, all = 0;
        bool chosen[E];
        if (t % S == 0)
            memset(used, 0, sizeof used);
        for (int e = 0; e < E; e++) {
            logits[e] = 0;
            for (int i = 0; i < H; i++)
                logits[e] += (double)b->x[t * H + i] * (double)b->router[e * H + i];
            all += exp(logits[e]);
        }
        for (int e = 0; e < E; e++)
            sum += (chosen[e] = is_chosen(b, logits, t, e)) ? exp(logits[e]) : 0;
        for (int e = 0; e < E; e++) {
            if (!chosen[e])
                continue;
            if (b->capacity == 0 || used[e]++ < b->capacity)
                expert_of_token(b, t, e, exp(logits[e]) / (b->top_k > 1 ? sum : all), out + t * H);
            else
                ++*dropped;
        }
    }
}

static void test_block(enum routing_kind kind, int top_k, int64_t capacity)
{
    struct block *b = must_alloc(1, sizeof *b);
    double *want = must_alloc(N * H, sizeof *want), worst = 0, size = 0, dropped = 0, tokens = 0;
    b->kind = kind;
    b->top_k = top_k;
    b->capacity = capacity;
    open_block(b);
    by_kernels(b);
    plainly(b, want, &dropped);
    for (int i = 0; i < N * H; i++) {
        worst = fmax(worst, fabs(want[i] - (double)b->out[i]));
        size = fmax(size, fabs(want[i]));
    }
    for (int e = 0; e < E; e++)
        tokens += b->load[e];
    CHECK(worst <= 2e-6 * size);
    CHECK_EQ((int64_t)tokens, N * top_k);
    CHECK_EQ((int64_t)b->load[E + 1], (int64_t)dropped);
    CHECK(capacity == 0 ? dropped == 0 : dropped > 0);
    printf("routing %d, top %d, capacity %lld: off by %.2g of the largest, %g dropped\n", (int)kind,
           top_k, (long long)capacity, worst / size, dropped);
    free(b);
    free(want);
}

/* ---- told what to choose ---- */

/* Of four rows of equal logits: what is as good within rounding is followed, what is worse is not. */
static void test_told(void)
{
    enum { ROWS = 4, TOKENS = 12, FIRST = 8, EXPERTS = 4, K = 2 };
    float logits[ROWS * EXPERTS], gates[ROWS * K], share[EXPERTS];
    int32_t taken[ROWS * K], place[ROWS * K], source[ROWS * EXPERTS], table[2 * TOKENS * K];
    int32_t first[EXPERTS];
    double load[EXPERTS + 3] = {0};
    static const int32_t other[ROWS][K] = {{0, 2}, {0, 3}, {1, 0}, {-1, -1}};
    static const int32_t expected[ROWS][K] = {{0, 2}, {0, 1}, {0, 1}, {0, 1}};
    struct kernel_told told = {.experts = table, .tokens = TOKENS, .within = 0.01};
    struct kernel_context context = {.told = &told};
    struct op op = {.kind = OP_ROUTE, .layer = 1};
    void *tensors[] = {logits, taken, place, gates, source, load, share};
    memset(table, -1, sizeof table);
    memcpy(table + (TOKENS + FIRST) * K, other, sizeof other);
    for (int i = 0; i < ROWS * EXPERTS; i++)
        logits[i] = (float[]){4, 3, 2.99f, 0}[i % EXPERTS];
    for (int e = 0; e < EXPERTS; e++)
        first[e] = e * ROWS;
    op.shape.route = (struct shape_route){.rows = ROWS,
                                          .all_rows = ROWS,
                                          .sequence = ROWS,
                                          .lead = ROWS,
                                          .parts = 1,
                                          .experts = EXPERTS,
                                          .top_k = K,
                                          .kind = ROUTING_LEARNED,
                                          .sent = ROWS * EXPERTS,
                                          .first = first,
                                          .first_token = FIRST,
                                          .counted = true};
    for (int t = 0; t < 7; t++) {
        op.t[t] = (struct tensor){t + 1, 0};
        context.base[t + 1] = tensors[t];
    }
    kernels_cpu.run[OP_ROUTE](&op, &context, NULL);
    CHECK(memcmp(taken, expected, sizeof expected) == 0);
    CHECK_EQ(told.followed, 1);
    CHECK_EQ(told.refused, 1);
    CHECK(load[0] == 4 && load[1] == 3 && load[2] == 1 && load[3] == 0);
    CHECK_NEAR((double)gates[1], 1 / (1 + exp(4 - 2.99)), 1e-6); /* of what was taken */
    told.within = 1e-4;
    kernels_cpu.run[OP_ROUTE](&op, &context, NULL);
    CHECK(taken[1] == 1 && told.followed == 1 && told.refused == 3);
}

/* ---- definitions ---- */

static void test_definitions(void)
{
    struct routing routing = {.kind = ROUTING_SKEWED, .sigma = 1, .seed = 4};
    uint32_t threshold[E];
    struct shape_route r = {.experts = E, .top_k = 3, .kind = ROUTING_BALANCED, .key = 21};
    int64_t count[E] = {0};
    int32_t taken[TOP_K_MOST];
    for (int64_t t = 0; t < E; t++) {
        routing_take(&r, 500 + t, taken);
        for (int j = 0; j < 3; j++)
            count[taken[j]]++;
        CHECK(taken[0] != taken[1] && taken[1] != taken[2] && taken[0] != taken[2]);
    }
    for (int e = 0; e < E; e++)
        CHECK_EQ(count[e], 3);
    memset(count, 0, sizeof count);
    routing_thresholds(&routing, 2, E, threshold);
    r = (struct shape_route){.experts = E,
                             .top_k = 1,
                             .kind = ROUTING_SKEWED,
                             .key = routing_key(&routing, 2),
                             .threshold = threshold};
    for (int64_t t = 0; t < 100000; t++) {
        routing_take(&r, t, taken);
        count[taken[0]]++;
    }
    for (int e = 0; e < E; e++) { /* shares are those of the popularity */
        double share = ((double)threshold[e] - (e > 0 ? (double)threshold[e - 1] : 0)) / 0x1p32;
        CHECK_NEAR((double)count[e] / 100000, share, 0.005);
    }
    routing.capacity = 1.25;
    CHECK_EQ(routing_capacity(&routing, 64, 8, 2), 20);
    routing.capacity = 1e5;
    CHECK_EQ(routing_capacity(&routing, 64, 8, 2), 64);
}

static void refused(const char *kind, const char *capacity, const char *words)
{
    struct routing routing;
    CHECK_EQ(routing_parse(kind, capacity, &routing), FAIL_USAGE);
    CHECK_HAS(fail_message(), words);
    fail_clear();
}

static void test_words(void)
{
    struct routing r;
    CHECK_EQ(routing_parse("skewed:1.5", "auto", &r), 0);
    CHECK(r.kind == ROUTING_SKEWED && r.sigma == 1.5 && r.capacity == 0);
    CHECK_EQ(routing_parse("learned", "auto", &r), 0);
    CHECK(r.kind == ROUTING_LEARNED && r.capacity == 1.25);
    CHECK_EQ(routing_parse("learned", "none", &r), 0);
    CHECK(r.capacity == 0);
    refused("even", "auto", "\"even\", wanted balanced, skewed:SIGMA or learned");
    refused("skewed:", "auto", "wanted a number from 0 to 10 behind skewed:");
    refused("skewed:-1", "auto", "wanted a number from 0 to 10");
    refused("learned", "0", "wanted auto, none or a factor above 0");
    refused("learned", "most", "wanted auto, none or a factor above 0");
    refused("balanced", "0.9", "0.9 with --routing balanced, which has no token to drop");
}

int main(void)
{
    test_block(ROUTING_BALANCED, 2, 0);
    test_block(ROUTING_SKEWED, 3, 0);
    test_block(ROUTING_SKEWED, 1, 5);
    test_block(ROUTING_LEARNED, 2, 7);
    test_block(ROUTING_LEARNED, 1, 3);
    test_block(ROUTING_LEARNED, 2, 0);
    test_told();
    test_definitions();
    test_words();
    return test_end();
}
