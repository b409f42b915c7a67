/* The state that a run begins with: its own newest checkpoint that can be read, or that of --resume-from. */
#include "driver/full_run_part.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/units.h"
#include "driver/agree.h"
#include "driver/checkpoint_section.h"
#include "driver/clock.h"
#include "driver/point_row.h"

static int64_t now(const struct full_run *x)
{
    return clock_global_ns(&x->m->clock, units_now_ns());
}

/* The steps that this run has published, ascending, the same on all ranks; malloc'd. */
static int own_steps(const struct full_run *x, int64_t **steps, int *n)
{
    bool looks = x->past.begun && x->ask.saves && full_run_is_first(x);
    int rc = 0;
    *steps = NULL;
    *n = looks ? checkpoint_steps(x->root, steps) : 0;
    TRY(agree_broadcast(n, sizeof *n, 0, x->m->parent));
    if (*steps == NULL)
        *steps = must_alloc((size_t)*n + 1, sizeof **steps);
    TRY(agree_broadcast(*steps, *n * (int64_t)sizeof **steps, 0, x->m->parent));
out:
    return rc;
}

/* One that cannot be read, and what is done about it. */
static void say_damaged(const struct full_run *x)
{
    char words[1200];
    if (!full_run_is_first(x))
        return;
    snprintf(words, sizeof words, "%s: the run goes on with that one", fail_message());
    fprintf(stderr, "scalestudy: %s\n", words);
    point_event(x->at->rows, "fault", units_now_ns() - x->at->job->t0_ns, words);
}

/* They would be in the way of saves of their steps, and be the newest again. */
static int set_aside(const struct full_run *x, const int64_t *steps, int n)
{
    int rc = 0;
    for (int i = 0; i < n; i++)
        if (!checkpoint_set_aside(x->root, steps[i]))
            rc = fail(FAIL_FILE,
                      "run: step %lld in %s cannot be read, and not be renamed: remove it, and "
                      "--resume goes on",
                      (long long)steps[i], x->root);
    return agree_quietly(rc, x->m->parent);
}

/* A damaged checkpoint does not end a run that nobody watches. Where none can be read, as behind a disk that is not
 * there, all stay as they are. */
static int load_own(const struct full_run *x, const struct checkpoint_section *section,
                    const int64_t *steps, int n)
{
    char folder[CHECKPOINT_PATH];
    int rc = 0, i = n;
    do {
        if (rc != 0)
            say_damaged(x);
        fail_clear();
        checkpoint_step_folder(x->root, steps[--i], folder, sizeof folder);
        rc = checkpoint_resume_at(section, folder);
    } while (rc == FAIL_FILE && i > 0);
    return rc != 0 ? rc : set_aside(x, steps + i + 1, n - i - 1);
}

/* What was saved is elsewhere, or gone: to begin again in the same study would only look like going on. */
static int none_there(const struct full_run *x)
{
    if (!x->ask.saves || x->past.saved == 0)
        return 0;
    return fail(
        FAIL_FILE,
        "run: %s holds no checkpoint, and this run has published that of step %lld: give the "
        "folder where it saved, or begin another study with another --out",
        x->root, (long long)x->past.saved);
}

int full_run_load(struct full_run *x)
{
    const struct job *job = x->at->job;
    struct checkpoint_section section = {job, x->at->point, x->m};
    int64_t begin, *steps = NULL;
    int rc = 0, n;
    TRY(own_steps(x, &steps, &n));
    if (n == 0)
        TRY(none_there(x));
    if (n == 0 && job->study.resume_from[0] == '\0')
        goto out;
    full_run_say(x, "load", 0);
    begin = now(x);
    TRY(n > 0 ? load_own(x, &section, steps, n) : checkpoint_resume(&section));
    full_run_interval(x, "load", begin, now(x), full_run_done(x), 0, "");
    full_run_say(x, "loaded", full_run_done(x));
out:
    free(steps);
    return rc;
}
