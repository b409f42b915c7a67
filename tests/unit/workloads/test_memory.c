/* What a rank will hold: published figures by closed form, the planner against them term by term,
 * every rank of a layout by its class, and the name of what takes most. */
#include "tests/test.h"

#include "base/err.h"
#include "workloads/memory.h"
#include "workloads/memory_fit.h"
#include "workloads/memory_formulas.h"
#include "workloads/plan_check.h"
#include "workloads/transformer.h"

static const double gib = 1073741824.0;

/* ---- published figures ---- */

/* ZeRO, figure 1: 7.5 B parameters over 64 ranks, K = 12. */
static void zero_of_the_paper(void)
{
    static const double gigabytes[] = {120.0, 31.4, 16.6, 1.9};
    for (int stage = 0; stage < 4; stage++)
        CHECK_NEAR(memory_formula_state(7.5e9, stage, 64, 2) / 1e9, gigabytes[stage], 0.05);
    CHECK_NEAR(memory_formula_state(1e9, 1, 8, 4), 1e9 * (6.0 + 12.0 / 8.0), 1.0);
}

struct published { /* Korthikanti et al. figure 1, s = 2048, t = 8; GiB */
    int layers, hidden, heads, pp, chunks, micro_batch;
    double state, all, selective;
};
static const struct published published[] = {
    {48, 6144, 64, 1, 1, 4, 45.5625, 59.25, 9.5625},
    {96, 12288, 96, 8, 3, 1, 45.5625, 66.84375, 12.3515625},
    {105, 20480, 128, 35, 3, 1, 31.640625, 114.0234375, 23.076171875},
    {128, 25600, 160, 64, 1, 1, 32.958984375, 131.25, 26.5625},
};

static void activations_of_the_paper(void)
{
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        const struct published *p = &published[i];
        struct memory_formula f = {2048, p->micro_batch, p->hidden, p->heads, p->layers,
                                   8,    p->pp,          p->chunks, false,    MEMORY_KEEP_ALL};
        double matrices = 12.0 * p->hidden * p->hidden * p->layers / 8.0 / p->pp;
        CHECK_NEAR(memory_formula_state(matrices, 0, 1, 4) / gib, p->state, 1e-9);
        CHECK_NEAR(memory_formula_stage(&f) / gib, p->all, 1e-9);
        f.sequence_parallel = true;
        f.kept = MEMORY_KEEP_NO_SCORES;
        CHECK_NEAR(memory_formula_stage(&f) / gib, p->selective, 1e-9);
    }
}

/* ---- the planner ---- */

static struct model gpt(int64_t layers, int64_t hidden, int64_t heads, int64_t vocabulary)
{
    struct model m;
    CHECK_EQ(model_load(&m, "gpt2-124m"), 0);
    m.layers = layers;
    m.hidden = hidden;
    m.heads = m.kv_heads = heads;
    m.head = hidden / heads;
    m.ffn = 4 * hidden;
    m.vocabulary = vocabulary;
    m.sequence = 2048;
    return m;
}

struct asked {
    int ranks, stage;
    const char *parallel;
    int64_t micro_batch, global_batch;
    enum recompute recompute;
    bool fp32, not_by_rows, unpacked;
};

static int make(struct plan *plan, const struct model *m, const struct asked *a, int rank)
{
    struct degrees degrees = {0};
    struct layout layout;
    struct policy policy;
    policy_defaults(&policy, m);
    CHECK_EQ(layout_parse(a->parallel, &degrees), 0);
    CHECK_EQ(layout_init(&layout, 1, a->ranks, rank, &degrees), 0);
    policy.micro_batch = a->micro_batch;
    policy.global_batch =
        a->global_batch > 0 ? a->global_batch : layout.degrees.dp * a->micro_batch;
    policy.dtype = a->fp32 ? DTYPE_F32 : DTYPE_BF16;
    policy.recompute = a->recompute;
    policy.sequence_parallel = !a->not_by_rows;
    policy.pack = a->unpacked ? CHOICE_OFF : CHOICE_ON;
    if (a->stage > 0)
        policy.shard_stage = a->stage;
    return transformer_plan(plan, m, &layout, &policy);
}

static struct memory memory_for(const struct model *m, const struct asked *a)
{
    struct memory out;
    struct plan plan;
    CHECK_EQ(make(&plan, m, a, 0), 0);
    memory_of_plan(&out, &plan, NULL);
    plan_release(&plan);
    return out;
}

/* Table 1 of Narayanan et al. (SC21), V = 51200, s = 2048: sizes in billions to the printed digit. */
static void sizes_of_models(void)
{
    static const struct {
        int64_t layers, hidden, heads;
        double billions;
    } t[] = {{24, 2304, 24, 1.7},    {30, 3072, 32, 3.6},     {36, 4096, 32, 7.5},
             {40, 6144, 48, 18.4},   {48, 8192, 64, 39.1},    {60, 10240, 80, 76.1},
             {80, 12288, 96, 145.6}, {96, 16384, 128, 310.1}, {105, 20480, 128, 529.6},
             {128, 25600, 160, 1008}};
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct model m = gpt(t[i].layers, t[i].hidden, t[i].heads, 51200);
        CHECK_NEAR((double)model_parameters(&m) / 1e9, t[i].billions, 0.06);
    }
}

/* The matrices of the 22 B model over tp=8, at 18 bytes a parameter. */
static void matrices_of_22b(void)
{
    struct model m = gpt(48, 6144, 64, 51200);
    struct asked asked = {
        .ranks = 8, .parallel = "tp=8", .micro_batch = 1, .unpacked = true}; /* classes apart */
    struct plan plan;
    int64_t n = 0;
    CHECK_EQ(make(&plan, &m, &asked, 3), 0);
    for (int i = 0; i < plan.n_tensors; i++)
        if (plan.tensors[i].columns > 1 && plan.tensors[i].unit >= 1 &&
            plan.tensors[i].unit <= m.layers)
            n += plan.tensors[i].rows * plan.tensors[i].columns;
    CHECK_NEAR(18.0 * (double)n / gib, 45.5625, 1e-9);
    int64_t state = plan.bytes[BUFFER_PARAMETER] + plan.bytes[BUFFER_MASTER] +
                    plan.bytes[BUFFER_GRADIENT] + plan.bytes[BUFFER_MOMENT1] +
                    plan.bytes[BUFFER_MOMENT2];
    CHECK_NEAR((double)state, memory_formula_state((double)plan.n_parameters, 0, 1, 4), 64 * 5);
    plan_release(&plan);
}

/* One layer more, against equations 2 to 4 without dropout masks and scores: exact but for the
 * fp32 statistics of norms and softmax, which they leave out. */
static void activations_of_a_layer(void)
{
    static const struct {
        int tp;
        bool by_rows;
        enum recompute recompute;
        double of_formula; /* bytes an element s b h that the formula counts and we do not hold */
    } cases[] = {{1, false, RECOMPUTE_NONE, 2.0},    {8, false, RECOMPUTE_NONE, 2.0},
                 {8, true, RECOMPUTE_NONE, 2.0 / 8}, {8, true, RECOMPUTE_FULL, 0.0},
                 {8, false, RECOMPUTE_FULL, 0.0},    {8, true, RECOMPUTE_SELECTIVE, 4.0 / 8}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char parallel[16];
        snprintf(parallel, sizeof parallel, "tp=%d", cases[i].tp);
        struct asked asked = {.ranks = cases[i].tp,
                              .parallel = parallel,
                              .micro_batch = 4,
                              .global_batch = 8, /* twice: gradients stay apart */
                              .recompute = cases[i].recompute,
                              .not_by_rows = !cases[i].by_rows};
        struct model few = gpt(3, 6144, 64, 51200), more = gpt(4, 6144, 64, 51200);
        double layer = (double)(memory_for(&more, &asked).class_bytes[DEVICE_ACTIVATIONS] -
                                memory_for(&few, &asked).class_bytes[DEVICE_ACTIVATIONS]);
        bool full = cases[i].recompute == RECOMPUTE_FULL;
        struct memory_formula f = {2048,
                                   4,
                                   6144,
                                   64,
                                   1,
                                   cases[i].tp,
                                   1,
                                   1,
                                   cases[i].by_rows,
                                   full ? MEMORY_KEEP_INPUT : MEMORY_KEEP_NO_SCORES};
        double rows = 2048.0 * 4, local = cases[i].by_rows ? rows / cases[i].tp : rows;
        double statistics = full ? 0.0 : 4 * 4 * local;
        if (cases[i].recompute == RECOMPUTE_NONE)
            statistics += 4 * rows * 64 / cases[i].tp;
        CHECK_NEAR(layer, memory_formula_layer(&f) - cases[i].of_formula * rows * 6144 + statistics,
                   0.5);
    }
}

/* State by stage over 4 ranks: the formula, and by name what this planner holds beyond it. */
static void state_by_stage(void)
{
    struct model m = gpt(6, 512, 8, 4096);
    struct asked asked = {.ranks = 4,
                          .parallel = "shard=4",
                          .micro_batch = 1,
                          .global_batch = 8,
                          .unpacked = true}; /* classes apart, as in the closed form */
    double p = (double)model_parameters(&m), slack = 18.0 * 16 * 4 * (double)(m.layers + 2);
    double layer = 12.0 * 512 * 512 + 13 * 512, ends = (4096.0 + 2048) * 512 + 2 * 512;
    for (int stage = 1; stage <= 3; stage++) {
        asked.stage = stage;
        struct memory memory = memory_for(&m, &asked);
        double state =
            (double)(memory.class_bytes[DEVICE_PARAMETERS] + memory.class_bytes[DEVICE_GRADIENTS] +
                     memory.class_bytes[DEVICE_OPTIMIZER]);
        double places = 2 * layer + ends; /* of units in use: two layers in turn, both ends */
        double beyond = stage == 1   ? 4 * p / 4  /* where reduced gradients arrive */
                        : stage == 2 ? 4 * places /* gradients under way */
                                     : 4 * places + 2 * places - 2 * p / 4; /* no bf16 shard */
        CHECK_NEAR(state, memory_formula_state(p, stage, 4, 4) + beyond, slack);
    }
}

/* What holds in the first, the second and the last micro-batch holds for all between them, where layers
 * have the same places in turn: with an odd number of them in every other one. */
static void micro_batches_need_no_more(void)
{
    static const char *const parallel[] = {"dp=4", "shard=4", "tp=2,shard=2"};
    struct model m = gpt(3, 256, 4, 1024);
    for (size_t i = 0; i < sizeof parallel / sizeof *parallel; i++)
        for (int stage = 1; stage <= 3; stage++) {
            struct asked asked = {
                .ranks = 4, .stage = stage, .parallel = parallel[i], .micro_batch = 2};
            asked.global_batch = 40;
            int64_t few = memory_for(&m, &asked).bytes;
            asked.global_batch = 72;
            CHECK_EQ(memory_for(&m, &asked).bytes, few);
            asked.unpacked = true;
            few = memory_for(&m, &asked).bytes;
            asked.global_batch = 16;
            CHECK_EQ(memory_for(&m, &asked).bytes, few);
        }
}

/* ---- ranks, classes, names ---- */

struct all_ranks {
    const struct model *model;
    const struct asked *asked;
};

static int make_rank(void *arg, int rank, struct plan *out)
{
    const struct all_ranks *all = arg;
    return make(out, all->model, all->asked, rank);
}

static void the_first_rank_holds_the_most(void)
{
    static const char *const parallel[] = {"dp=8", "tp=2,shard=4", "tp=8", "shard=2"};
    struct model m = gpt(3, 256, 8, 1000);
    for (size_t i = 0; i < sizeof parallel / sizeof *parallel; i++) {
        struct asked asked = {.ranks = 8, .parallel = parallel[i], .micro_batch = 1};
        struct all_ranks all = {&m, &asked};
        struct plan_check check;
        CHECK_EQ(plan_check_all(&check, 8, make_rank, &all), 0);
        struct memory memory = memory_for(&m, &asked);
        CHECK_EQ(memory.bytes, check.most_bytes);
        int64_t sum = 0;
        for (int c = 0; c < DEVICE_CLASSES; c++)
            sum += memory.class_bytes[c];
        CHECK_EQ(sum, memory.bytes);
    }
}

static void what_takes_most_is_named(void)
{
    struct model m = gpt(2, 256, 4, 50000);
    struct asked asked = {.ranks = 1, .parallel = "", .micro_batch = 4, .fp32 = true};
    struct memory memory = memory_for(&m, &asked);
    char text[256];
    memory_say_part(&memory, DEVICE_ACTIVATIONS, text, sizeof text);
    CHECK_HAS(text, "activations: gemm 8192 x 50048 x 256, fp32"); /* the logits */
    CHECK_EQ(memory.largest[BUFFER_ACTIVATION].bytes, 4LL * 8192 * 50048);
    memory_say_part(&memory, DEVICE_PARAMETERS, text, sizeof text);
    CHECK_HAS(text, "wte.weight 50048 x 256");
    memory_say(&memory, DEVICE_ACTIVATIONS, gib, "GiB", text, sizeof text);
    CHECK_HAS(text, "of it for activations (largest: gemm 8192 x 50048 x 256, fp32, 1.53 GiB)");
    CHECK_EQ(memory_most(&memory), DEVICE_ACTIVATIONS);
    asked.unpacked = true;
    memory = memory_for(&m, &asked);
    memory_say_part(&memory, DEVICE_GRADIENTS, text, sizeof text);
    CHECK_HAS(text, "gradients: wte.weight 50048 x 256, fp32"); /* a tensor, not what reads all */
    CHECK_EQ(memory.largest[BUFFER_GRADIENT].bytes, 4LL * 50048 * 256);
    CHECK_EQ(memory.largest[BUFFER_SHARD].bytes, 0); /* there is none of those */
    m = gpt(1, 256, 4, 8);
    memory = memory_for(&m, &asked);
    CHECK_HAS(memory.largest[BUFFER_ACTIVATION].text, ", layer 0"); /* the MLP's, of the first */
}

static void the_driver_adds(void)
{
    struct model m = gpt(2, 256, 4, 1000);
    struct asked alone = {.ranks = 1, .parallel = "", .micro_batch = 1, .fp32 = true};
    struct asked two = {.ranks = 2, .parallel = "dp=2", .micro_batch = 1, .fp32 = true};
    struct memory_added added = {.scratch = true, .log_steps = 6, .proof_bytes = 1000};
    struct memory bare, with;
    struct plan plan;
    CHECK_EQ(make(&plan, &m, &alone, 0), 0);
    memory_of_plan(&bare, &plan, NULL);
    memory_of_plan(&with, &plan, &added);
    CHECK_EQ(with.item[MEMORY_PROOF], 0); /* nobody to talk to */
    CHECK_EQ(with.item[MEMORY_LOG], 6 * SCALARS * 8);
    CHECK_EQ(with.item[MEMORY_SCRATCH], plan.bytes[BUFFER_PARAMETER] + plan.bytes[BUFFER_GRADIENT] +
                                            2 * plan.bytes[BUFFER_MOMENT1] +
                                            plan.bytes[BUFFER_SCALAR]);
    CHECK_EQ(with.class_bytes[DEVICE_TEMPORARIES],
             bare.class_bytes[DEVICE_TEMPORARIES] + with.item[MEMORY_SCRATCH] + 6 * SCALARS * 8);
    plan_release(&plan);
    CHECK_EQ(make(&plan, &m, &two, 1), 0);
    memory_of_plan(&with, &plan, &added);
    CHECK_EQ(with.item[MEMORY_PROOF], 2000);
    plan_release(&plan);
}

/* ---- which layouts fit ---- */

static struct memory_fit_ask ask_for(const struct model *m, const int64_t *micro_batches, int n)
{
    struct memory_fit_ask ask = {.model = m,
                                 .nodes = 1,
                                 .ranks_per_node = 4,
                                 .micro_batch = micro_batches,
                                 .n_micro_batch = n,
                                 .capacity_bytes = 1e15};
    policy_defaults(&ask.policy, m);
    ask.policy.dtype = DTYPE_BF16;
    return ask;
}

/* Over 4 ranks: tp in 1, 2, 4 and shard dividing dp are 6 tuples; those with shards have 3 stages. */
static void all_layouts_are_tried(void)
{
    static const int64_t micro_batches[] = {2, 1};
    struct model m = gpt(3, 256, 4, 1024);
    struct memory_fit_ask ask = ask_for(&m, micro_batches, 2);
    struct memory_fit fit;
    ask.fixed.pp = ask.fixed.cp = 1;
    CHECK_EQ(memory_fit_all(&fit, &ask), 0);
    CHECK_EQ(fit.n_tuples, 6);
    CHECK_EQ(fit.n, (3 + 3 * 3) * 3 * 2);
    CHECK_EQ(fit.global_batch, 8);
    for (int i = 0; i < fit.n; i++) { /* each as planned for itself, with all its micro-batches */
        const struct memory_choice *c = &fit.choice[i];
        struct asked asked = {.ranks = 4,
                              .stage = c->shard_stage,
                              .parallel = c->parallel,
                              .micro_batch = c->micro_batch,
                              .global_batch = 8,
                              .recompute = c->recompute};
        CHECK_EQ(c->micro_steps * c->micro_batch * c->degrees.dp, 8);
        CHECK_EQ(c->bytes, memory_for(&m, &asked).bytes);
        CHECK(c->over_bytes < 0 && isnan(c->modelled_s) && isnan(c->measured_s));
    }
    memory_fit_release(&fit);
    ask.fixed.tp = 2;
    CHECK_EQ(memory_fit_all(&fit, &ask), 0);
    CHECK_EQ(fit.n_tuples, 2);
    memory_fit_release(&fit);
    ask.fixed.tp = 0;
    ask.fixed.cp = 2; /* and tp or dp of 2, shard 1 or 2 with dp */
    CHECK_EQ(memory_fit_all(&fit, &ask), 0);
    CHECK_EQ(fit.n_tuples, 3);
    memory_fit_release(&fit);
    ask.fixed.tp = 3;
    CHECK_EQ(memory_fit_all(&fit, &ask), FAIL_USAGE);
    CHECK_HAS(fail_message(), "no way to split gpt2-124m over 4 ranks is legal");
    fail_clear();
    CHECK(fit.choice == NULL && fit.n == 0);
}

/* A step of one rank, or of all stages, with all its micro-batches. */
static double whole_step(const struct cost *cost, const struct model *m,
                         const struct memory_choice *c)
{
    static struct plan plans[4];
    struct cost_step step;
    struct asked asked = {.ranks = 4,
                          .stage = c->shard_stage,
                          .parallel = c->parallel,
                          .micro_batch = c->micro_batch,
                          .global_batch = c->micro_steps * c->micro_batch * c->degrees.dp,
                          .recompute = c->recompute,
                          .unpacked = true};
    int pp = c->degrees.pp;
    for (int stage = 0; stage < pp; stage++) /* pp is the outermost */
        CHECK_EQ(make(&plans[stage], m, &asked, stage * 4 / pp), 0);
    if (pp > 1)
        cost_stages(cost, plans, pp, &step, NULL);
    else
        cost_plan(cost, &plans[0], NULL, &step);
    for (int stage = 0; stage < pp; stage++)
        plan_release(&plans[stage]);
    return step.step_s;
}

/* Modelled times are made of few micro-batches, and are those of all. */
static void all_are_modelled(void)
{
    static const int64_t micro_batches[] = {1};
    struct model m = gpt(4, 256, 4, 1024);
    struct memory_fit_ask ask = ask_for(&m, micro_batches, 1);
    struct topology topology;
    struct cost cost = {.topology = &topology, .ranks_per_node = 4};
    struct memory_fit fit;
    CHECK_EQ(topology_load(&topology, "h100-8x400g"), 0);
    CHECK_EQ(memory_fit_all(&fit, &ask), 0);
    CHECK_EQ(fit.global_batch, 4); /* one for each rank */
    CHECK(isnan(fit.choice[0].modelled_s));
    memory_fit_release(&fit);
    ask.cost = &cost;
    ask.global_batch = 32;
    ask.fixed.cp = 1;
    CHECK_EQ(memory_fit_all(&fit, &ask), 0);
    int pipelines = 0;
    for (int i = 0; i < fit.n; i++) {
        const struct memory_choice *c = &fit.choice[i];
        double all = whole_step(&cost, &m, c);
        pipelines += c->degrees.pp > 1;
        if (!CHECK_NEAR(c->modelled_s / all, 1, 0.01))
            printf("  %s stage %d, %d micro-batches\n", c->parallel, c->shard_stage,
                   (int)c->micro_steps);
    }
    CHECK(pipelines > 0 && pipelines < fit.n);
    memory_fit_release(&fit);
}

static void changes_have_words(void)
{
    static const char *const names[] = {"none", "selective", "full"};
    static const enum recompute of[] = {RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL};
    for (int i = 0; i < 3; i++)
        CHECK(strcmp(memory_recompute_name((int)of[i]), names[i]) == 0);
    struct degrees four = {.tp = 1, .cp = 1, .pp = 1, .ep = 1, .dp = 4, .shard = 1};
    struct memory_choice choice[4] = {{.degrees = four, .micro_batch = 2, .bytes = 100}};
    struct memory_fit fit = {.n = 4, .choice = choice};
    struct memory_lever levers[MEMORY_LEVERS];
    choice[1] = choice[2] = choice[3] = choice[0];
    choice[1].micro_batch = 1, choice[1].bytes = 60;
    choice[2].recompute = RECOMPUTE_FULL, choice[2].bytes = 50;
    choice[3].degrees.shard = 4, choice[3].shard_stage = 3, choice[3].bytes = 40;
    CHECK_EQ(memory_fit_levers(&fit, &choice[0], levers), 3);
    CHECK(strcmp(levers[0].text, "shard=4, stage 3") == 0);
    CHECK(strcmp(levers[1].text, "recompute=full") == 0);
    CHECK(strcmp(levers[2].text, "micro-batch=1") == 0);
}

static void what_fits_comes_first(void)
{
    static const int64_t micro_batches[] = {2, 1};
    struct model m = gpt(3, 256, 4, 1024);
    struct memory_fit_ask ask = ask_for(&m, micro_batches, 2);
    struct memory_lever levers[MEMORY_LEVERS];
    struct memory_fit fit;
    ask.capacity_bytes = 60e6;
    ask.beside_bytes = 10000000;
    CHECK_EQ(memory_fit_all(&fit, &ask), 0);
    fit.choice[7].measured_s = 2; /* whatever is measured comes before what is not */
    fit.choice[9].measured_s = 1;
    fit.choice[7].over_bytes = fit.choice[9].over_bytes = -1;
    memory_fit_sort(&fit);
    CHECK(fit.choice[0].measured_s == 1 && fit.choice[1].measured_s == 2);
    int fits = 0, bases = 0;
    for (int i = 0; i < fit.n; i++) {
        const struct memory_choice *c = &fit.choice[i];
        fits += c->over_bytes <= 0;
        CHECK(i == 0 || (c->over_bytes <= 0) <= (fit.choice[i - 1].over_bytes <= 0));
        CHECK(i == 0 || fit.choice[i - 1].over_bytes <= 0 || /* the nearest first */
              c->over_bytes >= fit.choice[i - 1].over_bytes);
        CHECK(i < 2 || c->over_bytes == (double)c->bytes + 10e6 - 60e6);
        bases += c->is_base;
        int n = memory_fit_levers(&fit, c, levers);
        for (int j = 0; j < n; j++) {
            CHECK(levers[j].from == c && levers[j].to->bytes < c->bytes);
            CHECK(j == 0 || levers[j].to->bytes >= levers[j - 1].to->bytes);
            const struct memory_choice *to = levers[j].to;
            bool sharding = to->degrees.shard != c->degrees.shard;
            bool stage = to->shard_stage != c->shard_stage;
            CHECK_EQ((to->recompute != c->recompute) + (to->micro_batch != c->micro_batch) +
                         (sharding || stage),
                     1);
            CHECK(!sharding || c->degrees.shard == 1 || !stage);
        }
        CHECK(n > 0 || c->recompute == RECOMPUTE_FULL);
    }
    CHECK(fits > 2 && fits < fit.n);
    CHECK_EQ(bases, fit.n_tuples);
    memory_fit_release(&fit);
}

int main(void)
{
    all_layouts_are_tried();
    all_are_modelled();
    changes_have_words();
    what_fits_comes_first();
    zero_of_the_paper();
    activations_of_the_paper();
    sizes_of_models();
    matrices_of_22b();
    activations_of_a_layer();
    state_by_stage();
    micro_batches_need_no_more();
    the_first_rank_holds_the_most();
    what_takes_most_is_named();
    the_driver_adds();
    return test_end();
}
