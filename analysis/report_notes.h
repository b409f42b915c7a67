/*
 * report_notes: what must be said beside the numbers, one sentence each: what the intervals cover,
 * what is emulated, oversubscribed, invalid, unsettled, unpaired or left out, terms that do not
 * close, a rank that is slow, and what the driver itself recorded as warnings.
 */
#ifndef ANALYSIS_REPORT_NOTES_H
#define ANALYSIS_REPORT_NOTES_H

#include "analysis/report.h"

struct notes {
    int n, room;
    char **text; /* [n], owned */
};

void notes_collect(struct notes *out, const struct report *report);
void notes_release(struct notes *notes);

/* "2x8" */
void notes_shape(char text[32], const struct point_row *point);

/* One sentence about what the intervals cover. */
const char *notes_coverage(const struct scaling *scaling);

#endif
