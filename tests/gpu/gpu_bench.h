/*
 * gpu_bench: one op of the "cuda" set, its tensors full of normals, and its time between events.
 *
 * Tensors are filled by copies of one block of random numbers; a tensor is an allocation of its own.
 */
#ifndef TESTS_GPU_BENCH_H
#define TESTS_GPU_BENCH_H

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/rng.h"
#include "base/units.h"
#include "workloads/kernels/kernels.h"

enum { BENCH_ROUNDS = 1000, BENCH_BLOCK = 1 << 22 };

struct bench {
    struct device device;
    cudaStream_t stream;
    struct op op;
    struct kernel_context context;
    struct plan plan;
    void *memory[OP_TENSORS];
    size_t bytes[OP_TENSORS];
    int rounds;
    cudaEvent_t begin[BENCH_ROUNDS], end[BENCH_ROUNDS];
    void *normals16, *normals32; /* [BENCH_BLOCK] on the device */
};

static inline void bench_must(unsigned wrong, const char *what)
{
    if (wrong) {
        printf("%s failed (%u) %s\n", what, wrong, fail_message());
        exit(1);
    }
}

static inline uint16_t bench_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline void bench_fill_blocks(struct bench *b)
{
    float *x = must_alloc(BENCH_BLOCK, sizeof *x);
    uint16_t *half = must_alloc(BENCH_BLOCK, sizeof *half);
    rng_fill_normal(x, BENCH_BLOCK, rng_key(1, "bench"), 0, 1);
    for (int i = 0; i < BENCH_BLOCK; i++)
        half[i] = bench_bf16(x[i]);
    bench_must(cudaMalloc(&b->normals32, BENCH_BLOCK * sizeof *x), "memory");
    bench_must(cudaMalloc(&b->normals16, BENCH_BLOCK * sizeof *half), "memory");
    cudaMemcpy(b->normals32, x, BENCH_BLOCK * sizeof *x, cudaMemcpyHostToDevice);
    cudaMemcpy(b->normals16, half, BENCH_BLOCK * sizeof *half, cudaMemcpyHostToDevice);
    free(x);
    free(half);
}

static inline int bench_open(struct bench *b, int rounds)
{
    const struct device_type *type;
    memset(b, 0, sizeof *b);
    if (device_find("cuda", &type) != 0 || device_open(&b->device, type, 0, 1) != 0) {
        printf("skipped: %s\n", fail_message());
        return 77;
    }
    b->rounds = rounds < 1 ? 1 : rounds < BENCH_ROUNDS ? rounds : BENCH_ROUNDS;
    b->stream = type->native(&b->device, 0);
    for (int i = 0; i < b->rounds; i++)
        bench_must(cudaEventCreate(&b->begin[i]) || cudaEventCreate(&b->end[i]), "events");
    bench_fill_blocks(b);
    b->op.dtype = DTYPE_BF16;
    return 0;
}

static inline void bench_clear(struct bench *b)
{
    for (int t = 0; t < OP_TENSORS; t++) {
        if (b->memory[t])
            b->device.type->free(&b->device, DEVICE_ACTIVATIONS, b->memory[t], b->bytes[t]);
        b->memory[t] = NULL;
    }
    memset(&b->op, 0, sizeof b->op);
    memset(&b->plan, 0, sizeof b->plan);
    b->op.dtype = DTYPE_BF16;
}

static inline void bench_close(struct bench *b)
{
    for (int i = 0; i < b->rounds; i++) {
        cudaEventDestroy(b->begin[i]);
        cudaEventDestroy(b->end[i]);
    }
    cudaFree(b->normals16);
    cudaFree(b->normals32);
    device_close(&b->device);
}

static inline void *bench_at(const struct bench *b, int t)
{
    return b->memory[t];
}

static inline void bench_alloc(struct bench *b, int t, size_t bytes)
{
    b->bytes[t] = bytes;
    int rc = b->device.type->alloc(&b->device, DEVICE_ACTIVATIONS, bytes, &b->memory[t]);
    bench_must(rc != 0, "alloc");
    b->op.t[t] = (struct tensor){.buffer = t + 1};
    b->context.base[t + 1] = b->memory[t];
}

/* Tensor t of n elements, full of normals; fp64 ones are 0. */
static inline void bench_take(struct bench *b, int t, enum dtype type, int64_t n)
{
    size_t size = dtype_size((int)type), block = BENCH_BLOCK * size, bytes = (size_t)n * size;
    bench_alloc(b, t, bytes);
    const void *from = type == DTYPE_BF16 ? b->normals16 : b->normals32;
    for (size_t at = 0; type != DTYPE_F64 && at < bytes; at += block)
        cudaMemcpyAsync((unsigned char *)b->memory[t] + at, from,
                        bytes - at < block ? bytes - at : block, cudaMemcpyDeviceToDevice,
                        b->stream);
}

static inline void bench_tokens(struct bench *b, int t, int64_t n, int64_t below)
{
    int32_t *tokens = must_alloc((size_t)n, sizeof *tokens);
    uint64_t key = rng_key(2, "bench.tokens");
    for (int64_t i = 0; i < n; i++)
        tokens[i] = (int32_t)rng_below(key, (uint64_t)i, (uint32_t)below);
    bench_alloc(b, t, (size_t)n * sizeof *tokens);
    cudaMemcpy(b->memory[t], tokens, (size_t)n * sizeof *tokens, cudaMemcpyHostToDevice);
    free(tokens);
}

static inline void bench_ones(struct bench *b, int t, int64_t n)
{
    bench_alloc(b, t, (size_t)n);
    cudaMemset(b->memory[t], 1, (size_t)n);
}

/* Scalars with which AdamW updates. */
static inline void bench_scalars(struct bench *b, int t)
{
    double s[SCALARS] = {0};
    s[SCALAR_SCALE] = 1e-3, s[SCALAR_LR] = 1e-4, s[SCALAR_STEP] = 10;
    bench_alloc(b, t, sizeof s);
    cudaMemcpy(b->memory[t], s, sizeof s, cudaMemcpyHostToDevice);
}

static inline void bench_begin(struct bench *b, int round)
{
    if (round >= 0)
        bench_must(cudaEventRecord(b->begin[round], b->stream), "event");
}
static inline void bench_end(struct bench *b, int round)
{
    if (round >= 0)
        bench_must(cudaEventRecord(b->end[round], b->stream), "event");
}

static inline int bench_compare(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Seconds, of the rounds since bench_begin(0). */
static inline double bench_median(struct bench *b)
{
    static float ms[BENCH_ROUNDS];
    bench_must(cudaStreamSynchronize(b->stream), "sync");
    for (int i = 0; i < b->rounds; i++)
        bench_must(cudaEventElapsedTime(&ms[i], b->begin[i], b->end[i]), "elapsed");
    qsort(ms, (size_t)b->rounds, sizeof ms[0], bench_compare);
    return (double)ms[b->rounds / 2] / 1e3;
}

/* A GPU that just worked is slower than one that rested. */
static inline void bench_rest(void)
{
    units_sleep_ns(300000000);
}

/* With BENCH_TURNS another program measures in turn: a line is measured when it says so on stdin. */
static inline bool bench_in_turn(void)
{
    return getenv("BENCH_TURNS") != NULL;
}
static inline void bench_turn(void)
{
    char line[16];
    if (!bench_in_turn())
        return;
    fflush(stdout);
    if (fgets(line, sizeof line, stdin) == NULL)
        exit(0);
}

/* With BENCH_CHOICES: what the set chose by measurement. */
static inline void bench_choices(const struct bench *b)
{
    static char text[16384];
    if (getenv("BENCH_CHOICES") == NULL)
        return;
    kernels_cuda.describe(&b->context, text, sizeof text);
    for (char *line = strchr(text, '\n'); line != NULL; line = strchr(line + 1, '\n'))
        printf("# %.*s\n", (int)strcspn(line + 1, "\n"), line + 1);
}

/* Seconds of one run of the op; NaN, with the reason printed, where the set refuses it. */
static inline double bench_op(struct bench *b, enum op_kind kind)
{
    b->op.kind = kind;
    b->plan.ops = &b->op;
    b->plan.n_ops = 1;
    if (kernels_cuda.open(&b->context, &b->plan, &b->device) != 0) {
        printf("%s\n", fail_message());
        fail_clear();
        kernels_cuda.close(&b->context);
        return (double)NAN;
    }
    bench_choices(b);
    bench_rest();
    for (int i = -3; i < b->rounds; i++) {
        bench_begin(b, i);
        kernels_cuda.run[kind](&b->op, &b->context, b->stream);
        bench_end(b, i);
    }
    double seconds = bench_median(b);
    kernels_cuda.close(&b->context);
    return seconds;
}

/* Bytes a second that a copy reads and writes. */
static inline double bench_copy(struct bench *b, int64_t bytes)
{
    bench_alloc(b, 0, (size_t)bytes);
    bench_alloc(b, 1, (size_t)bytes);
    for (int i = -3; i < b->rounds; i++) {
        bench_begin(b, i);
        cudaMemcpyAsync(b->memory[1], b->memory[0], (size_t)bytes, cudaMemcpyDeviceToDevice,
                        b->stream);
        bench_end(b, i);
    }
    double seconds = bench_median(b);
    bench_clear(b);
    return 2 * (double)bytes / seconds;
}

#endif
