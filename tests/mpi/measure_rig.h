/*
 * measure_rig: a point of the tiny model on all ranks, open and reset, for the timed section; and a state that is
 * not the generator's, for sections that begin with one.
 */
#ifndef TESTS_MPI_MEASURE_RIG_H
#define TESTS_MPI_MEASURE_RIG_H

#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "driver/measure.h"
#include "tests/test.h"
#include "workloads/transformer.h"

enum { BLOCK = 2 };

static const MPI_Comm world = MPI_COMM_WORLD;
static int rank, size;

struct rig {
    struct study study;
    struct model model;
    struct layout layout;
    struct plan plan;
    struct input input;
    struct backend backend;
    struct execute execute;
    struct measure measure;
};

static inline void rig_open(struct rig *rig, bool scratch, int64_t steps)
{
    struct degrees degrees = {0};
    struct policy policy;
    memset(rig, 0, sizeof *rig);
    rig->study = (struct study){.warm_up = 1,
                                .settle = 1,
                                .min_steps = steps,
                                .max_steps = steps,
                                .max_seconds = 60,
                                .stamps = 1,
                                .block = BLOCK};
    CHECK_EQ(model_load(&rig->model, "tiny"), 0);
    rig->model.sequence = 16;
    policy_defaults(&policy, &rig->model);
    policy.global_batch = 2 * size;
    policy.micro_batch = 1;
    policy.bucket_bytes = 400000;
    policy.warm_up = 2;
    CHECK_EQ(layout_init(&rig->layout, size, 1, rank, &degrees), 0);
    CHECK_EQ(transformer_plan(&rig->plan, &rig->model, &rig->layout, &policy), 0);
    CHECK_EQ(input_open(&rig->input, "synthetic", 3, rig->model.vocabulary, 16, 0, 0), 0);
    rig->backend = (struct backend){.device = &device_cpu, .kernels = &kernels_cpu};
    CHECK_EQ(comm_find("mpi", &rig->backend.comm), 0);
    struct execute_config config = {.plan = &rig->plan,
                                    .backend = &rig->backend,
                                    .input = &rig->input,
                                    .parent = &world,
                                    .max_steps = BLOCK + 1,
                                    .scratch = scratch,
                                    .fault = {.drop_op = -1}};
    CHECK_EQ(execute_open(&rig->execute, &config), 0);
    execute_reset(&rig->execute, 1);
    rig->measure = (struct measure){.study = &rig->study,
                                    .execute = &rig->execute,
                                    .layout = &rig->layout,
                                    .parent = &world,
                                    .together = &world,
                                    .seed = 1,
                                    .t0_ns = 1000};
}

static inline void rig_close(struct rig *rig)
{
    measure_release(&rig->measure);
    execute_close(&rig->execute);
    input_close(&rig->input);
    plan_release(&rig->plan);
}

/* The whole training state of this rank at some step, on the host. */
struct known {
    struct execute *execute;
    unsigned char *copy[PLAN_BUFFERS];
    int64_t consumed, global_steps, micro_steps;
    int asked;
};

static inline void known_keep(struct known *known, struct execute *e)
{
    *known = (struct known){.execute = e,
                            .consumed = e->consumed,
                            .global_steps = e->global_steps,
                            .micro_steps = e->micro_steps};
    for (int b = 1; b < PLAN_BUFFERS; b++)
        if (execute_is_state(b) && e->plan->bytes[b] > 0) {
            known->copy[b] = must_alloc((size_t)e->plan->bytes[b], 1);
            memcpy(known->copy[b], e->memory[b], (size_t)e->plan->bytes[b]);
        }
}

/* struct measure.again: the executor is where it was when the state was kept. */
static inline int known_again(void *arg)
{
    struct known *known = arg;
    struct execute *e = known->execute;
    for (int b = 1; b < PLAN_BUFFERS; b++)
        if (known->copy[b] != NULL)
            memcpy(e->memory[b], known->copy[b], (size_t)e->plan->bytes[b]);
    e->consumed = known->consumed;
    e->global_steps = known->global_steps;
    e->micro_steps = known->micro_steps;
    known->asked++;
    return 0;
}

static inline void known_release(struct known *known)
{
    for (int b = 1; b < PLAN_BUFFERS; b++)
        free(known->copy[b]);
}

#endif
