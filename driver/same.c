#include "driver/same.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "driver/agree.h"
#include "driver/job.h"

enum { OPTIONS_BYTES = 256, SAME_BYTES = STUDY_CANONICAL + OPTIONS_BYTES };

static const char *on_or_off(bool on)
{
    return on ? "on" : "off";
}

/* What is no term of a study, and still decides what a rank does next. Folders are those of its host. */
static void job_text(const struct job *job, char *text, size_t size)
{
    const struct study *s = &job->study;
    int used = snprintf(text, size,
                        "calibrate=%s\nvalidate=%s\nresume=%s\nemulate-nodes=%s\n"
                        "checkpoint-dir=%s\nresume-from=%s\n",
                        on_or_off(job->calibrates), on_or_off(s->validate), on_or_off(s->resume),
                        on_or_off(s->emulate_nodes), s->checkpoint_dir[0] ? "given" : "not given",
                        s->resume_from[0] ? "given" : "not given");
    study_text(s, &job->model, text + used, size - (size_t)used);
}

/* The first line of `mine` that is not that of `first`. */
static int say_line(const char *first, const char *mine)
{
    size_t at = 0;
    for (size_t i = 0; mine[i] != '\0' && mine[i] == first[i]; i++)
        if (mine[i] == '\n')
            at = i + 1;
    return fail(FAIL_USAGE,
                "study: rank 0 has %.*s and this rank %.*s: start all ranks with the same options, "
                "and study and model files that are the same on all hosts",
                (int)strcspn(first + at, "\n"), first + at, (int)strcspn(mine + at, "\n"),
                mine + at);
}

int same_study(const struct job *job)
{
    int rc = 0;
    char *mine = must_alloc(SAME_BYTES, 1), *first = must_alloc(SAME_BYTES, 1);
    job_text(job, mine, SAME_BYTES);
    memcpy(first, mine, SAME_BYTES);
    TRY(agree_broadcast(first, SAME_BYTES, 0, job->world));
    if (strcmp(first, mine) != 0)
        rc = say_line(first, mine);
out:
    free(mine);
    free(first);
    return rc;
}

int same_device(const struct job *job)
{
    char mine[16], first[16];
    int rc = 0;
    snprintf(mine, sizeof mine, "%s", job->backend.device->name);
    snprintf(first, sizeof first, "%s", mine);
    TRY(agree_broadcast(first, sizeof first, 0, job->world));
    if (strcmp(mine, first) != 0)
        rc =
            fail(FAIL_USAGE,
                 "device: rank 0 found \"%s\" and this rank \"%s\": say --device, or start the job "
                 "on hosts that are alike",
                 first, mine);
out:
    return rc;
}
