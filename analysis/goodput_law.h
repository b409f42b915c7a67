/*
 * goodput_law: how often a job of N nodes fails, as the user says it. Nothing here invents a rate.
 *
 *   --mtbf 40d/node                    one figure: it has no interval, and the report says so
 *   --mtbf 20d:60d/node                a range; the middle is the geometric one
 *   --failures k --exposure T/node     k failures in node-time T (all of it, also after the last
 *                                      failure: the end of an allocation is no failure): T/k with
 *                                      the 95 % chi-square interval of a Poisson count,
 *                                      [2T / chi2_0.975(2k+2), 2T / chi2_0.025(2k)];
 *                                      k = 0: one-sided, at least 2T / chi2_0.95(2) = T / 2.996
 *
 * Every time has a unit (s, m, h, d), is from 1 ms to 1e15 s and says what it is of: /node and /device divide by how many
 * of them the job has (independent failures, each of which ends the job), /job is that of the job
 * and the same for every size, which the report says too.
 */
#ifndef ANALYSIS_GOODPUT_LAW_H
#define ANALYSIS_GOODPUT_LAW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "analysis/stats.h"

enum goodput_law_kind { LAW_NONE, LAW_STATED, LAW_RANGE, LAW_COUNTED };
enum goodput_law_of { LAW_OF_NODE, LAW_OF_DEVICE, LAW_OF_JOB };

struct goodput_law {
    enum goodput_law_kind kind;
    enum goodput_law_of of;
    struct stats_interval mtbf_s; /* of one of them; no low: no interval; no high: at least low */
    int64_t failures;             /* LAW_COUNTED */
    double exposure_s;
    char said[160]; /* the options, as given */
};

/* Texts of the options, "" when not given. FAIL_USAGE in one sentence. */
int goodput_law_parse(struct goodput_law *out, const char *mtbf, const char *failures,
                      const char *exposure);

/*
 * Mean time between failures of a job. `value` is what an interval is planned with: the figure itself,
 * the middle of a range, or the bound that a count of 0 gives. low = high = NaN: no interval.
 */
struct stats_interval goodput_law_job(const struct goodput_law *law, double nodes, double devices);

/* "40d/node, stated: no interval", ...: one line for the report. */
void goodput_law_text(const struct goodput_law *law, char *text, size_t size);
const char *goodput_law_of_name(enum goodput_law_of of); /* "node" */

/* A duration for people: "1.25 h", up to four digits, of s, m, h, d the largest that gives 1 or more. */
void goodput_duration(char *text, size_t size, double seconds);

#endif
