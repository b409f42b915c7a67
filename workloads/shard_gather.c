#include <stdlib.h>

#include "base/err.h"
#include "workloads/shard.h"

/* ---- the plan of a step ---- */

static void add_use(struct shard *s, int unit)
{
    s->use[s->n_uses++] = unit;
}

static void add_layer_use(struct shard *s, int layer)
{
    int experts = shard_experts_of(s, 1 + layer);
    add_use(s, 1 + layer);
    if (experts >= 0)
        add_use(s, experts);
}

/* The head, which a tied one shares with the embeddings. */
static void add_head_use(const struct build *b, struct shard *s)
{
    add_use(s, s->n_dense - 1);
    if (b->model->tied)
        add_use(s, UNIT_EMBEDDING);
}

/* Of a slot of the schedule: forward in order, backward in reverse. */
static void add_slot_uses(struct build *b, struct shard *s, const struct schedule_slot *slot)
{
    const struct build_pipeline *p = &b->pipe;
    bool embeds = p->first && slot->chunk == 0, alone = p->schedule.stages == 1;
    bool head = p->last && slot->chunk == p->schedule.chunks - 1;
    int first, end;
    pipeline_layers(b, slot->chunk, &first, &end);
    if (slot->part == PART_FORWARD) {
        if (embeds)
            add_use(s, UNIT_EMBEDDING);
        for (int layer = first; layer < end; layer++)
            add_layer_use(s, layer);
        if (head)
            add_head_use(b, s);
    } else if (slot->part == PART_BACKWARD) {
        if (head && !alone) /* alone: one use with forward */
            add_head_use(b, s);
        for (int layer = end - 1; layer >= first; layer--)
            add_layer_use(s, layer);
    }
}

/* Units in the order in which a step uses them. */
static void list_uses(struct build *b, struct shard *s)
{
    size_t most = (size_t)b->pipe.n_items * (size_t)(2 * b->pipe.most_layers + 3);
    s->use = must_alloc(most, sizeof *s->use);
    s->served = must_alloc(most, sizeof *s->served);
    for (int i = 0; i < b->pipe.n_items; i++)
        if (b->pipe.items[i].act == ACT_COMPUTE)
            add_slot_uses(b, s, &b->pipe.items[i].slot);
}

/* Are weights that were gathered for use `earlier` still there at the next use of the unit? */
static bool is_kept(const struct build *b, const struct shard *s, int earlier, int use)
{
    int pp = b->plan->layout.degrees.pp, per_micro = s->n_uses / b->plan->micro_batches;
    if (b->policy->shard_stage < 3)
        return true;
    return !policy_reshards(b->policy, pp) && (pp > 1 || earlier / per_micro == use / per_micro);
}

static void list_gathers(struct build *b, struct shard *s)
{
    int *latest = must_alloc((size_t)s->n_units, sizeof *latest);
    s->gather = must_alloc((size_t)s->n_uses, sizeof *s->gather);
    for (int u = 0; u < s->n_units; u++)
        latest[u] = -1;
    for (int use = 0, turn[2] = {0}; use < s->n_uses; use++) {
        int unit = s->use[use], last = latest[unit];
        s->served[use] = last;
        if (last >= 0 && is_kept(b, s, s->gather[last].use, use)) {
            s->gather[last].uses++;
            continue;
        }
        int place = unit, ring = s->weight_ring, expert = shard_is_expert(s, unit);
        if (ring > 0 && shard_layer(s, unit) >= 0)
            place = turn[expert]++ % ring + (expert ? ring + 2 : 0);
        else if (ring > 0)
            place = ring + (unit != UNIT_EMBEDDING);
        s->served[use] = latest[unit] = s->n_gathers;
        s->gather[s->n_gathers++] =
            (struct shard_gather){.unit = unit, .place = place, .use = use, .uses = 1, .op = -1};
    }
    free(latest);
}

/* The largest unit that comes to each place. */
static void take_places(struct build *b, struct shard *s)
{
    s->n_places = s->weight_ring > 0 ? 2 * s->weight_ring + 2 : s->n_units;
    s->weights = must_alloc((size_t)s->n_places, sizeof *s->weights);
    int64_t *largest = must_alloc((size_t)s->n_places, sizeof *largest);
    for (int g = 0; g < s->n_gathers; g++) {
        const struct shard_unit *unit = &s->unit[s->gather[g].unit];
        int64_t size = unit->share * unit->n;
        int64_t *most = &largest[s->gather[g].place];
        *most = size > *most ? size : *most;
    }
    for (int p = 0; p < s->n_places; p++)
        s->weights[p].offset =
            build_take(b, BUFFER_PARAMETER, largest[p]).offset / build_element(b);
    free(largest);
}

/* Experts that no other rank has: where the update rounds them to. */
static void take_resident(struct build *b, struct shard *s)
{
    for (int u = s->n_dense; u < s->n_units && b->plan->dtype != DTYPE_F32; u++)
        if (s->unit[u].local)
            s->unit[u].resident =
                build_take(b, BUFFER_PARAMETER, s->unit[u].share).offset / build_element(b);
}

/* Layers. */
static int prefetch_of(const struct build *b)
{
    return b->policy->overlap_parameters ? b->policy->fsdp_prefetch : 0;
}

void shard_plan_gathers(struct build *b, struct shard *s)
{
    int layers = s->n_dense - 2, ring = prefetch_of(b) + 1;
    if (b->policy->shard_stage == 3 && policy_reshards(b->policy, b->plan->layout.degrees.pp))
        s->weight_ring = ring < layers ? ring : layers;
    list_uses(b, s);
    list_gathers(b, s);
    take_places(b, s);
    take_resident(b, s);
}

/* What a step does to weights comes after all that the last one did on the compute stream. */
void shard_rewind(struct build *b, struct shard *s)
{
    s->next_use = s->due = s->posted = 0;
    for (int p = 0; p < s->n_places; p++)
        s->weights[p] = (struct shard_place){.offset = s->weights[p].offset, .last = b->last};
}

/* ---- hooks ---- */

static void post(struct build *b, struct shard *s, struct shard_gather *gather)
{
    struct shard_place *place = &s->weights[gather->place];
    const struct shard_unit *unit = &s->unit[gather->unit];
    int64_t size = build_element(b);
    struct tensor whole = build_at((struct tensor){BUFFER_PARAMETER, 0}, place->offset, size);
    struct tensor master = {BUFFER_MASTER, unit->state * (int64_t)sizeof(float)};
    struct build_call call = {.kind = COLL_ALL_GATHER,
                              .axis = unit->axis,
                              .direction = 0,
                              .dtype = b->plan->dtype,
                              .count = unit->share,
                              .phase = b->phase,
                              .send = master,
                              .receive = whole};
    int layer = b->layer, after = place->last;
    b->layer = shard_layer(s, gather->unit);
    if (b->plan->dtype != DTYPE_F32) {
        call.send = build_at(whole, unit->me * unit->share, size);
        after = build_cast(b, master, DTYPE_F32, call.send, b->plan->dtype, unit->share);
    }
    gather->op = build_collective(b, &call, after);
    b->layer = layer;
    place->uses = gather->uses;
}

/* The gathers of uses up to this one, and `prefetch` more as far as their places are free. */
static void post_ahead(struct build *b, struct shard *s, int use)
{
    while (s->due < s->n_gathers && s->gather[s->due].use <= use)
        s->due++;
    int end = s->due + prefetch_of(b) * (1 + shard_divides_experts(s));
    for (; s->posted < s->n_gathers && s->posted < end; s->posted++) {
        struct shard_gather *gather = &s->gather[s->posted];
        if (s->weights[gather->place].uses > 0)
            break;
        post(b, s, gather);
    }
}

/* Gradients begin with backward; the head's use is forward and backward. */
static void begin_gradients(struct build *b, const struct shard *s, int use)
{
    int per_micro = s->n_uses / b->plan->micro_batches, unit = s->use[use];
    int forward = shard_divides_experts(s) ? s->n_units : s->n_dense;
    if (!s->whole_gradients && use % per_micro >= forward - 1)
        shard_begin_gradient(b, unit);
}

/* Untied embeddings have no use in backward: their gradient is not there before it is made. */
void shard_embeds(struct build *b)
{
    if (!b->model->tied)
        shard_begin_gradient(b, UNIT_EMBEDDING);
}

static void use_one(struct build *b, struct shard *s, int unit)
{
    int use = s->next_use++;
    const struct shard_gather *gather = &s->gather[s->served[use]];
    if (s->served[use] >= s->posted)
        BUG("the weights of unit %d have no free place", unit);
    s->unit[unit].weights = gather->place;
    build_await(b, gather->op);
}

void shard_use(struct build *b, int unit)
{
    struct shard *s = b->split_state;
    int use = s->next_use, experts = shard_experts_of(s, unit), last = use + (experts >= 0);
    if (last >= s->n_uses || s->use[use] != unit || (experts >= 0 && s->use[last] != experts))
        BUG("unit %d is used where another comes next", unit);
    for (int i = use; i <= last; i++)
        begin_gradients(b, s, i);
    post_ahead(b, s, last);
    use_one(b, s, unit);
    if (experts >= 0)
        use_one(b, s, experts);
}

static void done_one(struct build *b, struct shard *s, int unit)
{
    struct shard_place *place = &s->weights[s->unit[unit].weights];
    place->last = b->last;
    place->uses--;
    s->unit[unit].weights = -1;
}

void shard_done(struct build *b, int unit)
{
    struct shard *s = b->split_state;
    int experts = shard_experts_of(s, unit);
    done_one(b, s, unit);
    if (experts >= 0)
        done_one(b, s, experts);
}
