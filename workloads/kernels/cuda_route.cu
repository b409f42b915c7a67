/*
 * Routing, and the movement of rows to experts and back. Every place is decided by counting in the
 * order of tokens, and sums of floats have one order: same bits every time. What is added with
 * atomics are whole numbers.
 */
#include <math.h>

#include "workloads/kernels/cuda_kernel.cuh"
#include "workloads/routing.h"

enum { LANE_EXPERTS = EXPERTS_MOST / WARP, ROW_WARPS = 8, PLACE_THREADS = 1024, DRAWS = 8 };

/* Tables by value: they fit the parameters of a kernel. */
struct route_tables {
    int32_t first[EXPERTS_MOST];
    uint32_t threshold[EXPERTS_MOST];
};

struct route_args {
    const float *logits;
    int32_t *experts, *place, *source;
    float *gates, *share;
    double *load;    /* or NULL */
    int32_t *counts; /* [E] dropless; or NULL: t.first says where experts begin */
    int32_t *taken;  /* scratch [all_rows][K] */
    float *p;        /* scratch [all_rows][E] */
    int64_t rows, all_rows, sequence, lead, capacity, sent, first_token;
    int parts, part, contexts, context, runs, n, top_k, kind;
    uint64_t key;
    float balance;
    bool counted;
};

/* ---- the generator, as base/rng.h defines it ---- */

__device__ static uint32_t draw_bits(uint64_t key, uint64_t index)
{
    uint64_t x = key + (index + 1) * 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return (uint32_t)((x ^ (x >> 31)) >> 32);
}

__device__ static bool has(const int32_t *taken, int n, int32_t expert)
{
    for (int i = 0; i < n; i++)
        if (taken[i] == expert)
            return true;
    return false;
}

__device__ static int32_t take_skewed(const route_args &a, const route_tables &t, int64_t token,
                                      const int32_t *taken, int j)
{
    uint64_t first = ((uint64_t)token * (uint64_t)a.top_k + (uint64_t)j) * DRAWS;
    int32_t e = 0;
    for (int i = 0; i < DRAWS; i++) {
        uint32_t u = draw_bits(a.key, first + (uint64_t)i);
        for (e = 0; u > t.threshold[e];)
            e++;
        if (!has(taken, j, e))
            return e;
    }
    while (has(taken, j, e))
        e = (e + 1) % a.n;
    return e;
}

__device__ static void take_defined(const route_args &a, const route_tables &t, int64_t token,
                                    int32_t *taken)
{
    uint64_t first = (uint64_t)token * (uint64_t)a.top_k + a.key % (uint64_t)a.n;
    for (int j = 0; j < a.top_k; j++)
        taken[j] = a.kind == ROUTING_BALANCED ? (int32_t)((first + (uint64_t)j) % (uint64_t)a.n)
                                              : take_skewed(a, t, token, taken, j);
}

/* ---- rows ---- */

/* As routing_at() says. */
__device__ static int64_t place_of(const route_args &a, int64_t row, int64_t *own)
{
    int64_t context = 0;
    if (a.contexts > 1) {
        int64_t each = a.sequence / a.contexts, chunk = each / a.runs;
        int64_t at = row % a.sequence, n = at / chunk;
        bool late = n >= a.contexts;
        row = row / a.sequence * each + (late ? chunk : 0) + at % chunk;
        context = late ? 2 * a.contexts - 1 - n : n;
    }
    int64_t at = row / a.lead, part = at % a.parts, index = at / a.parts * a.lead + row % a.lead;
    *own = part == a.part && context == a.context ? index : -1;
    return (context * a.parts + part) * a.rows + index;
}

__device__ static int64_t own_of(const route_args &a, int64_t row)
{
    int64_t own;
    place_of(a, row, &own);
    return own;
}

/* A warp has a row: lane l holds logits l, l + 32, ...; what does not exist is -inf. */
__device__ static void load_row(const route_args &a, int64_t row, float (&x)[LANE_EXPERTS])
{
    int64_t own;
    const float *from = a.logits + place_of(a, row, &own) * a.n;
#pragma unroll
    for (int i = 0; i < LANE_EXPERTS; i++) {
        int e = i * WARP + (int)threadIdx.x;
        x[i] = e < a.n ? from[e] : -INFINITY;
    }
}

__device__ static void softmax(const route_args &a, float (&x)[LANE_EXPERTS],
                               float (&p)[LANE_EXPERTS])
{
    float most = -INFINITY, sum = 0;
#pragma unroll
    for (int i = 0; i < LANE_EXPERTS; i++)
        most = fmaxf(most, x[i]);
    most = warp_max(most);
#pragma unroll
    for (int i = 0; i < LANE_EXPERTS; i++) {
        p[i] = i * WARP + (int)threadIdx.x < a.n ? expf(x[i] - most) : 0;
        sum += p[i];
    }
    sum = warp_sum(sum);
#pragma unroll
    for (int i = 0; i < LANE_EXPERTS; i++)
        p[i] /= sum;
}

/* The largest logit of the warp that is not taken, the lowest expert of equals; -1: none is a number. */
__device__ static int32_t largest(const route_args &a, const float (&x)[LANE_EXPERTS],
                                  const int32_t *taken, int n, float *value)
{
    float best = -INFINITY;
    int32_t at = EXPERTS_MOST;
#pragma unroll
    for (int i = 0; i < LANE_EXPERTS; i++) {
        int32_t e = i * WARP + (int)threadIdx.x;
        if (e < a.n && !has(taken, n, e) && (at == EXPERTS_MOST || x[i] > best)) {
            best = x[i];
            at = e;
        }
    }
    for (int step = WARP / 2; step > 0; step /= 2) {
        float other = __shfl_xor_sync(ALL_LANES, best, step);
        int32_t from = __shfl_xor_sync(ALL_LANES, at, step);
        bool exists = from < EXPERTS_MOST;
        if (exists && (at == EXPERTS_MOST || other > best || (other == best && from < at))) {
            best = other;
            at = from;
        }
    }
    *value = best;
    return at < a.n ? at : 0;
}

__device__ static float at_expert(const float (&p)[LANE_EXPERTS], int32_t e)
{
    float mine = 0;
#pragma unroll
    for (int i = 0; i < LANE_EXPERTS; i++)
        if (i == e / WARP)
            mine = p[i];
    return __shfl_sync(ALL_LANES, mine, e % WARP);
}

__global__ void route_rows(const route_args a, const route_tables t)
{
    int64_t row = (int64_t)blockIdx.x * ROW_WARPS + threadIdx.y;
    float x[LANE_EXPERTS], p[LANE_EXPERTS], last = 0, next;
    int32_t taken[TOP_K_MOST];
    if (row >= a.all_rows)
        return;
    int64_t own = own_of(a, row);
    load_row(a, row, x);
    softmax(a, x, p);
    if (a.kind == ROUTING_LEARNED)
        for (int j = 0; j < a.top_k; j++)
            taken[j] = largest(a, x, taken, j, &last);
    else
        take_defined(a, t, a.first_token + row, taken);
#pragma unroll
    for (int i = 0; i < LANE_EXPERTS; i++)
        if (i * WARP + (int)threadIdx.x < a.n)
            a.p[row * a.n + i * WARP + (int)threadIdx.x] = p[i];
    for (int j = 0; j < a.top_k; j++)
        if (j == (int)threadIdx.x)
            a.taken[row * a.top_k + j] = taken[j];
    if (own < 0)
        return;
    float sum = 0;
    for (int j = 0; j < a.top_k; j++)
        sum += at_expert(p, taken[j]);
    for (int j = 0; j < a.top_k; j++) {
        float gate = at_expert(p, taken[j]);
        if (threadIdx.x == 0) {
            a.experts[own * a.top_k + j] = taken[j];
            a.gates[own * a.top_k + j] = a.top_k > 1 ? gate / sum : gate;
        }
    }
    if (a.kind != ROUTING_LEARNED || a.load == NULL || !a.counted || a.n == a.top_k)
        return;
    largest(a, x, taken, a.top_k, &next);
    if (threadIdx.x == 0 && last - next <= 1e-5f * fmaxf(fabsf(last), fabsf(next)))
        atomicAdd(&a.load[a.n + 2], 1.0);
}

/* How many threads before this one say yes, and how many in all. `sums` is shared, 32 values. */
__device__ static int count_before(bool yes, int *sums, int *all)
{
    unsigned votes = __ballot_sync(ALL_LANES, yes);
    int lane = (int)threadIdx.x % WARP, warp = (int)threadIdx.x / WARP, before = 0, total = 0;
    if (lane == 0)
        sums[warp] = __popc(votes);
    __syncthreads();
    for (int w = 0; w < PLACE_THREADS / WARP; w++) {
        before += w < warp ? sums[w] : 0;
        total += sums[w];
    }
    __syncthreads();
    *all = total;
    return before + __popc(votes & ((1u << lane) - 1));
}

/* Dropless: a block has an expert and counts the slots of this rank's tokens that took it. */
__global__ void route_counts(const route_args a)
{
    __shared__ double slots[WARP];
    double count = 0;
    for (int64_t i = threadIdx.x; i < a.all_rows * a.top_k; i += PLACE_THREADS)
        count += a.taken[i] == (int)blockIdx.x && own_of(a, i / a.top_k) >= 0;
    count = block_sum(count, slots);
    if (threadIdx.x == 0)
        a.counts[blockIdx.x] = (int32_t)count;
}

__device__ static int first_of(const route_args &a, const route_tables &t, int e)
{
    int first = a.counts != NULL ? 0 : e < a.n ? t.first[e] : (int)a.sent;
    for (int i = 0; a.counts != NULL && i < e; i++)
        first += a.counts[i];
    return first;
}

/* A block has an expert: it walks the slots of all tokens in their order. */
__global__ void route_places(const route_args a, const route_tables t)
{
    __shared__ int sums[WARP];
    int e = (int)blockIdx.x, next = first_of(a, t, e), end = first_of(a, t, e + 1);
    int64_t slots = a.sequence * a.top_k;
    int taken_own = 0, dropped = 0;
    for (int64_t q = 0; q < a.all_rows / a.sequence; q++) {
        int in_sequence = 0;
        for (int64_t base = 0; base < slots; base += PLACE_THREADS) {
            int64_t i = base + threadIdx.x, slot = q * slots + i, row = slot / a.top_k;
            bool takes = i < slots && a.taken[slot] == e;
            int all, rank = in_sequence + count_before(takes, sums, &all);
            int64_t own = takes ? own_of(a, row) : -1;
            bool keeps = own >= 0 && (a.capacity == 0 || rank < a.capacity);
            in_sequence += all;
            int place = next + count_before(keeps, sums, &all), mine = own >= 0,
                lost = mine && !keeps;
            next += all;
            if (own >= 0) {
                int64_t to = own * a.top_k + slot % a.top_k;
                a.place[to] = keeps ? place : -1;
                if (keeps)
                    a.source[place] = (int32_t)to;
            }
            taken_own += mine;
            dropped += lost;
        }
        if (threadIdx.x == 0)
            a.share[q * a.n + e] = (float)((double)in_sequence / (double)slots * a.n);
    }
    for (int i = next + (int)threadIdx.x; i < end; i += PLACE_THREADS)
        a.source[i] = -1;
    if (a.load == NULL || !a.counted)
        return;
    if (taken_own > 0)
        atomicAdd(&a.load[e], (double)taken_own);
    if (dropped > 0)
        atomicAdd(&a.load[a.n + 1], (double)dropped);
}

/* The load-balance loss: of each sequence the sum of E f_e p_e over its rows. One block. */
__global__ void route_balance(const route_args a)
{
    __shared__ double slots[WARP];
    double sum = 0;
    for (int64_t i = threadIdx.x; i < a.all_rows * a.n; i += PLACE_THREADS)
        sum += (double)a.p[i] * (double)a.share[i / a.n / a.sequence * a.n + i % a.n];
    sum = block_sum(sum, slots);
    if (threadIdx.x == 0)
        a.load[a.n] += sum;
}

static struct route_args route_of(const struct op *op, const struct kernel_context *context)
{
    const struct shape_route *s = &op->shape.route;
    struct route_args a = {};
    a.logits = (const float *)tensor_at(context, op->t[0]);
    a.experts = (int32_t *)tensor_at(context, op->t[1]);
    a.rows = s->rows, a.all_rows = s->all_rows, a.sequence = s->sequence, a.lead = s->lead;
    a.capacity = s->capacity, a.sent = s->sent, a.first_token = s->first_token;
    a.parts = s->parts, a.part = s->part, a.contexts = s->contexts, a.context = s->context;
    a.runs = s->runs, a.n = s->experts, a.top_k = s->top_k, a.kind = (int)s->kind, a.key = s->key;
    a.balance = s->balance, a.counted = s->counted;
    return a;
}

int64_t cuda_route_scratch(const struct op *op, const struct cuda_state *state)
{
    const struct shape_route *s = &op->shape.route;
    (void)state;
    return s->all_rows * (s->top_k + s->experts) * (int64_t)sizeof(float);
}

void cuda_route(const struct op *op, struct kernel_context *context, void *native)
{
    const struct shape_route *s = &op->shape.route;
    struct route_args a = route_of(op, context);
    struct route_tables t = {};
    a.place = (int32_t *)tensor_at(context, op->t[2]);
    a.gates = (float *)tensor_at(context, op->t[3]);
    a.source = (int32_t *)tensor_at(context, op->t[4]);
    a.load = op->again ? NULL : (double *)tensor_at(context, op->t[5]);
    a.share = (float *)tensor_at(context, op->t[6]);
    a.taken = (int32_t *)cuda_state(context)->scratch;
    a.p = (float *)(a.taken + s->all_rows * s->top_k);
    a.counts = s->first == NULL ? (int32_t *)tensor_at(context, op->t[7]) : NULL;
    for (int e = 0; e < s->experts; e++) {
        t.first[e] = s->first != NULL ? s->first[e] : 0;
        t.threshold[e] = s->threshold != NULL ? s->threshold[e] : 0;
    }
    dim3 rows(WARP, ROW_WARPS);
    route_rows<<<(unsigned)ceil_div(s->all_rows, ROW_WARPS), rows, 0, NATIVE(native)>>>(a, t);
    if (a.counts != NULL)
        route_counts<<<(unsigned)s->experts, PLACE_THREADS, 0, NATIVE(native)>>>(a);
    route_places<<<(unsigned)s->experts, PLACE_THREADS, 0, NATIVE(native)>>>(a, t);
    if (a.load != NULL && a.counted && a.part == 0 && a.context == 0)
        route_balance<<<1, PLACE_THREADS, 0, NATIVE(native)>>>(a);
    cuda_launched("route");
}

/* ---- gradient ---- */

__global__ void route_grad_rows(const route_args a, const float *dgates, float *dlogits)
{
    int64_t row = (int64_t)blockIdx.x * ROW_WARPS + threadIdx.y;
    float x[LANE_EXPERTS], p[LANE_EXPERTS], f[LANE_EXPERTS], mean = 0, sum = 0, inner = 0;
    if (row >= a.all_rows)
        return;
    int64_t own = own_of(a, row);
    if (own < 0)
        return;
    const int32_t *taken = a.experts + own * a.top_k;
    load_row(a, row, x);
    softmax(a, x, p);
#pragma unroll
    for (int i = 0; i < LANE_EXPERTS; i++) {
        int e = i * WARP + (int)threadIdx.x;
        f[i] = e < a.n ? a.share[row / a.sequence * a.n + e] : 0;
        mean += p[i] * f[i];
    }
    mean = warp_sum(mean);
    for (int j = 0; j < a.top_k; j++) {
        float gate = at_expert(p, taken[j]);
        sum += gate;
        inner += gate * dgates[own * a.top_k + j];
    }
    if (a.top_k > 1)
        inner /= sum;
#pragma unroll
    for (int i = 0; i < LANE_EXPERTS; i++) {
        int e = i * WARP + (int)threadIdx.x;
        float d = a.counted ? a.balance * p[i] * (f[i] - mean) : 0;
        if (e >= a.n)
            continue;
        if (a.top_k == 1)
            d += (taken[0] == e ? inner : 0) - p[i] * inner;
        for (int j = 0; a.top_k > 1 && j < a.top_k; j++)
            if (taken[j] == e)
                d += p[i] / sum * (dgates[own * a.top_k + j] - inner);
        dlogits[own * a.n + e] = d;
    }
}

void cuda_route_grad(const struct op *op, struct kernel_context *context, void *native)
{
    struct route_args a = route_of(op, context);
    a.share = (float *)tensor_at(context, op->t[3]);
    dim3 rows(WARP, ROW_WARPS);
    route_grad_rows<<<(unsigned)ceil_div(a.all_rows, ROW_WARPS), rows, 0, NATIVE(native)>>>(
        a, (const float *)tensor_at(context, op->t[2]), (float *)tensor_at(context, op->t[4]));
    cuda_launched("route-grad");
}
