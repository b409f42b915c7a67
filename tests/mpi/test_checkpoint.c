/* Any layout resumes what any other saved: the next step is the same, bit for bit on the layout that
 * saved. Every mode saves the same bytes, whatever trains beside it. A rank that cannot write leaves the
 * last good checkpoint in force; of two studies in one folder one saves. */
#include "tests/mpi/checkpoint_train.h"

#include <sys/stat.h>

#include "driver/agree.h"
#include "driver/checkpoint_load.h"
#include "driver/checkpoint_save_part.h"

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

/* Somebody removes what the last rank is writing, a step after the call: its bytes are on no disk. */
static int removed;

static void remove_behind_call(void *arg, int step)
{
    struct saver *saver = arg;
    saver_step(saver, step);
    if (step == 2 && rank == size - 1)
        removed = unlink(saver->slot[0].save.path) == 0;
}

static void a_file_that_is_removed(void)
{
    struct train t;
    make(&all[0]);
    train_open(&t, &all[0], root, 0);
    struct saver_slot *slot = &t.saver.slot[0];
    slot->save.throttle_bytes_per_s = slot->bytes; /* a second */
    t.execute.hook.step = remove_behind_call;
    (void)save_once(&t, SAVE_STAGED);
    MPI_Bcast(&removed, 1, MPI_INT, size - 1, world);
    CHECK_EQ(slot->state,
             removed ? SAVE_LOST : SAVE_PUBLISHED); /* the latter: a step took longer */
    CHECK_EQ(t.saver.n_published, !removed);
    CHECK(!removed || strstr(slot->why, ": the checkpoint of step 1 is lost") != NULL);
    train_close(&t);
    MPI_Barrier(world);
    if (rank == 0 && !removed) {
        char step[CHECKPOINT_PATH];
        checkpoint_step_folder(root, 1, step, sizeof step);
        checkpoint_remove(step);
    }
    CHECK(rank != 0 || rmdir(root) == 0);
    MPI_Barrier(world);
}

/* So it is for a run that goes on, where a launch before has filled the disk. */
static void one_slot_to_begin_with(void)
{
    struct train t;
    char path[CHECKPOINT_PATH];
    checkpoint_path(path, sizeof path, root, "saving-1.tmp");
    make(&all[0]);
    FILE *file = rank == 0 && mkdir(root, 0777) == 0 ? fopen(path, "w") : NULL;
    CHECK(rank != 0 || (file != NULL && fclose(file) == 0));
    MPI_Barrier(world);
    int rc = train_try(&t, &all[0], root, 0, false); /* who begins hears of it */
    CHECK_EQ(rc, t.saver.n_slots > 1 ? FAIL_FILE : 0);
    fail_clear();
    train_close(&t);
    MPI_Barrier(world);
    CHECK_EQ(train_try(&t, &all[0], root, 0, true), 0);
    CHECK(saver_can_call(&t.saver));
    CHECK_EQ(fail_message()[0], '\0');
    CHECK_EQ(t.saver.slot[save_once(&t, SAVE_STAGED)].state, SAVE_PUBLISHED);
    CHECK_EQ(t.saver.failures, 0);
    train_close(&t);
    MPI_Barrier(world);
    CHECK(rank != 0 || unlink(path) == 0);
    checkpoint_step_folder(root, 1, path, sizeof path);
    if (rank == 0)
        checkpoint_remove(path);
    CHECK(rank != 0 || rmdir(root) == 0);
    MPI_Barrier(world);
}

/* Two studies that begin at once may both find the folder empty: who gets it second looks again. */
static void another_was_faster(void)
{
    struct train t;
    char step[CHECKPOINT_PATH];
    make(&all[0]);
    train_open(&t, &all[0], root, 0);
    CHECK_EQ(t.saver.slot[save_once(&t, SAVE_STAGED)].state, SAVE_PUBLISHED);
    train_close(&t);
    MPI_Barrier(world);
    CHECK_EQ(train_try(&t, &all[0], root, 0, false), FAIL_USAGE);
    CHECK_HAS(fail_message(), "root holds checkpoints up to step 1, and this study begins at step "
                              "0: take an empty folder, or --resume-from ");
    fail_clear();
    train_close(&t);
    MPI_Barrier(world);
    CHECK_EQ(train_try(&t, &all[0], root, 0, true), 0); /* but not whose it is */
    train_close(&t);
    MPI_Barrier(world);
    checkpoint_step_folder(root, 1, step, sizeof step);
    if (rank == 0)
        checkpoint_remove(step);
    CHECK(rank != 0 || rmdir(root) == 0);
    MPI_Barrier(world);
}

int main(int argc, char **argv)
{
    trains_begin(argc, argv);
    any_resumes_any(all, ALL);
    every_mode_and_dtype();
    late_copies();
    lazy_needs_state_at_rest();
    numbers_of_a_save();
    a_rank_that_cannot_write();
    room_comes_back();
    one_slot_is_enough();
    a_file_that_is_removed();
    one_slot_to_begin_with();
    another_was_faster();
    experts_resume();
    return trains_end();
}
