/* What a mapping keeps resident is bounded, and a file larger than memory is read like any other. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/err.h"
#include "tests/test.h"
#include "workloads/input.h"
#include "workloads/input_file.h"

enum { SEED = 7 };

static char folder[] = "/tmp/scalestudy-map.XXXXXX";

static const char *path_of(const char *name)
{
    static char path[64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static long resident_kib(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%*d %ld", &pages) != 1)
        pages = -1;
    if (file != NULL)
        fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

/* What is in the page cache already would all stay resident: the budget says how much may. */
static void test_budget(void)
{
    enum { MIB = 1 << 20, ALL = 48 * MIB, BUDGET = 4 * MIB, PIECE = 4096 };
    char *bytes = must_alloc(MIB, 1);
    struct input_map map;
    memset(bytes, 'x', MIB);
    int descriptor = open(path_of("cached"), O_CREAT | O_RDWR, 0600);
    for (int i = 0; i < ALL / MIB; i++)
        CHECK_EQ(write(descriptor, bytes, MIB), MIB);
    CHECK_EQ(map_open(&map, descriptor, ALL, BUDGET, false), 0);
    close(descriptor);
    long before = resident_kib(), most = 0;
    for (size_t at = 0; at < ALL; at += PIECE) {
        CHECK(map_copy(&map, at, PIECE, bytes));
        long now = at % MIB == 0 ? resident_kib() : 0;
        most = now > most ? now : most;
    }
    printf("48 MiB in the page cache, budget 4 MiB: at most %ld KiB more resident\n",
           most - before);
    CHECK(most - before < 3 * BUDGET / 1024);
    map_close(&map);
    free(bytes);
    unlink(path_of("cached"));
}

/* 10 GB of holes: 64-bit sizes, and pages are handed back while it is read. */
static void test_sparse(void)
{
    enum { S = 256, SAMPLES = 6000 };
    const int64_t bytes = INT64_C(10) << 30;
    int32_t tokens[S], targets[S];
    uint8_t mask[S];
    struct input input;
    char kind[160], text[INPUT_FILE_FINGERPRINT];
    int descriptor = open(path_of("sparse"), O_CREAT | O_RDWR, 0600);
    if (ftruncate(descriptor, bytes) != 0 || pwrite(descriptor, "end", 3, bytes - 3) != 3) {
        printf("this file system holds no sparse file of 10 GiB\n");
        close(descriptor);
        return;
    }
    close(descriptor);
    long before = resident_kib();
    snprintf(kind, sizeof kind, "file:%s", path_of("sparse"));
    CHECK_EQ(input_open(&input, kind, SEED, 256, S, 0, 0), 0);
    CHECK_EQ(input_file_samples(input.file, S), (bytes - 2) / S + 1);
    CHECK_EQ(input_file_fingerprint(input.file, text), 0);
    CHECK_HAS(text, "bytes=10737418240 ends=");
    CHECK_EQ(input_file_sample(input.file, bytes - 3, S, tokens, targets), 2);
    CHECK(tokens[0] == 'e' && targets[0] == 'n' && tokens[1] == 'n' && targets[1] == 'd');
    long most = 0;
    int64_t valid = 0;
    for (int64_t i = 0; i < SAMPLES; i++) {
        input_fill(&input, i, 1, tokens, targets, mask);
        valid += mask[S - 1];
        if (i % 50 == 0 && resident_kib() > most)
            most = resident_kib();
    }
    CHECK(valid >= SAMPLES - 1);
    CHECK(before > 0 && most - before < 2 * INPUT_FILE_RESIDENT / 1024);
    printf("10 GiB sparse file: %d samples, at most %ld KiB resident beyond what was before\n",
           SAMPLES, most - before);
    input_close(&input);
    unlink(path_of("sparse"));
}

int main(void)
{
    if (mkdtemp(folder) == NULL)
        return 1;
    test_budget();
    test_sparse();
    CHECK_EQ(rmdir(folder), 0);
    return test_end();
}
