/*
 * audit_calls: single collectives of audited steps, by stamps and by the profiler's records.
 *
 * Calls of one axis, kind and size are a group: all steps, all ranks. Of each group the median time by
 * either side and, call by call, how far the stamps lie from the record: their start before its (a
 * stamp is due when the stream gets there, a kernel begins when it is launched), their end behind its,
 * and what both make of the duration. Quantiles of these differences over the calls, us.
 */
#ifndef ANALYSIS_AUDIT_CALLS_H
#define ANALYSIS_AUDIT_CALLS_H

#include <stdio.h>

#include "analysis/record.h"

enum { AUDIT_GROUPS = 24 }; /* of a point; further ones are left out, and counted */

enum audit_side { AUDIT_START, AUDIT_END, AUDIT_DURATION, AUDIT_SIDES };

struct audit_group {
    const struct audit_call_row *like; /* axis, kind and bytes; borrowed from the point */
    int64_t n;
    double stamps_us, records_us; /* medians */
    double low[AUDIT_SIDES];      /* p5 of stamps less record, us */
    double middle[AUDIT_SIDES];   /* p50 */
    double high[AUDIT_SIDES];     /* p95 */
    double ratio;                 /* all time by stamps over all time by records */
};

/* Groups in the order of their first rows; how many. *left_out: groups beyond the last. */
int audit_groups(struct audit_group out[AUDIT_GROUPS], const struct record_point *point,
                 int *left_out);

struct json_t;
struct json_t *audit_calls_json(const struct record_point *point); /* a list; the caller owns it */

#endif
