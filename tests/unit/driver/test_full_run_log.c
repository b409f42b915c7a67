/* The log of a run survives what kills its writer: whole lines count, and the next launch knows what was done. */
#include "driver/full_run_log.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/units.h"
#include "tests/test.h"

static char folder[] = "/tmp/test_run_log.XXXXXX";
static struct job job;
static const struct point point = {.index = 3, .ranks = 2};

static void append(const char *text)
{
    char path[600];
    snprintf(path, sizeof path, "%s.parts/run.log", job.study.out);
    FILE *file = fopen(path, "a");
    CHECK(file != NULL);
    if (file == NULL)
        return;
    fputs(text, file);
    fclose(file);
}

static void add(struct run_log *log, const char *kind, int64_t after_ns, int64_t steps,
                const char *text)
{
    struct interval_row row = {.begin_ns = job.t0_ns + after_ns,
                               .end_ns = job.t0_ns + after_ns + 5,
                               .first_step = 7,
                               .steps = steps,
                               .call_ns = -1,
                               .stall_ns = INT64_C(1) << 60};
    snprintf(row.kind, sizeof row.kind, "%s", kind);
    snprintf(row.text, sizeof row.text, "%s", text);
    CHECK_EQ(run_log_add(log, &row), 0);
}

/* The first launch: a piece is published, one more block is done, and it is killed while it writes a line. */
static void first_launch(void)
{
    struct run_log log, word;
    struct run_log_past past;
    CHECK_EQ(run_log_unfinished(job.study.out), -1);
    CHECK_EQ(run_log_open(&log, &job, &point, &past), 0);
    CHECK(!past.begun);
    add(&log, "start-up", 0, 0, "to step 40");
    add(&log, "steps", 100, 10, "");
    CHECK_EQ(log.n - log.published, 2);
    CHECK_EQ(run_log_published(&log, 1), 0);
    CHECK_EQ(log.n - log.published, 0);
    add(&log, "steps", 200, 10, "");
    CHECK_EQ(log.rows[2].begin_ns, 200); /* since the study's t0 */
    run_log_open_word(&word, &job, &point);
    run_log_word(&word, "failure", "rank 1 in step");
    run_log_close(&word);
    run_log_close(&log);
    append("detected 5000000000000000000\n3 0 steps 17 18 2 0");
}

static void next_launch(void)
{
    struct run_log log;
    struct run_log_past past;
    struct interval_row *rows;
    int64_t n;
    CHECK_EQ(run_log_unfinished(job.study.out), 3);
    job.launch = 1;
    CHECK_EQ(run_log_open(&log, &job, &point, &past), 0);
    CHECK(past.begun); /* the line that was cut off stays none, and swallows none */
    CHECK_EQ(past.target, 40);
    CHECK_EQ(log.n - log.published, 3); /* a block, the failure, its detection */
    const struct interval_row *left = log.rows + log.published;
    CHECK(left[0].launch == 0 && left[0].steps == 10 && left[0].begin_ns == 200 &&
          left[0].end_ns == 205);
    CHECK(left[0].first_step == 7 && left[0].call_ns == -1 && left[0].stall_ns == INT64_C(1) << 60);
    CHECK(strcmp(left[1].kind, "failure") == 0 && strcmp(left[1].text, "rank 1 in step") == 0);
    CHECK(strcmp(left[2].kind, "detected") == 0 && left[2].launch == 0 && left[2].ranks == 2);
    add(&log, "end", 900, 0, "");
    CHECK_EQ(run_log_read(&log, &rows, &n), 0);
    CHECK_EQ(n, 6);
    CHECK(n == 6 && rows[5].launch == 1 && strcmp(rows[5].kind, "end") == 0);
    free(rows);
    run_log_close(&log);
    CHECK_EQ(run_log_unfinished(job.study.out), -1);
}

/* A disk that fills in the middle of a line: it is said why, and nothing of the line stays. */
static void full_disk(void)
{
    struct run_log log;
    struct run_log_past past;
    struct stat before, after;
    struct rlimit old, small;
    struct interval_row row = {.kind = "steps"};
    CHECK_EQ(run_log_open(&log, &job, &point, &past), 0);
    CHECK_EQ(stat(log.path, &before), 0);
    CHECK_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = (struct rlimit){(rlim_t)before.st_size + 10, old.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    CHECK_EQ(run_log_add(&log, &row), FAIL_FILE);
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
    CHECK_HAS(fail_message(), "File too large: make room, and --resume goes on");
    fail_clear();
    CHECK_EQ(stat(log.path, &after), 0);
    CHECK_EQ(after.st_size, before.st_size);
    run_log_close(&log);
}

/* Another point's rows are its own. */
static void other_point(void)
{
    struct run_log log;
    struct run_log_past past;
    const struct point other = {.index = 0, .ranks = 2};
    CHECK_EQ(run_log_open(&log, &job, &other, &past), 0);
    CHECK(!past.begun && log.n == 0);
    run_log_close(&log);
}

/* A launch on a host whose clock is an hour behind, or was set back, follows what the log has. */
static void clock_set_back(void)
{
    const struct point other = {.index = 5, .ranks = 2};
    const int64_t hour = INT64_C(3600) * 1000000000;
    struct run_log log, word;
    struct run_log_past past;
    struct interval_row *rows;
    int64_t n;
    CHECK_EQ(run_log_open(&log, &job, &other, &past), 0);
    log.wall_ns += hour; /* this launch's clock was right, and the next one's is not */
    add(&log, "start-up", 0, 0, "to step 40");
    add(&log, "steps", 100, 10, "");
    run_log_close(&log);
    job.launch++;
    job.begin_ns = units_now_ns();
    CHECK_EQ(run_log_open(&log, &job, &other, &past), 0);
    CHECK_NEAR((double)log.moved_ns, (double)hour, 60e9);
    job.t0_ns = job.begin_ns;
    add(&log, "steps", 0, 10, "");
    CHECK_EQ(run_log_read(&log, &rows, &n), 0);
    CHECK_EQ(n, 3);
    CHECK_EQ(rows[2].begin_ns, rows[1].end_ns); /* at once: nobody knows how long it was */
    free(rows);
    run_log_open_word(&word, &job, &other); /* who speaks in the same launch, has its time */
    CHECK(word.wall_ns >= log.wall_ns - 1000000000 && word.wall_ns <= log.wall_ns + 60000000000);
    run_log_close(&word);
    run_log_close(&log);
}

int main(void)
{
    char parts[600];
    CHECK(mkdtemp(folder) != NULL);
    snprintf(job.study.out, sizeof job.study.out, "%s/a.h5", folder);
    snprintf(parts, sizeof parts, "%s.parts", job.study.out);
    CHECK_EQ(mkdir(parts, 0777), 0);
    job.t0_ns = job.begin_ns = units_now_ns();
    first_launch();
    next_launch();
    full_disk();
    other_point();
    clock_set_back();
    snprintf(parts, sizeof parts, "rm -r %s", folder);
    CHECK_EQ(system(parts), 0);
    return test_end();
}
