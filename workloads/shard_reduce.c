#include "base/err.h"
#include "workloads/shard.h"

static int64_t wire_size(const struct build *b)
{
    return (int64_t)dtype_size((int)b->policy->grad_dtype);
}

static bool is_narrow(const struct build *b)
{
    return b->policy->grad_dtype != DTYPE_F32;
}

/* Do gradients arrive beside the accumulators at all? */
static bool has_arrivals(const struct build *b, const struct shard *s)
{
    return is_narrow(b) || (!s->whole_gradients && b->plan->micro_batches > 1);
}

static int ring_of(const struct shard *s)
{
    return s->n_dense - 2 < SHARD_RING ? s->n_dense - 2 : SHARD_RING;
}

/* Layers in turn, the embeddings, the head, experts in turn. */
static int turns_of(const struct shard *s)
{
    return ring_of(s) + 2 + (shard_divides_experts(s) ? ring_of(s) : 0);
}

/* Which of them a unit takes; *next: how many layers, or experts, came before. */
static int turn_of(const struct shard *s, int unit, int next[2])
{
    int ring = ring_of(s);
    if (shard_is_expert(s, unit))
        return ring + 2 + next[1]++ % ring;
    if (shard_is_layer(s, unit))
        return next[0]++ % ring;
    return ring + (unit != UNIT_EMBEDDING);
}

/* ---- memory ---- */

static const struct shard_unit *largest(const struct shard *s, int first, int end)
{
    const struct shard_unit *most = &s->unit[first];
    for (int u = first + 1; u < end; u++)
        most = s->unit[u].share > most->share ? &s->unit[u] : most;
    return most;
}

/* The largest unit that takes the i-th turn. */
static const struct shard_unit *unit_in_turn(const struct shard *s, int i)
{
    int ring = ring_of(s);
    if (i < ring)
        return largest(s, 1, s->n_dense - 1);
    if (i >= ring + 2)
        return largest(s, s->n_dense, s->n_units);
    return &s->unit[i == ring ? UNIT_EMBEDDING : s->n_dense - 1];
}

static void take_arrivals(struct build *b, struct shard *s)
{
    int64_t size = wire_size(b);
    bool adds = !s->whole_gradients && b->plan->micro_batches > 1;
    for (int i = 0; i < turns_of(s); i++) {
        const struct shard_unit *unit = unit_in_turn(s, i);
        s->arrival[i].unit = -1;
        if (!has_arrivals(b, s))
            continue;
        if (is_narrow(b))
            s->arrival[i].sent = plan_take(b->plan, BUFFER_WIRE, unit->share * unit->n * size);
        s->arrival[i].received = plan_take(b->plan, BUFFER_WIRE, unit->share * size);
    }
    if (is_narrow(b) && adds)
        s->sum = build_take_wide(b, BUFFER_WIRE, largest(s, 0, s->n_units)->share);
    if (is_narrow(b) && s->unit[UNIT_EMBEDDING].copies > 1)
        s->replicated = plan_take(b->plan, BUFFER_WIRE, b->plan->n_state * size);
}

void shard_plan_reductions(struct build *b, struct shard *s)
{
    s->gradient_ring = s->whole_gradients ? 0 : ring_of(s);
    int n = s->whole_gradients ? s->n_units : turns_of(s);
    s->gradients = must_alloc((size_t)n, sizeof *s->gradients);
    for (int i = 0; i < n; i++) {
        const struct shard_unit *unit = s->whole_gradients ? &s->unit[i] : unit_in_turn(s, i);
        if (unit->local)
            continue;
        int64_t bytes = build_take_wide(b, BUFFER_GRADIENT, unit->share * unit->n).offset;
        s->gradients[i] =
            (struct shard_place){.offset = bytes / (int64_t)sizeof(float), .last = -1};
        if (s->whole_gradients)
            s->unit[i].gradients = i;
    }
    for (int u = 0; u < s->n_units; u++)
        for (int stream = 0; stream <= PLAN_CHANNELS; stream++)
            s->unit[u].after[stream] = -1;
    take_arrivals(b, s);
}

/* ---- a gradient begins ---- */

static struct tensor place_of(const struct shard *s, const struct shard_unit *unit)
{
    int64_t offset = s->gradients[unit->gradients].offset;
    return (struct tensor){BUFFER_GRADIENT, offset * (int64_t)sizeof(float)};
}

void shard_begin_gradient(struct build *b, int unit)
{
    struct shard *s = b->split_state;
    struct shard_unit *u = &s->unit[unit];
    struct tensor none = {0};
    if (s->whole_gradients)
        return;
    u->gradients = turn_of(s, unit, s->next_gradient);
    build_await(b, s->gradients[u->gradients].last);
    build_vector_op(b, OP_ZERO, place_of(s, u), none, none, u->share * u->n);
}

/* ---- accumulators ---- */

static struct tensor accumulators(const struct shard_unit *unit)
{
    return (struct tensor){BUFFER_SHARD, unit->state * (int64_t)sizeof(float)};
}

static int call_of(struct build *b, enum coll_kind kind, enum axis axis, struct tensor send,
                   struct tensor receive, int64_t count, int after)
{
    struct build_call call = {.kind = kind,
                              .axis = axis,
                              .direction = axis == AXIS_CP ? CONTEXT_DENSE
                                                           : axis == AXIS_SHARD || axis == AXIS_EDP,
                              .dtype = b->policy->grad_dtype,
                              .count = count,
                              .phase = PHASE_REDUCE,
                              .send = send,
                              .receive = receive};
    return build_collective(b, &call, after);
}

/* The accumulators of a unit are complete on this rank: sum them over who holds the same shard. */
static void replicate(struct build *b, struct shard *s, struct shard_unit *unit)
{
    struct tensor sums = accumulators(unit);
    int after = unit->reduced;
    if (unit->copies == 1)
        return;
    if (is_narrow(b)) {
        sums = build_at(s->replicated, unit->state, wire_size(b));
        after =
            build_cast(b, accumulators(unit), DTYPE_F32, sums, b->policy->grad_dtype, unit->share);
    }
    static const enum axis axes[] = {AXIS_CP, AXIS_REPLICATE};
    for (int i = 0; i < 2; i++)
        if (b->plan->layout.group[axes[i]].size > 1)
            after = call_of(b, COLL_ALL_REDUCE, axes[i], sums, sums, unit->share, after);
    unit->reduced = after;
}

/* What has arrived goes into the accumulators. */
static void accumulate(struct build *b, struct shard *s, struct shard_arrival *arrival)
{
    if (arrival->unit < 0)
        return;
    struct shard_unit *unit = &s->unit[arrival->unit];
    struct tensor to = accumulators(unit), part = arrival->received;
    build_await(b, arrival->op);
    if (is_narrow(b)) {
        part = arrival->first ? to : s->sum;
        build_cast(b, arrival->received, b->policy->grad_dtype, part, DTYPE_F32, unit->share);
    }
    if (!arrival->first) {
        struct op op = build_op(b, OP_ADD);
        op.dtype = DTYPE_F32;
        op.t[0] = op.t[2] = to;
        op.t[1] = part;
        op.shape.vector.n = unit->share;
        build_add(b, &op);
    }
    unit->reduced = b->last;
    if (arrival->last)
        replicate(b, s, unit);
    arrival->unit = -1;
}

/* ---- a gradient is complete ---- */

static struct shard_arrival *arrival_of(struct shard *s, int unit)
{
    return &s->arrival[turn_of(s, unit, s->next_arrival)];
}

/* The reduce-scatter of a unit, behind everything that its gradient waits for. */
static int scatter(struct build *b, struct shard *s, struct shard_unit *unit, struct tensor sent,
                   struct tensor received, int after)
{
    struct tensor gradient = place_of(s, unit);
    if (is_narrow(b)) {
        for (int stream = 1; stream <= PLAN_CHANNELS; stream++)
            build_await(b, unit->after[stream]);
        after =
            build_cast(b, gradient, DTYPE_F32, sent, b->policy->grad_dtype, unit->share * unit->n);
        return call_of(b, COLL_REDUCE_SCATTER, unit->axis, sent, received, unit->share, after);
    }
    int op = call_of(b, COLL_REDUCE_SCATTER, unit->axis, gradient, received, unit->share, after);
    for (int stream = 1; stream <= PLAN_CHANNELS; stream++)
        if (unit->after[stream] >= 0)
            plan_wait(b->plan, op, unit->after[stream]);
    s->gradients[unit->gradients].last = op;
    return op;
}

static void post(struct build *b, struct shard *s, int index)
{
    struct shard_unit *unit = &s->unit[index];
    bool first = s->whole_gradients || b->first_micro;
    int layer = b->layer, after = unit->after[0], op;
    b->layer = shard_layer(s, index);
    if (first && !is_narrow(b)) {
        op = scatter(b, s, unit, (struct tensor){0}, accumulators(unit), after);
        unit->reduced = op;
        if (b->last_micro)
            replicate(b, s, unit);
    } else {
        struct shard_arrival *arrival = arrival_of(s, index);
        if (arrival->unit >= 0) {
            accumulate(b, s, arrival);
            after = b->last;
        }
        op = scatter(b, s, unit, arrival->sent, arrival->received, after);
        arrival->unit = index;
        arrival->op = op;
        arrival->first = first;
        arrival->last = b->last_micro;
    }
    for (int stream = 0; stream <= PLAN_CHANNELS; stream++)
        unit->after[stream] = -1;
    if (!b->policy->overlap_gradients)
        build_await(b, op);
    b->layer = layer;
}

void shard_finished(struct build *b, int tensor, const int *after)
{
    struct shard *s = b->split_state;
    int index = b->plan->tensors[tensor].unit;
    struct shard_unit *unit = &s->unit[index];
    for (int stream = 0; stream <= PLAN_CHANNELS; stream++)
        unit->after[stream] =
            after[stream] > unit->after[stream] ? after[stream] : unit->after[stream];
    if (tensor == unit->last_tensor && !unit->local &&
        (b->policy->overlap_gradients || !s->whole_gradients))
        post(b, s, index);
}

/* Arrivals in the order in which they were posted. */
static void accumulate_all(struct build *b, struct shard *s)
{
    for (struct shard_arrival *next = s->arrival; next != NULL;) {
        next = NULL;
        for (int i = 0; i < turns_of(s); i++) {
            struct shard_arrival *a = &s->arrival[i];
            if (a->unit >= 0 && (next == NULL || a->op < next->op))
                next = a;
        }
        if (next != NULL)
            accumulate(b, s, next);
    }
}

/* Sums over replicas that travelled as bf16 go back into the accumulators. */
static void widen(struct build *b, struct shard *s)
{
    if (!is_narrow(b) || s->unit[UNIT_EMBEDDING].copies == 1)
        return;
    for (int u = 0; u < s->n_dense; u++) {
        struct shard_unit *unit = &s->unit[u];
        build_await(b, unit->reduced);
        unit->reduced =
            build_cast(b, build_at(s->replicated, unit->state, wire_size(b)), b->policy->grad_dtype,
                       accumulators(unit), DTYPE_F32, unit->share);
    }
}

void shard_reduce(struct build *b)
{
    struct shard *s = b->split_state;
    struct plan *plan = b->plan;
    for (int i = 0; i < plan->n_tensors; i++) {
        int unit = plan->tensors[i].unit;
        if (s->unit[unit].last_tensor == i && s->unit[unit].after[0] >= 0 && !s->unit[unit].local) {
            s->unit[unit].after[0] = b->last; /* not overlapped: after all of backward */
            post(b, s, unit);
        }
    }
    accumulate_all(b, s);
    widen(b, s);
    for (int i = 0; i < plan->n_pieces; i++) {
        const struct plan_piece *piece = &plan->pieces[i];
        struct tensor at = {BUFFER_SHARD, piece->offset * (int64_t)sizeof(float)};
        const struct shard_unit *unit = &s->unit[plan->tensors[piece->tensor].unit];
        int op = unit->local ? -1 : unit->reduced; /* local: made on the compute stream */
        b->reduced[i] = (struct reduced){at, DTYPE_F32, op};
    }
}
