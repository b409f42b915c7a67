#include "driver/ceiling.h"

#include <stdlib.h>
#include <string.h>

#include "analysis/stats.h"
#include "base/err.h"
#include "base/rng.h"

enum { CEILING_CALLS = 9 };

static int gemm_plan(struct plan *plan, int64_t size)
{
    struct layout alone;
    struct degrees degrees = {0};
    int rc = 0;
    TRY(layout_parse("", &degrees));
    TRY(layout_init(&alone, 1, 1, 0, &degrees));
    plan_init(plan, &alone);
    struct op op = {.kind = OP_GEMM, .phase = PHASE_FORWARD, .layer = -1, .micro = -1};
    for (int i = 0; i < 3; i++) {
        op.t[i] = plan_take(plan, BUFFER_ACTIVATION, size * size * (int64_t)sizeof(float));
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

static void fill(struct execute *e, int64_t size, uint64_t seed)
{
    int64_t n = size * size;
    float *host = must_alloc((size_t)n, sizeof *host);
    for (int i = 0; i < 2; i++) {
        rng_fill_normal(host, n, rng_key(seed, i ? "ceiling.b" : "ceiling.a"), 0, 1.0f);
        e->device.type->upload(&e->device, DEVICE_COMPUTE,
                               e->memory[BUFFER_ACTIVATION] + e->plan->ops[0].t[i].offset, host,
                               (size_t)n * sizeof *host);
        e->device.type->sync(&e->device);
    }
    free(host);
}

int ceiling_gemm(const struct backend *backend, int64_t size, uint64_t seed, double *flops_per_s)
{
    struct plan plan;
    struct execute execute;
    struct execute_samples samples;
    double ns[CEILING_CALLS];
    int rc = 0, n = 0;
    memset(&plan, 0, sizeof plan);
    memset(&execute, 0, sizeof execute);
    TRY(gemm_plan(&plan, size));
    struct execute_config config = {
        .plan = &plan, .backend = backend, .max_steps = 1, .fault = {.drop_op = -1}};
    TRY(execute_open(&execute, &config));
    fill(&execute, size, seed);
    execute_block(&execute, VARIANT_FULL, 2, 1, 0, &samples);
    for (int64_t i = 1; i < samples.rows.ops.n; i++)
        ns[n++] = (double)samples.rows.ops.rows[i].duration_ns;
    execute_samples_release(&samples);
    double cube = (double)size * (double)size * (double)size;
    *flops_per_s = 2.0 * cube / (stats_quantile(ns, n, 0.0) / 1e9);
out:
    execute_close(&execute);
    plan_release(&plan);
    return rc;
}
