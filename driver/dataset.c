#include "driver/dataset.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/err.h"
#include "driver/agree.h"
#include "workloads/input_feed.h"
#include "workloads/input_file.h"

static const char separator[] = "; ";

/* Each point must get at least one step of samples that differ. */
static int check_size(const struct job *job, const char *kind, const struct input_file *file)
{
    for (int i = 0; i < job->points.n; i++) {
        const struct point *point = &job->points.point[i];
        int64_t n = input_file_samples(file, point->sequence);
        if (strcmp(point->input, kind) == 0 && n < point->global_batch)
            return fail(FAIL_USAGE,
                        "input: %s is shorter than one batch: its %" PRId64 " tokens make %" PRId64
                        " samples of %" PRId64 ", and a step takes %" PRId64,
                        input_path(kind), file->n_tokens, n, point->sequence, point->global_batch);
    }
    return 0;
}

static int check_files(struct job *job, const char *kind)
{
    struct input_file file;
    char text[INPUT_FILE_FINGERPRINT];
    char *all = job->fingerprint;
    size_t used = strlen(all), size = sizeof job->fingerprint;
    int rc = 0;
    TRY(input_file_open(&file, input_path(kind), job->model.vocabulary, job->study.document_end));
    TRY(check_size(job, kind, &file));
    TRY(input_file_check(&file));
    TRY(input_file_fingerprint(&file, text));
    if (used + strlen(text) + 3 > size)
        rc = fail(FAIL_USAGE, "--input: more than %zu files at once", size / sizeof text);
    else
        snprintf(all + used, size - used, "%s%s", used > 0 ? separator : "", text);
out:
    input_file_close(&file);
    return rc;
}

static bool is_first(const struct points *points, int index)
{
    for (int i = 0; i < index; i++)
        if (strcmp(points->point[i].input, points->point[index].input) == 0)
            return false;
    return true;
}

/* What workers hold ready must fit beside everything else. */
static int check_rings(const struct job *job, const struct point *point)
{
    double batch = 9.0 * (double)point->micro_batch * (double)point->sequence;
    double rings = INPUT_LANES * (double)job->study.prefetch * batch;
    for (int h = 0; h < job->found.n_hosts && job->study.input_workers > 0; h++) {
        const struct discover_host *host = &job->found.hosts[h];
        if (host->memory_bytes > 0 && rings * host->ranks > (double)host->memory_bytes)
            return fail(FAIL_USAGE,
                        "--prefetch: %" PRId64 " batches of %.0f bytes, for training and for "
                        "compute-only steps, on %d ranks are %.1f GiB, and host %s has %.1f GiB",
                        job->study.prefetch, batch, host->ranks, rings * host->ranks / 1073741824.0,
                        host->name, (double)host->memory_bytes / 1073741824.0);
    }
    return 0;
}

/* A path may be written in several ways, which are as many points of one input. */
static int check_twice(const struct job *job)
{
    struct stat a, b;
    for (int i = 0; i < job->points.n; i++) {
        const char *path = input_path(job->points.point[i].input);
        if (path == NULL || !is_first(&job->points, i) || stat(path, &a) != 0)
            continue;
        for (int k = 0; k < i; k++) {
            const char *other = input_path(job->points.point[k].input);
            if (other != NULL && strcmp(path, other) != 0 && stat(other, &b) == 0 &&
                a.st_dev == b.st_dev && a.st_ino == b.st_ino)
                return fail(FAIL_USAGE, "--input: \"%s\" says a value twice: %s is %s",
                            job->study.input, path, other);
        }
    }
    return 0;
}

int dataset_check(struct job *job)
{
    int rc = check_twice(job);
    job->fingerprint[0] = '\0';
    for (int i = 0; i < job->points.n && rc == 0; i++)
        rc = check_rings(job, &job->points.point[i]);
    for (int i = 0; i < job->points.n && rc == 0; i++)
        if (input_path(job->points.point[i].input) != NULL && is_first(&job->points, i))
            rc = check_files(job, job->points.point[i].input);
    return rc;
}

/* The texts of job->fingerprint stand in the order in which the points first name the files. */
static const char *text_of(const struct job *job, const char *kind)
{
    const char *text = job->fingerprint;
    for (int i = 0; strcmp(job->points.point[i].input, kind) != 0; i++)
        if (input_path(job->points.point[i].input) != NULL && is_first(&job->points, i))
            text = strstr(text, separator) + strlen(separator);
    return text;
}

int dataset_same(const struct job *job, const struct point *point, struct input *input)
{
    char now[INPUT_FILE_FINGERPRINT];
    int rc = 0;
    if (input->file == NULL)
        return 0;
    TRY(input_file_fingerprint(input->file, now));
    const char *then = text_of(job, point->input);
    size_t length = strcspn(then, ";");
    if (strlen(now) != length || strncmp(now, then, length) != 0)
        rc = fail(FAIL_FILE, "input: %s changed since the study began: it was %.*s and is %s",
                  input_path(point->input), (int)length, then, now);
out:
    return rc;
}

int dataset_agree(const struct job *job)
{
    char first[sizeof job->fingerprint];
    int rc = 0;
    memcpy(first, job->fingerprint, sizeof first);
    TRY(agree_broadcast(first, sizeof first, 0, job->world));
    if (strcmp(first, job->fingerprint) != 0)
        rc = fail(FAIL_FILE, "input: this rank sees other data (%s) than rank 0 (%s)",
                  job->fingerprint, first);
out:
    return rc;
}

void dataset_name(const char *kind, char *text, size_t size)
{
    const char *path = input_path(kind), *slash = path != NULL ? strrchr(path, '/') : NULL;
    bool folder = slash != NULL && slash[1] == '\0'; /* then the whole path names it */
    if (path == NULL)
        snprintf(text, size, "%.*s", (int)size - 1, kind);
    else
        snprintf(text, size, "file:%.*s", (int)size - 6,
                 slash != NULL && !folder ? slash + 1 : path);
}
