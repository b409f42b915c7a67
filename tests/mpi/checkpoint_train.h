/* checkpoint_train: a training of the gate model by hand, with a saver; and what its tests begin and end with. */
#ifndef TESTS_CHECKPOINT_TRAIN_H
#define TESTS_CHECKPOINT_TRAIN_H

#include "tests/mpi/checkpoint_layouts.h"

#include <unistd.h>

#include "base/units.h"

static char folder[CHECKPOINT_PATH]; /* `root` is within it */
static int64_t begin_step;           /* of savers to be opened */

struct train {
    struct plan plan;
    struct input input;
    struct execute execute;
    struct saver saver;
};

static inline int train_try(struct train *t, const struct how *how, const char *where, int64_t keep,
                            bool continues)
{
    memset(t, 0, sizeof *t);
    CHECK_EQ(transformer_plan(&t->plan, &reference.model, &how->layout, &how->policy), 0);
    CHECK_EQ(input_open(&t->input, "synthetic", 1, reference.model.vocabulary,
                        reference.model.sequence, 0.25, 0),
             0);
    struct execute_config config = {.plan = &t->plan,
                                    .backend = &backend,
                                    .input = &t->input,
                                    .parent = &world,
                                    .max_steps = 4,
                                    .fault = {.drop_op = -1},
                                    .save_stamps = saver_stamps(&t->plan, backend.device),
                                    .save_tasks = saver_tasks(&t->plan, backend.device)};
    CHECK_EQ(execute_open(&t->execute, &config), 0);
    execute_reset(&t->execute, 5);
    struct saver_config saves = {.execute = &t->execute,
                                 .parent = &world,
                                 .root = where,
                                 .needs_snapshot = true,
                                 .crowded = true,
                                 .keep = keep,
                                 .continues = continues,
                                 .begin_step = begin_step};
    return saver_open(&t->saver, &saves);
}

static inline void train_open(struct train *t, const struct how *how, const char *where,
                              int64_t keep)
{
    if (!CHECK_EQ(train_try(t, how, where, keep, false), 0))
        printf("%s\n", fail_message());
}

static inline void train_close(struct train *t)
{
    saver_close(&t->saver);
    execute_close(&t->execute);
    input_close(&t->input);
    plan_release(&t->plan);
}

/* Three steps, the call before the middle one; then until it is over. Returns the slot. */
static inline int save_once(struct train *t, enum save_mode mode)
{
    int over = -1, ended = -1;
    saver_want(&t->saver, 1, mode);
    execute_block(&t->execute, VARIANT_FULL, 1, 3, -1, NULL);
    int called = saver_collect(&t->saver);
    if (t->saver.slot[called].state >= SAVE_PUBLISHED)
        ended = called;
    while (saver_under_way(&t->saver) > 0) {
        CHECK_EQ(saver_poll(&t->saver, &over), 0);
        units_sleep_ns(200000);
        ended = over >= 0 ? over : ended;
    }
    CHECK_EQ(called, ended);
    return ended;
}

static inline void trains_begin(int argc, char **argv)
{
    int provided;
    struct model model;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
    MPI_Comm_dup(MPI_COMM_WORLD, &world);
    MPI_Comm_rank(world, &rank);
    MPI_Comm_size(world, &size);
    backend = (struct backend){
        .device = &device_cpu, .comm = &comm_mpi, .kernels = &kernels_cpu, .local_rank = rank};
    const char *base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(folder, sizeof folder, "%s/scalestudy-mpi-checkpoint.XXXXXX", base);
    if (rank == 0 && mkdtemp(folder) == NULL)
        MPI_Abort(world, 1);
    MPI_Bcast(folder, sizeof folder, MPI_CHAR, 0, world);
    checkpoint_path(root, sizeof root, folder, "root");
    CHECK_EQ(model_load(&model, "tiny"), 0);
    struct gate_shape shape = {.tp = 4, .rows = 8, .layers = 4};
    struct routing routing;
    routing_defaults(&routing);
    CHECK_EQ(gate_reference_routed(&reference, &model, &routing, &shape, 4 * size, 1, GATE_FP32,
                                   rank, &world),
             0);
}

/* The exit status. */
static inline int trains_end(void)
{
    gate_reference_release(&reference);
    MPI_Barrier(world);
    if (rank == 0)
        CHECK_EQ(rmdir(folder), 0);
    long failed = test_failed;
    MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_LONG, MPI_MAX, world);
    MPI_Comm_free(&world);
    MPI_Finalize();
    int rc = rank == 0 || test_failed ? test_end() : 0;
    return rc || failed;
}

#endif
