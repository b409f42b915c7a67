#define _DEFAULT_SOURCE /* realpath */
#include "driver/checkpoint_ask.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/units.h"
#include "driver/agree.h"
#include "driver/checkpoint_place.h"
#include "driver/dataset.h"
#include "driver/full_run.h"
#include "driver/full_run_log.h"
#include "driver/point_plan.h"
#include "driver/point_row.h"

/* ---- options ---- */

enum { FILES_PER_RANK, FILES_SHARED, FILES_SUBFILED };

static int check_modes(const char *list)
{
    bool seen[CHECKPOINT_MODES_MOST] = {false};
    for (const char *at = list; *at != '\0'; at += *at == ',') {
        size_t length = strcspn(at, ",");
        int mode = save_mode_of(at, length);
        if (mode < 0)
            return fail(FAIL_USAGE,
                        "--checkpoint-mode: found \"%s\", wanted some of "
                        "sync,staged,snapshot,lazy",
                        list);
        if (seen[mode])
            return fail(FAIL_USAGE, "--checkpoint-mode: \"%s\" says a value twice", list);
        seen[mode] = true;
        at += length;
    }
    return 0;
}

static int check_every(const char *text)
{
    int64_t steps;
    double seconds;
    if (units_parse_int(text, &steps) == 0 && steps >= 0 && steps <= 1000000000)
        return 0;
    bool has_unit = text[0] != '\0' && isalpha((unsigned char)text[strlen(text) - 1]);
    if (has_unit && units_parse_seconds(text, &seconds) == 0 && seconds < 1e9)
        return 0;
    return fail(
        FAIL_USAGE,
        "--checkpoint-every: found \"%s\", wanted steps (20), or a time with its unit (30s)", text);
}

int checkpoint_ask_options(const struct study *study)
{
    int rc = 0;
    TRY(check_modes(study->checkpoint_mode));
    TRY(check_every(study->checkpoint_every));
    const char *option = study->checkpoint_mode[0] != '\0'           ? "mode"
                         : strcmp(study->checkpoint_every, "0") != 0 ? "every"
                         : study->checkpoint_files != FILES_PER_RANK ? "files"
                                                                     : NULL;
    if (option != NULL && study->checkpoint_dir[0] == '\0')
        rc = fail(FAIL_USAGE, "--checkpoint-%s: wanted --checkpoint-dir D too, where to save",
                  option);
    else if (study->checkpoint_files == FILES_SUBFILED)
        rc = fail(FAIL_ABSENT, "--checkpoint-files: subfiled is not in this build: subfiling is of "
                               "parallel HDF5 1.14 and later");
out:
    return rc;
}

void checkpoint_ask_read(struct checkpoint_ask *ask, const struct study *study)
{
    const char *list = study->checkpoint_mode[0] != '\0' ? study->checkpoint_mode : "staged";
    double seconds = 0;
    *ask = (struct checkpoint_ask){.saves = study->checkpoint_dir[0] != '\0',
                                   .shared = study->checkpoint_files == FILES_SHARED};
    for (const char *at = list; *at != '\0'; at += *at == ',') {
        size_t length = strcspn(at, ",");
        ask->mode[ask->n_modes++] = save_mode_of(at, length);
        at += length;
    }
    if (units_parse_int(study->checkpoint_every, &ask->every_steps) == 0)
        return;
    ask->every_steps = 0;
    (void)units_parse_seconds(study->checkpoint_every, &seconds);
    ask->every_ns = (int64_t)(seconds * 1e9);
}

bool checkpoint_ask_has(const struct checkpoint_ask *ask, enum save_mode mode)
{
    for (int i = 0; i < ask->n_modes; i++)
        if (ask->mode[i] == (int)mode)
            return true;
    return false;
}

/* ---- names ---- */

void checkpoint_ask_root(const struct job *job, const struct point *point, char *out, size_t size)
{
    const char *dir = job->study.checkpoint_dir;
    bool one_folder = job->launch == 0 || full_run_wanted(&job->study); /* a run goes on in it */
    if (job->points.n == 1 && one_folder)
        snprintf(out, size, "%s", dir);
    else if (one_folder)
        snprintf(out, size, "%s/point-%03d", dir, point->index);
    else
        snprintf(out, size, "%s/point-%03d.launch%d", dir, point->index, job->launch);
}

/* The shortest text that is this float again: as it was written, as a rule. */
static void add_float(struct checkpoint_terms *terms, const char *name, float value)
{
    char text[40];
    for (int digits = 1; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)value);
        if (strtof(text, NULL) == value)
            break;
    }
    checkpoint_terms_add(terms, name, text);
}

static void add_real(struct checkpoint_terms *terms, const char *name, double value)
{
    char text[40];
    units_format_real(text, sizeof text, value);
    checkpoint_terms_add(terms, name, text);
}

static void add_int(struct checkpoint_terms *terms, const char *name, int64_t value)
{
    char text[40];
    snprintf(text, sizeof text, "%lld", (long long)value);
    checkpoint_terms_add(terms, name, text);
}

void checkpoint_ask_terms(const struct job *job, const struct point *point,
                          struct checkpoint_terms *terms)
{
    struct model model;
    struct policy p;
    char text[8192], input[200];
    memset(terms, 0, sizeof *terms);
    point_policy(job, point, &model, &p);
    model_text(&model, text, sizeof text);
    checkpoint_terms_lines(terms, text, "source global-batch micro-batch lr");
    add_float(terms, "learning rate", p.lr);
    add_float(terms, "least learning rate", p.lr_min);
    add_float(terms, "beta1", p.beta1);
    add_float(terms, "beta2", p.beta2);
    add_float(terms, "epsilon", p.epsilon);
    add_float(terms, "weight decay", p.weight_decay);
    add_float(terms, "clip", p.clip);
    add_int(terms, "warm-up of the schedule", p.warm_up);
    add_int(terms, "decay of the schedule", p.decay_steps);
    add_int(terms, "seed", job->study.seed);
    dataset_name(point->input, input, sizeof input);
    checkpoint_terms_add(terms, "input", input);
    checkpoint_terms_add(terms, "data", input_path(point->input) ? job->fingerprint : "");
    add_real(terms, "padding", job->study.padding);
}

void checkpoint_ask_about(const struct job *job, const struct layout *layout,
                          struct checkpoint_terms *about)
{
    static const char *const dtypes[] = {"fp32", "tf32", "bf16"};
    char text[64];
    memset(about, 0, sizeof *about);
    layout_text(layout, text, sizeof text);
    checkpoint_terms_add(about, "layout", text);
    checkpoint_terms_add(about, "dtype", dtypes[job->study.dtype]);
    checkpoint_terms_add(about, "device", job->backend.device->name);
    add_int(about, "nodes", layout->nodes);
}

/* ---- before step 0 ---- */

static int check_plan(const struct job *job, const struct checkpoint_ask *ask,
                      const struct point *point)
{
    const double gib = 1073741824.0;
    struct plan plan;
    int64_t available = checkpoint_place_memory();
    int rc = point_plan(job, point, job->rank < point->ranks ? job->rank : 0, &plan);
    if (rc == 0 && checkpoint_ask_has(ask, SAVE_LAZY))
        rc = saver_lazy_allowed(&plan);
    if (rc == 0 && available > 0) {
        int here = job->found.hosts[job->found.ranks[job->rank].host].ranks;
        int ranks = here < point->ranks ? here : point->ranks;
        double need = (double)ranks * (double)saver_bytes(&plan);
        if (need > 0.8 * (double)available)
            rc =
                fail(FAIL_USAGE,
                     "--checkpoint-dir: %d ranks of host %s stage %.2f GiB for a save and it has "
                     "%.2f GiB available, of which a fifth is left alone: take a smaller model, or "
                     "more hosts",
                     ranks, job->found.hosts[job->found.ranks[job->rank].host].name, need / gib,
                     (double)available / gib);
    }
    plan_release(&plan);
    return rc;
}

static bool goes_on(const struct job *job)
{
    return full_run_wanted(&job->study) && job->study.resume;
}

/* On rank 0: what several points begin with is not where one of them saves, or the next would begin with what
 * that one has trained. */
static int check_apart(const struct job *job, const char *root)
{
    const char *from = job->study.resume_from;
    if (job->points.n == 1 || from[0] == '\0')
        return 0;
    char *source = realpath(from, NULL), *saves = realpath(root, NULL);
    size_t n = saves != NULL ? strlen(saves) : 0;
    bool within = n > 0 && source != NULL && strncmp(source, saves, n) == 0 &&
                  (source[n] == '\0' || source[n] == '/');
    free(source);
    free(saves);
    if (!within)
        return 0;
    return fail(
        FAIL_USAGE,
        "--checkpoint-dir: a point would save in %s, where --resume-from %s is read for the "
        "others: take another folder",
        root, from);
}

/* For a folder that another has: behind a launch that may have been killed, whose disk may be slow, and else. */
enum { HOLD_S = 3, HOLD_BEHIND_KILLED_S = 60 };

static int check_root(const struct job *job, const struct point *point)
{
    char root[CHECKPOINT_PATH];
    struct checkpoint_view view;
    struct checkpoint_terms terms;
    int held = -1;
    bool again = goes_on(job), behind = again || job->study.resume_from[0] != '\0';
    int own = again && job->rank == 0 && run_log_begun(job->study.out, point->index);
    checkpoint_ask_root(job, point, root, sizeof root);
    checkpoint_ask_terms(job, point, &terms);
    int rc = 0;
    if (job->rank == 0 && !own) /* else what is there is its own */
        rc = checkpoint_place_empty(root, &terms, job->begin_step);
    if (job->rank == 0 && rc == 0)
        rc = check_apart(job, root);
    TRY(agree_quietly(rc, job->world));
    TRY(agree_broadcast(&own, sizeof own, 0, job->world));
    if (job->study.validate) /* touches nothing */
        TRY(checkpoint_place_look(root, job->rank, job->world, &view));
    else
        TRY(checkpoint_place_shared(root, job->rank, job->world, &view));
    if (!own)
        TRY(checkpoint_place_check(root, job->rank, &view, &terms, job->begin_step, job->world));
    rc = checkpoint_place_hold(root, job->rank, &view, behind ? HOLD_BEHIND_KILLED_S : HOLD_S,
                               job->world, &held);
    if (held >= 0)
        close(held); /* saver_open() takes it again, and looks again */
out:
    return rc;
}

/* A run that goes on, and has saved: what it began with is not read any more, and may be gone. */
static int check_own(const struct job *job, const struct point *point, int *own)
{
    char root[CHECKPOINT_PATH];
    int64_t *steps = NULL;
    *own = 0;
    if (!goes_on(job) || job->study.checkpoint_dir[0] == '\0')
        return 0;
    checkpoint_ask_root(job, point, root, sizeof root);
    if (job->rank == 0 && run_log_begun(job->study.out, point->index))
        *own = checkpoint_steps(root, &steps) > 0;
    free(steps);
    return agree_broadcast(own, sizeof *own, 0, job->world);
}

/* And the steps that the study begins with. */
static int check_source(struct job *job)
{
    int rc = 0, own;
    job->begin_step = 0;
    for (int i = 0; i < job->points.n && job->study.resume_from[0] != '\0'; i++) {
        struct checkpoint_source source;
        struct checkpoint_terms terms;
        TRY(check_own(job, &job->points.point[i], &own));
        if (own)
            continue;
        checkpoint_ask_terms(job, &job->points.point[i], &terms);
        rc = checkpoint_source_open(&source, job->study.resume_from, &terms, job->rank, job->world);
        if (rc == 0 && job->study.validate && i == 0)
            rc = checkpoint_source_verify(&source, job->rank, job->size, job->world);
        rc = checkpoint_source_offer(rc, &source);
        job->begin_step = source.manifest.step;
        checkpoint_source_close(&source);
        TRY(rc);
    }
out:
    return rc;
}

int checkpoint_ask_check(struct job *job)
{
    struct checkpoint_ask ask;
    int rc = 0;
    checkpoint_ask_read(&ask, &job->study);
    if (!ask.saves && job->study.resume_from[0] == '\0')
        return 0;
    if (job->backend.kernels->no_numerics)
        rc = fail(FAIL_ABSENT,
                  "checkpoint: device \"%s\" computes nothing, so there is no state to "
                  "save or resume: take another device",
                  job->backend.device->name);
    for (int i = 0; i < job->points.n && rc == 0 && ask.saves; i++)
        rc = check_plan(job, &ask, &job->points.point[i]);
    TRY(agree_quietly(rc, job->world));
    TRY(check_source(job));
    for (int i = 0; i < job->points.n && ask.saves; i++)
        TRY(check_root(job, &job->points.point[i]));
out:
    return rc;
}
