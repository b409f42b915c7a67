#include "workloads/shard.h"

#include <stdlib.h>

#include "base/err.h"

int shard_check(const struct layout *layout, const struct policy *policy)
{
    const struct degrees *d = &layout->degrees;
    if (d->shard == 1)
        return 0;
    if (policy->shard_stage < 1 || policy->shard_stage > 3)
        return fail(FAIL_USAGE, "shard: stage %d is none of 1, 2 (ZeRO) and 3 (FSDP)",
                    policy->shard_stage);
    if (policy->fsdp_prefetch < 0)
        return fail(FAIL_USAGE, "shard: %d units of prefetch: wanted a number from 0",
                    policy->fsdp_prefetch);
    return 0;
}

/* ---- units and pieces ---- */

static struct shard_unit empty_unit(const struct build *b, const struct shard *s, int unit)
{
    const struct group *groups = b->plan->layout.group;
    bool expert = shard_is_expert(s, unit);
    enum axis axis = expert ? AXIS_EDP : AXIS_SHARD;
    int copies = groups[AXIS_REPLICATE].size * groups[AXIS_CP].size;
    return (struct shard_unit){.axis = axis,
                               .n = groups[axis].size,
                               .me = groups[axis].me,
                               .copies = expert ? 1 : copies,
                               .local = groups[axis].size == 1,
                               .last_tensor = -1,
                               .weights = -1,
                               .gradients = -1};
}

static void measure_units(struct build *b, struct shard *s)
{
    struct plan *plan = b->plan;
    for (int u = 0; u < s->n_units; u++)
        s->unit[u] = empty_unit(b, s, u);
    for (int i = 0; i < plan->n_tensors; i++) {
        struct plan_tensor *t = &plan->tensors[i];
        if (t->expert && s->n_units > s->n_dense)
            t->unit += s->n_dense - 1;
        struct shard_unit *unit = &s->unit[t->unit];
        t->offset = unit->elements;
        unit->elements += build_tensor_count(t);
        unit->last_tensor = i;
    }
    for (int u = 0; u < s->n_units; u++) {
        int64_t grain = SHARD_ALIGN * (int64_t)s->unit[u].n;
        s->unit[u].share = (s->unit[u].elements + grain - 1) / grain * SHARD_ALIGN;
    }
}

/* The part of a tensor that lies in this rank's run of its unit. */
static void add_piece(struct build *b, const struct shard *s, int tensor)
{
    struct plan *plan = b->plan;
    const struct plan_tensor *t = &plan->tensors[tensor];
    const struct shard_unit *unit = &s->unit[t->unit];
    int64_t begin = unit->me * unit->share, end = begin + unit->share;
    int64_t from = t->offset > begin ? t->offset : begin;
    int64_t to = t->offset + build_tensor_count(t);
    to = to < end ? to : end;
    if (from < to)
        plan->pieces[plan->n_pieces++] = (struct plan_piece){.tensor = tensor,
                                                             .first = from - t->offset,
                                                             .count = to - from,
                                                             .offset = unit->state + from - begin};
}

/* Runs of units follow each other in arena order, so pieces come in the order of tensors. */
static void place_state(struct build *b, struct shard *s)
{
    struct plan *plan = b->plan;
    plan->pieces = must_alloc((size_t)plan->n_tensors, sizeof *plan->pieces);
    for (int i = 0, before = -1; i < plan->n_tensors; before = plan->tensors[i++].unit) {
        struct shard_unit *unit = &s->unit[plan->tensors[i].unit];
        if (plan->tensors[i].unit != before) {
            unit->state = plan->n_state;
            plan->n_state += unit->share;
        }
        add_piece(b, s, i);
    }
    plan->master = BUFFER_MASTER;
    build_take_wide(b, BUFFER_MASTER, plan->n_state);
    build_take_wide(b, BUFFER_SHARD, plan->n_state);
    build_take_wide(b, BUFFER_MOMENT1, plan->n_state);
    build_take_wide(b, BUFFER_MOMENT2, plan->n_state);
}

static void shard_open(struct build *b)
{
    const struct layout *layout = &b->plan->layout;
    struct shard *s = must_alloc(1, sizeof *s);
    b->split_state = s;
    s->n_dense = s->n_units = (int)b->model->layers + 2;
    if (b->model->experts > 0 && expert_is_apart(layout))
        s->n_units += (int)b->model->layers;
    s->unit = must_alloc((size_t)s->n_units, sizeof *s->unit);
    s->whole_gradients =
        b->policy->shard_stage == 1 || !policy_reduces_every(b->policy, layout->degrees.pp);
    measure_units(b, s);
    place_state(b, s);
    shard_plan_gathers(b, s);
    shard_plan_reductions(b, s);
    b->plan->passing[BUFFER_PARAMETER] = s->weight_ring > 0;
    b->plan->passing[BUFFER_GRADIENT] = !s->whole_gradients;
    b->plan->passing[BUFFER_SHARD] = true;
}

static void shard_close(struct build *b)
{
    struct shard *s = b->split_state;
    if (s == NULL)
        return;
    free(s->unit);
    free(s->weights);
    free(s->gradients);
    free(s->use);
    free(s->served);
    free(s->gather);
    free(s);
    b->split_state = NULL;
}

/* ---- hooks ---- */

static struct tensor shard_state(const struct shard_unit *unit, enum plan_buffer buffer)
{
    return (struct tensor){(int)buffer, unit->state * (int64_t)sizeof(float)};
}

static void shard_begin(struct build *b)
{
    struct shard *s = b->split_state;
    struct tensor none = {0};
    for (int u = s->n_dense; u < s->n_units; u++)
        if (s->unit[u].local && s->unit[u].share > 0)
            build_vector_op(b, OP_ZERO, shard_state(&s->unit[u], BUFFER_SHARD), none, none,
                            s->unit[u].share);
    if (s->whole_gradients)
        build_vector_op(b, OP_ZERO, (struct tensor){BUFFER_GRADIENT, 0}, none, none,
                        b->plan->bytes[BUFFER_GRADIENT] / (int64_t)sizeof(float));
    shard_rewind(b, s);
}

static bool shard_hand_over(const struct build *b)
{
    const struct shard *s = b->split_state;
    return b->last_micro || !s->whole_gradients;
}

static void nothing(struct build *b)
{
    (void)b;
}

/* Pieces of a tensor lie on several ranks of shard; replicas hold the same ones. */
static int shard_norm(struct build *b)
{
    struct tensor at = build_scalar(SCALAR_SUMSQ);
    struct build_call call = {.kind = COLL_ALL_REDUCE,
                              .axis = AXIS_SHARD,
                              .direction = 1,
                              .dtype = DTYPE_F64,
                              .count = 1,
                              .phase = PHASE_REDUCE,
                              .send = at,
                              .receive = at};
    return build_collective(b, &call, b->last);
}

static void nothing_of_piece(struct build *b, int piece, int op)
{
    (void)b;
    (void)piece;
    (void)op;
}

/* Of experts that no other rank has. */
static struct tensor local_weight(const struct build *b, const struct shard_unit *unit,
                                  int64_t offset)
{
    struct tensor start = {BUFFER_PARAMETER, 0};
    if (b->plan->dtype == DTYPE_F32)
        return build_at(shard_state(unit, BUFFER_MASTER), offset, (int64_t)sizeof(float));
    return build_at(start, unit->resident + offset, build_element(b));
}

static struct tensor shard_weight(const struct build *b, int tensor)
{
    const struct shard *s = b->split_state;
    const struct plan_tensor *t = &b->plan->tensors[tensor];
    int place = s->unit[t->unit].weights;
    if (s->unit[t->unit].local)
        return local_weight(b, &s->unit[t->unit], t->offset);
    if (place < 0)
        BUG("weights of %s are read where they have not been gathered", t->name);
    struct tensor start = {BUFFER_PARAMETER, 0};
    return build_at(start, s->weights[place].offset + t->offset, build_element(b));
}

static struct tensor shard_gradient(const struct build *b, int tensor)
{
    const struct shard *s = b->split_state;
    const struct plan_tensor *t = &b->plan->tensors[tensor];
    int place = s->unit[t->unit].gradients;
    if (s->unit[t->unit].local)
        return build_at(shard_state(&s->unit[t->unit], BUFFER_SHARD), t->offset,
                        (int64_t)sizeof(float));
    if (place < 0)
        BUG("the gradient of %s has no place yet", t->name);
    struct tensor start = {BUFFER_GRADIENT, 0};
    return build_at(start, s->gradients[place].offset + t->offset, (int64_t)sizeof(float));
}

/* New values reach the kernels by the next gather, where there is one. */
static struct tensor shard_rounded(const struct build *b, int piece)
{
    const struct shard *s = b->split_state;
    const struct plan_piece *p = &b->plan->pieces[piece];
    const struct plan_tensor *t = &b->plan->tensors[p->tensor];
    if (!s->unit[t->unit].local || b->plan->dtype == DTYPE_F32)
        return (struct tensor){0};
    return local_weight(b, &s->unit[t->unit], t->offset + p->first);
}

const struct split split_shard = {
    .name = "shard",
    .open = shard_open,
    .close = shard_close,
    .begin = shard_begin,
    .hand_over = shard_hand_over,
    .use = shard_use,
    .done = shard_done,
    .embeds = shard_embeds,
    .finished = shard_finished,
    .micro_end = nothing,
    .reduce = shard_reduce,
    .norm = shard_norm,
    .updated = nothing_of_piece,
    .step_end = nothing,
    .weight = shard_weight,
    .gradient = shard_gradient,
    .rounded = shard_rounded,
};
