/*
 * goodput_run: what a run (--run-steps) at one point got out of its wall time, as measured.
 *
 * wall.h puts every nanosecond of each rank into one bucket; here are its seconds, what the failures cost,
 * and the shares that go by the names of others. A share is the sum of some buckets over wall time:
 * which ones is a row of goodput_definitions[], so that no figure stands without its definition. A
 * single run is an exact account: intervals come from several runs of one point.
 *
 * NaN: not known.
 */
#ifndef ANALYSIS_GOODPUT_RUN_H
#define ANALYSIS_GOODPUT_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "analysis/record.h"
#include "analysis/wall.h"

/* What a failure cost. A stop that was asked for (preempted) is none. */
struct goodput_recovery {
    bool noted;       /* who restarts wrote down when it was known (jobscripts do) */
    double detect_s;  /* failure to the knowledge of it; NaN: not noted */
    double restart_s; /* from there to the begin of the first new step; not noted: from the failure,
                         so it is the time until someone restarted, and not the machine's */
    double began_s;   /* from the begin of the next launch's program to that step */
    double load_s;    /* of it: loading state */
    double lost_s;    /* wall time from what was saved to the failure */
    int64_t lost_steps;
};

struct goodput_run {
    bool there;    /* the point was a run */
    bool closes;   /* other <= WALL_OTHER_MOST of wall */
    bool finished; /* else it was killed and not resumed: the account is of what was published */
    int launches, failures, ranks; /* launches = 1 + failures + stops that were asked for */
    int silent;                    /* launches that failed before they left a row */
    int64_t steps;                 /* optimizer steps that were kept: useful and warm-up */
    int64_t rework_steps, warm_up_steps;
    int64_t saves;                         /* published */
    double wall_s, bucket_s[WALL_BUCKETS]; /* means over ranks */
    double exposed_s;                      /* communication, a view of useful */
    double load_s;                         /* loading state, a view of restart */
    double inflation_signed_s;             /* before it was cut at 0 */
    double step_s;   /* of a step of useful, its waits for data and late ranks counted in */
    double in_steps; /* useful over that: the share of a step's time that goodput counts */
    double between_s, between_steps; /* from one save to the next: useful steps' time, and steps
                                        (wall.h) */
    double tokens_per_step, tokens_per_s; /* of kept steps; over wall time */
    int n_recoveries;
    struct goodput_recovery *recoveries; /* owned */
};

/* A point of a file, all its launches; not there when it has no intervals. FAIL_FILE as
 * wall_account. */
int goodput_run_of(struct goodput_run *out, const struct record_file *file, int point);
void goodput_run_release(struct goodput_run *run);

struct goodput_definition {
    const char *name, *key; /* "ETTR", "ettr_pct" */
    unsigned buckets;       /* 1 << WALL_x: what counts */
    bool warm_steps;        /* of warm-up only as many useful steps' time as it made */
    const char *text;       /* one line: what counts, and whose words */
};
enum { GOODPUT_DEFINITIONS = 5 };
extern const struct goodput_definition goodput_definitions[GOODPUT_DEFINITIONS];

double goodput_share(const struct goodput_run *run, const struct goodput_definition *definition);

#endif
