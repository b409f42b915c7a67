/*
 * What a report of many files costs: 100 study files with 10^7 step rows in total, read and reported
 * by scalereport as launches of one study. Limits: 10 s and 1 GiB (1,074 MB). The files are written first and not timed; each has two points, 4 and 8 ranks, steps in
 * blocks of 100 behind a lead-in step, step times that resemble their neighbours.
 *
 *     bench_report [FOLDER [FILES [ROWS]]]
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "analysis/record.h"
#include "base/err.h"
#include "base/rng.h"
#include "base/units.h"

enum { BLOCK = 101 };

static void fill_point(struct record_point *out, int index, int ranks, int64_t steps, uint64_t seed)
{
    struct point_row p = {.point = index,
                          .nodes = ranks / 4,
                          .ranks = ranks,
                          .ranks_per_node = 4,
                          .tp = 1,
                          .pp = 1,
                          .cp = 1,
                          .ep = 1,
                          .dp = ranks,
                          .shard = 1,
                          .scaling = "strong",
                          .model = "bench",
                          .dtype = "bf16",
                          .device = "cuda",
                          .global_batch = 64,
                          .micro_batch = 1,
                          .sequence = 1024,
                          .positions_per_step = 65536,
                          .parameters = 1000000,
                          .settled = 1,
                          .valid = 1,
                          .gate = "passed"};
    *out = (struct record_point){.point = p};
    struct step_row *rows = RECORD_ADD(&out->steps, steps * ranks);
    double drift = 0.0;
    int64_t now_ns = 1000000;
    for (int64_t step = 0; step < steps; step++) {
        drift = 0.8 * drift + 1e4 * (rng_uniform(seed, (uint64_t)step) - 0.5);
        int64_t length_ns = 4000000 * 4 / ranks + 300000 + (int64_t)drift;
        for (int rank = 0; rank < ranks; rank++) {
            uint64_t noise = rng_bits(seed + 1, (uint64_t)(step * ranks + rank)) >> 50;
            struct step_row *row = rows++;
            *row = (struct step_row){.block = (i32)(step / BLOCK), .step = (i32)step, .rank = rank};
            row->flags = step % BLOCK == 0 ? STEP_LEAD_IN : 0;
            row->start_ns = now_ns + (i64)noise;
            row->end_ns = now_ns + length_ns - (i64)noise / 4;
            row->valid_tokens = 65536;
            row->loss = 5.0;
        }
        now_ns += length_ns;
    }
}

static int write_file(const char *path, int index, int64_t n_rows)
{
    struct record *record;
    struct record_point points[2];
    struct record_head head = {.t0_unix_ns = 1700000000000000000 + index};
    int64_t steps = n_rows / 12;
    int rc;
    strcpy(head.study_digest, "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff");
    unlink(path);
    fill_point(&points[0], 0, 4, steps, (uint64_t)index * 4);
    fill_point(&points[1], 1, 8, steps, (uint64_t)index * 4 + 2);
    TRY(record_begin(&record, path, &head, false, NULL, NULL, NULL));
    rc = record_append(record, &points[0]);
    if (rc == 0)
        rc = record_append(record, &points[1]);
    if (rc == 0)
        TRY(record_finish(record));
    else
        record_abandon(record);
out:
    record_point_release(&points[0]);
    record_point_release(&points[1]);
    return rc;
}

/* scalereport lies beside this program. */
static void report_path(char *path, size_t size)
{
    ssize_t length = readlink("/proc/self/exe", path, size - 16);
    path[length > 0 ? length : 0] = 0;
    char *slash = strrchr(path, '/');
    strcpy(slash ? slash + 1 : path, "scalereport");
}

static double seconds_of(const struct timeval *t)
{
    return (double)t->tv_sec + (double)t->tv_usec * 1e-6;
}

static int run_report(char **arguments)
{
    struct rusage before, used;
    int status = 1;
    getrusage(RUSAGE_CHILDREN, &before); /* of merging the files */
    int64_t start_ns = units_now_ns();
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_WRONLY);
        dup2(null, STDOUT_FILENO);
        execv(arguments[0], arguments);
        _exit(127);
    }
    waitpid(pid, &status, 0);
    double wall_s = (double)(units_now_ns() - start_ns) / 1e9;
    getrusage(RUSAGE_CHILDREN, &used);
    printf("scalereport         %6.2f s  (limit 10; %.2f s user, %.2f s system)\n", wall_s,
           seconds_of(&used.ru_utime) - seconds_of(&before.ru_utime),
           seconds_of(&used.ru_stime) - seconds_of(&before.ru_stime));
    printf("  peak memory       %6.1f MB (limit 1074)\n", (double)used.ru_maxrss / 976.5625);
    return WIFEXITED(status) ? WEXITSTATUS(status) : FAIL_INTERNAL;
}

int main(int argc, char **argv)
{
    const char *folder = argc > 1 ? argv[1] : ".";
    int files = argc > 2 ? atoi(argv[2]) : 100, rc = 0;
    int64_t rows = argc > 3 ? atoll(argv[3]) : 10000000;
    char program[1024];
    char **arguments = must_alloc((size_t)files + 2, sizeof *arguments);
    report_path(program, sizeof program);
    arguments[0] = program;
    for (int i = 0; i < files && rc == 0; i++) {
        arguments[i + 1] = must_alloc(600, 1);
        snprintf(arguments[i + 1], 600, "%s/bench_report.%d.%d.h5", folder, (int)getpid(), i);
        rc = write_file(arguments[i + 1], i, rows / files);
    }
    printf("%d files, %lld step rows\n", files, (long long)rows);
    if (rc == 0)
        rc = run_report(arguments);
    if (rc != 0)
        fprintf(stderr, "bench_report: exit %d %s\n", rc, fail_message());
    for (int i = 1; i <= files && arguments[i] != NULL; i++) {
        unlink(arguments[i]);
        free(arguments[i]);
    }
    free(arguments);
    return rc;
}
