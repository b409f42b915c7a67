/* Nothing that was published is ever lost, overwritten or changed: not by a second launch, a kill, a
 * full disk or another writer. */
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "analysis/record.h"
#include "tests/record_folder.h"

static void test_existing(void)
{
    struct record *record, *second;
    CHECK_EQ(begin(&record, at("a.h5"), false, NULL, NULL, NULL), 0);
    CHECK_EQ(record_finish(record), 0);
    CHECK_EQ(begin(&record, at("a.h5"), false, NULL, NULL, NULL), FAIL_FILE);
    CHECK_HAS(fail_message(), "a.h5 exists: choose another --out");
    fail_clear();
    CHECK_EQ(begin(&record, at("a.h5"), true, NULL, NULL, NULL), FAIL_FILE);
    CHECK_HAS(fail_message(), "nothing to resume");
    fail_clear();
    CHECK_EQ(begin(&record, at("none.h5"), true, NULL, NULL, NULL), FAIL_FILE);
    CHECK_HAS(fail_message(), "there is no ");
    fail_clear();
    CHECK_EQ(begin(&record, at("b.h5"), false, NULL, NULL, NULL), 0);
    CHECK_EQ(begin(&second, at("b.h5"), false, NULL, NULL, NULL), FAIL_FILE);
    CHECK_HAS(fail_message(), "b.h5.parts exists, an unfinished study: --resume");
    fail_clear();
    CHECK_EQ(begin(&second, at("b.h5"), true, NULL, NULL, NULL), FAIL_FILE);
    CHECK_HAS(fail_message(), "in use");
    fail_clear();
    record_abandon(record);
    CHECK_EQ(begin(&record, at("b.h5"), true, NULL, NULL, NULL), 0);
    record_abandon(record);
    CHECK_EQ(begin(&record, at("no/b.h5"), false, NULL, NULL, NULL), FAIL_FILE);
    CHECK_HAS(fail_message(), "no/b.h5.parts: No such file or directory");
    fail_clear();
    /* procfs refuses what the rights of its folders allow: only making it shows that. */
    struct record_head head;
    fill_head(&head, 4, 1);
    CHECK_EQ(record_begin(&record, "/proc/self/b.h5", &head, false, NULL, NULL, NULL), FAIL_FILE);
    CHECK_HAS(fail_message(), "/proc/self/b.h5.parts: ");
    fail_clear();
    record_head_release(&head);
}

/* What has the names of a study and is none. */
static void test_in_the_way(void)
{
    struct record *record;
    char name[300];
    CHECK_EQ(symlink("nowhere", at("l.h5.parts")), 0);
    CHECK_EQ(begin(&record, at("l.h5"), false, NULL, NULL, NULL), FAIL_FILE);
    CHECK_HAS(fail_message(), "l.h5.parts exists, an unfinished study");
    fail_clear();
    CHECK_EQ(begin(&record, at("l.h5"), true, NULL, NULL, NULL), FAIL_FILE);
    CHECK_HAS(fail_message(), "l.h5.parts/lock: No such file or directory");
    fail_clear();
    CHECK_EQ(symlink("nowhere", at("m.h5")), 0);
    CHECK_EQ(begin(&record, at("m.h5"), false, NULL, NULL, NULL), FAIL_FILE);
    CHECK_HAS(fail_message(), "m.h5 exists");
    fail_clear();
    FILE *file = fopen(at("p.h5.parts"), "w");
    CHECK(file != NULL && fclose(file) == 0);
    CHECK_EQ(begin(&record, at("p.h5"), true, NULL, NULL, NULL), FAIL_FILE);
    CHECK_HAS(fail_message(), "p.h5.parts/lock: Not a directory");
    fail_clear();
    CHECK_EQ(begin(&record, at("p.h5.parts/q.h5"), false, NULL, NULL, NULL), FAIL_FILE);
    CHECK_HAS(fail_message(), "q.h5.parts: Not a directory");
    fail_clear();
    CHECK_EQ(mkdir(at("r.h5.parts"), 0777), 0);
    file = fopen(at("r.h5.parts/head.h5"), "w");
    CHECK(file != NULL && fputs("no study", file) > 0 && fclose(file) == 0);
    CHECK_EQ(begin(&record, at("r.h5"), true, NULL, NULL, NULL), FAIL_FILE);
    CHECK(!exists(at("r.h5.parts/lock")) || unlink(at("r.h5.parts/lock")) == 0);
    fail_clear();
    memset(name, 'n', sizeof name);
    name[251] = '\0'; /* with .parts more than a name may have */
    CHECK_EQ(begin(&record, at(name), false, NULL, NULL, NULL), FAIL_FILE);
    CHECK_HAS(fail_message(), ".parts: File name too long");
    fail_clear();
}

static int begin_changed(const char *path, const char *name, const char *text, const char *digest)
{
    struct record *record;
    struct record_head head;
    fill_head(&head, 4, 1);
    record_head_set(&head, "study", name, text);
    if (digest != NULL)
        memcpy(head.study_digest, digest, strlen(digest));
    int rc = begin_with(&record, path, &head, true, NULL, NULL, NULL);
    if (rc == 0)
        record_abandon(record);
    record_head_release(&head);
    return rc;
}

static void test_resume_refuses(void)
{
    struct record *record;
    CHECK_EQ(begin(&record, at("c.h5"), false, NULL, NULL, NULL), 0);
    record_abandon(record);
    CHECK_EQ(begin_changed(at("c.h5"), "model", "large", NULL), FAIL_USAGE);
    CHECK_HAS(fail_message(), "resume: model was tiny and is now large");
    fail_clear();
    CHECK_EQ(begin_changed(at("c.h5"), "seed", "7", NULL), FAIL_USAGE);
    CHECK_HAS(fail_message(),
              "resume: the build of the first launch had no option seed, and this one has one");
    fail_clear();
    CHECK_EQ(begin_changed(at("c.h5"), "model", "tiny", "ffff"), FAIL_USAGE);
    CHECK_HAS(fail_message(), "resume: study_digest was 0123");
    fail_clear();
    CHECK_EQ(begin_changed(at("c.h5"), "resume", "on", NULL), 0);
}

static void test_resume(void)
{
    struct record *record;
    struct record_file file;
    struct record_head head;
    int *done, n_done, launch;
    CHECK_EQ(begin(&record, at("d.h5"), false, &launch, NULL, NULL), 0);
    CHECK_EQ(append(record, 2, 3), 0);
    CHECK_EQ(append(record, 0, 3), 0);
    CHECK_EQ(append(record, 0, 3), FAIL_INTERNAL); /* published once, in this launch */
    CHECK_HAS(fail_message(), "point 0 is published already");
    fail_clear();
    record_abandon(record);
    fill_head(&head, 4, 2);
    record_head_set(&head, "provenance", "mpi", "MPICH");
    record_head_set(&head, "launch", "note", "second");
    CHECK_EQ(record_begin(&record, at("d.h5"), &head, true, &launch, &done, &n_done), 0);
    CHECK_EQ(launch, 1);
    CHECK(n_done == 2 && done[0] == 0 && done[1] == 2);
    free(done);
    CHECK_EQ(append(record, 1, 3), 0);
    CHECK_EQ(append(record, 0, 3), 0); /* the base point again */
    CHECK_EQ(record_finish(record), 0);
    CHECK_EQ(record_read(&file, at("d.h5")), 0);
    const int points[] = {0, 0, 1, 2}, launches[] = {0, 1, 1, 0};
    CHECK_EQ(file.n_points, 4);
    for (int i = 0; i < file.n_points && i < 4; i++) {
        CHECK(holds(&file, i, points[i], 3));
        CHECK_EQ(file.points[i].point.launch, launches[i]);
    }
    CHECK(strcmp(record_head_get(&file.head, "provenance", "mpi"), "Open MPI 4.1.4") == 0);
    CHECK(strcmp(record_head_get(&file.head, "launch.1", "mpi"), "MPICH") == 0);
    CHECK(strcmp(record_head_get(&file.head, "launch.1", "note"), "second") == 0);
    CHECK(strcmp(record_head_get(&file.head, "launch.0", "t0_unix_ns"), "2") == 0);
    CHECK(strcmp(record_head_get(&file.head, "launch.1", "t0_unix_ns"), "3") == 0);
    CHECK(record_head_get(&file.head, "launch.1", "model") == NULL);
    CHECK(file.head.n_hosts == 4 && file.head.hosts[3].launch == 1);
    CHECK(file.head.n_ranks == 8 && file.head.ranks[7].launch == 1);
    CHECK_EQ(file.head.ranks[7].host, head.ranks[3].host + 2);
    record_file_release(&file);
    record_head_release(&head);
}

/* What a killed writer leaves: .tmp files are not read, and the next launch replaces them. */
static void test_leftovers(void)
{
    struct record *record;
    struct record_file file;
    CHECK_EQ(begin(&record, at("e.h5"), false, NULL, NULL, NULL), 0);
    CHECK_EQ(append(record, 0, 3), 0);
    record_abandon(record);
    FILE *left = fopen(at("e.h5.parts/001.h5.tmp"), "w");
    CHECK(left != NULL && fputs("half a file", left) > 0 && fclose(left) == 0);
    CHECK_EQ(record_read(&file, at("e.h5")), 0);
    CHECK_EQ(file.n_points, 1);
    record_file_release(&file);
    CHECK_EQ(begin(&record, at("e.h5"), true, NULL, NULL, NULL), 0);
    CHECK_EQ(append(record, 1, 3), 0);
    CHECK(!exists(at("e.h5.parts/001.h5.tmp")));
    CHECK_EQ(record_finish(record), 0);
    CHECK_EQ(record_read(&file, at("e.h5")), 0);
    CHECK(holds(&file, 1, 1, 3));
    record_file_release(&file);
    /* Killed before it had a head: the next launch is the first. */
    int launch = -1;
    CHECK_EQ(mkdir(at("f.h5.parts"), 0777), 0);
    CHECK_EQ(begin(&record, at("f.h5"), true, &launch, NULL, NULL), 0);
    CHECK_EQ(launch, 0);
    record_abandon(record);
}

/* A write that fails half way (here: the limit of a file's size) loses nothing. */
static void test_failed_write(void)
{
    struct rlimit before, small = {200000, RLIM_INFINITY};
    struct record *record;
    struct record_file file;
    getrlimit(RLIMIT_FSIZE, &before);
    small.rlim_max = before.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    CHECK_EQ(begin(&record, at("h.h5"), false, NULL, NULL, NULL), 0);
    CHECK_EQ(append(record, 0, 10), 0);
    CHECK_EQ(append(record, 1, 70), 0);
    setrlimit(RLIMIT_FSIZE, &small);
    CHECK_EQ(append(record, 2, 1000), FAIL_FILE);
    CHECK_HAS(fail_message(), "h.h5.parts/002.h5: File too large");
    fail_clear();
    CHECK(!exists(at("h.h5.parts/002.h5")) && !exists(at("h.h5.parts/002.h5.tmp")));
    small.rlim_cur = 150000; /* both points do not fit into one file */
    setrlimit(RLIMIT_FSIZE, &small);
    CHECK_EQ(record_finish(record), FAIL_FILE);
    CHECK_HAS(fail_message(), "h.h5: File too large");
    CHECK_HAS(fail_message(), "the points stay in");
    fail_clear();
    setrlimit(RLIMIT_FSIZE, &before);
    CHECK(!exists(at("h.h5")) && !exists(at("h.h5.tmp")));
    CHECK_EQ(record_read(&file, at("h.h5")), 0);
    CHECK(holds(&file, 0, 0, 10) && holds(&file, 1, 1, 70));
    record_file_release(&file);
    CHECK_EQ(begin(&record, at("h.h5"), true, NULL, NULL, NULL), 0);
    CHECK_EQ(record_finish(record), 0);
}

/* A process that the kernel kills in the middle of a write (the limit of a file's size does that at
 * a known byte): append point 1, or merge. Returns the signal that ended it. */
static int killed_within(const char *path, bool merge, rlim_t most_bytes)
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        struct rlimit limit = {most_bytes, most_bytes};
        struct record *record;
        if (begin(&record, path, true, NULL, NULL, NULL) != 0)
            _exit(1);
        signal(SIGXFSZ, SIG_DFL);
        setrlimit(RLIMIT_FSIZE, &limit);
        _exit(merge ? record_finish(record) : append(record, 1, 1000));
    }
    int status = 0;
    CHECK_EQ(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void test_killed_half_way(void)
{
    struct record *record;
    struct record_file file;
    struct stat left;
    CHECK_EQ(begin(&record, at("k.h5"), false, NULL, NULL, NULL), 0);
    CHECK_EQ(append(record, 0, 10), 0);
    record_abandon(record);
    CHECK_EQ(killed_within(at("k.h5"), false, 100000), SIGXFSZ);
    CHECK(stat(at("k.h5.parts/001.h5.tmp"), &left) == 0 && left.st_size == 100000);
    CHECK_EQ(record_read(&file, at("k.h5")), 0);
    CHECK(file.n_points == 1 && holds(&file, 0, 0, 10));
    record_file_release(&file);
    CHECK_EQ(begin(&record, at("k.h5"), true, NULL, NULL, NULL), 0);
    CHECK_EQ(append(record, 1, 1000), 0);
    record_abandon(record);
    CHECK_EQ(killed_within(at("k.h5"), true, 100000), SIGXFSZ);
    CHECK(!exists(at("k.h5")));
    CHECK_EQ(record_read(&file, at("k.h5")), 0);
    CHECK(file.n_points == 2 && holds(&file, 0, 0, 10) && holds(&file, 1, 1, 1000));
    record_file_release(&file);
    CHECK_EQ(begin(&record, at("k.h5"), true, NULL, NULL, NULL), 0);
    CHECK_EQ(record_finish(record), 0);
    CHECK(exists(at("k.h5")) && !exists(at("k.h5.tmp")) && !exists(at("k.h5.parts")));
}

/* The output of somebody else that appeared meanwhile is not overwritten. */
static void test_not_overwritten(void)
{
    struct record *record;
    char text[8] = {0};
    CHECK_EQ(begin(&record, at("i.h5"), false, NULL, NULL, NULL), 0);
    FILE *other = fopen(at("i.h5"), "w+");
    CHECK(other != NULL && fputs("his", other) > 0 && fflush(other) == 0);
    CHECK_EQ(record_finish(record), FAIL_FILE);
    CHECK_HAS(fail_message(), "i.h5: File exists");
    fail_clear();
    rewind(other);
    CHECK(fread(text, 1, sizeof text, other) == 3 && strcmp(text, "his") == 0);
    fclose(other);
    CHECK(exists(at("i.h5.parts/head.h5")));
}

int main(void)
{
    if (!folder_make())
        return 1;
    test_existing();
    test_in_the_way();
    test_resume_refuses();
    test_resume();
    test_leftovers();
    test_failed_write();
    test_killed_half_way();
    test_not_overwritten();
    folder_remove();
    return test_end();
}
