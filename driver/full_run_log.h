/*
 * full_run_log: what a run has done, so that a kill loses none of it.
 *
 * OUT.parts/run.log is appended to and never rewritten: one line for each interval of a run (the columns
 * of INTERVAL_COLUMNS behind the index of the point, times as UTC ns), written whole by one write(); what a
 * full disk took of a line is taken back. A line without its end is none, and the next launch ends it. Rank 0 writes; a rank that a drill kills says its last word itself; whoever
 * restarts the job adds "detected NS" (jobscripts). A launch that goes on reads what those before it did:
 * how far they came, what they meant to do, and what they had no time to publish. Rows go to the study file
 * with the pieces of the run, and the log goes with the parts when the study is whole. The times of a launch never
 * begin before what the log has: where this host's clock is behind it they are moved, by moved_ns.
 */
#ifndef DRIVER_FULL_RUN_LOG_H
#define DRIVER_FULL_RUN_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "analysis/record.h"
#include "driver/job.h"

enum { RUN_LOG_PATH = STUDY_PATH + 32 };

struct run_log {
    char path[RUN_LOG_PATH];
    int fd; /* -1: does not write */
    int launch, point, ranks;
    int64_t wall_ns;    /* to add to this process's clock to get UTC, */
    int64_t moved_ns;   /* this in it: as much was the host's clock behind the log's last rows */
    int64_t t0_unix_ns; /* of the study's first launch: rows count from there */
    int64_t n, capacity, published;
    struct interval_row
        *rows; /* of the point: earlier launches' unpublished ones, then this one's; */
               /* the first `published` are in the study file */
};

/* What earlier launches of this point's run left; all 0 when there was none. */
struct run_log_past {
    bool begun;
    int64_t target; /* steps that the first one was to reach */
    int64_t saved;  /* the largest that they published a checkpoint of, 0: none */
    int pieces;     /* of this launch: 0 */
};

/* On rank 0 of the point; the path is that of `job`'s study. FAIL_FILE. */
int run_log_open(struct run_log *log, const struct job *job, const struct point *point,
                 struct run_log_past *past);
void run_log_close(struct run_log *log);

/* For the rank that may be killed: a log that only says a last word. */
void run_log_open_word(struct run_log *log, const struct job *job, const struct point *point);

/* Times of `row` are this process's clock; they become the study's. FAIL_FILE. */
int run_log_add(struct run_log *log, const struct interval_row *row);

/* An instant, now; no allocation, any thread. */
void run_log_word(const struct run_log *log, const char *kind, const char *text);

/* All rows so far were published in piece `piece`. */
int run_log_published(struct run_log *log, int piece);

/* Every row of the point in the log, of all launches; malloc'd. */
int run_log_read(const struct run_log *log, struct interval_row **rows, int64_t *n);

/* Has a run of the point with this index begun to train, in the study whose file is to be `out`? */
bool run_log_begun(const char *out, int point);

/* The point whose run was cut off, -1; of a study whose parts are there. */
int run_log_unfinished(const char *out);

#endif
