/* Collectives by size on each level of the machine, and the line that alpha and B are. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gsl/gsl_fit.h>

#include "analysis/stats.h"
#include "base/err.h"
#include "base/rng.h"
#include "driver/agree.h"
#include "driver/calibrate_parts.h"
#include "driver/point_row.h"
#include "driver/watchdog.h"

enum { ROUNDS = 5, CALLS = 8, KINDS = 3, SAMPLES_MOST = 64 };
static const enum coll_kind kinds[KINDS] = {COLL_ALL_REDUCE, COLL_ALL_GATHER, COLL_REDUCE_SCATTER};

struct level {
    struct calibration *c;
    const char *name;
    struct device device;
    struct comm comm;
    struct group group;
    enum axis axis;
    void *send, *recv;
    size_t bytes; /* of each */
    int n;        /* points of the line */
    double x[SAMPLES_MOST], y[SAMPLES_MOST], weight[SAMPLES_MOST];
};

struct calls {
    struct level *level;
    struct comm_call call;
    int n;
};

static void give_calls(void *arg)
{
    const struct calls *calls = arg;
    for (int i = 0; i < calls->n; i++)
        comm_post(&calls->level->comm, &calls->call, 1);
}

/* The longest rank of each round; the median of those on rank 0. */
static int time_calls(struct level *l, struct calls *calls, double *samples)
{
    const struct job *job = l->c->job;
    int rc = 0;
    TRY(agree_barrier(job->world));
    calibrate_warm(&l->device, give_calls, calls);
    for (int round = 0; round < ROUNDS; round++) {
        void *all = NULL;
        int64_t total = 0, *counts = must_alloc((size_t)job->size, sizeof *counts);
        rc = agree_barrier(job->world);
        double mine = calibrate_time(&l->device, 1, give_calls, calls) / calls->n;
        if (rc == 0)
            rc = agree_gather(&mine, sizeof mine, &all, &total, counts, job->world);
        const double *of = all;
        for (int64_t i = 0; i < total / (int64_t)sizeof mine; i++)
            samples[round] = i == 0 || of[i] > samples[round] ? of[i] : samples[round];
        free(all);
        free(counts);
        TRY(rc);
    }
out:
    return rc;
}

/* `bytes` is S; counts are what coll.h makes of it. */
static struct comm_call call_of(const struct level *l, enum coll_kind kind, int64_t bytes)
{
    int64_t n = l->group.size, elements = bytes / (int64_t)sizeof(float);
    struct comm_call call = {.send = l->send, .recv = l->recv};
    call.coll = (struct coll){.kind = kind, .dtype = DTYPE_F32};
    call.coll.count = kind == COLL_ALL_REDUCE ? elements : elements / n;
    return call;
}

static int time_size(struct level *l, enum coll_kind kind, int64_t bytes)
{
    struct calls calls = {l, call_of(l, kind, bytes), CALLS};
    double samples[ROUNDS], n = l->group.size;
    int rc = time_calls(l, &calls, samples);
    if (rc != 0 || l->c->job->rank != 0)
        return rc;
    double turns = kind == COLL_ALL_REDUCE ? 2 : 1;
    double s = (double)coll_bytes(&calls.call.coll, l->group.size);
    char shape[64];
    snprintf(shape, sizeof shape, "%.0f bytes", s);
    struct ceiling_row *row = calibrate_row(l->c, coll_name((int)kind), shape);
    point_text(row->dtype, sizeof row->dtype, "fp32");
    point_text(row->level, sizeof row->level, l->name);
    row->group = l->group.size;
    row->bytes = s;
    calibrate_times(row, samples, ROUNDS, turns * (n - 1) / n * s, "B/s");
    double each = row->time_us / 1e6 / (turns * (n - 1)); /* a step of a ring: alpha + S / n / B */
    l->x[l->n] = s / n;
    l->y[l->n] = each;
    l->weight[l->n++] = 1.0 / (each * each);
    return 0;
}

/* Alpha and B of the level: the line through all of them, each by its share. */
static void fit(struct level *l, struct topology_level *out)
{
    double alpha = 0, slope = 0, v00, v01, v11, squares, least = l->y[0], fastest = 0;
    gsl_fit_wlinear(l->x, 1, l->weight, 1, l->y, 1, (size_t)l->n, &alpha, &slope, &v00, &v01, &v11,
                    &squares);
    for (int i = 0; i < l->n; i++) {
        least = l->y[i] < least ? l->y[i] : least;
        fastest = l->x[i] / l->y[i] > fastest ? l->x[i] / l->y[i] : fastest;
    }
    bool line = alpha > 0 && slope > 0;
    const char *how = line ? "line through" : "ends of";
    calibrate_fact(&out->latency, line ? alpha : least,
                   "scalestudy calibrate: %s %d times of 3 collectives, %s, %d ranks", how, l->n,
                   l->c->job->backend.comm->name, l->group.size);
    calibrate_fact(&out->bandwidth, line ? 1.0 / slope : fastest,
                   "scalestudy calibrate: %s %d times of 3 collectives, %s, %d ranks%s", how, l->n,
                   l->c->job->backend.comm->name, l->group.size,
                   l->axis == AXIS_DP && l->c->job->emulated ? ", nodes emulated" : "");
}

/* Random numbers, the same run of them again and again: zeros are moved faster by some. */
static void fill(struct level *l)
{
    enum { RUN = 1 << 16 };
    float *values = must_alloc(RUN, sizeof *values);
    size_t run = RUN * sizeof *values;
    rng_fill_normal(values, RUN, rng_key(1, "calibrate.collectives"), 0, 1.0f);
    for (size_t at = 0; at < l->bytes; at += run)
        l->device.type->upload(&l->device, DEVICE_COMPUTE, (unsigned char *)l->send + at, values,
                               run < l->bytes - at ? run : l->bytes - at);
    l->device.type->sync(&l->device);
    free(values);
}

static int open_level(struct level *l)
{
    struct job *job = l->c->job;
    const struct device_type *type = job->backend.device;
    int rc = 0;
    TRY(device_open(&l->device, type, job->backend.local_rank, 2));
    TRY(type->reserve(&l->device, 4, 4 * CALLS + 16));
    TRY(type->alloc(&l->device, DEVICE_COMMUNICATION, l->bytes, &l->send));
    TRY(type->alloc(&l->device, DEVICE_COMMUNICATION, l->bytes, &l->recv));
    TRY(comm_open(&l->comm, job->backend.comm, job->world, &l->device, 1, l->axis, &l->group,
                  CALLS));
    fill(l);
out:
    return rc;
}

static void close_level(struct level *l)
{
    comm_close(&l->comm);
    if (l->device.type == NULL)
        return;
    if (l->send != NULL)
        l->device.type->free(&l->device, DEVICE_COMMUNICATION, l->send, l->bytes);
    if (l->recv != NULL)
        l->device.type->free(&l->device, DEVICE_COMMUNICATION, l->recv, l->bytes);
    device_close(&l->device);
}

static int measure_level(struct level *l, struct topology_level *out)
{
    int64_t most = (int64_t)l->bytes;
    int rc = open_level(l);
    rc = agree(rc, l->c->job->world);
    for (int k = 0; k < KINDS && rc == 0; k++)
        for (int64_t bytes = 4096; bytes <= most && rc == 0; bytes *= 8) {
            watchdog_at(coll_name((int)kinds[k]), bytes, l->name);
            rc = time_size(l, kinds[k], bytes);
        }
    if (rc == 0 && l->c->job->rank == 0)
        fit(l, out);
    close_level(l);
    return agree(rc, l->c->job->world);
}

/* One device has no peer: what it costs it to talk to itself. */
static void alone(struct calibration *c, struct topology_level *level)
{
    calibrate_fact(&level->latency, c->launch_s,
                   "scalestudy calibrate: a launch; one rank has no peer");
    calibrate_fact(&level->bandwidth, c->topology.fact[FACT_MEMORY_RATE].value / 2,
                   "scalestudy calibrate: a copy within the device; one rank has no peer");
}

static struct topology_level *add_level(struct calibration *c, const char *name, int ranks)
{
    struct topology_level *level = &c->topology.level[c->topology.n_levels++];
    snprintf(level->name, sizeof level->name, "%s", name);
    level->ranks = ranks;
    return level;
}

/* tp lies inside a node, dp across: all devices of a node use its ports at once. */
int calibrate_collectives(struct calibration *c)
{
    int nodes = c->point->nodes, inside = c->point->ranks_per_node, rc = 0;
    size_t bytes = c->job->backend.device->probe != NULL ? (size_t)128 << 20 : (size_t)2 << 20;
    char text[32];
    struct degrees degrees;
    struct layout layout;
    struct level *l = must_alloc(1, sizeof *l);
    snprintf(text, sizeof text, "tp=%d", inside);
    memset(&degrees, 0, sizeof degrees);
    TRY(layout_parse(text, &degrees));
    TRY(layout_init(&layout, nodes, inside, c->job->rank, &degrees));
    if (inside > 1 || nodes == 1) {
        struct topology_level *level = add_level(c, "gpu", inside);
        *l = (struct level){
            .c = c, .name = "gpu", .group = layout.group[AXIS_TP], .axis = AXIS_TP, .bytes = bytes};
        if (inside > 1)
            TRY(measure_level(l, level));
        else
            alone(c, level);
    }
    if (nodes > 1) {
        struct topology_level *level = add_level(c, "node", nodes * inside);
        *l = (struct level){.c = c,
                            .name = "node",
                            .group = layout.group[AXIS_DP],
                            .axis = AXIS_DP,
                            .bytes = bytes};
        TRY(measure_level(l, level));
    }
out:
    free(l);
    return rc;
}
