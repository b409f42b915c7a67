/* Names of steps in a folder: a publish whose last fsync fails leaves none; what is kept, what goes, what is not known. */
#include "tests/unit/workloads/checkpoint_rig.h"

#include <errno.h>
#include <sys/stat.h>

static char root[CHECKPOINT_PATH];

/* In the place of the C library's: that of `root` fails, and first something takes the name that the folder had. */
static bool sync_fails, name_is_taken;

static void take_name(void)
{
    char path[CHECKPOINT_PATH];
    checkpoint_path(path, sizeof path, root, "saving-0.tmp");
    CHECK_EQ(mkdir(path, 0777), 0);
    checkpoint_path(path, sizeof path, root, "saving-0.tmp/rank-00000.h5");
    FILE *file = fopen(path, "w");
    CHECK(file != NULL && fclose(file) == 0);
}

int fsync(int fd)
{
    struct stat asked, whole;
    if (!sync_fails || fstat(fd, &asked) != 0 || stat(root, &whole) != 0 ||
        asked.st_ino != whole.st_ino)
        return fdatasync(fd);
    if (name_is_taken)
        take_name();
    errno = EIO;
    return -1;
}

static bool has(const char *name)
{
    char path[CHECKPOINT_PATH];
    checkpoint_path(path, sizeof path, root, name);
    return access(path, F_OK) == 0;
}

static void make(const char *name, bool published)
{
    char path[CHECKPOINT_PATH], inside[CHECKPOINT_PATH];
    checkpoint_path(path, sizeof path, root, name);
    CHECK_EQ(mkdir(path, 0777), 0);
    checkpoint_path(inside, sizeof inside, path, published ? "manifest.json" : "rank-00001.h5");
    FILE *file = fopen(inside, "w");
    CHECK(file != NULL && fclose(file) == 0);
}

static int publish(int64_t step, char *why, size_t size)
{
    char path[CHECKPOINT_PATH];
    struct checkpoint_manifest head = {.step = step};
    const char *text = "{}";
    checkpoint_path(path, sizeof path, root, "saving-0.tmp");
    return checkpoint_publish(root, path, &head, &text, 1, why, size);
}

static void last_sync_fails(void)
{
    char why[CHECKPOINT_PATH + 256], path[CHECKPOINT_PATH];
    int64_t *steps;
    for (int taken = 0; taken < 2; taken++) {
        make("saving-0.tmp", false);
        sync_fails = true;
        name_is_taken = taken;
        CHECK_EQ(publish(4, why, sizeof why), FAIL_FILE);
        sync_fails = false;
        CHECK_HAS(why, "step 4 cannot be published: ");
        CHECK_HAS(why, strerror(EIO));
        CHECK_EQ(checkpoint_steps(root, &steps), 0);
        CHECK_EQ(checkpoint_newest_part(root), -1);
        CHECK(has("saving-0.tmp") && !has("saving-0.tmp/manifest.json"));
        CHECK_EQ(has("saving-0.tmp/rank-00001.h5"), !taken); /* each rank removes its own */
        CHECK(!has("removing-4.tmp"));
        checkpoint_path(path, sizeof path, root, "saving-0.tmp");
        checkpoint_remove(path);
    }
    make("saving-0.tmp", false);
    CHECK_EQ(publish(4, why, sizeof why), 0);
    CHECK(has("step-0000000004/manifest.json"));
    checkpoint_retire(root, 4);
    checkpoint_sweep(root);
}

static void kept_and_gone(void)
{
    int64_t *steps;
    make("step-0000000010", true);
    make("step-0000000020", true);
    make("step-0000000030", true);
    make("step-0000000040", false); /* of another node */
    make("damaged-0000000005", true);
    CHECK_EQ(checkpoint_parts(root, &steps), 4);
    CHECK(steps[0] == 10 && steps[3] == 40);
    free(steps);
    CHECK_EQ(checkpoint_steps_known(root, &steps), 3);
    CHECK_EQ(steps[2], 30);
    free(steps);
    CHECK_EQ(checkpoint_retire_old(root, 0), -1);
    CHECK_EQ(checkpoint_retire_old(root, 3), 10);
    CHECK_EQ(checkpoint_retire_old(root, 5), 10);
    CHECK_EQ(checkpoint_retire_old(root, 2), 20);
    CHECK(!has("step-0000000010") && has("removing-10.tmp"));
    checkpoint_retire(root, 40);
    CHECK(!has("step-0000000040") && has("removing-40.tmp"));
    make("step-0000000040", false); /* again, while the other is going: its name is in use */
    checkpoint_retire(root, 40);
    CHECK(!has("step-0000000040") && has("removing-40.tmp"));
    checkpoint_retire(root, 99); /* there is none */
    checkpoint_sweep(root);
    CHECK(!has("removing-10.tmp") && !has("removing-40.tmp"));
    checkpoint_prune(root, 1);
    CHECK(!has("step-0000000020") && has("step-0000000030") && !has("removing-20.tmp"));
    CHECK(has("damaged-0000000005"));
    checkpoint_prune(root, 0);
    CHECK(has("step-0000000030"));
}

/* Behind kept_and_gone(): step 30. What the system does not say is not what is not there. */
static void known_or_not(void)
{
    char path[CHECKPOINT_PATH];
    int64_t *steps;
    rig_opening(false);
    CHECK_EQ(checkpoint_steps_known(root, &steps), -1);
    CHECK_EQ(checkpoint_steps(root, &steps), 0);
    rig_opening(true);
    checkpoint_path(path, sizeof path, root, "step-0000000050");
    CHECK_EQ(symlink("step-0000000050", path), 0); /* ELOOP */
    CHECK_EQ(checkpoint_steps_known(root, &steps), -1);
    free(steps);
    CHECK_EQ(unlink(path), 0);
    CHECK_EQ(checkpoint_steps_known(root, &steps), 1);
    free(steps);
}

int main(void)
{
    rig_folder(root, sizeof root, "/dev/shm");
    last_sync_fails();
    kept_and_gone();
    known_or_not();
    rig_remove(root);
    return test_end();
}
