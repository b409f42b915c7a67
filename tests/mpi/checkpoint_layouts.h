/* checkpoint_layouts: the layouts that go on from each other's checkpoints, and the trial of a pair. */
#ifndef TESTS_CHECKPOINT_LAYOUTS_H
#define TESTS_CHECKPOINT_LAYOUTS_H

#include "tests/test.h"

#include <mpi.h>
#include <stdlib.h>

#include "base/err.h"
#include "driver/checkpoint_gate.h"

static int rank, size;
static MPI_Comm world;
static struct gate_reference reference;
static struct backend backend;
static char root[CHECKPOINT_PATH];

struct how {
    const char *parallel;
    int ranks; /* 0: any number */
    int stage, virtual_stages;
    enum dtype dtype;
    struct layout layout;
    struct policy policy;
};

static struct how all[] = {
    {.parallel = "", .ranks = 0},
    {.parallel = "shard=2", .ranks = 2, .stage = 1},
    {.parallel = "shard=2", .ranks = 2, .stage = 2},
    {.parallel = "shard=2", .ranks = 2, .stage = 3},
    {.parallel = "tp=2", .ranks = 2},
    {.parallel = "pp=2", .ranks = 2}, /* a tied embedding lies on both stages, and is saved once */
    {.parallel = "pp=2", .ranks = 2, .virtual_stages = 2},
    {.parallel = "cp=2", .ranks = 2},
    {.parallel = "shard=3", .ranks = 3, .stage = 3},
    {.parallel = "shard=4", .ranks = 4, .stage = 1},
    {.parallel = "shard=4", .ranks = 4, .stage = 2},
    {.parallel = "shard=4", .ranks = 4, .stage = 3},
    {.parallel = "shard=2", .ranks = 4, .stage = 3},
    {.parallel = "tp=4", .ranks = 4},
    {.parallel = "tp=2", .ranks = 4},
    {.parallel = "tp=2,shard=2", .ranks = 4, .stage = 3},
    {.parallel = "pp=4", .ranks = 4},
    {.parallel = "pp=2,shard=2", .ranks = 4, .stage = 3},
    {.parallel = "tp=2,pp=2", .ranks = 4, .virtual_stages = 2},
    {.parallel = "cp=2,shard=2", .ranks = 4, .stage = 3},
    {.parallel = "tp=2,cp=2", .ranks = 4},
    {.parallel = "cp=2,pp=2", .ranks = 4},
};
static struct how experts[] = {
    {.parallel = "", .ranks = 0},
    {.parallel = "ep=2", .ranks = 2},
    {.parallel = "ep=2,shard=2", .ranks = 2, .stage = 1},
    {.parallel = "shard=2", .ranks = 2, .stage = 3},
    {.parallel = "tp=2", .ranks = 2},
    {.parallel = "ep=4", .ranks = 4},
    {.parallel = "ep=2", .ranks = 4},
    {.parallel = "tp=2,ep=2", .ranks = 4},
    {.parallel = "ep=2,pp=2", .ranks = 4},
    {.parallel = "ep=2,cp=2", .ranks = 4},
    {.parallel = "ep=2,shard=4", .ranks = 4, .stage = 2},
};
enum { ALL = sizeof all / sizeof all[0], EXPERTS = sizeof experts / sizeof experts[0] };

static inline void make(struct how *how)
{
    struct degrees degrees = {0};
    struct policy policy;
    policy_defaults(&policy, &reference.model);
    policy.shard_stage = how->stage > 0 ? how->stage : 3;
    policy.dtype = how->dtype;
    if (how->virtual_stages > 1) {
        policy.schedule = SCHEDULE_INTERLEAVED;
        policy.virtual_stages = how->virtual_stages;
    }
    CHECK_EQ(layout_parse(how->parallel, &degrees), 0);
    CHECK_EQ(layout_init(&how->layout, size, 1, rank, &degrees), 0);
    how->policy = gate_point_policy(&reference, &how->layout, &policy, false);
}

static inline struct checkpoint_trial trial_of(const struct how *from, const struct how *to,
                                               enum save_mode mode)
{
    return (struct checkpoint_trial){.reference = &reference,
                                     .from = &from->layout,
                                     .to = &to->layout,
                                     .from_policy = from->policy,
                                     .to_policy = to->policy,
                                     .backend = &backend,
                                     .parent = &world,
                                     .root = root,
                                     .mode = mode,
                                     .exact = from == to};
}

static inline void check_rows(const struct gate_row *rows, const struct how *from,
                              const struct how *to)
{
    for (int i = 0; i < CHECKPOINT_TRIAL_ROWS; i++)
        if (!CHECK(rows[i].passed))
            printf("rank %d of %d: \"%s\" stage %d -> \"%s\" stage %d: %s %s: %g, allowed %g\n",
                   rank, size, from->parallel, from->stage, to->parallel, to->stage, rows[i].check,
                   rows[i].subject, rows[i].difference, rows[i].allowed);
}

/* Each layout goes on by itself and on some others, so that each is gone on from by as many; with
 * SCALESTUDY_DEEP=1 on all. Every pair is compared element by element in unit test_checkpoint. */
static inline bool is_tried(int from, int to, int n)
{
    int apart = (to - from + n) % n;
    const char *deep = getenv("SCALESTUDY_DEEP");
    return apart <= 1 || apart == 3 || (deep != NULL && strcmp(deep, "1") == 0);
}

static inline void any_resumes_any(struct how *list, int n_list)
{
    struct how *here[ALL];
    struct gate_row rows[CHECKPOINT_TRIAL_ROWS];
    int n = 0;
    for (int i = 0; i < n_list; i++)
        if (list[i].ranks == 0 || list[i].ranks == size)
            make(here[n++] = &list[i]);
    for (int from = 0; from < n; from++) {
        double loss = 0;
        struct checkpoint_trial trial =
            trial_of(here[from], here[from], (enum save_mode)(from % SAVE_MODES));
        trial.shared = from % 2 == 1;
        if (!CHECK_EQ(checkpoint_trial_save(&trial, &loss), 0))
            printf("\"%s\": %s\n", here[from]->parallel, fail_message());
        for (int to = 0; to < n; to++) {
            struct checkpoint_trial load = trial_of(here[from], here[to], trial.mode);
            if (!is_tried(from, to, n))
                continue;
            if (CHECK_EQ(checkpoint_trial_load(&load, loss, rows), 0))
                check_rows(rows, here[from], here[to]);
            else
                printf("\"%s\" -> \"%s\": %s\n", here[from]->parallel, here[to]->parallel,
                       fail_message());
        }
        checkpoint_trial_remove(&trial);
    }
}

/* Of a model with experts, each with its own tensors. */
static inline void experts_resume(void)
{
    struct gate_shape shape = {.tp = 2, .rows = 8, .layers = 2};
    struct routing routing;
    struct model model;
    if (size != 2 && size != 4)
        return;
    routing_defaults(&routing);
    gate_reference_release(&reference);
    CHECK_EQ(model_load(&model, "tiny-moe"), 0);
    CHECK_EQ(gate_reference_routed(&reference, &model, &routing, &shape, 4 * size, 1, GATE_FP32,
                                   rank, &world),
             0);
    any_resumes_any(experts, EXPERTS);
}

#endif
