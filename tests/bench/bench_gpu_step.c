/*
 * bench_gpu_step: where a training step on GPUs spends its time, op by op and call by call.
 *
 *     [mpirun -np N] bench_gpu_step [MODEL [MICRO_BATCH [PARALLEL [BLOCKS [RECOMPUTE]]]]]
 *
 * MODEL gpt2-124m, PARALLEL as in scalestudy ("shard=2"; "": data parallel), RECOMPUTE as there, of
 * every layer ("mlp") or every n-th ("mlp:2"). bf16. Blocks of bare steps alternate with blocks in
 * which every op is stamped. Rank 0 prints the step, then for each kind and shape of op: how often,
 * milliseconds a step, its share, what it reaches (TFLOP/s of products and attention, GB/s of bytes
 * that it must move), then calls (busbw as nccl-tests counts) and memory by class. An op that runs
 * inside its neighbour shows as 0.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/stats.h"
#include "base/err.h"
#include "driver/execute.h"
#include "workloads/cost.h"
#include "workloads/transformer.h"

enum { STEPS = 4, MOST_LINES = 256, MOST_BLOCKS = 64 };

struct line {
    char what[80];
    int64_t times;
    double ns, tflop, bytes, bus_bytes;
    bool is_call;
};

struct bench {
    struct model model;
    struct plan plan;
    struct input input;
    struct backend backend;
    struct execute execute;
    struct line line[MOST_LINES];
    int n_lines, n_blocks;
    double bare_ms[MOST_BLOCKS * STEPS], stamped_ms[MOST_BLOCKS * STEPS];
    double stall_ms, residual_ms;
};

static void read_recompute(struct policy *policy, const char *text)
{
    static const char *const names[] = {"none", "selective", "full", "mlp"};
    for (int i = 0; i < (int)(sizeof names / sizeof names[0]); i++)
        if (strncmp(text, names[i], strlen(names[i])) == 0)
            policy->recompute = (enum recompute)i;
    const char *colon = strchr(text, ':');
    policy->recompute_every = colon ? atoi(colon + 1) : 1;
}

static int bench_open(struct bench *b, int argc, char **argv, int rank, int size,
                      const MPI_Comm *comm)
{
    struct degrees degrees = {0};
    struct layout layout;
    struct policy policy;
    int rc = 0;
    TRY(model_load(&b->model, argc > 1 ? argv[1] : "gpt2-124m"));
    policy_defaults(&policy, &b->model);
    policy.dtype = DTYPE_BF16;
    policy.copy_stream = true;
    policy.micro_batch = argc > 2 ? atoll(argv[2]) : 64;
    read_recompute(&policy, argc > 5 ? argv[5] : "none");
    TRY(layout_parse(argc > 3 ? argv[3] : "", &degrees));
    TRY(layout_init(&layout, 1, size, rank, &degrees));
    policy.global_batch = policy.micro_batch * layout.group[AXIS_DP].size;
    TRY(transformer_plan(&b->plan, &b->model, &layout, &policy));
    TRY(input_open(&b->input, "synthetic", 1, b->model.vocabulary, b->model.sequence, 0, 0));
    const char *search = getenv("GEMM_SEARCH"); /* "off": the heuristic's first algorithms */
    b->backend = (struct backend){.local_rank = rank,
                                  .gemm_search = search == NULL || strcmp(search, "off") != 0};
    TRY(device_find("cuda", &b->backend.device));
    TRY(comm_find("nccl", &b->backend.comm));
    TRY(kernels_find("cuda", &b->backend.kernels));
    TRY(b->backend.comm->prepare(NULL));
    struct execute_config config = {.plan = &b->plan,
                                    .backend = &b->backend,
                                    .input = &b->input,
                                    .parent = comm,
                                    .max_steps = STEPS + 1,
                                    .fault = {.drop_op = -1}};
    TRY(execute_open(&b->execute, &config));
    execute_reset(&b->execute, 1);
out:
    return rc;
}

/* ---- lines ---- */

static struct line *line_of(struct bench *b, const char *what)
{
    for (int i = 0; i < b->n_lines; i++)
        if (strcmp(b->line[i].what, what) == 0)
            return &b->line[i];
    if (b->n_lines == MOST_LINES)
        BUG("more than %d kinds of op", MOST_LINES);
    snprintf(b->line[b->n_lines].what, sizeof b->line[0].what, "%s", what);
    return &b->line[b->n_lines++];
}

static void name_op(const struct op *op, char *text, size_t size)
{
    const struct shape_gemm *g = &op->shape.gemm;
    if (op->kind == OP_GEMM)
        snprintf(text, size, "gemm %lld x %lld x %lld %c%c%s%s", (long long)g->m, (long long)g->n,
                 (long long)g->k, g->trans_a ? 't' : 'n', g->trans_b ? 't' : 'n',
                 g->beta != 0 ? " add" : "", op->t[3].buffer ? " bias" : "");
    else if (op->kind == OP_BIAS_GRAD || op->kind == OP_NORM || op->kind == OP_NORM_GRAD)
        snprintf(text, size, "%s %lld x %lld%s", op_name((int)op->kind),
                 (long long)op->shape.rows.rows, (long long)op->shape.rows.width,
                 op->kind == OP_NORM && op->t[6].buffer ? " residual" : "");
    else
        snprintf(text, size, "%s%s", op_name((int)op->kind), op->again ? ", again" : "");
}

static void add_op(struct bench *b, const struct op_row *row)
{
    const struct op *op = &b->plan.ops[row->op];
    struct cost_work work;
    char what[80];
    name_op(op, what, sizeof what);
    struct line *line = line_of(b, what);
    cost_work(op, &work);
    line->times++;
    line->ns += (double)row->duration_ns;
    line->tflop += (work.product_flops + work.attention_flops) / 1e12;
    line->bytes += work.bytes;
}

static void add_call(struct bench *b, const struct call_row *row)
{
    char what[80];
    double n = row->group, bytes = (double)row->bytes;
    bool both = strcmp(row->kind, "all-reduce") == 0;
    snprintf(what, sizeof what, "%s %s of %.2f MiB", row->axis, row->kind, bytes / 1048576);
    struct line *line = line_of(b, what);
    line->is_call = true;
    line->times++;
    line->ns += (double)row->duration_ns;
    line->bus_bytes += (both ? 2 : 1) * (n - 1) / n * bytes;
}

/* ---- blocks ---- */

static void run_block(struct bench *b, bool stamped)
{
    struct execute_samples s;
    double *ms = (stamped ? b->stamped_ms : b->bare_ms) + (ptrdiff_t)b->n_blocks * STEPS;
    execute_block(&b->execute, VARIANT_FULL, stamped ? 2 : 0, STEPS + 1, stamped ? STEPS : -1, &s);
    for (int i = 0; i < STEPS; i++)
        ms[i] = (double)(s.step[i + 1].end_ns - s.step[i].end_ns) / 1e6;
    if (stamped) {
        b->stall_ms += (double)s.step[STEPS].stall_ns / 1e6;
        b->residual_ms += (double)s.step[STEPS].residual_ns / 1e6;
        for (int64_t i = 0; i < s.rows.ops.n; i++)
            add_op(b, &s.rows.ops.rows[i]);
        for (int64_t i = 0; i < s.rows.collectives.n; i++)
            if (s.rows.collectives.rows[i].step == STEPS)
                add_call(b, &s.rows.collectives.rows[i]);
    }
    execute_samples_release(&s);
}

static int by_time(const void *a, const void *c)
{
    const struct line *x = a, *y = c;
    return x->is_call != y->is_call ? x->is_call - y->is_call : (x->ns < y->ns) - (x->ns > y->ns);
}

static void print_line(const struct bench *b, const struct line *l, double step_ms)
{
    double blocks = b->n_blocks, ms = l->ns / 1e6 / blocks;
    printf("%-44s %6.1f x %9.1f us %9.3f ms %5.1f %%", l->what, (double)l->times / blocks,
           l->ns / 1e3 / (double)l->times, ms, 100 * ms / step_ms);
    if (l->is_call)
        printf("  busbw %6.1f GB/s\n", l->bus_bytes / l->ns);
    else if (l->tflop > 0)
        printf("  %6.0f TFLOP/s\n", l->ns > 0 ? l->tflop * 1e3 / (l->ns / 1e6) : 0.0);
    else
        printf("  %6.0f GB/s\n", l->ns > 0 ? l->bytes / l->ns : 0.0);
}

static void print_memory(struct bench *b)
{
    struct device_memory memory;
    double sum = 0;
    b->execute.device.type->memory(&b->execute.device, &memory);
    printf("memory MiB:");
    for (int c = 0; c < DEVICE_CLASSES; c++) {
        printf(" %s %.0f", device_class_name(c), (double)memory.peak_bytes[c] / 1048576);
        sum += (double)memory.peak_bytes[c] / 1048576;
    }
    printf("; all %.0f; in use on the GPU %.0f\n", sum, (double)memory.process_bytes / 1048576);
}

static void report(struct bench *b)
{
    static char text[16384];
    int n = b->n_blocks * STEPS;
    double bare = stats_median(b->bare_ms, n), stamped = stats_median(b->stamped_ms, n);
    printf("step %.3f ms bare, %.3f stamped (%.4f); stall %.3f ms, residual %.3f ms; %d steps\n",
           bare, stamped, stamped / bare, b->stall_ms / b->n_blocks, b->residual_ms / b->n_blocks,
           n);
    qsort(b->line, (size_t)b->n_lines, sizeof b->line[0], by_time);
    for (int i = 0; i < b->n_lines; i++)
        print_line(b, &b->line[i], stamped);
    print_memory(b);
    b->backend.kernels->describe(&b->execute.context, text, sizeof text);
    printf("%s\n", text);
}

int main(int argc, char **argv)
{
    static struct bench b;
    int rank, size, provided, blocks = argc > 4 ? atoi(argv[4]) : 5;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
    MPI_Comm comm = MPI_COMM_WORLD;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    if (bench_open(&b, argc, argv, rank, size, &comm) != 0) {
        fprintf(stderr, "bench_gpu_step: %s\n", fail_message());
        MPI_Abort(comm, 1);
    }
    execute_block(&b.execute, VARIANT_FULL, 2, STEPS + 1, -1, NULL);
    while (b.n_blocks < blocks && b.n_blocks < MOST_BLOCKS) {
        run_block(&b, b.n_blocks % 2 != 0);
        run_block(&b, b.n_blocks % 2 == 0);
        b.n_blocks++;
    }
    if (rank == 0)
        report(&b);
    execute_close(&b.execute);
    input_close(&b.input);
    plan_release(&b.plan);
    MPI_Finalize();
    return 0;
}
