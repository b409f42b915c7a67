/* Which execution plan each attention shape takes, by measurement before the first step. */
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/units.h"
#include "workloads/kernels/cuda.h"
#include "workloads/kernels/cuda_cudnn_trial.h"
#include "workloads/kernels/cuda_race.h"

/* Plans that are kept for timing, and with this project's kernel; those that are timed in turn, and
 * how often; how much slower than the best one may be in its first run. */
enum { PLANS = 16, CANDIDATES = PLANS + 1, FINALISTS = 5, ROUNDS = 11 };
static const float hopeless = 1.25F, worth_it = 0.99F;
static const int64_t more_bytes = INT64_C(64) << 20, build_ns = INT64_C(15000000000);

struct candidate {
    struct cudnn_plan plan;
    bool ordered, own;
    void *pack;
    float us;
};

struct search {
    struct attention_trial trial;
    int n;
    struct candidate candidate[CANDIDATES];
    struct candidate *in[CANDIDATES]; /* the race: the heuristic's first, then the fastest */
    struct cuda_race race;
};

/* ---- graphs ---- */

_Static_assert(sizeof(struct attention_key) == 5 * sizeof(int64_t) + 8 * sizeof(int),
               "keys are compared as bytes");

struct attention_key attention_key(const struct attention_entry *e)
{
    const struct shape_attention *s = &e->shape;
    struct attention_key key;
    memset(&key, 0, sizeof key);
    key.batch = s->batch;
    key.sequence = s->sequence;
    key.q_rows = s->q_rows;
    key.kv_sequence = s->kv_sequence;
    key.kv_rows = s->kv_rows;
    key.heads = s->heads;
    key.kv_heads = s->kv_heads;
    key.head = s->head;
    key.causal = s->causal;
    key.add_q = s->add_q;
    key.backward = e->backward;
    key.may_own = e->may_own;
    return key;
}

int64_t attention_sum_bytes(const struct attention_entry *e)
{
    return e->backward && !e->ordered && !e->own ? trial_sum_bytes(&e->shape) : 0;
}

void attention_graph(struct cudnn_graph *graph, cudnnHandle_t handle,
                     const struct attention_entry *e, bool ordered)
{
    cudnn_graph_begin(graph, handle);
    if (e->backward)
        cudnn_attention_backward(graph, &e->shape, ordered);
    else
        cudnn_attention_forward(graph, &e->shape);
}

/* ---- candidates ---- */

static int64_t bytes_of(const struct search *s, const struct cudnn_plan *plan, bool ordered)
{
    bool sums = s->trial.entry->backward && !ordered;
    return plan->workspace_bytes + (sums ? trial_sum_bytes(&s->trial.entry->shape) : 0);
}

/* Plans of one graph, behind those there are. */
static void add_candidates(struct search *s, bool ordered, int64_t deadline_ns)
{
    struct cudnn_graph graph;
    struct cudnn_config config[GRAPH_CONFIGS];
    const struct attention_entry *e = s->trial.entry;
    int64_t most = bytes_of(s, &e->plan, e->ordered) + more_bytes;
    attention_graph(&graph, s->trial.handle, e, ordered);
    int n = cudnn_graph_configs(&graph, true, config);
    for (int i = 0; i < n && s->n < PLANS && units_now_ns() < deadline_ns; i++) {
        struct candidate *c = &s->candidate[s->n];
        *c = (struct candidate){.ordered = ordered};
        if (cudnn_plan_make(&graph, &config[i], &c->plan) != CUDNN_STATUS_SUCCESS)
            continue;
        if (bytes_of(s, &c->plan, ordered) > most)
            cudnn_plan_release(&c->plan);
        else
            s->n++;
    }
    cudnn_graph_end(&graph);
}

/* Its scratch is a plan's workspace. */
static void add_own(struct search *s)
{
    struct candidate *c = &s->candidate[s->n++];
    *c = (struct candidate){.ordered = true, .own = true};
    if (s->trial.entry->backward)
        c->plan.workspace_bytes = cuda_wgmma_scratch(&s->trial.entry->shape);
}

/* ---- runs ---- */

static struct trial_way way_of(const struct candidate *c)
{
    return (struct trial_way){c->own ? NULL : &c->plan, c->pack, c->ordered};
}

/* competitor: of those in the race, or of all. */
static bool run_one(void *arg, int competitor, int run)
{
    struct search *s = arg;
    struct trial_way way = way_of(s->in[competitor]);
    (void)run;
    return trial_run(&s->trial, &way);
}

/* ---- the choice ---- */

static int by_time(const void *a, const void *b)
{
    const struct candidate *x = *(struct candidate *const *)a, *y = *(struct candidate *const *)b;
    return (x->us > y->us) - (x->us < y->us);
}

/* One run of each for its code, one for its results, one for its time. Those that stay in the race,
 * how many: the first, and the fastest of the others. */
static int screen(struct search *s)
{
    const size_t size = (size_t)TRIAL_OUTS * TRIAL_SAMPLE;
    uint16_t *first = must_alloc(2 * size, sizeof *first), *other = first + size;
    float best = 0;
    int n = 0;
    for (int i = 0; i < s->n; i++) {
        struct candidate *c = &s->candidate[i];
        c->pack = c->own ? NULL : trial_pack(&s->trial, c->ordered);
        struct trial_way way = way_of(c);
        bool ran = (c->own || c->pack != NULL) && trial_run(&s->trial, &way) &&
                   trial_sample(&s->trial, &way, i == 0 ? first : other);
        bool right = ran && trial_same(&s->trial, first, i == 0 ? first : other);
        s->in[n] = c;
        c->us = right ? cuda_race_alone(&s->race, run_one, s, n) : -1;
        if (c->us < 0 && i == 0)
            break; /* nothing to compare with */
        s->trial.entry->found.refused += c->us < 0;
        if (c->us < 0)
            continue;
        best = best == 0 || c->us < best ? c->us : best;
        n++;
    }
    free(first);
    s->trial.entry->found.candidates = n;
    if (n > 1)
        qsort(s->in + 1, (size_t)n - 1, sizeof(struct candidate *), by_time);
    n = n < FINALISTS ? n : FINALISTS;
    while (n > 1 && s->in[n - 1]->us > hopeless * best)
        n--;
    return n;
}

static void choose(struct search *s)
{
    struct attention_found *found = &s->trial.entry->found;
    float us[FINALISTS];
    int n = screen(s), best = 0;
    if (n == 0)
        return;
    cuda_race_all(&s->race, run_one, s, n, ROUNDS, us);
    for (int i = 1; i < n && us[0] > 0; i++)
        if (us[i] > 0 && us[i] < us[best] && us[i] < worth_it * us[0])
            best = i;
    found->engine = s->in[best]->plan.engine;
    found->ordered = s->in[best]->ordered;
    found->own = s->in[best]->own;
    found->us = us[best];
    found->first_us = us[0];
    found->workspace_bytes = s->in[best]->plan.workspace_bytes;
}

static void release(struct search *s)
{
    for (int i = 0; i < s->n; i++) {
        cudnn_pack_release(s->candidate[i].pack);
        cudnn_plan_release(&s->candidate[i].plan);
    }
    cuda_race_close(&s->race);
}

static void start_from_what_is(struct attention_entry *e)
{
    e->found = (struct attention_found){.engine = e->plan.engine,
                                        .ordered = e->ordered,
                                        .workspace_bytes = e->plan.workspace_bytes};
    e->found.key = attention_key(e);
}

static int64_t most_workspace(const struct search *s)
{
    int64_t most = 0;
    for (int i = 0; i < s->n; i++)
        if (s->candidate[i].plan.workspace_bytes > most)
            most = s->candidate[i].plan.workspace_bytes;
    return most;
}

/* Tensors lie in the arena of activations, which nothing needs before the first step; else in memory
 * for now. */
static void search_in_memory(struct search *s, struct kernel_context *context)
{
    struct cuda_state *state = cuda_state(context);
    int64_t workspace = most_workspace(s), bytes = trial_lay_out(&s->trial, workspace);
    void *memory = context->base[BUFFER_ACTIVATION];
    bool borrowed = memory != NULL && state->plan->bytes[BUFFER_ACTIVATION] >= bytes;
    if (!borrowed && cuda_take(state, bytes, &memory) != 0) {
        fail_clear();
        return;
    }
    s->trial.memory = memory;
    trial_lay_out(&s->trial, workspace);
    cuda_fill_normals(memory, DTYPE_BF16, s->trial.sum / 2, s->trial.stream);
    choose(s);
    cuda_must((int)cudaStreamSynchronize(s->trial.stream), "search for attention");
    if (!borrowed)
        cuda_drop(state, memory, bytes);
}

void attention_search(struct attention_entry *e, cudnnHandle_t handle,
                      struct kernel_context *context, void *native)
{
    struct search *s = must_alloc(1, sizeof *s);
    int64_t deadline_ns = units_now_ns() + build_ns;
    s->trial = (struct attention_trial){.entry = e, .handle = handle, .stream = native};
    s->trial.multiprocessors = cuda_state(context)->multiprocessors;
    start_from_what_is(e);
    cuda_race_open(&s->race, native);
    add_candidates(s, e->ordered, deadline_ns);
    if (e->backward && !e->ordered)
        add_candidates(s, true, deadline_ns);
    if (e->may_own)
        add_own(s);
    if (s->n > 1)
        search_in_memory(s, context);
    release(s);
    free(s);
}

int attention_adopt(struct attention_entry *e, cudnnHandle_t handle,
                    const struct attention_found *found)
{
    struct cudnn_graph graph;
    struct cudnn_config config[GRAPH_CONFIGS];
    struct cudnn_plan plan = {0};
    e->found = *found;
    e->own = found->own != 0;
    if (e->own)
        return 0;
    if (e->ordered == (found->ordered != 0) && cudnn_engine_same(&e->plan.engine, &found->engine))
        return 0;
    attention_graph(&graph, handle, e, found->ordered != 0);
    int n = cudnn_graph_configs(&graph, true, config), i = 0;
    while (i < n && !cudnn_engine_same(&config[i].engine, &found->engine))
        i++;
    bool made = i < n && cudnn_plan_make(&graph, &config[i], &plan) == CUDNN_STATUS_SUCCESS;
    cudnn_graph_end(&graph);
    if (!made)
        return fail(FAIL_CUDA,
                    "attention: cuDNN has no plan by engine %d here, which another rank chose for "
                    "all: take GPUs of one kind, or --gemm-search off",
                    found->engine.index);
    cudnn_plan_release(&e->plan);
    e->plan = plan;
    e->ordered = found->ordered != 0;
    return 0;
}
