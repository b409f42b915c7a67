/*
 * What the study file costs at scale: a point of 1,024 ranks x 1,000 steps, appended (build, write,
 * fsync, rename, fsync the folder), beside a plain write + fsync of the same bytes in the same run;
 * then merged, and reported by scalereport. Limits: append <= 1 s and <= 200 MB; scalereport <= 2 s
 * and <= 1 GiB.
 *
 *     bench_record [FOLDER [RANKS [STEPS]]]
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "analysis/record.h"
#include "base/err.h"
#include "base/rng.h"
#include "base/units.h"

enum { ROUNDS = 5 };

struct size {
    int ranks, steps;
    bool stalls;
};

static double seconds_since(int64_t start_ns)
{
    return (double)(units_now_ns() - start_ns) / 1e9;
}

static void fill_step(struct step_row *row, int step, int rank)
{
    uint64_t noise = rng_bits(1, ((uint64_t)step << 20) + (uint64_t)rank);
    *row = (struct step_row){.step = step, .rank = rank, .block = step / 10};
    row->start_ns = (i64)step * 20000000 + (i64)(noise % 100000);
    row->end_ns = row->start_ns + 19000000 + (i64)(noise >> 44);
    row->consumed = (i64)(step + 1) * 1024;
    row->valid_tokens = 1048576;
    row->loss = 10.8 - 0.001 * step;
    row->grad_norm = 1 + rng_uniform(2, noise);
    row->lr = 6e-4;
    row->stall_ns = (i64)(noise >> 45);
}

static void fill_point(struct record_point *point, const struct size *size)
{
    int64_t n = (int64_t)size->ranks * size->steps;
    *point = (struct record_point){.point = {.ranks = size->ranks, .nodes = size->ranks / 8}};
    struct step_row *steps = RECORD_ADD(&point->steps, n);
    struct stall_row *stalls = size->stalls ? RECORD_ADD(&point->stalls, n) : NULL;
    for (int64_t i = 0; i < n; i++) {
        int step = (int)(i / size->ranks), rank = (int)(i % size->ranks);
        fill_step(&steps[i], step, rank);
        if (stalls == NULL)
            continue;
        stalls[i] = (struct stall_row){.step = step, .rank = rank, .axis = "dp", .waits = 8};
        stalls[i].stall_ns = steps[i].stall_ns;
        stalls[i].wire_bytes = 500000000;
    }
}

static int64_t file_bytes(const char *path)
{
    struct stat found;
    return stat(path, &found) == 0 ? (int64_t)found.st_size : 0;
}

static int append_once(const char *path, const struct record_point *point, double *append_s,
                       int64_t *bytes, double *merge_s)
{
    char part[600];
    struct record *record;
    struct record_head head = {0};
    int rc;
    TRY(record_begin(&record, path, &head, false, NULL, NULL, NULL));
    int64_t start_ns = units_now_ns();
    rc = record_append(record, point);
    *append_s = seconds_since(start_ns);
    snprintf(part, sizeof part, "%s.parts/000.h5", path);
    *bytes = file_bytes(part);
    start_ns = units_now_ns();
    if (rc == 0)
        TRY(record_finish(record));
    else
        record_abandon(record);
    *merge_s = seconds_since(start_ns);
out:
    return rc;
}

/* The bytes themselves are not what it costs: the same number of them, from warm memory. */
static double plain_write(const char *path, const char *bytes, int64_t size)
{
    int64_t start_ns = units_now_ns();
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    int64_t at = 0;
    while (fd >= 0 && at < size) {
        ssize_t n = write(fd, bytes + at, (size_t)(size - at));
        if (n <= 0)
            die(FAIL_FILE, "bench_record: cannot write %s", path);
        at += n;
    }
    if (fd < 0 || fsync(fd) != 0 || close(fd) != 0)
        die(FAIL_FILE, "bench_record: cannot write %s", path);
    double s = seconds_since(start_ns);
    unlink(path);
    return s;
}

static int by_value(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, by_value);
    return values[n / 2];
}

static int bench_write(const char *path, const struct record_point *point)
{
    char plain[600];
    double append_s[ROUNDS], plain_s[2][ROUNDS], merge_s[ROUNDS];
    int64_t bytes = 0;
    int rc = 0;
    snprintf(plain, sizeof plain, "%s.plain", path);
    char *buffer = NULL;
    for (int i = 0; i < ROUNDS && rc == 0; i++) {
        unlink(path);
        rc = append_once(path, point, &append_s[i], &bytes, &merge_s[i]);
        if (rc != 0)
            break;
        if (buffer == NULL) {
            buffer = must_alloc((size_t)bytes, 1);
            memset(buffer, 0x5a, (size_t)bytes);
        }
        plain_s[0][i] = plain_write(plain, buffer, bytes);
        plain_s[1][i] = plain_write(plain, buffer, bytes);
    }
    free(buffer);
    if (rc != 0)
        return rc;
    double append = median(append_s, ROUNDS), first = median(plain_s[0], ROUNDS);
    printf("append + fsync      %6.3f s  (median of %d, worst %.3f; limit 1)\n", append, ROUNDS,
           append_s[ROUNDS - 1]);
    printf("  / plain write     %6.2f    (plain %.3f s; A/A %.2f)\n", append / first, first,
           median(plain_s[1], ROUNDS) / first);
    printf("size                %6.1f MB (limit 200)\n", (double)bytes / 1e6);
    printf("merge + fsync       %6.3f s\n", median(merge_s, ROUNDS));
    return 0;
}

/* scalereport lies beside this program. */
static void report_path(char *path, size_t size)
{
    ssize_t length = readlink("/proc/self/exe", path, size - 16);
    path[length > 0 ? length : 0] = 0;
    char *slash = strrchr(path, '/');
    strcpy(slash ? slash + 1 : path, "scalereport");
}

/* The whole program, its table thrown away; its peak includes the reader that it forks. */
static int bench_report(const char *path)
{
    char program[1024];
    struct rusage used;
    int status = 1;
    report_path(program, sizeof program);
    fflush(stdout);
    int64_t start_ns = units_now_ns();
    pid_t pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_WRONLY);
        dup2(null, STDOUT_FILENO);
        execl(program, program, path, (char *)NULL);
        _exit(127);
    }
    waitpid(pid, &status, 0);
    getrusage(RUSAGE_CHILDREN, &used);
    printf("scalereport         %6.3f s  (limit 2)\n", seconds_since(start_ns));
    printf("  peak memory       %6.1f MB (limit 1074)\n", (double)used.ru_maxrss / 976.5625);
    return WIFEXITED(status) ? WEXITSTATUS(status) : FAIL_INTERNAL;
}

static int bench(const char *path, const struct size *size)
{
    struct record_point point;
    int rc;
    printf("%d ranks x %d steps, %s\n", size->ranks, size->steps,
           size->stalls ? "a stall row per step" : "no stall rows");
    fill_point(&point, size);
    rc = bench_write(path, &point);
    record_point_release(&point);
    if (rc == 0)
        rc = bench_report(path);
    unlink(path);
    return rc;
}

int main(int argc, char **argv)
{
    char path[512];
    struct size size = {argc > 2 ? atoi(argv[2]) : 1024, argc > 3 ? atoi(argv[3]) : 1000, false};
    snprintf(path, sizeof path, "%s/bench_record.%d.h5", argc > 1 ? argv[1] : ".", (int)getpid());
    int rc = bench(path, &size);
    size.stalls = true;
    if (rc == 0)
        rc = bench(path, &size);
    if (rc != 0)
        fprintf(stderr, "%s\n", fail_message());
    return rc;
}
