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

/* Of one that is damaged, when another has been loaded. */
static void say_damaged(const struct full_run *x, const char *why, int64_t step)
{
    char words[1200];
    if (!full_run_is_first(x))
        return;
    snprintf(words, sizeof words, "%s; the run goes on with step %lld", why, (long long)step);
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
                      "run: step %lld in %s is damaged, and cannot be renamed: make it "
                      "damaged-%010lld, and --resume goes on",
                      (long long)steps[i], x->root, (long long)steps[i]);
    return agree_quietly(rc, x->m->parent);
}

enum { WHY = 1024 }; /* bytes of a sentence */

/* A damaged checkpoint does not end a run that nobody watches; one that may be whole, and is not given by the
 * system, does, since what it trained would be lost. Where none can be read, as behind a disk that is not there,
 * all stay as they are. */
static int load_own(const struct full_run *x, const struct checkpoint_section *section,
                    const int64_t *steps, int n)
{
    char folder[CHECKPOINT_PATH], (*why)[WHY] = NULL;
    int rc = 0, i = n, bad = 0;
    bool damaged = false;
    do {
        fail_clear();
        checkpoint_step_folder(x->root, steps[--i], folder, sizeof folder);
        rc = checkpoint_resume_at(section, folder, &damaged);
        if (rc == 0 || !damaged)
            break;
        why = must_grow(why, (size_t)bad + 1, sizeof *why);
        snprintf(why[bad++], WHY, "%s", fail_message());
    } while (i > 0);
    if (rc != 0 && damaged && n > 1) {
        fail_clear();
        rc = fail(FAIL_FILE, "%.700s; none of the %d checkpoints in %s can be read", why[0], n,
                  x->root);
    }
    TRY(rc);
    TRY(set_aside(x, steps + i + 1, bad));
    for (int k = 0; k < bad; k++)
        say_damaged(x, why[k], steps[i]);
out:
    free(why);
    return rc;
}

/* What was saved is elsewhere, or gone: to begin again in the same study, or to go on with what another run has
 * saved, would only look like going on. What the log says was published last is there, or a later one, or was
 * set aside. */
static int check_whose(const struct full_run *x, int64_t newest)
{
    long long saved = x->past.saved;
    if (!x->ask.saves || saved == 0 || newest >= saved)
        return 0;
    if (newest < 0)
        return fail(
            FAIL_FILE,
            "run: %s holds no checkpoint, and this run has published that of step %lld: give the "
            "folder where it saved, or begin another study with another --out",
            x->root, saved);
    if (checkpoint_is_aside(x->root, saved))
        return 0;
    return fail(
        FAIL_FILE,
        "run: %s holds checkpoints up to step %lld, and this run has published that of step %lld: "
        "give the folder where it saved, or, where that one was removed, mkdir %s/damaged-%010lld "
        "to go on without it",
        x->root, (long long)newest, saved, x->root, saved);
}

int full_run_load(struct full_run *x)
{
    const struct job *job = x->at->job;
    struct checkpoint_section section = {job, x->at->point, x->m};
    int64_t begin, *steps = NULL;
    int rc = 0, n;
    TRY(own_steps(x, &steps, &n));
    if (full_run_is_first(x)) /* who reads the log sees the folder */
        rc = check_whose(x, n > 0 ? steps[n - 1] : -1);
    TRY(agree_quietly(rc, x->m->parent));
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
