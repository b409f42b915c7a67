/*
 * gpu_step: a training step of the tiny model on the "cuda" device, one executor and all it needs, for
 * tests that run steps on one GPU or on one for each rank.
 */
#ifndef TESTS_GPU_GPU_STEP_H
#define TESTS_GPU_GPU_STEP_H

#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "driver/execute.h"
#include "tests/test.h"
#include "workloads/input_feed.h"
#include "workloads/transformer.h"

struct gpu_step {
    struct model model;
    struct policy policy;
    struct layout layout;
    struct plan plan;
    struct input input;
    struct backend backend;
    struct execute execute;
};

struct gpu_step_ask {
    enum dtype dtype;
    int max_steps; /* of a block */
    bool graph, deterministic;
};

/* Two micro-batches of two samples on each rank, gradients in several buckets; state from seed 1. */
static inline int gpu_step_open(struct gpu_step *s, const struct gpu_step_ask *ask, int rank,
                                int size, MPI_Comm *world)
{
    struct degrees degrees = {0};
    int rc = 0;
    memset(s, 0, sizeof *s);
    TRY(model_load(&s->model, "tiny"));
    policy_defaults(&s->policy, &s->model);
    s->policy.global_batch = 8 * size;
    s->policy.micro_batch = 4;
    s->policy.dtype = ask->dtype;
    s->policy.copy_stream = true;
    s->policy.bucket_bytes = 64 << 10;
    TRY(layout_parse("", &degrees));
    TRY(layout_init(&s->layout, 1, size, rank, &degrees));
    TRY(transformer_plan(&s->plan, &s->model, &s->layout, &s->policy));
    TRY(input_open(&s->input, "synthetic", 1, s->model.vocabulary, s->model.sequence, 0, 0));
    s->input.pinned = true;
    TRY(input_feed_open(&s->input, &s->plan, 0, 4, ask->max_steps));
    s->backend.device = &device_cuda;
    s->backend.comm = &comm_nccl;
    s->backend.kernels = &kernels_cuda;
    s->backend.local_rank = rank;
    s->backend.deterministic = ask->deterministic;
    struct execute_config config = {.plan = &s->plan,
                                    .backend = &s->backend,
                                    .input = &s->input,
                                    .parent = world,
                                    .max_steps = ask->max_steps,
                                    .scratch = true,
                                    .fault = {.drop_op = -1},
                                    .graph = ask->graph};
    TRY(execute_open(&s->execute, &config));
    execute_reset(&s->execute, 1);
out:
    return rc;
}

static inline void gpu_step_close(struct gpu_step *s)
{
    execute_close(&s->execute);
    input_close(&s->input);
    plan_release(&s->plan);
}

#endif
