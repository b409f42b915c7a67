/*
 * Layouts and policies that the enumerations do not reach: drawn by chance, every choice apart from all
 * others. Layers that do not divide by the stages, heads in threes, 1 to 12 ranks, buckets of any size,
 * every overlap by itself. Each must do the work of one rank, and its calls, operations, bytes and state
 * be what the closed forms say. The seed is fixed: the same draws everywhere. The first points of each
 * model are drawn until they have a pipeline of a given schedule, so that all schedules run in every
 * build, with experts and without.
 */
#include "tests/test.h"

#include "tests/crew_check.h"

#include "base/rng.h"
#include "workloads/formulas.h"

enum { STEPS = 2, SEED = 7, SCHEDULES = SCHEDULE_ZB_H1 + 1 };

enum { GIVEN = 3 }; /* points of a model, which begin with them */
#if defined(__SANITIZE_ADDRESS__)
enum { POINTS = GIVEN };
#else
enum { POINTS = 36 };
#endif

/* A model and how its tokens are routed. */
struct kind {
    struct model model;
    const char *routing, *capacity;
};

#define COMMON .sequence = 24, .vocabulary = 61, .pad = 64, .theta = 10000, .lr = 1e-3
#define SIXES .hidden = 24, .heads = 6, .head = 4, .ffn = 36, COMMON
#define EXPERTS .style = MODEL_LLAMA, .kv_heads = 3, .experts = 6, .top_k = 2, .expert_ffn = 12

static const struct kind kinds[] = {
    {{.name = "five", .style = MODEL_GPT2, .layers = 5, .kv_heads = 6, .tied = true, SIXES},
     "balanced",
     "auto"},
    {{.name = "seven", .style = MODEL_LLAMA, .layers = 7, .kv_heads = 3, SIXES},
     "balanced",
     "auto"},
    {{.name = "four", .style = MODEL_LLAMA, .layers = 4, .kv_heads = 2, .tied = true, SIXES},
     "balanced",
     "auto"},
    {{.name = "even", .layers = 4, EXPERTS, SIXES}, "balanced", "auto"},
    {{.name = "uneven", .layers = 5, .shared_experts = 2, .tied = true, EXPERTS, SIXES},
     "skewed:1.0",
     "1.5"},
    {{.name = "routed", .layers = 4, .shared_experts = 1, EXPERTS, SIXES}, "learned", "auto"},
    {{.name = "dropless", .layers = 3, EXPERTS, SIXES}, "learned", "none"},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static uint64_t key, drawn;

static int draw(int n)
{
    return (int)rng_below(key, drawn++, (uint32_t)n);
}

static int one_of(const int *from, int n)
{
    return from[draw(n)];
}

/* ---- a point ---- */

struct point {
    struct degrees degrees;
    struct policy policy;
    int nodes, ranks_per_node;
};

static void draw_degrees(struct point *point, const struct model *m)
{
    static const int ranks[] = {1, 2, 3, 4, 5, 6, 7, 8, 12}, splits[] = {1, 1, 1, 2, 2, 3, 4, 6};
    static const int stages[] = {1, 1, 1, 2, 2, 3, 4, 5, 7};
    static const char *const orders[] = {"", "dp-tp-cp-ep-pp", "cp-tp-pp-ep-dp", "pp-dp-tp-cp-ep"};
    int n = one_of(ranks, 9);
    struct degrees *d = &point->degrees;
    *d =
        (struct degrees){.tp = one_of(splits, 8), .cp = one_of(splits, 8), .pp = one_of(stages, 9)};
    snprintf(d->order, sizeof d->order, "%s", orders[draw(4)]);
    int rest = n / (d->tp * d->cp * d->pp);
    d->shard = draw(2) ? 1 : 1 + draw(rest + 1);
    d->ep = m->experts > 0 ? 1 + draw(rest * d->cp + 1) : 1;
    d->etp = m->experts > 0 && draw(2) ? 1 : d->tp;
    point->nodes = n % 2 == 0 && draw(2) ? 2 : n % 3 == 0 && draw(2) ? 3 : 1;
    point->ranks_per_node = n / point->nodes;
}

static void draw_overlaps(struct policy *p)
{
    p->overlap_gradients = draw(2);
    p->overlap_parameters = draw(2);
    p->overlap_tensor = draw(2);
    p->overlap_context = draw(2);
    p->overlap_expert = draw(2);
    p->overlap_pipeline = draw(2);
    p->copy_stream = draw(2);
}

static void draw_policy(struct policy *p, int pp)
{
    draw_overlaps(p);
    p->global_batch = pp == 5 ? 10 : pp == 7 ? 14 : 12;
    p->micro_batch = 1 + draw(2);
    p->bucket_bytes = 4 + draw(60000);
    p->cp_kind = (enum cp_kind)draw(3);
    p->head_chunks = draw(2) ? 1 : 1 + draw(6);
    p->tp_chunks = draw(2) ? 1 : 1 + draw(4);
    p->sequence_parallel = draw(3) > 0;
    p->recompute = (enum recompute)draw(4);
    p->recompute_every = 1 + draw(4);
    p->pack = draw(3);
    p->shard_stage = 1 + draw(3);
    p->fsdp_prefetch = draw(4);
    p->fsdp_reshard = draw(3);
    p->reduce_every = draw(3);
    p->schedule = draw(3) ? (enum schedule_kind)draw(4) : SCHEDULE_INTERLEAVED;
    p->virtual_stages = p->schedule == SCHEDULE_INTERLEAVED && pp > 1 ? 2 : 1;
}

static void say(const struct point *point)
{
    const struct policy *p = &point->policy;
    const struct degrees *d = &point->degrees;
    printf(
        "%dx%d tp=%d cp=%d pp=%d shard=%d ep=%d etp=%d order \"%s\" batch %lld micro %lld bucket "
        "%lld overlap "
        "%d%d%d%d%d%d copy %d cp-kind %d head %d chunks %d rows %d recompute %d/%d pack %d stage "
        "%d prefetch %d reshard %d reduce %d %s v %d\n",
        point->nodes, point->ranks_per_node, d->tp, d->cp, d->pp, d->shard, d->ep, d->etp, d->order,
        (long long)p->global_batch, (long long)p->micro_batch, (long long)p->bucket_bytes,
        p->overlap_gradients, p->overlap_parameters, p->overlap_tensor, p->overlap_context,
        p->overlap_expert, p->overlap_pipeline, p->copy_stream, (int)p->cp_kind, p->head_chunks,
        p->tp_chunks, p->sequence_parallel, (int)p->recompute, p->recompute_every, p->pack,
        p->shard_stage, p->fsdp_prefetch, p->fsdp_reshard, p->reduce_every,
        schedule_name((int)p->schedule), p->virtual_stages);
}

static bool is_legal(const struct model *m, const struct point *point)
{
    struct layout layout;
    bool legal =
        layout_init(&layout, point->nodes, point->ranks_per_node, 0, &point->degrees) == 0 &&
        transformer_check(m, &layout, &point->policy) == 0;
    fail_clear();
    return legal;
}

/* ---- what must hold ---- */

static bool counts_agree(const struct crew *crew, const struct plan_check *check,
                         const struct model *m, const struct policy *p, int steps)
{
    const struct degrees *d = &crew->plans[0].layout.degrees;
    double ops = formula_ops(m, d, p), state = 0, all = crew->n * formula_state(m, d);
    for (int r = 0; r < crew->n; r++)
        state += (double)crew->plans[r].n_state;
    bool agree = (ops < 0 || ops == (double)check->ops) && fabs(state - all) <= 1e-9 * all;
    if (!agree)
        printf("operations: formula %.17g, plans %lld; state: formula %.17g, plans %.17g\n", ops,
               (long long)check->ops, all, state);
    return crew_volumes_agree(crew, check, m, p, steps) && agree;
}

static void visit(const struct model *m, const struct point *point,
                  const struct gate_reference *reference)
{
    struct crew crew;
    struct plan_check check;
    struct gate_row row;
    enum lockstep_order order = draw(2) ? LOCKSTEP_LATE : LOCKSTEP_EARLY;
    int rc =
        crew_plan(&crew, m, &point->policy, &point->degrees, point->nodes, point->ranks_per_node);
    if (rc == 0)
        rc = plan_check_all(&check, crew.n, crew_lend, &crew);
    if (rc == 0)
        rc = crew_run(&crew, order, m, SEED, reference->steps);
    if (!CHECK_EQ(rc, 0)) {
        printf("%s: ", fail_message());
        say(point);
        fail_clear();
        crew_release(&crew);
        return;
    }
    double severity = crew_compare(&crew, reference, &row);
    if (!CHECK(severity <= 1)) {
        printf("%.3g of what is allowed, %s of %s: ", severity, row.check, row.subject);
        say(point);
    }
    if (!CHECK(counts_agree(&crew, &check, m, &point->policy, reference->steps)))
        say(point);
    crew_release(&crew);
}

/* ---- all kinds ---- */

static struct policy policy_of(const struct kind *kind)
{
    struct policy p;
    policy_defaults(&p, &kind->model);
    CHECK_EQ(routing_parse(kind->routing, kind->capacity, &p.routing), 0);
    p.routing.balance = 0.1f;
    p.routing.seed = 3;
    p.epsilon = 1e-6f;
    p.warm_up = 2;
    p.decay_steps = 20;
    return p;
}

/* The batches of draw_policy have references of their own. */
static const struct gate_reference *reference_of(struct gate_reference *of, const struct kind *kind,
                                                 int64_t batch)
{
    struct gate_reference *reference = &of[batch / 2 - 5];
    struct policy p = policy_of(kind);
    bool learned = p.routing.kind == ROUTING_LEARNED; /* later steps choose by what rounding was */
    p.global_batch = p.micro_batch = batch;
    if (reference->gradient == NULL)
        CHECK_EQ(crew_reference(reference, &kind->model, &p, SEED, learned ? 1 : STEPS), 0);
    return reference;
}

/* Interleaved takes layers that two stages of two chunks divide. */
static bool is_as_given(const struct model *m, const struct point *point, int n)
{
    const enum schedule_kind given[GIVEN] = {
        m->layers % 4 == 0 ? SCHEDULE_INTERLEAVED : SCHEDULE_GPIPE, SCHEDULE_1F1B, SCHEDULE_ZB_H1};
    return n >= GIVEN || (point->degrees.pp > 1 && point->policy.schedule == given[n]);
}

static void draw_of(const struct kind *kind, int seen[SCHEDULES])
{
    struct gate_reference of[3];
    int64_t tries = 0;
    memset(of, 0, sizeof of);
    for (int n = 0; n < POINTS; tries++) {
        struct point point = {.policy = policy_of(kind)};
        draw_degrees(&point, &kind->model);
        draw_policy(&point.policy, point.degrees.pp);
        if (!is_as_given(&kind->model, &point, n) || !is_legal(&kind->model, &point))
            continue;
        if (point.degrees.pp > 1)
            seen[point.policy.schedule]++;
        visit(&kind->model, &point, reference_of(of, kind, point.policy.global_batch));
        n++;
    }
    for (int i = 0; i < 3; i++) {
        plan_release(&of[i].plan);
        free(of[i].gradient);
        free(of[i].parameter);
    }
    printf("%s: %d of %lld draws are legal and as given\n", kind->model.name, POINTS,
           (long long)tries);
}

int main(void)
{
    int seen[2][SCHEDULES] = {{0}};
    kernels_blas_threads(1);
    key = rng_key(SEED, "layouts drawn");
    for (int i = 0; i < KINDS; i++)
        draw_of(&kinds[i], seen[kinds[i].model.experts > 0]);
    for (int experts = 0; experts < 2; experts++)
        for (int s = 0; s < SCHEDULES; s++) {
            printf("%s, %s: %d\n", experts ? "experts" : "dense", schedule_name(s),
                   seen[experts][s]);
            CHECK(seen[experts][s] > 0);
        }
    return test_end();
}
