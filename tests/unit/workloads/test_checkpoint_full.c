/* A disk that is full while HDF5 lays out a file: FAIL_FILE, no crash when the process ends, and room is used again. */
#include "tests/unit/workloads/checkpoint_rig.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

static char root[CHECKPOINT_PATH];

static int create(const struct checkpoint_shard *shard, const char *name)
{
    struct checkpoint_place place;
    char path[CHECKPOINT_PATH];
    checkpoint_path(path, sizeof path, root, name);
    int rc = checkpoint_file_create(path, false, shard, 1, &place);
    unlink(path);
    return rc;
}

/* A limit on the size of files stands for the disk. The exit code: was anything missed? */
static int fill(const struct checkpoint_shard *shard)
{
    struct rlimit whole, little;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &whole);
    for (rlim_t bytes = 0; bytes < 6000; bytes += 500) {
        little = (struct rlimit){bytes, whole.rlim_max};
        CHECK_EQ(setrlimit(RLIMIT_FSIZE, &little), 0);
        CHECK_EQ(create(shard, "full.h5"), FAIL_FILE);
        CHECK_HAS(fail_message(), "full.h5");
        fail_clear();
        CHECK_EQ(setrlimit(RLIMIT_FSIZE, &whole), 0);
        CHECK_EQ(create(shard, "room.h5"), 0);
    }
    return test_failed > 0;
}

/* It ends with all that libraries do at the end. */
static int child(const char *folder)
{
    static const struct rig_layout one = {1, "", 0, DTYPE_F32, 0};
    struct model model;
    struct plan plan;
    struct checkpoint_shard shard;
    checkpoint_file_library();
    snprintf(root, sizeof root, "%s", folder);
    CHECK_EQ(model_load(&model, "tiny"), 0);
    rig_plan(&plan, &model, &one, 0);
    checkpoint_shard_make(&plan, &shard);
    int rc = fill(&shard);
    checkpoint_shard_release(&shard);
    plan_release(&plan);
    return rc;
}

int main(int argc, char **argv)
{
    int status = -1;
    if (argc > 1)
        return child(argv[1]);
    rig_folder(root, sizeof root, NULL);
    fflush(stdout);
    pid_t id = fork();
    if (id == 0) {
        setenv("ASAN_OPTIONS", "detect_leaks=0", 1); /* HDF5 keeps what it could not finish */
        execl("/proc/self/exe", argv[0], root, (char *)NULL);
        _exit(99);
    }
    CHECK(waitpid(id, &status, 0) == id);
    CHECK(WIFEXITED(status));
    CHECK_EQ(WEXITSTATUS(status), 0);
    rig_remove(root);
    return test_end();
}
