/* bench_checkpoint_train: what is asked, and a training with a saver. */
#ifndef TESTS_BENCH_CHECKPOINT_TRAIN_H
#define TESTS_BENCH_CHECKPOINT_TRAIN_H

#include "tests/bench/bench_checkpoint_rig.h"

#include <mpi.h>

#include "driver/checkpoint_save.h"
#include "workloads/transformer.h"

static MPI_Comm world;
static int rank, size;

struct ask {
    const char *device, *model;
    char dir[CHECKPOINT_PATH];
    int saves, shard, batch, drain, n_modes, mode[SAVE_MODES];
    bool raw;
    int64_t throttle;
};

struct train {
    struct model model;
    struct layout layout;
    struct plan plan;
    struct input input;
    struct execute execute;
    struct saver saver;
    unsigned char *block; /* what raw writes write: the first slot's staging */
    int64_t bytes;        /* of a rank's save */
};

/* ---- opening ---- */

static inline void open_plan(struct train *t, const struct ask *ask,
                             const struct device_type *device)
{
    struct degrees degrees = {0};
    struct policy policy;
    char text[32] = "";
    must(model_load(&t->model, ask->model));
    policy_defaults(&policy, &t->model);
    policy.micro_batch = ask->batch;
    policy.global_batch = (int64_t)size * ask->batch;
    policy.dtype = device->runs_host_tasks ? DTYPE_F32 : DTYPE_BF16;
    policy.copy_stream = !device->runs_host_tasks;
    if (ask->shard > 1)
        snprintf(text, sizeof text, "shard=%d", ask->shard);
    must(layout_parse(text, &degrees));
    must(layout_init(&t->layout, 1, size, rank, &degrees));
    must(transformer_plan(&t->plan, &t->model, &t->layout, &policy));
}

/* Of an earlier run that was cut off. */
static inline void remove_old(const char *root)
{
    char folder[CHECKPOINT_PATH];
    int64_t *steps = NULL;
    for (int n = rank == 0 ? checkpoint_steps(root, &steps) : 0; n > 0; n--) {
        checkpoint_step_folder(root, steps[n - 1], folder, sizeof folder);
        checkpoint_remove(folder);
    }
    free(steps);
    MPI_Barrier(world);
}

static inline void train_open(struct train *t, const struct ask *ask)
{
    struct backend backend = {.local_rank = rank};
    memset(t, 0, sizeof *t);
    must(device_find(ask->device, &backend.device));
    must(comm_find_for(backend.device, "auto", &backend.comm));
    must(kernels_find(ask->device, &backend.kernels));
    kernels_blas_threads(1);
    open_plan(t, ask, backend.device);
    must(input_open(&t->input, "synthetic", 1, t->model.vocabulary, t->model.sequence, 0, 0));
    struct execute_config config = {.plan = &t->plan,
                                    .backend = &backend,
                                    .input = &t->input,
                                    .parent = &world,
                                    .max_steps = 4,
                                    .fault = {.drop_op = -1},
                                    .save_stamps = saver_stamps(&t->plan, backend.device),
                                    .save_tasks = saver_tasks(&t->plan, backend.device)};
    must(execute_open(&t->execute, &config));
    execute_reset(&t->execute, 1);
    remove_old(ask->dir);
    struct saver_config saves = {.execute = &t->execute,
                                 .parent = &world,
                                 .root = ask->dir,
                                 .needs_snapshot = true,
                                 .keep = 1,
                                 .throttle_bytes_per_s = ask->throttle};
    must(saver_open(&t->saver, &saves));
    t->block = t->saver.slot[0].memory;
    t->bytes = CHECKPOINT_ARRAYS * checkpoint_padded(&t->saver.shard) * (int64_t)sizeof(float);
}

static inline void train_close(struct train *t)
{
    saver_close(&t->saver);
    execute_close(&t->execute);
    input_close(&t->input);
    plan_release(&t->plan);
}

/* ---- words ---- */

static inline void read_modes(struct ask *ask, const char *text)
{
    ask->n_modes = 0;
    for (size_t n; *text != '\0' && ask->n_modes < SAVE_MODES; text += n + (text[n] == ',')) {
        n = strcspn(text, ",");
        int mode = save_mode_of(text, n);
        if (mode < 0)
            die(FAIL_USAGE, "modes: %s: there is no such mode", text);
        ask->mode[ask->n_modes++] = mode;
    }
}

static inline void read_word(struct ask *ask, const char *word)
{
    const char *value = strchr(word, '=');
    size_t n = value ? (size_t)(value++ - word) : strlen(word);
    int64_t number = 0;
    bool known = value != NULL;
    if (known && strncmp(word, "dir", n) == 0)
        checkpoint_path(ask->dir, sizeof ask->dir, value, "bench_checkpoint.d");
    else if (known && strncmp(word, "modes", n) == 0)
        read_modes(ask, value);
    else if (known && strncmp(word, "raw", n) == 0)
        ask->raw = strcmp(value, "off") != 0;
    else if (!known || units_parse_bytes(value, &number) != 0)
        die(FAIL_USAGE, "%s: wanted dir, saves, shard, batch, modes, raw, drain or throttle=VALUE",
            word);
    else if (strncmp(word, "saves", n) == 0)
        ask->saves = (int)number;
    else if (strncmp(word, "shard", n) == 0)
        ask->shard = (int)number;
    else if (strncmp(word, "batch", n) == 0)
        ask->batch = (int)number;
    else if (strncmp(word, "drain", n) == 0)
        ask->drain = (int)number;
    else if (strncmp(word, "throttle", n) == 0)
        ask->throttle = number;
    else
        die(FAIL_USAGE, "%s: there is no such word", word);
}

#endif
