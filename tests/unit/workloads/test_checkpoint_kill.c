/* However a saving process dies, the newest published checkpoint loads and verifies, and none that was
 * published before is lost. 60 kills; SCALESTUDY_DEEP=1: 400. */
#include "tests/unit/workloads/checkpoint_rig.h"

#include <signal.h>
#include <sys/wait.h>

#include "base/units.h"

static char root[CHECKPOINT_PATH];
static struct model model;

static const struct rig_layout layouts[] = {
    {1, "", 0, DTYPE_F32, 0}, {2, "shard=2", 1, DTYPE_F32, 0}, {2, "tp=2", 0, DTYPE_F32, 0}};

static int64_t newest(void)
{
    int64_t *steps, last = 0;
    int n = checkpoint_steps(root, &steps);
    if (n > 0)
        last = steps[n - 1];
    free(steps);
    return last;
}

/* Save one step after the other, as fast as the disk is said to be, until somebody ends this. */
static void save_forever(const struct rig_layout *how, bool shared, int64_t throttle)
{
    for (int64_t step = newest() + 1;; step++) {
        if (rig_save(root, &model, how, shared, step, (uint64_t)step, 2 * CHECKPOINT_BLOCK,
                     throttle) != 0)
            _exit(1);
        checkpoint_prune(root, 2);
    }
}

/* Time until a child has published its first one, however fast machine and build are. */
static int64_t first_published(void)
{
    int64_t begin = units_now_ns(), took = 0;
    pid_t child = fork();
    if (child == 0)
        save_forever(&layouts[0], true, 0);
    while (newest() == 0 && took < 60000000000) {
        units_sleep_ns(500000);
        took = units_now_ns() - begin;
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    return took;
}

/* One in three after up to some saves, the others mostly within the first. */
static int64_t kill_once(int i, uint64_t key, int64_t save_ns)
{
    bool shared = rng_bits(key, 3 * (uint64_t)i) % 2 == 0;
    int64_t most = i % 3 == 0 ? 5 * save_ns : save_ns;
    int64_t delay = (int64_t)(rng_bits(key, 3 * (uint64_t)i + 1) % (uint64_t)most);
    int64_t throttle = i % 4 == 0 ? 20 << 20 : 0;
    int64_t before = newest();
    int status;
    pid_t child = fork();
    if (child == 0)
        save_forever(&layouts[i % 3], shared, throttle);
    units_sleep_ns(delay);
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    if (!CHECK(WIFSIGNALED(status))) /* it did not end by itself */
        printf("kill %d: the child ended with %d\n", i, status);
    int64_t after = newest();
    CHECK(after >= before);
    return after;
}

static void check_newest(int64_t step, int i)
{
    char folder[CHECKPOINT_PATH];
    struct checkpoint_manifest manifest;
    if (step == 0)
        return; /* killed before the first one */
    checkpoint_step_folder(root, step, folder, sizeof folder);
    fail_clear();
    if (CHECK_EQ(checkpoint_manifest_read(&manifest, folder), 0)) {
        CHECK_EQ(manifest.step, step);
        CHECK_EQ(checkpoint_verify(folder, &manifest, 0, 1), 0);
    } else {
        printf("kill %d: %s\n", i, fail_message());
    }
    checkpoint_manifest_release(&manifest);
    if (i % 8 == 0) /* by any layout */
        CHECK_EQ(rig_load(folder, &model, &layouts[i % 3], (uint64_t)step), 0);
}

int main(void)
{
    struct model full;
    bool deep = getenv("SCALESTUDY_DEEP") != NULL;
    int kills = deep ? 400 : 60;
    rig_direct = false; /* for the speed of it */
    rig_folder(root, sizeof root, "/dev/shm");
    CHECK_EQ(model_load(&full, "tiny"), 0);
    model_reduce_for(&full, 2, &model);
    int64_t save_ns = first_published();
    CHECK(newest() > 0);
    for (int i = 0; i < kills; i++)
        check_newest(kill_once(i, rng_key(11, deep ? "deep" : "short"), save_ns), i);
    CHECK(newest() > 5);
    printf("%d kills, %lld checkpoints published\n", kills, (long long)newest());
    rig_remove(root);
    return test_end();
}
