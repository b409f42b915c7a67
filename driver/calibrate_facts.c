/* What the ops of the plan took, as facts of the machine that cost.h reckons with. */
#include <math.h>
#include <string.h>

#include "base/err.h"
#include "driver/calibrate_parts.h"
#include "workloads/cost.h"

struct sums { /* over all kernels of the plan */
    double product_flops, product_s, attention_flops, attention_s, bytes, bytes_s;
    double best_product; /* FLOP/s of the best op */
};

/* What the launch does not explain; never nothing. */
static double work_s(const struct calibration *c, int op)
{
    return fmax(c->op_s[op] - c->launch_s, 0.1 * c->op_s[op]);
}

static struct sums sum_up(const struct calibration *c)
{
    struct sums s = {0};
    for (int i = 0; i < c->plan.n_ops; i++) {
        struct cost_work work;
        if (!(c->op_s[i] > 0))
            continue;
        cost_work(&c->plan.ops[i], &work);
        if (work.product_flops > 0) {
            s.product_flops += work.product_flops;
            s.product_s += work_s(c, i);
            s.best_product = fmax(s.best_product, work.product_flops / c->op_s[i]);
        } else if (work.attention_flops > 0) {
            s.attention_flops += work.attention_flops;
            s.attention_s += work_s(c, i);
        } else if (work.bytes > 0) {
            s.bytes += work.bytes;
            s.bytes_s += work_s(c, i);
        }
    }
    return s;
}

static enum fact_kind peak_of(const struct calibration *c)
{
    if (c->plan.dtype == DTYPE_BF16)
        return FACT_BF16;
    return c->plan.tf32 ? FACT_TF32 : FACT_FP32;
}

/* A share of a peak: the peak is at least what the best product of the plan reached. */
static void set_shares(struct calibration *c, const struct sums *s)
{
    struct fact *peak = &c->topology.fact[peak_of(c)];
    if (s->best_product > peak->value)
        calibrate_fact(peak, s->best_product,
                       "scalestudy calibrate: fastest product of the steps of %s", c->model.name);
    if (s->product_s > 0)
        calibrate_fact(&c->topology.fact[FACT_GEMM_SHARE],
                       fmin(1, s->product_flops / s->product_s / peak->value),
                       "scalestudy calibrate: products of a step of %s, each alone", c->model.name);
    if (s->attention_s > 0)
        calibrate_fact(&c->topology.fact[FACT_ATTENTION_SHARE],
                       fmin(1, s->attention_flops / s->attention_s / peak->value),
                       "scalestudy calibrate: attention of a step of %s, each alone",
                       c->model.name);
}

/* Kernels whose data lies in caches move more than memory does: then theirs is the rate. */
static void set_memory(struct calibration *c, const struct sums *s)
{
    struct fact *rate = &c->topology.fact[FACT_MEMORY_RATE];
    double kernels = s->bytes_s > 0 ? s->bytes / s->bytes_s : rate->value;
    if (kernels > rate->value)
        calibrate_fact(rate, kernels,
                       "scalestudy calibrate: memory-bound kernels of a step of %s, above a copy",
                       c->model.name);
    calibrate_fact(&c->topology.fact[FACT_MEMORY_SHARE], kernels / rate->value,
                   "scalestudy calibrate: memory-bound kernels of a step of %s, each alone",
                   c->model.name);
}

int calibrate_facts(struct calibration *c)
{
    const struct discover_rank *me = &c->job->found.ranks[c->job->rank];
    const struct discover_host *host = &c->job->found.hosts[me->host];
    struct sums sums = sum_up(c);
    struct topology *t = &c->topology;
    set_shares(c, &sums);
    set_memory(c, &sums);
    calibrate_fact(&t->fact[FACT_LAUNCH], c->launch_s,
                   "scalestudy calibrate: a fill of 64 bytes, one after another");
    if (me->device_bytes > 0)
        calibrate_fact(&t->fact[FACT_MEMORY], (double)me->device_bytes,
                       "scalestudy calibrate: as the device tells");
    else
        calibrate_fact(&t->fact[FACT_MEMORY], (double)host->memory_bytes / host->ranks,
                       "scalestudy calibrate: of the host, a share of each of %d ranks",
                       host->ranks);
    snprintf(t->device, sizeof t->device, "%s",
             me->device[0] != '\0'    ? me->device
             : host->model[0] != '\0' ? host->model
                                      : "CPU");
    for (char *at = t->device; *at != '\0'; at++)
        if (*at == '"' || *at == '\\')
            *at = '\'';
    if (!(t->fact[FACT_GEMM_SHARE].value > 0) || !(t->fact[FACT_ATTENTION_SHARE].value > 0))
        return fail(FAIL_USAGE,
                    "calibrate: the plan of rank 0 has no matrix product or no attention, and the "
                    "topology needs both: take another --parallel");
    return 0;
}
