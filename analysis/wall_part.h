/*
 * wall_part: what the files of wall share. Nobody else includes it.
 */
#ifndef ANALYSIS_WALL_PART_H
#define ANALYSIS_WALL_PART_H

#include "analysis/wall.h"

/* One launch of the run, from its rows; -1: no such row. */
struct wall_launch {
    int launch;
    int64_t begin_ns, last_ns;      /* of anything that took time */
    int64_t first_step_ns;          /* begin of its first step */
    int64_t failed_ns, detected_ns; /* what ended it; filled for all but a last one that goes on */
    int64_t rework_ns;              /* from here to the failure work was lost */
    int64_t start_step, reached;    /* steps that it began with; that were done in it */
    int64_t keeps;                  /* of its steps, those that the run kept: up to this one */
    bool has_steps, ended, stopped; /* ended in order; before all was done */
    const struct interval_row *failure, *load, *first;
};

struct wall_rows {
    int64_t n;
    struct interval_row *rows; /* sorted by begin, no doubles; owned */
    int n_launches;
    struct wall_launch *launch; /* in order; owned */
};

bool wall_is(const struct interval_row *row, const char *kind);

/* Sort and look: FAIL_FILE. */
int wall_rows_make(struct wall_rows *out, const struct interval_row *rows, int64_t n);
void wall_rows_release(struct wall_rows *rows);

void wall_recoveries(const struct wall_rows *rows, struct wall *out);

#endif
