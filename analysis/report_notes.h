/*
 * report_notes: what must be said beside the numbers, one sentence each: what is noise, emulated,
 * oversubscribed, invalid, unsettled, unpaired or left out, which launches a ratio comes from,
 * peaks that are none, terms that do not close, a rank that is slow, and what the driver itself
 * recorded as warnings.
 */
#ifndef ANALYSIS_REPORT_NOTES_H
#define ANALYSIS_REPORT_NOTES_H

#include <stdbool.h>
#include <stddef.h>

#include "analysis/report.h"

struct notes {
    const struct scaling *scaling; /* borrowed */
    int n, room;
    char **text; /* [n], owned */
};

void notes_collect(struct notes *out, const struct report *report);
void notes_release(struct notes *notes);

/*
 * How far equal blocks of a point differ, when that is more than 10 % (the interval of the ratio of
 * odd to even blocks leaves 0.9 to 1.1). False and "" when no point does.
 */
bool notes_noisy(char *text, size_t size, const struct scaling *scaling);

/* "0.1": file and launch of a run, as they are counted in the report. */
void notes_launch(char text[32], const struct scaling_run *run);

/* "2x8" */
void notes_shape(char text[32], const struct point_row *point);

/* One sentence about what the intervals cover. */
const char *notes_coverage(const struct scaling *scaling);

#endif
