#include "driver/state.h"

#include <pthread.h>
#include <string.h>

#include "base/err.h"
#include "base/rng.h"

enum { MOST_THREADS = 64, LEAST_PER_THREAD = 1 << 16 };

/* A part of a piece, which is one thread's. */
struct fill {
    const struct plan *plan;
    struct plan_piece part;
    uint64_t key;
    float *out; /* [part.count] */
};

int64_t state_run_valid(const struct plan_tensor *t, int64_t whole_first, int64_t count)
{
    int64_t valid = t->valid_rows * t->whole_columns - whole_first;
    return valid < 0 ? 0 : valid < count ? valid : count;
}

/* Rows that the unpadded model does not have are 0. */
static void fill_run(void *arg, int64_t whole_first, int64_t local_first, int64_t count)
{
    const struct fill *fill = arg;
    const struct plan_tensor *t = &fill->plan->tensors[fill->part.tensor];
    float *out = fill->out + (local_first - fill->part.first);
    int64_t valid = state_run_valid(t, whole_first, count);
    for (int64_t i = 0; i < count; i++)
        out[i] = t->sigma < 0 && i < valid ? 1.0f : 0.0f;
    if (t->sigma > 0)
        rng_fill_normal(out, valid, fill->key, (uint64_t)whole_first, (float)t->sigma);
}

static void *fill_part(void *arg)
{
    struct fill *fill = arg;
    plan_piece_runs(fill->plan, &fill->part, fill_run, fill);
    return NULL;
}

static int threads_for(int64_t count, int threads)
{
    int64_t most = count / LEAST_PER_THREAD;
    most = most < threads ? most : threads;
    return most < 1 ? 1 : most > MOST_THREADS ? MOST_THREADS : (int)most;
}

/* A value is a function of its index alone, so that parts need nothing of each other. */
void state_initial(const struct plan *plan, const struct plan_piece *piece, uint64_t seed,
                   int threads, float *out)
{
    struct fill fill[MOST_THREADS];
    pthread_t thread[MOST_THREADS];
    bool started[MOST_THREADS] = {false};
    uint64_t key = rng_key(seed, plan->tensors[piece->tensor].name);
    int n = threads_for(piece->count, threads);
    for (int i = 0; i < n; i++) {
        int64_t first = piece->count * i / n, end = piece->count * (i + 1) / n;
        fill[i] = (struct fill){plan, *piece, key, out + first};
        fill[i].part.first = piece->first + first;
        fill[i].part.count = end - first;
        started[i] = i > 0 && pthread_create(&thread[i], NULL, fill_part, &fill[i]) == 0;
    }
    for (int i = 0; i < n; i++) /* the first here, and any that could not be started */
        if (!started[i])
            fill_part(&fill[i]);
    for (int i = 1; i < n; i++)
        if (started[i])
            pthread_join(thread[i], NULL);
}

struct copy {
    int64_t first;
    const float *from;
    float *to;
    int *held;
};

static void cut_run(void *arg, int64_t whole_first, int64_t local_first, int64_t count)
{
    const struct copy *copy = arg;
    memcpy(copy->to + (local_first - copy->first), copy->from + whole_first,
           (size_t)count * sizeof *copy->to);
}

void state_cut(const struct plan *plan, const struct plan_piece *piece, const float *whole,
               float *out)
{
    struct copy copy = {.first = piece->first, .from = whole, .to = out};
    plan_piece_runs(plan, piece, cut_run, &copy);
}

static void paste_run(void *arg, int64_t whole_first, int64_t local_first, int64_t count)
{
    const struct copy *copy = arg;
    memcpy(copy->to + whole_first, copy->from + (local_first - copy->first),
           (size_t)count * sizeof *copy->to);
    for (int64_t i = 0; i < count; i++)
        copy->held[whole_first + i]++;
}

void state_paste(const struct plan *plan, const struct plan_piece *piece, const float *values,
                 float *whole, int *held)
{
    struct copy copy = {.first = piece->first, .from = values, .to = whole, .held = held};
    plan_piece_runs(plan, piece, paste_run, &copy);
}

struct count {
    const struct plan_tensor *tensor;
    int64_t n; /* elements of the piece that exist */
};

static void count_run(void *arg, int64_t whole_first, int64_t local_first, int64_t count)
{
    struct count *c = arg;
    (void)local_first;
    c->n += state_run_valid(c->tensor, whole_first, count);
}

int64_t state_valid(const struct plan *plan, const struct plan_piece *piece)
{
    struct count count = {&plan->tensors[piece->tensor], 0};
    plan_piece_runs(plan, piece, count_run, &count);
    return count.n;
}

/* The update has one AdamW for each piece, in their order. */
enum dtype state_gradients(const struct plan *plan, struct tensor *at)
{
    enum dtype dtype = DTYPE_F32;
    int piece = 0;
    for (int i = 0; i < plan->n_ops; i++) {
        if (plan->ops[i].kind != OP_ADAMW)
            continue;
        dtype = plan->ops[i].shape.optimizer.gradient;
        at[piece++] = plan->ops[i].t[1];
    }
    if (piece != plan->n_pieces)
        BUG("%d updates of %d pieces", piece, plan->n_pieces);
    return dtype;
}
