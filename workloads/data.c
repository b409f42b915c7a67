#include "workloads/data.h"

#include <stdlib.h>

#include "base/err.h"
#include "workloads/build.h"

struct replicas {
    int64_t sent, ready; /* elements of the gradient posted, complete */
    int next;            /* tensor that completes `ready` + its size */
    int n_buckets;
    int first_piece;              /* of the bucket that is being filled */
    int after[1 + PLAN_CHANNELS]; /* ops that complete it, by stream; -1 */
};

static bool is_parallel(const struct build *b)
{
    return b->plan->layout.group[AXIS_DP].size > 1;
}

static enum dtype wire_dtype(const struct build *b)
{
    return is_parallel(b) ? b->policy->grad_dtype : DTYPE_F32;
}

static void forget(struct replicas *r)
{
    for (int s = 0; s <= PLAN_CHANNELS; s++)
        r->after[s] = -1;
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

static void replicas_open(struct build *b)
{
    struct plan *plan = b->plan;
    struct replicas *r = must_alloc(1, sizeof *r);
    int64_t n = plan->n_parameters;
    forget(r);
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
    free(b->split_state);
    b->split_state = NULL;
}

static void replicas_begin(struct build *b)
{
    struct tensor none = {0};
    build_vector_op(b, OP_ZERO, (struct tensor){BUFFER_GRADIENT, 0}, none, none,
                    b->plan->n_parameters);
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
static int post_bucket(struct build *b, struct replicas *r, int64_t count)
{
    struct tensor place = reduced_place(b, r->sent);
    struct build_call call = {COLL_ALL_REDUCE, AXIS_DP, 0,    wire_dtype(b), count, -1,
                              PHASE_REDUCE,    place,   place};
    if (wire_dtype(b) != DTYPE_F32) {
        struct tensor gradient = {BUFFER_GRADIENT, r->sent * (int64_t)sizeof(float)};
        for (int s = 1; s <= PLAN_CHANNELS; s++)
            build_await(b, r->after[s]);
        return build_collective(b, &call,
                                build_cast(b, gradient, DTYPE_F32, place, wire_dtype(b), count));
    }
    int index = build_collective(b, &call, r->after[0]);
    for (int s = 1; s <= PLAN_CHANNELS; s++)
        if (r->after[s] >= 0)
            plan_wait(b->plan, index, r->after[s]);
    return index;
}

static void post(struct build *b, struct replicas *r)
{
    int64_t count = r->ready - r->sent;
    int op = is_parallel(b) ? post_bucket(b, r, count) : -1;
    for (int stream = 1; stream <= PLAN_CHANNELS && op < 0; stream++)
        build_await(b, r->after[stream]); /* sums over tp that no all-reduce waits for */
    for (; r->first_piece < r->next; r->first_piece++)
        b->reduced[r->first_piece] = (struct reduced){
            reduced_place(b, b->plan->pieces[r->first_piece].offset), wire_dtype(b), op};
    r->sent = r->ready;
    r->n_buckets++;
    forget(r);
}

static bool is_full(const struct build *b, const struct replicas *r)
{
    int64_t limit = b->policy->bucket_bytes;
    if (r->n_buckets == 0 && limit > DATA_FIRST_BUCKET)
        limit = DATA_FIRST_BUCKET;
    return (r->ready - r->sent) * (int64_t)dtype_size((int)wire_dtype(b)) >= limit;
}

static void complete(struct build *b, struct replicas *r, int tensor, const int *after)
{
    if (tensor != r->next)
        BUG("gradient of %s is reported out of order", b->plan->tensors[tensor].name);
    r->next++;
    r->ready += build_tensor_count(&b->plan->tensors[tensor]);
    for (int s = 0; s <= PLAN_CHANNELS; s++)
        r->after[s] = after[s] > r->after[s] ? after[s] : r->after[s];
    if (is_parallel(b) && is_full(b, r))
        post(b, r);
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
    if (r->sent < r->ready)
        post(b, r);
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
    .use = nothing_of_unit,
    .done = nothing_of_unit,
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
