/*
 * synthetic: rows of a point whose truth is known, for tests of the analysis.
 *
 * Every rank computes `compute_ns` (times its own factor), takes `input_ns` of input, then waits
 * until the slowest rank has done so and `comm_ns` more of communication is over: that wait is its
 * stall. What `residual_ns` adds nobody explains. Compute-only steps of a rank are compute and
 * input alone; in full steps compute takes `slowdown_ns` longer. Jitter multiplies the compute of
 * a step on all ranks.
 */
#ifndef TESTS_SYNTHETIC_H
#define TESTS_SYNTHETIC_H

#include <stdlib.h>
#include <string.h>

#include "analysis/record.h"
#include "base/rng.h"

struct synthetic {
    int point, launch, nodes, ranks_per_node;
    int cycles, block; /* alternations; measured steps of a block */
    int warm_up;       /* full steps before the first block */
    int64_t global_batch, sequence;
    double compute_ns, input_ns, comm_ns, slowdown_ns, residual_ns;
    double odd_factor;  /* on the compute of every second full block; 1: none */
    double jitter;      /* standard deviation, share of compute */
    int slow_rank;      /* -1: none */
    double slow_factor; /* on its compute */
    double gap_ns;      /* between the end of a step and the start of the next */
    bool bare;          /* full steps have two stamps only */
    bool graphs;        /* a block of graphs behind each plain one: no gap between their steps */
    uint64_t seed;
};

static inline struct synthetic synthetic_default(int nodes, int ranks_per_node)
{
    return (struct synthetic){.nodes = nodes,
                              .ranks_per_node = ranks_per_node,
                              .cycles = 4,
                              .block = 5,
                              .warm_up = 3,
                              .global_batch = 16,
                              .sequence = 64,
                              .compute_ns = 80e6 / (nodes * ranks_per_node),
                              .input_ns = 1e6,
                              .comm_ns = nodes * ranks_per_node > 1 ? 4e6 : 0,
                              .slowdown_ns = nodes * ranks_per_node > 1 ? 1e6 : 0,
                              .odd_factor = 1,
                              .slow_rank = -1,
                              .slow_factor = 1,
                              .seed = 7};
}

struct synthetic_clock {
    int64_t now_ns;
    int step[VARIANTS];
    int block, full_blocks;
};

static inline double synthetic_compute(const struct synthetic *s, int rank, int variant,
                                       const struct synthetic_clock *clock, uint64_t draw)
{
    double compute = s->compute_ns * (rank == s->slow_rank ? s->slow_factor : 1.0);
    compute *= 1.0 + s->jitter * (double)rng_normal(rng_key(s->seed, "jitter"), draw);
    if (variant == VARIANT_FULL)
        compute = compute * (clock->full_blocks % 2 ? s->odd_factor : 1.0) + s->slowdown_ns;
    return compute;
}

static inline void synthetic_stall(struct record_point *p, const struct step_row *r, double comm_ns)
{
    struct stall_row *w = RECORD_ADD(&p->stalls, 1);
    w->variant = r->variant;
    w->step = r->step;
    w->rank = r->rank;
    strcpy(w->axis, "dp");
    w->waits = 2;
    w->stall_ns = r->stall_ns;
    w->comm_ns = (int64_t)comm_ns + 2000000;
    w->exposed_ns = r->flags & STEP_INSTRUMENTED ? r->stall_ns : -1;
    w->wire_bytes = 3000000;
    for (int call = 0; call < 2; call++) {
        struct call_row *c = RECORD_ADD(&p->collectives, 1);
        c->variant = r->variant;
        c->step = r->step;
        c->rank = r->rank;
        c->call = call;
        strcpy(c->axis, "dp");
        strcpy(c->kind, "all-reduce");
        c->bytes = 1000000;
        c->group = p->point.ranks;
        /* Each of two calls: half of the communication, and half of the wait for late peers. */
        c->duration_ns = (int64_t)(comm_ns / 2 + ((double)r->stall_ns - comm_ns) / 2);
    }
}

/* One step of all ranks; `free_run` keeps the ranks' own clocks of compute-only blocks. */
static inline void synthetic_step(struct record_point *p, const struct synthetic *s,
                                  struct synthetic_clock *clock, int variant, int flags,
                                  int64_t *free_run)
{
    int ranks = p->point.ranks, step = clock->step[variant]++;
    double latest = 0;
    uint64_t draw = (uint64_t)step * VARIANTS + (uint64_t)variant;
    for (int rank = 0; rank < ranks; rank++) {
        double own = synthetic_compute(s, rank, variant, clock, draw) + s->input_ns;
        latest = own > latest ? own : latest;
    }
    struct step_row *rows = RECORD_ADD(&p->steps, ranks);
    for (int rank = 0; rank < ranks; rank++) {
        struct step_row *r = &rows[rank];
        int64_t compute = (int64_t)synthetic_compute(s, rank, variant, clock, draw);
        int64_t input = (int64_t)s->input_ns, residual = (int64_t)s->residual_ns;
        bool comm = variant == VARIANT_FULL && ranks > 1;
        int64_t stall = comm ? (int64_t)(latest + s->comm_ns) - compute - input : 0;
        *r = (struct step_row){.variant = variant,
                               .block = clock->block,
                               .step = step,
                               .rank = rank,
                               .flags = flags,
                               .start_ns = free_run[rank]};
        if (variant == VARIANT_COMM)
            r->end_ns = r->start_ns + (int64_t)s->comm_ns;
        else
            r->end_ns = r->start_ns + compute + input + stall + residual;
        free_run[rank] = r->end_ns + (int64_t)s->gap_ns;
        r->valid_tokens = variant == VARIANT_FULL ? p->point.positions_per_step : 0;
        r->consumed = variant == VARIANT_FULL ? (step + 1) * p->point.global_batch : 0;
        r->loss = variant == VARIANT_FULL ? 5.0 / (1 + step) : 0;
        r->stall_ns = flags & STEP_BARE ? 0 : stall;
        if (flags & STEP_INSTRUMENTED) {
            r->compute_ns = variant == VARIANT_COMM ? 0 : compute;
            r->input_ns = variant == VARIANT_COMM ? 0 : input;
            r->residual_ns = r->end_ns - r->start_ns - r->compute_ns - r->input_ns - r->stall_ns;
        }
        clock->now_ns = r->end_ns > clock->now_ns ? r->end_ns : clock->now_ns;
        if (comm)
            synthetic_stall(p, r, s->comm_ns);
    }
}

static inline void synthetic_block(struct record_point *p, const struct synthetic *s,
                                   struct synthetic_clock *clock, int variant, int flags)
{
    int64_t *free_run = calloc((size_t)p->point.ranks, sizeof *free_run);
    for (int rank = 0; rank < p->point.ranks; rank++)
        free_run[rank] = clock->now_ns;
    for (int i = 0; i <= s->block; i++)
        synthetic_step(p, s, clock, variant, flags | (i == 0 ? STEP_LEAD_IN : 0), free_run);
    clock->block++;
    clock->full_blocks += variant == VARIANT_FULL && !(flags & (STEP_INSTRUMENTED | STEP_GRAPH));
    clock->now_ns += 1000000;
    free(free_run);
}

static inline void synthetic_head_row(struct point_row *p, const struct synthetic *s)
{
    *p = (struct point_row){.point = s->point,
                            .launch = s->launch,
                            .nodes = s->nodes,
                            .ranks = s->nodes * s->ranks_per_node,
                            .ranks_per_node = s->ranks_per_node,
                            .tp = 1,
                            .pp = 1,
                            .cp = 1,
                            .ep = 1,
                            .dp = s->nodes * s->ranks_per_node,
                            .shard = 1,
                            .global_batch = s->global_batch,
                            .micro_batch = 1,
                            .micro_steps = s->global_batch / (s->nodes * s->ranks_per_node),
                            .sequence = s->sequence,
                            .parameters = 123456,
                            .settled = 1,
                            .valid = 1,
                            .gate_s = 0.5,
                            .setup_s = 0.25,
                            .warm_up_s = 0.125,
                            .timed_s = 10,
                            .initial_loss = 5.5,
                            .final_loss = 4.25,
                            .input_entropy = 2,
                            .peak_flops_per_rank = 50e9};
    p->positions_per_step = s->global_batch * s->sequence;
    p->model_flops_per_step = 1e6 * (double)p->positions_per_step;
    strcpy(p->parallel, "");
    strcpy(p->scaling, "strong");
    strcpy(p->model, "tiny");
    strcpy(p->dtype, "fp32");
    strcpy(p->device, "cpu");
    strcpy(p->comm, "mpi");
    strcpy(p->input, "synthetic");
    strcpy(p->gate, "passed");
    strcpy(p->peak_source, "fp32 GEMM 512x512x512, one rank alone");
}

/* Two checks, the worse at a quarter of its bound, and three counts that agree. */
static inline void synthetic_proof(struct record_point *out)
{
    static const char *const quantities[] = {"tokens", "model FLOPs", "wire bytes dp"};
    struct gate_row *gate = RECORD_ADD(&out->gate, 2);
    for (int i = 0; i < 2; i++) {
        strcpy(gate[i].check, i == 0 ? "gradient" : "loss");
        strcpy(gate[i].subject, i == 0 ? "wte" : "step 1");
        gate[i].difference = i == 0 ? 2.5e-6 : 1e-6;
        gate[i].allowed = 1e-5;
        gate[i].passed = 1;
    }
    for (int i = 0; i < (out->point.ranks > 1 ? 3 : 2); i++) {
        struct work_row *work = RECORD_ADD(&out->work, 1);
        strcpy(work->quantity, quantities[i]);
        work->formula = work->plan = work->executed = 1e6;
        work->passed = 1;
    }
}

/* The mirrored cycle F C M I, I M C F. */
static inline void synthetic_point(struct record_point *out, const struct synthetic *s)
{
    struct synthetic_clock clock = {.now_ns = 1000000000};
    int64_t *free_run = calloc((size_t)(s->nodes * s->ranks_per_node), sizeof *free_run);
    int full = s->bare ? STEP_BARE : 0;
    struct synthetic graphs = *s;
    graphs.gap_ns = 0;
    memset(out, 0, sizeof *out);
    synthetic_head_row(&out->point, s);
    for (int i = 0; i < s->warm_up; i++) {
        for (int rank = 0; rank < out->point.ranks; rank++)
            free_run[rank] = clock.now_ns + 500000000; /* warm-up steps are slow */
        clock.now_ns += 500000000;
        synthetic_step(out, s, &clock, VARIANT_FULL, STEP_WARM_UP, free_run);
    }
    clock.block++;
    free(free_run);
    for (int i = 0; i < s->cycles; i++) {
        int order[4] = {0, 1, 2, 3};
        for (int j = 0; j < 4; j++) {
            int kind = order[i % 2 ? 3 - j : j];
            if (kind == 0) {
                synthetic_block(out, s, &clock, VARIANT_FULL, full);
                if (s->graphs)
                    synthetic_block(out, &graphs, &clock, VARIANT_FULL, full | STEP_GRAPH);
            }
            if (kind == 1)
                synthetic_block(out, s, &clock, VARIANT_COMPUTE, STEP_INSTRUMENTED | STEP_SCRATCH);
            else if (kind == 2)
                synthetic_block(out, s, &clock, VARIANT_COMM, STEP_SCRATCH);
            else if (kind == 3)
                synthetic_block(out, s, &clock, VARIANT_FULL, STEP_INSTRUMENTED);
        }
    }
    synthetic_proof(out);
    struct memory_row *m = RECORD_ADD(&out->memory, 1);
    strcpy(m->class, "process");
    m->peak_bytes = 100 << 20;
}

/* A machine of `nodes` hosts, and what the report asks of the head. */
static inline void synthetic_head(struct record_head *out, int nodes, int ranks_per_node)
{
    char text[64];
    memset(out, 0, sizeof *out);
    out->schema = RECORD_SCHEMA;
    out->t0_unix_ns = 1700000000000000000;
    memset(out->study_digest, 'a', 64);
    out->n_hosts = nodes;
    out->n_ranks = nodes * ranks_per_node;
    out->hosts = calloc((size_t)nodes, sizeof *out->hosts);
    out->ranks = calloc((size_t)out->n_ranks, sizeof *out->ranks);
    for (int i = 0; i < nodes; i++) {
        struct host_row *h = &out->hosts[i];
        snprintf(h->name, sizeof h->name, "host%02d", i);
        strcpy(h->processor, "Imaginary 3000");
        h->ranks = ranks_per_node;
        h->cores = h->cpus = 8;
        h->memory_bytes = (int64_t)16 << 30;
    }
    for (int i = 0; i < out->n_ranks; i++) {
        out->ranks[i].rank = i;
        out->ranks[i].host = i / ranks_per_node;
        out->ranks[i].local = i % ranks_per_node;
    }
    snprintf(text, sizeof text, "%dx%d", nodes, ranks_per_node);
    record_head_set(out, "study", "layout", text);
    record_head_set(out, "study", "order", "tp-cp-ep-dp-pp");
    record_head_set(out, "study", "seed", "42");
}

#endif
