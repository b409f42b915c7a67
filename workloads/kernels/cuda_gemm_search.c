/* Which algorithm and which way each product takes, by measurement before the first step. */
#include "workloads/kernels/cuda_gemm.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "workloads/kernels/cuda_race.h"

/*
 * Candidates of a way: those that the heuristic names, then the best of them in other cluster shapes;
 * those that are timed in turn, and how often; how much slower than the best so far a candidate may be
 * in its first run to stay; gains below which the heuristic's first, and the way without a partner,
 * stay; copies of small tensors, so that a run finds as little of them in the caches as a step does.
 */
enum { NAMED = 40, CANDIDATES = 56, FINALISTS = 4, ROUNDS = 9, MOST_COPIES = 4 };
static const float hopeless = 1.25F, worth_it = 0.99F, worth_fusing = 0.995F;

struct candidate {
    struct gemm_algorithm algorithm;
    bool named_first;
};

struct search {
    struct kernel_context trial; /* its own counts and memory; the same state */
    struct cuda_gemms *gemms;
    struct gemm *gemm;
    struct op product, partner;
    void *stream;
    unsigned char *memory;
    int64_t bytes; /* of a copy of the tensors */
    int copies;
    int64_t cache_bytes; /* of the device's last cache */
    struct cuda_race race;
    struct candidate *in; /* competitors of one way */
    struct found *ways;   /* competitors of the duel, by way */
    int way[GEMM_WAYS];
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

/* ---- runs ---- */

/* One run of the product in the way that is set, in the copy whose turn it is. */
static bool run_product(struct search *s, int run)
{
    s->trial.base[BUFFER_ACTIVATION] = s->memory + run % s->copies * s->bytes;
    return gemm_run(s->gemm, &s->product, &s->partner, &s->trial, s->stream) == 0;
}

static bool run_candidate(void *arg, int competitor, int run)
{
    struct search *s = arg;
    s->gemm->choice.algorithm = s->in[competitor].algorithm;
    return run_product(s, run);
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

static int by_time(const void *a, const void *b)
{
    float x = ((const struct candidate *)a)->algorithm.us;
    float y = ((const struct candidate *)b)->algorithm.us;
    return (x > y) - (x < y);
}

/* Times candidates from..n-1 alone, drops those that are refused, and sorts all; how many are left. */
static int screen(struct search *s, int from, int n)
{
    int left = from;
    for (int i = from; i < n; i++) {
        float us = cuda_race_alone(&s->race, run_candidate, s, i);
        if (us < 0)
            continue;
        s->in[left] = s->in[i];
        s->in[left++].algorithm.us = us;
    }
    if (left > from && from == 0)
        s->in[0].named_first = true;
    qsort(s->in, (size_t)left, sizeof *s->in, by_time);
    return left;
}

/* The heuristic's first is always in the race, at the end of it if need be. */
static int finalists(struct search *s, int n)
{
    int last = n < FINALISTS ? n : FINALISTS, first = 0;
    while (last > 1 && s->in[last - 1].algorithm.us > hopeless * s->in[0].algorithm.us)
        last--;
    while (!s->in[first].named_first)
        first++;
    if (first < last)
        return last;
    last = last < FINALISTS ? last + 1 : last;
    s->in[last - 1] = s->in[first];
    return last;
}

static void race(struct search *s, int n, struct found *out)
{
    float us[FINALISTS];
    int best = -1, first = -1;
    cuda_race_all(&s->race, run_candidate, s, n, ROUNDS, us);
    for (int i = 0; i < n; i++) {
        best = us[i] > 0 && (best < 0 || us[i] < us[best]) ? i : best;
        first = s->in[i].named_first && us[i] > 0 ? i : first;
    }
    if (best < 0) {
        out->n = 0;
        return;
    }
    if (first >= 0 && us[best] > worth_it * us[first])
        best = first;
    out->best = s->in[best].algorithm;
    out->best.us = us[best];
    out->first_us = us[first >= 0 ? first : best];
}

/* The best candidate of a way; what the library cannot do is no failure. */
static void search_way(struct search *s, enum gemm_way way, struct found *out)
{
    struct gemm_algorithm found[CANDIDATES];
    struct candidate in[CANDIDATES];
    int n = 0, more = 0;
    memset(out, 0, sizeof *out);
    if (!way_exists(&s->gemm->choice.key, way))
        return;
    if (set_way(s, way) != 0 || gemm_candidates(s->gemms, s->gemm, false, found, NAMED, &n) != 0) {
        fail_clear();
        return;
    }
    s->in = in;
    for (int i = 0; i < n; i++)
        in[i] = (struct candidate){.algorithm = found[i]};
    n = screen(s, 0, n);
    if (n == 0)
        return;
    gemm_neighbours(s->gemms, s->gemm, &in[0].algorithm, found, CANDIDATES - NAMED, &more);
    for (int i = 0; i < more; i++)
        in[n + i] = (struct candidate){.algorithm = found[i]};
    out->n = screen(s, n, n + more);
    race(s, finalists(s, out->n), out);
}

/* All that a way needs, with its best algorithm. */
static bool run_way(void *arg, int competitor, int run)
{
    struct search *s = arg;
    int way = s->way[competitor];
    if (set_way(s, (enum gemm_way)way) != 0)
        return false;
    s->gemm->choice.algorithm = s->ways[way].best;
    if (!run_product(s, run))
        return false;
    bool apart = way != WAY_FUSED;
    if (apart && s->partner.kind == OP_BIAS_GRAD)
        cuda_bias_grad(&s->partner, &s->trial, s->stream);
    else if (apart && s->partner.kind == OP_GELU_GRAD)
        cuda_gelu_grad(&s->partner, &s->trial, s->stream);
    else if (apart && s->partner.kind == OP_GELU)
        cuda_gelu(&s->partner, &s->trial, s->stream);
    return true;
}

/* us[GEMM_WAYS]: 0 where there is no such way, or it fails now. */
static void run_duel(struct search *s, struct found *found, float us[GEMM_WAYS])
{
    float median[GEMM_WAYS];
    int n = 0;
    s->ways = found;
    for (int w = 0; w < GEMM_WAYS; w++)
        if (found[w].n > 0)
            s->way[n++] = w;
    cuda_race_all(&s->race, run_way, s, n, ROUNDS, median);
    for (int i = 0; i < n; i++) {
        us[s->way[i]] = median[i] > 0 ? median[i] : 0;
        found[s->way[i]].n = median[i] > 0 ? found[s->way[i]].n : 0;
    }
}

/* Keeps the fastest way in the choice. */
static void duel(struct search *s, struct found *found, const struct gemm_choice *before)
{
    float us[GEMM_WAYS] = {0};
    struct gemm_choice *choice = &s->gemm->choice;
    int way = -1;
    run_duel(s, found, us);
    for (int w = 0; w < GEMM_WAYS; w++) {
        choice->way_us[w] = us[w];
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

/* Tensors that the caches would keep have copies; as many as fit. */
static int copies_of(const struct search *s, int64_t room)
{
    int64_t wanted = 2 * s->cache_bytes / s->bytes + 1, fit = room / s->bytes;
    wanted = wanted < fit ? wanted : fit;
    return (int)(wanted < 1 ? 1 : wanted < MOST_COPIES ? wanted : MOST_COPIES);
}

static void fill(struct search *s, bool wide, enum dtype type)
{
    int64_t inputs = s->product.t[2].offset;
    for (int i = 0; i < s->copies; i++) {
        unsigned char *copy = s->memory + i * s->bytes;
        cuda_fill_normals(copy, type, s->bytes / (int64_t)dtype_size((int)type), s->stream);
        if (wide) /* what it adds to, and the rest, is fp32 */
            cuda_fill_normals(copy + inputs, DTYPE_F32, (s->bytes - inputs) / 4, s->stream);
    }
}

/* In the arena of activations, which nothing needs before the first step; else in memory for now. */
static void search_in_memory(struct search *s, struct kernel_context *context, struct gemm *g)
{
    struct cuda_state *state = cuda_state(context);
    void *memory = context->base[BUFFER_ACTIVATION];
    s->bytes = lay_out(s, &g->choice.key);
    bool borrowed = memory != NULL && state->plan->bytes[BUFFER_ACTIVATION] >= s->bytes;
    if (!borrowed && cuda_take(state, s->bytes, &memory) != 0) {
        fail_clear();
        return;
    }
    s->gemm = g;
    s->memory = memory;
    s->copies = copies_of(s, borrowed ? state->plan->bytes[BUFFER_ACTIVATION] : s->bytes);
    s->trial.base[BUFFER_ACTIVATION] = memory;
    fill(s, g->choice.key.wide, g->choice.key.dtype == DTYPE_BF16 ? DTYPE_BF16 : DTYPE_F32);
    search_gemm(s);
    cuda_must((int)cudaStreamSynchronize(s->stream), "search for an algorithm");
    if (!borrowed)
        cuda_drop(state, memory, s->bytes);
}

void gemm_search(struct kernel_context *context, const bool *wanted)
{
    struct cuda_state *state = cuda_state(context);
    struct search s = {.trial = *context, .gemms = state->gemms};
    int device = 0, cache = 0;
    if (cudaGetDevice(&device) == cudaSuccess &&
        cudaDeviceGetAttribute(&cache, cudaDevAttrL2CacheSize, device) == cudaSuccess)
        s.cache_bytes = cache;
    s.stream = state->device->type->native(state->device, DEVICE_COMPUTE);
    cuda_race_open(&s.race, s.stream);
    for (int i = 0; i < state->gemms->n; i++)
        if (wanted[i])
            search_in_memory(&s, context, &state->gemms->gemm[i]);
    cuda_race_close(&s.race);
}
