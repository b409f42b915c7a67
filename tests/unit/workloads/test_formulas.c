/*
 * The closed forms equal the sums over the plans of all ranks: bytes of every axis, operations, model
 * and hardware FLOPs, parameters, tokens; for random layouts and policies of both styles.
 */
#include "workloads/formulas.h"

#include <math.h>
#include <stdio.h>

#include "base/err.h"
#include "base/rng.h"
#include "tests/test.h"

enum { CASES = 400 };

struct sums {
    double bytes[AXIS_COUNT], model_flops, hardware_flops, ops, parameters, tokens;
    int64_t activations; /* of every rank */
};

static int pick(int i, const char *what, int n)
{
    return (int)rng_below(rng_key(11, what), (uint64_t)i, (uint32_t)n);
}

static void random_policy(struct policy *p, const struct model *model, int i, int dp)
{
    policy_defaults(p, model);
    p->micro_batch = 1 + pick(i, "micro", 2);
    p->global_batch = p->micro_batch * dp * (1 + pick(i, "batches", 3));
    p->dtype = pick(i, "dtype", 2) ? DTYPE_BF16 : DTYPE_F32;
    p->grad_dtype = pick(i, "grad", 2) ? DTYPE_BF16 : DTYPE_F32;
    p->bucket_bytes = 1 << (4 * pick(i, "bucket", 7));
    p->overlap_gradients = pick(i, "overlap grad", 2);
    p->overlap_parameters = pick(i, "overlap param", 2);
    p->overlap_tensor = pick(i, "overlap tensor", 2);
    p->sequence_parallel = pick(i, "rows", 2);
    p->recompute = (enum recompute)pick(i, "recompute", 4);
    p->recompute_every = 1 + pick(i, "every", 3);
    p->copy_stream = pick(i, "copy", 2);
    p->pack = CHOICE_OFF; /* the closed form of activations is that of all of them */
    p->shard_stage = 1 + pick(i, "stage", 3);
    p->fsdp_prefetch = pick(i, "prefetch", 3);
    p->fsdp_reshard = pick(i, "reshard", 3);
    p->reduce_every = pick(i, "reduce", 3);
    p->schedule = (enum schedule_kind)pick(i, "schedule", 4);
    p->virtual_stages = p->schedule == SCHEDULE_INTERLEAVED ? 2 : 1;
}

/* 0, or what refuses a rank's plan. */
static int add_up(struct sums *sums, const struct model *model, const struct policy *policy,
                  const struct degrees *degrees, int ranks)
{
    int rc = 0;
    *sums = (struct sums){0};
    for (int r = 0; r < ranks; r++) {
        struct layout layout;
        struct plan plan;
        TRY(layout_init(&layout, 1, ranks, r, degrees));
        TRY(transformer_plan(&plan, model, &layout, policy));
        for (int axis = 0; axis < AXIS_COUNT; axis++)
            sums->bytes[axis] += plan.totals.wire_bytes[axis];
        sums->model_flops += plan.totals.model_flops;
        sums->hardware_flops += plan.totals.hardware_flops;
        sums->tokens += (double)plan.totals.tokens;
        sums->ops += plan.n_ops;
        sums->parameters += (double)plan.n_parameters;
        CHECK(r == 0 || degrees->pp > 1 || plan.bytes[BUFFER_ACTIVATION] == sums->activations);
        sums->activations = plan.bytes[BUFFER_ACTIVATION];
        plan_release(&plan);
    }
out:
    return rc;
}

/* ---- memory of activations, to the byte ---- */

static int64_t aligned(int64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

struct activation_sizes {
    int64_t layer, input, attention, mlp, end; /* bytes: of a layer but its input and attention */
};

/* Per row that a rank holds between parts: x, two norms, x_2; per row of the micro-batch: q k v, the
 * output of attention with its fp32 statistics, both sides of the activation; logits. */
static struct activation_sizes measure_activations(const struct model *m, const struct policy *p,
                                                   int tp)
{
    int64_t e = p->dtype == DTYPE_BF16 ? 2 : 4, rows = p->micro_batch * m->sequence;
    int64_t local = p->sequence_parallel ? rows / tp : rows, f = m->ffn / tp;
    int64_t q = m->heads / tp * m->head;
    int64_t kv = (m->kv_heads > tp ? m->kv_heads / tp : 1) * m->head;
    bool gpt2 = m->style == MODEL_GPT2;
    int64_t matrix = aligned(local * m->hidden * e);
    int64_t statistics = (gpt2 ? 2 : 1) * aligned(local * 4);
    int64_t logits = aligned(rows / p->head_chunks * model_padded_vocabulary(m) / tp * e);
    return (struct activation_sizes){
        .layer = 3 * matrix + 2 * statistics + aligned(rows * (q + 2 * kv) * e) +
                 aligned(rows * f * (gpt2 ? 1 : 2) * e) + aligned(rows * f * e),
        .input = matrix,
        .attention = aligned(rows * q * e) + aligned(rows * m->heads / tp * 4),
        .mlp = aligned(rows * f * e),
        .end = 2 * matrix + statistics + logits};
}

static int64_t activation_bytes(const struct model *m, const struct policy *p, int tp)
{
    struct activation_sizes s = measure_activations(m, p, tp);
    int64_t again = (m->layers - 1) / p->recompute_every + 1, kept = m->layers - again;
    int64_t all = m->layers * s.input + s.end;
    if (p->recompute == RECOMPUTE_FULL) /* one set for all that are made again */
        return all + (kept + 1) * (s.layer + s.attention);
    if (p->recompute == RECOMPUTE_SELECTIVE)
        return all + m->layers * s.layer + (kept + 1) * s.attention;
    if (p->recompute == RECOMPUTE_MLP)
        return all + m->layers * (s.layer + s.attention) - (again - 1) * s.mlp;
    return all + m->layers * (s.layer + s.attention);
}

static bool near(const char *what, double found, double formula)
{
    if (CHECK(fabs(found - formula) <= 1e-12 * fabs(formula)))
        return true;
    printf("%s: plan %.17g, formula %.17g\n", what, found, formula);
    return false;
}

static void compare(const struct sums *s, const struct model *m, const struct policy *p,
                    const struct degrees *d, int ranks)
{
    bool good = true;
    for (int axis = 0; axis < AXIS_COUNT; axis++)
        good &=
            near(axis_name(axis), s->bytes[axis], ranks * formula_bytes(m, d, p, (enum axis)axis));
    double batch = (double)p->global_batch, ops = formula_ops(m, d, p);
    good &= near("model FLOPs", s->model_flops, batch * model_flops_per_sequence(m));
    good &= near("tokens", s->tokens, batch * (double)m->sequence);
    good &= near("hardware FLOPs", s->hardware_flops, batch * formula_hardware_flops(m, p));
    double second =
        m->tied && d->pp > 1 ? 256.0 * (double)m->hidden * d->dp * d->cp : 0; /* tables */
    good &=
        near("parameters", s->parameters, ranks / d->pp * formula_parameters(m, d->tp) + second);
    struct model part = *m; /* as many rows as one rank of cp has */
    part.sequence /= d->cp;
    bool has_more = d->pp > 1 || (d->cp > 1 && p->cp_kind == CP_ULYSSES);
    good &= has_more || CHECK(s->activations == activation_bytes(&part, p, d->tp));
    good &= ops < 0 || near("operations", s->ops, ops);
    if (!good)
        printf("  cp=%d kind %d pp=%d %s v=%d %s tp=%d dp=%d shard=%d sp=%d chunks=%d recompute=%d "
               "every=%d stage=%d "
               "reshard=%d reduce-every=%d micro=%d of %d bucket=%d\n",
               d->cp, (int)p->cp_kind, d->pp, schedule_name((int)p->schedule), p->virtual_stages,
               m->name, d->tp, d->dp, d->shard, p->sequence_parallel, p->tp_chunks,
               (int)p->recompute, p->recompute_every, p->shard_stage, p->fsdp_reshard,
               p->reduce_every, (int)p->micro_batch, (int)p->global_batch, (int)p->bucket_bytes);
}

/* `i` draws the case; 1 when it is legal. */
static int check_case(const struct model *model, int i)
{
    static const int tps[] = {1, 2, 4, 8, 16}, dps[] = {1, 2, 3, 4}, cps[] = {1, 1, 2, 4};
    struct degrees degrees = {0};
    struct policy policy;
    struct layout layout;
    struct sums sums;
    int tp = tps[pick(i, "tp", 5)], dp = dps[pick(i, "dp", 4)], shard = dp;
    if (dp == 4)
        shard = 1 << pick(i, "shard", 3);
    else if (pick(i, "sharded", 2) == 0)
        shard = 1;
    int pp = 1 + pick(i, "pp", 2) * pick(i, "stages", 4);
    int cp = cps[pick(i, "cp", 4)], ranks = tp * dp * pp * cp;
    degrees = (struct degrees){.tp = tp, .dp = dp, .shard = shard, .pp = pp, .cp = cp};
    random_policy(&policy, model, i, dp * pp);
    policy.cp_kind = (enum cp_kind)pick(i, "cp-kind", 3);
    policy.overlap_context = pick(i, "overlap cp", 2);
    policy.head_chunks = tp * pp == 1 ? 1 << pick(i, "head", 3) : 1;
    policy.tp_chunks = tp > 1 ? 1 + pick(i, "chunks", 2) : 1;
    if (layout_init(&layout, 1, ranks, 0, &degrees) != 0 ||
        add_up(&sums, model, &policy, &layout.degrees, ranks) != 0) {
        fail_clear();
        return 0;
    }
    compare(&sums, model, &policy, &layout.degrees, ranks);
    return 1;
}

int main(void)
{
    struct model models[3];
    int legal = 0;
    CHECK_EQ(model_load(&models[0], "tiny"), 0);
    CHECK_EQ(model_load(&models[1], "tiny-llama"), 0);
    models[0].layers = 3;
    models[0].vocabulary = 250; /* padded to 256 */
    models[1].layers = 4;
    models[2] = models[1];
    models[2].tied = true;
    models[2].kv_heads = 2; /* replicated from tp=4 on */
    for (int i = 0; i < CASES; i++)
        legal += check_case(&models[i % 3], i);
    CHECK(legal > CASES / 2);
    return test_end();
}
