/* An executor opens on all ranks of a point, or on none: one rank that fails, early or late, takes the
 * others with it by its own sentence before they wait for it, and the next one opens. */
#include <limits.h>
#include <mpi.h>
#include <stdlib.h>

#include "base/err.h"
#include "driver/execute.h"
#include "tests/test.h"
#include "workloads/transformer.h"

static const MPI_Comm world = MPI_COMM_WORLD;
static int rank, size;

/* ---- parts that fail on one rank ---- */

enum fault {
    FAULT_NONE,
    FAULT_MEMORY,
    FAULT_CALL,
    FAULT_KERNELS_EARLY,
    FAULT_KERNELS_LATE,
    FAULTS
};

static enum fault fault;
static int gathers;
static struct device_type device;
static struct comm_type comm;
static struct kernel_set kernels;

static bool mine(enum fault which)
{
    return fault == which && rank == size / 2;
}

static int broken(enum fault which)
{
    return mine(which) ? fail(FAIL_CUDA, "a test: fault %d of rank %d", (int)which, rank) : 0;
}

static int alloc(struct device *on, enum device_class which, size_t bytes, void **out)
{
    int rc = broken(FAULT_MEMORY);
    return rc != 0 ? rc : device_cpu.alloc(on, which, bytes, out);
}

static int takes(const struct comm *on, const struct coll *coll)
{
    int rc = broken(FAULT_CALL);
    return rc != 0 ? rc : comm_mpi.takes(on, coll);
}

/* As a set does that measures: agree, gather, and go on alone. */
static int open_kernels(struct kernel_context *context, const struct plan *plan, struct device *on)
{
    void *all = NULL;
    size_t bytes = 0;
    int rc = 0;
    TRY(kernels_cpu.open(context, plan, on));
    TRY(context->share->agree(context->share->arg, broken(FAULT_KERNELS_EARLY)));
    TRY(context->share->gather(context->share->arg, &rank, sizeof rank, &all, &bytes));
    CHECK_EQ(bytes, (size_t)size * sizeof rank);
    gathers++;
    rc = broken(FAULT_KERNELS_LATE);
out:
    free(all);
    return rc;
}

/* ---- a point ---- */

static void open_once(const struct plan *plan, const struct input *input)
{
    struct backend backend = {.device = &device, .comm = &comm, .kernels = &kernels};
    struct execute_config config = {.plan = plan,
                                    .backend = &backend,
                                    .input = input,
                                    .parent = &world,
                                    .max_steps = 1,
                                    .fault = {.drop_op = -1}};
    struct execute execute;
    char words[64];
    snprintf(words, sizeof words, "a test: fault %d of rank %d", (int)fault, size / 2);
    CHECK_EQ(execute_open(&execute, &config), fault == FAULT_NONE ? 0 : FAIL_CUDA);
    CHECK(fault == FAULT_NONE || strcmp(fail_message(), words) == 0);
    fail_clear();
    if (fault == FAULT_NONE) {
        execute_reset(&execute, 1);
        execute_block(&execute, VARIANT_FULL, 1, 1, -1, NULL);
        CHECK_EQ(execute.global_steps, 1);
    }
    execute_close(&execute);
}

static void all_or_none(const struct plan *plan, const struct input *input)
{
    static const int gathered[FAULTS] = {1, 0, 0, 0, 1};
    for (int f = 0; f < FAULTS; f++) {
        if (f == FAULT_CALL && plan->n_channels == 0)
            continue; /* alone: there are no calls */
        gathers = 0;
        fault = (enum fault)f;
        open_once(plan, input);
        CHECK_EQ(gathers, gathered[f]);
        fault = FAULT_NONE;
        open_once(plan, input);
    }
}

/* A call of the plan that MPI cannot count is refused before the first step: counted ones at their most. */
static void too_many(struct plan *plan, const struct input *input)
{
    struct backend backend = {.device = &device_cpu, .comm = &comm_mpi, .kernels = &kernels_cpu};
    struct execute_config config = {.plan = plan,
                                    .backend = &backend,
                                    .input = input,
                                    .parent = &world,
                                    .max_steps = 1,
                                    .fault = {.drop_op = -1}};
    struct execute execute;
    int last = plan->n_ops - 1;
    while (last >= 0 && plan->ops[last].kind != OP_COLLECTIVE)
        last--;
    if (last < 0)
        return;
    struct op before = plan->ops[last];
    struct shape_coll *shape = &plan->ops[last].shape.coll;
    shape->coll.kind = COLL_ALL_TO_ALL_V;
    shape->counted = true;
    shape->most[0] = 7;
    for (int64_t most = INT_MAX; most <= INT64_C(1) + INT_MAX; most++) {
        bool fits = most == INT_MAX;
        shape->most[1] = most;
        CHECK_EQ(execute_open(&execute, &config), fits ? 0 : FAIL_USAGE);
        if (!fits)
            CHECK_HAS(fail_message(),
                      "all-to-all-v of up to 2147483648 elements: MPI takes at most "
                      "2147483647 in one call");
        fail_clear();
        execute_close(&execute);
    }
    plan->ops[last] = before;
}

int main(int argc, char **argv)
{
    struct degrees degrees = {0};
    struct layout layout;
    struct model model;
    struct policy policy;
    struct plan plan;
    struct input input;
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level);
    MPI_Comm_rank(world, &rank);
    MPI_Comm_size(world, &size);
    device = device_cpu, comm = comm_mpi, kernels = kernels_cpu;
    device.alloc = alloc, comm.takes = takes, kernels.open = open_kernels;
    CHECK_EQ(model_load(&model, "tiny"), 0);
    model.sequence = 16;
    policy_defaults(&policy, &model);
    policy.global_batch = 2 * size;
    policy.micro_batch = 1;
    CHECK_EQ(layout_init(&layout, size, 1, rank, &degrees), 0);
    CHECK_EQ(transformer_plan(&plan, &model, &layout, &policy), 0);
    CHECK_EQ(input_open(&input, "synthetic", 3, model.vocabulary, 16, 0, 0), 0);
    all_or_none(&plan, &input);
    too_many(&plan, &input);
    input_close(&input);
    plan_release(&plan);
    MPI_Finalize();
    return test_end();
}
