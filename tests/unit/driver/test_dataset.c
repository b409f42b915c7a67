/* The files of a study are looked at before it runs: what does not fit is refused, what they are is
 * kept in the order in which points name them, and a point notices that they are others now. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/err.h"
#include "driver/dataset.h"
#include "tests/test.h"

static char folder[] = "/tmp/scalestudy-dataset.XXXXXX";
static char a[64], b[64];

static void write_file(const char *path, const char *text, int times)
{
    FILE *file = fopen(path, "wb");
    for (int i = 0; file != NULL && i < times; i++)
        fputs(text, file);
    if (!CHECK(file != NULL))
        return;
    fclose(file);
}

static void test_name(void)
{
    static const struct {
        const char *kind, *name;
        size_t size;
    } cases[] = {{"synthetic", "synthetic", 64},
                 {"file:x", "file:x", 64},
                 {"file:/data/set/train.bin", "file:train.bin", 64},
                 {"file:/data/set/", "file:/data/set/", 64},
                 {"file:/data/*.bin", "file:*.bin", 64},
                 {"file:/a/abcdefghijklmnop", "file:abcdefghij", 16}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[64];
        dataset_name(cases[i].kind, text, cases[i].size);
        if (!CHECK(strcmp(text, cases[i].name) == 0))
            printf("%s gave %s\n", cases[i].kind, text);
    }
}

static void test_check(void)
{
    static struct job job;
    struct discover_host host = {.name = "h", .ranks = 2, .memory_bytes = 1 << 20};
    struct point points[4] = {{.sequence = 10, .global_batch = 4, .micro_batch = 1},
                              {.sequence = 10, .global_batch = 4, .micro_batch = 1},
                              {.sequence = 20, .global_batch = 4, .micro_batch = 1},
                              {.sequence = 10, .global_batch = 4, .micro_batch = 1}};
    struct input input;
    snprintf(points[0].input, sizeof points[0].input, "file:%s", a);
    snprintf(points[1].input, sizeof points[1].input, "synthetic");
    snprintf(points[2].input, sizeof points[2].input, "file:%s", b);
    snprintf(points[3].input, sizeof points[3].input, "file:%s", a);
    job.points.n = 4;
    job.points.point = points;
    job.model.vocabulary = 256;
    strcpy(job.study.document_end, "auto");
    write_file(a, "0123456789", 8);
    write_file(b, "abcdefghij", 9);
    CHECK_EQ(dataset_check(&job), 0);
    CHECK_HAS(job.fingerprint, "files=1 bytes=80 xxh3=");
    CHECK_HAS(job.fingerprint, "; files=1 bytes=90 xxh3=");
    CHECK(strstr(strstr(job.fingerprint, "; ") + 2, "; ") == NULL); /* each once */
    for (int i = 0; i < 4; i++) {
        CHECK_EQ(input_open(&input, points[i].input, 1, 256, points[i].sequence, 0, 1), 0);
        CHECK_EQ(dataset_same(&job, &points[i], &input), 0);
        input_close(&input);
    }
    write_file(b, "abcdefghiX", 9);
    CHECK_EQ(input_open(&input, points[2].input, 1, 256, 20, 0, 1), 0);
    CHECK_EQ(dataset_same(&job, &points[2], &input), FAIL_FILE);
    CHECK_HAS(fail_message(), "changed since the study began: it was files=1 bytes=90");
    fail_clear();
    input_close(&input);

    points[2].global_batch = 5; /* 89 targets in samples of 20: just enough; 6: not */
    CHECK_EQ(dataset_check(&job), 0);
    points[2].global_batch = 6;
    CHECK_EQ(dataset_check(&job), FAIL_USAGE);
    CHECK_HAS(fail_message(), "its 90 tokens make 5 samples of 20, and a step takes 6");
    fail_clear();
    points[2].global_batch = 4;

    char other[sizeof points[3].input],
        link[64]; /* another way to write a path, and another name of a file */
    snprintf(other, sizeof other, "%s", points[3].input);
    snprintf(points[3].input, sizeof points[3].input, "file:%s/./a", folder);
    CHECK_EQ(dataset_check(&job), FAIL_USAGE);
    CHECK_HAS(fail_message(), "says a value twice: ");
    CHECK_HAS(fail_message(), "/./a is ");
    fail_clear();
    snprintf(link, sizeof link, "%s/link", folder);
    CHECK_EQ(symlink("a", link), 0);
    snprintf(points[3].input, sizeof points[3].input, "file:%s", link);
    CHECK_EQ(dataset_check(&job), FAIL_USAGE);
    fail_clear();
    unlink(link);
    snprintf(points[3].input, sizeof points[3].input, "%s", other);

    job.found.n_hosts = 1;
    job.found.hosts = &host;
    job.study.input_workers = 1;
    job.study.prefetch = 100;
    CHECK_EQ(dataset_check(&job), 0);
    job.study.prefetch = 5000;
    CHECK_EQ(dataset_check(&job), FAIL_USAGE);
    CHECK_HAS(fail_message(), "--prefetch: 5000 batches of 90 bytes");
    fail_clear();
}

int main(void)
{
    if (mkdtemp(folder) == NULL)
        return 1;
    snprintf(a, sizeof a, "%s/a", folder);
    snprintf(b, sizeof b, "%s/b", folder);
    test_name();
    test_check();
    unlink(a);
    unlink(b);
    rmdir(folder);
    return test_end();
}
