/*
 * bench_step: does measuring disturb the step, does its time add up, and do its GEMMs run as fast
 * as the library alone?
 *
 *   mpirun -np 1|2 --bind-to core bench_step [MODEL [GLOBAL_BATCH [SECONDS]]]
 *
 * One launch alternates, forwards and backwards, blocks of: bare steps (two stamps), level 1, level
 * 2, compute-only steps at level 2, bare again (the A/A partner), and a bare loop of CBLAS calls
 * over the plan's GEMM shapes, order, transposes and memory, without the biases that the step adds.
 * Printed are ratios of blocks of one cycle with 95 % intervals over cycles.
 */
#include <cblas.h>
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analysis/stats.h"
#include "base/err.h"
#include "base/units.h"
#include "driver/execute.h"
#include "workloads/transformer.h"

enum { STEPS = 5, CYCLES_MAX = 4096 };
enum { BARE, LEVEL_1, LEVEL_2, COMPUTE_ONLY, BARE_AGAIN, CBLAS_LOOP, KINDS };

struct bench {
    struct model model;
    struct plan plan;
    struct input input;
    struct backend backend;
    struct execute execute;
    double ns[KINDS][CYCLES_MAX];      /* mean step (or loop) of the block */
    double gemm_ns[KINDS][CYCLES_MAX]; /* of the kept step of a level 2 block */
    double residual, stepped; /* ns over all level 2 full steps: sum of |residual|, of steps */
    int n;
};

static int bench_open(struct bench *b, const char *name, int64_t batch, int rank, int size,
                      const MPI_Comm *comm)
{
    struct degrees degrees = {0};
    struct layout layout;
    struct policy policy;
    int rc = 0;
    TRY(model_load(&b->model, name));
    policy_defaults(&policy, &b->model);
    policy.micro_batch = b->model.micro_batch > 0 ? b->model.micro_batch : 1;
    policy.global_batch = batch > 0 ? batch : 2 * policy.micro_batch * size;
    TRY(layout_parse("", &degrees));
    TRY(layout_init(&layout, size, 1, rank, &degrees));
    TRY(transformer_plan(&b->plan, &b->model, &layout, &policy));
    TRY(input_open(&b->input, "synthetic", 1, b->model.vocabulary, b->model.sequence, 0, 0));
    b->backend = (struct backend){
        .device = &device_cpu, .comm = &comm_mpi, .kernels = &kernels_cpu, .local_rank = rank};
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

/* Time of a step between the end of the lead-in and the end of the block. */
static double block_ns(struct bench *b, int kind, struct execute_samples *s)
{
    static const int level[KINDS] = {0, 1, 2, 2, 0, 0};
    execute_block(&b->execute, kind == COMPUTE_ONLY ? VARIANT_COMPUTE : VARIANT_FULL, level[kind],
                  STEPS + 1, level[kind] == 2 ? STEPS : -1, s);
    return (double)(s->step[STEPS].end_ns - s->step[0].end_ns) / STEPS;
}

static void read_level_2(struct bench *b, int kind, const struct execute_samples *s)
{
    double gemm = 0;
    for (int i = 1; i <= STEPS && kind == LEVEL_2; i++) {
        b->stepped += (double)(s->step[i].end_ns - s->step[i].start_ns);
        b->residual += fabs((double)s->step[i].residual_ns);
    }
    for (int64_t i = 0; i < s->rows.ops.n; i++)
        if (s->rows.ops.rows[i].flops > 0)
            gemm += (double)s->rows.ops.rows[i].duration_ns;
    b->gemm_ns[kind][b->n] = gemm;
}

static double cblas_ns(struct bench *b)
{
    const struct kernel_context *c = &b->execute.context;
    int64_t begin = units_now_ns();
    for (int i = 0; i < b->plan.n_ops; i++) {
        const struct op *op = &b->plan.ops[i];
        if (op->kind != OP_GEMM)
            continue;
        const struct shape_gemm *g = &op->shape.gemm;
        cblas_sgemm(CblasRowMajor, g->trans_a ? CblasTrans : CblasNoTrans,
                    g->trans_b ? CblasTrans : CblasNoTrans, (int)g->m, (int)g->n, (int)g->k, 1.0f,
                    tensor_at(c, op->t[0]), (int)(g->trans_a ? g->m : g->k), tensor_at(c, op->t[1]),
                    (int)(g->trans_b ? g->k : g->n), g->beta, tensor_at(c, op->t[2]), (int)g->n);
    }
    return (double)(units_now_ns() - begin);
}

static void run_kind(struct bench *b, int kind)
{
    struct execute_samples samples;
    if (kind == CBLAS_LOOP) {
        cblas_ns(b);
        b->ns[kind][b->n] = cblas_ns(b);
        execute_reset(&b->execute, 1); /* the loop wrote over gradients, compute-only over all */
        return;
    }
    b->ns[kind][b->n] = block_ns(b, kind, &samples);
    if (kind == LEVEL_2 || kind == COMPUTE_ONLY)
        read_level_2(b, kind, &samples);
    execute_samples_release(&samples);
}

static void ratio(const char *what, const double *over, const double *under, int n)
{
    double *r = must_alloc((size_t)n, sizeof *r);
    struct stats_interval mean;
    for (int i = 0; i < n; i++)
        r[i] = over[i] / under[i];
    stats_mean_interval(r, n, 0.95, 1, &mean);
    printf("%-34s %8.4f  [%.4f, %.4f]  median %.4f\n", what, mean.value, mean.low, mean.high,
           stats_median(r, n));
    free(r);
}

static void report(const struct bench *b, int rank)
{
    printf("rank %d: step %.3f ms bare, %d cycles of %d steps a block\n", rank,
           stats_median(b->ns[BARE], b->n) / 1e6, b->n, STEPS);
    ratio("A/A (bare / bare)", b->ns[BARE], b->ns[BARE_AGAIN], b->n);
    ratio("level 1 / bare", b->ns[LEVEL_1], b->ns[BARE], b->n);
    ratio("level 2 / bare", b->ns[LEVEL_2], b->ns[BARE], b->n);
    ratio("CBLAS alone / GEMM, compute-only", b->ns[CBLAS_LOOP], b->gemm_ns[COMPUTE_ONLY], b->n);
    ratio("CBLAS alone / GEMM, full step", b->ns[CBLAS_LOOP], b->gemm_ns[LEVEL_2], b->n);
    printf("%-34s %8.4f\n", "sum |residual| / sum step, level 2", b->residual / b->stepped);
}

int main(int argc, char **argv)
{
    static struct bench b;
    int rank, size, provided, stop = 0;
    double seconds = argc > 3 ? atof(argv[3]) : 60;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
    MPI_Comm comm = MPI_COMM_WORLD;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    kernels_blas_threads(1);
    if (bench_open(&b, argc > 1 ? argv[1] : "tiny", argc > 2 ? atoll(argv[2]) : 0, rank, size,
                   &comm) != 0) {
        fprintf(stderr, "bench_step: %s\n", fail_message());
        MPI_Abort(comm, 1);
    }
    execute_block(&b.execute, VARIANT_FULL, 1, STEPS + 1, -1, NULL);
    int64_t begin = units_now_ns();
    while (!stop) {
        for (int k = 0; k < KINDS; k++)
            run_kind(&b, b.n % 2 ? KINDS - 1 - k : k);
        b.n++;
        stop = b.n == CYCLES_MAX || (double)(units_now_ns() - begin) / 1e9 > seconds;
        MPI_Bcast(&stop, 1, MPI_INT, 0, comm);
    }
    for (int r = 0; r < size; r++) {
        if (r == rank)
            report(&b, rank);
        fflush(stdout);
        MPI_Barrier(comm);
    }
    execute_close(&b.execute);
    input_close(&b.input);
    plan_release(&b.plan);
    MPI_Finalize();
    return 0;
}
