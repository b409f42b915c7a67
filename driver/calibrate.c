#include "driver/calibrate.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "analysis/record_publish.h"
#include "analysis/stats.h"
#include "base/err.h"
#include "base/streams.h"
#include "base/units.h"
#include "driver/agree.h"
#include "driver/calibrate_parts.h"
#include "driver/calibrate_say.h"
#include "driver/point_memory.h"
#include "driver/point_plan.h"
#include "driver/provenance.h"
#include "driver/watchdog.h"
#include "workloads/cost.h"
#include "workloads/input_feed.h"

enum { STEP_BLOCKS = 3 };

/* ---- what is refused ---- */

static int refuse_study(const struct study *study)
{
    if (study->topology_out[0] != '\0')
        return fail(FAIL_USAGE,
                    "--topology-out %s: a machine is written by \"scalestudy "
                    "calibrate\", and this is a study",
                    study->topology_out);
    return 0;
}

static int refuse_mixed(const struct job *job)
{
    const struct study *s = &job->study;
    const char *mixed = s->run_steps > 0                   ? "--run-steps"
                        : s->resume                        ? "--resume"
                        : s->resume_from[0] != '\0'        ? "--resume-from"
                        : s->checkpoint_mode[0] != '\0'    ? "--checkpoint-mode"
                        : s->nodes[0] != '\0'              ? "--nodes"
                        : s->points[0] != '\0'             ? "--points"
                        : s->audit                         ? "--audit"
                        : s->comm_tune                     ? "--comm-tune"
                        : strcmp(s->comm_setup, "nothing") ? "--comm-setup"
                        : strchr(s->parallel, ';')         ? "several --parallel"
                        : strchr(s->micro_batch, ',')      ? "several --micro-batch"
                        : strchr(s->sequence, ',')         ? "several --sequence"
                        : strcmp(s->input, "synthetic")    ? "--input"
                                                           : NULL;
    if (mixed != NULL)
        return fail(FAIL_USAGE,
                    "calibrate: found %s, wanted one layout of one model: it measures a "
                    "machine, no study",
                    mixed);
    if (job->backend.kernels->no_numerics)
        return fail(FAIL_USAGE,
                    "calibrate: device \"%s\" computes nothing, so there is nothing to "
                    "measure: take the machine itself",
                    job->backend.device->name);
    return 0;
}

static bool is_same_file(const char *a, const char *b)
{
    char folder[2][STUDY_PATH];
    const char *path[2] = {a, b}, *name[2];
    struct stat found[2];
    for (int i = 0; i < 2; i++) {
        const char *slash = strrchr(path[i], '/');
        name[i] = slash != NULL ? slash + 1 : path[i];
        snprintf(folder[i], sizeof folder[i], "%.*s",
                 slash != NULL ? (int)(slash - path[i]) + 1 : 1, slash != NULL ? path[i] : ".");
        if (stat(folder[i], &found[i]) != 0)
            return false;
    }
    return strcmp(name[0], name[1]) == 0 && found[0].st_dev == found[1].st_dev &&
           found[0].st_ino == found[1].st_ino;
}

/* A machine description that rank 0 could not write: before hours are measured for it. */
static int refuse_output(const struct study *study)
{
    const char *path = study->topology_out;
    int code = path[0] != '\0' ? record_cannot_make(path) : 0;
    if (code == EEXIST)
        return fail(FAIL_FILE, "calibrate: %s exists: choose another --topology-out", path);
    if (code != 0)
        return fail(FAIL_FILE, "calibrate: %s cannot be written: %s", path, strerror(code));
    if (path[0] != '\0' && is_same_file(path, study->out))
        return fail(FAIL_USAGE, "calibrate: --out and --topology-out are both %s: wanted two files",
                    path);
    return 0;
}

int calibrate_check(const struct job *job)
{
    int rc;
    if (!job->calibrates)
        return refuse_study(&job->study);
    rc = refuse_mixed(job);
    if (rc == 0 && job->rank == 0) /* folders of other hosts are not asked about */
        rc = refuse_output(&job->study);
    return rc;
}

/* ---- the step ---- */

static const struct point *largest_point(const struct job *job)
{
    const struct point *largest = &job->points.point[0];
    for (int i = 1; i < job->points.n; i++)
        if (job->points.point[i].ranks > largest->ranks && job->points.point[i].copies == 1)
            largest = &job->points.point[i];
    return largest;
}

/*
 * Where values share memory, most of a step's are gone behind it: bytes of fp32 gradients lie where a bf16
 * product reads, and hold what no step computes with. So each value has memory of its own, if all ranks
 * have the room.
 */
static int plan_apart(struct calibration *c)
{
    struct job *job = c->job;
    bool pack = job->study.pack;
    int rc;
    job->study.pack = false;
    rc = point_plan(job, c->point, job->rank, &c->plan);
    if (rc == 0)
        rc = point_fits(job, c->point, &c->plan);
    if (agree_quietly(rc, job->world) == 0 || !pack)
        return rc;
    fail_clear();
    plan_release(&c->plan);
    job->study.pack = true;
    if (job->rank == 0)
        printf(
            "# calibrate: there is no room for each value apart, so ops are timed on what a step "
            "leaves where values share memory\n");
    return point_plan(job, c->point, job->rank, &c->plan);
}

static int open_all(struct calibration *c)
{
    struct job *job = c->job;
    const struct study *study = &job->study;
    int most = (int)study->block + 1, rc = 0;
    point_policy(job, c->point, &c->model, &c->policy);
    TRY(plan_apart(c));
    TRY(input_open_documents(&c->input, "synthetic", (uint64_t)study->seed, c->model.vocabulary,
                             c->model.sequence, 0, 16 * c->point->global_batch,
                             study->document_end));
    TRY(input_feed_open(&c->input, &c->plan, 0, 1, most));
    struct execute_config config = {.plan = &c->plan,
                                    .backend = &job->backend,
                                    .input = &c->input,
                                    .parent = job->world,
                                    .max_steps = most,
                                    .alone = true,
                                    .fault = {.drop_op = -1}};
    watchdog_at("open", job->size, "ranks");
    TRY(execute_open(&c->execute, &config));
    execute_reset(&c->execute, (uint64_t)study->seed);
out:
    return rc;
}

/* Median time between begins of steps, of the slowest rank. */
static int measure_step(struct calibration *c)
{
    int steps = c->execute.max_steps, n = 0, rc = 0;
    double *period = must_alloc((size_t)(STEP_BLOCKS * steps), sizeof *period);
    void *all = NULL;
    int64_t total = 0, *counts = must_alloc((size_t)c->job->size, sizeof *counts);
    for (int block = 0; block <= STEP_BLOCKS; block++) { /* the first one warms up */
        struct execute_samples samples;
        TRY(agree_barrier(c->job->world));
        watchdog_at("steps", block, "all ranks");
        execute_block(&c->execute, VARIANT_FULL, 0, steps, -1, &samples);
        for (int s = 0; s + 1 < steps && block > 0; s++)
            period[n++] = (double)(samples.step[s + 1].start_ns - samples.step[s].start_ns) / 1e9;
        execute_samples_release(&samples);
    }
    double mine = stats_median(period, n);
    TRY(agree_gather(&mine, sizeof mine, &all, &total, counts, c->job->world));
    for (int64_t i = 0; i < total / (int64_t)sizeof mine; i++)
        if (((const double *)all)[i] > c->step_s)
            c->step_s = ((const double *)all)[i];
out:
    free(all);
    free(counts);
    free(period);
    return rc;
}

/* ---- results ---- */

/* Published as a whole or not at all, and read back as a study would. */
static int write_topology(const struct calibration *c)
{
    const char *path = c->job->study.topology_out;
    struct topology back;
    char *text = must_alloc(TOPOLOGY_TEXT, 1);
    int rc = 0;
    topology_text(&c->topology, text, TOPOLOGY_TEXT);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0666);
    size_t length = strlen(text);
    errno = fd >= 0 ? ENOSPC : errno; /* of a write that is merely short */
    bool whole = fd >= 0 && write(fd, text, length) == (ssize_t)length && fsync(fd) == 0;
    int code = errno;
    if (fd >= 0 && close(fd) != 0 && whole) {
        whole = false;
        code = errno;
    }
    if (!whole)
        rc = fail(FAIL_FILE, "calibrate: %s cannot be written: %s", path, strerror(code));
    if (!whole && fd >= 0)
        unlink(path);
    if (rc == 0)
        rc = topology_read(&back, path);
    free(text);
    return rc;
}

static int write_study(struct calibration *c, int argc, char **argv)
{
    struct job *job = c->job;
    struct record_head head;
    struct record *record = NULL;
    int *done = NULL, n_done = 0, rc;
    memset(&head, 0, sizeof head);
    rc = provenance_fill(&head, &job->study, &job->model, &job->found, argc, argv);
    provenance_topology(&head, &c->topology);
    head.ceilings = c->ceilings;
    head.n_ceilings = c->n;
    c->ceilings = NULL;
    if (rc == 0)
        rc = record_begin(&record, job->study.out, &head, false, &job->launch, &done, &n_done);
    if (rc == 0)
        rc = record_finish(record);
    c->ceilings = head.ceilings;
    head.ceilings = NULL;
    free(done);
    record_head_release(&head);
    return rc;
}

static int finish(struct calibration *c, int argc, char **argv)
{
    struct job *job = c->job;
    int rc = 0;
    if (job->rank != 0)
        return 0;
    TRY(calibrate_facts(c));
    calibrate_say(c);
    TRY(write_study(c, argc, argv));
    printf("# study file %s\n", job->study.out);
    if (job->study.topology_out[0] != '\0') {
        TRY(write_topology(c));
        printf("# machine %s: a study takes it as --topology\n", job->study.topology_out);
    }
    rc = streams_written("the table", job->study.out);
out:
    return rc;
}

static int measure_all(struct calibration *c)
{
    int rc = 0;
    TRY(agree(open_all(c), c->job->world));
    TRY(measure_step(c));
    TRY(calibrate_kernels(c));
    TRY(calibrate_copies(c));
    execute_close(&c->execute);
    TRY(calibrate_peaks(c));
    TRY(calibrate_disk(c));
    TRY(calibrate_collectives(c));
out:
    execute_close(&c->execute);
    return rc;
}

int calibrate(struct job *job, int argc, char **argv)
{
    struct calibration c = {.job = job, .point = largest_point(job)};
    int rc;
    job->t0_ns = units_now_ns();
    TRY(agree(watchdog_start(job->study.timeout, job->rank,
                             job->found.hosts[job->found.ranks[job->rank].host].name),
              job->world));
    TRY(measure_all(&c));
    rc = agree(finish(&c, argc, argv), job->world);
out:
    watchdog_stop();
    input_close(&c.input);
    plan_release(&c.plan);
    free(c.ceilings);
    free(c.op_s);
    return rc;
}
