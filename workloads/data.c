#include "workloads/data.h"

#include <stdlib.h>

#include "base/err.h"
#include "workloads/build.h"

/* Tensors whose gradients go the same way: the dense ones, or experts that are divided over ep. */
struct way {
    enum axis axis;
    int64_t sent, ready; /* elements of the gradient arena: where the bucket begins and ends */
    int n_buckets;
    int first_piece;              /* of the bucket that is being filled, or before it */
    int after[1 + PLAN_CHANNELS]; /* ops that complete it, by stream; -1 */
};

struct replicas {
    struct way dense, apart;
    int next;     /* tensor that is reported next */
    bool passing; /* gradients come and go with the one backward of a step */
    bool *ends;   /* [n_tensors] a bucket ends behind it */
};

static bool is_apart(const struct build *b, int tensor)
{
    return b->plan->tensors[tensor].expert && expert_is_apart(&b->plan->layout);
}

static bool is_summed(const struct build *b, enum axis axis)
{
    return b->plan->layout.group[axis].size > 1;
}

static bool is_parallel(const struct build *b)
{
    return is_summed(b, context_dense_axis(&b->plan->layout));
}

static enum dtype wire_dtype(const struct build *b)
{
    return is_parallel(b) ? b->policy->grad_dtype : DTYPE_F32;
}

static void forget(struct way *way)
{
    for (int s = 0; s <= PLAN_CHANNELS; s++)
        way->after[s] = -1;
}

static void add_pieces(struct plan *plan)
{
    plan->pieces = must_alloc((size_t)plan->n_tensors, sizeof *plan->pieces);
    plan->n_pieces = plan->n_tensors;
    for (int i = 0; i < plan->n_tensors; i++) {
        const struct plan_tensor *t = &plan->tensors[i];
        plan->pieces[i] =
            (struct plan_piece){.tensor = i, .count = build_tensor_count(t), .offset = t->offset};
    }
}

static bool is_full(const struct build *b, const struct way *way)
{
    int64_t limit = b->policy->bucket_bytes;
    if (way->n_buckets == 0 && limit > DATA_FIRST_BUCKET)
        limit = DATA_FIRST_BUCKET;
    return (way->ready - way->sent) * (int64_t)dtype_size((int)wire_dtype(b)) >= limit;
}

static struct way *way_of(const struct build *b, struct replicas *r, int tensor)
{
    return is_apart(b, tensor) ? &r->apart : &r->dense;
}

/* Of whole tensors, in the order in which their gradients are finished. */
static void find_buckets(const struct build *b, struct replicas *r)
{
    struct replicas trial = *r;
    r->ends = must_alloc((size_t)b->plan->n_tensors, sizeof *r->ends);
    for (int i = 0; i < b->plan->n_tensors; i++) {
        struct way *way = way_of(b, &trial, i);
        way->ready += build_tensor_count(&b->plan->tensors[i]);
        r->ends[i] = is_summed(b, way->axis) && is_full(b, way);
        if (!r->ends[i])
            continue;
        way->sent = way->ready;
        way->n_buckets++;
    }
}

static void replicas_open(struct build *b)
{
    struct plan *plan = b->plan;
    struct replicas *r = must_alloc(1, sizeof *r);
    int64_t n = plan->n_parameters;
    r->dense.axis = context_dense_axis(&plan->layout);
    r->apart.axis = AXIS_EDP;
    forget(&r->dense);
    forget(&r->apart);
    for (int i = plan->n_tensors - 1; i >= 0; i--) /* those apart lie behind all others */
        if (is_apart(b, i))
            r->apart.sent = r->apart.ready = plan->tensors[i].offset;
    find_buckets(b, r);
    r->passing = plan->micro_batches == 1 && plan->layout.degrees.pp == 1;
    plan->passing[BUFFER_GRADIENT] = r->passing;
    b->split_state = r;
    plan->n_state = n;
    plan->master = plan->dtype == DTYPE_F32 ? BUFFER_PARAMETER : BUFFER_MASTER;
    build_take(b, BUFFER_PARAMETER, n);
    if (plan->master == BUFFER_MASTER)
        build_take_wide(b, BUFFER_MASTER, n);
    build_take_wide(b, BUFFER_GRADIENT, n);
    build_take_wide(b, BUFFER_MOMENT1, n);
    build_take_wide(b, BUFFER_MOMENT2, n);
    if (wire_dtype(b) != DTYPE_F32) /* first of BUFFER_WIRE: offsets are those of the gradient */
        plan_take(plan, BUFFER_WIRE, n * (int64_t)dtype_size((int)wire_dtype(b)));
    add_pieces(plan);
}

static void replicas_close(struct build *b)
{
    struct replicas *r = b->split_state;
    if (r == NULL)
        return;
    free(r->ends);
    free(r);
    b->split_state = NULL;
}

static void zero_gradients(struct build *b, int64_t first, int64_t n)
{
    struct tensor none = {0}, start = {BUFFER_GRADIENT, 0};
    if (n > 0)
        build_vector_op(b, OP_ZERO, build_at(start, first, (int64_t)sizeof(float)), none, none, n);
}

/* The gradients of a unit begin: not before, so that activations may have had their bytes; those of one
 * bucket by themselves, as a call holds them together. */
static void begin_gradients(struct build *b, int unit)
{
    const struct replicas *r = b->split_state;
    const struct plan *plan = b->plan;
    int64_t first = 0, end = 0;
    for (int i = 0; i < plan->n_tensors; i++) {
        const struct plan_tensor *t = &plan->tensors[i];
        if (t->unit != unit)
            continue;
        if (t->offset != end) {
            zero_gradients(b, first, end - first);
            first = t->offset;
        }
        end = t->offset + build_tensor_count(t);
        if (r->ends[i]) {
            zero_gradients(b, first, end - first);
            first = end;
        }
    }
    zero_gradients(b, first, end - first);
}

static void replicas_begin(struct build *b)
{
    const struct replicas *r = b->split_state;
    if (!r->passing)
        zero_gradients(b, 0, b->plan->n_parameters);
}

/* The use of the head is forward and backward, those of the layers are apart. */
static void replicas_use(struct build *b, int unit)
{
    const struct replicas *r = b->split_state;
    bool head = b->phase != PHASE_BACKWARD && unit == 1 + (int)b->model->layers;
    if (!r->passing)
        return;
    if (head && b->model->tied)
        begin_gradients(b, UNIT_EMBEDDING);
    if (head || b->phase == PHASE_BACKWARD)
        begin_gradients(b, unit);
}

static void replicas_embeds(struct build *b)
{
    const struct replicas *r = b->split_state;
    if (r->passing && !b->model->tied)
        begin_gradients(b, UNIT_EMBEDDING);
}

static bool replicas_hand_over(const struct build *b)
{
    return b->last_micro;
}

static void nothing_of_unit(struct build *b, int unit)
{
    (void)b;
    (void)unit;
}

static void nothing(struct build *b)
{
    (void)b;
}

/* ---- buckets ---- */

static struct tensor reduced_place(const struct build *b, int64_t first)
{
    int64_t size = (int64_t)dtype_size((int)wire_dtype(b));
    int buffer = wire_dtype(b) == DTYPE_F32 ? BUFFER_GRADIENT : BUFFER_WIRE;
    return (struct tensor){buffer, first * size};
}

/* The call waits for what completed the bucket; a cast stands in for all of that. */
static int post_bucket(struct build *b, struct way *way, int64_t count)
{
    struct tensor place = reduced_place(b, way->sent);
    struct build_call call = {.kind = COLL_ALL_REDUCE,
                              .axis = way->axis,
                              .dtype = wire_dtype(b),
                              .count = count,
                              .peer = -1,
                              .phase = PHASE_REDUCE,
                              .send = place,
                              .receive = place};
    if (wire_dtype(b) != DTYPE_F32) {
        struct tensor gradient = {BUFFER_GRADIENT, way->sent * (int64_t)sizeof(float)};
        for (int s = 1; s <= PLAN_CHANNELS; s++)
            build_await(b, way->after[s]);
        int cast = build_cast(b, gradient, DTYPE_F32, place, wire_dtype(b), count);
        return is_summed(b, way->axis) ? build_collective(b, &call, cast) : -1;
    }
    int index = build_collective(b, &call, way->after[0]);
    for (int s = 1; s <= PLAN_CHANNELS; s++)
        if (way->after[s] >= 0)
            plan_wait(b->plan, index, way->after[s]);
    return index;
}

static void post(struct build *b, struct replicas *r, struct way *way)
{
    int64_t count = way->ready - way->sent;
    bool needed = is_summed(b, way->axis) || wire_dtype(b) != DTYPE_F32;
    int op = needed ? post_bucket(b, way, count) : -1;
    for (int stream = 1; stream <= PLAN_CHANNELS && op < 0; stream++)
        build_await(b, way->after[stream]); /* sums over tp that no all-reduce waits for */
    for (; way->first_piece < r->next; way->first_piece++)
        if (is_apart(b, way->first_piece) == (way == &r->apart))
            b->reduced[way->first_piece] = (struct reduced){
                reduced_place(b, b->plan->pieces[way->first_piece].offset), wire_dtype(b), op};
    way->sent = way->ready;
    way->n_buckets++;
    forget(way);
}

static void complete(struct build *b, struct replicas *r, int tensor, const int *after)
{
    struct way *way = way_of(b, r, tensor);
    if (tensor != r->next)
        BUG("gradient of %s is reported out of order", b->plan->tensors[tensor].name);
    r->next++;
    way->ready += build_tensor_count(&b->plan->tensors[tensor]);
    for (int s = 0; s <= PLAN_CHANNELS; s++)
        way->after[s] = after[s] > way->after[s] ? after[s] : way->after[s];
    if (r->ends[tensor])
        post(b, r, way);
}

static void replicas_finished(struct build *b, int tensor, const int *after)
{
    if (b->policy->overlap_gradients)
        complete(b, b->split_state, tensor, after);
}

static void replicas_reduce(struct build *b)
{
    struct replicas *r = b->split_state;
    if (!b->policy->overlap_gradients) /* the same buckets, after backward */
        for (int i = 0; i < b->plan->n_tensors; i++) {
            int after[1 + PLAN_CHANNELS];
            build_after(b, i, after);
            after[0] = b->last;
            complete(b, r, i, after);
        }
    if (r->dense.sent < r->dense.ready)
        post(b, r, &r->dense);
    if (r->apart.sent < r->apart.ready)
        post(b, r, &r->apart);
}

static int replicas_norm(struct build *b)
{
    (void)b;
    return -1;
}

static void nothing_of_piece(struct build *b, int piece, int op)
{
    (void)b;
    (void)piece;
    (void)op;
}

/* ---- places ---- */

static struct tensor replicas_weight(const struct build *b, int tensor)
{
    return (struct tensor){BUFFER_PARAMETER, b->plan->tensors[tensor].offset * build_element(b)};
}

static struct tensor replicas_gradient(const struct build *b, int tensor)
{
    int64_t bytes = b->plan->tensors[tensor].offset * (int64_t)sizeof(float);
    return (struct tensor){BUFFER_GRADIENT, bytes};
}

static struct tensor replicas_rounded(const struct build *b, int piece)
{
    if (b->plan->master == BUFFER_PARAMETER)
        return (struct tensor){0};
    return replicas_weight(b, b->plan->pieces[piece].tensor);
}

const struct split split_replicas = {
    .name = "replicas",
    .open = replicas_open,
    .close = replicas_close,
    .begin = replicas_begin,
    .hand_over = replicas_hand_over,
    .use = replicas_use,
    .done = nothing_of_unit,
    .embeds = replicas_embeds,
    .finished = replicas_finished,
    .micro_end = nothing,
    .reduce = replicas_reduce,
    .norm = replicas_norm,
    .updated = nothing_of_piece,
    .step_end = nothing,
    .weight = replicas_weight,
    .gradient = replicas_gradient,
    .rounded = replicas_rounded,
};
