#include "collectives/comm_check.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"

enum { GUARD = 64, POISON = 0xff }; /* bytes; 0xff.. is a NaN in both floating types */
enum { PRIME = 257, PAGE_BYTES = 4096 };

/* The ways in which one kind is called. */
struct way {
    enum coll_kind kind;
    bool in_place;
    bool reduces;
};

static const struct way ways[] = {
    {COLL_ALL_REDUCE, false, true},     {COLL_ALL_REDUCE, true, true},
    {COLL_REDUCE, false, true},         {COLL_REDUCE, true, true},
    {COLL_REDUCE_SCATTER, false, true}, {COLL_BROADCAST, false, false},
    {COLL_BROADCAST, true, false},      {COLL_ALL_GATHER, false, false},
    {COLL_ALL_GATHER, true, false},     {COLL_ALL_TO_ALL, false, false},
    {COLL_SENDRECV, false, false},      {COLL_ALL_TO_ALL_V, false, false},
    {COLL_SEND, false, false},
};

/* Images of the two buffers: what the host fills, what it expects, what it found. */
struct proof {
    struct comm *comm;
    int n, me;
    int64_t max_count;
    int trial;
    size_t bytes; /* of each of the five, two guards included */
    unsigned char *send_image, *expected, *found;
    void *send, *recv; /* device memory */
    int64_t *parts;    /* [2 n] of all-to-all-v */
    int64_t n_wrong;
};

static void put(void *memory, enum dtype dtype, int64_t i, double value)
{
    switch (dtype) {
    case DTYPE_F32:
        ((float *)memory)[i] = (float)value;
        break;
    case DTYPE_F64:
        ((double *)memory)[i] = value;
        break;
    case DTYPE_I32:
        ((int32_t *)memory)[i] = (int32_t)value;
        break;
    case DTYPE_BF16: { /* small whole numbers are exact */
        float exact = (float)value;
        uint32_t bits;
        memcpy(&bits, &exact, sizeof bits);
        ((uint16_t *)memory)[i] = (uint16_t)(bits >> 16);
        break;
    }
    case DTYPE_U8:
    case DTYPES:
        ((uint8_t *)memory)[i] = (uint8_t)value;
        break;
    }
}

static double get(const void *memory, enum dtype dtype, int64_t i)
{
    switch (dtype) {
    case DTYPE_F32:
        return (double)((const float *)memory)[i];
    case DTYPE_F64:
        return ((const double *)memory)[i];
    case DTYPE_I32:
        return ((const int32_t *)memory)[i];
    case DTYPE_BF16: {
        uint32_t bits = (uint32_t)((const uint16_t *)memory)[i] << 16;
        float exact;
        memcpy(&exact, &bits, sizeof exact);
        return (double)exact;
    }
    case DTYPE_U8:
    case DTYPES:
        break;
    }
    return ((const uint8_t *)memory)[i];
}

/* Whether this member sends input, and whether its receive buffer is written. */
static bool gives(const struct proof *p, const struct coll *coll)
{
    return coll->kind != COLL_BROADCAST || p->me == coll->peer;
}

static bool takes(const struct proof *p, const struct coll *coll)
{
    return coll->kind != COLL_REDUCE || p->me == coll->peer;
}

static void fill_inputs(const struct proof *p, const struct coll *coll, void *memory)
{
    int64_t n = gives(p, coll) ? coll_send_count(coll, p->n) : 0;

    for (int64_t i = 0; i < n; i++)
        put(memory, coll->dtype, i, coll_input(coll, p->me, i, p->trial));
}

static void fill_expected(const struct proof *p, const struct coll *coll, void *memory)
{
    int64_t n = takes(p, coll) ? coll_recv_count(coll, p->n) : 0;

    for (int64_t i = 0; i < n; i++)
        put(memory, coll->dtype, i, coll_expected(coll, p->n, p->me, i, p->trial));
}

static void transfer(const struct proof *p, bool to_device, void *to, const void *from)
{
    struct device *device = p->comm->device;

    (to_device ? device->type->upload : device->type->download)(device, p->comm->stream, to, from,
                                                                p->bytes);
    device->type->sync(device);
}

static int64_t count_wrong(const struct proof *p, const struct coll *coll, int64_t *first)
{
    size_t size = dtype_size((int)coll->dtype);
    int64_t n = (int64_t)(p->bytes / size), n_wrong = 0;

    for (int64_t i = 0; i < n; i++) {
        if (memcmp(p->found + (size_t)i * size, p->expected + (size_t)i * size, size) == 0)
            continue;
        if (n_wrong++ == 0)
            *first = i;
    }
    return n_wrong;
}

static int compare(struct proof *p, const struct coll *coll, const struct way *way)
{
    int64_t first = 0, n_wrong;

    if (memcmp(p->found, p->expected, p->bytes) == 0)
        return 0;
    n_wrong = count_wrong(p, coll, &first);
    p->n_wrong += n_wrong;
    return fail(FAIL_WRONG,
                "check: %s %s %s count %lld%s: element %lld is %.9g, expected %.9g (member %d of "
                "%d; %lld wrong; outside the buffer, NaN or 255 is expected)",
                axis_name((int)p->comm->axis), coll_name((int)coll->kind),
                dtype_name((int)coll->dtype), (long long)coll->count,
                way->in_place ? " in place" : "",
                (long long)first - GUARD / (long long)dtype_size((int)coll->dtype),
                get(p->found, coll->dtype, first), get(p->expected, coll->dtype, first), p->me,
                p->n, (long long)n_wrong);
}

/* A ring of transfers: everybody sends to the next and receives from the one before. */
static void post_ring(struct proof *p, const struct coll *send, struct coll *recv, char *from,
                      char *to)
{
    *recv = *send;
    recv->kind = COLL_RECV;
    recv->peer = (p->me + p->n - 1) % p->n;
    comm_post(p->comm,
              (struct comm_call[]){{.coll = *send, .send = from}, {.coll = *recv, .recv = to}}, 2);
}

/* Parts of one, two and three thirds of an even share: what goes is not what comes. */
static struct coll uneven(struct proof *p, enum dtype dtype, int64_t count)
{
    int64_t share = count / p->n;
    for (int i = 0; i < p->n; i++) {
        p->parts[i] = share * (1 + (p->me + 2 * i) % 3) / 3;
        p->parts[p->n + i] = share * (1 + (i + 2 * p->me) % 3) / 3;
    }
    return coll_all_to_all_v(dtype, count, p->n, p->me, p->parts, p->parts + p->n);
}

static int prove_call(struct proof *p, const struct way *way, enum dtype dtype, int64_t count)
{
    struct coll coll = {.kind = way->kind, .dtype = dtype, .count = count, .peer = p->trial % p->n};
    struct coll result;
    char *recv = (char *)p->recv + GUARD, *send = (char *)p->send + GUARD;
    size_t own = 0; /* where in the receive buffer an in-place input lies */

    p->trial++;
    memset(p->send_image, POISON, p->bytes);
    memset(p->expected, POISON, p->bytes);
    if (way->kind == COLL_SEND)
        coll.peer = (p->me + 1) % p->n;
    if (way->kind == COLL_ALL_TO_ALL_V)
        coll = uneven(p, dtype, count);
    if (way->in_place) {
        own = way->kind == COLL_ALL_GATHER ? (size_t)(p->me * count) * dtype_size((int)dtype) : 0;
        send = recv + own;
        fill_inputs(p, &coll, p->expected + GUARD + own);
    } else {
        fill_inputs(p, &coll, p->send_image + GUARD);
    }
    transfer(p, true, p->send, p->send_image);
    transfer(p, true, p->recv, p->expected);
    result = coll;
    if (way->kind == COLL_SEND)
        post_ring(p, &coll, &result, send, recv);
    else
        comm_post(p->comm, &(struct comm_call){coll, send, recv}, 1);
    p->comm->device->type->sync(p->comm->device);
    transfer(p, false, p->found, p->recv);
    fill_expected(p, &result, p->expected + GUARD);
    return compare(p, &result, way);
}

/* Every count goes on after a failure: n_wrong is over all calls, and members stay together. */
static int prove_way(struct proof *p, const struct way *way, enum dtype dtype)
{
    int64_t shares =
        coll_bytes(&(struct coll){.kind = way->kind, .dtype = DTYPE_U8, .count = 1}, p->n);
    int64_t counts[] = {0, 1, PRIME, PAGE_BYTES / (int64_t)dtype_size((int)dtype) + 1,
                        p->max_count / shares};
    int rc = 0;

    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        int failed = counts[i] * shares <= p->max_count ? prove_call(p, way, dtype, counts[i]) : 0;
        rc = rc != 0 ? rc : failed;
    }
    return rc;
}

static int prove_all(struct proof *p)
{
    int rc = 0;

    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        for (int dtype = 0; dtype < DTYPES; dtype++) {
            bool is_real = dtype == DTYPE_F32 || dtype == DTYPE_F64 || dtype == DTYPE_BF16;
            if ((ways[i].reduces && !is_real) || (ways[i].kind == COLL_SEND && p->n == 1))
                continue;
            int failed = prove_way(p, &ways[i], (enum dtype)dtype);
            rc = rc != 0 ? rc : failed;
        }
    }
    return rc;
}

int64_t comm_prove_bytes(int64_t max_count)
{
    return max_count * (int64_t)sizeof(double) + 2 * GUARD;
}

int comm_prove(struct comm *comm, int64_t max_count, int64_t *n_wrong)
{
    const struct device_type *type = comm->device->type;
    struct proof p = {.comm = comm, .n = comm->group.size, .me = comm->group.me};
    int64_t calls = comm->posted_calls;
    double bytes = comm->posted_bytes;
    int rc;

    p.max_count = max_count;
    p.bytes = (size_t)comm_prove_bytes(max_count);
    p.parts = must_alloc(2 * (size_t)p.n, sizeof *p.parts);
    p.send_image = must_alloc(3, p.bytes);
    p.expected = p.send_image + p.bytes;
    p.found = p.expected + p.bytes;
    type->sync(comm->device);
    TRY(type->alloc(comm->device, DEVICE_COMMUNICATION, p.bytes, &p.send));
    TRY(type->alloc(comm->device, DEVICE_COMMUNICATION, p.bytes, &p.recv));
    rc = prove_all(&p);
out:
    type->free(comm->device, DEVICE_COMMUNICATION, p.send, p.bytes);
    type->free(comm->device, DEVICE_COMMUNICATION, p.recv, p.bytes);
    free(p.send_image);
    free(p.parts);
    comm->posted_calls = calls;
    comm->posted_bytes = bytes;
    *n_wrong = p.n_wrong;
    return rc;
}
