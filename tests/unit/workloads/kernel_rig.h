/*
 * kernel_rig: one op, its tensors, and a context to run it in, for tests of kernels.
 *
 * Each tensor is an allocation of its own in an arena of its own, so that a sanitizer sees a step
 * beyond its end; it lies 64 bytes into that arena, so that offsets count. What an op must write is
 * poisoned with NaN before: a value left out fails every comparison.
 */
#ifndef TESTS_KERNEL_RIG_H
#define TESTS_KERNEL_RIG_H

#include <stdlib.h>

#include "base/err.h"
#include "base/rng.h"
#include "tests/test.h"
#include "workloads/kernels/kernels.h"

enum { RIG_OFFSET = 64 };

struct rig {
    struct op op;
    struct kernel_context context;
};

static inline void *rig_tensor(struct rig *rig, int t, size_t bytes)
{
    int buffer = t + 1; /* 0 is BUFFER_NONE */
    rig->context.base[buffer] = must_alloc(1, RIG_OFFSET + bytes);
    rig->op.t[t] = (struct tensor){.buffer = buffer, .offset = RIG_OFFSET};
    return rig->context.base[buffer] + RIG_OFFSET;
}

/* n normals; every tensor of a program differs from the others. */
static inline float *rig_random(struct rig *rig, int t, int64_t n)
{
    static uint64_t stream;
    float *x = rig_tensor(rig, t, (size_t)n * sizeof *x);
    rng_fill_normal(x, n, rng_key(stream++, "rig"), 0, 1);
    return x;
}

static inline void rig_poison(float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = NAN;
}

static inline float *rig_poisoned(struct rig *rig, int t, int64_t n)
{
    float *x = rig_tensor(rig, t, (size_t)n * sizeof *x);
    rig_poison(x, n);
    return x;
}

static inline void rig_run(struct rig *rig, enum op_kind kind)
{
    rig->op.kind = kind;
    kernels_cpu.run[kind](&rig->op, &rig->context, NULL);
}

static inline void rig_release(struct rig *rig)
{
    for (int b = 0; b < PLAN_BUFFERS; b++)
        free(rig->context.base[b]);
    memset(rig, 0, sizeof *rig);
}

/* A copy in double, owned by the caller. */
static inline double *rig_double(const float *x, int64_t n)
{
    double *copy = must_alloc((size_t)n, sizeof *copy);
    for (int64_t i = 0; i < n; i++)
        copy[i] = (double)x[i];
    return copy;
}

static inline double rig_largest(const double *x, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fabs(x[i]) > most ? fabs(x[i]) : most;
    return most;
}

/* The largest |x - want| over the largest |want|; infinite when anything is NaN. */
static inline double rig_error(const float *x, const double *want, int64_t n)
{
    double most = 0, scale = rig_largest(want, n);
    for (int64_t i = 0; i < n; i++) {
        double error = fabs((double)x[i] - want[i]);
        if (!(error <= most))
            most = error;
        if (isnan(error))
            return INFINITY;
    }
    return scale > 0 ? most / scale : most;
}

/* The gradient g times a direction d, against the difference (above - below) / 2h. */
static inline double rig_inner(const float *g, const double *d, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)g[i] * d[i];
    return sum;
}

/* A random direction or projection of n values, owned by the caller. */
static inline double *rig_direction(int64_t n)
{
    static uint64_t stream;
    uint64_t key = rng_key(stream++, "direction");
    double *d = must_alloc((size_t)n, sizeof *d);
    for (int64_t i = 0; i < n; i++)
        d[i] = (double)rng_normal(key, (uint64_t)i);
    return d;
}

#define RIG_COUNT(list) (sizeof(list) / sizeof(list)[0])

#endif
