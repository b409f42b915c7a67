#include "workloads/transformer.h"

#include <string.h>

#include "base/err.h"
#include "base/rng.h"
#include "workloads/build.h"
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
                              .tp_chunks = 1,
                              .sequence_parallel = true,
                              .recompute_every = 1,
                              .shard_stage = 3,
                              .fsdp_prefetch = 1,
                              .fsdp_reshard = true,
                              .reduce_every = true,
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

int transformer_check(const struct model *model, const struct layout *layout,
                      const struct policy *policy)
{
    const struct degrees *d = &layout->degrees;
    int rc = 0;
    if (d->pp != 1 || d->cp != 1 || d->ep != 1)
        return fail(FAIL_ABSENT,
                    "layout: pp=%d cp=%d ep=%d: this version splits by dp, shard and tp; ask for "
                    "dp=N,shard=N,tp=N",
                    d->pp, d->cp, d->ep);
    if (model->experts > 0)
        return fail(FAIL_ABSENT,
                    "model %s: mixtures of experts are not in this version; choose a "
                    "dense model",
                    model->name);
    int64_t unit = (int64_t)d->dp * policy->micro_batch;
    if (policy->micro_batch < 1 || policy->global_batch < 1 || policy->global_batch % unit != 0)
        return fail(FAIL_USAGE,
                    "batch: %lld samples a step do not split over %d replicas in micro-batches of "
                    "%lld; choose a multiple of %lld",
                    (long long)policy->global_batch, d->dp, (long long)policy->micro_batch,
                    (long long)unit);
    if (policy->recompute_every < 1)
        return fail(FAIL_USAGE, "recompute-every: found %d, wanted a number of layers from 1",
                    policy->recompute_every);
    if (policy->dtype != DTYPE_F32 && policy->dtype != DTYPE_BF16)
        return fail(FAIL_USAGE, "dtype: found %s, wanted fp32 or bf16",
                    dtype_name((int)policy->dtype));
    TRY(model_check(model));
    TRY(tensor_check(model, layout, policy));
    TRY(shard_check(layout, policy));
    TRY(check_size(model, policy, policy->global_batch / unit));
out:
    return rc;
}

/* ---- the step ---- */

static void begin(struct build *b)
{
    int64_t words = (SCALAR_SUMSQ + 1) * (int64_t)(sizeof(double) / sizeof(float));
    b->phase = PHASE_FORWARD;
    build_vector_op(b, OP_ZERO, build_scalar(SCALAR_LOSS_SUM), no_tensor, no_tensor, words);
    if (b->policy->copy_stream)
        build_input(b, 0);
    b->split->begin(b);
}

static void step(struct build *b)
{
    int last = b->plan->micro_batches - 1;
    begin(b);
    for (b->micro = 0; b->micro <= last; b->micro++) {
        b->first_micro = b->micro == 0;
        b->last_micro = b->micro == last;
        b->hand_over = b->split->hand_over(b);
        build_forward(b);
        build_backward(b);
    }
    b->micro = last;
    b->split->reduce(b);
    build_update(b);
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
    int64_t rows = policy->micro_batch * model->sequence;
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
}

static void plan_open(struct plan *plan, const struct model *model, const struct layout *layout,
                      const struct policy *policy)
{
    int64_t unit = (int64_t)layout->degrees.dp * policy->micro_batch;
    plan_init(plan, layout);
    plan->micro_batches = (int)(policy->global_batch / unit);
    plan->samples = plan->micro_batches * policy->micro_batch;
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
    build_parameters(&b);
    b.split->open(&b);
    b.reduced = must_alloc((size_t)out->n_pieces, sizeof *b.reduced);
    build_arenas(&b);
    step(&b);
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
