/* The distinct ops of a plan, each timed over the places where the plan has it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/stats.h"
#include "base/err.h"
#include "driver/agree.h"
#include "driver/calibrate_parts.h"
#include "driver/point_row.h"
#include "driver/watchdog.h"
#include "workloads/cost.h"

enum { PLACES_MOST = 16, LAUNCHES_MOST = 64, ROUNDS = 5 };
#define ROUND_LEAST_S 2e-3 /* a round is made as long as this, if 64 launches are */
#define KIND_MOST_S 0.5    /* rounds of one kind end after it */

struct places { /* ops of one kind, shape and dtype */
    char shape[128];
    int op[PLACES_MOST]; /* the first of them in the plan */
    int n, calls;        /* of op; in all */
};

struct round {
    struct calibration *c;
    const struct places *places;
    int launches;
};

struct launch {
    const struct op *op;
    struct execute *execute;
};

static void run_kernel(void *arg, void *native)
{
    const struct launch *launch = arg;
    struct execute *e = launch->execute;
    e->kernels->run[launch->op->kind](launch->op, &e->context, native);
}

static void give_round(void *arg)
{
    const struct round *round = arg;
    struct execute *e = &round->c->execute;
    for (int i = 0; i < round->launches; i++) {
        const struct op *op = &round->c->plan.ops[round->places->op[i % round->places->n]];
        struct launch launch = {op, e};
        e->device.type->launch(&e->device, DEVICE_COMPUTE, run_kernel, &launch);
    }
}

static double time_round(struct calibration *c, const struct places *places, int launches)
{
    struct round round = {c, places, launches};
    return calibrate_time(&c->execute.device, DEVICE_COMPUTE, give_round, &round) / launches;
}

/* Rounds of as many launches as last a while; returns how many samples. */
static int time_places(struct calibration *c, const struct places *places, double samples[ROUNDS])
{
    int launches = places->n, n = 0;
    struct round warm = {c, places, launches};
    calibrate_warm(&c->execute.device, give_round, &warm);
    double each = time_round(c, places, launches), total = 0;
    while (launches < LAUNCHES_MOST && each * launches < ROUND_LEAST_S)
        launches *= 2;
    if (launches > LAUNCHES_MOST)
        launches = LAUNCHES_MOST;
    while (n < ROUNDS && (n == 0 || total < KIND_MOST_S)) {
        samples[n] = time_round(c, places, launches);
        total += samples[n++] * launches;
    }
    return n;
}

/* ---- what ops are like each other ---- */

static bool alike(const struct op *op, const char *shape, const struct op *other,
                  const char *other_shape)
{
    return op->kind == other->kind && op->dtype == other->dtype && strcmp(shape, other_shape) == 0;
}

static bool is_kernel(const struct calibration *c, const struct op *op)
{
    return op->kind != OP_COLLECTIVE && op->kind != OP_INPUT && op->stream == DEVICE_COMPUTE &&
           c->execute.kernels->run[op->kind] != NULL;
}

/* Places of ops[first] and of all like it behind; marks them as seen. */
static void find_places(const struct calibration *c, int first, bool *seen, struct places *out)
{
    const struct plan *plan = &c->plan;
    memset(out, 0, sizeof *out);
    calibrate_shape(&plan->ops[first], out->shape, sizeof out->shape);
    for (int i = first; i < plan->n_ops; i++) {
        char shape[128];
        if (seen[i] || !is_kernel(c, &plan->ops[i]))
            continue;
        calibrate_shape(&plan->ops[i], shape, sizeof shape);
        if (!alike(&plan->ops[first], out->shape, &plan->ops[i], shape))
            continue;
        seen[i] = true;
        out->calls++;
        if (out->n < PLACES_MOST)
            out->op[out->n++] = i;
    }
}

static void add_row(struct calibration *c, const struct places *places, double *samples, int n)
{
    const struct op *op = &c->plan.ops[places->op[0]];
    struct cost_work work;
    cost_work(op, &work);
    double flops = work.product_flops + work.attention_flops;
    struct ceiling_row *row = calibrate_row(c, op_name((int)op->kind), places->shape);
    point_text(row->dtype, sizeof row->dtype, dtype_name((int)op->dtype));
    row->calls = places->calls;
    row->bytes = work.bytes;
    row->flops = flops + work.other_flops;
    calibrate_times(row, samples, n, flops > 0 ? flops : work.bytes, flops > 0 ? "FLOP/s" : "B/s");
}

/* ---- what ops work on ---- */

/*
 * Rounds of an op leave values that no step has: sums over sums, and at last none that are finite, of which
 * a product is faster than of real ones on a device at its power limit, and an update does nothing at all.
 * So a step without communication goes before each kind, and scalars are those of a whole step.
 */
static void go_before(struct calibration *c, const unsigned char *scalars)
{
    struct execute *e = &c->execute;
    size_t bytes = (size_t)c->plan.bytes[BUFFER_SCALAR];
    execute_block(e, VARIANT_COMPUTE, 0, 1, -1, NULL);
    e->device.type->upload(&e->device, DEVICE_COMPUTE, e->memory[BUFFER_SCALAR], scalars, bytes);
    e->device.type->sync(&e->device);
}

/* Into out[bytes of the buffer]. By their scale, 0, updates are skipped. */
static int read_scalars(struct calibration *c, unsigned char *out)
{
    struct execute *e = &c->execute;
    size_t bytes = (size_t)c->plan.bytes[BUFFER_SCALAR];
    double scale = 1;
    e->device.type->download(&e->device, DEVICE_COMPUTE, out, e->memory[BUFFER_SCALAR], bytes);
    e->device.type->sync(&e->device);
    for (int i = 0; i < c->plan.n_ops; i++)
        if (c->plan.ops[i].kind == OP_CLIP)
            memcpy(&scale, out + c->plan.ops[i].t[0].offset + SCALAR_SCALE * (int64_t)sizeof scale,
                   sizeof scale);
    return scale > 0 ? 0
                     : fail(FAIL_WRONG, "calibrate: the gradient norm of a step is not finite: "
                                        "updates are skipped, and have no time to measure");
}

/* ---- kernels that do nothing ---- */

static void time_launch(struct calibration *c)
{
    struct op op = {.kind = OP_ZERO, .t = {{BUFFER_ACTIVATION, 0}}, .shape.vector.n = 16};
    struct op *kept = c->plan.ops;
    struct places places = {.op = {0}, .n = 1, .calls = 0};
    double samples[ROUNDS];
    c->plan.ops = &op;
    for (int i = 0; i <= ROUNDS; i++)
        samples[i > 0 ? i - 1 : 0] = time_round(c, &places, LAUNCHES_MOST);
    c->plan.ops = kept;
    struct ceiling_row *row = calibrate_row(c, "launch", "zero, 64 bytes, one after another");
    row->bytes = 64;
    calibrate_times(row, samples, ROUNDS, 64, "B/s");
    c->launch_s = row->time_us / 1e6;
}

int calibrate_kernels(struct calibration *c)
{
    bool *seen = must_alloc((size_t)c->plan.n_ops + 1, sizeof *seen);
    c->op_s = must_alloc((size_t)c->plan.n_ops + 1, sizeof *c->op_s);
    unsigned char *scalars = must_alloc((size_t)c->plan.bytes[BUFFER_SCALAR] + 1, 1);
    int rc = 0;
    TRY(agree_quietly(read_scalars(c, scalars), c->job->world));
    TRY(agree_barrier(c->job->world));
    time_launch(c);
    for (int i = 0; i < c->plan.n_ops && rc == 0; i++) {
        struct places places;
        double samples[ROUNDS];
        if (seen[i] || !is_kernel(c, &c->plan.ops[i]))
            continue;
        watchdog_at(op_name((int)c->plan.ops[i].kind), i, "this device");
        bool *before = must_alloc((size_t)c->plan.n_ops + 1, sizeof *before);
        memcpy(before, seen, (size_t)c->plan.n_ops * sizeof *seen);
        find_places(c, i, seen, &places);
        go_before(c, scalars);
        int n = time_places(c, &places, samples);
        add_row(c, &places, samples, n);
        for (int k = i; k < c->plan.n_ops; k++)
            if (seen[k] && !before[k])
                c->op_s[k] = c->ceilings[c->n - 1].time_us / 1e6;
        free(before);
        if (c->plan.ops[i].kind == OP_ADAMW)
            rc = read_scalars(c, scalars); /* what was timed did update */
    }
out:
    free(scalars);
    free(seen);
    return agree(rc, c->job->world);
}
