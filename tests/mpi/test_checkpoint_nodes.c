/* Ranks that share no folder, as on nodes without shared storage, save and resume each their part; a save is one when
 * every node's part has its name, and on no node else; each folder is for one study. */
#define _DEFAULT_SOURCE /* flock */
#include "tests/mpi/checkpoint_train.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "driver/checkpoint_load.h"

static void name_own(char *own, int of)
{
    char name[32];
    snprintf(name, sizeof name, "node-%d", of);
    checkpoint_path(own, CHECKPOINT_PATH, folder, name);
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
        CHECK_EQ(saver_poll(&t.saver, NULL), 0);
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

/* A launch was killed when some nodes' parts had the name of the step and the manifest was not there yet. */
static void an_orphan_is_set_aside(void)
{
    struct train t;
    char own[CHECKPOINT_PATH], path[CHECKPOINT_PATH];
    bool last = rank == size - 1 && size > 1;
    name_own(own, rank);
    make(&all[0]);
    CHECK(mkdir(own, 0777) == 0);
    if (last)
        leave_part(1);
    MPI_Barrier(world);
    int rc = train_try(&t, &all[0], own, 0, false); /* of who knows whom, where it is not its own */
    CHECK_EQ(rc, size > 1 ? FAIL_USAGE : 0);
    CHECK(rc == 0 ||
          strstr(fail_message(), " of this node holds parts of checkpoints up to step 1") != NULL);
    CHECK(rc == 0 || strstr(fail_message(), ", rank ") != NULL);
    fail_clear();
    train_close(&t);
    MPI_Barrier(world);
    CHECK_EQ(train_try(&t, &all[0], own, 0, true), 0);
    CHECK_EQ(t.saver.slot[save_once(&t, SAVE_STAGED)].state, SAVE_PUBLISHED);
    train_close(&t);
    checkpoint_path(path, sizeof path, own, "damaged-0000000001");
    CHECK_EQ(access(path, F_OK) == 0, last);
    checkpoint_remove(path);
    checkpoint_step_folder(own, 1, path, sizeof path);
    checkpoint_remove(path);
    CHECK_EQ(rmdir(own), 0);
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
    an_orphan_is_set_aside();
    return trains_end();
}
