/* Steps as graphs: on a device that records and plays back, a block of graphs makes the rows, counts
 * and batches of a block that is given out op by op; its calls go to communicators of its own; and
 * what cannot be a graph is refused in words. */
#include "tests/unit/driver/clockwork.h"

#include "driver/execute_graph.h"

/* ---- a device that records ---- */

enum entry_kind { STAMP, MARK, AWAIT, PASS };
struct entry {
    enum entry_kind kind;
    int stream, stamp;
    int64_t ns; /* PASS: of the stream's time */
};

struct device_graph {
    int n;
    struct entry entry[SLOTS];
};

static struct device_graph *recording;
static int64_t seen[STREAMS]; /* the streams' time at the last entry */
static int graphs_alive, launches;

static void put(struct entry entry)
{
    if (CHECK(recording->n < SLOTS))
        recording->entry[recording->n++] = entry;
}

/* Kernels and calls take their time when they are captured: it becomes an entry, and is taken back. */
static void put_time(void)
{
    for (int stream = 0; stream < STREAMS; stream++)
        if (clockwork.now[stream] != seen[stream]) {
            put((struct entry){PASS, stream, 0, clockwork.now[stream] - seen[stream]});
            clockwork.now[stream] = seen[stream];
        }
}

static void graph_stamp(struct device *device, int stream, int stamp)
{
    if (recording == NULL) {
        gpu_stamp(device, stream, stamp);
        return;
    }
    put_time();
    put((struct entry){STAMP, stream, stamp, 0});
}

static void graph_mark(struct device *device, int stream, int stamp)
{
    if (recording == NULL) {
        gpu_mark(device, stream, stamp);
        return;
    }
    put_time();
    put((struct entry){MARK, stream, stamp, 0});
}

static void graph_await(struct device *device, int stream, int stamp)
{
    if (recording == NULL) {
        fake_await(device, stream, stamp);
        return;
    }
    put_time();
    put((struct entry){AWAIT, stream, stamp, 0});
}

static int begin(struct device *device)
{
    (void)device;
    CHECK(recording == NULL);
    recording = must_alloc(1, sizeof *recording);
    memcpy(seen, clockwork.now, sizeof seen);
    return 0;
}

static int end(struct device *device, struct device_graph **out)
{
    (void)device;
    put_time();
    *out = recording;
    recording = NULL;
    graphs_alive++;
    return 0;
}

static void launch(struct device *device, struct device_graph *graph)
{
    launches++;
    for (int i = 0; i < graph->n; i++) {
        const struct entry *e = &graph->entry[i];
        if (e->kind == STAMP)
            gpu_stamp(device, e->stream, e->stamp);
        else if (e->kind == MARK)
            gpu_mark(device, e->stream, e->stamp);
        else if (e->kind == AWAIT)
            fake_await(device, e->stream, e->stamp);
        else
            clockwork.now[e->stream] += e->ns;
    }
}

static void drop(struct device *device, struct device_graph *graph)
{
    (void)device;
    graphs_alive--;
    free(graph);
}

static int graph_gpu_open(struct device *device, int index, int n_streams)
{
    device->graph_stamp_ns = STAMP_NS;
    return gpu_open(device, index, n_streams);
}

/* ---- kernels that make batches ---- */

enum { STEPS = 3 };
static int room;
static struct {
    int n, graph[2 * STEPS];
    int64_t first_sample[2 * STEPS];
} refills;
static int captured_at; /* context->captured when an input ran last */

static int capture(struct kernel_context *context, int n_graphs)
{
    (void)context;
    room = n_graphs;
    return 0;
}

static void refill(struct kernel_context *context, int graph)
{
    if (!CHECK(refills.n < 2 * STEPS))
        return;
    refills.graph[refills.n] = graph;
    refills.first_sample[refills.n++] = context->first_sample;
}

static void input(const struct op *op, struct kernel_context *context, void *native)
{
    captured_at = context->captured;
    fake_kernel(op, context, native);
}

/* ---- the rig ---- */

static struct device_type graph_gpu;
static struct kernel_set kernels;

static void make_plan(struct plan *plan)
{
    begin_plan(plan, 1);
    plan_take(plan, BUFFER_PARAMETER, 64);
    add_compute(plan, OP_INPUT, 10, -1);
    int first = add_compute(plan, OP_GEMM, 100, -1);
    int call = add_call(plan, AXIS_DP, 50, first);
    add_compute(plan, OP_ADD, 30, -1);
    add_compute(plan, OP_SUMSQ, 5, call);
    add_compute(plan, OP_CLIP, 5, -1);
}

static int open_rig(struct rig *rig, const struct device_type *device, int64_t delay_ns)
{
    memset(rig, 0, sizeof *rig);
    make_plan(&rig->plan);
    CHECK_EQ(plan_seal(&rig->plan), 0);
    rig->backend = (struct backend){.device = device, .comm = &fake_comm, .kernels = &kernels};
    struct execute_config config = {.plan = &rig->plan,
                                    .backend = &rig->backend,
                                    .max_steps = STEPS,
                                    .fault = {.drop_op = -1, .delay_ns = delay_ns},
                                    .graph = true};
    return execute_open(&rig->execute, &config);
}

static void prepare(void)
{
    graph_gpu = fake_gpu;
    graph_gpu.open = graph_gpu_open;
    graph_gpu.stamp = graph_stamp;
    graph_gpu.mark = graph_mark;
    graph_gpu.await = graph_await;
    graph_gpu.capture_begin = begin;
    graph_gpu.capture_end = end;
    graph_gpu.launch_graph = launch;
    graph_gpu.free_graph = drop;
    kernels = fake_kernels;
    kernels.run[OP_INPUT] = input;
    kernels.capture = capture;
    kernels.refill = refill;
}

/* ---- what must be the same ---- */

struct block {
    struct execute_samples samples;
    int64_t ops, micro_steps, consumed, calls;
    double bytes;
};

static void count(const struct execute *e, struct block *b, int sign)
{
    b->ops += sign * e->ops_given_out;
    b->micro_steps += sign * e->micro_steps;
    b->consumed += sign * e->consumed;
    b->calls += sign * e->comm[0].posted_calls;
    b->bytes += sign * e->comm[0].posted_bytes;
}

static void run(struct execute *e, int level, bool graph, struct block *b)
{
    clockwork_reset();
    memset(b, 0, sizeof *b);
    count(e, b, -1);
    if (graph)
        execute_replay(e, STEPS, 1, &b->samples);
    else
        execute_block(e, VARIANT_FULL, level, STEPS, 1, &b->samples);
    count(e, b, 1);
}

static void same_rows(const struct block *eager, const struct block *graph, int level)
{
    for (int i = 0; i < STEPS; i++) {
        const struct step_row *x = &eager->samples.step[i], *y = &graph->samples.step[i];
        CHECK_EQ(y->flags, x->flags | STEP_GRAPH);
        CHECK_EQ(y->start_ns, x->start_ns);
        CHECK_EQ(y->end_ns, x->end_ns);
        CHECK_EQ(y->compute_ns, x->compute_ns);
        CHECK_EQ(y->stall_ns, x->stall_ns);
        CHECK_EQ(y->stamps_ns, x->stamps_ns);
        CHECK_EQ(y->idle_ns + y->residual_ns, 0);
        CHECK_EQ(y->consumed - x->consumed, STEPS * 8);
        CHECK_EQ(y->micro_step - x->micro_step, STEPS);
        CHECK_NEAR(y->loss, x->loss, 0);
    }
    CHECK_EQ(graph->samples.rows.stalls.n, eager->samples.rows.stalls.n);
    CHECK_EQ(graph->samples.rows.collectives.n, eager->samples.rows.collectives.n);
    CHECK_EQ(graph->samples.rows.ops.n, eager->samples.rows.ops.n);
    CHECK_EQ(graph->samples.rows.ops.n > 0, level > 1);
}

static void same_counts(const struct block *eager, const struct block *graph)
{
    CHECK(eager->ops > 0 && eager->calls > 0 && eager->bytes > 0);
    CHECK_EQ(graph->ops, eager->ops);
    CHECK_EQ(graph->micro_steps, eager->micro_steps);
    CHECK_EQ(graph->consumed, eager->consumed);
    CHECK_EQ(graph->calls, eager->calls);
    CHECK_NEAR(graph->bytes, eager->bytes, 0);
}

/* Nothing of a capture counts, and its calls are nobody else's. */
static void captures(struct execute *e, int level)
{
    struct block before = {0};
    captured_at = -1;
    count(e, &before, 1);
    CHECK_EQ(execute_capture(e, level), 0);
    count(e, &before, -1);
    CHECK_EQ(before.ops + before.micro_steps + before.consumed + before.calls, 0);
    CHECK_EQ(e->graphs->comm[0].posted_calls, STEPS);
    CHECK_EQ(captured_at, STEPS);
    CHECK_EQ(e->context.captured, 0);
    CHECK_EQ(room, STEPS);
    CHECK_EQ(graphs_alive, STEPS);
}

static void graphs_do_as_steps(int level)
{
    struct rig rig;
    struct block eager, graph;
    CHECK_EQ(open_rig(&rig, &graph_gpu, 0), 0);
    CHECK_EQ(execute_n_comms(&rig.execute), 2);
    CHECK(execute_comm(&rig.execute, 1) != execute_comm(&rig.execute, 0));
    refills.n = launches = 0;
    run(&rig.execute, level, false, &eager);
    CHECK_EQ(captured_at, 0);
    captures(&rig.execute, level);
    run(&rig.execute, level, true, &graph);
    CHECK_EQ(launches, STEPS);
    CHECK_EQ(refills.n, STEPS);
    for (int i = 0; i < STEPS; i++) {
        CHECK_EQ(refills.graph[i], i);
        CHECK_EQ(refills.first_sample[i], 8 * (STEPS + i)); /* behind those of the eager block */
    }
    same_rows(&eager, &graph, level);
    same_counts(&eager, &graph);
    execute_samples_release(&eager.samples);
    execute_samples_release(&graph.samples);
    rig_close(&rig);
    CHECK_EQ(graphs_alive, 0);
}

static void refusals(void)
{
    struct rig rig;
    CHECK_EQ(open_rig(&rig, &fake_gpu, 0), FAIL_USAGE);
    CHECK_HAS(fail_message(), "device \"fake gpu\" has no graphs");
    fail_clear();
    rig_close(&rig);
    CHECK_EQ(open_rig(&rig, &graph_gpu, 1000), FAIL_USAGE);
    CHECK_HAS(fail_message(), "leave --test-delay out");
    fail_clear();
    rig_close(&rig);
    kernels.capture = NULL;
    CHECK_EQ(open_rig(&rig, &graph_gpu, 0), FAIL_USAGE);
    fail_clear();
    rig_close(&rig);
}

int main(void)
{
    prepare();
    for (int level = 0; level < 3; level++)
        graphs_do_as_steps(level);
    refusals();
    return test_end();
}
