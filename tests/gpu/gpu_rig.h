/*
 * gpu_rig: one op on the "cuda" device, its tensors, and a reference in fp64, for tests of kernels.
 *
 * A tensor is made on the host, rounded to the type that the kernel sees, and kept as doubles: so
 * the reference works on the very numbers of the kernel, and an error is the kernel's own. Each
 * tensor is an allocation of its own in an arena of its own, `shift` elements into it: 0 for the
 * widest accesses, an odd number for the narrow ones. What an op must write is poisoned before.
 *
 * What an error is and where bounds come from: gpu_bounds.h.
 */
#ifndef TESTS_GPU_RIG_H
#define TESTS_GPU_RIG_H

#include <cuda_runtime_api.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/rng.h"
#include "tests/gpu/gpu_bounds.h"
#include "tests/gpu/gpu_threads.h"
#include "tests/test.h"
#include "workloads/kernels/cuda.h"
#include "workloads/kernels/kernels.h"

struct gpu_tensor {
    enum dtype type;
    int64_t n;
    double *value; /* [n] as uploaded; NULL: not used */
    void *memory;  /* on the device */
    size_t bytes;
};

struct gpu_rig {
    struct device device; /* shared by all ops of a program */
    struct op op;
    struct kernel_context context;
    struct plan plan;
    struct gpu_tensor t[OP_TENSORS];
    int64_t shift;
    uint64_t stream; /* of random numbers */
    bool older;      /* fused attention as a card before Hopper has it */
};

/* 77 (skipped) with a word where there is no device. */
static inline int gpu_rig_open(struct gpu_rig *rig)
{
    const struct device_type *type;
    memset(rig, 0, sizeof *rig);
    if (device_find("cuda", &type) != 0 || device_open(&rig->device, type, 0, 1) != 0) {
        printf("skipped: %s\n", fail_message());
        return 77;
    }
    return 0;
}

static inline void gpu_rig_close(struct gpu_rig *rig)
{
    device_close(&rig->device);
}

static inline void gpu_must(int rc)
{
    if (rc != 0) {
        printf("%s\n", fail_message());
        exit(1);
    }
}

/* ---- types ---- */

static inline uint16_t gpu_to_bf16(double x)
{
    float f = (float)x;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if (isnan(f))
        return 0x7fff;
    bits += 0x7fff + (bits >> 16 & 1); /* to nearest, ties to even */
    return (uint16_t)(bits >> 16);
}

static inline double gpu_from_bf16(uint16_t x)
{
    uint32_t bits = (uint32_t)x << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return (double)f;
}

static inline void gpu_pack(enum dtype type, void *to, int64_t i, double x)
{
    if (type == DTYPE_BF16)
        ((uint16_t *)to)[i] = gpu_to_bf16(x);
    else if (type == DTYPE_F32)
        ((float *)to)[i] = (float)x;
    else if (type == DTYPE_I32)
        ((int32_t *)to)[i] = (int32_t)x;
    else if (type == DTYPE_U8)
        ((uint8_t *)to)[i] = (uint8_t)x;
    else
        ((double *)to)[i] = x;
}

static inline double gpu_unpack(enum dtype type, const void *from, int64_t i)
{
    if (type == DTYPE_BF16)
        return gpu_from_bf16(((const uint16_t *)from)[i]);
    if (type == DTYPE_F32)
        return (double)((const float *)from)[i];
    if (type == DTYPE_I32)
        return ((const int32_t *)from)[i];
    if (type == DTYPE_U8)
        return ((const uint8_t *)from)[i];
    return ((const double *)from)[i];
}

/* ---- tensors ---- */

/* Elements between the host's doubles and what the device has. */
struct gpu_move {
    enum dtype type;
    void *packed;
    double *value;
    uint64_t key; /* of random numbers */
    double scale;
};

static inline void gpu_pack_piece(void *arg, int64_t first, int64_t end)
{
    struct gpu_move *move = arg;
    for (int64_t i = first; i < end; i++) {
        gpu_pack(move->type, move->packed, i, move->value[i]);
        move->value[i] = gpu_unpack(move->type, move->packed, i);
    }
}

static inline void gpu_unpack_piece(void *arg, int64_t first, int64_t end)
{
    struct gpu_move *move = arg;
    for (int64_t i = first; i < end; i++)
        move->value[i] = gpu_unpack(move->type, move->packed, i);
}

static inline void gpu_random_piece(void *arg, int64_t first, int64_t end)
{
    struct gpu_move *move = arg;
    for (int64_t i = first; i < end; i++)
        move->value[i] = move->scale * (double)rng_normal(move->key, (uint64_t)i);
}

/* Take memory for tensor t and upload t.value, which is rounded to what was uploaded. */
static inline void gpu_upload(struct gpu_rig *rig, int t)
{
    struct gpu_tensor *tensor = &rig->t[t];
    size_t size = dtype_size((int)tensor->type);
    int64_t offset = rig->shift * (int64_t)size;
    unsigned char *packed = must_alloc((size_t)tensor->n + 1, size);
    struct gpu_move move = {.type = tensor->type, .packed = packed, .value = tensor->value};
    gpu_parallel(tensor->n, GPU_GRAIN, gpu_pack_piece, &move);
    tensor->bytes = (size_t)offset + (size_t)tensor->n * size;
    gpu_must(
        rig->device.type->alloc(&rig->device, DEVICE_ACTIVATIONS, tensor->bytes, &tensor->memory));
    rig->op.t[t] = (struct tensor){.buffer = t + 1, .offset = offset};
    rig->context.base[t + 1] = tensor->memory;
    rig->plan.bytes[t + 1] = (int64_t)tensor->bytes;
    rig->device.type->upload(&rig->device, 0, (unsigned char *)tensor->memory + offset, packed,
                             (size_t)tensor->n * size);
    rig->device.type->sync(&rig->device);
    free(packed);
}

/* Tensor t, to be filled by the caller, then uploaded. */
static inline double *gpu_take(struct gpu_rig *rig, int t, enum dtype type, int64_t n)
{
    rig->t[t] = (struct gpu_tensor){.type = type, .n = n};
    return rig->t[t].value = must_alloc((size_t)n + 1, sizeof(double));
}

static inline double *gpu_random(struct gpu_rig *rig, int t, enum dtype type, int64_t n,
                                 double scale)
{
    double *x = gpu_take(rig, t, type, n);
    struct gpu_move move = {.value = x, .key = rng_key(rig->stream++, "gpu_rig"), .scale = scale};
    gpu_parallel(n, GPU_GRAIN, gpu_random_piece, &move);
    gpu_upload(rig, t);
    return x;
}

static inline void gpu_poison(struct gpu_rig *rig, int t, enum dtype type, int64_t n)
{
    double *x = gpu_take(rig, t, type, n);
    for (int64_t i = 0; i < n; i++)
        x[i] = (double)NAN;
    gpu_upload(rig, t);
}

static inline double *gpu_zeros(struct gpu_rig *rig, int t, enum dtype type, int64_t n)
{
    double *x = gpu_take(rig, t, type, n);
    gpu_upload(rig, t);
    return x;
}

/* What lies in tensor t now, owned by the caller: as bytes, and as values. */
static inline unsigned char *gpu_fetch_bytes(struct gpu_rig *rig, int t)
{
    struct gpu_tensor *tensor = &rig->t[t];
    size_t size = dtype_size((int)tensor->type);
    unsigned char *packed = must_alloc((size_t)tensor->n + 1, size);
    rig->device.type->download(&rig->device, 0, packed,
                               (unsigned char *)tensor->memory + rig->op.t[t].offset,
                               (size_t)tensor->n * size);
    rig->device.type->sync(&rig->device);
    return packed;
}

static inline double *gpu_fetch(struct gpu_rig *rig, int t)
{
    struct gpu_tensor *tensor = &rig->t[t];
    unsigned char *packed = gpu_fetch_bytes(rig, t);
    double *x = must_alloc((size_t)tensor->n + 1, sizeof *x);
    struct gpu_move move = {.type = tensor->type, .packed = packed, .value = x};
    gpu_parallel(tensor->n, GPU_GRAIN, gpu_unpack_piece, &move);
    free(packed);
    return x;
}

/* Forget all tensors and the op. */
static inline void gpu_clear(struct gpu_rig *rig)
{
    for (int t = 0; t < OP_TENSORS; t++) {
        free(rig->t[t].value);
        if (rig->t[t].memory)
            rig->device.type->free(&rig->device, DEVICE_ACTIVATIONS, rig->t[t].memory,
                                   rig->t[t].bytes);
    }
    struct gpu_rig kept = {
        .device = rig->device, .shift = rig->shift, .stream = rig->stream, .older = rig->older};
    kept.context.attention = rig->context.attention;
    kept.context.tf32 = rig->context.tf32;
    kept.context.deterministic = rig->context.deterministic;
    kept.context.search = rig->context.search;
    *rig = kept;
}

/* ---- runs ---- */

/* 0, or what open() refused with. */
static inline int gpu_open_op(struct gpu_rig *rig)
{
    rig->plan.ops = &rig->op;
    rig->plan.n_ops = 1;
    rig->plan.sealed = true;
    int rc = kernels_cuda.open(&rig->context, &rig->plan, &rig->device);
    if (rc != 0 || !rig->older)
        return rc;
    struct cuda_state *state = cuda_state(&rig->context);
    state->wgmma = false;
    CHECK(cuda_fused(&rig->op, state)->allow(&rig->op));
    return 0;
}

/* Whether attention of the rig's tensors may run on Hopper's own tensor cores. */
static inline bool gpu_is_hopper(const struct gpu_rig *rig, enum dtype type, int head)
{
    struct cudaDeviceProp card;
    return type == DTYPE_BF16 && (head == 64 || head == 128) && rig->shift == 0 &&
           cudaGetDeviceProperties(&card, 0) == cudaSuccess && card.major == 9;
}

/* Fused attention has kernels of this card and of older ones: those of the latter, too. */
static inline bool gpu_has_older(const struct gpu_rig *rig, enum dtype type, int head)
{
    return rig->context.attention == ATTENTION_FUSED && gpu_is_hopper(rig, type, head);
}

/* A set opened for this op alone, one run of it, and the set closed. */
static inline void gpu_run(struct gpu_rig *rig, enum op_kind kind)
{
    rig->op.kind = kind;
    gpu_must(gpu_open_op(rig));
    kernels_cuda.run[kind](&rig->op, &rig->context, rig->device.type->native(&rig->device, 0));
    rig->device.type->sync(&rig->device);
    kernels_cuda.close(&rig->context);
}

/* ---- checks ---- */

/* Compare tensor t with what is wanted; one line of the table. */
static inline void gpu_check(struct gpu_rig *rig, int t, const double *want, struct gpu_bound bound,
                             const char *what)
{
    double *got = gpu_fetch(rig, t);
    struct gpu_bound error = gpu_error(got, want, rig->t[t].n);
    bool ok = gpu_within(error, bound, want, rig->t[t].n);
    printf("%-44s %-5s max %8.2e of %7.1e  rms %8.2e of %7.1e%s\n", what,
           dtype_name((int)rig->t[t].type), error.most, bound.most, error.rms, bound.rms,
           ok ? "" : "  FAILED");
    CHECK(ok);
    free(got);
}

/* Run again with outputs as they were before: the same bits. `t`, -1: the tensors an op writes. */
static inline void gpu_check_same(struct gpu_rig *rig, enum op_kind kind, const int *t,
                                  const char *what)
{
    unsigned char *first[OP_TENSORS] = {0};
    bool same = true;
    for (int i = 0; t[i] >= 0; i++) {
        first[i] = gpu_fetch_bytes(rig, t[i]);
        rig->device.type->free(&rig->device, DEVICE_ACTIVATIONS, rig->t[t[i]].memory,
                               rig->t[t[i]].bytes);
        gpu_upload(rig, t[i]);
    }
    gpu_run(rig, kind);
    for (int i = 0; t[i] >= 0; i++) {
        unsigned char *again = gpu_fetch_bytes(rig, t[i]);
        size_t bytes = (size_t)rig->t[t[i]].n * dtype_size((int)rig->t[t[i]].type);
        same = same && memcmp(first[i], again, bytes) == 0;
        free(again);
        free(first[i]);
    }
    if (!same)
        printf("%-44s differs from run to run\n", what);
    CHECK(same);
}

static inline double *gpu_doubles(int64_t n)
{
    return must_alloc((size_t)n + 1, sizeof(double));
}

static inline bool gpu_small(int argc, char **argv)
{
    return argc > 1 && strcmp(argv[1], "small") == 0;
}

#define GPU_COUNT(list) (sizeof(list) / sizeof(list)[0])

#endif
