#include "driver/study_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/err.h"
#include "base/streams.h"
#include "driver/agree.h"
#include "driver/full_run_log.h"
#include "driver/preempt.h"
#include "driver/provenance.h"
#include "driver/run.h"

void study_file_name(struct job *job)
{
    if (job->study.out[0])
        return;
    char stamp[32];
    time_t now = time(NULL);
    struct tm utc;
    gmtime_r(&now, &utc);
    strftime(stamp, sizeof stamp, "%Y%m%dT%H%M%SZ", &utc);
    snprintf(job->study.out, sizeof job->study.out, "scalestudy-%s%s.h5",
             job->calibrates ? "calibrate-" : "", stamp);
}

static int fill_head(struct record_head *head, const struct job *job, int argc, char **argv)
{
    int rc = provenance_fill(head, &job->study, &job->model, &job->found, argc, argv);
    provenance_data(head, job->fingerprint);
    provenance_topology(head, &job->topology);
    return rc;
}

int study_file_look(struct job *job, int argc, char **argv)
{
    struct record_head head = {0};
    int rc = 0;
    study_file_name(job);
    if (job->rank == 0) {
        rc = fill_head(&head, job, argc, argv);
        if (rc == 0)
            rc = record_look(job->study.out, &head, job->study.resume);
    }
    record_head_release(&head);
    return agree(rc, job->world);
}

int study_file_begin(struct job *job, int argc, char **argv, struct record **record, bool *done)
{
    int *list = NULL, n_list = 0, rc = 0;
    struct record_head head = {0};
    if (job->rank == 0) {
        rc = fill_head(&head, job, argc, argv);
        if (rc == 0)
            rc = record_begin(record, job->study.out, &head, job->study.resume, &job->launch, &list,
                              &n_list);
        for (int i = 0; i < n_list; i++)
            if (list[i] >= 0 && list[i] < job->points.n)
                done[list[i]] = true;
        job->record = *record;
        if (rc == 0) /* it forgets why it could not read */
            job->unfinished = run_log_unfinished(job->study.out);
    }
    TRY(agree(rc, job->world));
    TRY(agree_broadcast(&job->launch, sizeof job->launch, 0, job->world));
    TRY(agree_broadcast(&job->unfinished, sizeof job->unfinished, 0, job->world));
    TRY(agree_broadcast(job->study.out, sizeof job->study.out, 0, job->world));
    TRY(agree_broadcast(done, (int64_t)((size_t)job->points.n * sizeof *done), 0, job->world));
out:
    free(list);
    record_head_release(&head);
    return rc;
}

/* A resumed study answers for the points of its earlier launches too. */
static int verdict_of_file(const struct job *job)
{
    struct record_file file;
    int verdict = 0, rc = record_read(&file, job->study.out);
    for (int i = 0; i < file.n_points && rc == 0; i++)
        verdict = run_verdict(verdict, &file.points[i], job->study.require_settled);
    record_file_release(&file);
    return rc ? rc : verdict;
}

int study_file_end(struct job *job, struct record *record, int verdict)
{
    bool complete = verdict == 0 || verdict == FAIL_WRONG || verdict == FAIL_UNSETTLED ||
                    verdict == FAIL_UNSAVED;
    int rc = 0;
    if (job->rank == 0) {
        preempt_say_nothing();
        if (complete)
            rc = record_finish(record);
        else
            record_abandon(record);
        if (rc == 0 && complete)
            printf("# read it with: scalereport %s\n", job->study.out);
        if (rc == 0)
            rc = streams_written("the table", job->study.out);
    }
    if (!complete)
        return verdict;
    TRY(agree(rc, job->world));
    if (job->rank == 0 && job->launch > 0 && verdict == 0)
        verdict = verdict_of_file(job);
    rc = agree_broadcast(&verdict, sizeof verdict, 0, job->world);
out:
    return rc ? rc : verdict;
}
