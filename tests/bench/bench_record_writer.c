/* A writer to be killed, and the one who looks afterwards: tests/cli/test_record_*.sh.
 *
 *     bench_record_writer write|resume OUT N    append points 0 .. N-1 that are missing, finish
 *     bench_record_writer verify OUT K...       points K are there and every bit is what it was
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "analysis/record.h"
#include "tests/record_fill.h"

static int usage(void)
{
    fputs("usage: bench_record_writer write|resume OUT N | verify OUT K...\n", stderr);
    return FAIL_USAGE;
}

/* One write() a line, so that a kill leaves no half of one. */
static void say(const char *words, int point)
{
    char line[64];
    int n = snprintf(line, sizeof line, words, point);
    if (write(STDOUT_FILENO, line, (size_t)n) != n)
        exit(1);
}

static int64_t rows_of(int point)
{
    return 20 + 60 * (point % 5);
}

static int append_missing(struct record *record, int n_points, const int *done, int n_done)
{
    int rc = 0, next = 0;
    for (int i = 0; i < n_points && rc == 0; i++) {
        struct record_point point;
        if (next < n_done && done[next] == i) {
            next++;
            continue;
        }
        fill_point(&point, i, rows_of(i), 11);
        say("appending %d\n", i);
        rc = record_append(record, &point);
        if (rc == 0)
            say("point %d published\n", i);
        record_point_release(&point);
    }
    return rc;
}

static int write_study(const char *path, int n_points, bool resume)
{
    struct record *record = NULL;
    struct record_head head;
    int rc, launch, n_done, *done = NULL;
    fill_head(&head, 4, 1);
    TRY(record_begin(&record, path, &head, resume, &launch, &done, &n_done));
    say("begun %d\n", launch);
    rc = append_missing(record, n_points, done, n_done);
    if (rc != 0) {
        record_abandon(record);
        goto out;
    }
    say("finishing %d\n", n_points);
    TRY(record_finish(record));
    say("finished %d\n", n_points);
out:
    free(done);
    record_head_release(&head);
    return rc;
}

static int verify_point(const struct record_file *file, int wanted)
{
    for (int i = 0; i < file->n_points; i++) {
        struct record_point point;
        if (file->points[i].point.point != wanted)
            continue;
        fill_point(&point, wanted, rows_of(wanted), 11);
        bool same = same_point(&point, &file->points[i]);
        record_point_release(&point);
        return same ? 0 : fail(FAIL_WRONG, "point %d has changed", wanted);
    }
    return fail(FAIL_WRONG, "point %d is lost", wanted);
}

static int verify(const char *path, int n, char **points)
{
    struct record_file file;
    int rc;
    TRY(record_read(&file, path));
    for (int i = 0; i < n && rc == 0; i++)
        rc = verify_point(&file, atoi(points[i]));
    record_file_release(&file);
out:
    return rc;
}

int main(int argc, char **argv)
{
    int rc;
    if (argc < 3)
        return usage();
    if (strcmp(argv[1], "verify") == 0)
        rc = verify(argv[2], argc - 3, argv + 3);
    else if (argc == 4 && (strcmp(argv[1], "write") == 0 || strcmp(argv[1], "resume") == 0))
        rc = write_study(argv[2], atoi(argv[3]), argv[1][0] == 'r');
    else
        return usage();
    if (rc != 0)
        fprintf(stderr, "%s\n", fail_message());
    return rc;
}
