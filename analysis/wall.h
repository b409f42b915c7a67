/*
 * wall: every nanosecond of a run's wall time in exactly one bucket.
 *
 * A pure function of the intervals of a run (analysis/record.h), all launches of it. Time is counted per
 * rank: the run's wall time is (end - begin) x ranks, in whole ns, and the buckets sum to it exactly. What
 * two buckets could claim goes to the first of
 *
 *   restart         from when it was known that a launch had ended to the first step of the next one
 *   detection       from the failure until it was known
 *   rework          from the state that the next launch began with to the failure: steps done again
 *   start-up        of the first launch: until its first step
 *   warm-up         the first -w steps of each launch
 *   checkpoint-call the device held by a save, and time without steps because of one
 *   data-stall      a step waited for its batch
 *   inflation       what steps beside a save take longer than quiet ones of their launch: the sum over
 *                   them of (step - mean of quiet steps), both without calls and data stalls, if it is
 *                   above 0 (FORMULAS 1.7); "inflation-raw" is the sum as it is
 *   straggler-wait  of a rank: the smaller of its wait for communication and what the slowest rank of the
 *                   step computed longer than it
 *   useful          the rest of the steps; waits for bytes that move ("exposed") are a view of it
 *   record          between blocks of steps, by stamps around it: stamps of the block are read, ranks tell
 *                   each other how it went, the run's log, pieces of the study file. What measuring costs; a job without us has its own
 *   other           between the steps: what no interval claims. More than WALL_OTHER_MOST of the wall time
 *                   and the account does not close
 *
 * Steps that were kept are those of useful and of warm-up; steps of rework were done again. The recoveries
 * come from the same rows: what each launch that did not finish the run cost. A launch that left no row, as
 * it was killed before it had begun, is known by the gap in the numbers of launches, or by who restarted:
 * it is one that was started and failed, and its time is in the restart before it.
 */
#ifndef ANALYSIS_WALL_H
#define ANALYSIS_WALL_H

#include "analysis/record.h"

#define WALL_OTHER_MOST 0.01

enum wall_bucket {
    WALL_RESTART,
    WALL_DETECTION,
    WALL_REWORK,
    WALL_START_UP,
    WALL_WARM_UP,
    WALL_CALL,
    WALL_DATA,
    WALL_INFLATION,
    WALL_STRAGGLER,
    WALL_USEFUL,
    WALL_RECORD,
    WALL_OTHER,
    WALL_BUCKETS
};
const char *wall_bucket_name(int bucket);

struct wall {
    int ranks;
    int64_t begin_ns, end_ns;      /* of the run, since the t0 of the study's first launch */
    int64_t rank_ns[WALL_BUCKETS]; /* sum over ranks */
    int64_t count[WALL_BUCKETS];   /* steps, saves, failures: as ACCOUNT_COLUMNS says */
    int64_t exposed_ns;            /* within useful */
    int64_t load_ns;               /* within restart */
    int64_t inflation_signed_ns;
    double quiet_step_ns; /* mean quiet step of the last launch that has five; NaN: none has */
    int64_t tokens;       /* of the steps that were kept: useful and warm-up */
    double between_steps; /* median steps from one published save to the next; NaN: none was due */
    int launches, silent; /* that were started; of them without a row */
    int64_t n_recoveries;
    struct recovery_row *recoveries; /* owned */
    bool finished;                   /* the last launch did all its steps */
};

/*
 * `rows` in any order, with or without doubles; of one point. FAIL_FILE when steps overlap, which no
 * program of ours writes, or no row is of a launch.
 */
int wall_account(struct wall *out, const struct interval_row *rows, int64_t n);

/* The same of a point in a study file: intervals of all its launches. FAIL_FILE: it has none. */
int wall_of_point(struct wall *out, const struct record_file *file, int point);

/* The rows of tables `account` and `recoveries`. */
void wall_rows(const struct wall *wall, struct record_point *out);

bool wall_closes(const struct wall *wall);
void wall_release(struct wall *wall);

#endif
