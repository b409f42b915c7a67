/* Which algorithm and which way each product takes, by measurement before the first step. */
#include "workloads/kernels/cuda_gemm.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"

/*
 * Candidates of a way; timed runs of a candidate, of the best of each way in turn; how much slower
 * than the best so far a candidate may be in its first run to get the others; gains below which the
 * heuristic's first, and the way without a partner, stay.
 */
enum { CANDIDATES = 24, ROUNDS = 5, DUEL_ROUNDS = 9, EVENTS = GEMM_WAYS * (DUEL_ROUNDS + 1) };
static const float hopeless = 1.25F, worth_it = 0.99F, worth_fusing = 0.995F;

struct search {
    struct kernel_context trial; /* its own counts and memory; the same state */
    struct cuda_gemms *gemms;
    struct gemm *gemm;
    struct op product, partner;
    cudaStream_t stream;
    cudaEvent_t begin[EVENTS], end[EVENTS];
};

/* ---- memory: one piece, cut up; A, B and what is read are normals ---- */

static int64_t up(int64_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

static struct tensor cut(int64_t *used, int64_t bytes)
{
    struct tensor t = {BUFFER_ACTIVATION, *used};
    *used += up(bytes);
    return t;
}

/* The product and its partner as ops on that piece; returns the bytes of it. */
static int64_t lay_out(struct search *s, const struct gemm_key *k)
{
    int64_t size = (int64_t)dtype_size(k->dtype), used = 0, result = k->wide ? 4 : size;
    s->product = (struct op){.kind = OP_GEMM, .dtype = (enum dtype)k->dtype};
    s->product.shape.gemm = (struct shape_gemm){.m = k->m,
                                                .n = k->n,
                                                .k = k->k,
                                                .trans_a = k->trans_a,
                                                .trans_b = k->trans_b,
                                                .wide = k->wide,
                                                .beta = k->beta ? 1 : 0};
    s->product.t[0] = cut(&used, k->m * k->k * size);
    s->product.t[1] = cut(&used, k->k * k->n * size);
    s->product.t[2] = cut(&used, k->m * k->n * result);
    if (k->bias)
        s->product.t[3] = cut(&used, k->n * size);
    s->partner = (struct op){.dtype = (enum dtype)k->dtype};
    if (k->partner == PARTNER_BIAS_GRAD) {
        s->partner.kind = OP_BIAS_GRAD;
        s->partner.t[0] = s->product.t[0];
        s->partner.t[1] = cut(&used, k->m * 4);
        s->partner.shape.rows = (struct shape_rows){.rows = k->k, .width = k->m};
    } else if (k->partner != PARTNER_NONE) {
        bool grad = k->partner == PARTNER_GELU_GRAD;
        s->partner.kind = grad ? OP_GELU_GRAD : OP_GELU;
        s->partner.t[0] = s->product.t[2];
        s->partner.t[1] = cut(&used, k->m * k->n * size);
        s->partner.t[2] = grad ? s->product.t[2] : (struct tensor){0};
        s->partner.shape.vector.n = k->m * k->n;
    }
    return used;
}

/* ---- times ---- */

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static float median(float *us, int n)
{
    qsort(us, (size_t)n, sizeof *us, by_size);
    return us[n / 2];
}

/* Give out one run of the product in the way that is set, or of both ops of a pair, as number i.
 * Several are given out before the first is waited for, so that no launch is part of a time. */
static bool give_out(struct search *s, int i, bool whole)
{
    bool apart = whole && s->gemm->choice.way != WAY_FUSED;
    cudaEventRecord(s->begin[i], s->stream);
    if (gemm_run(s->gemm, &s->product, &s->partner, &s->trial, s->stream) != 0)
        return false;
    if (apart && s->partner.kind == OP_BIAS_GRAD)
        cuda_bias_grad(&s->partner, &s->trial, s->stream);
    else if (apart && s->partner.kind == OP_GELU_GRAD)
        cuda_gelu_grad(&s->partner, &s->trial, s->stream);
    else if (apart && s->partner.kind == OP_GELU)
        cuda_gelu(&s->partner, &s->trial, s->stream);
    cudaEventRecord(s->end[i], s->stream);
    return true;
}

static float took_us(const struct search *s, int i)
{
    float ms = 0;
    cuda_must((int)cudaEventSynchronize(s->end[i]), "search for an algorithm");
    cuda_must((int)cudaEventElapsedTime(&ms, s->begin[i], s->end[i]), "search for an algorithm");
    return ms * 1e3F;
}

/* Median time of a candidate alone; < 0: refused; the time of one run where that is hopeless. */
static float time_candidate(struct search *s, const struct gemm_algorithm *algorithm, float best)
{
    float us[ROUNDS];
    s->gemm->choice.algorithm = *algorithm;
    if (!give_out(s, 0, false) || !give_out(s, 1, false))
        return -1;
    us[0] = took_us(s, 1);
    if (best > 0 && us[0] > hopeless * best)
        return us[0];
    for (int i = 0; i <= ROUNDS; i++)
        if (!give_out(s, i, false))
            return -1;
    for (int i = 0; i < ROUNDS; i++)
        us[i] = took_us(s, i + 1);
    return median(us, ROUNDS);
}

/* ---- ways ---- */

struct found {
    struct gemm_algorithm best;
    int n; /* candidates; 0: this way does not exist */
    float first_us;
};

static int set_way(struct search *s, enum gemm_way way)
{
    const struct gemm_key *k = &s->gemm->choice.key;
    const void *bias = NULL, *aux = NULL;
    s->gemm->choice.way = (int)way;
    if (way != WAY_PLAIN && k->bias)
        bias = tensor_at(&s->trial, s->product.t[3]);
    if (way == WAY_FUSED && k->partner == PARTNER_BIAS_GRAD)
        bias = cuda_state(&s->trial)->scratch + GEMM_WORKSPACE;
    else if (way == WAY_FUSED)
        aux = tensor_at(&s->trial, s->partner.t[1]);
    return gemm_set_way(s->gemm, way, bias, aux);
}

static bool way_exists(const struct gemm_key *k, enum gemm_way way)
{
    return way == WAY_BIAS ? k->bias : way == WAY_FUSED ? k->partner != PARTNER_NONE : true;
}

/* The best candidate of a way; what the library cannot do is no failure. */
static void search_way(struct search *s, enum gemm_way way, struct found *out)
{
    struct gemm_algorithm candidate[CANDIDATES];
    memset(out, 0, sizeof *out);
    if (!way_exists(&s->gemm->choice.key, way))
        return;
    int n = 0;
    if (set_way(s, way) != 0 ||
        gemm_candidates(s->gemms, s->gemm, false, candidate, CANDIDATES, &n) != 0) {
        fail_clear();
        return;
    }
    for (int i = 0; i < n; i++) {
        float us = time_candidate(s, &candidate[i], out->best.us);
        if (us < 0)
            continue;
        out->first_us = out->n == 0 ? us : out->first_us;
        if (out->n++ == 0 || us < worth_it * out->best.us ||
            (us < out->best.us && out->best.us < worth_it * out->first_us)) {
            out->best = candidate[i];
            out->best.us = us;
        }
    }
}

/* Runs of the best of each way with all that it needs, in turn: us[way][round]. A way that fails
 * now is none. */
static void run_duel(struct search *s, struct found *found, float (*us)[DUEL_ROUNDS])
{
    for (int round = 0; round <= DUEL_ROUNDS; round++)
        for (int w = 0; w < GEMM_WAYS; w++) {
            if (found[w].n == 0)
                continue;
            bool runs = set_way(s, (enum gemm_way)w) == 0;
            s->gemm->choice.algorithm = found[w].best;
            if (!runs || !give_out(s, round * GEMM_WAYS + w, true))
                found[w].n = 0;
        }
    for (int round = 1; round <= DUEL_ROUNDS; round++)
        for (int w = 0; w < GEMM_WAYS; w++)
            us[w][round - 1] = found[w].n > 0 ? took_us(s, round * GEMM_WAYS + w) : 0;
}

/* Keeps the fastest way in the choice. */
static void duel(struct search *s, struct found *found, const struct gemm_choice *before)
{
    float us[GEMM_WAYS][DUEL_ROUNDS];
    struct gemm_choice *choice = &s->gemm->choice;
    int way = -1;
    run_duel(s, found, us);
    for (int w = 0; w < GEMM_WAYS; w++) {
        choice->way_us[w] = median(us[w], DUEL_ROUNDS);
        bool faster = way < 0 || choice->way_us[w] < choice->way_us[way];
        if (w == WAY_FUSED && way >= 0)
            faster = s->trial.fuse_all || choice->way_us[w] < worth_fusing * choice->way_us[way];
        if (found[w].n > 0 && faster)
            way = w;
    }
    if (way < 0) {
        *choice = *before;
        return;
    }
    choice->way = way;
    choice->algorithm = found[way].best;
    choice->first_us = found[way].first_us;
    choice->candidates = 0;
    for (int w = 0; w < GEMM_WAYS; w++)
        choice->candidates += found[w].n;
}

/* Keeps what it has where nothing could be timed. */
static void search_gemm(struct search *s)
{
    struct gemm_choice before = s->gemm->choice;
    struct found found[GEMM_WAYS];
    int n = 0;
    for (int w = 0; w < GEMM_WAYS; w++) {
        search_way(s, (enum gemm_way)w, &found[w]);
        n += found[w].n;
    }
    if (n > 0)
        duel(s, found, &before);
    else
        s->gemm->choice = before;
}

/* In the arena of activations, which nothing needs before the first step; else in memory for now. */
static void search_in_memory(struct search *s, struct kernel_context *context, struct gemm *g)
{
    struct cuda_state *state = cuda_state(context);
    int64_t bytes = lay_out(s, &g->choice.key);
    void *memory = context->base[BUFFER_ACTIVATION];
    bool borrowed = memory != NULL && state->plan->bytes[BUFFER_ACTIVATION] >= bytes;
    if (!borrowed && cuda_take(state, bytes, &memory) != 0) {
        fail_clear();
        return;
    }
    s->gemm = g;
    s->trial.base[BUFFER_ACTIVATION] = memory;
    int64_t inputs = s->product.t[2].offset;
    if (g->choice.key.dtype == DTYPE_BF16)
        cuda_fill_normals(memory, DTYPE_BF16, bytes / 2, s->stream);
    else
        cuda_fill_normals(memory, DTYPE_F32, bytes / 4, s->stream);
    if (g->choice.key.wide) /* what it adds to, and the rest, is fp32 */
        cuda_fill_normals((unsigned char *)memory + inputs, DTYPE_F32, (bytes - inputs) / 4,
                          s->stream);
    search_gemm(s);
    cuda_must((int)cudaStreamSynchronize(s->stream), "search for an algorithm");
    if (!borrowed)
        cuda_drop(state, memory, bytes);
}

void gemm_search(struct kernel_context *context, const bool *wanted)
{
    struct cuda_state *state = cuda_state(context);
    struct search s = {.trial = *context, .gemms = state->gemms};
    s.stream = state->device->type->native(state->device, DEVICE_COMPUTE);
    for (int i = 0; i < EVENTS; i++) {
        cuda_must((int)cudaEventCreate(&s.begin[i]), "search for an algorithm");
        cuda_must((int)cudaEventCreate(&s.end[i]), "search for an algorithm");
    }
    for (int i = 0; i < state->gemms->n; i++)
        if (wanted[i])
            search_in_memory(&s, context, &state->gemms->gemm[i]);
    for (int i = 0; i < EVENTS; i++) {
        cudaEventDestroy(s.begin[i]);
        cudaEventDestroy(s.end[i]);
    }
}
