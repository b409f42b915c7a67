/*
 * report_work: how long each point takes to the same work, and what that costs in devices.
 *
 * A study measures throughput; a planner pays for time to the target. The two differ where a larger
 * batch needs more samples, and where runs lose time to faults and checkpoints. Neither is in a
 * study, so both are said beside it:
 *
 *     hours  = work / (tokens/s x goodput)
 *     E_ttw  = hours(N0) N0 / (hours(N) N) = E_throughput x E_samples x E_goodput
 *
 * E_throughput is the measured efficiency and carries its interval; samples and goodput are taken
 * as given. The price of a point over that of the base is 1 / E_ttw. Hours contain the goodput:
 * nobody divides by it again.
 */
#ifndef ANALYSIS_REPORT_WORK_H
#define ANALYSIS_REPORT_WORK_H

#include "analysis/report.h"

enum { REPORT_WORK_ITEMS = 32 };

/* "64=1.2e6,128=1.3e6": `at` ascending. */
struct report_work_list {
    int n;
    double at[REPORT_WORK_ITEMS], value[REPORT_WORK_ITEMS];
};

struct report_work {
    double tokens;                   /* of the whole training, whatever the batch; 0: by samples */
    struct report_work_list samples; /* to the target, by global batch; linear between two */
    struct report_work_list goodput; /* share of time in which steps run, by devices; at 0: all */
};

struct report_work_row {
    struct stats_interval hours, ttw;    /* NaN: not asked for, or no point of the curve */
    double throughput, samples, goodput; /* the factors of ttw; NaN: not given */
    double share;                        /* goodput itself; NaN */
};

/* What was asked for; tokens 0 and texts "" say nothing. FAIL_USAGE in one sentence. */
int report_work_parse(struct report_work *out, double tokens, const char *samples,
                      const char *goodput);

bool report_work_asked(const struct report_work *work);

/* FAIL_USAGE for a batch or a size of the study that the lists do not cover: nothing is guessed. */
int report_work_check(const struct report_work *work, const struct report *report);

/* All NaN when report->work is NULL or asks for nothing. */
void report_work_of(const struct report *report, const struct scaling_row *row,
                    struct report_work_row *out);

void report_work_text(FILE *to, const struct report *report);

#endif
