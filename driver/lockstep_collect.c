#include <stdlib.h>
#include <string.h>

#include "base/bf16.h"
#include "base/err.h"
#include "driver/lockstep_rank.h"

/* What one collective is about: the op at the head of each member, and where its data lie. */
struct collect {
    struct lockstep *lockstep;
    struct coll coll;
    int n;
    const struct coll **call; /* of each member */
    const unsigned char **send;
    unsigned char **receive;
    size_t share; /* bytes of `count` elements */
};

static double element(const unsigned char *from, enum dtype dtype, int64_t i)
{
    switch ((int)dtype) {
    case DTYPE_F64:
        return ((const double *)(const void *)from)[i];
    case DTYPE_I32:
        return ((const int32_t *)(const void *)from)[i];
    case DTYPE_BF16:
        return (double)bf16_to_float(((const uint16_t *)(const void *)from)[i]);
    case DTYPE_U8:
        return from[i];
    default:
        return (double)((const float *)(const void *)from)[i];
    }
}

static void set_element(unsigned char *to, enum dtype dtype, int64_t i, double value)
{
    switch ((int)dtype) {
    case DTYPE_F64:
        ((double *)(void *)to)[i] = value;
        break;
    case DTYPE_I32:
        ((int32_t *)(void *)to)[i] = (int32_t)value;
        break;
    case DTYPE_BF16:
        ((uint16_t *)(void *)to)[i] = bf16_of((float)value);
        break;
    case DTYPE_U8:
        to[i] = (unsigned char)(int64_t)value;
        break;
    default:
        ((float *)(void *)to)[i] = (float)value;
    }
}

/* Sums go to `gathered` first: a member may receive where another's part has not been read yet. */
static unsigned char *gathered(struct lockstep *lockstep, size_t bytes)
{
    if (bytes > lockstep->gathered_size) {
        lockstep->gathered = must_grow(lockstep->gathered, bytes, 1);
        lockstep->gathered_size = bytes;
    }
    return lockstep->gathered;
}

/* The common case, kept plain so that compilers vectorise it. */
static void sum_floats(const struct collect *c, unsigned char *sums, int64_t n)
{
    float *out = (float *)(void *)sums;
    for (int64_t i = 0; i < n; i++) {
        double sum = 0;
        for (int m = 0; m < c->n; m++)
            sum += (double)((const float *)(const void *)c->send[m])[i];
        out[i] = (float)sum;
    }
}

static unsigned char *sum_all(const struct collect *c, int64_t n)
{
    unsigned char *sums = gathered(c->lockstep, (size_t)n * dtype_size((int)c->coll.dtype));
    if (c->coll.dtype == DTYPE_F32) {
        sum_floats(c, sums, n);
        return sums;
    }
    for (int64_t i = 0; i < n; i++) {
        double sum = 0;
        for (int m = 0; m < c->n; m++)
            sum += element(c->send[m], c->coll.dtype, i);
        set_element(sums, c->coll.dtype, i, sum);
    }
    return sums;
}

static void reduce(const struct collect *c)
{
    bool scatter = c->coll.kind == COLL_REDUCE_SCATTER;
    const unsigned char *sums = sum_all(c, c->coll.count * (scatter ? c->n : 1));
    for (int m = 0; m < c->n; m++)
        if (c->coll.kind != COLL_REDUCE || m == c->coll.peer)
            memcpy(c->receive[m], sums + (scatter ? (size_t)m * c->share : 0), c->share);
}

/* All-gather; and all-to-all, where member m gets part m of everybody. */
static void exchange(const struct collect *c)
{
    size_t n = (size_t)c->n, share = c->share;
    bool parts = c->coll.kind == COLL_ALL_TO_ALL;
    unsigned char *all = gathered(c->lockstep, n * share * (parts ? n : 1));
    for (size_t to = 0; to < (parts ? n : 1); to++)
        for (size_t m = 0; m < n; m++)
            memcpy(all + (to * n + m) * share, c->send[m] + (parts ? to * share : 0), share);
    for (size_t to = 0; to < n; to++)
        memcpy(c->receive[to], all + (parts ? to * n * share : 0), n * share);
}

/* Part `to` of member m begins where its parts for others before end; likewise where it arrives. */
static void exchange_parts(const struct collect *c)
{
    const struct coll **calls = c->call;
    size_t n = (size_t)c->n, size = dtype_size((int)c->coll.dtype), total = 0;
    for (size_t m = 0; m < n; m++)
        total += (size_t)coll_send_count(calls[m], c->n) * size;
    unsigned char *all = gathered(c->lockstep, total), *at = all;
    for (size_t m = 0; m < n; m++) {
        size_t bytes = (size_t)coll_send_count(calls[m], c->n) * size;
        memcpy(at, c->send[m], bytes);
        at += bytes;
    }
    for (size_t to = 0; to < n; to++) {
        unsigned char *into = c->receive[to];
        const unsigned char *from = all;
        for (size_t m = 0; m < n; m++) {
            size_t before = 0, bytes = (size_t)calls[m]->send[to] * size;
            for (size_t i = 0; i < to; i++)
                before += (size_t)calls[m]->send[i] * size;
            memcpy(into, from + before, bytes);
            into += bytes;
            from += (size_t)coll_send_count(calls[m], c->n) * size;
        }
    }
}

static void carry_out(const struct collect *c)
{
    switch (c->coll.kind) {
    case COLL_ALL_REDUCE:
    case COLL_REDUCE:
    case COLL_REDUCE_SCATTER:
        reduce(c);
        break;
    case COLL_ALL_GATHER:
    case COLL_ALL_TO_ALL:
        exchange(c);
        break;
    case COLL_BROADCAST:
        for (int m = 0; m < c->n; m++)
            if (c->receive[m] != c->send[c->coll.peer])
                memcpy(c->receive[m], c->send[c->coll.peer], c->share);
        break;
    case COLL_SENDRECV:
        for (int m = 0; m < c->n; m++)
            memcpy(c->receive[(m + 1) % c->n], c->send[m], c->share);
        break;
    case COLL_SEND:
    case COLL_RECV:
        memcpy(c->receive[1], c->send[0], c->share);
        break;
    case COLL_ALL_TO_ALL_V:
        exchange_parts(c);
        break;
    case COLL_KINDS:
        break;
    }
}

static void count_call(struct lockstep *lockstep, const struct op *op, const struct group *group)
{
    enum axis axis = op->shape.coll.axis;
    struct coll call = shape_call(&op->shape.coll, group);
    lockstep->posted_calls[axis]++;
    lockstep->posted_bytes[axis] += coll_wire_bytes(&call, group->size);
}

void lockstep_collect(struct lockstep *lockstep, const struct group *members, const int *stream,
                      int64_t n_steps)
{
    int n = members->size;
    struct collect c = {.lockstep = lockstep, .n = n};
    c.call = must_alloc((size_t)n, sizeof *c.call);
    c.send = must_alloc((size_t)n, sizeof *c.send);
    c.receive = must_alloc((size_t)n, sizeof *c.receive);
    for (int m = 0; m < n; m++) {
        struct lockstep_rank *rank = &lockstep->rank[group_rank(members, m)];
        const struct op *op = lockstep_head(rank, stream[m], n_steps).op;
        if (m == 0)
            c.coll = op->shape.coll.coll;
        c.call[m] = &op->shape.coll.coll;
        c.send[m] = tensor_at(&rank->context, op->t[0]);
        c.receive[m] = tensor_at(&rank->context, op->t[1]);
        struct group group = *members;
        group.me = m;
        count_call(lockstep, op, &group);
    }
    c.share = (size_t)c.coll.count * dtype_size((int)c.coll.dtype);
    carry_out(&c);
    for (int m = 0; m < n; m++)
        lockstep->rank[group_rank(members, m)].stream[stream[m]].done++;
    free(c.call);
    free(c.send);
    free(c.receive);
}
