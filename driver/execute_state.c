/* The training state of an executor: from the generator, back to the host, and its digest. */
#include "driver/execute.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/bf16.h"
#include "base/err.h"
#include "base/rng.h"
#include "driver/execute_fence.h"
#include "driver/state.h"
#include "driver/watchdog.h"
#include "workloads/memory.h"

/* ---- scratch copies ---- */

void execute_scratch_free(struct execute *e)
{
    for (int b = 1; b < PLAN_BUFFERS; b++)
        if (e->scratch[b])
            e->device.type->free(&e->device, DEVICE_TEMPORARIES, e->scratch[b],
                                 (size_t)e->plan->bytes[b]);
    memset(e->scratch, 0, sizeof e->scratch);
}

/* On a GPU scratch leaves room for what libraries take later. */
static bool has_room_for_scratch(struct execute *e)
{
    static const int64_t kept = INT64_C(2) << 30;
    struct device_memory memory;
    int64_t bytes = 0;
    if (e->device.type->probe == NULL)
        return true;
    for (int b = 1; b < PLAN_BUFFERS; b++)
        bytes += execute_is_state(b) ? e->plan->bytes[b] : 0;
    e->device.type->memory(&e->device, &memory);
    return memory.process_bytes + bytes + kept <= memory.capacity_bytes;
}

/* A refusal is no failure: the variants then run on the real state. */
void execute_scratch_take(struct execute *e)
{
    if (!has_room_for_scratch(e))
        return;
    for (int b = 1; b < PLAN_BUFFERS; b++) {
        void *memory = NULL;
        if (!execute_is_state(b) || e->plan->bytes[b] == 0)
            continue;
        if (e->device.type->alloc(&e->device, DEVICE_TEMPORARIES, (size_t)e->plan->bytes[b],
                                  &memory) != 0) {
            fail_clear();
            execute_scratch_free(e);
            return;
        }
        e->scratch[b] = memory;
    }
}

enum { PIECE_BYTES = 8 << 20 };

bool execute_is_state(int buffer)
{
    return memory_is_state(buffer);
}

/* ---- from the generator ---- */

static void clear_buffer(struct execute *e, int buffer, const void *zeros, size_t piece)
{
    size_t bytes = (size_t)e->plan->bytes[buffer];
    if (e->device.type->fill != NULL)
        e->device.type->fill(&e->device, DEVICE_COMPUTE, e->memory[buffer], 0, bytes);
    for (size_t at = 0; at < bytes && e->device.type->fill == NULL; at += piece)
        e->device.type->upload(&e->device, DEVICE_COMPUTE, e->memory[buffer] + at, zeros,
                               bytes - at < piece ? bytes - at : piece);
}

/* n values to a tensor of a dtype; rounding is in place, since `values` is done with. */
static void put(struct execute *e, struct tensor to, enum dtype dtype, float *values, int64_t n)
{
    uint16_t *rounded = (uint16_t *)(void *)values;
    if (to.buffer == BUFFER_NONE)
        return;
    for (int64_t i = 0; i < n && dtype == DTYPE_BF16; i++) {
        float value;
        memcpy(&value, &values[i], sizeof value);
        uint16_t half = bf16_of(value);
        memcpy(&rounded[i], &half, sizeof half);
    }
    e->device.type->upload(&e->device, DEVICE_COMPUTE, e->memory[to.buffer] + to.offset, values,
                           (size_t)n * dtype_size((int)dtype));
    e->device.type->sync(&e->device);
}

void execute_upload_tensor(struct execute *e, struct tensor tensor, enum dtype dtype, float *values,
                           int64_t n)
{
    put(e, tensor, dtype, values, n);
}

static int64_t largest_tensor(const struct plan *plan)
{
    int64_t most = PIECE_BYTES / (int64_t)sizeof(float);
    for (int i = 0; i < plan->n_tensors; i++) {
        int64_t n = plan->tensors[i].rows * plan->tensors[i].columns;
        most = n > most ? n : most;
    }
    return most;
}

struct fill {
    struct execute *e;
    const struct plan_tensor *tensor;
    uint64_t key;
    float *out; /* of element `first` of the tensor */
    int64_t first;
};

static void *compute_stream(struct execute *e)
{
    return e->device.type->native(&e->device, DEVICE_COMPUTE);
}

/* Buffers were cleared: what does not exist is 0, and so is what starts as 0. */
static void fill_run(void *arg, int64_t whole_first, int64_t local_first, int64_t count)
{
    const struct fill *fill = arg;
    const struct plan_tensor *t = fill->tensor;
    int64_t valid = state_run_valid(t, whole_first, count);
    if (valid > 0 && (t->sigma > 0 || t->sigma < 0))
        fill->e->kernels->fill(fill->out + (local_first - fill->first), valid, fill->key,
                               (uint64_t)whole_first, (float)t->sigma, compute_stream(fill->e));
}

/* As reset_piece, without the host. */
static void reset_piece_there(struct execute *e, const struct op *op,
                              const struct plan_piece *piece, uint64_t seed)
{
    const struct plan_tensor *tensor = &e->plan->tensors[piece->tensor];
    struct fill fill = {.e = e,
                        .tensor = tensor,
                        .key = rng_key(seed, tensor->name),
                        .out = tensor_at(&e->context, op->t[0]),
                        .first = piece->first};
    struct op cast = {.kind = OP_CAST,
                      .t = {op->t[0], op->t[5]},
                      .shape.cast = {piece->count, DTYPE_F32, e->plan->dtype}};
    plan_piece_runs(e->plan, piece, fill_run, &fill);
    if (op->t[5].buffer == BUFFER_NONE)
        return;
    if (e->plan->dtype == DTYPE_BF16)
        e->kernels->run[OP_CAST](&cast, &e->context, compute_stream(e));
    else
        e->device.type->upload(&e->device, DEVICE_COMPUTE, tensor_at(&e->context, op->t[5]),
                               fill.out, (size_t)piece->count * sizeof(float));
}

/* Masters of the pieces, and their rounded copies where the update writes some; sharded weights are
 * gathered from the masters by the step itself. */
static void reset_pieces(struct execute *e, uint64_t seed, float *host)
{
    const struct plan *plan = e->plan;
    for (int b = 1; b < PLAN_BUFFERS; b++)
        e->context.base[b] = e->memory[b]; /* not the scratch of a block before */
    for (int i = 0, piece = 0; i < plan->n_ops; i++) {
        const struct op *op = &plan->ops[i];
        if (op->kind != OP_ADAMW)
            continue;
        const struct plan_piece *p = &plan->pieces[piece++];
        watchdog_at("initial values", piece, "of a piece");
        if (e->kernels->fill != NULL) {
            reset_piece_there(e, op, p, seed);
            continue;
        }
        state_initial(plan, p, seed, e->threads, host);
        put(e, op->t[0], DTYPE_F32, host, p->count); /* leaves the values as they are */
        put(e, op->t[5], plan->dtype, host, p->count);
    }
}

/* What is counted starts again; there are no values to give to kernels that compute nothing. */
static void reset_counts(struct execute *e)
{
    static const double zeros[SCALARS];
    clear_buffer(e, BUFFER_SCALAR, zeros, sizeof zeros);
    e->device.type->sync(&e->device);
    e->consumed = e->global_steps = e->micro_steps = 0;
}

void execute_reset(struct execute *e, uint64_t seed)
{
    if (e->kernels->no_numerics) {
        reset_counts(e);
        return;
    }
    int64_t most = largest_tensor(e->plan);
    float *host = must_alloc((size_t)most, sizeof *host);
    for (int b = 1; b < PLAN_BUFFERS; b++)
        if (execute_is_state(b))
            clear_buffer(e, b, host, (size_t)most * sizeof *host);
    e->device.type->sync(&e->device);
    reset_pieces(e, seed, host);
    e->device.type->sync(&e->device);
    free(host);
    e->consumed = e->global_steps = e->micro_steps = 0;
}

/* ---- back to the host ---- */

void execute_download_tensor(struct execute *e, struct tensor tensor, enum dtype dtype, int64_t n,
                             float *out)
{
    size_t size = dtype_size((int)dtype);
    unsigned char *raw = (unsigned char *)out;
    if (dtype != DTYPE_F32 && dtype != DTYPE_BF16)
        BUG("download of %s", dtype_name((int)dtype));
    if (dtype == DTYPE_BF16)
        raw += (size_t)n * (sizeof *out - size); /* the second half: widened from its start on */
    e->device.type->download(&e->device, DEVICE_COMPUTE, raw,
                             e->memory[tensor.buffer] + tensor.offset, (size_t)n * size);
    e->device.type->sync(&e->device);
    for (int64_t i = 0; i < n && dtype == DTYPE_BF16; i++) {
        uint16_t half;
        memcpy(&half, raw + (size_t)i * size, sizeof half);
        out[i] = bf16_to_float(half);
    }
}

void execute_download(struct execute *e, enum plan_buffer buffer, int64_t first, int64_t n,
                      float *out)
{
    enum dtype dtype = buffer == BUFFER_PARAMETER ? e->plan->dtype : DTYPE_F32;
    struct tensor tensor = {(int)buffer, first * (int64_t)dtype_size((int)dtype)};
    execute_download_tensor(e, tensor, dtype, n, out);
}

void execute_sums(struct execute *e, struct tensor tensor, int64_t n, uint64_t key, double sums[2])
{
    e->device.type->sync(&e->device);
    if (e->kernels->sums != NULL) {
        const float *there = (const float *)(void *)(e->memory[tensor.buffer] + tensor.offset);
        e->kernels->sums(there, n, key, sums, compute_stream(e));
        return;
    }
    float *values = must_alloc((size_t)n + 1, sizeof *values);
    execute_download_tensor(e, tensor, DTYPE_F32, n, values);
    sums[0] = sums[1] = 0;
    for (int64_t i = 0; i < n; i++) {
        sums[0] += (double)values[i] * (double)values[i];
        sums[1] += (double)rng_sign(key, (uint64_t)i) * (double)values[i];
    }
    free(values);
}

static uint64_t digest_there(struct execute *e)
{
    uint64_t digest = 0;
    e->device.type->sync(&e->device);
    for (int b = 1; b < PLAN_BUFFERS; b++)
        if (execute_is_state(b) && b != BUFFER_GRADIENT && e->plan->bytes[b] > 0)
            digest = rng_bits(
                digest, e->kernels->digest(e->memory[b], e->plan->bytes[b], compute_stream(e)));
    return digest;
}

uint64_t execute_digest(struct execute *e)
{
    if (e->kernels->digest != NULL)
        return digest_there(e);
    unsigned char *host = must_alloc(PIECE_BYTES, 1);
    XXH3_state_t *state = XXH3_createState();
    XXH3_64bits_reset(state);
    for (int b = 1; b < PLAN_BUFFERS; b++) {
        int64_t bytes = execute_is_state(b) && b != BUFFER_GRADIENT ? e->plan->bytes[b] : 0;
        for (int64_t at = 0; at < bytes; at += PIECE_BYTES) {
            size_t take = (size_t)(bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES);
            e->device.type->download(&e->device, DEVICE_COMPUTE, host, e->memory[b] + at, take);
            e->device.type->sync(&e->device);
            XXH3_64bits_update(state, host, take);
        }
    }
    uint64_t digest = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    free(host);
    return digest;
}

const struct kernel_work *execute_work(const struct execute *e)
{
    return &e->context.work;
}

double execute_wire_bytes(const struct execute *e, enum axis axis)
{
    double bytes = 0;
    for (int i = 0; i < e->n_comms; i++)
        if (e->comm[i].axis == axis)
            bytes += e->comm[i].posted_bytes;
    return bytes;
}
