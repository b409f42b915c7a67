/* Copies of the device, and its large matrix products. */
#define _DEFAULT_SOURCE /* aligned host memory */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/rng.h"
#include "driver/agree.h"
#include "driver/calibrate_parts.h"
#include "driver/ceiling.h"
#include "driver/point_row.h"
#include "driver/watchdog.h"

enum { ROUNDS = 5, WITHIN_MOST = 1 << 30, HOST_BYTES = 128 << 20, PAGE = 4096 };

struct copy {
    struct device *device;
    void *to;
    const void *from;
    size_t bytes;
    bool down; /* to the host */
};

static void give_copy(void *arg)
{
    const struct copy *copy = arg;
    (copy->down ? copy->device->type->download : copy->device->type->upload)(
        copy->device, DEVICE_COMPUTE, copy->to, copy->from, copy->bytes);
}

/* `moved`: bytes that count for the rate, per byte that is copied. */
static const struct ceiling_row *time_copy(struct calibration *c, const char *shape,
                                           struct copy *copy, int moved)
{
    double samples[ROUNDS];
    calibrate_warm(copy->device, give_copy, copy);
    for (int i = 0; i < ROUNDS; i++)
        samples[i] = calibrate_time(copy->device, DEVICE_COMPUTE, give_copy, copy);
    struct ceiling_row *row = calibrate_row(c, "copy", shape);
    row->bytes = (double)copy->bytes * moved;
    calibrate_times(row, samples, ROUNDS, row->bytes, "B/s");
    return row;
}

static void copy_within(struct calibration *c)
{
    struct execute *e = &c->execute;
    int64_t half = c->plan.bytes[BUFFER_ACTIVATION] / 2 / PAGE * PAGE;
    size_t bytes = (size_t)(half < WITHIN_MOST ? half : WITHIN_MOST);
    if (bytes == 0)
        return;
    unsigned char *memory = e->memory[BUFFER_ACTIVATION];
    struct copy copy = {&e->device, memory + half, memory, bytes, false};
    const struct ceiling_row *row = time_copy(c, "within the device, read and written", &copy, 2);
    calibrate_fact(&c->topology.fact[FACT_MEMORY_RATE], row->rate,
                   "scalestudy calibrate: copy of %.0f MB, read and written", row->bytes / 2e6);
}

static void copy_to_host(struct calibration *c, void *host, size_t bytes)
{
    struct execute *e = &c->execute;
    int64_t least = c->plan.bytes[BUFFER_ACTIVATION];
    bytes = (int64_t)bytes < least ? bytes : (size_t)least;
    struct copy up = {&e->device, e->memory[BUFFER_ACTIVATION], host, bytes, false};
    struct copy down = {&e->device, host, e->memory[BUFFER_ACTIVATION], bytes, true};
    double rate = time_copy(c, "from pinned host memory", &up, 1)->rate;
    calibrate_fact(&c->topology.fact[FACT_TO_DEVICE], rate,
                   "scalestudy calibrate: %.0f MB from pinned memory", (double)bytes / 1e6);
    rate = time_copy(c, "to pinned host memory", &down, 1)->rate;
    calibrate_fact(&c->topology.fact[FACT_TO_HOST], rate,
                   "scalestudy calibrate: %.0f MB to pinned memory", (double)bytes / 1e6);
}

int calibrate_copies(struct calibration *c)
{
    const struct device_type *type = c->execute.device.type;
    float *host = NULL;
    int rc = agree_barrier(c->job->world);
    watchdog_at("calibrate", HOST_BYTES, "copies");
    copy_within(c);
    if (rc == 0 && posix_memalign((void **)&host, PAGE, HOST_BYTES) != 0)
        rc = fail(FAIL_INTERNAL, "calibrate: no %d bytes of host memory", HOST_BYTES);
    if (rc == 0 && type->pin != NULL)
        rc = type->pin(&c->execute.device, host, HOST_BYTES);
    if (rc == 0) {
        rng_fill_normal(host, HOST_BYTES / sizeof *host, rng_key(1, "calibrate.host"), 0, 1.0f);
        copy_to_host(c, host, HOST_BYTES);
        if (type->unpin != NULL)
            type->unpin(&c->execute.device, host);
    }
    free(host);
    return agree(rc, c->job->world);
}

/* ---- peaks ---- */

static int peak(struct calibration *c, enum fact_kind kind, int64_t size, enum dtype dtype,
                bool tf32)
{
    struct ceiling_gemm gemm = {size, dtype, tf32};
    const char *name = tf32 ? "tf32" : dtype_name((int)dtype);
    double rate = 0, flops = 2.0 * (double)size * (double)size * (double)size;
    char shape[64];
    int rc = ceiling_gemm(&c->job->backend, &gemm, (uint64_t)c->job->study.seed, &rate);
    if (rc != 0)
        return rc;
    snprintf(shape, sizeof shape, "gemm %lld^3, the fastest", (long long)size);
    struct ceiling_row *row = calibrate_row(c, "peak", shape);
    point_text(row->dtype, sizeof row->dtype, name);
    double seconds = flops / rate;
    row->flops = flops;
    calibrate_times(row, &seconds, 1, flops, "FLOP/s");
    calibrate_fact(&c->topology.fact[kind], rate,
                   "scalestudy calibrate: fastest %s GEMM %lld^3, one rank alone", name,
                   (long long)size);
    return 0;
}

int calibrate_peaks(struct calibration *c)
{
    enum { ON_CPU = 768, ON_GPU = 8192 };
    bool gpu = c->job->backend.device->probe != NULL;
    int64_t size = gpu ? ON_GPU : ON_CPU;
    int rc = 0;
    watchdog_at("calibrate", size, "matrix products of rank 0");
    if (c->job->rank == 0) {
        TRY(peak(c, FACT_FP32, size, DTYPE_F32, false));
        if (gpu)
            TRY(peak(c, FACT_TF32, size, DTYPE_F32, true));
        if (gpu || c->plan.dtype == DTYPE_BF16)
            TRY(peak(c, FACT_BF16, size, DTYPE_BF16, false));
    }
out:
    return agree(rc, c->job->world);
}
