#include "workloads/memory_fit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/units.h"
#include "workloads/formulas.h"

static const char *const recompute_names[] = {"none", "selective", "full", "mlp"};
enum { N_RECOMPUTE = sizeof recompute_names / sizeof *recompute_names };

const char *memory_recompute_name(int recompute)
{
    return recompute_names[recompute];
}

void memory_fit_release(struct memory_fit *fit)
{
    free(fit->choice);
    *fit = (struct memory_fit){0};
}

/* ---- one choice ---- */

struct walk {
    const struct memory_fit_ask *ask;
    struct memory_fit *out;
    struct degrees degrees; /* resolved */
    struct layout layout;   /* of rank 0 */
    struct policy policy;
    int refusals; /* the first is kept in `why` */
    char why[512];
};

static struct policy planned(const struct walk *w, int64_t micro_batches)
{
    struct policy policy = w->policy;
    policy.global_batch = w->degrees.dp * policy.micro_batch * micro_batches;
    return policy;
}

static int64_t common_divisor(int64_t a, int64_t b)
{
    return b == 0 ? a : common_divisor(b, a % b);
}

/* After so many micro-batches layers have the places again that they take in turn: weights one of
 * `ahead` + 1, gradients one of two. */
static int64_t turns_of(const struct walk *w)
{
    int64_t layers = w->ask->model->layers, ring = w->policy.fsdp_prefetch + 1;
    int64_t weights = ring / common_divisor(ring, 2 * layers);
    int64_t gradients = 2 / common_divisor(2, layers);
    return w->degrees.shard == 1 ? 1 : weights * gradients / common_divisor(weights, gradients);
}

/* The first and the last micro-batch, and of those between one for every turn. */
static int64_t steps_that_matter(const struct walk *w, int64_t steps)
{
    int64_t unit = w->degrees.pp > 1 ? w->degrees.pp : turns_of(w), least = 2 * unit + 1;
    if (w->degrees.pp > 1 && w->policy.schedule == SCHEDULE_GPIPE)
        return steps; /* all are in flight */
    return steps <= least ? steps : least + (steps - least) % unit;
}

/* Seconds of a step of all stages with that many micro-batches; NaN when it cannot be costed. */
static double modelled(const struct walk *w, int64_t micro_batches)
{
    struct policy policy = planned(w, micro_batches);
    const struct group *pp = &w->layout.group[AXIS_PP];
    struct plan *plans = must_alloc((size_t)pp->size, sizeof *plans);
    struct cost_step step = {.step_s = NAN};
    bool good = true;
    policy.pack = CHOICE_OFF; /* time does not ask where bytes lie */
    for (int stage = 0; stage < pp->size && good; stage++) {
        struct layout layout;
        good = layout_init(&layout, w->ask->nodes, w->ask->ranks_per_node, group_rank(pp, stage),
                           &w->degrees) == 0 &&
               transformer_plan(&plans[stage], w->ask->model, &layout, &policy) == 0 &&
               cost_check(w->ask->cost, &plans[stage]) == 0;
    }
    if (good && pp->size > 1)
        cost_stages(w->ask->cost, plans, pp->size, &step, NULL);
    else if (good)
        cost_plan(w->ask->cost, plans, NULL, &step);
    for (int stage = 0; stage < pp->size; stage++)
        plan_release(&plans[stage]);
    free(plans);
    fail_clear();
    return step.step_s;
}

/* From the second micro-batch on each takes the same; with a pipeline, from as many as it has stages. */
static double modelled_step(const struct walk *w, int64_t steps)
{
    int64_t unit = w->degrees.pp > 1 ? w->degrees.pp : 1, most = unit > 1 ? 2 * unit : 3;
    if (w->ask->cost == NULL)
        return NAN;
    if (steps <= most)
        return modelled(w, steps);
    double longer = modelled(w, most);
    return longer + (double)(steps - most) * (longer - modelled(w, most - unit)) / (double)unit;
}

static int hold_stage(struct walk *w, int stage, struct memory_choice *c)
{
    const struct memory_fit_ask *ask = w->ask;
    struct policy policy = planned(w, steps_that_matter(w, c->micro_steps));
    int rank = group_rank(&w->layout.group[AXIS_PP], stage), rc = 0;
    struct layout layout;
    struct memory memory;
    struct plan plan = {0};
    double unit;
    TRY(layout_init(&layout, ask->nodes, ask->ranks_per_node, rank, &w->degrees));
    TRY(transformer_plan(&plan, ask->model, &layout, &policy));
    memory_of_plan(&memory, &plan, NULL);
    plan_release(&plan);
    if (memory.bytes <= c->bytes)
        return 0;
    c->bytes = memory.bytes;
    c->rank = rank;
    memcpy(c->class_bytes, memory.class_bytes, sizeof c->class_bytes);
    int most = memory_most(&memory);
    const char *name = units_decimal((double)memory.class_bytes[most], &unit);
    memory_say(&memory, most, unit, name, c->most, sizeof c->most);
out:
    return rc;
}

static bool same_as_asked(const struct walk *w)
{
    const struct memory_fit_ask *ask = w->ask;
    return w->policy.recompute == ask->policy.recompute &&
           w->policy.micro_batch == ask->micro_batch[0] &&
           (w->degrees.shard == 1 || w->policy.shard_stage == ask->policy.shard_stage);
}

static int add_choice(struct walk *w, int64_t steps)
{
    const struct memory_fit_ask *ask = w->ask;
    struct memory_choice c = {.degrees = w->degrees,
                              .shard_stage = w->degrees.shard > 1 ? w->policy.shard_stage : 0,
                              .recompute = w->policy.recompute,
                              .micro_batch = w->policy.micro_batch,
                              .micro_steps = steps,
                              .measured_s = NAN,
                              .is_base = same_as_asked(w)};
    struct policy whole = planned(w, steps);
    int rc = 0;
    for (int stage = 0; stage < w->degrees.pp; stage++)
        TRY(hold_stage(w, stage, &c));
    c.over_bytes = (double)(c.bytes + ask->beside_bytes) - ask->capacity_bytes;
    for (int axis = 0; axis < AXIS_COUNT; axis++)
        c.wire_bytes += formula_bytes(ask->model, &w->degrees, &whole, (enum axis)axis);
    c.extra_flops =
        formula_hardware_flops(ask->model, &whole) / model_flops_per_sequence(ask->model) - 1.0;
    c.modelled_s = modelled_step(w, steps);
    layout_text(&w->layout, c.parallel, sizeof c.parallel);
    if (w->out->n == MEMORY_FIT_MOST)
        return fail(FAIL_USAGE,
                    "fit: more than %d choices: keep some degrees, such as --parallel pp=1,cp=1",
                    (int)MEMORY_FIT_MOST);
    if (w->out->n == w->out->room) {
        w->out->room = 2 * w->out->room + 64;
        w->out->choice = must_grow(w->out->choice, (size_t)w->out->room, sizeof c);
    }
    w->out->choice[w->out->n++] = c;
out:
    return rc;
}

/* ---- all of them ---- */

static bool is_legal(struct walk *w, int64_t *steps)
{
    int64_t unit = w->degrees.dp * w->policy.micro_batch;
    *steps = w->out->global_batch / unit;
    struct policy policy = planned(w, steps_that_matter(w, *steps > 0 ? *steps : 1));
    int rc = transformer_check(w->ask->model, &w->layout, &policy);
    if (rc == 0 && w->out->global_batch % unit != 0)
        rc = fail(FAIL_USAGE,
                  "batch: %lld samples a step do not split over %d replicas in micro-batches of "
                  "%lld",
                  (long long)w->out->global_batch, w->degrees.dp, (long long)w->policy.micro_batch);
    if (rc != 0 && w->refusals++ == 0)
        snprintf(w->why, sizeof w->why, "%s", fail_message());
    fail_clear();
    return rc == 0;
}

static int vary_policy(struct walk *w)
{
    int first = w->degrees.shard > 1 ? 1 : w->ask->policy.shard_stage, rc = 0, before = w->out->n;
    int last = w->degrees.shard > 1 ? 3 : first;
    int64_t steps = 0;
    for (int i = 0; i < w->ask->n_micro_batch; i++)
        for (int stage = first; stage <= last; stage++)
            for (int recompute = 0; recompute < N_RECOMPUTE; recompute++) {
                w->policy.micro_batch = w->ask->micro_batch[i];
                w->policy.shard_stage = stage;
                w->policy.recompute = (enum recompute)recompute;
                bool asked = w->policy.recompute == w->ask->policy.recompute;
                if (recompute == RECOMPUTE_MLP && !asked)
                    continue;
                if (is_legal(w, &steps))
                    TRY(add_choice(w, steps));
            }
    w->out->n_tuples += w->out->n > before;
out:
    return rc;
}

static bool keeps(int fixed, int degree)
{
    return fixed == 0 || fixed == degree;
}

/* Degrees that multiply to the ranks; dp is what remains. */
static int try_tuple(struct walk *w, const struct degrees *degrees)
{
    const struct memory_fit_ask *ask = w->ask;
    const struct degrees *fixed = &ask->fixed;
    if (layout_init(&w->layout, ask->nodes, ask->ranks_per_node, 0, degrees) != 0) {
        fail_clear();
        return 0;
    }
    w->degrees = w->layout.degrees;
    if (!keeps(fixed->dp, w->degrees.dp))
        return 0;
    w->policy = ask->policy;
    w->policy.head_chunks = w->degrees.tp == 1 && w->degrees.pp == 1 ? ask->policy.head_chunks : 1;
    w->policy.tp_chunks = w->degrees.tp > 1 ? ask->policy.tp_chunks : 1;
    return vary_policy(w);
}

static int each_shard(struct walk *w, struct degrees *d, int replicas)
{
    int rc = 0;
    for (d->shard = 1; d->shard <= replicas; d->shard++)
        if (replicas % d->shard == 0 && keeps(w->ask->fixed.shard, d->shard))
            TRY(try_tuple(w, d));
out:
    return rc;
}

static int each_expert(struct walk *w, struct degrees *d, int remaining)
{
    int most = w->ask->model->experts > 0 ? remaining * d->cp : 1, rc = 0;
    for (d->ep = 1; d->ep <= most; d->ep++)
        if (remaining * d->cp % d->ep == 0 && keeps(w->ask->fixed.ep, d->ep))
            TRY(each_shard(w, d, remaining));
out:
    return rc;
}

/* The degree at `at` runs over the divisors of what is left of the ranks. */
static int each_degree(struct walk *w, struct degrees *d, int at, int remaining)
{
    int *const degree[] = {&d->tp, &d->pp, &d->cp};
    const int fixed[] = {w->ask->fixed.tp, w->ask->fixed.pp, w->ask->fixed.cp};
    int rc = 0;
    if (at == 3)
        return each_expert(w, d, remaining);
    for (*degree[at] = 1; *degree[at] <= remaining; ++*degree[at])
        if (remaining % *degree[at] == 0 && keeps(fixed[at], *degree[at]))
            TRY(each_degree(w, d, at + 1, remaining / *degree[at]));
out:
    return rc;
}

/* One sample more than the ranks could take at once would split nowhere better. */
static int64_t smallest_batch(const struct memory_fit_ask *ask)
{
    int64_t most = 1;
    for (int i = 0; i < ask->n_micro_batch; i++)
        most = ask->micro_batch[i] > most ? ask->micro_batch[i] : most;
    return most * ask->nodes * ask->ranks_per_node;
}

int memory_fit_all(struct memory_fit *out, const struct memory_fit_ask *ask)
{
    struct walk w = {.ask = ask, .out = out};
    struct degrees degrees = {.etp = ask->fixed.etp};
    int rc = 0;
    *out = (struct memory_fit){0};
    snprintf(degrees.order, sizeof degrees.order, "%s", ask->fixed.order);
    out->global_batch = ask->global_batch > 0 ? ask->global_batch : smallest_batch(ask);
    TRY(each_degree(&w, &degrees, 0, ask->nodes * ask->ranks_per_node));
    if (out->n == 0)
        rc = fail(FAIL_USAGE, "fit: no way to split %s over %d ranks is legal%s%s",
                  ask->model->name, ask->nodes * ask->ranks_per_node,
                  w.why[0] != '\0' ? "; one of them: " : ": no degrees multiply to that", w.why);
out:
    if (rc != 0)
        memory_fit_release(out);
    return rc;
}

/* ---- order, changes ---- */

static int by(double a, double b)
{
    if (isnan(a) || isnan(b))
        return isnan(a) - isnan(b);
    return (a > b) - (a < b);
}

static int choice_order(const void *left, const void *right)
{
    const struct memory_choice *a = left, *b = right;
    bool fits = a->over_bytes <= 0.0;
    if (fits != (b->over_bytes <= 0.0))
        return fits ? -1 : 1;
    const int keys[] = {by(a->measured_s, b->measured_s),   by(a->modelled_s, b->modelled_s),
                        by(a->extra_flops, b->extra_flops), by(a->wire_bytes, b->wire_bytes),
                        by(a->over_bytes, b->over_bytes),   strcmp(a->parallel, b->parallel)};
    if (!fits && by(a->over_bytes, b->over_bytes) != 0)
        return by(a->over_bytes, b->over_bytes);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (keys[i] != 0)
            return keys[i];
    return 0;
}

void memory_fit_sort(struct memory_fit *fit)
{
    qsort(fit->choice, (size_t)fit->n, sizeof *fit->choice, choice_order);
}

/* What `to` changes of `from`, in words; false: nothing, or more than one thing. */
static bool one_change(const struct memory_choice *from, const struct memory_choice *to, char *text,
                       size_t size)
{
    const struct degrees *a = &from->degrees, *b = &to->degrees;
    bool same_model_split = a->tp == b->tp && a->pp == b->pp && a->cp == b->cp && a->ep == b->ep;
    int changes = 0;
    bool stays_sharded = a->shard > 1 && b->shard > 1 && a->shard != b->shard;
    if (!same_model_split || (stays_sharded && from->shard_stage != to->shard_stage))
        return false;
    if (a->shard != b->shard) {
        changes++;
        snprintf(text, size, "shard=%d, stage %d", b->shard, to->shard_stage);
    } else if (from->shard_stage != to->shard_stage) {
        changes++;
        snprintf(text, size, "shard-stage=%d", to->shard_stage);
    }
    if (from->recompute != to->recompute) {
        changes++;
        snprintf(text, size, "recompute=%s", recompute_names[to->recompute]);
    }
    if (from->micro_batch != to->micro_batch) {
        changes++;
        snprintf(text, size, "micro-batch=%lld", (long long)to->micro_batch);
    }
    return changes == 1;
}

static int lever_order(const void *left, const void *right)
{
    const struct memory_lever *a = left, *b = right;
    return by((double)a->to->bytes, (double)b->to->bytes);
}

int memory_fit_levers(const struct memory_fit *fit, const struct memory_choice *base,
                      struct memory_lever levers[MEMORY_LEVERS])
{
    int n = 0;
    for (int i = 0; i < fit->n && n < MEMORY_LEVERS; i++) {
        const struct memory_choice *to = &fit->choice[i];
        bool to_all = to->degrees.shard == base->degrees.shard ||
                      to->degrees.shard == to->degrees.dp; /* of shard degrees the largest */
        if (to_all && to->bytes < base->bytes &&
            one_change(base, to, levers[n].text, sizeof levers[n].text)) {
            levers[n].from = base;
            levers[n++].to = to;
        }
    }
    qsort(levers, (size_t)n, sizeof *levers, lever_order);
    return n;
}
