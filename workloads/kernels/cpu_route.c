/* Routing, and the movement of rows to experts and back: nothing here depends on order or threads. */
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "workloads/counts.h"
#include "workloads/kernels/cpu.h"
#include "workloads/kernels/cpu_math.h"
#include "workloads/routing.h"

static const float *logits_of(const struct shape_route *s, const float *logits, int64_t row)
{
    int64_t own;
    return logits + routing_at(s, row, &own) * s->experts;
}

static void softmax(const float *logits, int n, float *p)
{
    float most = logits[0];
    double sum = 0;
    for (int e = 1; e < n; e++)
        most = logits[e] > most ? logits[e] : most;
    for (int e = 0; e < n; e++) {
        p[e] = expf(logits[e] - most);
        sum += (double)p[e];
    }
    for (int e = 0; e < n; e++)
        p[e] = (float)((double)p[e] / sum);
}

static bool has(const int32_t *taken, int n, int32_t expert)
{
    for (int i = 0; i < n; i++)
        if (taken[i] == expert)
            return true;
    return false;
}

/* The largest that are not taken; NaN counts as smallest, so that a broken step still ends. */
static void take_largest(const struct shape_route *s, const float *logits, int32_t *taken)
{
    for (int j = 0; j < s->top_k; j++) {
        int32_t best = -1;
        for (int32_t e = 0; e < s->experts; e++)
            if (!has(taken, j, e) && (best < 0 || logits[e] > logits[best]))
                best = e;
        taken[j] = best;
    }
}

/* Is the last taken one as good as the best of the others, but for rounding? */
static bool is_tied(const struct shape_route *s, const float *logits, const int32_t *taken)
{
    float last = logits[taken[s->top_k - 1]], next = -INFINITY;
    for (int32_t e = 0; e < s->experts; e++)
        if (!has(taken, s->top_k, e) && logits[e] > next)
            next = logits[e];
    return s->kind == ROUTING_LEARNED && last - next <= 1e-5f * fmaxf(fabsf(last), fabsf(next));
}

/* Is no expert that is left out better than one that is taken, but for `noise`? */
static bool is_as_good(const struct shape_route *s, const float *logits, const int32_t *taken,
                       double noise)
{
    for (int j = 0; j < s->top_k; j++)
        if (taken[j] < 0 || taken[j] >= s->experts || has(taken, j, taken[j]))
            return false; /* no experts, or one of them twice */
    double worst = INFINITY, best = -INFINITY;
    for (int32_t e = 0; e < s->experts; e++)
        if (has(taken, s->top_k, e))
            worst = fmin(worst, (double)logits[e]);
        else
            best = fmax(best, (double)logits[e]);
    return best - worst <= noise;
}

/* What another run chose for a token, in place of what was taken here. */
static void follow(const struct shape_route *s, struct kernel_told *told, const int32_t *other,
                   const float *logits, double noise, int32_t *taken)
{
    bool same = true;
    for (int j = 0; j < s->top_k; j++)
        same = same && has(taken, s->top_k, other[j]);
    if (other[0] < 0 || same)
        return;
    if (!is_as_good(s, logits, other, noise)) {
        told->refused++;
        return;
    }
    told->followed++;
    memcpy(taken, other, (size_t)s->top_k * sizeof *taken);
}

/* The root of the mean square of the logits of all rows. */
static double size_of(const struct shape_route *s, const float *logits)
{
    double sum = 0;
    int64_t n = s->all_rows * s->experts;
    for (int64_t i = 0; i < n; i++)
        sum += (double)logits[i] * (double)logits[i];
    return sqrt(sum / (double)n);
}

/* How an op chooses; `told` NULL: every token by itself. */
struct choice {
    const struct shape_route *s;
    struct kernel_told *told;
    const int32_t *experts; /* [tokens][top_k] of the layer */
    double noise;
};

static struct choice choice_of(const struct op *op, const struct kernel_context *context,
                               const float *logits)
{
    const struct shape_route *s = &op->shape.route;
    struct choice c = {.s = s};
    if (context->told == NULL || s->kind != ROUTING_LEARNED)
        return c;
    c.told = context->told;
    c.experts = c.told->experts + (int64_t)op->layer * c.told->tokens * s->top_k;
    c.noise = c.told->within * size_of(s, logits);
    return c;
}

static void choose(const struct choice *c, int64_t row, const float *x, int32_t *taken)
{
    int64_t token = c->s->first_token + row;
    if (c->s->kind != ROUTING_LEARNED) {
        routing_take(c->s, token, taken);
        return;
    }
    take_largest(c->s, x, taken);
    if (c->told != NULL)
        follow(c->s, c->told, c->experts + token * c->s->top_k, x, c->noise, taken);
}

static void put_gates(const struct shape_route *s, const float *p, const int32_t *taken,
                      float *gates)
{
    float sum = 0;
    for (int j = 0; j < s->top_k; j++)
        sum += p[taken[j]];
    for (int j = 0; j < s->top_k; j++)
        gates[j] = s->top_k > 1 ? p[taken[j]] / sum : p[taken[j]];
}

struct route_out {
    int32_t *experts, *place, *source;
    float *gates;
};

/* A row of this rank: where its kept slots go. next[e]: rows of expert e so far. */
static void put_row(const struct shape_route *s, const struct route_out *out, int64_t own,
                    const int32_t *taken, const bool *kept, int32_t *next)
{
    for (int j = 0; j < s->top_k; j++) {
        int64_t slot = own * s->top_k + j;
        int32_t e = taken[j];
        out->experts[slot] = e;
        out->place[slot] = -1;
        if (!kept[j])
            continue;
        int32_t row = (s->first != NULL ? s->first[e] : 0) + next[e]++;
        out->place[slot] = row;
        if (s->first != NULL)
            out->source[row] = (int32_t)slot;
    }
}

/* Where experts begin is known when all rows are counted: so far a place is one among its expert's. */
static void put_first(const struct shape_route *s, const struct route_out *out,
                      const int32_t *counts)
{
    int32_t first[EXPERTS_MOST] = {0};
    for (int e = 1; e < s->experts; e++)
        first[e] = first[e - 1] + counts[e - 1];
    for (int64_t slot = 0; slot < s->rows * s->top_k; slot++) {
        out->place[slot] += first[out->experts[slot]];
        out->source[out->place[slot]] = (int32_t)slot;
    }
}

/* Sums over the sequence that is being read. */
struct sequence {
    int32_t taken_by[EXPERTS_MOST];
    double sum_p[EXPERTS_MOST];
};

/* f_e times E, and the loss. */
static void end_sequence(const struct shape_route *s, const struct sequence *q, float *share,
                         double *load)
{
    double sum = 0;
    for (int e = 0; e < s->experts; e++) {
        double f = (double)q->taken_by[e] / (double)(s->sequence * s->top_k) * s->experts;
        share[e] = (float)f;
        sum += f * q->sum_p[e];
    }
    if (load != NULL && s->counted && s->part == 0 && s->context == 0)
        load[s->experts] += sum;
}

static void add_load(const struct shape_route *s, const float *x, const int32_t *taken,
                     const bool *kept, double *load)
{
    for (int j = 0; j < s->top_k; j++) {
        load[taken[j]] += 1;
        load[s->experts + 1] += !kept[j];
    }
    load[s->experts + 2] += is_tied(s, x, taken);
}

/* Is there room for what a row of the sequence takes? */
static void take(const struct shape_route *s, const float *p, const int32_t *taken,
                 struct sequence *q, bool *kept)
{
    for (int e = 0; e < s->experts; e++)
        q->sum_p[e] += (double)p[e];
    for (int j = 0; j < s->top_k; j++) {
        kept[j] = s->capacity == 0 || q->taken_by[taken[j]] < s->capacity;
        q->taken_by[taken[j]]++;
    }
}

void cpu_route(const struct op *op, struct kernel_context *context, void *native)
{
    (void)native;
    const struct shape_route *s = &op->shape.route;
    const float *logits = tensor_at(context, op->t[0]);
    struct route_out out = {tensor_at(context, op->t[1]), tensor_at(context, op->t[2]),
                            tensor_at(context, op->t[4]), tensor_at(context, op->t[3])};
    double *load = op->again ? NULL : tensor_at(context, op->t[5]);
    float *share = tensor_at(context, op->t[6]), p[EXPERTS_MOST];
    int32_t next[EXPERTS_MOST] = {0}, taken[TOP_K_MOST];
    struct choice choice = choice_of(op, context, logits);
    struct sequence q;
    bool kept[TOP_K_MOST];

    for (int64_t i = 0; i < s->sent; i++)
        out.source[i] = -1;
    for (int64_t row = 0; row < s->all_rows; row++) {
        const float *x = logits_of(s, logits, row);
        int64_t own = routing_own(s, row);
        if (row % s->sequence == 0)
            memset(&q, 0, sizeof q);
        softmax(x, s->experts, p);
        choose(&choice, row, x, taken);
        take(s, p, taken, &q, kept);
        if (own >= 0) {
            put_row(s, &out, own, taken, kept, next);
            put_gates(s, p, taken, out.gates + own * s->top_k);
        }
        if (own >= 0 && load != NULL && s->counted)
            add_load(s, x, taken, kept, load);
        if ((row + 1) % s->sequence == 0)
            end_sequence(s, &q, share + row / s->sequence * s->experts, load);
    }
    if (s->first != NULL)
        return;
    put_first(s, &out, next);
    memcpy(tensor_at(context, op->t[7]), next, (size_t)s->experts * sizeof *next);
}

/* The compute stream is the host: it is there already. */
void cpu_counts(const struct op *op, struct kernel_context *context, void *native)
{
    (void)native;
    context->counts++;
    if (!context->keep_counts)
        counts_put(&op->shape.counts, tensor_at(context, op->t[0]), tensor_at(context, op->t[1]));
}

/* Through the softmax of all (K = 1), or of the taken ones, whose gates do not see the others. */
static void gate_grad(const struct shape_route *s, const float *p, const int32_t *taken,
                      const float *dgates, float *dlogits)
{
    float sum = 0, inner = 0;
    for (int j = 0; j < s->top_k; j++) {
        sum += p[taken[j]];
        inner += p[taken[j]] * dgates[j];
    }
    if (s->top_k == 1) {
        for (int e = 0; e < s->experts; e++)
            dlogits[e] -= p[e] * inner;
        dlogits[taken[0]] += inner;
        return;
    }
    inner /= sum;
    for (int j = 0; j < s->top_k; j++)
        dlogits[taken[j]] += p[taken[j]] / sum * (dgates[j] - inner);
}

void cpu_route_grad(const struct op *op, struct kernel_context *context, void *native)
{
    (void)native;
    const struct shape_route *s = &op->shape.route;
    const float *logits = tensor_at(context, op->t[0]), *share = tensor_at(context, op->t[3]);
    const int32_t *experts = tensor_at(context, op->t[1]);
    const float *dgates = tensor_at(context, op->t[2]);
    float *dlogits = tensor_at(context, op->t[4]), p[EXPERTS_MOST];

    for (int64_t row = 0; row < s->all_rows; row++) {
        int64_t own = routing_own(s, row);
        if (own < 0)
            continue;
        const float *f = share + row / s->sequence * s->experts;
        float *d = dlogits + own * s->experts, mean = 0;
        softmax(logits_of(s, logits, row), s->experts, p);
        for (int e = 0; e < s->experts; e++)
            mean += p[e] * f[e];
        for (int e = 0; e < s->experts; e++)
            d[e] = s->counted ? s->balance * p[e] * (f[e] - mean) : 0;
        gate_grad(s, p, experts + own * s->top_k, dgates + own * s->top_k, d);
    }
}

void cpu_permute(const struct op *op, struct kernel_context *context, void *native)
{
    (void)native;
    const struct shape_permute *s = &op->shape.permute;
    const float *x = tensor_at(context, op->t[0]);
    const int32_t *source = tensor_at(context, op->t[1]);
    float *out = tensor_at(context, op->t[2]);

    for (int64_t i = 0; i < s->sent; i++, out += s->width)
        if (source[i] < 0)
            memset(out, 0, (size_t)s->width * sizeof *out);
        else
            memcpy(out, x + source[i] / s->top_k * s->width, (size_t)s->width * sizeof *out);
}

void cpu_combine(const struct op *op, struct kernel_context *context, void *native)
{
    (void)native;
    const struct shape_permute *s = &op->shape.permute;
    const float *y = tensor_at(context, op->t[0]), *gates = tensor_at(context, op->t[2]);
    const int32_t *place = tensor_at(context, op->t[1]);
    float *out = tensor_at(context, op->t[3]);

    for (int64_t t = 0; t < s->rows; t++, out += s->width) {
        if (!s->accumulate)
            memset(out, 0, (size_t)s->width * sizeof *out);
        for (int64_t slot = t * s->top_k; slot < (t + 1) * s->top_k; slot++) {
            float gate = gates != NULL ? gates[slot] : 1;
            const float *row = y + place[slot] * s->width;
            for (int64_t i = 0; place[slot] >= 0 && i < s->width; i++)
                out[i] += gate * row[i];
        }
    }
}

void cpu_combine_grad(const struct op *op, struct kernel_context *context, void *native)
{
    (void)native;
    const struct shape_permute *s = &op->shape.permute;
    const float *dout = tensor_at(context, op->t[0]), *y = tensor_at(context, op->t[1]);
    const float *gates = tensor_at(context, op->t[2]);
    const int32_t *place = tensor_at(context, op->t[3]), *source = tensor_at(context, op->t[4]);
    float *dy = tensor_at(context, op->t[5]), *dgates = tensor_at(context, op->t[6]);

    for (int64_t slot = 0; slot < s->rows * s->top_k; slot++)
        dgates[slot] = place[slot] < 0 ? 0
                                       : cpu_row_dot(dout + slot / s->top_k * s->width,
                                                     y + place[slot] * s->width, s->width);
    for (int64_t i = 0; i < s->sent; i++, dy += s->width) {
        float gate = source[i] < 0 ? 0 : gates[source[i]];
        const float *from = dout + (source[i] < 0 ? 0 : source[i] / s->top_k) * s->width;
        for (int64_t e = 0; e < s->width; e++)
            dy[e] = source[i] < 0 ? 0 : gate * from[e];
    }
}
