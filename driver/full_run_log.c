#include "driver/full_run_log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/err.h"
#include "base/units.h"
#include "driver/point_row.h"

enum { LINE = 512 };

static int64_t unix_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void path_of(const char *out, char *path, size_t size)
{
    snprintf(path, size, "%s.parts/run.log", out);
}

/* ---- lines ---- */

static int format(char *line, size_t size, int point, const struct interval_row *row, int64_t shift)
{
    return snprintf(line, size,
                    "%d %d %s %" PRId64 " %" PRId64 " %d %d %" PRId64 " %" PRId64 " %" PRId64
                    " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %s\n",
                    point, row->launch, row->kind, row->begin_ns + shift, row->end_ns + shift,
                    row->ranks, row->flags, row->first_step, row->steps, row->tokens, row->call_ns,
                    row->input_ns, row->straggler_ns, row->stall_ns, row->text);
}

static bool parse(const char *line, int *point, struct interval_row *row)
{
    int at = 0;
    memset(row, 0, sizeof *row);
    int n = sscanf(line,
                   "%d %d %15s %" SCNd64 " %" SCNd64 " %d %d %" SCNd64 " %" SCNd64 " %" SCNd64
                   " %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64 "%n",
                   point, &row->launch, row->kind, &row->begin_ns, &row->end_ns, &row->ranks,
                   &row->flags, &row->first_step, &row->steps, &row->tokens, &row->call_ns,
                   &row->input_ns, &row->straggler_ns, &row->stall_ns, &at);
    if (n != 14 || at == 0)
        return false;
    if (line[at] == ' ')
        point_text(row->text, sizeof row->text, line + at + 1);
    return true;
}

/* Where the disk is full, half a line would swallow the next one: it is cut off again. */
static void take_back(const struct run_log *log, int written)
{
    struct stat found;
    if (written > 0 && fstat(log->fd, &found) == 0 && found.st_size >= written) {
        int ignored = ftruncate(log->fd, found.st_size - written);
        (void)ignored;
    }
}

static int append(const struct run_log *log, const char *line, int length)
{
    int written = 0;
    while (log->fd >= 0 && written < length) {
        /* A short write says nothing of its reason: the next one does. */
        ssize_t n = write(log->fd, line + written, (size_t)(length - written));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            int error = n < 0 ? errno : ENOSPC;
            take_back(log, written);
            return fail(FAIL_FILE,
                        "run: cannot write its log %s: %s: make room, and --resume goes on with "
                        "the newest checkpoint",
                        log->path, strerror(error));
        }
        written += (int)n;
    }
    return 0;
}

/* A line that a kill cut off stays alone. */
static int end_line(const struct run_log *log)
{
    char last = '\n';
    int fd = open(log->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    bool any = lseek(fd, -1, SEEK_END) >= 0 && read(fd, &last, 1) == 1;
    close(fd);
    return any && last != '\n' ? append(log, "\n", 1) : 0;
}

/* ---- reading ---- */

struct reading {
    int point, ranks;                   /* wanted; -1: any, -2: none */
    int64_t t0_unix_ns, latest_unix_ns; /* latest: end of any row */
    int last_point, last_launch;        /* of the lines so far */
    int unfinished;                     /* point whose run has begun and not ended, -1 */
    int64_t n, capacity, published;     /* published: rows of launches up to their last mark */
    struct interval_row *rows;
};

static void keep(struct reading *r, const struct interval_row *row)
{
    r->rows = record_room(r->rows, sizeof *r->rows, r->n, &r->capacity, 1);
    r->rows[r->n] = *row;
    r->rows[r->n].begin_ns -= r->t0_unix_ns;
    r->rows[r->n].end_ns -= r->t0_unix_ns;
    r->n++;
}

/* "detected NS": of the launch before. */
static void see_detected(struct reading *r, int64_t at_unix_ns)
{
    struct interval_row row = {.launch = r->last_launch,
                               .kind = "detected",
                               .begin_ns = at_unix_ns,
                               .end_ns = at_unix_ns,
                               .ranks = r->ranks};
    if (r->last_point >= 0 && (r->point == -1 || r->point == r->last_point))
        keep(r, &row);
}

static void see_row(struct reading *r, int point, const struct interval_row *row)
{
    r->last_point = point;
    r->last_launch = row->launch;
    r->latest_unix_ns = row->end_ns > r->latest_unix_ns ? row->end_ns : r->latest_unix_ns;
    bool over = strcmp(row->kind, "end") == 0 && (row->flags & INTERVAL_STOPS) == 0;
    if (over && r->unfinished == point)
        r->unfinished = -1;
    else if (!over && strcmp(row->kind, "launch") != 0)
        r->unfinished = point;
    if (r->point == -1 || r->point == point)
        keep(r, row);
}

static void see_line(struct reading *r, const char *line)
{
    struct interval_row row;
    int64_t at;
    int point, piece;
    if (sscanf(line, "t0 %" SCNd64, &at) == 1 && r->t0_unix_ns == 0)
        r->t0_unix_ns = at;
    else if (sscanf(line, "detected %" SCNd64, &at) == 1)
        see_detected(r, at);
    else if (sscanf(line, "published %d %d", &point, &piece) == 2)
        r->published = point == r->point ? r->n : r->published;
    else if (parse(line, &point, &row))
        see_row(r, point, &row);
}

static int read_lines(const char *path, struct reading *r)
{
    char line[LINE];
    FILE *file = fopen(path, "r");
    r->last_point = r->last_launch = r->unfinished = -1;
    if (file == NULL)
        return errno == ENOENT ? 0
                               : fail(FAIL_FILE, "run: cannot read %s: %s", path, strerror(errno));
    while (fgets(line, sizeof line, file) != NULL) {
        size_t length = strlen(line);
        if (length == 0 || line[length - 1] != '\n')
            continue; /* cut off, or not ours */
        line[length - 1] = '\0';
        see_line(r, line);
    }
    fclose(file);
    return 0;
}

int run_log_unfinished(const char *out)
{
    char path[RUN_LOG_PATH];
    struct reading r = {.point = -2, .ranks = 1};
    path_of(out, path, sizeof path);
    if (read_lines(path, &r) != 0)
        fail_clear();
    free(r.rows);
    return r.unfinished;
}

int run_log_read(const struct run_log *log, struct interval_row **rows, int64_t *n)
{
    struct reading r = {.point = log->point, .ranks = log->ranks};
    int rc = read_lines(log->path, &r);
    *rows = r.rows;
    *n = r.n;
    return rc;
}

/* ---- writing ---- */

static void begin(struct run_log *log, const struct job *job, const struct point *point)
{
    memset(log, 0, sizeof *log);
    path_of(job->study.out, log->path, sizeof log->path);
    log->fd = -1;
    log->launch = job->launch;
    log->point = point->index;
    log->ranks = point->ranks;
    log->wall_ns = unix_ns() - units_now_ns();
}

/* Clocks are set back, and those of hosts differ: what follows in the log does not begin before what it follows. */
static void follow(struct run_log *log, const struct reading *r, const struct job *job)
{
    bool same = r->last_launch == job->launch; /* its rows are by this clock */
    int64_t begin = (same ? units_now_ns() : job->begin_ns) + log->wall_ns;
    log->moved_ns = r->latest_unix_ns > begin ? r->latest_unix_ns - begin : 0;
    log->wall_ns += log->moved_ns;
}

static void look_back(const struct reading *r, struct run_log_past *past)
{
    memset(past, 0, sizeof *past);
    for (int64_t i = 0; i < r->n; i++) {
        const struct interval_row *row = &r->rows[i];
        if (!past->begun && strcmp(row->kind, "start-up") == 0 &&
            sscanf(row->text, "to step %" SCNd64, &past->target) == 1)
            past->begun = true;
        bool saved = strcmp(row->kind, "save") == 0 && (row->flags & INTERVAL_LOST) == 0;
        if (saved && row->first_step > past->saved)
            past->saved = row->first_step;
    }
}

bool run_log_begun(const char *out, int point)
{
    char path[RUN_LOG_PATH];
    struct reading r = {.point = point, .ranks = 1};
    struct run_log_past past;
    path_of(out, path, sizeof path);
    if (read_lines(path, &r) != 0)
        fail_clear();
    look_back(&r, &past);
    free(r.rows);
    return past.begun;
}

int run_log_open(struct run_log *log, const struct job *job, const struct point *point,
                 struct run_log_past *past)
{
    char line[64];
    struct reading r = {.point = point->index, .ranks = point->ranks};
    int rc = 0;
    begin(log, job, point);
    TRY(read_lines(log->path, &r));
    look_back(&r, past);
    follow(log, &r, job);
    log->rows = r.rows;
    log->n = r.n;
    log->capacity = r.capacity;
    log->published = r.published;
    log->t0_unix_ns = r.t0_unix_ns;
    log->fd = open(log->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (log->fd < 0)
        rc = fail(FAIL_FILE, "run: cannot write %s: %s", log->path, strerror(errno));
    if (rc == 0)
        rc = end_line(log);
    if (rc == 0 && log->t0_unix_ns == 0) {
        log->t0_unix_ns = job->t0_ns + log->wall_ns;
        rc = append(log, line, snprintf(line, sizeof line, "t0 %" PRId64 "\n", log->t0_unix_ns));
    }
out:
    return rc;
}

void run_log_open_word(struct run_log *log, const struct job *job, const struct point *point)
{
    struct reading r = {.point = -2, .ranks = 1};
    begin(log, job, point);
    if (read_lines(log->path, &r) != 0)
        fail_clear();
    follow(log, &r, job);
    free(r.rows);
    log->fd = open(log->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
}

void run_log_close(struct run_log *log)
{
    if (log->fd >= 0)
        close(log->fd);
    free(log->rows);
    memset(log, 0, sizeof *log);
    log->fd = -1;
}

int run_log_add(struct run_log *log, const struct interval_row *given)
{
    char line[LINE];
    struct interval_row row = *given;
    row.launch = log->launch;
    row.ranks = log->ranks;
    row.begin_ns += log->wall_ns - log->t0_unix_ns;
    row.end_ns += log->wall_ns - log->t0_unix_ns;
    log->rows = record_room(log->rows, sizeof *log->rows, log->n, &log->capacity, 1);
    log->rows[log->n++] = row;
    return append(log, line, format(line, sizeof line, log->point, &row, log->t0_unix_ns));
}

void run_log_word(const struct run_log *log, const char *kind, const char *text)
{
    char line[LINE];
    struct interval_row row = {.launch = log->launch, .ranks = log->ranks};
    row.begin_ns = row.end_ns = units_now_ns() + log->wall_ns;
    point_text(row.kind, sizeof row.kind, kind);
    point_text(row.text, sizeof row.text, text);
    if (append(log, line, format(line, sizeof line, log->point, &row, 0)) != 0)
        fail_clear();
}

int run_log_published(struct run_log *log, int piece)
{
    char line[64];
    log->published = log->n;
    return append(log, line, snprintf(line, sizeof line, "published %d %d\n", log->point, piece));
}
