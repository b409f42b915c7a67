#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "base/units.h"
#include "driver/agree.h"
#include "driver/ceiling.h"
#include "driver/job.h"
#include "driver/provenance.h"
#include "driver/run.h"
#include "driver/watchdog.h"

static MPI_Comm world;

static void abort_job(int code)
{
    MPI_Abort(world, code);
    _exit(code);
}

/* ---- interruption: finished points are whole files already, so leaving at once loses nothing ---- */

static char farewell[640];

static void interrupted(int signal_number)
{
    if (farewell[0]) {
        ssize_t ignored = write(STDERR_FILENO, farewell, strlen(farewell));
        (void)ignored;
    }
    _exit(128 + signal_number);
}

static void watch_signals(const struct job *job)
{
    struct sigaction action = {.sa_handler = interrupted};
    if (job->rank == 0)
        snprintf(farewell, sizeof farewell,
                 "scalestudy: interrupted; finished points are in %s.parts, --resume goes on\n",
                 job->study.out);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    signal(SIGXFSZ, SIG_IGN); /* a file size limit is then a failed write, with its sentence */
}

/* ---- start ---- */

static void say_help(void)
{
    printf("usage: mpirun -np N scalestudy --layout NODESxRANKS [options]\n\n"
           "Run the same fixed training work on 1, 2, 4 ... nodes of this job and record every "
           "sample in one file.\nRead it with scalereport FILE.h5.\n\n");
    opt_help(study_options, study_n_options, stdout);
}

static int find_backend(struct job *job)
{
    int rc = 0;
    TRY(device_find(job->study.device, &job->backend.device));
    TRY(comm_find(job->study.comm, &job->backend.comm));
    TRY(kernels_find(job->backend.device->name, &job->backend.kernels));
    job->backend.local_rank = job->found.ranks[job->rank].local;
out:
    return rc;
}

/* A rank's share of the cores it may run on; one is left to communication where there are enough. */
static int blas_threads(const struct job *job)
{
    const struct discover_rank *me = &job->found.ranks[job->rank];
    const struct discover_host *host = &job->found.hosts[me->host];
    if (job->study.threads > 0)
        return (int)job->study.threads;
    int cores = me->n_cores;
    if (cores * host->ranks > host->cores) /* not bound to cores of its own */
        cores = host->cores / host->ranks;
    return cores > 2 ? cores - 1 : 1;
}

static void name_output(struct job *job)
{
    if (job->study.out[0])
        return;
    char stamp[32];
    time_t now = time(NULL);
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(stamp, sizeof stamp, "%Y%m%dT%H%M%SZ", &utc);
    snprintf(job->study.out, sizeof job->study.out, "scalestudy-%s.h5", stamp);
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
    rc = model_load(&job->model, job->study.model);
    if (rc == 0)
        rc = study_points(&job->study, &job->model, &job->points);
    TRY(agree(rc, job->world));
    rc = discover_check(&job->found, job->points.nodes, job->points.ranks_per_node, &job->emulated);
    TRY(is_silent_singleton(&job->found) ? rc : agree(rc, job->world));
    rc = find_backend(job);
    if (rc == 0)
        rc = run_validate(job);
    TRY(agree(rc, job->world));
    job->threads = blas_threads(job);
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
    printf("# scalestudy: %d nodes x %d ranks = %d ranks on %d host%s%s; model %s, %s scaling, %d "
           "points, device %s, comm %s, %d BLAS thread%s a rank\n",
           job->points.nodes, job->points.ranks_per_node, job->size, job->found.n_hosts,
           job->found.n_hosts == 1 ? "" : "s",
           job->emulated ? " (declared nodes share a host: EMULATED)" : "", job->model.name,
           job->study.scaling == SCALING_WEAK ? "weak" : "strong", job->points.n,
           job->backend.device->name, job->backend.comm->name, job->threads,
           job->threads == 1 ? "" : "s");
    printf("# study file %s\n", job->study.out);
    fflush(stdout);
}

/* ---- the file ---- */

static int begin_record(struct job *job, int argc, char **argv, struct record **record, bool *done)
{
    int *list = NULL, n_list = 0, rc = 0;
    struct record_head head;
    memset(&head, 0, sizeof head);
    if (job->rank == 0) {
        rc = provenance_fill(&head, &job->study, &job->model, &job->found, argc, argv);
        if (rc == 0)
            rc = record_begin(record, job->study.out, &head, job->study.resume, &job->launch, &list,
                              &n_list);
        for (int i = 0; i < n_list; i++)
            if (list[i] >= 0 && list[i] < job->points.n)
                done[list[i]] = true;
    }
    TRY(agree(rc, job->world));
    TRY(agree_broadcast(&job->launch, sizeof job->launch, 0, job->world));
    TRY(agree_broadcast(done, (int64_t)((size_t)job->points.n * sizeof *done), 0, job->world));
out:
    free(list);
    record_head_release(&head);
    return rc;
}

static int end_record(struct job *job, struct record *record, int verdict)
{
    bool complete = verdict == 0 || verdict == FAIL_WRONG || verdict == FAIL_UNSETTLED;
    int rc = 0;
    if (job->rank == 0) {
        farewell[0] = 0;
        if (complete)
            rc = record_finish(record);
        else
            record_abandon(record);
    }
    if (complete)
        rc = agree(rc, job->world);
    return rc ? rc : verdict;
}

static int measure_ceilings(struct job *job)
{
    enum { GEMM = 768 };
    int rc = 0;
    if (job->rank == 0)
        rc = ceiling_gemm(&job->backend, GEMM, (uint64_t)job->study.seed, &job->peak_flops);
    TRY(agree(rc, job->world));
    TRY(agree_broadcast(&job->peak_flops, sizeof job->peak_flops, 0, job->world));
    snprintf(job->peak_source, sizeof job->peak_source, "measured: fp32 GEMM %d^3, rank 0 alone",
             GEMM);
out:
    return rc;
}

static int study(struct job *job, int argc, char **argv)
{
    struct record *record = NULL;
    bool *done = must_alloc((size_t)job->points.n, sizeof *done);
    int rc = 0;
    name_output(job);
    job->t0_ns = units_now_ns();
    TRY(begin_record(job, argc, argv, &record, done));
    TRY(agree_broadcast(&job->t0_ns, sizeof job->t0_ns, 0, job->world));
    watch_signals(job);
    say_what(job);
    show_map(job);
    rc = watchdog_start(job->study.timeout, job->rank,
                        job->found.hosts[job->found.ranks[job->rank].host].name);
    if (rc == 0)
        rc = measure_ceilings(job);
    if (rc == 0 && job->study.check)
        rc = gate_reference_make(&job->reference, &job->model, job->points.gate_batch,
                                 (uint64_t)job->study.seed, &job->backend, job->rank, job->world);
    if (rc == 0)
        rc = run_study(job, record, done);
    watchdog_stop();
    rc = end_record(job, record, rc);
out:
    free(done);
    return rc;
}

int main(int argc, char **argv)
{
    static struct job job;
    bool help = false;
    int parsed = study_parse(&job.study, argc, argv, &help);
    if (help || job.study.version) {
        if (help)
            say_help();
        else
            provenance_version(stdout);
        return 0;
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
    if (rc == 0 && !job.study.validate)
        rc = study(&job, argc, argv);
    gate_reference_release(&job.reference);
    points_release(&job.points);
    discover_release(&job.found);
    MPI_Comm_free(&world);
    MPI_Finalize();
    return rc;
}
