#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/streams.h"
#include "base/units.h"
#include "driver/agree.h"
#include "driver/calibrate.h"
#include "driver/ceiling.h"
#include "driver/checkpoint_ask.h"
#include "driver/dataset.h"
#include "driver/device_ask.h"
#include "driver/devices.h"
#include "driver/full_run.h"
#include "driver/job.h"
#include "driver/point_plan.h"
#include "driver/preempt.h"
#include "driver/provenance.h"
#include "driver/run.h"
#include "driver/same.h"
#include "driver/study_file.h"
#include "driver/timed.h"
#include "driver/watchdog.h"
#include "topologies/launcher.h"
#include "workloads/checkpoint_file.h"

static MPI_Comm world;

static void abort_job(int code)
{
    preempt_end(code); /* the launcher kills this rank too */
    MPI_Abort(world, code);
    _exit(code);
}

/* ---- start ---- */

static void say_help(void)
{
    printf("usage: mpirun -np N scalestudy --layout NODESxRANKS [options]\n"
           "       mpirun -np N scalestudy calibrate --layout NODESxRANKS --model NAME "
           "[--topology-out FILE.yaml]\n\n"
           "Run the same fixed training work on 1, 2, 4 ... nodes of this job and record every "
           "sample in one file.\nRead it with scalereport FILE.h5.\n"
           "mpirun -np N scalestudy drill --run-steps N ...: kill a run and measure how it "
           "recovers.\n\n");
    opt_help(study_options, study_n_options, stdout);
}

static int find_backend(struct job *job)
{
    bool choose = strcmp(job->study.device, "auto") == 0;
    int rc = choose
                 ? device_find_auto(&job->backend.device, job->passed_over, sizeof job->passed_over)
                 : device_find(job->study.device, &job->backend.device);
    if (rc == 0 && !choose && job->backend.device->probe != NULL) {
        int n;
        rc = job->backend.device->probe(NULL, 0, &n);
    }
    TRY(agree(rc, job->world));
    TRY(agree(same_device(job), job->world));
    rc = device_ask(&job->study, job->backend.device);
    job->backend.attention = (enum attention_choice)job->study.attention;
    job->backend.gemm_search = job->study.gemm_search;
    job->backend.gemm_margin = (int)job->study.gemm_margin;
    job->backend.deterministic = job->study.deterministic;
    TRY(agree(rc, job->world));
    rc = comm_find_for(job->backend.device, job->study.comm, &job->backend.comm);
    if (rc == 0)
        rc = comm_setup_for(&job->backend.comm_setup, job->backend.comm, job->study.comm_setup);
    if (rc == 0)
        rc = kernels_find(job->backend.device->name, &job->backend.kernels);
    if (rc == 0)
        rc = timed_prepare(job);
    TRY(agree(rc, job->world));
    rc = devices_place(job);
out:
    return rc;
}

/* A rank's share of the cores it may run on; one is left to communication where there are enough. Sums
 * depend on the number: --deterministic takes none that this machine suggests. */
static int blas_threads(const struct job *job)
{
    const struct discover_rank *me = &job->found.ranks[job->rank];
    const struct discover_host *host = &job->found.hosts[me->host];
    if (job->study.threads > 0)
        return (int)job->study.threads;
    if (job->backend.kernels->no_numerics || job->study.deterministic)
        return 1;
    int cores = me->n_cores;
    if (cores * host->ranks > host->cores) /* not bound to cores of its own */
        cores = host->cores / host->ranks;
    return cores > 2 ? cores - 1 : 1;
}

/* N singletons cannot agree who speaks: the launcher's first one does, after the others have gone. */
static bool is_silent_singleton(const struct discover *found)
{
    return found->world == 1 && found->launcher_world > 1 && found->launcher_rank > 0;
}

/* Everything that can be refused is refused here, before anything runs. */
static int prepare(struct job *job, int rc)
{
    TRY(agree(rc, job->world));
    TRY(agree(discover_job(&job->found), job->world));
    TRY(agree(model_load(&job->model, job->study.model), job->world));
    TRY(agree(same_study(job), job->world));
    rc = device_ask_model(&job->study, &job->model);
    if (rc == 0)
        rc = study_points(&job->study, &job->model, &job->points);
    TRY(agree(rc, job->world));
    rc = discover_check(&job->found, job->points.nodes, job->points.ranks_per_node, &job->emulated);
    TRY(is_silent_singleton(&job->found) ? rc : agree(rc, job->world));
    TRY(agree(study_add_loaded(&job->points, &job->study, job->emulated), job->world));
    TRY(find_backend(job));
    rc = run_validate(job);
    if (rc == 0)
        rc = dataset_check(job);
    TRY(agree(rc, job->world));
    TRY(agree(dataset_agree(job), job->world));
    TRY(agree(full_run_check(job), job->world));
    TRY(agree(checkpoint_ask_check(job), job->world));
    job->threads = job->backend.threads = blas_threads(job);
    kernels_blas_threads(job->threads);
out:
    return rc;
}

static void show_map(const struct job *job)
{
    if (job->rank != 0 || !job->study.show_map)
        return;
    for (int r = 0; r < job->size; r++) {
        const struct discover_rank *rank = &job->found.ranks[r];
        char host[DISCOVER_NAME];
        snprintf(host, sizeof host, "%s", job->found.hosts[rank->host].name);
        if (job->study.anonymous)
            snprintf(host, sizeof host, "host%02d", rank->host);
        printf("# rank %d node %d host %s cores %d cpus %s%s\n", r, r / job->points.ranks_per_node,
               host, rank->n_cores, rank->cpus, rank->oversubscribed ? " (oversubscribed)" : "");
    }
}

static void say_what(const struct job *job)
{
    if (job->rank != 0)
        return;
    if (job->passed_over[0])
        printf("# %s: using the CPU\n", job->passed_over);
    printf("# scalestudy: %d node%s x %d rank%s = %d on %d host%s%s; model %s, %s scaling, %d "
           "point%s, device %s, comm %s, %d BLAS thread%s a rank\n",
           job->points.nodes, units_s(job->points.nodes), job->points.ranks_per_node,
           units_s(job->points.ranks_per_node), job->size, job->found.n_hosts,
           units_s(job->found.n_hosts),
           job->emulated ? " (declared nodes share a host: EMULATED)" : "", job->model.name,
           job->study.scaling == SCALING_WEAK ? "weak" : "strong", job->points.n,
           units_s(job->points.n), job->backend.device->name, job->backend.comm->name, job->threads,
           units_s(job->threads));
    if (job->backend.kernels->no_numerics)
        printf("# timed: %s; %s\n", job->topology.name, timed_words);
    printf("# study file %s\n", job->study.out);
    fflush(stdout);
}

static int say_valid(const struct job *job)
{
    show_map(job);
    if (job->rank != 0)
        return 0;
    printf("# valid:");
    for (int i = 0; i < job->points.n; i++) {
        const struct point *p = &job->points.point[i];
        printf("%s %dx%d%s%s%s batch %lld sequence %lld", i ? "," : "", p->nodes, p->ranks_per_node,
               p->parallel[0] ? " " : "", p->parallel, p->copies > 1 ? " on all nodes at once" : "",
               (long long)p->global_batch, (long long)p->sequence);
    }
    printf("\n");
    return streams_written("the list of points", NULL);
}

/* A GPU needs a large product to show what it can do, and shows it in the study's numbers. */
static struct ceiling_gemm ceiling_of(const struct job *job)
{
    enum { ON_CPU = 768, ON_GPU = 8192 };
    if (job->backend.device->probe == NULL)
        return (struct ceiling_gemm){ON_CPU, DTYPE_F32, false};
    return (struct ceiling_gemm){ON_GPU, job->study.dtype == GATE_BF16 ? DTYPE_BF16 : DTYPE_F32,
                                 job->study.dtype == GATE_TF32};
}

static int measure_ceilings(struct job *job)
{
    struct ceiling_gemm gemm = ceiling_of(job);
    int rc = 0;
    if (job->backend.kernels->no_numerics) {
        timed_ceiling(job);
        return 0;
    }
    if (job->rank == 0)
        rc = ceiling_gemm(&job->backend, &gemm, (uint64_t)job->study.seed, &job->peak_flops);
    TRY(agree(rc, job->world));
    TRY(agree_broadcast(&job->peak_flops, sizeof job->peak_flops, 0, job->world));
    snprintf(job->peak_source, sizeof job->peak_source,
             "measured: fastest %s GEMM %lld^3, rank 0 alone",
             gemm.tf32 ? "tf32" : dtype_name((int)gemm.dtype), (long long)gemm.size);
out:
    return rc;
}

static int study(struct job *job, int argc, char **argv)
{
    struct record *record = NULL;
    bool *done = must_alloc((size_t)job->points.n, sizeof *done);
    int rc = 0;
    study_file_name(job);
    job->t0_ns = units_now_ns();
    TRY(study_file_begin(job, argc, argv, &record, done));
    TRY(agree_broadcast(&job->t0_ns, sizeof job->t0_ns, 0, job->world));
    preempt_watch(full_run_wanted(&job->study), job->rank == 0 ? job->study.out : NULL);
    say_what(job);
    show_map(job);
    rc = agree(watchdog_start(job->study.timeout, job->rank,
                              job->found.hosts[job->found.ranks[job->rank].host].name),
               job->world);
    if (rc == 0)
        rc = measure_ceilings(job);
    struct routing routing;
    point_routing(&job->study, &routing);
    enum gate_numbers numbers = (enum gate_numbers)job->study.dtype;
    if (job->study.grad_dtype != 0 && numbers != GATE_BF16)
        numbers = numbers == GATE_FP32 ? GATE_FP32_BF16 : GATE_TF32_BF16;
    if (rc == 0 && job->study.check && !job->backend.kernels->no_numerics)
        rc = gate_reference_routed(&job->reference, &job->model, &routing, &job->points.gate,
                                   job->points.gate_batch, (uint64_t)job->study.seed, numbers,
                                   job->rank, job->world);
    if (rc == 0)
        rc = run_study(job, record, done);
    watchdog_stop();
    rc = study_file_end(job, record, rc);
out:
    free(done);
    return rc;
}

int main(int argc, char **argv)
{
    static struct job job;
    bool help = false;
    job.begin_ns = units_now_ns();
    streams_hold();
    checkpoint_file_library();
    job.calibrates = argc > 1 && strcmp(argv[1], "calibrate") == 0;
    preempt_begin(!job.calibrates, launcher_find().rank <= 0);
    int parsed = study_parse(&job.study, argc - job.calibrates, argv + job.calibrates, &help);
    if (help || job.study.version) {
        if (help)
            say_help();
        else
            provenance_version(stdout);
        if (streams_written(job.study.version ? "the version" : "the help", NULL) == 0)
            return 0;
        fprintf(stderr, "scalestudy: %s\n", fail_message());
        return FAIL_FILE;
    }
    int provided;
    if (MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS)
        return FAIL_COMM;
    MPI_Comm_dup(MPI_COMM_WORLD, &world);
    MPI_Comm_set_errhandler(world, MPI_ERRORS_RETURN);
    job.world = &world;
    MPI_Comm_rank(world, &job.rank);
    MPI_Comm_size(world, &job.size);
    die_handler(abort_job);
    if (parsed == 0 && provided < MPI_THREAD_SERIALIZED)
        parsed = fail(FAIL_ABSENT, "mpi: this library offers no MPI_THREAD_SERIALIZED, which the "
                                   "communication thread needs");
    int rc = prepare(&job, parsed);
    if (rc == 0 && (job.study.validate || job.calibrates)) /* which writes it at its end */
        rc = study_file_look(&job, argc, argv);
    if (rc == 0 && job.study.validate)
        rc = agree(say_valid(&job), job.world);
    else if (rc == 0)
        rc = job.calibrates ? calibrate(&job, argc, argv) : study(&job, argc, argv);
    free(job.first);
    gate_reference_release(&job.reference);
    points_release(&job.points);
    discover_release(&job.found);
    MPI_Comm_free(&world);
    preempt_end(rc);
    MPI_Finalize();
    return rc;
}
