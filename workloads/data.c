#include "workloads/data.h"

#include <stdlib.h>
#include <string.h>

#include "base/err.h"

void data_begin(struct data_parallel *data, struct plan *plan, int64_t bucket_bytes, bool overlap)
{
    *data = (struct data_parallel){.plan = plan,
                                   .bucket_bytes = bucket_bytes,
                                   .overlap = overlap,
                                   .last_writer = -1,
                                   .scalars = -1};
}

void data_release(struct data_parallel *data)
{
    free(data->bucket);
    free(data->end);
    memset(data, 0, sizeof *data);
}

static bool data_is_parallel(const struct data_parallel *data)
{
    return data->plan->layout.group[AXIS_DP].size > 1;
}

static int data_all_reduce(struct data_parallel *data, struct tensor what, enum dtype dtype,
                           int64_t count, int writer)
{
    struct op op = {.kind = OP_COLLECTIVE,
                    .phase = PHASE_REDUCE,
                    .stream = plan_channel(data->plan, AXIS_DP, 0),
                    .layer = -1,
                    .micro = -1};
    op.t[0] = op.t[1] = what;
    op.shape.coll.coll = (struct coll){COLL_ALL_REDUCE, dtype, count, -1};
    op.shape.coll.axis = AXIS_DP;
    int index = plan_op(data->plan, &op);
    plan_wait(data->plan, index, writer);
    return index;
}

void data_reduce_scalars(struct data_parallel *data, int writer)
{
    if (!data_is_parallel(data))
        return;
    struct tensor sums = {BUFFER_SCALAR, SCALAR_LOSS_SUM * (int64_t)sizeof(double)};
    data->scalars = data_all_reduce(data, sums, DTYPE_F64, SCALAR_TOKENS + 1, writer);
}

static void data_post(struct data_parallel *data, int64_t end)
{
    int n = data->n_buckets;
    struct tensor run = {BUFFER_GRADIENT, data->sent};
    int64_t count = (end - data->sent) / (int64_t)sizeof(float);
    data->bucket = must_grow(data->bucket, (size_t)n + 1, sizeof *data->bucket);
    data->end = must_grow(data->end, (size_t)n + 1, sizeof *data->end);
    data->bucket[n] = data_all_reduce(data, run, DTYPE_F32, count, data->last_writer);
    data->end[n] = end;
    data->n_buckets++;
    data->sent = end;
}

static int64_t data_limit(const struct data_parallel *data)
{
    bool first = data->n_buckets == 0 && data->bucket_bytes > DATA_FIRST_BUCKET;
    return first ? DATA_FIRST_BUCKET : data->bucket_bytes;
}

void data_gradient_ready(struct data_parallel *data, int tensor, int writer)
{
    const struct plan_tensor *t = &data->plan->tensors[tensor];
    int64_t start = t->offset * (int64_t)sizeof(float);
    if (start != data->ready)
        BUG("gradient of %s is reported out of order", t->name);
    data->ready = start + t->rows * t->columns * (int64_t)sizeof(float);
    data->last_writer = writer;
    if (data_is_parallel(data) && data->overlap && data->ready - data->sent >= data_limit(data))
        data_post(data, data->ready);
}

void data_end(struct data_parallel *data)
{
    if (!data_is_parallel(data))
        return;
    if (!data->overlap) { /* the same buckets, after backward */
        for (int i = 0; i < data->plan->n_tensors; i++) {
            const struct plan_tensor *t = &data->plan->tensors[i];
            int64_t end = (t->offset + t->rows * t->columns) * (int64_t)sizeof(float);
            if (end - data->sent >= data_limit(data))
                data_post(data, end);
        }
    }
    if (data->sent < data->ready)
        data_post(data, data->ready);
}
