/*
 * clockwork: a device, communicator and kernels whose clocks move only by what a test says, and
 * plans made by hand. A kernel takes as many ns as its op's layer says, a call as many as it has
 * elements, from when its stream has come to it on; a post takes POST_NS of the compute stream, as
 * where the host is that stream. A stamp made twice, or awaited or read before it was made, is a
 * failed check. fake_gpu is the same where the host is no stream: a stamp takes STAMP_NS of its
 * stream, a mark nothing, no post takes any of the compute stream, and the host is far ahead but for
 * the one stamp before which it is late.
 */
#ifndef TESTS_UNIT_DRIVER_CLOCKWORK_H
#define TESTS_UNIT_DRIVER_CLOCKWORK_H

#include <stdlib.h>

#include "base/err.h"
#include "driver/execute_stamps.h"
#include "tests/test.h"

/* ---- device, communicator, kernels ---- */

enum { SLOTS = 1024, STREAMS = 3 };

static struct clockwork {
    int64_t now[STREAMS]; /* of each stream */
    int64_t when[SLOTS];
    bool made[SLOTS];   /* since the last reset */
    bool marked[SLOTS]; /* made by mark: orders, and has no time to read */
    int n_made, n_marked;
    int64_t given[SLOTS]; /* when fake_gpu's host gave it: INT64_MIN, long before, or in time */
    int64_t late;         /* ns by which that host makes the stream wait before this stamp */
    int late_slot;
} clockwork;

static inline void clockwork_reset(void)
{
    memset(&clockwork, 0, sizeof clockwork);
}

static inline int fake_open(struct device *device, int local_rank, int n_streams)
{
    (void)local_rank;
    device->state = &clockwork;
    clockwork_reset();
    return n_streams <= STREAMS ? 0 : FAIL_INTERNAL;
}

static inline void fake_close(struct device *device)
{
    device->state = NULL;
}

static inline int fake_alloc(struct device *device, enum device_class which, size_t bytes,
                             void **out)
{
    (void)device, (void)which;
    *out = must_alloc(bytes, 1);
    return 0;
}

static inline void fake_free(struct device *device, enum device_class which, void *memory,
                             size_t bytes)
{
    (void)device, (void)which, (void)bytes;
    free(memory);
}

static inline void fake_copy(struct device *device, int stream, void *to, const void *from,
                             size_t bytes)
{
    (void)device, (void)stream;
    memcpy(to, from, bytes);
}

static inline int fake_reserve(struct device *device, int n_stamps, int n_tasks)
{
    (void)device, (void)n_tasks;
    return n_stamps <= SLOTS ? 0 : FAIL_INTERNAL;
}

static inline void fake_launch(struct device *device, int stream,
                               void (*kernel)(void *arg, void *native), void *arg)
{
    (void)device;
    CHECK(stream >= 0 && stream < STREAMS);
    kernel(arg, NULL);
}

static inline void fake_stamp(struct device *device, int stream, int stamp)
{
    (void)device;
    if (CHECK(stamp >= 0 && stamp < SLOTS))
        CHECK(!clockwork.made[stamp]); /* at most once */
    clockwork.made[stamp] = true;
    clockwork.when[stamp] = clockwork.now[stream];
    clockwork.n_made++;
}

static inline void fake_await(struct device *device, int stream, int stamp)
{
    (void)device;
    CHECK(clockwork.made[stamp]); /* the plan gives ops out in an order in which they can run */
    if (clockwork.now[stream] < clockwork.when[stamp])
        clockwork.now[stream] = clockwork.when[stamp];
}

static inline void fake_sync(struct device *device)
{
    (void)device;
}

static inline int64_t fake_when(struct device *device, int stamp)
{
    (void)device;
    CHECK(clockwork.made[stamp] && !clockwork.marked[stamp]);
    return clockwork.when[stamp];
}

enum { STAMP_NS = 2 };

static inline int gpu_open(struct device *device, int index, int n_streams)
{
    device->stamp_ns = STAMP_NS;
    return fake_open(device, index, n_streams);
}

static inline int64_t gpu_given(struct device *device, int stamp)
{
    (void)device;
    return clockwork.given[stamp];
}

static inline void gpu_stamp(struct device *device, int stream, int stamp)
{
    bool late = clockwork.late > 0 && clockwork.late_slot == stamp;
    if (late)
        clockwork.now[stream] += clockwork.late;
    clockwork.given[stamp] = late ? clockwork.now[stream] : INT64_MIN;
    fake_stamp(device, stream, stamp);
    clockwork.now[stream] += STAMP_NS;
}

static inline void gpu_mark(struct device *device, int stream, int stamp)
{
    fake_stamp(device, stream, stamp);
    clockwork.marked[stamp] = true;
    clockwork.n_marked++;
}

static const struct device_type fake_device = {.name = "fake",
                                               .open = fake_open,
                                               .close = fake_close,
                                               .alloc = fake_alloc,
                                               .free = fake_free,
                                               .upload = fake_copy,
                                               .download = fake_copy,
                                               .reserve = fake_reserve,
                                               .launch = fake_launch,
                                               .stamp = fake_stamp,
                                               .await = fake_await,
                                               .sync = fake_sync,
                                               .when = fake_when,
                                               .runs_host_tasks = true};

static const struct device_type fake_gpu = {.name = "fake gpu",
                                            .open = gpu_open,
                                            .close = fake_close,
                                            .alloc = fake_alloc,
                                            .free = fake_free,
                                            .upload = fake_copy,
                                            .download = fake_copy,
                                            .reserve = fake_reserve,
                                            .launch = fake_launch,
                                            .stamp = gpu_stamp,
                                            .mark = gpu_mark,
                                            .await = fake_await,
                                            .sync = fake_sync,
                                            .given = gpu_given,
                                            .when = fake_when};

static inline int fake_comm_open(struct comm *comm, const void *parent, int max_calls)
{
    (void)comm, (void)parent, (void)max_calls;
    return 0;
}

static inline void fake_comm_close(struct comm *comm)
{
    (void)comm;
}

enum { POST_NS = 3 }; /* what a post costs the host, and so the compute stream */

static inline void fake_post(struct comm *comm, const struct comm_call *calls, int n_calls)
{
    int64_t *now = &clockwork.now[comm->stream];
    CHECK_EQ(n_calls, 1);
    *now += calls[0].coll.count;
    clockwork.now[DEVICE_COMPUTE] += comm->device->type->runs_host_tasks ? POST_NS : 0;
}

static const struct comm_type fake_comm = {
    .name = "fake", .open = fake_comm_open, .close = fake_comm_close, .post = fake_post};

/* A kernel takes as long as its op's layer says; the one of OP_CLIP writes the log. */
static inline void fake_kernel(const struct op *op, struct kernel_context *context, void *native)
{
    (void)native;
    clockwork.now[op->stream] += op->layer;
    if (op->kind != OP_CLIP || context->log == NULL)
        return;
    double *row = context->log + context->log_next * SCALARS;
    double step = (double)++context->log_next;
    row[SCALAR_LOSS_SUM] = 30 * step;
    row[SCALAR_VALID] = 10;
    row[SCALAR_NORM] = 2 + step;
    row[SCALAR_LR] = step / 1000;
    row[SCALAR_STEP] = 7 + step;
    row[SCALAR_SKIPPED] = 2;
}

static const struct kernel_set fake_kernels = {.name = "fake",
                                               .run = {[OP_INPUT] = fake_kernel,
                                                       [OP_ADD] = fake_kernel,
                                                       [OP_GEMM] = fake_kernel,
                                                       [OP_SUMSQ] = fake_kernel,
                                                       [OP_CLIP] = fake_kernel}};

/* ---- a plan made by hand ---- */

static inline int add_compute(struct plan *plan, enum op_kind kind, int ns, int after)
{
    struct op op = {.kind = kind, .layer = ns, .phase = PHASE_FORWARD};
    if (kind == OP_GEMM)
        op.shape.gemm = (struct shape_gemm){.m = 2, .n = 3, .k = 5};
    int index = plan_op(plan, &op);
    if (after >= 0)
        plan_wait(plan, index, after);
    return index;
}

static inline int add_call(struct plan *plan, enum axis axis, int ns, int after)
{
    struct op op = {.kind = OP_COLLECTIVE, .stream = plan_channel(plan, axis, 0), .layer = -1};
    op.shape.coll.coll =
        (struct coll){.kind = COLL_ALL_REDUCE, .dtype = DTYPE_F32, .count = ns, .peer = -1};
    op.shape.coll.axis = axis;
    int index = plan_op(plan, &op);
    plan_wait(plan, index, after);
    return index;
}

static inline void begin_plan(struct plan *plan, int tp)
{
    struct degrees degrees = {.tp = tp};
    struct layout layout;
    CHECK_EQ(layout_init(&layout, 2 * tp, 1, 0, &degrees), 0);
    plan_init(plan, &layout);
    plan->global_batch = 8;
    plan->micro_batches = 1;
}

struct rig {
    struct plan plan;
    struct backend backend;
    struct execute execute;
};

static inline void rig_open_on(struct rig *rig, const struct device_type *device, int max_steps,
                               bool scratch, int drop_op)
{
    CHECK_EQ(plan_seal(&rig->plan), 0);
    rig->backend = (struct backend){.device = device, .comm = &fake_comm, .kernels = &fake_kernels};
    struct execute_config config = {.plan = &rig->plan,
                                    .backend = &rig->backend,
                                    .max_steps = max_steps,
                                    .scratch = scratch,
                                    .fault = {.drop_op = drop_op}};
    CHECK_EQ(execute_open(&rig->execute, &config), 0);
}

static inline void rig_open(struct rig *rig, int max_steps, bool scratch, int drop_op)
{
    rig_open_on(rig, &fake_device, max_steps, scratch, drop_op);
}

static inline void rig_close(struct rig *rig)
{
    execute_close(&rig->execute);
    plan_release(&rig->plan);
}

#endif
