/* Any layout resumes what any other saved: the next step is the same, bit for bit on the layout that
 * saved. Every mode saves the same bytes, whatever trains beside it. A rank that cannot write leaves the
 * last good checkpoint in force; ranks that share no folder save and resume each their part. */
#include "tests/mpi/checkpoint_layouts.h"

#include <sys/stat.h>
#include <unistd.h>

#include "base/units.h"
#include "driver/agree.h"
#include "driver/checkpoint_load.h"
#include "driver/checkpoint_place.h"

static char folder[CHECKPOINT_PATH];

static void every_mode_and_dtype(void)
{
    struct how how = {.dtype = DTYPE_BF16, .stage = 2};
    char shard[16];
    struct gate_row rows[CHECKPOINT_TRIAL_ROWS];
    snprintf(shard, sizeof shard, "shard=%d", size);
    how.parallel = size > 1 ? shard : "";
    make(&how);
    for (int mode = 0; mode < SAVE_MODES; mode++) {
        struct checkpoint_trial trial = trial_of(&how, &how, (enum save_mode)mode);
        if (CHECK_EQ(checkpoint_trial(&trial, rows), 0))
            check_rows(rows, &how, &how);
        else
            printf("%s\n", fail_message());
    }
}

/* Copies of the saver's stream arrive late: what is saved must be as before the update all the same, so
 * updates have to wait for them. */
static void late(void *arg, void *native)
{
    (void)arg;
    (void)native;
    units_sleep_ns(3000000);
}

static void late_download(struct device *device, int stream, void *to, const void *from,
                          size_t bytes)
{
    if (stream != DEVICE_COMPUTE)
        device_cpu.launch(device, stream, late, NULL);
    device_cpu.download(device, stream, to, from, bytes);
}

static void late_copies(void)
{
    struct device_type slow = device_cpu;
    struct gate_row rows[CHECKPOINT_TRIAL_ROWS];
    slow.download = late_download;
    backend.device = &slow;
    make(&all[0]);
    for (int mode = SAVE_STAGED; mode < SAVE_MODES; mode++) {
        struct checkpoint_trial trial = trial_of(&all[0], &all[0], (enum save_mode)mode);
        CHECK_EQ(checkpoint_trial(&trial, rows), 0);
        check_rows(rows, &all[0], &all[0]);
    }
    backend.device = &device_cpu;
}

/* A plan that writes masters before the update cannot be saved lazily. */
static void lazy_needs_state_at_rest(void)
{
    struct plan plan;
    make(&all[0]);
    CHECK_EQ(transformer_plan(&plan, &reference.model, &all[0].layout, &all[0].policy), 0);
    CHECK_EQ(saver_lazy_allowed(&plan), 0);
    int i = 0;
    while (plan.ops[i].kind != OP_ZERO)
        i++;
    plan.ops[i].t[0] = (struct tensor){BUFFER_MOMENT1, 0};
    CHECK_EQ(saver_lazy_allowed(&plan), FAIL_USAGE);
    CHECK_HAS(fail_message(), "(zero) of this plan writes the state outside the update");
    fail_clear();
    plan_release(&plan);
}

/* ---- a training of the gate model, by hand ---- */

struct train {
    struct plan plan;
    struct input input;
    struct execute execute;
    struct saver saver;
};

static void train_open(struct train *t, const struct how *how, const char *where, int64_t keep)
{
    memset(t, 0, sizeof *t);
    CHECK_EQ(transformer_plan(&t->plan, &reference.model, &how->layout, &how->policy), 0);
    CHECK_EQ(input_open(&t->input, "synthetic", 1, reference.model.vocabulary,
                        reference.model.sequence, 0.25, 0),
             0);
    struct execute_config config = {.plan = &t->plan,
                                    .backend = &backend,
                                    .input = &t->input,
                                    .parent = &world,
                                    .max_steps = 4,
                                    .fault = {.drop_op = -1},
                                    .save_stamps = saver_stamps(&t->plan, backend.device),
                                    .save_tasks = saver_tasks(&t->plan, backend.device)};
    CHECK_EQ(execute_open(&t->execute, &config), 0);
    execute_reset(&t->execute, 5);
    struct saver_config saves = {.execute = &t->execute,
                                 .parent = &world,
                                 .root = where,
                                 .needs_snapshot = true,
                                 .crowded = true,
                                 .keep = keep};
    if (!CHECK_EQ(saver_open(&t->saver, &saves), 0))
        printf("%s\n", fail_message());
}

static void train_close(struct train *t)
{
    saver_close(&t->saver);
    execute_close(&t->execute);
    input_close(&t->input);
    plan_release(&t->plan);
}

/* Three steps, the call before the middle one; then until it is over. Returns the slot. */
static int save_once(struct train *t, enum save_mode mode)
{
    int over = -1, ended = -1;
    saver_want(&t->saver, 1, mode);
    execute_block(&t->execute, VARIANT_FULL, 1, 3, -1, NULL);
    int called = saver_collect(&t->saver);
    if (t->saver.slot[called].state >= SAVE_PUBLISHED)
        ended = called;
    while (saver_under_way(&t->saver) > 0) {
        CHECK_EQ(saver_poll(&t->saver, &over), 0);
        units_sleep_ns(200000);
        ended = over >= 0 ? over : ended;
    }
    CHECK_EQ(called, ended);
    return ended;
}

/* Killed jobs, larger ones too, leave notes of ranks and what they were removing. */
static void leave_behind(const char *where, const char *file)
{
    char inside[CHECKPOINT_PATH], path[CHECKPOINT_PATH];
    checkpoint_path(inside, sizeof inside, root, where);
    checkpoint_path(path, sizeof path, inside, file);
    CHECK(mkdir(root, 0777) == 0 || access(root, W_OK) == 0);
    CHECK(mkdir(inside, 0777) == 0 || access(inside, W_OK) == 0);
    FILE *left = fopen(path, "w");
    CHECK(left != NULL && fclose(left) == 0);
}

static void numbers_of_a_save(void)
{
    struct train t;
    make(&all[0]);
    if (rank == 0) {
        leave_behind("saving-0.tmp", "shard-00007.json");
        leave_behind("saving-1.tmp", "shard-00000.json");
        leave_behind("removing-3.tmp", "rank-00000.h5");
    }
    MPI_Barrier(world);
    train_open(&t, &all[0], root, 2);
    for (int mode = 0; mode < SAVE_MODES; mode++) {
        int64_t begin = t.execute.global_steps;
        const struct saver_slot *slot = &t.saver.slot[save_once(&t, (enum save_mode)mode)];
        CHECK_EQ(slot->state, SAVE_PUBLISHED);
        CHECK_EQ(slot->step, begin + 1); /* the state before the middle step */
        CHECK(slot->blocked_ns >= 0 && slot->staged_ns > 0);
        CHECK(slot->complete_ns > 0);
        CHECK(mode != SAVE_SYNC || slot->call_end_ns - slot->call_begin_ns > slot->staged_ns);
        CHECK(mode == SAVE_LAZY || slot->held_ns == 0);
        CHECK_EQ(saver_poll(&t.saver, NULL), 0);
        CHECK(saver_can_call(&t.saver));
    }
    CHECK_EQ(t.saver.failures, 0);
    train_close(&t);
    MPI_Barrier(world);
    if (rank == 0) {
        int64_t *steps;
        CHECK_EQ(checkpoint_steps(root, &steps), 2); /* --checkpoint-keep */
        for (int i = 0; i < 2; i++) {
            char step[CHECKPOINT_PATH];
            checkpoint_step_folder(root, steps[i], step, sizeof step);
            checkpoint_remove(step);
        }
        free(steps);
        CHECK_EQ(rmdir(root), 0); /* and nothing else is left behind */
    }
    MPI_Barrier(world);
}

/* The last rank's file vanishes before the call: its write fails, all drop the save, one speaks. */
static void a_rank_that_cannot_write(void)
{
    struct train t;
    int64_t *steps = NULL;
    make(&all[0]);
    train_open(&t, &all[0], root, 0);
    int slot = save_once(&t, SAVE_STAGED);
    CHECK_EQ(t.saver.slot[slot].state, SAVE_PUBLISHED);
    CHECK_EQ(saver_poll(&t.saver, NULL), 0);
    for (int i = 0; i < t.saver.n_slots; i++)
        if (rank == size - 1)
            CHECK_EQ(unlink(t.saver.slot[i].save.path), 0);
    slot = save_once(&t, SAVE_LAZY);
    CHECK_EQ(t.saver.slot[slot].state, SAVE_LOST);
    CHECK_HAS(t.saver.slot[slot].why, "cannot write");
    CHECK_HAS(t.saver.slot[slot].why, "that of step 1 stays the newest");
    CHECK_EQ(t.saver.failures, 1);
    CHECK_EQ(saver_poll(&t.saver, NULL), 0); /* its files are made again */
    if (t.saver.n_slots == 1 || rank != size - 1 || saver_can_call(&t.saver)) {
        for (int i = 0; i < t.saver.n_slots; i++) /* the other slot's file is still gone */
            CHECK(t.saver.slot[i].state == SAVE_READY);
    }
    train_close(&t);
    MPI_Barrier(world);
    if (rank == 0) {
        char step[CHECKPOINT_PATH];
        struct checkpoint_manifest manifest;
        CHECK_EQ(checkpoint_steps(root, &steps), 1);
        checkpoint_step_folder(root, 1, step, sizeof step);
        CHECK_EQ(checkpoint_manifest_read(&manifest, step), 0);
        CHECK_EQ(checkpoint_verify(step, &manifest, 0, 1), 0);
        checkpoint_manifest_release(&manifest);
        checkpoint_remove(step);
        rmdir(root);
        free(steps);
    }
    MPI_Barrier(world);
}

/* The folder goes away and comes back, as a disk that was full: saves are lost meanwhile, and made again after it. */
static void room_comes_back(void)
{
    struct train t;
    char away[CHECKPOINT_PATH];
    checkpoint_path(away, sizeof away, folder, "away");
    make(&all[0]);
    train_open(&t, &all[0], root, 0);
    MPI_Barrier(world);
    CHECK(rank != 0 || rename(root, away) == 0);
    MPI_Barrier(world);
    for (int i = 0; i < t.saver.n_slots; i++) {
        CHECK_EQ(t.saver.slot[save_once(&t, SAVE_STAGED)].state, SAVE_LOST);
        CHECK_EQ(saver_poll(&t.saver, NULL), 0);
    }
    CHECK_EQ(t.saver.failures, t.saver.n_slots); /* not again because no slot was made ready */
    CHECK_EQ(saver_make_room(&t.saver), 0);
    CHECK(!saver_can_call(&t.saver));
    CHECK(t.saver.said);
    CHECK_EQ(t.saver.failures, t.saver.n_slots + 1); /* one that was due, and skipped */
    MPI_Barrier(world);
    CHECK(rank != 0 || rename(away, root) == 0);
    MPI_Barrier(world);
    CHECK_EQ(saver_make_room(&t.saver), 0);
    CHECK(saver_can_call(&t.saver));
    CHECK_EQ(t.saver.failures, t.saver.n_slots + 1);
    if (saver_can_call(&t.saver)) {
        int slot = save_once(&t, SAVE_STAGED);
        CHECK_EQ(t.saver.slot[slot].state, SAVE_PUBLISHED);
        CHECK(!t.saver.said); /* the next failure is news again */
        checkpoint_step_folder(root, t.saver.slot[slot].step, away, sizeof away);
    }
    train_close(&t);
    MPI_Barrier(world);
    if (rank == 0)
        checkpoint_remove(away);
    CHECK(rank != 0 || rmdir(root) == 0);
    MPI_Barrier(world);
}

/* A file is where a slot has its folder: while the other is ready nothing is lost, and nothing said. */
static void one_slot_is_enough(void)
{
    struct train t;
    char step[CHECKPOINT_PATH];
    make(&all[0]);
    train_open(&t, &all[0], root, 0);
    int slot = save_once(&t, SAVE_STAGED);
    CHECK_EQ(t.saver.slot[slot].state, SAVE_PUBLISHED);
    checkpoint_step_folder(root, t.saver.slot[slot].step, step, sizeof step);
    MPI_Barrier(world);
    FILE *file = rank == 0 ? fopen(t.saver.slot[slot].folder, "w") : NULL;
    if (file != NULL)
        fclose(file);
    MPI_Barrier(world);
    CHECK_EQ(saver_poll(&t.saver, NULL), 0);
    CHECK_EQ(t.saver.slot[slot].state, SAVE_FREE);
    CHECK_EQ(saver_can_call(&t.saver), t.saver.n_slots > 1);
    CHECK_EQ(t.saver.said, t.saver.n_slots == 1);
    CHECK_EQ(t.saver.failures, 0);
    CHECK_EQ(fail_message()[0], '\0');
    MPI_Barrier(world);
    CHECK(rank != 0 || unlink(t.saver.slot[slot].folder) == 0);
    train_close(&t);
    MPI_Barrier(world);
    if (rank == 0)
        checkpoint_remove(step);
    CHECK(rank != 0 || rmdir(root) == 0);
    MPI_Barrier(world);
}

/* Each rank has a folder of its own: as on nodes without shared storage. */
static void node_local(void)
{
    struct train t;
    char own[CHECKPOINT_PATH], name[32], step[CHECKPOINT_PATH];
    struct checkpoint_source source;
    struct checkpoint_terms terms = {0};
    struct checkpoint_loaded loaded;
    snprintf(name, sizeof name, "node-%d", rank);
    checkpoint_path(own, sizeof own, folder, name);
    make(&all[0]);
    train_open(&t, &all[0], own, 1);
    CHECK_EQ(t.saver.sees_root, rank == 0);
    for (int i = 0; i < 3; i++) {
        save_once(&t, SAVE_STAGED);
        CHECK_EQ(saver_poll(&t.saver, NULL), 0);
    }
    MPI_Barrier(world);
    checkpoint_step_folder(own, 7, step, sizeof step); /* 1, 4, 7: the newest alone is kept */
    CHECK_EQ(access(step, F_OK), 0);
    uint64_t trained = execute_digest(&t.execute);
    int rc = checkpoint_source_open(&source, own, &terms, rank, &world);
    if (!CHECK_EQ(rc, 0))
        printf("%s\n", fail_message());
    CHECK_EQ(source.manifest.step, 7);
    execute_reset(&t.execute, 6);
    rc = checkpoint_load(&t.execute, &source, &loaded);
    if (size == 1) { /* two steps later it is where it was */
        CHECK_EQ(rc, 0);
        execute_block(&t.execute, VARIANT_FULL, 0, 2, -1, NULL);
        CHECK_EQ(execute_digest(&t.execute), trained);
    } else { /* replicas need each other's parts: the missing file is named */
        CHECK_EQ(rc, FAIL_FILE);
        CHECK_HAS(fail_message(), "is missing");
    }
    fail_clear();
    checkpoint_source_close(&source);
    train_close(&t);
    for (int i = 0; i < 3; i++) {
        checkpoint_step_folder(own, 1 + 3 * i, step, sizeof step);
        checkpoint_remove(step);
    }
    CHECK_EQ(rmdir(own), 0);
    MPI_Barrier(world);
}

int main(int argc, char **argv)
{
    int provided;
    struct model model;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
    MPI_Comm_dup(MPI_COMM_WORLD, &world);
    MPI_Comm_rank(world, &rank);
    MPI_Comm_size(world, &size);
    backend = (struct backend){
        .device = &device_cpu, .comm = &comm_mpi, .kernels = &kernels_cpu, .local_rank = rank};
    const char *base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(folder, sizeof folder, "%s/scalestudy-mpi-checkpoint.XXXXXX", base);
    if (rank == 0 && mkdtemp(folder) == NULL)
        MPI_Abort(world, 1);
    MPI_Bcast(folder, sizeof folder, MPI_CHAR, 0, world);
    checkpoint_path(root, sizeof root, folder, "root");
    CHECK_EQ(model_load(&model, "tiny"), 0);
    struct gate_shape shape = {.tp = 4, .rows = 8, .layers = 4};
    struct routing routing;
    routing_defaults(&routing);
    CHECK_EQ(gate_reference_routed(&reference, &model, &routing, &shape, 4 * size, 1, GATE_FP32,
                                   rank, &world),
             0);
    any_resumes_any(all, ALL);
    every_mode_and_dtype();
    late_copies();
    lazy_needs_state_at_rest();
    numbers_of_a_save();
    a_rank_that_cannot_write();
    room_comes_back();
    one_slot_is_enough();
    node_local();
    experts_resume();
    gate_reference_release(&reference);
    MPI_Barrier(world);
    if (rank == 0)
        CHECK_EQ(rmdir(folder), 0);
    long failed = test_failed;
    MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_LONG, MPI_MAX, world);
    MPI_Comm_free(&world);
    MPI_Finalize();
    int rc = rank == 0 || test_failed ? test_end() : 0;
    return rc || failed;
}
