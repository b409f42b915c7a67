/*
 * lockstep_gate.h: the layout-invariance gate in one process: the plans of all ranks of a layout,
 * run in lockstep, compared as driver/gate compares with one rank that does all the work. The
 * model, data and bounds are those that driver/gate.h declares.
 */
#ifndef TESTS_LOCKSTEP_GATE_H
#define TESTS_LOCKSTEP_GATE_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bf16.h"
#include "base/err.h"
#include "driver/gate.h"
#include "driver/lockstep.h"
#include "driver/state.h"
#include "workloads/build.h"
#include "workloads/kernels/kernels.h"
#include "workloads/transformer.h"

/* All ranks of one point. */
struct crew {
    int n;
    struct plan *plans; /* [n], owned */
    struct input input;
    struct lockstep lockstep;
    struct gate_found *found; /* [n] */
};

static inline void crew_release(struct crew *crew)
{
    lockstep_close(&crew->lockstep);
    for (int r = 0; r < crew->n; r++) {
        if (crew->plans)
            plan_release(&crew->plans[r]);
        if (crew->found) {
            free(crew->found[r].gradient);
            free(crew->found[r].parameter);
        }
    }
    free(crew->plans);
    free(crew->found);
    input_close(&crew->input);
    memset(crew, 0, sizeof *crew);
}

/* Plans alone; `crew` is released on failure. */
static inline int crew_plan(struct crew *crew, const struct model *model,
                            const struct policy *policy, const struct degrees *degrees, int nodes,
                            int ranks_per_node)
{
    int rc = 0, n = nodes * ranks_per_node;
    memset(crew, 0, sizeof *crew);
    crew->plans = must_alloc((size_t)n, sizeof *crew->plans);
    crew->found = must_alloc((size_t)n, sizeof *crew->found);
    for (; crew->n < n; crew->n++) {
        struct layout layout;
        TRY(layout_init(&layout, nodes, ranks_per_node, crew->n, degrees));
        TRY(transformer_plan(&crew->plans[crew->n], model, &layout, policy));
    }
out:
    if (rc)
        crew_release(crew);
    return rc;
}

static inline void crew_gradients(struct crew *crew, int rank)
{
    const struct plan *plan = &crew->plans[rank];
    struct tensor *at = must_alloc((size_t)plan->n_pieces, sizeof *at);
    enum dtype dtype = state_gradients(plan, at);
    for (int i = 0; i < plan->n_pieces; i++) {
        const unsigned char *from =
            lockstep_memory(&crew->lockstep, rank, (enum plan_buffer)at[i].buffer);
        const void *gradient = from + at[i].offset;
        float *to = crew->found[rank].gradient + plan->pieces[i].offset;
        for (int64_t e = 0; e < plan->pieces[i].count; e++)
            to[e] = dtype == DTYPE_BF16 ? bf16_to_float(((const uint16_t *)gradient)[e])
                                        : ((const float *)gradient)[e];
    }
    free(at);
}

static inline void crew_parameters(struct crew *crew, int rank)
{
    const struct plan *plan = &crew->plans[rank];
    memcpy(crew->found[rank].parameter,
           lockstep_memory(&crew->lockstep, rank, (enum plan_buffer)plan->master),
           (size_t)plan->n_state * sizeof(float));
}

/* Losses and norms of all steps, as rank 0 logs them; the same on every rank by contract. */
static inline void crew_log(struct crew *crew, int first, int n, double (*log)[SCALARS])
{
    for (int r = 0; r < crew->n; r++)
        for (int i = 0; i < n; i++) {
            crew->found[r].loss[first + i] = log[i][SCALAR_LOSS_SUM] / log[i][SCALAR_VALID];
            crew->found[r].norm[first + i] = log[i][SCALAR_NORM];
        }
}

/* Steps of what crew_plan made. */
static inline int crew_run(struct crew *crew, enum lockstep_order order, const struct model *model,
                           uint64_t seed, int steps)
{
    double log[GATE_STEPS][SCALARS];
    int rc = 0;
    TRY(input_open(&crew->input, "synthetic", seed, model->vocabulary, model->sequence, 0.25, 0));
    TRY(lockstep_open(&crew->lockstep, crew->plans, crew->n, &kernels_cpu, &crew->input, seed));
    for (int r = 0; r < crew->n; r++) {
        size_t n = (size_t)crew->plans[r].n_state;
        crew->found[r].plan = &crew->plans[r];
        crew->found[r].gradient = must_alloc(n, sizeof(float));
        crew->found[r].parameter = must_alloc(n, sizeof(float));
    }
    TRY(lockstep_run(&crew->lockstep, order, 1, log[0]));
    crew_log(crew, 0, 1, log);
    for (int r = 0; r < crew->n; r++)
        crew_gradients(crew, r);
    TRY(lockstep_run(&crew->lockstep, order, steps - 1, log[0]));
    crew_log(crew, 1, steps - 1, log);
    for (int r = 0; r < crew->n; r++)
        crew_parameters(crew, r);
out:
    return rc;
}

/* The reference: one rank that does everything, in micro-batches of `micro_batch`. */
static inline int crew_reference(struct gate_reference *reference, const struct model *model,
                                 const struct policy *policy, uint64_t seed, int steps)
{
    struct degrees alone = {0};
    struct crew crew;
    int rc = 0;
    memset(reference, 0, sizeof *reference);
    reference->model = *model;
    reference->seed = seed;
    reference->batch = policy->global_batch;
    reference->steps = steps;
    TRY(crew_plan(&crew, model, policy, &alone, 1, 1));
    rc = crew_run(&crew, LOCKSTEP_EARLY, model, seed, steps);
    lockstep_close(&crew.lockstep);
    if (rc == 0) {
        reference->plan = crew.plans[0];
        memset(&crew.plans[0], 0, sizeof crew.plans[0]);
        reference->gradient = crew.found[0].gradient;
        reference->parameter = crew.found[0].parameter;
        crew.found[0].gradient = crew.found[0].parameter = NULL;
        memcpy(reference->loss, crew.found[0].loss, sizeof reference->loss);
        memcpy(reference->norm, crew.found[0].norm, sizeof reference->norm);
    }
    crew_release(&crew);
out:
    return rc;
}

/* The worst row of all ranks: difference over what is allowed. At most 1: all passed. */
static inline double crew_compare(const struct crew *crew, const struct gate_reference *reference,
                                  struct gate_row *worst)
{
    size_t most = 4 * (size_t)reference->plan.n_tensors + 2 * GATE_STEPS;
    struct gate_row *rows = must_alloc(most, sizeof *rows);
    double severity = -1;
    for (int r = 0; r < crew->n; r++) {
        int64_t n = gate_compare(reference, &crew->found[r], rows);
        for (int64_t i = 0; i < n; i++)
            if (gate_severity(&rows[i]) > severity) {
                severity = gate_severity(&rows[i]);
                *worst = rows[i];
                worst->rank = r;
            }
    }
    free(rows);
    return severity;
}

/* Adds what a piece holds of a tensor: one, shared among the copies of a replicated part. */
struct crew_cover {
    double *held, weight;
};

static inline void crew_cover_run(void *arg, int64_t whole_first, int64_t local_first,
                                  int64_t count)
{
    const struct crew_cover *cover = arg;
    (void)local_first;
    for (int64_t i = 0; i < count; i++)
        cover->held[whole_first + i] += cover->weight;
}

/* Do all ranks together hold every element of every tensor once per replica? */
static inline bool crew_covers(const struct crew *crew, const struct gate_reference *reference)
{
    const struct degrees *d = &crew->plans[0].layout.degrees;
    int experts = d->shard > 1 ? 1 : crew->plans[0].layout.group[AXIS_EDP].size; /* sharded whole */
    bool whole = true;
    for (int i = 0; i < reference->plan.n_tensors && whole; i++) {
        const struct plan_tensor *t = &reference->plan.tensors[i];
        size_t n = (size_t)(t->rows * t->columns);
        struct crew_cover cover = {.held = must_alloc(n, sizeof *cover.held)};
        bool apart = false; /* an expert: as many ranks as the group of AXIS_EDP has hold it */
        for (int r = 0; r < crew->n; r++)
            for (int p = 0; p < crew->plans[r].n_pieces; p++) {
                const struct plan_piece *piece = &crew->plans[r].pieces[p];
                const struct plan_tensor *part = &crew->plans[r].tensors[piece->tensor];
                cover.weight = 1.0 / part->copies;
                if (strcmp(part->name, t->name) != 0)
                    continue;
                apart = part->expert && expert_is_apart(&crew->plans[r].layout);
                plan_piece_runs(&crew->plans[r], piece, crew_cover_run, &cover);
            }
        for (size_t e = 0; e < n; e++)
            whole =
                whole && fabs(cover.held[e] - (apart ? experts : d->dp * d->cp / d->shard)) < 1e-9;
        free(cover.held);
    }
    return whole;
}

#endif
