/* At any number of ranks the gate passes what is right, with and without accumulation and overlap, and
 * fails what is not: an op that is left out, a communicator that moves the wrong bytes on one rank, in
 * bf16 weights that are rounded one step late. A
 * learned router in bf16 passes though rounding chooses other experts, and fails with the worst ones. */
#include "tests/test.h"

#include <math.h>
#include <mpi.h>
#include <stdlib.h>

#include "base/bf16.h"
#include "base/err.h"
#include "driver/agree.h"
#include "driver/gate.h"

static int rank, size;
static MPI_Comm world;
static struct model model;
static struct gate_reference reference;
static struct backend backend;
static const struct execute_fault no_fault = {.drop_op = -1};

static void layout_of(struct layout *layout)
{
    struct degrees degrees = {0};
    CHECK_EQ(layout_parse("", &degrees), 0);
    CHECK_EQ(layout_init(layout, size, 1, rank, &degrees), 0);
}

/* The verdict on rank 0, given to all. */
static int verdict(bool accumulate, bool overlap, struct execute_fault fault, int64_t *checks)
{
    struct record_point rows;
    struct layout layout;
    struct policy policy;
    char why[512] = "";
    memset(&rows, 0, sizeof rows);
    layout_of(&layout);
    policy_defaults(&policy, &model);
    policy.overlap_gradients = overlap;
    CHECK_EQ(gate_point(&reference, &layout, &policy, accumulate, &backend, &world, fault, &rows),
             0);
    int rc = rank == 0 ? gate_verdict(&rows, why, sizeof why) : 0;
    if (rank == 0 && rc == 0 && size > 1)
        for (int64_t i = 0; i < rows.gate.n; i++)
            if (!CHECK(rows.gate.rows[i].passed))
                printf("%s %s\n", rows.gate.rows[i].check, rows.gate.rows[i].subject);
    if (checks)
        *checks = rows.gate.n;
    record_point_release(&rows);
    MPI_Bcast(&rc, 1, MPI_INT, 0, world);
    return rc;
}

static void right_passes(void)
{
    int64_t checks = 0;
    CHECK_EQ(verdict(false, true, no_fault, &checks), 0);
    if (rank == 0) /* gradient, update and nonzero of each tensor, padded rows, loss and norm */
        CHECK_EQ(checks, 3 * reference.plan.n_tensors + 1 + 2 * GATE_STEPS);
    CHECK_EQ(verdict(true, true, no_fault, NULL), 0);
    CHECK_EQ(verdict(true, false, no_fault, NULL), 0);
}

/* Ops of the first forward pass: every plan has them at the same place. */
static void dropped_op_fails(void)
{
    static const enum op_kind kinds[] = {OP_ZERO, OP_EMBED, OP_NORM, OP_ATTENTION, OP_GELU};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        struct execute_fault fault = {.drop_op = 0};
        while (reference.plan.ops[fault.drop_op].kind != kinds[k])
            fault.drop_op++;
        CHECK_EQ(verdict(false, true, fault, NULL), FAIL_WRONG);
    }
}

/* A communicator whose last member contributes one element less to every gradient bucket. */
static void faulty_post(struct comm *comm, const struct comm_call *calls, int n_calls)
{
    struct comm_call call = calls[0];
    if (call.coll.dtype == DTYPE_F32 && comm->group.me == comm->group.size - 1)
        ((float *)call.recv)[0] = 0; /* lost before it is summed */
    comm_mpi.post(comm, &call, n_calls);
}

static void wrong_bytes_fail(void)
{
    struct comm_type faulty = comm_mpi;
    const struct comm_type *right = backend.comm;
    faulty.post = faulty_post;
    if (size == 1)
        return;
    backend.comm = &faulty;
    CHECK_EQ(verdict(false, true, no_fault, NULL), FAIL_WRONG);
    backend.comm = right;
}

/* ---- bf16 ---- */

/* The gate of a point in bf16; *followed: choices of experts that the reference took over. */
static int narrow_verdict(const struct gate_reference *routed, const struct kernel_set *kernels,
                          double *followed, char *why, size_t bytes)
{
    struct record_point rows;
    struct layout layout;
    struct policy policy;
    struct backend narrow = backend;
    memset(&rows, 0, sizeof rows);
    layout_of(&layout);
    policy_defaults(&policy, &routed->model);
    policy.routing = routed->routing;
    policy.dtype = DTYPE_BF16;
    narrow.kernels = kernels;
    CHECK_EQ(gate_point(routed, &layout, &policy, false, &narrow, &world, no_fault, &rows), 0);
    int rc = rank == 0 ? gate_verdict(&rows, why, bytes) : 0;
    for (int64_t i = 0; i < rows.gate.n; i++)
        if (strcmp(rows.gate.rows[i].check, "routing") == 0)
            *followed += rows.gate.rows[i].found;
    record_point_release(&rows);
    MPI_Bcast(&rc, 1, MPI_INT, 0, world);
    return rc;
}

static void worst_experts(const struct op *op, struct kernel_context *context, void *native)
{
    const struct shape_route *s = &op->shape.route;
    float *logits = tensor_at(context, op->t[0]);
    for (int64_t i = 0; i < s->all_rows * s->experts; i++)
        logits[i] = -logits[i];
    kernels_cpu.run[OP_ROUTE](op, context, native);
}

/* AdamW that spoils what has so weak a gradient that its first step is not compared, but for its length. */
static void spoils_weak(const struct op *op, struct kernel_context *context, void *native)
{
    float *master = tensor_at(context, op->t[0]);
    const float *g = tensor_at(context, op->t[1]);
    int64_t n = op->shape.optimizer.n;
    double sum = 0;
    kernels_cpu.run[OP_ADAMW](op, context, native);
    for (int64_t i = 0; i < n; i++)
        sum += (double)g[i] * (double)g[i];
    for (int64_t i = 0; i < n; i++)
        if (g[i] != 0 && fabs((double)g[i]) < 0.05 * sqrt(sum / (double)n))
            master[i] = NAN;
}

/* AdamW whose rounded weights are those of the step before. */
static void rounds_late(const struct op *op, struct kernel_context *context, void *native)
{
    int64_t n = op->shape.optimizer.n;
    const float *master = tensor_at(context, op->t[0]);
    float *before = must_alloc((size_t)n, sizeof *before);
    memcpy(before, master, (size_t)n * sizeof *before);
    kernels_cpu.run[OP_ADAMW](op, context, native);
    uint16_t *rounded = tensor_at(context, op->t[5]);
    for (int64_t i = 0; i < n; i++)
        rounded[i] = bf16_of(before[i]);
    free(before);
}

/* A model deep and narrow enough to be sensitive: rounding passes, weights that are one step late do not. */
static void rounded_weights(void)
{
    struct gate_reference narrow;
    struct routing routing;
    struct gate_shape shape = {1, 1, 8};
    struct kernel_set late = kernels_cpu;
    double none = 0;
    char why[512] = "";
    late.run[OP_ADAMW] = rounds_late;
    routing_defaults(&routing);
    CHECK_EQ(gate_reference_routed(&narrow, &model, &routing, &shape, 4 * size, 1, GATE_BF16, rank,
                                   &world),
             0);
    if (!CHECK_EQ(narrow_verdict(&narrow, &kernels_cpu, &none, why, sizeof why), 0))
        printf("%s\n", why);
    CHECK_EQ(narrow_verdict(&narrow, &late, &none, why, sizeof why), FAIL_WRONG);
    CHECK(rank > 0 || strstr(why, "norm of step") != NULL);
    gate_reference_release(&narrow);
}

static void learned_routing(void)
{
    struct model experts;
    struct routing routing;
    struct gate_shape shape = {1, 1, 1};
    struct kernel_set wrong = kernels_cpu, spoiling = kernels_cpu;
    double followed = 0;
    char why[512] = "";
    wrong.run[OP_ROUTE] = worst_experts;
    spoiling.run[OP_ADAMW] = spoils_weak;
    CHECK_EQ(model_load(&experts, "tiny-moe"), 0);
    routing_defaults(&routing);
    CHECK_EQ(routing_parse("learned", "auto", &routing), 0);
    for (uint64_t seed = 1; seed <= 3; seed++) {
        struct gate_reference routed;
        CHECK_EQ(gate_reference_routed(&routed, &experts, &routing, &shape, 4 * size, seed,
                                       GATE_BF16, rank, &world),
                 0);
        if (!CHECK_EQ(narrow_verdict(&routed, &kernels_cpu, &followed, why, sizeof why), 0))
            printf("seed %d: %s\n", (int)seed, why);
        if (seed == 1) {
            double none = 0;
            CHECK_EQ(narrow_verdict(&routed, &wrong, &none, why, sizeof why), FAIL_WRONG);
            CHECK(rank > 0 || strstr(why, "routing of step 1") != NULL);
            CHECK_EQ(narrow_verdict(&routed, &spoiling, &none, why, sizeof why), FAIL_WRONG);
            CHECK(rank > 0 || strstr(why, "update of") != NULL);
        }
        gate_reference_release(&routed);
    }
    CHECK(rank > 0 || followed > 0);
}

int main(int argc, char **argv)
{
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
    MPI_Comm_dup(MPI_COMM_WORLD, &world);
    MPI_Comm_rank(world, &rank);
    MPI_Comm_size(world, &size);
    backend = (struct backend){
        .device = &device_cpu, .comm = &comm_mpi, .kernels = &kernels_cpu, .local_rank = rank};
    CHECK_EQ(model_load(&model, "tiny"), 0);
    CHECK_EQ(gate_reference_make(&reference, &model, 1, 4 * size, 1, GATE_FP32, rank, &world), 0);
    right_passes();
    dropped_op_fails();
    wrong_bytes_fail();
    gate_reference_release(&reference);
    rounded_weights();
    learned_routing();
    long failed = test_failed;
    MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_LONG, MPI_MAX, world);
    MPI_Comm_free(&world);
    MPI_Finalize();
    int rc = rank == 0 || test_failed ? test_end() : 0;
    return rc || failed;
}
