#include "driver/drill.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/rng.h"
#include "base/units.h"
#include "driver/checkpoint_ask.h"

/* ---- who ---- */

enum { LOOK_NS = 200000 };

/* "rank:R" or "host:H". */
static int parse(const char *text, bool *host, int *which)
{
    int at = 0;
    *host = strncmp(text, "host:", 5) == 0;
    if ((*host || strncmp(text, "rank:", 5) == 0) && sscanf(text + 5, "%d%n", which, &at) == 1 &&
        text[5 + at] == '\0' && *which >= 0)
        return 0;
    return fail(FAIL_USAGE, "--kill: found \"%s\", wanted rank:R or host:H", text);
}

int drill_given(const struct study *study, const bool *given)
{
    static const char *const rows[] = {"kill", "kill-in", "kill-seed"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows && !study->drill; i++)
        if (given[opt_find(study_options, study_n_options, rows[i]) - study_options])
            return fail(FAIL_USAGE,
                        "--%s: nothing is killed but in a drill: wanted \"scalestudy drill\", or "
                        "leave the option out",
                        rows[i]);
    return 0;
}

int drill_options(const struct study *study)
{
    bool host;
    int which;
    if (!study->drill)
        return 0;
    if (study->run_steps == 0)
        return fail(FAIL_USAGE, "drill: wanted --run-steps N, the run that is killed");
    if (study->checkpoint_dir[0] == '\0')
        return fail(FAIL_USAGE,
                    "drill: wanted --checkpoint-dir D and --checkpoint-every K: without "
                    "checkpoints there is nothing to recover");
    return parse(study->kill, &host, &which);
}

/* A moment must be left: for a save the second one, for a step one behind the first save. */
int drill_check(const struct job *job)
{
    struct checkpoint_ask ask;
    const struct study *study = &job->study;
    bool host;
    int which, rc = 0;
    if (!study->drill)
        return 0;
    if (job->points.n != 1)
        return fail(FAIL_USAGE, "drill: found %d points, wanted one: say --points %s",
                    job->points.n, study->layout);
    TRY(parse(study->kill, &host, &which));
    const struct point *point = &job->points.point[0];
    if (which >= (host ? point->nodes : point->ranks))
        return fail(FAIL_USAGE, "--kill: found %s, wanted a %s below %d", study->kill,
                    host ? "host" : "rank", host ? point->nodes : point->ranks);
    checkpoint_ask_read(&ask, study);
    int64_t least = study->kill_in == DRILL_SAVE ? 2 * ask.every_steps : ask.every_steps;
    if (least >= study->run_steps)
        return fail(FAIL_USAGE,
                    "drill: of %lld step%s with a checkpoint every %lld nothing is left to kill "
                    "behind a published one: wanted more than %lld step%s",
                    (long long)study->run_steps, units_s((double)study->run_steps),
                    (long long)ask.every_steps, (long long)least, units_s((double)least));
out:
    return rc;
}

/* ---- the killer ---- */

static void kill_self(struct drill *d)
{
    char words[64];
    bool saving = atomic_load(&d->saving);
    snprintf(words, sizeof words, "%s in %s", d->who, saving ? "save" : "step");
    if (d->speaks)
        run_log_word(&d->log, "failure", words);
    kill(getpid(), SIGKILL);
}

static bool is_time(struct drill *d)
{
    int64_t at = atomic_load(&d->at_ns);
    if (at == 0 || units_now_ns() < at)
        return false;
    return d->moment == DRILL_SAVE ? atomic_load(&d->saving) : atomic_load(&d->in_block);
}

static void *wait_and_kill(void *arg)
{
    struct drill *d = arg;
    while (!atomic_load(&d->over)) {
        if (is_time(d))
            kill_self(d);
        units_sleep_ns(LOOK_NS);
    }
    return NULL;
}

/* ---- when ---- */

static void choose(struct drill *d, const struct study *study, int64_t first, int64_t target)
{
    struct checkpoint_ask ask;
    uint64_t key = rng_key((uint64_t)study->kill_seed, "drill");
    int64_t span = target - first;
    checkpoint_ask_read(&ask, study);
    d->part = rng_uniform(key, 0);
    int64_t from = ask.every_steps > 0 ? ask.every_steps : 1;
    d->step = first + from + (int64_t)(rng_uniform(key, 1) * (double)(span - from));
    int64_t saves = ask.every_steps > 0 ? (span - 1) / ask.every_steps : 4;
    d->save = 1 + (int)(rng_uniform(key, 2) * (double)(saves > 1 ? saves - 1 : 1));
}

int drill_open(struct drill *d, const struct job *job, const struct point *point, int rank,
               int64_t first, int64_t target)
{
    bool host;
    int which, rc = 0;
    memset(d, 0, sizeof *d);
    d->log.fd = -1;
    if (!job->study.drill || job->launch > 0)
        return 0;
    TRY(parse(job->study.kill, &host, &which));
    if ((host ? rank / point->ranks_per_node : rank) != which)
        return 0;
    d->speaks = !host || rank % point->ranks_per_node == 0;
    d->moment = (enum drill_moment)job->study.kill_in;
    snprintf(d->who, sizeof d->who, "%s %d", host ? "host" : "rank", which);
    choose(d, &job->study, first, target);
    run_log_open_word(&d->log, job, point);
    if (pthread_create(&d->thread, NULL, wait_and_kill, d) != 0)
        return fail(FAIL_INTERNAL, "drill: no thread");
    d->armed = true;
out:
    return rc;
}

void drill_close(struct drill *d)
{
    if (!d->armed)
        return;
    atomic_store(&d->over, true);
    pthread_join(d->thread, NULL);
    run_log_close(&d->log);
    memset(d, 0, sizeof *d);
}

void drill_block(struct drill *d, int64_t done, int64_t n, int64_t block_ns, int calls_save,
                 bool any_published)
{
    if (!d->armed)
        return;
    if (calls_save >= 0)
        atomic_store(&d->saving, true);
    bool chosen = d->moment == DRILL_SAVE ? calls_save >= d->save && d->last_save_ns > 0
                                          : any_published && done + n > d->step && !d->chosen;
    if (chosen) {
        int64_t whole = d->moment == DRILL_SAVE ? d->last_save_ns : block_ns;
        d->chosen = true;
        atomic_store(&d->at_ns, units_now_ns() + 1 + (int64_t)(d->part * (double)whole));
    }
    atomic_store(&d->in_block, true);
}

void drill_block_over(struct drill *d, bool saving)
{
    if (!d->armed)
        return;
    atomic_store(&d->in_block, false);
    atomic_store(&d->saving, saving);
    if (d->moment == DRILL_SAVE && !saving &&
        d->chosen) { /* it was over sooner than the last one */
        d->chosen = false;
        d->part *= 0.7;
        atomic_store(&d->at_ns, 0);
    }
}

void drill_saved(struct drill *d, int64_t complete_ns)
{
    d->last_save_ns = complete_ns;
}
