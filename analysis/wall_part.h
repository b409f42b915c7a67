/*
 * wall_part: what the files of wall share. Nobody else includes it.
 */
#ifndef ANALYSIS_WALL_PART_H
#define ANALYSIS_WALL_PART_H

#include "analysis/wall.h"

/* One launch of the run, from its rows; -1: no such row. */
struct wall_launch {
    int launch;
    int64_t begin_ns, last_ns;      /* of anything that took time; begin may lie below 0 */
    int64_t first_step_ns;          /* begin of its first step */
    int64_t failed_ns, detected_ns; /* what ended it; filled for all but a last one that goes on */
    int64_t rework_ns;              /* from here to the failure work was lost */
    int64_t start_step, reached;    /* steps that it began with; that were done in it */
    int64_t keeps;                  /* of its steps, those that the run kept: up to this one */
    bool has_time, has_steps;       /* any row that took time; any step */
    bool ended, stopped;            /* ended in order; before all was done */
    int silent;                     /* launches behind it that left no row */
    const struct interval_row *failure, *load, *first;
};

struct wall_rows {
    int64_t n;
    struct interval_row *rows; /* sorted by begin, no doubles; owned */
    int n_launches;
    struct wall_launch *launch; /* in order; owned */
};

bool wall_is(const struct interval_row *row, const char *kind);

/* Of the kinds that lie one behind the other; saves, instants and records lie beside them. */
bool wall_takes_time(const struct interval_row *row);

/* Sort and look: FAIL_FILE. */
int wall_rows_make(struct wall_rows *out, const struct interval_row *rows, int64_t n);
/* Median steps between published saves that were due; where no launch has two, from its begin to the first, if
 * that waited. What was called as a launch ended was not due. NaN: no interval was seen. */
double wall_rows_between(const struct wall_rows *rows);

void wall_rows_release(struct wall_rows *rows);

void wall_recoveries(const struct wall_rows *rows, struct wall *out);

#endif
