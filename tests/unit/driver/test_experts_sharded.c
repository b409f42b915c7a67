/*
 * Experts that ep divides, with sharded state (ZeRO-1, ZeRO-2, FSDP): which degrees are legal is what a
 * predicate written by hand says; every stage, way of gathering and reducing, accumulation and
 * recomputation does the work of one rank; in bf16 what kernels read is the rounded masters.
 */
#include "tests/expert_gate.h"

/* A part of all points: together a few seconds, with sanitizers the same. */
#if defined(__SANITIZE_ADDRESS__)
enum { STRIDE = 701 };
#else
enum { STRIDE = 61 };
#endif

/* ---- which degrees ---- */

static bool by_hand(const struct model *m, const struct degrees *d, int ranks)
{
    bool whole = d->etp != d->tp; /* experts that tp does not split: ranks of tp share them out */
    return d->tp * d->cp * d->dp * d->pp == ranks && d->dp % d->shard == 0 &&
           d->dp * d->cp % d->ep == 0 && m->experts % d->ep == 0 && (!whole || d->ep > 1) &&
           m->heads % d->tp == 0 && 64 % d->tp == 0 && (whole || m->expert_ffn % d->tp == 0) &&
           m->shared_experts * m->expert_ffn % d->tp == 0 && d->pp <= m->layers &&
           (d->cp == 1 || m->sequence % (2 * d->cp) == 0);
}

static bool is_legal(const struct gate *gate, const struct degrees *d, int ranks,
                     const struct policy *p)
{
    struct layout layout;
    bool legal = layout_init(&layout, 1, ranks, 0, d) == 0 &&
                 transformer_check(gate->model, &layout, p) == 0;
    fail_clear();
    return legal;
}

/* ---- every policy of them ---- */

static void visit_rest(struct gate *gate, struct degrees *d, int ranks, struct policy *p)
{
    for (int a = 1; a <= 2; a++)
        for (int recompute = RECOMPUTE_NONE; recompute <= RECOMPUTE_FULL; recompute += 2) {
            int i = (int)gate->seen;
            p->micro_batch = p->global_batch / d->dp / a;
            p->recompute = (enum recompute)recompute;
            p->sequence_parallel = d->etp != d->tp || i % 2 == 0;
            p->overlap_gradients = i % 3 != 0;
            p->cp_kind = (enum cp_kind)(i % 3);
            p->copy_stream = i / 4 % 2 != 0;
            if (is_legal(gate, d, ranks, p))
                visit(gate, d, 1, ranks, p);
        }
}

static void visit_stages(struct gate *gate, struct degrees *d, int ranks)
{
    struct policy p = gate->policy;
    for (p.shard_stage = 1; p.shard_stage <= 3; p.shard_stage++)
        for (p.reduce_every = p.shard_stage == 1; p.reduce_every < 2; p.reduce_every++)
            for (p.fsdp_reshard = p.shard_stage < 3; p.fsdp_reshard < 2; p.fsdp_reshard++)
                for (p.fsdp_prefetch = 0; p.fsdp_prefetch <= 2; p.fsdp_prefetch++) {
                    p.overlap_parameters = p.fsdp_prefetch > 0;
                    visit_rest(gate, d, ranks, &p);
                }
}

static void walk(struct gate *gate, int ranks, int64_t *legal)
{
    struct degrees d = {0};
    for (d.tp = 1; d.tp <= ranks; d.tp++)
        for (d.cp = 1; d.cp <= ranks; d.cp++)
            for (d.ep = 1; d.ep <= ranks; d.ep++)
                for (d.dp = 1; d.dp <= ranks; d.dp++)
                    for (d.pp = 1; d.pp <= ranks; d.pp++)
                        for (d.shard = 1; d.shard <= ranks; d.shard++)
                            for (int whole = 0; whole < (d.tp > 1 ? 2 : 1); whole++) {
                                struct policy p = gate->policy;
                                p.micro_batch = 1;
                                d.etp = whole ? 1 : d.tp;
                                bool is = is_legal(gate, &d, ranks, &p);
                                CHECK_EQ(is, by_hand(gate->model, &d, ranks));
                                *legal += is;
                                if (is && d.ep > 1 && d.shard > 1)
                                    visit_stages(gate, &d, ranks);
                            }
}

static void gate_of(const char *routing, const char *capacity, int shared, int64_t tuples,
                    int64_t points)
{
    struct model model = small_model(shared, 2);
    struct gate gate = {
        .model = &model, .policy = small_policy(&model, routing, capacity), .stride = STRIDE};
    int64_t legal = 0;
    gate.steps = gate.policy.routing.kind == ROUTING_LEARNED ? 1 : STEPS;
    CHECK_EQ(crew_reference(&gate.reference, &model, &gate.policy, SEED, gate.steps), 0);
    for (int ranks = 1; ranks <= 8; ranks *= 2)
        walk(&gate, ranks, &legal);
    CHECK_EQ(legal, tuples);
    CHECK_EQ(gate.seen, points);
    printf("%s, capacity %s, %d shared: %lld tuples of degrees are legal; of %lld sharded points "
           "with ep above 1 %lld run; worst %.2g of what is allowed: %s of %s, %s\n",
           routing, capacity, shared, (long long)legal, (long long)gate.seen, (long long)gate.run,
           gate.worst, gate.worst_row.check, gate.worst_row.subject, gate.worst_at);
    gate_reference_release(&gate.reference);
}

/* ---- bf16 ---- */

/* Where AdamW writes what kernels read, that is the rounded master; how many elements it is. */
static int64_t rounded(const struct crew *crew)
{
    int64_t wrong = 0, n = 0;
    for (int r = 0; r < crew->n; r++)
        for (int i = 0; i < crew->plans[r].n_ops; i++) {
            const struct op *op = &crew->plans[r].ops[i];
            if (op->kind != OP_ADAMW || op->t[5].buffer == BUFFER_NONE)
                continue;
            const unsigned char *to = lockstep_memory(&crew->lockstep, r, BUFFER_PARAMETER);
            const unsigned char *from = lockstep_memory(&crew->lockstep, r, BUFFER_MASTER);
            const uint16_t *found = (const uint16_t *)(const void *)(to + op->t[5].offset);
            const float *master = (const float *)(const void *)(from + op->t[0].offset);
            for (int64_t e = 0; e < op->shape.optimizer.n; e++)
                wrong += found[e] != bf16_of(master[e]);
            n += op->shape.optimizer.n;
        }
    CHECK_EQ(wrong, 0);
    return n;
}

/* Loss and gradient norm of an fp32 rank within what bf16 can hold. */
static void check_narrow(const struct gate_reference *reference, const struct degrees *d,
                         const struct policy *policy)
{
    struct crew crew;
    const struct model *m = &reference->model;
    int64_t resident = d->dp * d->cp == d->ep ? 3 * m->hidden * m->expert_ffn * m->experts : 0;
    if (!CHECK_EQ(crew_plan(&crew, m, policy, d, 1, d->dp * d->cp * d->tp), 0))
        return;
    CHECK_EQ(crew_run(&crew, LOCKSTEP_LATE, m, SEED, STEPS), 0);
    for (int k = 0; k < STEPS; k++) {
        CHECK_NEAR(crew.found[0].loss[k], reference->loss[k], 2e-3 * reference->loss[k]);
        CHECK_NEAR(crew.found[0].norm[k], reference->norm[k], 2e-2 * reference->norm[k]);
        CHECK(crew.found[0].loss[k] != reference->loss[k]); /* it was bf16 */
    }
    CHECK_EQ(rounded(&crew), resident * m->layers);
    crew_release(&crew);
}

static void narrow(void)
{
    static const struct degrees layouts[] = {{.tp = 1, .cp = 1, .ep = 2, .dp = 2, .shard = 2},
                                             {.tp = 1, .cp = 1, .ep = 2, .dp = 4, .shard = 2},
                                             {.tp = 1, .cp = 2, .ep = 2, .dp = 2, .shard = 2},
                                             {.tp = 2, .cp = 1, .ep = 2, .dp = 2, .shard = 2}};
    struct model model = small_model(1, 2);
    struct policy p = small_policy(&model, "skewed:1.0", "auto");
    struct gate_reference reference;
    CHECK_EQ(crew_reference(&reference, &model, &p, SEED, STEPS), 0);
    p.dtype = DTYPE_BF16;
    p.micro_batch = 2;
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++)
        for (p.shard_stage = 1; p.shard_stage <= 3; p.shard_stage++) {
            p.grad_dtype = (i + (size_t)p.shard_stage) % 2 == 0 ? DTYPE_BF16 : DTYPE_F32;
            check_narrow(&reference, &layouts[i], &p);
        }
    gate_reference_release(&reference);
}

int main(void)
{
    kernels_blas_threads(1);
    narrow();
    gate_of("skewed:1.0", "auto", 1, 152, 3606);
    gate_of("learned", "none", 0, 152, 3606);
    return test_end();
}
