#include "driver/checkpoint_gate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/units.h"
#include "driver/agree.h"
#include "driver/checkpoint_load.h"

enum { STEPS_BEFORE = 3 };

/* The gate model on one of the two layouts. */
struct side {
    struct plan plan;
    struct input input;
    struct execute execute;
};

static void side_close(struct side *side)
{
    execute_close(&side->execute);
    input_close(&side->input);
    plan_release(&side->plan);
    memset(side, 0, sizeof *side);
}

static int side_open(struct side *side, const struct checkpoint_trial *t,
                     const struct layout *layout, const struct policy *policy, bool saves)
{
    const struct model *model = &t->reference->model;
    int rc = 0;
    memset(side, 0, sizeof *side);
    TRY(transformer_plan(&side->plan, model, layout, policy));
    TRY(input_open(&side->input, "synthetic", t->reference->seed, model->vocabulary,
                   model->sequence, 0.25, 0));
    struct execute_config config = {.plan = &side->plan,
                                    .backend = t->backend,
                                    .input = &side->input,
                                    .parent = t->parent,
                                    .max_steps = STEPS_BEFORE,
                                    .fault = {.drop_op = -1}};
    if (saves) {
        config.save_stamps = saver_stamps(&side->plan, t->backend->device);
        config.save_tasks = saver_tasks(&side->plan, t->backend->device);
    }
    rc = execute_open(&side->execute, &config);
out:
    return agree_quietly(rc, t->parent);
}

static double one_step(struct side *side)
{
    struct execute_samples samples;
    execute_block(&side->execute, VARIANT_FULL, 0, 1, -1, &samples);
    double loss = samples.step[0].loss;
    execute_samples_release(&samples);
    return loss;
}

/* ---- the first side: train, save, one more step, save ---- */

static int finish(struct saver *saver, const struct checkpoint_trial *t)
{
    int ended = -1, rc = 0;
    while (saver_under_way(saver) > 0)
        TRY(saver_poll(saver, &ended));
    TRY(saver_poll(saver, NULL)); /* slots are made ready again */
    if (saver->failures > 0)
        rc = fail(FAIL_FILE, "checkpoint: the gate's own save was lost");
    rc = agree_quietly(rc, t->parent);
out:
    return rc;
}

static void remove_steps(const struct checkpoint_trial *t)
{
    char folder[CHECKPOINT_PATH];
    for (int64_t step = STEPS_BEFORE; step <= STEPS_BEFORE + 1; step++) {
        checkpoint_step_folder(t->root, step, folder, sizeof folder);
        checkpoint_remove(folder);
    }
}

/* The call of the second save is before a step that nobody looks at. */
static int save_twice(struct side *side, struct saver *saver, const struct checkpoint_trial *t,
                      double *loss)
{
    int rc = 0;
    execute_reset(&side->execute, t->reference->seed);
    execute_block(&side->execute, VARIANT_FULL, 0, STEPS_BEFORE, -1, NULL);
    saver_want(saver, 0, t->mode);
    *loss = one_step(side);
    saver_collect(saver);
    TRY(finish(saver, t));
    saver_want(saver, 0, t->mode);
    (void)one_step(side);
    saver_collect(saver);
    TRY(finish(saver, t));
out:
    return rc;
}

int checkpoint_trial_save(const struct checkpoint_trial *t, double *loss)
{
    struct side side;
    struct saver saver;
    int rc = 0;
    memset(&saver, 0, sizeof saver);
    TRY(side_open(&side, t, t->from, &t->from_policy, true));
    struct saver_config config = {.execute = &side.execute,
                                  .parent = t->parent,
                                  .root = t->root,
                                  .shared = t->shared,
                                  .needs_snapshot = t->mode == SAVE_SNAPSHOT,
                                  .crowded = true,
                                  .continues = true};
    checkpoint_terms_add(&config.terms, "gate", "model");
    TRY(saver_open(&saver, &config));
    remove_steps(t); /* of a gate that was killed: the folder is ours now */
    TRY(agree_barrier(t->parent));
    TRY(save_twice(&side, &saver, t, loss));
out:
    saver_close(&saver);
    side_close(&side);
    return rc;
}

/* ---- the second side: load, one step, compare ---- */

struct norms {
    double difference, moved, size; /* squares */
    int64_t unequal;
};

static void compare_values(const float *found, const float *expected, const float *before,
                           int64_t n, struct norms *norms)
{
    for (int64_t i = 0; i < n; i++) {
        double d = (double)found[i] - (double)expected[i];
        double moved = (double)expected[i] - (double)before[i];
        norms->difference += d * d;
        norms->moved += moved * moved;
        norms->size += (double)expected[i] * (double)expected[i];
        norms->unequal += memcmp(&found[i], &expected[i], sizeof *found) != 0;
    }
}

static int compare_array(struct side *side, struct checkpoint_reader *after,
                         struct checkpoint_reader *before, int array, struct norms *norms)
{
    static const int buffers[CHECKPOINT_ARRAYS] = {BUFFER_MASTER, BUFFER_MOMENT1, BUFFER_MOMENT2};
    int buffer = array == CHECKPOINT_MASTER ? side->plan.master : buffers[array];
    int rc = 0;
    memset(norms, 0, sizeof *norms);
    for (int i = 0; i < side->plan.n_pieces && rc == 0; i++) {
        const struct plan_piece *piece = &side->plan.pieces[i];
        float *values = must_alloc(3 * (size_t)piece->count, sizeof *values);
        float *expected = values + piece->count, *old = expected + piece->count;
        struct tensor at = {buffer, piece->offset * (int64_t)sizeof(float)};
        execute_download_tensor(&side->execute, at, DTYPE_F32, piece->count, values);
        rc = checkpoint_reader_piece(after, array, &side->plan, piece, expected);
        if (rc == 0)
            rc = checkpoint_reader_piece(before, array, &side->plan, piece, old);
        if (rc == 0)
            compare_values(values, expected, old, piece->count, norms);
        free(values);
    }
    return rc;
}

static struct gate_row state_row(const struct checkpoint_trial *t, int array,
                                 const struct norms *norms)
{
    char subject[64];
    double scale = fmax(norms->moved, array == CHECKPOINT_MASTER ? 0 : norms->size);
    snprintf(subject, sizeof subject, "%s after %s", checkpoint_array_name(array),
             save_mode_name((int)t->mode));
    if (t->exact)
        return gate_row_of("resume-state", subject, 0, (double)norms->unequal,
                           (double)norms->unequal, 0);
    return gate_row_of("resume-state", subject, sqrt(norms->size), sqrt(norms->size),
                       sqrt(norms->difference), 1e-3 * sqrt(scale) + 1e-6 * sqrt(norms->size));
}

static struct gate_row loss_row(const struct checkpoint_trial *t, double expected, double found)
{
    char subject[64];
    double bound = t->exact ? 0 : t->reference->bounds->loss_first * fabs(expected);
    snprintf(subject, sizeof subject, "step after %s", save_mode_name((int)t->mode));
    return gate_row_of("resume-loss", subject, expected, found, fabs(found - expected), bound);
}

static int open_step(struct checkpoint_source *source, const struct checkpoint_trial *t,
                     int64_t step)
{
    struct checkpoint_terms terms = {0};
    char folder[CHECKPOINT_PATH];
    checkpoint_terms_add(&terms, "gate", "model");
    checkpoint_step_folder(t->root, step, folder, sizeof folder);
    return checkpoint_source_open(source, folder, &terms, t->to->rank, t->parent);
}

static int compare_state(struct side *side, const struct checkpoint_trial *t,
                         const struct checkpoint_source *before,
                         const struct checkpoint_source *after, struct gate_row *rows)
{
    struct checkpoint_reader *old, *new;
    int rc = 0;
    checkpoint_reader_open(&old, before->folder, &before->manifest, t->to->rank, true);
    checkpoint_reader_open(&new, after->folder, &after->manifest, t->to->rank, true);
    for (int a = 0; a < CHECKPOINT_ARRAYS && rc == 0; a++) {
        struct norms norms;
        rc = compare_array(side, new, old, a, &norms);
        rows[a] = state_row(t, a, &norms);
    }
    checkpoint_reader_close(old);
    checkpoint_reader_close(new);
    return rc;
}

int checkpoint_trial_load(const struct checkpoint_trial *t, double loss,
                          struct gate_row rows[CHECKPOINT_TRIAL_ROWS])
{
    struct side side;
    struct checkpoint_source before, after;
    struct checkpoint_loaded loaded;
    int rc = 0;
    memset(&before, 0, sizeof before);
    memset(&after, 0, sizeof after);
    TRY(side_open(&side, t, t->to, &t->to_policy, false));
    TRY(open_step(&before, t, STEPS_BEFORE));
    TRY(open_step(&after, t, STEPS_BEFORE + 1));
    execute_reset(&side.execute, t->reference->seed + 1);
    TRY(agree_quietly(checkpoint_load(&side.execute, &before, &loaded), t->parent));
    rows[0] = loss_row(t, loss, one_step(&side));
    TRY(agree_quietly(compare_state(&side, t, &before, &after, rows + 1), t->parent));
out:
    checkpoint_source_close(&before);
    checkpoint_source_close(&after);
    side_close(&side);
    return rc;
}

void checkpoint_trial_remove(const struct checkpoint_trial *t)
{
    if (agree_barrier(t->parent) != 0) /* all have read */
        return;
    remove_steps(t);
    rmdir(t->root);
}

int checkpoint_trial(const struct checkpoint_trial *t, struct gate_row rows[CHECKPOINT_TRIAL_ROWS])
{
    double loss = 0;
    int rc = 0;
    TRY(checkpoint_trial_save(t, &loss));
    TRY(checkpoint_trial_load(t, loss, rows));
out:
    checkpoint_trial_remove(t);
    return rc;
}
