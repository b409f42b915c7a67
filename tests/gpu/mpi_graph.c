/* Steps as graphs, on one GPU and on one for each rank: losses, gradient norms and the whole training
 * state are bit for bit those of steps given out op by op, in any mix of the two; --deterministic
 * gives them again from another executor. A graph's stamps tell times in order, its block makes no
 * wait of the host, and giving it out costs microseconds. */
#include "tests/gpu/gpu_step.h"

enum { STEPS = 6, BLOCKS = 3 };

struct trace {
    double loss[BLOCKS * STEPS], norm[BLOCKS * STEPS];
    uint64_t digest;
    int64_t host_ns; /* of the last step */
};

/* Blocks of steps from the beginning; bit b of `graphs`: block b is of graphs. */
static void train(struct execute *e, int graphs, int level, struct trace *trace)
{
    int64_t waits = e->fence_waits, ops = e->ops_given_out, before = 0;
    double flops = e->context.work.model_flops;
    memset(trace, 0, sizeof *trace);
    execute_reset(e, 1);
    for (int block = 0; block < BLOCKS; block++) {
        struct execute_samples s;
        if (graphs >> block & 1)
            execute_replay(e, STEPS, STEPS - 1, &s);
        else
            execute_block(e, VARIANT_FULL, level, STEPS, STEPS - 1, &s);
        for (int i = 0; i < STEPS; i++) {
            trace->loss[block * STEPS + i] = s.step[i].loss;
            trace->norm[block * STEPS + i] = s.step[i].grad_norm;
            CHECK(s.step[i].start_ns >= before && s.step[i].end_ns > s.step[i].start_ns);
            CHECK_EQ((s.step[i].flags & STEP_GRAPH) != 0, graphs >> block & 1);
            before = s.step[i].end_ns;
        }
        trace->host_ns = s.step[STEPS - 1].host_ns;
        execute_samples_release(&s);
    }
    trace->digest = execute_digest(e);
    CHECK_EQ(e->consumed, BLOCKS * STEPS * e->plan->global_batch);
    CHECK_EQ(e->fence_waits, waits);
    CHECK_EQ(e->ops_given_out - ops, BLOCKS * STEPS * (int64_t)e->plan->n_ops);
    CHECK_NEAR(e->context.work.model_flops - flops, BLOCKS * STEPS * e->plan->totals.model_flops,
               1e-9);
}

static void same(const struct trace *want, const struct trace *got, const char *what)
{
    bool ok = want->digest == got->digest &&
              memcmp(want->loss, got->loss, sizeof want->loss) == 0 &&
              memcmp(want->norm, got->norm, sizeof want->norm) == 0;
    printf("%-28s %016llx loss %.9g norm %.9g host %.1f us%s\n", what,
           (unsigned long long)got->digest, got->loss[BLOCKS * STEPS - 1],
           got->norm[BLOCKS * STEPS - 1], (double)got->host_ns / 1e3, ok ? "" : "  DIFFERS");
    CHECK(ok);
}

/* The variants run on scratch: training by graphs goes on as if they had not been. */
static void variants_between(struct execute *e, const struct trace *want)
{
    struct execute_samples s;
    execute_reset(e, 1);
    for (int block = 0; block < BLOCKS; block++) {
        execute_replay(e, STEPS, -1, &s);
        execute_samples_release(&s);
        execute_block(e, VARIANT_COMPUTE, 2, STEPS, -1, NULL);
        if (e->n_comms > 0)
            execute_block(e, VARIANT_COMM, 1, STEPS, -1, NULL);
    }
    CHECK(execute_digest(e) == want->digest);
}

static void compare(int rank, int size, enum dtype dtype, int level, struct trace *first,
                    MPI_Comm *world)
{
    static const struct {
        const char *name;
        int graphs;
    } mixes[] = {{"again", 0},
                 {"graphs", 7},
                 {"graphs again", 7},
                 {"eager, graph, eager", 2},
                 {"graph, eager, graph", 5}};
    static struct gpu_step step;
    struct gpu_step_ask ask = {dtype, STEPS, true, true};
    struct trace trace;
    if (CHECK_EQ(gpu_step_open(&step, &ask, rank, size, world), 0)) {
        train(&step.execute, 0, level, &trace);
        if (first->digest == 0)
            *first = trace;
        printf("rank %d, %s, stamps %d: a stamp takes %lld ns, in a graph %lld\n", rank,
               dtype_name((int)dtype), level, (long long)step.execute.device.stamp_ns,
               (long long)step.execute.device.graph_stamp_ns);
        same(first, &trace, "eager");
        CHECK_EQ(execute_capture(&step.execute, level), 0);
        for (size_t i = 0; i < sizeof mixes / sizeof *mixes; i++) {
            train(&step.execute, mixes[i].graphs, level, &trace);
            same(first, &trace, mixes[i].name);
        }
        variants_between(&step.execute, first);
    } else {
        printf("%s\n", fail_message());
    }
    gpu_step_close(&step);
}

/* At level 2 every op of a graph is stamped, in the order of its stream, and terms close. */
static void instrumented(int rank, int size, MPI_Comm *world)
{
    static struct gpu_step step;
    struct gpu_step_ask ask = {DTYPE_BF16, STEPS, true, false};
    struct execute_samples s;
    if (!CHECK_EQ(gpu_step_open(&step, &ask, rank, size, world), 0))
        return;
    execute_block(&step.execute, VARIANT_FULL, 2, STEPS, -1, NULL);
    CHECK_EQ(execute_capture(&step.execute, 2), 0);
    execute_replay(&step.execute, STEPS, -1, NULL);
    execute_replay(&step.execute, STEPS, 1, &s);
    const struct step_row *row = &s.step[1];
    printf("rank %d, graph: step %.1f us = compute %.1f + input %.1f + stall %.1f + idle %.1f + "
           "stamps %.1f + residual %.1f\n",
           rank, (double)(row->end_ns - row->start_ns) / 1e3, (double)row->compute_ns / 1e3,
           (double)row->input_ns / 1e3, (double)row->stall_ns / 1e3, (double)row->idle_ns / 1e3,
           (double)row->stamps_ns / 1e3, (double)row->residual_ns / 1e3);
    CHECK(row->flags & STEP_GRAPH && row->flags & STEP_INSTRUMENTED);
    CHECK(row->compute_ns > 0 && row->compute_ns < row->end_ns - row->start_ns);
    CHECK_EQ(row->idle_ns, 0); /* the host gave all of it before any of it ran */
    CHECK(s.rows.ops.n > 20);
    for (int64_t i = 0; i < s.rows.ops.n; i++)
        CHECK(s.rows.ops.rows[i].duration_ns > 0);
    execute_samples_release(&s);
    gpu_step_close(&step);
}

int main(int argc, char **argv)
{
    static const struct comm_promise promise = {.deterministic = true, .graph = true};
    int level, rank, size, gpus = 0;
    struct trace first[2] = {{.digest = 0}, {.digest = 0}};
    MPI_Comm world;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level);
    MPI_Comm_dup(MPI_COMM_WORLD, &world);
    MPI_Comm_rank(world, &rank);
    MPI_Comm_size(world, &size);
    if (device_cuda.probe(NULL, 0, &gpus) != 0 || gpus < size) {
        if (rank == 0)
            printf("skipped: %d GPUs for %d ranks\n", gpus, size);
        MPI_Finalize();
        return 77;
    }
    CHECK_EQ(comm_nccl.expect(&promise), 0);
    CHECK_EQ(comm_nccl.prepare(NULL), 0);
    /* Levels to run, in this order; the second executor: the same bits again. */
    const char *levels = argc > 1 ? argv[1] : "012";
    for (; *levels != '\0'; levels++) {
        int stamps = *levels - '0';
        compare(rank, size, DTYPE_F32, stamps, &first[0], &world);
        compare(rank, size, DTYPE_BF16, stamps, &first[1], &world);
        if (stamps > 1)
            instrumented(rank, size, &world);
    }
    int failed = test_end(), all = 0;
    MPI_Allreduce(&failed, &all, 1, MPI_INT, MPI_MAX, world);
    MPI_Comm_free(&world);
    MPI_Finalize();
    return all;
}
