/* Ranks that share no folder, as on nodes without shared storage, save and resume each their part; a save is one when
 * every node's part has its name, and on no node else; each folder is for one study. */
#define _DEFAULT_SOURCE /* flock */
#include "tests/mpi/checkpoint_train.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "driver/checkpoint_load.h"

/* In the place of the C library's: that of `sync_root` fails once `sync_until` is there. */
static char sync_root[CHECKPOINT_PATH], sync_until[CHECKPOINT_PATH + 32];
static int syncs_failed;

int fsync(int fd)
{
    struct stat asked, root_is;
    if (access(sync_until, F_OK) != 0 || fstat(fd, &asked) != 0 || stat(sync_root, &root_is) != 0 ||
        asked.st_ino != root_is.st_ino || asked.st_dev != root_is.st_dev)
        return fdatasync(fd);
    syncs_failed++;
    errno = EIO;
    return -1;
}

static void name_own(char *own, int of)
{
    char name[32];
    snprintf(name, sizeof name, "node-%d", of);
    checkpoint_path(own, CHECKPOINT_PATH, folder, name);
}

/* What is removed goes behind the save. */
static void settle(struct train *t)
{
    CHECK_EQ(saver_poll(&t->saver, NULL), 0);
    while (!checkpoint_writer_called(t->saver.writer))
        units_sleep_ns(200000);
}

static void node_local(void)
{
    struct train t;
    char own[CHECKPOINT_PATH], step[CHECKPOINT_PATH];
    struct checkpoint_source source;
    struct checkpoint_terms terms = {0};
    struct checkpoint_loaded loaded;
    name_own(own, rank);
    make(&all[0]);
    train_open(&t, &all[0], own, 1);
    CHECK_EQ(t.saver.view.sees, rank == 0);
    CHECK(t.saver.view.leads);
    int other = open(own, O_RDONLY | O_DIRECTORY); /* of another study that begins on this node */
    CHECK(flock(other, LOCK_EX | LOCK_NB) == -1 && errno == EWOULDBLOCK);
    close(other);
    for (int i = 0; i < 3; i++) {
        save_once(&t, SAVE_STAGED);
        settle(&t);
    }
    MPI_Barrier(world);
    checkpoint_step_folder(own, 4, step, sizeof step); /* 1, 4, 7: the newest alone is kept */
    CHECK(access(step, F_OK) != 0);
    checkpoint_step_folder(own, 7, step, sizeof step);
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
    checkpoint_remove(step);
    CHECK_EQ(rmdir(own), 0);
    MPI_Barrier(world);
}

/* Another's part of the step that will be saved lies in the folder of the last node. */
static void leave_part(int64_t step)
{
    char own[CHECKPOINT_PATH], path[CHECKPOINT_PATH], inside[CHECKPOINT_PATH];
    name_own(own, rank);
    checkpoint_step_folder(own, step, path, sizeof path);
    checkpoint_path(inside, sizeof inside, path, "rank-00077.h5");
    FILE *file = mkdir(path, 0777) == 0 ? fopen(inside, "w") : NULL;
    CHECK(file != NULL && fclose(file) == 0);
}

/* A save is complete when every node's part has its name: where one cannot have it no node keeps any. */
static void a_node_that_cannot_rename(void)
{
    struct train t;
    char own[CHECKPOINT_PATH], step[CHECKPOINT_PATH];
    name_own(own, rank);
    make(&all[0]);
    train_open(&t, &all[0], own, 0);
    if (rank == size - 1 && size > 1)
        leave_part(4);
    for (int i = 0; i < 3; i++) {
        bool lost = i == 1 && size > 1;
        const struct saver_slot *slot = &t.saver.slot[save_once(&t, (enum save_mode)i)];
        CHECK_EQ(slot->state, lost ? SAVE_LOST : SAVE_PUBLISHED);
        CHECK(!lost || strstr(slot->why, "this node's part of step 4 cannot become ") != NULL);
        CHECK(!lost || strstr(slot->why, "that of step 1 stays the newest") != NULL);
        CHECK_EQ(saver_poll(&t.saver, NULL), 0);
    }
    CHECK_EQ(t.saver.failures, size > 1);
    train_close(&t);
    checkpoint_step_folder(own, 4, step, sizeof step);
    CHECK_EQ(access(step, F_OK) == 0, size == 1 || rank == size - 1);
    for (int i = 0; i < 3; i++) {
        checkpoint_step_folder(own, 1 + 3 * i, step, sizeof step);
        checkpoint_remove(step);
    }
    CHECK_EQ(rmdir(own), 0); /* and nothing else is left behind */
    MPI_Barrier(world);
}

/* Rank 0 cannot publish: nobody else's part keeps the name of a step that is none. */
static void parts_are_taken_back(void)
{
    struct train t;
    char own[CHECKPOINT_PATH], step[CHECKPOINT_PATH];
    name_own(own, rank);
    make(&all[0]);
    train_open(&t, &all[0], own, 0);
    if (rank == 0)
        leave_part(1);
    const struct saver_slot *slot = &t.saver.slot[save_once(&t, SAVE_STAGED)];
    CHECK_EQ(slot->state, SAVE_LOST);
    CHECK_HAS(slot->why, "step 1 cannot be published: ");
    checkpoint_step_folder(own, 1, step, sizeof step);
    CHECK_EQ(access(step, F_OK) == 0, rank == 0);
    train_close(&t);
    checkpoint_remove(step);
    CHECK_EQ(rmdir(own), 0);
    MPI_Barrier(world);
}

/* The last fsync of a publish fails on rank 0: what is said to be lost is on no node, and the next is saved. */
static void the_last_sync_fails(void)
{
    struct train t;
    char own[CHECKPOINT_PATH], step[CHECKPOINT_PATH];
    name_own(own, rank);
    make(&all[0]);
    train_open(&t, &all[0], own, 0);
    checkpoint_step_folder(own, 1, step, sizeof step);
    checkpoint_path(sync_until, sizeof sync_until, step, "manifest.json");
    name_own(sync_root, rank);
    const struct saver_slot *slot = &t.saver.slot[save_once(&t, SAVE_STAGED)];
    CHECK_EQ(slot->state, SAVE_LOST);
    CHECK_HAS(slot->why, "step 1 cannot be published: ");
    CHECK_HAS(slot->why, "none was published before");
    CHECK_EQ(syncs_failed, rank == 0);
    CHECK(access(step, F_OK) != 0);
    sync_until[0] = '\0';
    CHECK_EQ(saver_poll(&t.saver, NULL), 0);
    CHECK_EQ(t.saver.slot[save_once(&t, SAVE_STAGED)].state, SAVE_PUBLISHED);
    train_close(&t);
    checkpoint_step_folder(own, 4, step, sizeof step);
    checkpoint_remove(step);
    CHECK_EQ(rmdir(own), 0);
    MPI_Barrier(world);
}

static bool has(const char *own, int64_t step)
{
    char path[CHECKPOINT_PATH];
    checkpoint_step_folder(own, step, path, sizeof path);
    return access(path, F_OK) == 0;
}

/* A launch was killed when the part of rank `at` had the name of the step and the manifest was not there yet. */
static void an_orphan_is_removed(int at)
{
    struct train t;
    char own[CHECKPOINT_PATH], path[CHECKPOINT_PATH], step[CHECKPOINT_PATH];
    name_own(own, rank);
    make(&all[0]);
    CHECK(mkdir(own, 0777) == 0);
    if (rank == at)
        leave_part(1);
    MPI_Barrier(world);
    /* of who knows whom, where it is not its own */
    CHECK_EQ(train_try(&t, &all[0], own, 0, false), FAIL_USAGE);
    CHECK_HAS(fail_message(), " holds parts of checkpoints up to step 1");
    CHECK_HAS(fail_message(), "or remove each step-N there with N above 0");
    CHECK_EQ(strstr(fail_message(), " of this node ") != NULL, at > 0);
    CHECK_EQ(strstr(fail_message(), ", rank ") != NULL, at > 0);
    fail_clear();
    train_close(&t);
    CHECK_EQ(has(own, 1), rank == at);
    MPI_Barrier(world);
    CHECK_EQ(train_try(&t, &all[0], own, 0, true), 0);
    CHECK_EQ(has(own, 1), rank == at); /* not yet: what it goes on with may be elsewhere */
    CHECK_EQ(saver_drop_orphans(&t.saver), 0);
    CHECK(!has(own, 1));
    CHECK_EQ(t.saver.slot[save_once(&t, SAVE_STAGED)].state, SAVE_PUBLISHED);
    CHECK_EQ(saver_poll(&t.saver, NULL), 0);
    bool aside = rank == at && at > 0;
    if (aside) /* and one that appears meanwhile is not lost, nor in the way */
        leave_part(4);
    CHECK_EQ(t.saver.slot[save_once(&t, SAVE_STAGED)].state, SAVE_PUBLISHED);
    CHECK_EQ(saver_drop_orphans(&t.saver), 0);
    CHECK(has(own, 1) && has(own, 4)); /* what rank 0 has published stays */
    train_close(&t);
    checkpoint_path(path, sizeof path, own, "damaged-0000000001");
    CHECK(access(path, F_OK) != 0);
    checkpoint_path(path, sizeof path, own, "damaged-0000000004");
    CHECK_EQ(access(path, F_OK) == 0, aside);
    checkpoint_remove(path);
    for (int i = 0; i < 2; i++) {
        checkpoint_step_folder(own, 1 + 3 * i, step, sizeof step);
        checkpoint_remove(step);
    }
    CHECK_EQ(rmdir(own), 0);
    MPI_Barrier(world);
}

/* Nothing goes where it is not known what is published, or where the folder is not held. */
static void an_orphan_stays_in_doubt(void)
{
    struct train t;
    char own[CHECKPOINT_PATH], away[CHECKPOINT_PATH];
    name_own(own, rank);
    snprintf(away, sizeof away, "%.*s-away", CHECKPOINT_PATH - 8, own);
    make(&all[0]);
    CHECK_EQ(train_try(&t, &all[0], own, 0, true), 0);
    leave_part(1);
    MPI_Barrier(world);
    int held = t.saver.held;
    t.saver.held = -1;
    CHECK_EQ(saver_drop_orphans(&t.saver), 0);
    CHECK(has(own, 1));
    t.saver.held = held;
    if (rank == 0)
        CHECK_EQ(rename(own, away), 0);
    CHECK_EQ(saver_drop_orphans(&t.saver), 0);
    CHECK_EQ(t.saver.n_known, -1);
    if (rank == 0)
        CHECK_EQ(rename(away, own), 0);
    CHECK(has(own, 1));
    CHECK_EQ(saver_drop_orphans(&t.saver), 0);
    CHECK(!has(own, 1));
    train_close(&t);
    CHECK_EQ(rmdir(own), 0);
    MPI_Barrier(world);
}

static void save_at(struct train *t, int64_t step)
{
    t->execute.global_steps = step - 1;
    CHECK_EQ(t->saver.slot[save_once(t, SAVE_STAGED)].state, SAVE_PUBLISHED);
    settle(t);
}

/* How many steps are kept is so on every node, whichever launch has saved them. */
static void keep_holds_over_launches(void)
{
    struct train t;
    char own[CHECKPOINT_PATH], step[CHECKPOINT_PATH];
    name_own(own, rank);
    make(&all[0]);
    train_open(&t, &all[0], own, 2);
    save_at(&t, 10);
    save_at(&t, 20);
    save_at(&t, 30);
    train_close(&t);
    CHECK(!has(own, 10) && has(own, 20) && has(own, 30));
    MPI_Barrier(world);
    if (rank > 0) /* killed behind rank 0's removing, and before theirs */
        leave_part(10);
    CHECK_EQ(train_try(&t, &all[0], own, 2, true), 0);
    CHECK_EQ(saver_drop_orphans(&t.saver), 0);
    CHECK(!has(own, 10) && has(own, 20) && has(own, 30));
    save_at(&t, 40);
    CHECK(!has(own, 20) && has(own, 30) && has(own, 40));
    train_close(&t);
    MPI_Barrier(world);
    begin_step = 40; /* another study, which begins with what is there */
    if (rank > 0)
        leave_part(10); /* and beside it another's, whose rank 0 is on another node */
    CHECK_EQ(train_try(&t, &all[0], own, 2, false), 0);
    save_at(&t, 50);
    save_at(&t, 60);
    CHECK(!has(own, 30) && !has(own, 40) && has(own, 50) && has(own, 60));
    CHECK_EQ(has(own, 10), rank > 0);
    train_close(&t);
    begin_step = 0;
    for (int64_t i = 10; i <= 60; i += 10) {
        checkpoint_step_folder(own, i, step, sizeof step);
        checkpoint_remove(step);
    }
    CHECK_EQ(rmdir(own), 0); /* and nothing else is left */
    MPI_Barrier(world);
}

/* Two ranks a node: one of them leads, and what both wrote becomes the node's part. */
static void two_ranks_of_a_node(void)
{
    struct train t;
    char own[CHECKPOINT_PATH], step[CHECKPOINT_PATH], file[CHECKPOINT_PATH], name[32];
    name_own(own, rank / 2);
    make(&all[0]);
    train_open(&t, &all[0], own, 0);
    CHECK_EQ(t.saver.view.sees, rank < 2);
    CHECK_EQ(t.saver.view.leads, rank % 2 == 0);
    CHECK_EQ(t.saver.apart, size > 2);
    CHECK_EQ(t.saver.slot[save_once(&t, SAVE_STAGED)].state, SAVE_PUBLISHED);
    checkpoint_step_folder(own, 1, step, sizeof step);
    snprintf(name, sizeof name, "rank-%05d.h5", rank);
    checkpoint_path(file, sizeof file, step, name);
    CHECK_EQ(access(file, F_OK), 0);
    train_close(&t);
    MPI_Barrier(world);
    if (rank % 2 == 0) {
        checkpoint_remove(step);
        CHECK_EQ(rmdir(own), 0);
    }
    MPI_Barrier(world);
}

int main(int argc, char **argv)
{
    trains_begin(argc, argv);
    node_local();
    two_ranks_of_a_node();
    a_node_that_cannot_rename();
    parts_are_taken_back();
    the_last_sync_fails();
    an_orphan_is_removed(0);
    if (size > 1)
        an_orphan_is_removed(size - 1);
    an_orphan_stays_in_doubt();
    keep_holds_over_launches();
    return trains_end();
}
