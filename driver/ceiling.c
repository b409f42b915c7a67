#include "driver/ceiling.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/stats.h"
#include "base/bf16.h"
#include "base/err.h"
#include "base/rng.h"

enum { CEILING_CALLS = 9 };

static int gemm_plan(struct plan *plan, const struct ceiling_gemm *gemm)
{
    int64_t size = gemm->size;
    struct layout alone;
    struct degrees degrees = {0};
    int rc = 0;
    TRY(layout_parse("", &degrees));
    TRY(layout_init(&alone, 1, 1, 0, &degrees));
    plan_init(plan, &alone);
    struct op op = {
        .kind = OP_GEMM, .phase = PHASE_FORWARD, .dtype = gemm->dtype, .layer = -1, .micro = -1};
    plan->dtype = gemm->dtype;
    plan->tf32 = gemm->tf32;
    for (int i = 0; i < 3; i++) {
        op.t[i] =
            plan_take(plan, BUFFER_ACTIVATION, size * size * (int64_t)dtype_size((int)gemm->dtype));
    }
    op.shape.gemm = (struct shape_gemm){
        .m = size, .n = size, .k = size, .m_valid = size, .n_valid = size, .k_valid = size};
    for (int i = 0; i < CEILING_CALLS; i++)
        plan_op(plan, &op);
    plan->global_batch = 1;
    rc = plan_seal(plan);
out:
    return rc;
}

/* Random numbers, the same run of them again and again: what matters is that they are no zeros. */
static void fill(struct execute *e, const struct ceiling_gemm *gemm, uint64_t seed)
{
    enum { RUN = 1 << 20 };
    int64_t n = gemm->size * gemm->size, size = (int64_t)dtype_size((int)gemm->dtype);
    float *values = must_alloc(RUN, sizeof *values);
    uint16_t *rounded = must_alloc(RUN, sizeof *rounded);
    const void *run = gemm->dtype == DTYPE_BF16 ? (const void *)rounded : values;
    for (int i = 0; i < 2; i++) {
        unsigned char *to = e->memory[BUFFER_ACTIVATION] + e->plan->ops[0].t[i].offset;
        rng_fill_normal(values, RUN, rng_key(seed, i ? "ceiling.b" : "ceiling.a"), 0, 1.0f);
        for (int64_t k = 0; k < RUN; k++)
            rounded[k] = bf16_of(values[k]);
        for (int64_t at = 0; at < n; at += RUN)
            e->device.type->upload(&e->device, DEVICE_COMPUTE, to + at * size, run,
                                   (size_t)((n - at < RUN ? n - at : RUN) * size));
        e->device.type->sync(&e->device);
    }
    free(values);
    free(rounded);
}

int ceiling_gemm(const struct backend *backend, const struct ceiling_gemm *gemm, uint64_t seed,
                 double *flops_per_s)
{
    struct plan plan;
    struct execute execute;
    struct execute_samples samples;
    double ns[CEILING_CALLS];
    int rc = 0, n = 0;
    memset(&plan, 0, sizeof plan);
    memset(&execute, 0, sizeof execute);
    TRY(gemm_plan(&plan, gemm));
    struct execute_config config = {
        .plan = &plan, .backend = backend, .max_steps = 1, .fault = {.drop_op = -1}};
    TRY(execute_open(&execute, &config));
    fill(&execute, gemm, seed);
    execute_block(&execute, VARIANT_FULL, 2, 1, 0, &samples);
    for (int64_t i = 1; i < samples.rows.ops.n; i++)
        ns[n++] = (double)samples.rows.ops.rows[i].duration_ns;
    execute_samples_release(&samples);
    double size = (double)gemm->size, cube = size * size * size;
    *flops_per_s = 2.0 * cube / (stats_quantile(ns, n, 0.0) / 1e9);
out:
    execute_close(&execute);
    plan_release(&plan);
    return rc;
}
