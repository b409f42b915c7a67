#include "workloads/transformer.h"

#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/rng.h"
#include "base/units.h"
#include "workloads/build.h"
#include "workloads/pack.h"
#include "workloads/shard.h"

static const struct tensor no_tensor;

void policy_defaults(struct policy *policy, const struct model *model)
{
    *policy = (struct policy){.dtype = DTYPE_F32,
                              .grad_dtype = DTYPE_F32,
                              .bucket_bytes = 25 << 20,
                              .overlap_gradients = true,
                              .overlap_parameters = true,
                              .overlap_tensor = true,
                              .overlap_context = true,
                              .overlap_expert = true,
                              .overlap_pipeline = true,
                              .routing = {.kind = ROUTING_BALANCED, .balance = 0.01f},
                              .head_chunks = 1,
                              .tp_chunks = 1,
                              .sequence_parallel = true,
                              .recompute_every = 1,
                              .pack = CHOICE_ON,
                              .shard_stage = 3,
                              .fsdp_prefetch = 1,
                              .fsdp_reshard = CHOICE_AUTO,
                              .reduce_every = CHOICE_AUTO,
                              .schedule = SCHEDULE_1F1B,
                              .virtual_stages = 1,
                              .lr = (float)model->lr,
                              .lr_min = (float)model->lr / 10,
                              .beta1 = 0.9f,
                              .beta2 = 0.95f,
                              .epsilon = 1e-8f,
                              .weight_decay = 0.1f,
                              .clip = 1.0f,
                              .warm_up = 10,
                              .decay_steps = 1000};
}

bool policy_reshards(const struct policy *policy, int pp)
{
    return policy->fsdp_reshard == CHOICE_AUTO ? pp == 1 : policy->fsdp_reshard != CHOICE_OFF;
}

bool policy_reduces_every(const struct policy *policy, int pp)
{
    return policy->reduce_every == CHOICE_AUTO ? pp == 1 : policy->reduce_every != CHOICE_OFF;
}

struct schedule policy_schedule(const struct policy *policy, const struct degrees *degrees)
{
    int64_t unit = (int64_t)degrees->dp * policy->micro_batch;
    struct schedule schedule = {.kind = SCHEDULE_1F1B,
                                .stages = degrees->pp,
                                .micro_batches = (int)(policy->global_batch / unit),
                                .chunks = 1};
    if (degrees->pp > 1) {
        schedule.kind = policy->schedule;
        schedule.chunks = policy->virtual_stages;
    }
    return schedule;
}

/* Refuse in words what would exhaust the host while it is only being planned. */
static int check_size(const struct model *model, const struct policy *policy, int64_t micro_batches)
{
    double ops = (double)micro_batches * (30.0 * (double)model->layers + 9);
    double rows = (double)policy->micro_batch * (double)model->sequence;
    double width = (double)model->layers * (9.0 * (double)model->hidden + 2.0 * (double)model->ffn);
    double bytes = 4 * rows * (width + (double)model_padded_vocabulary(model));
    if (ops > 4e6)
        return fail(FAIL_USAGE,
                    "plan: %.3g micro-batches are %.3g operations a step; choose a "
                    "larger micro-batch or a smaller global batch",
                    (double)micro_batches, ops);
    if (bytes > 1e15)
        return fail(FAIL_USAGE,
                    "plan: activations of a micro-batch need %.3g bytes; choose a "
                    "smaller micro-batch, sequence or model",
                    bytes);
    return 0;
}

/* What a pipeline cannot have; else the schedule's own refusals. */
static int pipeline_check(const struct model *model, const struct layout *layout,
                          const struct policy *policy)
{
    const struct degrees *d = &layout->degrees;
    struct schedule schedule = policy_schedule(policy, d);
    if (d->pp > 1 && d->shard > 1 && policy->shard_stage == 2)
        return fail(FAIL_USAGE,
                    "layout: ZeRO-2 (--shard-stage 2) reduces gradients in every micro-batch, of "
                    "which pp=%d has several in flight; choose --shard-stage 1 or 3",
                    d->pp);
    if (d->pp > 1 && d->shard > 1 && policy->shard_stage == 3 &&
        policy_reduces_every(policy, d->pp))
        return fail(FAIL_USAGE,
                    "layout: pp=%d has several micro-batches in flight, so sharded gradients are "
                    "reduced in the last; choose --reduce last",
                    d->pp);
    return schedule_check(&schedule, model->layers);
}

static int check_head(const struct model *model, const struct layout *layout,
                      const struct policy *policy)
{
    const struct degrees *d = &layout->degrees;
    int64_t rows = policy->micro_batch * (model->sequence / d->cp);
    int n = policy->head_chunks, fewer = n;
    if (n > 1 && (d->tp > 1 || d->pp > 1))
        return fail(FAIL_USAGE,
                    "head-chunks: %d parts of the head with tp=%d and pp=%d, which cut it already; "
                    "choose 1",
                    n, d->tp, d->pp);
    if (n < 1)
        return fail(FAIL_USAGE, "head-chunks: found %d, wanted a number from 1", n);
    while (rows % fewer != 0)
        fewer--;
    if (fewer != n)
        return fail(FAIL_USAGE,
                    "head-chunks: %lld rows of a micro-batch do not split into %d parts; choose %d",
                    (long long)rows, n, fewer);
    return 0;
}

static int check_batch(const struct layout *layout, const struct policy *policy)
{
    const struct degrees *d = &layout->degrees;
    int64_t batch = policy->global_batch, unit = (int64_t)d->dp * policy->micro_batch;
    char nearest[64];
    if (policy->micro_batch < 1)
        return fail(FAIL_USAGE, "micro-batch: found %lld, wanted a number of samples from 1",
                    (long long)policy->micro_batch);
    if (batch > 0 && batch % unit == 0)
        return 0;
    if (batch > unit)
        snprintf(nearest, sizeof nearest, "%lld or %lld", (long long)(batch / unit * unit),
                 (long long)(batch / unit * unit + unit));
    else
        snprintf(nearest, sizeof nearest, "%lld", (long long)unit);
    return fail(FAIL_USAGE,
                "batch: %lld samples a step do not split over %d replica%s in micro-batches of "
                "%lld; choose %s",
                (long long)batch, d->dp, units_s(d->dp), (long long)policy->micro_batch, nearest);
}

int transformer_check(const struct model *model, const struct layout *layout,
                      const struct policy *policy)
{
    const struct degrees *d = &layout->degrees;
    int rc = 0;
    int64_t unit = (int64_t)d->dp * policy->micro_batch;
    TRY(expert_check(model, layout, policy));
    TRY(check_batch(layout, policy));
    if (policy->recompute_every < 1)
        return fail(FAIL_USAGE, "recompute-every: found %d, wanted a number of layers from 1",
                    policy->recompute_every);
    if (policy->dtype != DTYPE_F32 && policy->dtype != DTYPE_BF16)
        return fail(FAIL_USAGE, "dtype: found %s, wanted fp32 or bf16",
                    dtype_name((int)policy->dtype));
    TRY(model_check(model));
    TRY(context_check(model, layout, policy));
    TRY(tensor_check(model, layout, policy));
    TRY(check_head(model, layout, policy));
    TRY(shard_check(layout, policy));
    TRY(check_size(model, policy, policy->global_batch / unit));
    TRY(pipeline_check(model, layout, policy));
out:
    return rc;
}

/* ---- the step ---- */

static void begin(struct build *b)
{
    int64_t words = (SCALAR_EXPERT_SUMSQ + 1) * (int64_t)(sizeof(double) / sizeof(float));
    b->phase = PHASE_FORWARD;
    build_vector_op(b, OP_ZERO, build_scalar(SCALAR_LOSS_SUM), no_tensor, no_tensor, words);
    if (b->policy->copy_stream && (b->pipe.first || b->pipe.last))
        build_input(b, 0);
    expert_begin(b);
    b->split->begin(b);
}

static void step(struct build *b)
{
    begin(b);
    pipeline_step(b);
    b->split->reduce(b);
    build_update(b);
    pipeline_channels(b);
    for (int i = 0; i < b->plan->n_ops; i++) /* all channels are known now */
        if (b->plan->ops[i].stream == BUILD_COPY_STREAM)
            b->plan->ops[i].stream = plan_copy_stream(b->plan);
}

/* The way in which the state is divided over replicas. */
static const struct split *pick_split(const struct layout *layout)
{
    return layout->degrees.shard > 1 ? &split_shard : &split_replicas;
}

static void build_open(struct build *b, struct plan *plan, const struct model *model,
                       const struct policy *policy)
{
    const struct group *tp = &plan->layout.group[AXIS_TP];
    int64_t rows = policy->micro_batch * (model->sequence / plan->layout.group[AXIS_CP].size);
    int64_t vp = model_padded_vocabulary(model) / tp->size, left = model->vocabulary - tp->me * vp;
    bool rows_split = tp->size > 1 && policy->sequence_parallel;
    *b =
        (struct build){.plan = plan,
                       .model = model,
                       .policy = policy,
                       .split = pick_split(&plan->layout),
                       .rows = rows,
                       .local_rows = rows_split ? rows / tp->size : rows,
                       .h = model->hidden,
                       .f = model->ffn / tp->size,
                       .v = left < 0    ? 0
                            : left < vp ? left
                                        : vp,
                       .vp = vp,
                       .v_first = tp->me * vp,
                       .heads = (int)model->heads / tp->size,
                       .kv_heads = tp->size > model->kv_heads ? 1 : (int)model->kv_heads / tp->size,
                       .head = (int)model->head,
                       .tp = tp->size,
                       .tp_me = tp->me,
                       .sequence_parallel = rows_split,
                       .layer = -1,
                       .loss_op = -1,
                       .last = -1};
    for (int s = 0; s < BUILD_STREAMS; s++)
        b->waited[s] = -1;
    context_open(b);
    pipeline_open(b);
}

static void plan_open(struct plan *plan, const struct model *model, const struct layout *layout,
                      const struct policy *policy)
{
    int64_t unit = (int64_t)layout->degrees.dp * policy->micro_batch;
    plan_init(plan, layout);
    plan->micro_batches = (int)(policy->global_batch / unit);
    plan->samples = plan->micro_batches * policy->micro_batch;
    plan->schedule = policy_schedule(policy, &layout->degrees);
    plan->global_batch = policy->global_batch;
    plan->sequence = model->sequence;
    plan->dtype = policy->dtype;
    plan->tf32 = policy->tf32;
    plan->copy_stream = policy->copy_stream;
}

int transformer_plan(struct plan *out, const struct model *model, const struct layout *layout,
                     const struct policy *policy)
{
    struct build b;
    int rc = 0;
    memset(out, 0, sizeof *out);
    TRY(transformer_check(model, layout, policy));
    plan_open(out, model, layout, policy);
    build_open(&b, out, model, policy);
    expert_open(&b);
    build_parameters(&b);
    b.split->open(&b);
    b.reduced = must_alloc((size_t)out->n_pieces, sizeof *b.reduced);
    build_arenas(&b);
    step(&b);
    out->pack_later = policy->pack == CHOICE_AUTO;
    if (policy->pack == CHOICE_ON)
        plan_pack(out, NULL);
    rc = plan_seal(out);
    b.split->close(&b);
    build_release(&b);
out:
    if (rc)
        plan_release(out);
    return rc;
}

struct initial {
    const struct plan_tensor *tensor;
    uint64_t key;
    int64_t first; /* of the piece in the tensor as held here */
    float *out;
};

static void initial_run(void *arg, int64_t whole_first, int64_t local_first, int64_t count)
{
    const struct initial *to = arg;
    const struct plan_tensor *t = to->tensor;
    float *out = to->out + (local_first - to->first);
    int64_t valid = t->valid_rows * t->whole_columns - whole_first;
    valid = valid < 0 ? 0 : valid < count ? valid : count;
    for (int64_t i = 0; i < count; i++)
        out[i] = t->sigma < 0 && i < valid ? 1.0f : 0.0f;
    if (t->sigma > 0)
        rng_fill_normal(out, valid, to->key, (uint64_t)whole_first, (float)t->sigma);
}

void transformer_init_piece(const struct plan *plan, const struct plan_piece *piece, uint64_t seed,
                            float *out)
{
    const struct plan_tensor *t = &plan->tensors[piece->tensor];
    struct initial to = {t, rng_key(seed, t->name), piece->first, out};
    plan_piece_runs(plan, piece, initial_run, &to);
}
